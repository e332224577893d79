//===- BlasReplay.h - recorded answers of cuBLASLt's heuristics ----------===//
//
// `probes --products` asks a card's library for the algorithms of common products; tools/gpu-check keeps the answers.
// For these products the stand-in returns the recorded answers instead of its own list.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_BLASREPLAY_H
#define TCC_TEST_EMULATION_DRIVER_BLASREPLAY_H

#include "test/emulation/driver/BlasArithmetic.h"

#include <map>
#include <string>
#include <vector>

namespace tcc::emulation {

struct RecordedAlgorithm {
  uint32_t id = 0, tile = 0, parts = 1, scheme = 0;
  uint64_t workspaceBytes = 0;
};

struct RecordedAnswer {
  cuda::api::cublasStatus_t status = cuda::api::CUBLAS_STATUS_SUCCESS;
  std::vector<RecordedAlgorithm> algorithms; ///< in the library's order
};

class BlasReplay {
public:
  /// Reads the lines of JSON that `probes --products` prints, or a gpu-check.json. `problem`: why the file is unusable.
  static BlasReplay read(const std::string &file, std::string &problem);

  /// Null if the record does not have the product.
  const RecordedAnswer *find(const BlasObject &desc, const Shape &shape, const BlasObject &a,
                             const BlasObject &d) const;

private:
  std::map<std::string, RecordedAnswer> answers; ///< by the product's text
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_BLASREPLAY_H

//===- JoinedOutputs.h - outputs of several batches as whole arrays -------===//
//
// A plan computes batches of one size. JoinedOutputs copies the outputs of each call into arrays with one entry for
// each sample, along the outputs' axes of samples, and drops the padding of a last, shorter batch.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_JOINEDOUTPUTS_H
#define TCC_RUNTIME_TRAIN_JOINEDOUTPUTS_H

#include "runtime/state/ArrayFiles.h"
#include "runtime/train/EntryRunner.h"

#include <string_view>
#include <vector>

namespace tcc::runtime {

class JoinedOutputs {
public:
  /// Arrays of `samples` entries from calls of `batch` samples each, for every output of the entry whose name begins
  /// with `prefix`; the array has the rest of the name. Error: such an output has no axis of samples, and the samples
  /// are not one batch.
  static Expected<JoinedOutputs> create(const plan::Entry &entry, uint64_t samples, uint64_t batch,
                                        std::string_view prefix = "");

  const std::vector<ArraySpec> &arrays() const { return specs; }
  uint64_t samples() const { return count; }

  /// Copies the outputs of the runner's latest run, whose first `taken` samples are the samples from `begin` on.
  /// Allocates in the first call alone.
  Status take(const EntryRunner &runner, uint64_t begin, uint64_t taken);
  /// The bytes of arrays()[i], after the last take().
  std::vector<std::byte> &values(size_t i) { return bytes[i]; }
  const std::vector<std::byte> &values(size_t i) const { return bytes[i]; }

private:
  std::vector<ArraySpec> specs;
  std::vector<int> indices; ///< outputs of the entry
  uint64_t count = 0, batch = 0;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::byte> call; ///< one output of one call
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_JOINEDOUTPUTS_H

//===- KernelRecord.h - launches of kernels, to repeat on a card ---------===//
//
// A record is a folder: `launches.jsonl` with a line for each launch, and `data.bin` with the code, the operands before
// the launch, and the results after it on the emulated machine. `card-kernels` repeats the launches on a machine with a
// card, which needs no compiler.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_KERNELS_KERNELRECORD_H
#define TCC_TEST_EMULATION_KERNELS_KERNELRECORD_H

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::test {

/// An operand of a launch: an input's bytes, or a result's as the machine computed them.
struct RecordedOperand {
  std::string type; ///< of its elements: "f32"
  std::span<const std::byte> bytes;
  bool result = false;
  std::optional<unsigned> shares; ///< for a result: the operand that it overwrites in place
  std::optional<unsigned> restOf; ///< for a result: the operand whose rounding error it is; their sum is compared
};

class KernelRecord {
public:
  /// The record in the folder that TCC_KERNEL_RECORD names, begun anew by each process; null if the variable is not
  /// set.
  static KernelRecord *wanted();
  /// The architecture that kernels are compiled for: TCC_KERNEL_ARCHITECTURE, else sm_90.
  static std::string architecture();

  /// `what` names the case. The instructions in `ptx` decide whether a card's result may differ in its last bits.
  void add(const std::string &what, const std::string &ptx, const std::string &symbol, uint64_t blocks,
           uint64_t threads, uint64_t tiles, uint64_t scratchBytes, const std::vector<RecordedOperand> &operands);

private:
  explicit KernelRecord(const std::string &folder);
  /// The offset of the bytes in data.bin; equal bytes are stored once.
  uint64_t place(std::string_view bytes);

  std::ofstream launches, data;
  uint64_t end = 0;
  std::map<std::string, uint64_t> places; ///< by content
};

} // namespace tcc::test

#endif // TCC_TEST_EMULATION_KERNELS_KERNELRECORD_H

//===- KernelRecord.h - launches of kernels, to repeat on a card ---------===//
//
// A record is a folder: `launches.jsonl` with a line for each launch, and `data.bin` with the code, what operands hold
// before it, and what results hold after it on the emulated machine. `card-kernels` repeats the launches where a card
// is, and needs no compiler there.
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
  std::optional<unsigned> shares; ///< of a result: the operand whose memory it takes over
  std::optional<unsigned> restOf; ///< of a result: the operand whose rounding error it is, so that their sum counts
};

class KernelRecord {
public:
  /// The record that TCC_KERNEL_RECORD names a folder for; null where it names none. It is begun anew by each process.
  static KernelRecord *wanted();
  /// TCC_KERNEL_ARCHITECTURE, or sm_90: what the kernels of cases are compiled for.
  static std::string architecture();

  /// `what` names the case. PTX says by its instructions whether a card's result may differ in its last bits.
  void add(const std::string &what, const std::string &ptx, const std::string &symbol, uint64_t blocks,
           uint64_t threads, uint64_t tiles, uint64_t scratchBytes, const std::vector<RecordedOperand> &operands);

private:
  explicit KernelRecord(const std::string &folder);
  /// Where the bytes are in data.bin; equal ones are there once.
  uint64_t place(std::string_view bytes);

  std::ofstream launches, data;
  uint64_t end = 0;
  std::map<std::string, uint64_t> places; ///< by content
};

} // namespace tcc::test

#endif // TCC_TEST_EMULATION_KERNELS_KERNELRECORD_H

//===- Evaluate.h - PTX text run in a test -------------------------------===//
#ifndef TCC_TEST_EMULATION_TESTS_EVALUATE_H
#define TCC_TEST_EMULATION_TESTS_EVALUATE_H

#include "test/emulation/machine/Machine.h"
#include "test/emulation/ptx/Program.h"

#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace tcc::emulation {

/// Four operands of a thread, in the low bits of each.
using Inputs = std::array<uint64_t, 4>;

/// Runs `body`, which reads %x1 … %x4 and writes %x0, where x is h (16 bits), r (32), d (64) or p (a predicate);
/// `result` is the letter of the register that it writes. One thread runs for each element of `inputs`. `problem` is
/// the message of an error or fault, or empty.
struct Evaluated {
  std::vector<uint64_t> results;
  std::string problem;
};
Evaluated evaluate(const std::string &body, char result, const std::vector<Inputs> &inputs, bool checked = false);

/// A module with one kernel `k`: three 64-bit parameters in %d1 to %d3, %r1 = %tid.x, %r2 = %ctaid.x, %r3 = %ntid.x,
/// %r4 the thread in its grid, and registers %p, %h, %r, %d <32>. `declared` stands in front of the kernel.
std::string kernelText(const std::string &body, const std::string &declared = "");

/// Loads a module and launches its kernels, whose parameters are 64-bit numbers.
class Bench {
public:
  explicit Bench(MachineOptions options = {}) : machine(options) {}

  /// Empty, or the message of the error.
  std::string load(std::string_view text);
  /// The message of the fault, or empty.
  std::string launch(std::string_view kernel, Extent grid, Extent block, std::vector<uint64_t> parameters,
                     uint32_t dynamicShared = 0, uint32_t work = 1);

  template <typename T> T *buffer(size_t count, const char *name = "buffer", bool written = true) {
    return reinterpret_cast<T *>(machine.memory().allocate(count * sizeof(T), Home::Device, name, written).base);
  }
  template <typename T> static uint64_t at(T *pointer) { return reinterpret_cast<uint64_t>(pointer); }

  Machine machine;
  std::unique_ptr<Program> program;
};

inline uint64_t bits(float value) { return std::bit_cast<uint32_t>(value); }
inline uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_TESTS_EVALUATE_H

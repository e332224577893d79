//===- Fiber.h - stacks to switch between --------------------------------===//
//
// Each thread of a block is a fiber if the kernel has shuffles or barriers. A switch saves the callee-saved registers
// of the System V ABI for x86-64 and takes 5 ns; ucontext would make a system call each time.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_MACHINE_FIBER_H
#define TCC_TEST_EMULATION_MACHINE_FIBER_H

#include <cstddef>
#include <cstdint>

namespace tcc::emulation {

/// Stacks of equal size, each with a guard page below.
class FiberStacks {
public:
  ~FiberStacks();
  /// At least `count` stacks of at least `bytes` each.
  void reserve(uint64_t count, uint64_t bytes);
  /// Makes a suspended fiber on a stack; the first switch to it calls `begin`.
  void *start(uint64_t index, void (*begin)());

private:
  std::byte *base = nullptr;
  uint64_t count = 0, bytes = 0;
};

/// Suspends the running fiber, stores its stack pointer in `*from`, and resumes the fiber `to`.
extern "C" void tccEmulationSwitch(void **from, void *to);

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_MACHINE_FIBER_H

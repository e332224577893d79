//===- Fiber.h - stacks to switch between --------------------------------===//
//
// A thread of a block that shuffles or meets at barriers is a fiber. A switch saves the registers that the System V ABI
// for x86-64 keeps across calls, 5 ns; ucontext would make a system call each time.
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
  /// A suspended fiber on a stack; it begins in `begin` when it is first switched to.
  void *start(uint64_t index, void (*begin)());

private:
  std::byte *base = nullptr;
  uint64_t count = 0, bytes = 0;
};

/// Stores the running fiber's place in `*from` and goes on at `to`.
extern "C" void tccEmulationSwitch(void **from, void *to);

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_MACHINE_FIBER_H

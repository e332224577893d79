//===- Thread.h - one thread of a kernel ---------------------------------===//
//
// Translated code accesses the first members of Thread (ptx/Emit.cpp takes their offsets); the rest is the scheduler's.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_MACHINE_THREAD_H
#define TCC_TEST_EMULATION_MACHINE_THREAD_H

#include <cstddef>
#include <cstdint>

namespace tcc::emulation {

/// Indices of the special registers in Thread::special.
enum Special : unsigned {
  kTid = 0,
  kBlockExtent = 3,
  kBlock = 6,
  kGridExtent = 9,
  kLane = 12,
  kWarp = 13,
  kSpecials = 14
};

struct Thread {
  // Read by translated code.
  uint32_t special[kSpecials] = {};
  std::byte *shared = nullptr; ///< the block's shared memory
  // Written by translated code when a kernel with local memory starts in checked mode.
  std::byte *local = nullptr;
  uint64_t localBytes = 0;
  uint8_t *localWritten = nullptr; ///< one byte for each byte of local memory

  // The scheduler's.
  enum class State : uint8_t { Ready, AtBarrier, AtWarp, Left };
  enum class WarpOp : uint8_t { Sync, Shuffle, Vote, MultiplyTile };
  State state = State::Ready;
  WarpOp op = WarpOp::Sync;
  uint32_t index = 0; ///< in its block
  uint64_t stamp = 0; ///< work and thread, in the form that shadow memory stores
  void *stack = nullptr;
  uint32_t site = 0, mask = 0;                         ///< of the operation that it waits in
  uint32_t mode = 0, given = 0, select = 0, clamp = 0; ///< its operands
  uint32_t taken = 0, flag = 0;                        ///< its results
  const uint32_t *factors = nullptr; ///< of a product of tiles: four words of the left tile, two of the right, four sums
  float *sums = nullptr;             ///< its four results
};

/// The type that a product of tiles multiplies.
enum class TileKind : uint32_t { BF16, F16, TF32 };

/// The entry of a translated kernel: runs one thread. `parameters` is the block of the kernel's parameters.
using KernelEntry = void (*)(Thread *thread, const std::byte *parameters);

/// How translated code describes a memory access to the runtime.
enum AccessKind : uint32_t { kRead = 0, kWrite = 1, kReadNonCoherent = 2 };
enum class Space : uint32_t { Generic = 0, Global = 1, Shared = 3, Const = 4, Local = 5 };
constexpr uint32_t accessWord(uint32_t bytes, AccessKind kind, Space space) {
  return bytes | kind << 8 | static_cast<uint32_t>(space) << 12;
}

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_MACHINE_THREAD_H

//===- Memory.h - allocations and their shadow ---------------------------===//
//
// Every byte that kernels may touch belongs to an allocation, and has a cell of shadow that says who wrote and who read
// it last. Two accesses of a byte, one of them a write, by threads that nothing orders are a race. Ordered are: the
// same thread; threads of a block with a barrier in between; threads of a warp with a bar.warp.sync in between;
// launches that streams, events or graph edges order. (The idea is FastTrack's, Flanagan and Freund 2009, with one
// epoch for reads: readers of one byte are kept as their last one and how far apart they are.)
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_MACHINE_MEMORY_H
#define TCC_TEST_EMULATION_MACHINE_MEMORY_H

#include "test/emulation/machine/Fault.h"
#include "test/emulation/machine/Thread.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tcc::emulation {

/// Says of two pieces of queued work whether the earlier one is done before the later one begins.
class WorkOrder {
public:
  virtual ~WorkOrder() = default;
  virtual bool isBefore(uint32_t earlier, uint32_t later) const = 0;
};

/// Who accessed a byte: bits 48–63 the work, 23–47 the thread in its grid, 3–22 the tick of its block, 0–2 flags.
struct Stamp {
  static constexpr unsigned kWorkBits = 16, kThreadBits = 25, kTickBits = 20;
  static constexpr unsigned kTickAt = 3, kThreadAt = kTickAt + kTickBits, kWorkAt = kThreadAt + kThreadBits;
  static constexpr uint64_t make(uint64_t work, uint64_t thread) { return work << kWorkAt | thread << kThreadAt; }
  static uint32_t work(uint64_t stamp) { return static_cast<uint32_t>(stamp >> kWorkAt); }
  static uint32_t thread(uint64_t stamp) {
    return static_cast<uint32_t>(stamp >> kThreadAt) & ((1u << kThreadBits) - 1);
  }
  static uint32_t tick(uint64_t stamp) { return static_cast<uint32_t>(stamp >> kTickAt) & ((1u << kTickBits) - 1); }
};

struct Cell {
  static constexpr uint64_t kWritten = 1; ///< of `writer`: the byte has a value
  enum Spread : uint64_t { kOneThread = 0, kOneWarp = 1, kOneBlock = 2, kManyBlocks = 3 }; ///< of `reader`, bits 0–1
  static constexpr uint64_t kNonCoherent = 4; ///< of `reader`: somebody read through the cache of constants
  uint64_t writer = 0, reader = 0;
  /// Work that read before `reader` did, and that nothing orders before it: work that reads and then writes the byte
  /// would hide it. Not all of more than two such readers are kept. 0: none.
  uint32_t otherReader = 0;
};

enum class Home { Device, Pinned, Constant, Shared };

struct Allocation {
  std::byte *base = nullptr;
  uint64_t bytes = 0, mappedBytes = 0;
  Home home = Home::Device;
  std::string name;
  Cell *cells = nullptr; ///< one a byte; null in fast mode

  bool holds(const std::byte *address, uint64_t count) const {
    return address >= base && count <= bytes && static_cast<uint64_t>(address - base) <= bytes - count;
  }
};

/// When the running block last met, which orders its threads; written by the scheduler.
struct BlockClock {
  uint32_t tick = 1, barrier = 0, threadsOfBlock = 1;
  uint32_t warp[32] = {};
};

class Memory {
public:
  explicit Memory(bool checked) : checked(checked) {}
  ~Memory();
  Memory(const Memory &) = delete;

  /// Bytes on pages of their own between guard pages, filled with 0xff (NaN in every floating-point type). Device
  /// memory has no value yet; `written` says otherwise.
  Allocation &allocate(uint64_t bytes, Home home, std::string name, bool written = false);
  void release(const std::byte *base);
  /// The allocation that holds all these bytes, or null.
  Allocation *find(const void *address, uint64_t bytes = 1);
  /// For messages: the nearest allocation, or one that was released.
  std::string describe(const void *address) const;
  const std::vector<std::unique_ptr<Allocation>> &all() const { return allocations; }

  /// An access of `bytes` by the thread or work that `stamp` names.
  std::optional<Fault> touch(Allocation &in, std::byte *address, uint32_t bytes, AccessKind kind, uint64_t stamp,
                             const BlockClock &clock, const char *what);
  /// The same for a copy or fill by queued work, of any size.
  std::optional<Fault> touchByWork(void *address, uint64_t bytes, AccessKind kind, uint32_t work, const char *what);
  /// Bytes that the host wrote: they have a value, and nothing races with it.
  void markWritten(void *address, uint64_t bytes);
  /// Forgets who accessed what and keeps which bytes have a value.
  void forgetAccesses();

  /// Lets the host reach device memory, or not; translated kernels need it.
  void open(bool reachable);

  const WorkOrder *order = nullptr;

private:
  bool conflicts(uint64_t old, uint64_t spread, uint64_t stamp, const BlockClock &clock) const;
  std::string raceText(const Allocation &in, std::byte *address, uint64_t old, uint64_t stamp, const char *what,
                       const char *before, const BlockClock &clock) const;

  bool checked;
  bool reachableNow = true;
  std::vector<std::unique_ptr<Allocation>> allocations; ///< sorted by base
  Allocation *last = nullptr;
  struct Released {
    const std::byte *base;
    uint64_t bytes;
    std::string name;
  };
  std::vector<Released> released;
};

/// Cells for `bytes` bytes, all without a value; release with freeCells.
Cell *makeCells(uint64_t bytes);
void freeCells(Cell *cells, uint64_t bytes);

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_MACHINE_MEMORY_H

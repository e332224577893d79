//===- Memory.h - allocations and their shadow ---------------------------===//
//
// Every byte that kernels may access belongs to an allocation, and has a cell of shadow memory that records its last
// writer and its last reader. Two unordered accesses of a byte, one of them a write, are a race. Accesses are ordered
// if they are by the same thread, by threads of a block with a barrier in between, by threads of a warp with a
// bar.warp.sync in between, or by launches that streams, events or graph edges order. (The idea is FastTrack's,
// Flanagan and Freund 2009, with one epoch for reads: of a byte's readers only the last one and their spread over the
// grid are kept.)
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

/// Tells whether a piece of queued work is done before a later one begins.
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
  static constexpr uint64_t kNonCoherent = 4; ///< of `reader`: there was a read through the non-coherent cache
  uint64_t writer = 0, reader = 0;
  /// Work that read the byte before `reader` and is not ordered before it. Without it, work that reads and then writes
  /// the byte would hide this earlier reader. Only one such reader is kept. 0: none.
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

/// The ticks of the running block's last barrier and warp synchronisations, which order its threads; set by the
/// scheduler.
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
  /// memory counts as uninitialised unless `written`.
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
  /// Marks bytes that the host wrote as initialised; nothing races with such a write.
  void markWritten(void *address, uint64_t bytes);
  /// Forgets all accesses, but not which bytes are initialised.
  void forgetAccesses();

  /// Makes device memory accessible to this process, or not; translated kernels need access.
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

/// Cells for `bytes` uninitialised bytes; release with freeCells.
Cell *makeCells(uint64_t bytes);
void freeCells(Cell *cells, uint64_t bytes);

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_MACHINE_MEMORY_H

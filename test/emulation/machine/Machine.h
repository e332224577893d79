//===- Machine.h - grids, blocks, warps and threads ----------------------===//
//
// Runs translated kernels, one block after the other, on the calling thread. A kernel without barriers, shuffles and
// votes runs as a loop over threads; otherwise threads are fibers, which wait where a device's threads would. The order
// of blocks and threads is ascending, descending or drawn from a seed: a result that depends on it is a fault of the
// kernel.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_MACHINE_MACHINE_H
#define TCC_TEST_EMULATION_MACHINE_MACHINE_H

#include "test/emulation/machine/Fiber.h"
#include "test/emulation/machine/Memory.h"

#include <csetjmp>
#include <deque>
#include <span>
#include <utility>

namespace tcc::emulation {

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

/// What the machine needs to know of a translated kernel.
class Code {
public:
  virtual ~Code() = default;
  std::string name;
  KernelEntry entry = nullptr;
  uint32_t sharedBytes = 0; ///< static; dynamic shared memory follows, aligned to 16 bytes
  uint32_t localBytes = 0;  ///< local memory of a thread
  uint32_t parameterBytes = 0;
  struct Parameter {
    uint32_t offset, bytes;
  };
  std::vector<Parameter> parameters; ///< their places in the block of parameters
  uint32_t maxThreads = 0, requiredThreads[3] = {0, 0, 0}; ///< .maxntid, .reqntid; 0: none
  bool meets = false;                                      ///< has shuffles, votes or barriers
  /// "PTX line 12: 'ld.global.b32 %r1, [%rd2]'".
  virtual std::string site(uint32_t number) const = 0;
};

struct Launch {
  Extent grid, block;
  uint32_t dynamicSharedBytes = 0;
  std::span<const std::byte> parameters;
  uint32_t work = 1; ///< names the launch to Memory's WorkOrder; 1 … 65535
};

enum class ThreadOrder { Ascending, Descending, Seeded };

struct MachineOptions {
  bool checked = true;
  ThreadOrder order = ThreadOrder::Ascending;
  uint64_t seed = 1;
};

class Machine {
public:
  explicit Machine(MachineOptions options);
  ~Machine();

  Memory &memory() { return pool; }
  MachineOptions options;

  /// The first fault, after which the launch is abandoned.
  std::optional<Fault> launch(const Code &code, const Launch &launch);

  /// Why a launch is not allowed, or nothing.
  std::optional<Fault> refuse(const Code &code, const Launch &launch) const;

  uint64_t threadsRun = 0, switches = 0; ///< since the machine was made
  /// Global memory traffic of the latest launch: bytes, where repeated accesses count each time, and instructions.
  /// Counted in checked mode only.
  struct Traffic {
    uint64_t readBytes = 0, writtenBytes = 0, reads = 0, writes = 0;
  } traffic;

  /// Functions that translated code calls, by name.
  static std::vector<std::pair<std::string, void *>> runtimeFunctions();

private:
  friend struct Callbacks;
  void beginBlock(uint64_t block);
  void runLoop();
  void runFibers();
  void switchTo(Thread &thread);
  void next();
  void wait(Thread &thread, Thread::State state);
  [[noreturn]] void fail(FaultKind kind, const Thread *thread, uint32_t site, std::string what);
  [[noreturn]] void abandon();
  void meetWarp(Thread &thread, Thread::WarpOp op, uint32_t mask, uint32_t site);
  void shuffle(Thread *warp, uint32_t mask);
  void vote(Thread *warp, uint32_t mask);
  static void multiplyTile(Thread *warp);
  void checkMeeting(const Thread &thread, FaultKind kind, const char *what);
  void advanceTick(const Thread &thread);
  void touch(Thread &thread, std::byte *address, uint32_t bytes, AccessKind kind, Space space, uint32_t site);
  static void fiberMain();

  Memory pool;
  FiberStacks stacks;
  Allocation shared; ///< one block's, with cells of its own
  std::vector<Thread> threads;
  std::vector<uint32_t> sequence, byWarp; ///< threads in the order in which they run; the same, grouped by warp
  /// The operation that lanes of a warp wait in.
  struct Meeting {
    uint32_t mask = 0, site = 0, arrived = 0;
    Thread::WarpOp op = Thread::WarpOp::Sync;
  };
  Meeting meetings[32];
  std::deque<Thread *> ready;
  /// A copy to shared memory that its thread has not waited for: `taken` bytes come from `from`, the rest are zeros.
  struct Copy {
    std::byte *to;
    const std::byte *from;
    uint32_t bytes, taken;
  };
  std::vector<std::vector<Copy>> copies; ///< by thread
  BlockClock clock;
  const Code *code = nullptr;
  const Launch *now = nullptr;
  Thread *running = nullptr;
  void *mainStack = nullptr;
  std::jmp_buf loopEnd;
  bool inLoop = false;
  uint32_t left = 0, atBarrier = 0, barrierSite = 0;
  uint64_t drawn;
  std::optional<Fault> found;
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_MACHINE_MACHINE_H

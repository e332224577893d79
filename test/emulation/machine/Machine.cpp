//===- Machine.cpp - grids, blocks, warps and threads --------------------===//
#include "test/emulation/machine/Machine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <random>

namespace tcc::emulation {

namespace {
// Limits of every architecture from sm_80 on (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability").
constexpr uint32_t kMostThreads = 1024, kMostThreadsZ = 64, kMostBlocksYZ = 65535;
constexpr uint32_t kStaticShared = 48 << 10;
constexpr uint32_t kSharedBytes = 227 << 10;
constexpr uint64_t kStackBytes = 64 << 10;

Machine *current = nullptr; ///< the machine that runs a launch; one at a time in a process
} // namespace

Machine::Machine(MachineOptions given) : options(given), pool(given.checked), drawn(given.seed) {
  shared.bytes = kSharedBytes;
  shared.base = static_cast<std::byte *>(std::aligned_alloc(256, kSharedBytes + 1024));
  shared.home = Home::Shared;
  shared.name = "shared memory";
  if (options.checked)
    shared.cells = makeCells(kSharedBytes);
}

Machine::~Machine() {
  std::free(shared.base);
  if (shared.cells)
    freeCells(shared.cells, kSharedBytes);
}

std::optional<Fault> Machine::refuse(const Code &kernel, const Launch &launch) const {
  auto limits = [&](std::string what) {
    return Fault{FaultKind::LaunchLimits, fmt::format("kernel '{}': {}", kernel.name, what)};
  };
  const Extent &b = launch.block, &g = launch.grid;
  if (b.count() == 0 || b.count() > kMostThreads || b.x > kMostThreads || b.y > kMostThreads || b.z > kMostThreadsZ)
    return limits(fmt::format("a block of {} x {} x {} threads; 1 to {} are possible, {} along z", b.x, b.y, b.z,
                              kMostThreads, kMostThreadsZ));
  if (g.count() == 0 || g.x > INT32_MAX || g.y > kMostBlocksYZ || g.z > kMostBlocksYZ)
    return limits(
        fmt::format("a grid of {} x {} x {} blocks; 1 to 2147483647 x 65535 x 65535 are possible", g.x, g.y, g.z));
  if (kernel.maxThreads && b.count() > kernel.maxThreads)
    return limits(
        fmt::format("a block of {} threads, compiled for at most {} (.maxntid)", b.count(), kernel.maxThreads));
  const uint32_t *required = kernel.requiredThreads;
  if (required[0] && (b.x != required[0] || b.y != required[1] || b.z != required[2]))
    return limits(fmt::format("a block of {} x {} x {} threads, compiled for {} x {} x {} (.reqntid)", b.x, b.y, b.z,
                              required[0], required[1], required[2]));
  if (kernel.sharedBytes > kStaticShared)
    return limits(fmt::format("{} bytes of static shared memory; {} are possible", kernel.sharedBytes, kStaticShared));
  if (kernel.sharedBytes + uint64_t{launch.dynamicSharedBytes} > kSharedBytes)
    return limits(fmt::format("{} bytes of shared memory; {} are possible",
                              kernel.sharedBytes + uint64_t{launch.dynamicSharedBytes}, kSharedBytes));
  if (launch.parameters.size() != kernel.parameterBytes)
    return limits(fmt::format("{} bytes of parameters; it takes {}", launch.parameters.size(), kernel.parameterBytes));
  if (options.checked && (g.count() * b.count()) >> Stamp::kThreadBits)
    return limits(
        fmt::format("{} threads; checked mode tells {} apart", g.count() * b.count(), 1u << Stamp::kThreadBits));
  return std::nullopt;
}

std::optional<Fault> Machine::launch(const Code &kernel, const Launch &launch) {
  if (auto fault = refuse(kernel, launch))
    return fault;
  Machine *outer = std::exchange(current, this);
  code = &kernel;
  now = &launch;
  found.reset();
  traffic = {};
  auto perBlock = static_cast<uint32_t>(launch.block.count());
  threads.resize(perBlock);
  copies.resize(perBlock);
  clock.threadsOfBlock = perBlock;
  if (kernel.meets)
    stacks.reserve(perBlock, kStackBytes + 2 * uint64_t{kernel.localBytes});
  std::mt19937_64 random(drawn++);
  sequence.resize(perBlock);
  std::iota(sequence.begin(), sequence.end(), 0);
  byWarp = sequence;
  std::stable_sort(byWarp.begin(), byWarp.end(), [](uint32_t a, uint32_t b) { return a / 32 < b / 32; });
  uint64_t blocks = launch.grid.count(), first = 0, step = 1;
  if (options.order == ThreadOrder::Descending) {
    std::reverse(sequence.begin(), sequence.end());
    first = blocks - 1;
    step = blocks - 1; // −1 modulo the number of blocks
  } else if (options.order == ThreadOrder::Seeded) {
    std::shuffle(sequence.begin(), sequence.end(), random);
    first = random() % blocks;
    do
      step = 1 + random() % blocks;
    while (std::gcd(step, blocks) != 1);
  }
  shared.bytes = (kernel.sharedBytes + 15) / 16 * 16 + launch.dynamicSharedBytes;
  uint64_t block = first;
  for (uint64_t i = 0; i < blocks && !found; ++i, block = (block + step) % blocks) {
    beginBlock(block);
    kernel.meets ? runFibers() : runLoop();
    threadsRun += perBlock;
  }
  current = outer;
  return std::move(found);
}

void Machine::beginBlock(uint64_t block) {
  const Extent &b = now->block, &g = now->grid;
  uint32_t bx = static_cast<uint32_t>(block % g.x), by = static_cast<uint32_t>(block / g.x % g.y),
           bz = static_cast<uint32_t>(block / g.x / g.y);
  std::memset(shared.base, 0xff, shared.bytes);
  if (shared.cells)
    std::memset(static_cast<void *>(shared.cells), 0, shared.bytes * sizeof(Cell));
  uint32_t perBlock = clock.threadsOfBlock;
  clock = BlockClock();
  clock.threadsOfBlock = perBlock;
  left = atBarrier = 0;
  std::fill(std::begin(meetings), std::end(meetings), Meeting());
  for (uint32_t i = 0; i < perBlock; ++i) {
    Thread &t = threads[i];
    uint32_t special[kSpecials] = {i % b.x, i / b.x % b.y, i / b.x / b.y, b.x, b.y,    b.z,   bx, by,
                                   bz,      g.x,           g.y,           g.z, i & 31, i >> 5};
    std::memcpy(t.special, special, sizeof special);
    t.shared = shared.base;
    t.localBytes = 0;
    t.state = Thread::State::Ready;
    t.index = i;
    t.stamp = Stamp::make(now->work, block * perBlock + i);
    copies[i].clear();
  }
}

void Machine::runLoop() {
  inLoop = true;
  if (!setjmp(loopEnd)) {
    for (uint32_t i : sequence) {
      running = &threads[i];
      code->entry(running, now->parameters.data());
    }
  }
  inLoop = false;
}

void Machine::runFibers() {
  ready.clear();
  for (uint32_t i : sequence) {
    threads[i].stack = stacks.start(i, fiberMain);
    ready.push_back(&threads[i]);
  }
  Thread *first = ready.front();
  ready.pop_front();
  running = first;
  ++switches;
  tccEmulationSwitch(&mainStack, first->stack);
}

void Machine::fiberMain() {
  Machine &m = *current;
  m.code->entry(m.running, m.now->parameters.data());
  m.checkMeeting(*m.running, FaultKind::AbsentLane, "leaves");
  if (m.atBarrier)
    m.fail(FaultKind::DivergentBarrier, m.running, m.barrierSite,
           fmt::format("a thread leaves while {} others wait at the barrier", m.atBarrier));
  m.running->state = Thread::State::Left;
  ++m.left;
  m.next();
  __builtin_unreachable();
}

/// Switches from a thread that waits or has left to one that is ready.
void Machine::next() {
  if (ready.empty()) {
    if (left < threads.size()) {
      const Thread *warp = nullptr, *barrier = nullptr;
      uint32_t atWarp = 0;
      for (const Thread &t : threads) {
        if (t.state == Thread::State::AtWarp) {
          warp = &t;
          ++atWarp;
        } else if (t.state == Thread::State::AtBarrier) {
          barrier = &t;
        }
      }
      const Thread *one = barrier ? barrier : warp;
      fail(FaultKind::Deadlock, one, one->site,
           fmt::format(
               "{} threads wait at a barrier, {} at an operation of their warp, {} have left, and none can go on",
               atBarrier, atWarp, left));
    }
    abandon(); // all have left: the block is done
  }
  Thread *to = ready.front();
  ready.pop_front();
  Thread *from = std::exchange(running, to);
  if (from == to)
    return;
  ++switches;
  tccEmulationSwitch(&from->stack, to->stack);
}

void Machine::wait(Thread &thread, Thread::State state) {
  thread.state = state;
  next();
}

void Machine::abandon() {
  if (inLoop)
    std::longjmp(loopEnd, 1);
  void *ignored;
  tccEmulationSwitch(&ignored, mainStack);
  __builtin_unreachable();
}

void Machine::fail(FaultKind kind, const Thread *thread, uint32_t site, std::string what) {
  std::string where = fmt::format("kernel '{}', {}", code->name, code->site(site));
  if (thread)
    what += fmt::format(" [block ({}, {}, {}), thread ({}, {}, {})]", thread->special[kBlock],
                        thread->special[kBlock + 1], thread->special[kBlock + 2], thread->special[kTid],
                        thread->special[kTid + 1], thread->special[kTid + 2]);
  found = Fault{kind, where + ": " + what};
  abandon();
}

void Machine::advanceTick(const Thread &thread) {
  if (++clock.tick >> Stamp::kTickBits)
    fail(
        FaultKind::LaunchLimits, &thread, thread.site,
        fmt::format("more than {} barriers in a block, which checked mode cannot count", (1u << Stamp::kTickBits) - 1));
}

/// Fails if lanes of the warp wait for this thread, which leaves or goes to a barrier instead.
void Machine::checkMeeting(const Thread &thread, FaultKind kind, const char *what) {
  const Meeting &meeting = meetings[thread.index / 32];
  if (meeting.arrived && meeting.mask >> (thread.index & 31) & 1)
    fail(kind, &thread, meeting.site,
         fmt::format("lane {} {} while lanes of the mask {:#010x} wait for it", thread.index & 31, what, meeting.mask));
}

/// Waits for all lanes of `mask`; the last one to arrive carries out the operation for all.
void Machine::meetWarp(Thread &thread, Thread::WarpOp op, uint32_t mask, uint32_t site) {
  uint32_t lane = thread.index & 31, base = thread.index & ~31u;
  thread.op = op;
  thread.mask = mask;
  thread.site = site;
  if (!(mask >> lane & 1))
    fail(FaultKind::DivergentShuffle, &thread, site,
         fmt::format("lane {} is not in its own mask {:#010x}", lane, mask));
  Meeting &meeting = meetings[base / 32];
  bool agrees = meeting.arrived && meeting.mask == mask && meeting.site == site && meeting.op == op;
  uint32_t arrived = (agrees ? meeting.arrived : 0) | 1u << lane;
  // The first lane to arrive checks the others. Lanes that agree with it need no check; leaving lanes call
  // checkMeeting.
  for (uint32_t l = 0; l < 32 && !agrees; ++l) {
    if (!(mask >> l & 1) || l == lane)
      continue;
    if (base + l >= threads.size())
      fail(FaultKind::AbsentLane, &thread, site,
           fmt::format("the mask {:#010x} names lane {}, and the block ends before it", mask, l));
    const Thread &other = threads[base + l];
    if (other.state == Thread::State::Left)
      fail(FaultKind::AbsentLane, &thread, site,
           fmt::format("the mask {:#010x} names lane {}, which has left", mask, l));
    if (other.state == Thread::State::AtBarrier)
      fail(FaultKind::DivergentShuffle, &thread, site,
           fmt::format("lane {} of the mask {:#010x} waits at a barrier, {}", l, mask, code->site(other.site)));
    if (other.state == Thread::State::AtWarp && (other.op != op || other.mask != mask || other.site != site))
      fail(FaultKind::DivergentShuffle, &thread, site,
           fmt::format("lane {} of the mask {:#010x} is at another operation, {}", l, mask, code->site(other.site)));
    arrived |= other.state == Thread::State::AtWarp ? 1u << l : 0;
  }
  meeting = {mask, site, arrived, op};
  if (arrived != mask)
    return wait(thread, Thread::State::AtWarp);
  meeting = Meeting();
  Thread *warp = &threads[base];
  if (op == Thread::WarpOp::Shuffle) {
    shuffle(warp, mask);
  } else if (op == Thread::WarpOp::Vote) {
    vote(warp, mask);
  } else if (op == Thread::WarpOp::MultiplyTile) {
    multiplyTile(warp);
  } else {
    // Lanes outside the mask stay unordered with those inside, so that only a whole warp's meeting is recorded.
    auto lanes = std::min<size_t>(32, threads.size() - base);
    uint32_t whole = lanes == 32 ? ~0u : (1u << lanes) - 1;
    if (options.checked && mask == whole) {
      advanceTick(thread);
      clock.warp[base / 32] = clock.tick;
    }
  }
  // The warp's other threads run before those of other warps, since their stacks are in the cache.
  for (size_t i = std::min<size_t>(base + 32, byWarp.size()); i-- > base;) {
    uint32_t index = byWarp[i];
    if (mask >> (index & 31) & 1 && index != thread.index) {
      threads[index].state = Thread::State::Ready;
      ready.push_front(&threads[index]);
    }
  }
}

/// PTX ISA, "shfl.sync": lane j is computed from the segment mask and clamp in c; beyond the segment a lane keeps its
/// own.
void Machine::shuffle(Thread *warp, uint32_t mask) {
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1))
      continue;
    Thread &t = warp[lane];
    uint32_t select = t.select & 31, clamp = t.clamp & 31, segment = t.clamp >> 8 & 31;
    auto most = static_cast<int>((lane & segment) | (clamp & ~segment));
    auto least = static_cast<int>(lane & segment);
    int source;
    bool inside;
    switch (t.mode) {
    case 0: // up
      source = static_cast<int>(lane) - static_cast<int>(select);
      inside = source >= most;
      break;
    case 1: // down
      source = static_cast<int>(lane + select);
      inside = source <= most;
      break;
    case 2: // bfly
      source = static_cast<int>(lane ^ select);
      inside = source <= most;
      break;
    default: // idx
      source = least | static_cast<int>(select & ~segment);
      inside = source <= most;
    }
    if (!inside)
      source = static_cast<int>(lane);
    if (!(mask >> source & 1))
      fail(FaultKind::AbsentLane, &t, t.site,
           fmt::format("lane {} reads lane {}, which is not in the mask {:#010x}", lane, source, mask));
    t.taken = warp[source].given;
    t.flag = inside;
  }
}

void Machine::vote(Thread *warp, uint32_t mask) {
  uint32_t ballot = 0;
  for (uint32_t lane = 0; lane < 32; ++lane)
    ballot |= mask >> lane & 1 && warp[lane].given ? 1u << lane : 0;
  for (uint32_t lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1)
      warp[lane].taken = ballot;
}

static double f16Value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double size = exponent == 31 ? (mantissa ? std::nan("") : HUGE_VAL)
                                     : std::ldexp(exponent ? 1024 + mantissa : mantissa, std::max(exponent, 1) - 25);
  return bits >> 15 ? -size : size;
}

/// PTX ISA, "mma.m16n8k16" for 16 bits: of lane 4g + t, word i of the left tile holds row g + 8·(i%2) and columns 2t +
/// 8·(i/2) and the next, word i of the right one column g and rows 2t + 8·i and the next, sum i row g + 8·(i/2) and
/// column 2t + i%2. "mma.m16n8k8" for .tf32: word i of the left tile holds column t + 4·(i/2), of the right one row t +
/// 4·i; the lower 13 bits of a word are not read. A device sums in at least f32 and an order of its own; here it is
/// f64, rounded once.
void Machine::multiplyTile(Thread *warp) {
  double left[16][16], right[16][8];
  const auto kind = static_cast<TileKind>(warp->mode);
  const uint32_t depth = kind == TileKind::TF32 ? 8 : 16, inWord = depth / 8;
  auto part = [kind](uint32_t word, uint32_t i) -> double {
    if (kind == TileKind::F16)
      return f16Value(static_cast<uint16_t>(word >> 16 * i));
    return std::bit_cast<float>(kind == TileKind::TF32 ? word & ~0x1fffu : i ? word & 0xffff0000 : word << 16);
  };
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t g = lane / 4, t = lane % 4, *words = warp[lane].factors;
    for (uint32_t i = 0; i < 4; ++i)
      for (uint32_t k = 0; k < inWord; ++k)
        left[g + i % 2 * 8][inWord * t + i / 2 * depth / 2 + k] = part(words[i], k);
    for (uint32_t i = 0; i < 2; ++i)
      for (uint32_t k = 0; k < inWord; ++k)
        right[inWord * t + i * depth / 2 + k][g] = part(words[4 + i], k);
  }
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = std::bit_cast<float>(warp[lane].factors[6 + i]);
      for (uint32_t k = 0; k < depth; ++k)
        sum += left[row][k] * right[k][column];
      const auto rounded = static_cast<float>(sum);
      warp[lane].sums[i] = std::isnan(rounded) ? std::bit_cast<float>(0x7fffffffu) : rounded;
    }
}

/// Checks an access of a thread.
void Machine::touch(Thread &thread, std::byte *address, uint32_t bytes, AccessKind kind, Space space, uint32_t site) {
  Thread *t = &thread;
  const char *what = kind == kWrite ? "a write" : "a read";
  if (reinterpret_cast<uintptr_t>(address) & (bytes - 1))
    fail(FaultKind::Misaligned, t, site,
         fmt::format("{} of {} bytes at {}: its address is no multiple of {}", what, bytes, fmt::ptr(address), bytes));
  if (address >= t->local && address < t->local + t->localBytes) {
    if (space != Space::Local && space != Space::Generic)
      fail(FaultKind::WrongSpace, t, site, "the address is in local memory");
    uint64_t at = static_cast<uint64_t>(address - t->local);
    if (at + bytes > t->localBytes)
      fail(FaultKind::OutOfBounds, t, site,
           fmt::format("{} runs over the end of local memory ({} bytes)", what, t->localBytes));
    for (uint32_t i = 0; i < bytes; ++i) {
      if (kind == kWrite)
        t->localWritten[at + i] = 1;
      else if (!t->localWritten[at + i])
        fail(FaultKind::UninitialisedRead, t, site,
             fmt::format("{} of byte {} of local memory, which nothing has written", what, at + i));
    }
    return;
  }
  Allocation *in;
  if (address >= shared.base && address < shared.base + shared.bytes + 1024) {
    in = &shared;
    if (space != Space::Shared && space != Space::Generic)
      fail(FaultKind::WrongSpace, t, site, "the address is in shared memory");
    if (!in->holds(address, bytes))
      fail(FaultKind::OutOfBounds, t, site,
           fmt::format("{} of {} bytes at byte {} of shared memory ({} bytes)", what, bytes, address - in->base,
                       in->bytes));
  } else {
    in = pool.find(address, bytes);
    if (!in)
      fail(FaultKind::OutOfBounds, t, site,
           fmt::format("{} of {} bytes at {}: {}", what, bytes, fmt::ptr(address), pool.describe(address)));
    (kind == kWrite ? traffic.writtenBytes : traffic.readBytes) += bytes;
    ++(kind == kWrite ? traffic.writes : traffic.reads);
    if (space == Space::Shared || space == Space::Local || (space == Space::Const) != (in->home == Home::Constant))
      fail(FaultKind::WrongSpace, t, site, fmt::format("the address is in {}", in->name));
  }
  if (auto fault = pool.touch(*in, address, bytes, kind, t->stamp, clock, what))
    fail(fault->kind, nullptr, site, std::move(fault->text));
}

/// Functions that translated code calls, under the names that ptx/ declares.
struct Callbacks {
  static void access(Thread *t, std::byte *address, uint32_t word, uint32_t site) {
    current->touch(*t, address, word & 0xff, static_cast<AccessKind>(word >> 8 & 15),
                   static_cast<Space>(word >> 12 & 15), site);
  }

  /// PTX ISA, cp.async: until the thread has waited for it, the copy may read and write at any time. Here it does so as
  /// late as possible, in the wait, and the destination counts as uninitialised until then.
  static void copy(Thread *t, std::byte *to, std::byte *from, uint32_t bytes, uint32_t taken, uint32_t site) {
    Machine &m = *current;
    if (taken > bytes)
      m.fail(FaultKind::OutOfBounds, t, site, fmt::format("a copy of {} bytes takes {}", bytes, taken));
    if (m.options.checked) {
      m.touch(*t, to, bytes, kWrite, Space::Shared, site);
      if (taken && reinterpret_cast<uintptr_t>(from) & (bytes - 1))
        m.fail(FaultKind::Misaligned, t, site, fmt::format("a copy of {} bytes from {}", bytes, fmt::ptr(from)));
      // A partial copy is checked in accesses of the largest power of two that divides its size.
      for (uint32_t i = 0, step = taken & -taken; i < taken; i += step)
        m.touch(*t, from + i, step, kRead, Space::Global, site);
      Cell *cell = m.shared.cells + (to - m.shared.base);
      for (uint32_t i = 0; i < bytes; ++i)
        cell[i].writer = 0;
    }
    std::memset(to, 0xff, bytes);
    m.copies[t->index].push_back({to, from, bytes, taken});
  }
  static void awaitCopies(Thread *t, uint32_t site) {
    Machine &m = *current;
    for (const Machine::Copy &copy : m.copies[t->index]) {
      if (m.options.checked)
        m.touch(*t, copy.to, copy.bytes, kWrite, Space::Shared, site);
      std::memcpy(copy.to, copy.from, copy.taken);
      std::memset(copy.to + copy.taken, 0, copy.bytes - copy.taken);
    }
    m.copies[t->index].clear();
  }

  static uint64_t shuffle(Thread *t, uint32_t mode, uint32_t value, uint32_t select, uint32_t clamp, uint32_t mask,
                          uint32_t site) {
    t->mode = mode;
    t->given = value;
    t->select = select;
    t->clamp = clamp;
    current->meetWarp(*t, Thread::WarpOp::Shuffle, mask, site);
    return t->taken | uint64_t{t->flag} << 32;
  }

  static uint32_t vote(Thread *t, uint32_t predicate, uint32_t mask, uint32_t site) {
    t->given = predicate;
    current->meetWarp(*t, Thread::WarpOp::Vote, mask, site);
    return t->taken;
  }

  static void multiplyTile(Thread *t, const uint32_t *factors, float *sums, uint32_t kind, uint32_t site) {
    t->mode = kind;
    t->factors = factors;
    t->sums = sums;
    current->meetWarp(*t, Thread::WarpOp::MultiplyTile, ~uint32_t{0}, site);
  }

  static void warpSync(Thread *t, uint32_t mask, uint32_t site) {
    current->meetWarp(*t, Thread::WarpOp::Sync, mask, site);
  }

  /// PTX ISA, "barrier": bar.sync is for all threads of the block. Warps may wait at different bar.sync instructions;
  /// none of our kernels does so on purpose, so that it is a fault here.
  static void barrier(Thread *t, uint32_t site) {
    Machine &m = *current;
    t->site = site;
    m.checkMeeting(*t, FaultKind::DivergentShuffle, "waits at a barrier");
    if (m.left)
      m.fail(FaultKind::DivergentBarrier, t, site,
             fmt::format("{} threads of the block have left before the barrier", m.left));
    if (m.atBarrier && m.barrierSite != site)
      m.fail(FaultKind::DivergentBarrier, t, site,
             fmt::format("other threads of the block wait at {}", m.code->site(m.barrierSite)));
    m.barrierSite = site;
    if (++m.atBarrier < m.threads.size())
      return m.wait(*t, Thread::State::AtBarrier);
    m.atBarrier = 0;
    if (m.options.checked) {
      m.advanceTick(*t);
      m.clock.barrier = m.clock.tick;
    }
    for (uint32_t i : m.sequence) {
      threads(m)[i].state = Thread::State::Ready;
      if (i != t->index)
        m.ready.push_back(&threads(m)[i]);
    }
  }
  static std::vector<Thread> &threads(Machine &m) { return m.threads; }

  static void divisionByZero(Thread *t, uint32_t site) {
    current->fail(FaultKind::DivisionByZero, t, site, "the divisor is 0; a device's result is unspecified");
  }
  /// Checks a read of kernel parameters at a computed address: `bytes` bytes at `offset` of `all`.
  static void parameter(Thread *t, uint64_t offset, uint32_t bytes, uint32_t all, uint32_t site) {
    if (offset > all || all - offset < bytes)
      current->fail(FaultKind::OutOfBounds, t, site,
                    fmt::format("{} bytes at {} of parameters of {} bytes", bytes, int64_t(offset), all));
    if (offset % bytes != 0)
      current->fail(FaultKind::Misaligned, t, site,
                    fmt::format("{} bytes at {} of the parameters", bytes, int64_t(offset)));
  }
  static void trap(Thread *t, uint32_t site) { current->fail(FaultKind::Trap, t, site, "the kernel traps"); }
};

std::vector<std::pair<std::string, void *>> Machine::runtimeFunctions() {
  return {{"tccEmulationAccess", reinterpret_cast<void *>(&Callbacks::access)},
          {"tccEmulationShuffle", reinterpret_cast<void *>(&Callbacks::shuffle)},
          {"tccEmulationVote", reinterpret_cast<void *>(&Callbacks::vote)},
          {"tccEmulationMultiplyTile", reinterpret_cast<void *>(&Callbacks::multiplyTile)},
          {"tccEmulationCopy", reinterpret_cast<void *>(&Callbacks::copy)},
          {"tccEmulationAwaitCopies", reinterpret_cast<void *>(&Callbacks::awaitCopies)},
          {"tccEmulationWarpSync", reinterpret_cast<void *>(&Callbacks::warpSync)},
          {"tccEmulationBarrier", reinterpret_cast<void *>(&Callbacks::barrier)},
          {"tccEmulationParameter", reinterpret_cast<void *>(&Callbacks::parameter)},
          {"tccEmulationDivisionByZero", reinterpret_cast<void *>(&Callbacks::divisionByZero)},
          {"tccEmulationTrap", reinterpret_cast<void *>(&Callbacks::trap)}};
}

} // namespace tcc::emulation

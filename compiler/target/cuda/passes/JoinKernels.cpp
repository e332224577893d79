//===- JoinKernels.cpp - small kernels share a launch ---------------------===//
//
// One walk over the given order. A kernel that takes little longer than its launch is delayed; when an instruction
// needs its result, it is launched, after the delayed kernels that it depends on. Independent kernels that are launched
// at the same time share a launch, and other kernels of the same program join it: delayed ones, and later ones whose
// operands are computed. At the end the remaining delayed kernels are launched, level by level: sums, values computed
// from them, updates.
//
// A kernel that computes a number for the host is not delayed, since the host submits the next update once it has the
// number.
//
// A delayed kernel keeps its operands alive, and an early one its results. When more bytes would be live than at the
// peak of the given order, all delayed kernels are launched. If the peak still rises, the bound on the bytes that one
// kernel may keep alive is lowered.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Joined.h"
#include "compiler/dialect/Views.h"
#include "compiler/target/cuda/passes/CudaPasses.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/EntryProblem.h"
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/KernelAbi.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/raw_ostream.h"

#include <map>
#include <numeric>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_JOINKERNELSPASS
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

namespace {

/// The peak may rise by one part in this many, so that a few scalars at the peak do not prevent all delays.
constexpr planning::Bytes kPeakSlack = 2048;

using Launch = std::vector<int>; ///< instructions, one or several kernels

/// A key of the kernel's program: its ops and sizes. Kernels with equal generated code have equal keys.
std::string programOf(FusedOp fused) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (Operation &op : fused.getBody().front())
    stream << op.getName() << ";";
  auto add = [&](Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    stream << type.getNumElements() << type.getElementType() << ";";
  };
  llvm::for_each(fused->getOperands(), add);
  llvm::for_each(fused->getResults(), add);
  return text;
}

struct Candidate {
  bool isKernel = false;
  int64_t threads = 0; ///< threads that share a tile
  int64_t bytes = 0;   ///< read and written
  int64_t pointers = 0;
  int program = -1;
  bool isAwaited = false; ///< the host reads a number that it writes
};

/// True if the op computes a scalar result of the entry, which the host reads while later instructions run.
bool makesNumber(Operation *op) {
  auto function = op->getParentOfType<func::FuncOp>();
  return llvm::any_of(op->getResults(), [&](Value result) {
    return cast<RankedTensorType>(result.getType()).getNumElements() == 1 &&
           llvm::any_of(usesAcrossViews(result), [&](OpOperand *use) {
             return isa<func::ReturnOp>(use->getOwner()) &&
                    !function.getResultAttr(use->getOperandNumber(), names::kVariable);
           });
  });
}

/// Tracks which values are live between instructions, ignoring in-place reuse of memory.
struct Live {
  Live() = default;
  explicit Live(const planning::Program &program) : program(&program), readers(program.values.size(), 0) {
    for (const planning::ProgramInstruction &instruction : program.instructions)
      for (int value : instruction.reads)
        ++readers[size_t(value)];
    made.resize(readers.size());
    for (size_t value = 0; value < readers.size(); ++value)
      made[value] = program.values[value].producer < 0;
  }

  void run(int i) {
    const planning::ProgramInstruction &instruction = program->instructions[size_t(i)];
    for (int value : instruction.writes) {
      made[size_t(value)] = true;
      if (readers[size_t(value)] > 0 || program->values[size_t(value)].atExit)
        bytes += bytesOf(value);
    }
    for (int value : instruction.reads)
      if (--readers[size_t(value)] == 0 && !program->values[size_t(value)].atExit &&
          program->values[size_t(value)].producer >= 0)
        bytes -= bytesOf(value);
  }

  bool isThere(int value) const { return made[size_t(value)]; }

  const planning::Program *program = nullptr;
  std::vector<int> readers; ///< of each value, those that have not run yet
  int64_t bytes = 0;

private:
  int64_t bytesOf(int value) const {
    return int64_t(llvm::alignTo(program->values[size_t(value)].bytes, planning::PackingProblem().alignment));
  }
  std::vector<bool> made;
};

planning::Sequence inOrder(const planning::Program &program) {
  planning::Sequence sequence(program.instructions.size());
  std::iota(sequence.begin(), sequence.end(), 0);
  return sequence;
}

class Joining {
public:
  /// `small`: bytes of a kernel that takes little longer than its launch; `cached`: bytes that fit into the cache.
  Joining(const EntryProblem &entry, int64_t small, int64_t cached) : entry(entry), small(small), cached(cached) {
    std::map<std::string, int> programs;
    for (size_t i = 0; i < entry.instructions.size(); ++i) {
      Candidate candidate;
      Operation *op = entry.instructions[i];
      candidate.bytes = int64_t(bytesOf(op));
      candidate.isAwaited = makesNumber(op);
      auto fused = dyn_cast<FusedOp>(op);
      auto threads = op->getAttrOfType<IntegerAttr>(names::kTileThreads);
      if (fused && threads && !fused.getLoopKernel() && !op->hasAttr(names::kScratch)) {
        candidate.isKernel = true;
        candidate.threads = threads.getInt();
        candidate.pointers = int64_t(op->getNumOperands() + op->getNumResults());
        candidate.program = programs.try_emplace(programOf(fused), int(programs.size())).first->second;
      }
      candidates.push_back(candidate);
      const planning::ProgramInstruction &instruction = entry.program.instructions[i];
      std::vector<int> &before = needs.emplace_back(instruction.after);
      for (int value : instruction.reads)
        if (int producer = entry.program.values[size_t(value)].producer; producer >= 0)
          before.push_back(producer);
    }
    liveThen = planning::liveBytes(entry.program, inOrder(entry.program));
    most = *std::max_element(liveThen.begin(), liveThen.end());
    most += most / kPeakSlack;
    ofProgram.resize(programs.size());
    for (size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i].isKernel)
        ofProgram[size_t(candidates[i].program)].push_back(int(i));
  }

  /// Most bytes that may be live at a time.
  planning::Bytes mostLive() const { return most; }

  /// The launches in order; no delayed kernel, and none that joins one early, keeps more than `bound` bytes alive.
  std::vector<Launch> launches(int64_t bound) {
    mostBytes = bound;
    done.assign(candidates.size(), false);
    waits.assign(candidates.size(), false);
    touched.assign(entry.program.values.size(), 0);
    traffic = 0;
    now = Live(entry.program);
    result.clear();
    waiting.clear();
    Live then(entry.program); // live values in the given order
    for (int i = 0; i < int(candidates.size()); then.run(i++)) {
      if (done[size_t(i)])
        continue;
      if (mayWait(i)) {
        waits[size_t(i)] = true;
        waiting.push_back(i);
        continue;
      }
      launchWaiting(neededBy(i), i);
      if (!waiting.empty() && int64_t(liveThen[size_t(i) + 1]) + now.bytes - then.bytes > int64_t(most))
        launchWaiting(waiting, i);
      launch({i});
    }
    launchWaiting(waiting, int(candidates.size()));
    return std::move(result);
  }

private:
  /// Bytes of the values that an instruction writes.
  int64_t madeBytes(int i) const {
    int64_t bytes = 0;
    for (int value : entry.program.instructions[size_t(i)].writes)
      bytes += int64_t(entry.program.values[size_t(value)].bytes);
    return bytes;
  }

  bool mayWait(int i) const {
    const Candidate &candidate = candidates[size_t(i)];
    if (!candidate.isKernel || candidate.isAwaited)
      return false;
    int64_t kept = 0, near = 0; // bytes of operands that a delay keeps alive; of those in the cache, now or later
    for (int value : entry.program.instructions[size_t(i)].reads) {
      const auto bytes = int64_t(entry.program.values[size_t(value)].bytes);
      kept += bytes;
      if (now.readers[size_t(value)] > 1 || !now.isThere(value) || traffic - touched[size_t(value)] < cached)
        near += bytes;
    }
    return kept <= mostBytes && (candidate.bytes <= small || near <= small);
  }

  bool isReady(int i) const {
    return llvm::all_of(needs[size_t(i)], [&](int before) { return done[size_t(before)]; });
  }

  /// The delayed kernels that `i` depends on, in order.
  Launch neededBy(int i) const {
    Launch found;
    llvm::SmallPtrSet<const Candidate *, 16> seen;
    SmallVector<int> work(needs[size_t(i)].begin(), needs[size_t(i)].end());
    while (!work.empty()) {
      int before = work.pop_back_val();
      if (done[size_t(before)] || !seen.insert(&candidates[size_t(before)]).second)
        continue;
      found.push_back(before);
      work.append(needs[size_t(before)].begin(), needs[size_t(before)].end());
    }
    llvm::sort(found);
    return found;
  }

  /// Launches delayed kernels, level by level, with others of their programs. Kernels from `next` on were not reached
  /// yet.
  void launchWaiting(Launch wanted, int next) {
    while (!wanted.empty()) {
      Launch level;
      llvm::copy_if(wanted, std::back_inserter(level), [&](int i) { return isReady(i); });
      llvm::erase_if(wanted, [&](int i) { return llvm::is_contained(level, i); });
      llvm::SmallSetVector<int, 8> programs;
      for (int i : level)
        programs.insert(candidates[size_t(i)].program);
      for (int program : programs)
        for (int i : ofProgram[size_t(program)])
          if (!done[size_t(i)] && !llvm::is_contained(level, i) && isReady(i) &&
              (waits[size_t(i)] || mayComeAlong(i, next)))
            level.push_back(i);
      llvm::erase_if(wanted, [&](int i) { return llvm::is_contained(level, i); });
      launchTogether(level);
    }
  }

  bool mayComeAlong(int i, int next) const {
    return i >= next && candidates[size_t(i)].bytes <= small && madeBytes(i) <= mostBytes;
  }

  /// Launches independent kernels, in as few launches as their block sizes and pointers allow. Large kernels are not
  /// joined with kernels whose tiles are shared by a whole block, which would take registers from them.
  void launchTogether(Launch kernels) {
    auto isLarge = [&](int i) { return candidates[size_t(i)].bytes > small; };
    std::map<int64_t, Launch> byThreads;
    for (int i : kernels)
      if (int64_t threads = candidates[size_t(i)].threads; threads > int64_t(plan::kWarpThreads))
        byThreads[threads].push_back(i);
    const bool large = llvm::any_of(
        kernels, [&](int i) { return candidates[size_t(i)].threads <= int64_t(plan::kWarpThreads) && isLarge(i); });
    for (int i : kernels)
      if (candidates[size_t(i)].threads <= int64_t(plan::kWarpThreads))
        byThreads[large || byThreads.empty() ? 0 : byThreads.begin()->first].push_back(i);
    for (auto &[threads, group] : byThreads) {
      // Kernels of one program are adjacent; the longest programs come first, so that short ones fill the end.
      std::map<int, int64_t> longest;
      for (int i : group)
        longest[candidates[size_t(i)].program] =
            std::max(longest[candidates[size_t(i)].program], candidates[size_t(i)].bytes);
      llvm::sort(group, [&](int a, int b) {
        const int first = candidates[size_t(a)].program, second = candidates[size_t(b)].program;
        return std::tuple(-longest[first], first, a) < std::tuple(-longest[second], second, b);
      });
      Launch one;
      int64_t pointers = 0;
      for (int i : group) {
        if (!one.empty() && pointers + candidates[size_t(i)].pointers > plan::kMostTablePointers) {
          launch(std::exchange(one, {}));
          pointers = 0;
        }
        one.push_back(i);
        pointers += candidates[size_t(i)].pointers;
      }
      launch(std::move(one));
    }
  }

  void launch(Launch kernels) {
    for (int i : kernels)
      traffic += candidates[size_t(i)].bytes;
    for (int i : kernels) {
      done[size_t(i)] = true;
      now.run(i);
      for (const std::vector<int> *values :
           {&entry.program.instructions[size_t(i)].reads, &entry.program.instructions[size_t(i)].writes})
        for (int value : *values)
          touched[size_t(value)] = traffic;
      llvm::erase(waiting, i);
    }
    result.push_back(std::move(kernels));
  }

  const EntryProblem &entry;
  const int64_t small, cached;
  std::vector<Candidate> candidates; ///< of each instruction
  std::vector<std::vector<int>> needs, ofProgram;
  std::vector<planning::Bytes> liveThen; ///< at entry, during each instruction of the given order, and at exit
  planning::Bytes most = 0;
  int64_t mostBytes = 0, traffic = 0;
  std::vector<bool> done, waits;
  std::vector<int64_t> touched; ///< of each value: `traffic` when it was last read or written
  Live now;
  Launch waiting;
  std::vector<Launch> result;
};

/// The program with one instruction per launch, in the order of the launches.
planning::Program programOf(const planning::Program &program, const std::vector<Launch> &launches) {
  planning::Program joined;
  joined.values = program.values;
  std::vector<int> launchOf(program.instructions.size());
  for (auto [number, launch] : llvm::enumerate(launches))
    for (int i : launch)
      launchOf[size_t(i)] = int(number);
  for (planning::ProgramValue &value : joined.values)
    if (value.producer >= 0)
      value.producer = launchOf[size_t(value.producer)];
  for (const Launch &launch : launches) {
    planning::ProgramInstruction one = program.instructions[size_t(launch.front())];
    std::vector<int> readers(program.values.size(), 0);
    for (int i : launch)
      for (int value : program.instructions[size_t(i)].reads)
        ++readers[size_t(value)];
    for (int i : ArrayRef(launch).drop_front()) {
      const planning::ProgramInstruction &next = program.instructions[size_t(i)];
      llvm::append_range(one.reads, next.reads);
      llvm::append_range(one.writes, next.writes);
      llvm::append_range(one.inPlace, next.inPlace);
      llvm::append_range(one.after, next.after);
    }
    llvm::erase_if(one.inPlace, [&](auto &pair) { return readers[size_t(pair.first)] > 1; });
    for (int &before : one.after)
      before = launchOf[size_t(before)];
    for (std::vector<int> *list : {&one.reads, &one.writes, &one.after}) {
      llvm::sort(*list);
      list->erase(llvm::unique(*list), list->end());
    }
    one.omits = one.omits && launch.size() == 1;
    one.partial = nullptr;
    joined.instructions.push_back(std::move(one));
  }
  return joined;
}

/// Replaces kernels, with nothing but views between them, by one op behind the last.
void join(ArrayRef<Operation *> kernels) {
  SmallVector<Value> operands, results;
  SmallVector<Location> locations;
  for (Operation *kernel : kernels) {
    llvm::append_range(operands, kernel->getOperands());
    llvm::append_range(results, kernel->getResults());
    locations.push_back(kernel->getLoc());
  }
  OpBuilder builder(kernels.back());
  builder.setInsertionPointAfter(kernels.back());
  Location loc = builder.getFusedLoc(locations);
  SmallVector<Type> types(llvm::map_range(results, [](Value value) { return value.getType(); }));
  auto joined = JoinedOp::create(builder, loc, types, operands);
  Block &body = joined.getBody().emplaceBlock();
  builder.setInsertionPointToStart(&body);
  for (Operation *kernel : kernels) {
    Operation *member = kernel->clone();
    for (OpOperand &operand : member->getOpOperands())
      operand.set(body.addArgument(operand.get().getType(), kernel->getLoc()));
    builder.insert(member);
  }
  for (auto [old, now] : llvm::zip_equal(results, joined->getResults()))
    old.replaceAllUsesWith(now);
  for (Operation *kernel : kernels)
    kernel->erase();
}

struct JoinKernels : impl::JoinKernelsPassBase<JoinKernels> {
  using JoinKernelsPassBase::JoinKernelsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    EntryProblem entry(function);
    Joining joining(entry, smallBytes, cachedBytes);
    std::vector<Launch> launches;
    for (int64_t bound = int64_t(1) << 40;; bound /= 4) {
      launches = joining.launches(bound);
      planning::Program joined = programOf(entry.program, launches);
      if (bound == 0 || planning::peakOf(joined, inOrder(joined)) <= joining.mostLive())
        break;
    }
    planning::Sequence order;
    for (const Launch &launch : launches)
      llvm::append_range(order, launch);
    if (std::string wrong = planning::validate(entry.program, order); !wrong.empty()) {
      function.emitError("internal error: the order of joined kernels is wrong: ") << wrong;
      return signalPassFailure();
    }
    entry.apply(order);
    SmallVector<Operation *> ordered(llvm::make_pointer_range(
        llvm::make_filter_range(function.getBody().front(), [](Operation &op) { return isInstruction(&op); })));
    for (ArrayRef<Operation *> rest = ordered; const Launch &launch : launches) {
      if (launch.size() > 1)
        join(rest.take_front(launch.size()));
      rest = rest.drop_front(launch.size());
    }
  }
};

} // namespace

} // namespace tcc::train

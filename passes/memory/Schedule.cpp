//===- Schedule.cpp - order instructions for the least peak ---------------===//
//
// compiler/planning/Scheduling orders the entry's program: of several orders with little live memory, the pass takes
// the one that packs into the smallest arena. With several ranks, collectives then begin earlier. On a device that runs
// asynchronously to the host, numbers that the host waits for are computed as early as possible.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Scheduling.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/CollectiveOrder.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SCHEDULEPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// Moves each instruction that only computes numbers for the host right behind the last one that it depends on. With
/// clipping this is the norm's square root, which otherwise might come after the updates.
planning::Sequence numbersEarly(const EntryProblem &entry, const planning::Sequence &order) {
  constexpr planning::Bytes kNumberBytes = 8;
  const planning::Program &program = entry.program;
  planning::Sequence early;
  for (int i : order) {
    const planning::ProgramInstruction &instruction = program.instructions[size_t(i)];
    const bool isNumber =
        !instruction.writesState && !instruction.writes.empty() && !isa<Collective>(entry.instructions[size_t(i)]) &&
        llvm::all_of(instruction.writes, [&](int value) {
          return program.values[size_t(value)].atExit && program.values[size_t(value)].bytes <= kNumberBytes;
        });
    auto at = early.end();
    if (isNumber) {
      llvm::SmallDenseSet<int> before(instruction.after.begin(), instruction.after.end());
      for (int value : instruction.reads)
        before.insert(program.values[size_t(value)].producer);
      while (at != early.begin() && !before.contains(*std::prev(at)))
        --at;
    }
    early.insert(at, i);
  }
  return early;
}

struct Schedule : impl::SchedulePassBase<Schedule> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    EntryProblem entry(function);
    planning::SchedulingSolution solution = planning::schedule(entry.program);
    auto prefetch = function->getParentOfType<ModuleOp>()->getAttrOfType<IntegerAttr>(names::kPrefetch);
    planning::Sequence order =
        beginCollectivesEarly(entry, planning::leastPacked(entry.program, solution), prefetch ? prefetch.getInt() : 1);
    if (const target::Target *target = target::targetOf(function); target && target->capabilities().readsNumbersEarly)
      order = numbersEarly(entry, order);
    if (std::string wrong = planning::validate(entry.program, order); !wrong.empty()) {
      function.emitError("internal error: the order of instructions is wrong: ") << wrong;
      return signalPassFailure();
    }
    entry.apply(order);
  }
};

} // namespace

} // namespace tcc::train

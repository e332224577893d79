//===- Schedule.cpp - order instructions for the least peak ---------------===//
//
// compiler/planning/Scheduling orders the entry's program: of several orders with little live memory, the pass takes the
// one that packs into the smallest arena. With several ranks, collectives then begin earlier.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Scheduling.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/CollectiveOrder.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SCHEDULEPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct Schedule : impl::SchedulePassBase<Schedule> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    EntryProgram entry(function);
    planning::SchedulingSolution solution = planning::schedule(entry.program);
    auto prefetch = function->getParentOfType<ModuleOp>()->getAttrOfType<IntegerAttr>(names::kPrefetch);
    planning::Sequence order =
        beginCollectivesEarly(entry, planning::leastPacked(entry.program, solution), prefetch ? prefetch.getInt() : 1);
    if (std::string wrong = planning::validate(entry.program, order); !wrong.empty()) {
      function.emitError("internal error: the order of instructions is wrong: ") << wrong;
      return signalPassFailure();
    }
    entry.apply(order);
  }
};

} // namespace

} // namespace tcc::train

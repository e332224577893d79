//===- Schedule.cpp -------------------------------------------------------===//
//
// The order is found on the entry's program, by compiler/planning/Scheduling: of several with little live memory the
// one that packs into the smallest arena.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Scheduling.h"
#include "passes/Common.h"
#include "passes/EntryProgram.h"
#include "passes/Lowering.h"

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
    planning::Sequence order = planning::leastPacked(entry.program, solution);
    if (std::string wrong = planning::validate(entry.program, order); !wrong.empty()) {
      function.emitError("internal error: the order of instructions is wrong: ") << wrong;
      return signalPassFailure();
    }
    entry.apply(order);
  }
};

} // namespace

} // namespace tcc::train

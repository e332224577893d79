//===- Schedule.cpp - order instructions for the least peak ---------------===//
//
// compiler/planning/Scheduling orders the entry's program: of several orders with little live memory, the pass takes the
// one that packs into the smallest arena.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Scheduling.h"
#include "passes/Common.h"
#include "passes/memory/EntryProgram.h"
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

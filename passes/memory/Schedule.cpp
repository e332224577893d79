//===- Schedule.cpp - order instructions for the least peak ---------------===//
//
// compiler/planning/Scheduling orders the entry's program: of several orders with little live memory, the pass takes the
// one that packs into the smallest arena. With several ranks, collectives then begin earlier.
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

/// Begins each collective where its last operand is complete, and moves what depends on it behind the beginning of the
/// next one: the rest of the backward pass, and then the update of one bucket, can run while ranks wait for each other.
/// The gradients of one bucket more are alive for it. A gathered parameter takes memory from the beginning on: its
/// gather stays where the order of least memory has it, and what reads it moves behind the beginning of the next one,
/// so that one bucket is gathered ahead. Collectives keep their order.
planning::Sequence beginCollectivesEarly(const EntryProgram &entry, planning::Sequence order) {
  const std::vector<planning::ProgramInstruction> &all = entry.program.instructions;
  auto follows = [&](int id, auto &&precedes) {
    return llvm::any_of(all[size_t(id)].after, precedes) || llvm::any_of(all[size_t(id)].reads, [&](int value) {
             int producer = entry.program.values[size_t(value)].producer;
             return producer >= 0 && precedes(producer);
           });
  };
  std::vector<int> collectives;
  for (int id : order)
    if (isa<Collective>(entry.instructions[size_t(id)]))
      collectives.push_back(id);
  for (size_t i = 0; i < collectives.size(); ++i) {
    if (isa<AllGatherOp>(entry.instructions[size_t(collectives[i])]))
      continue;
    auto own = llvm::find(order, collectives[i]), place = own;
    auto mustStay = [&](int before) {
      return (i > 0 && before == collectives[i - 1]) ||
             follows(collectives[i], [&](int other) { return other == before; });
    };
    while (place != order.begin() && !mustStay(*std::prev(place)))
      --place;
    std::rotate(place, own, std::next(own));
  }
  for (size_t i = 0; i + 1 < collectives.size(); ++i) {
    auto begin = std::next(llvm::find(order, collectives[i])), next = llvm::find(order, collectives[i + 1]);
    llvm::DenseSet<int> dependent{collectives[i]};
    auto depends = [&](int id) { return follows(id, [&](int other) { return dependent.contains(other); }); };
    for (auto it = begin; it != next; ++it)
      if (depends(*it))
        dependent.insert(*it);
    if (depends(*next))
      continue;
    std::stable_partition(begin, std::next(next), [&](int id) { return !dependent.contains(id); });
  }
  return order;
}

struct Schedule : impl::SchedulePassBase<Schedule> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    EntryProgram entry(function);
    planning::SchedulingSolution solution = planning::schedule(entry.program);
    planning::Sequence order = beginCollectivesEarly(entry, planning::leastPacked(entry.program, solution));
    if (std::string wrong = planning::validate(entry.program, order); !wrong.empty()) {
      function.emitError("internal error: the order of instructions is wrong: ") << wrong;
      return signalPassFailure();
    }
    entry.apply(order);
  }
};

} // namespace

} // namespace tcc::train

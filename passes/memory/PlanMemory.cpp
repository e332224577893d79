//===- PlanMemory.cpp - offsets of all buffers in the arena ---------------===//
#include "compiler/planning/Packing.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/Buffers.h"
#include "passes/memory/CollectiveOrder.h"

#include <numeric>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_PLANMEMORYPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct PlanMemory : impl::PlanMemoryPassBase<PlanMemory> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    // A rung of the ladder was packed with the original live ranges.
    if (function->getParentOfType<ModuleOp>()->hasAttr(names::kRunsBeside) && !function->hasAttr(names::kPackedOffsets))
      keepScatteredSources(function);
    EntryBuffers entry(function);
    std::vector<int> packed;
    planning::PackingProblem problem = planning::packingOf(entry.blocks, packed);
    planning::PackingSolution solution;
    if (function->hasAttr(names::kPackedOffsets)) {
      if (!readRung(function, entry, problem.buffers.size(), solution))
        return signalPassFailure();
    } else {
      solution = planning::pack(problem);
      // A gap of more than 1% above the lower bound is worth more search. With scratch the bound is often out of reach.
      if (problem.scratch.empty() && solution.bytes > solution.lowerBound + solution.lowerBound / 100)
        if (planning::PackingSolution other = planning::pack(problem, 4 * planning::kPackingWork);
            other.bytes < solution.bytes)
          solution = std::move(other);
    }
    if (std::string clash = planning::validate(problem, solution); !clash.empty()) {
      function.emitError("internal error: memory plan is wrong: ") << clash;
      return signalPassFailure();
    }
    entry.place(function, problem, packed, solution);
    if (!placeOnHost(function, entry))
      return signalPassFailure();
  }

private:
  /// Gives the values on the host their offsets: those of the rung, if there is one, else of a packing made here.
  static bool placeOnHost(func::FuncOp function, const EntryBuffers &entry) {
    std::vector<int> packed;
    const planning::PackingProblem problem = planning::hostPackingOf(entry.blocks, packed);
    if (problem.buffers.empty())
      return true;
    planning::PackingSolution solution;
    if (auto offsets = function->getAttrOfType<DenseI64ArrayAttr>(names::kHostPackedOffsets)) {
      solution.offsets.assign(offsets.asArrayRef().begin(), offsets.asArrayRef().end());
      solution.bytes = planning::Bytes(function->getAttrOfType<IntegerAttr>(names::kHostTransientBytes).getInt());
    } else {
      solution = planning::pack(problem);
    }
    if (std::string clash = planning::validate(problem, solution); !clash.empty()) {
      function.emitError("internal error: the plan of the host's memory is wrong: ") << clash;
      return false;
    }
    entry.placeOnHost(function, packed, solution);
    return true;
  }

  /// Reads the packing of the rung that rematerialize chose, which is used unchanged: a budget relies on its bytes. The
  /// ladder was computed for the instructions that the function has by now, so buffers and cost must be the same.
  static bool readRung(func::FuncOp function, const EntryBuffers &entry, size_t bufferCount,
                       planning::PackingSolution &solution) {
    auto integer = [&](StringRef name) {
      auto attribute = function->getAttrOfType<IntegerAttr>(name);
      return attribute ? attribute.getInt() : 0;
    };
    ArrayRef<int64_t> offsets = function->getAttrOfType<DenseI64ArrayAttr>(names::kPackedOffsets).asArrayRef();
    if (offsets.size() != bufferCount) {
      function.emitError("internal error: the ladder of budgets packed ")
          << offsets.size() << " buffers, the program has " << bufferCount;
      return false;
    }
    EntryProblem problem(function);
    planning::Sequence order(problem.instructions.size());
    std::iota(order.begin(), order.end(), 0);
    // The IR is final here: every result that an op still has is made.
    for (planning::ProgramInstruction &instruction : problem.program.instructions)
      instruction.omits = false;
    const planning::Cost cost = planning::costOf(problem.program, order);
    if (function->hasAttr(names::kCost) && cost != planning::Cost(integer(names::kCost))) {
      function.emitError("internal error: the program costs ")
          << cost << ", the ladder of budgets said " << integer(names::kCost);
      return false;
    }
    solution.offsets.assign(offsets.begin(), offsets.end());
    solution.bytes = planning::Bytes(integer(names::kTransientBytes));
    solution.lowerBound = planning::Bytes(integer(names::kLowerBoundBytes));
    return true;
  }
};

} // namespace

} // namespace tcc::train

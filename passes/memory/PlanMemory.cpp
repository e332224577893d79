//===- PlanMemory.cpp - offsets of all buffers in the arena ---------------===//
#include "compiler/planning/Packing.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/Buffers.h"
#include "passes/memory/CollectiveOrder.h"

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
    // The ladder reckoned with other lives.
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
      // A hundredth above what lives at once is worth some more time, less is not. Below scratch the bound is often out
      // of reach.
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
  }

private:
  /// A rung of the ladder brings its packing, which is used as it is: a budget relies on its bytes. The ladder reckoned
  /// with the instructions that the function has by now, so the buffers and the cost have to be the same.
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
    planning::Cost cost = 0;
    for (Operation *op : entry.instructions)
      cost += nominalCost(op);
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

//===- PlanMemory.cpp -----------------------------------------------------===//
#include "compiler/planning/Packing.h"
#include "passes/Buffers.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_PLANMEMORYPASS
#include "passes/LoweringPasses.h.inc"

namespace {

constexpr int kMoreTries = 4;

struct PlanMemory : impl::PlanMemoryPassBase<PlanMemory> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    EntryBuffers entry(function);
    std::vector<int> packed;
    planning::PackingProblem problem = planning::packingOf(entry.blocks, packed);
    // A rung of the ladder is packed as it was when it was chosen: a budget relies on its bytes. Where the blocks come
    // in another order than then, more work finds what that found.
    auto chosenWith = function->getAttrOfType<IntegerAttr>(names::kPackingWork);
    auto promised = function->getAttrOfType<IntegerAttr>(names::kTransientBytes);
    auto keepsPromise = [&](const planning::PackingSolution &found) {
      return !promised || found.bytes <= planning::Bytes(promised.getInt());
    };
    uint64_t work = chosenWith ? uint64_t(chosenWith.getInt()) : planning::kPackingWork;
    planning::PackingSolution solution = planning::pack(problem, work);
    for (int more = 0; more < kMoreTries && !keepsPromise(solution); ++more)
      solution = planning::pack(problem, work *= 4);
    if (!keepsPromise(solution)) {
      function.emitError("internal error: the arena takes ")
          << solution.bytes << " bytes, the ladder of budgets said " << promised.getInt();
      return signalPassFailure();
    }
    if (std::string clash = planning::validate(problem, solution); !clash.empty()) {
      function.emitError("internal error: memory plan is wrong: ") << clash;
      return signalPassFailure();
    }
    Builder builder(&getContext());
    auto offsetOf = [&](unsigned id) {
      const EntryBuffer &buffer = entry.buffers[id];
      return buffer.block < 0 ? int64_t(-1)
                              : int64_t(solution.offsets[size_t(packed[size_t(buffer.block)])]) + buffer.offsetInBlock;
    };
    for (BlockArgument argument : function.getArguments())
      if (unsigned id = entry.bufferOf(argument); entry.buffers[id].block >= 0)
        function.setArgAttr(argument.getArgNumber(), names::kOffset, builder.getI64IntegerAttr(offsetOf(id)));
    for (Operation *op : entry.instructions) {
      SmallVector<int64_t> offsets;
      for (unsigned id : entry.definedBy(op))
        offsets.push_back(offsetOf(id));
      op->setAttr(names::kOffsets, builder.getDenseI64ArrayAttr(offsets));
    }
    function->setAttr(names::kTransientBytes, builder.getI64IntegerAttr(solution.bytes));
    function->setAttr(names::kLowerBoundBytes, builder.getI64IntegerAttr(solution.lowerBound));
  }
};

} // namespace

} // namespace tcc::train

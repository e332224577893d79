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

struct PlanMemory : impl::PlanMemoryPassBase<PlanMemory> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    EntryBuffers entry(function);
    // Buffers that take over one another's memory are one block.
    planning::PackingProblem problem;
    std::vector<int> block(entry.buffers.size(), -1);
    for (unsigned id = 0; id < entry.buffers.size(); ++id) {
      const EntryBuffer &buffer = entry.buffers[id];
      if (buffer.kind == EntryBuffer::kState)
        continue;
      if (buffer.inPlaceOf >= 0) {
        block[id] = block[buffer.inPlaceOf];
        planning::PackingBuffer &shared = problem.buffers[block[id]];
        shared.last = std::max<planning::Time>(shared.last, buffer.last);
        continue;
      }
      block[id] = problem.buffers.size();
      problem.buffers.push_back({"buffer " + std::to_string(id), planning::Bytes(std::max<int64_t>(buffer.bytes, 1)),
                                 buffer.first, buffer.last});
    }
    planning::PackingSolution solution = planning::pack(problem);
    if (std::string clash = planning::validate(problem, solution); !clash.empty()) {
      function.emitError("internal error: memory plan is wrong: ") << clash;
      return signalPassFailure();
    }
    Builder builder(&getContext());
    auto offsetOf = [&](unsigned id) { return block[id] < 0 ? int64_t(-1) : int64_t(solution.offsets[block[id]]); };
    for (BlockArgument argument : function.getArguments())
      if (unsigned id = entry.bufferOf(argument); block[id] >= 0)
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

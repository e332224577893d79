//===- WeighCalls.cpp - refuse calls whose scratch needs much memory ------===//
//
// Entries share one arena, so the largest one decides. Scratch comes on top of the values that are live while its
// instruction runs.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/passes/CudaPasses.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/EntryProblem.h"
#include "support/BytesText.h"

#include <numeric>

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_WEIGHCALLSPASS
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

namespace {

bool isCallOfAttention(Operation *op) {
  if (auto region = dyn_cast<FusedOp>(op))
    op = region.getLoopKernel().getOperation();
  return isa_and_nonnull<AttentionCallOp, AttentionGradCallOp>(op);
}

struct WeighCallsPass : impl::WeighCallsPassBase<WeighCallsPass> {
  using WeighCallsPassBase::WeighCallsPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    planning::Bytes with = 0, without = 0;
    for (auto function : module.getOps<func::FuncOp>()) {
      if (!function->hasAttr(names::kEntry))
        continue;
      const EntryProblem entry(function);
      planning::Program program = entry.program;
      planning::Sequence once(entry.instructions.size());
      std::iota(once.begin(), once.end(), 0);
      with = std::max(with, planning::peakOf(program, once));
      for (auto [op, instruction] : llvm::zip_equal(entry.instructions, program.instructions))
        if (isCallOfAttention(op)) {
          instruction.workspace -= instruction.scratch;
          instruction.scratch = 0;
        }
      without = std::max(without, planning::peakOf(program, once));
    }
    const planning::Bytes raise = with - without, all = planning::Bytes(residentBytes(module)) + without;
    if (raise <= planning::Bytes(harmlessBytes) || raise <= all / planning::Bytes(raiseShare))
      return;
    module->setAttr(names::kCallsRefused,
                    StringAttr::get(&getContext(), "its library's scratch would raise the memory from " +
                                                       bytesText(uint64_t(all)) + " to " +
                                                       bytesText(uint64_t(all + raise))));
  }
};

} // namespace
} // namespace tcc::train

//===- VerifyPhase.cpp - no illegal op after a phase ----------------------===//
#include "compiler/dialect/Joined.h"
#include "passes/memory/Buffers.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_VERIFYPHASEPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct VerifyPhase : impl::VerifyPhasePassBase<VerifyPhase> {
  using VerifyPhasePassBase::VerifyPhasePassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    for (Operation &op : function.getBody().front().without_terminator())
      if (std::optional<StringRef> pass = shouldHaveGone(&op)) {
        op.emitOpError("internal error: illegal after phase ")
            << phase << ", expected to have been converted by " << *pass;
        signalPassFailure();
      }
  }

private:
  /// The pass that should have converted the op by the end of the phase; nothing if the op is legal there.
  std::optional<StringRef> shouldHaveGone(Operation *op) {
    if (isa<ReadOp, WriteOp>(op))
      return "build-update";
    if (isa<Decomposable>(op))
      return "decompose-composites";
    if (phase == "decompose" || op->hasTrait<View>())
      return std::nullopt;
    bool constant = isa<ConstantOp>(op);
    if (!constant && !isa<FusedOp, JoinedOp, FillOp, CopyOp, Collective>(op) && !op->hasAttr(names::kCall))
      return "fuse-kernels";
    if (phase == "kernels")
      return std::nullopt;
    if (constant)
      return "materialize-buffers";
    if (!op->hasAttr(names::kOffsets))
      return "plan-memory";
    return std::nullopt;
  }
};

} // namespace

} // namespace tcc::train

//===- VerifyPhase.cpp - no illegal op after a phase ----------------------===//
#include "compiler/dialect/Joined.h"
#include "passes/memory/Buffers.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/Phase.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_VERIFYPHASEPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct VerifyPhase : impl::VerifyPhasePassBase<VerifyPhase> {
  using VerifyPhasePassBase::VerifyPhasePassBase;

  LogicalResult initialize(MLIRContext *context) override {
    std::optional<Phase> found = findPhase(name);
    if (!found || (*found != Phase::Decompose && *found != Phase::Kernels && *found != Phase::Memory))
      return mlir::emitError(UnknownLoc::get(context))
             << "verify-phase: `" << name << "` is no phase that it verifies; known: decompose, kernels, memory";
    phase = *found;
    return success();
  }

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    for (Operation &op : function.getBody().front().without_terminator())
      if (std::optional<StringRef> pass = shouldHaveGone(&op)) {
        op.emitOpError("internal error: illegal after phase ")
            << name << ", expected to have been converted by " << *pass;
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
    if (phase == Phase::Decompose || op->hasTrait<View>())
      return std::nullopt;
    bool constant = isa<ConstantOp>(op);
    if (!constant && !isa<FusedOp, JoinedOp, FillOp, CopyOp, StoreOp, FetchOp, Collective>(op) &&
        !op->hasAttr(names::kCall))
      return "fuse-kernels";
    if (phase == Phase::Kernels)
      return std::nullopt;
    if (constant)
      return "materialize-buffers";
    if (!op->hasAttr(names::kOffsets))
      return "plan-memory";
    return std::nullopt;
  }

  Phase phase = Phase::Decompose;
};

} // namespace

} // namespace tcc::train

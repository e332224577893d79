//===- HoldStops.cpp - keep stopped values fixed for finite differences ---===//
//
// A derivative that stops at a value is the derivative of the loss with that value held fixed. So the gradient check
// needs a loss whose stopped values it can hold: each becomes state that the program writes, until @"tcc.stopped/hold"
// is set; from then on the program reads it. Differentiation sees both branches of the select, so the check covers its
// treatment of stops.
//
// A straight-through op has the derivative of a line: of its operand if the gradient passes, of its constant result
// elsewhere. The check also uses the line's value, since rounded values are often equal, and a maximum of equal values
// has no derivative.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_HOLDSTOPSPASS
#include "passes/Passes.h.inc"

namespace {

struct HoldStopsPass : impl::HoldStopsPassBase<HoldStopsPass> {
  void runOnOperation() override {
    func::FuncOp loss = lookupFunction(getOperation(), "loss");
    if (!loss || loss.isDeclaration())
      return;
    llvm::SmallVector<StopGradientOp> stops(loss.getOps<StopGradientOp>());
    for (StraightThrough op : llvm::SmallVector<StraightThrough>(loss.getOps<StraightThrough>()))
      passThrough(op);
    if (stops.empty())
      return;
    OpBuilder top(loss);
    auto scalar = RankedTensorType::get({}, top.getF64Type());
    declare(top, names::kHoldStops, scalar);
    Block &body = loss.getBody().front();
    OpBuilder builder = OpBuilder::atBlockBegin(&body);
    Value given = ReadOp::create(builder, loss.getLoc(), scalar, names::kHoldStops);
    Expr holds = Expr(builder, loss.getLoc(), given).compare(CompareKind::gt, 0);
    for (auto [i, stop] : llvm::enumerate(stops)) {
      std::string name = (names::kHeld + llvm::Twine(i)).str();
      declare(top, name, stop.getType());
      builder.setInsertionPointAfter(stop);
      Expr fresh(builder, stop.getLoc(), stop.getResult());
      Expr kept = fresh.with(ReadOp::create(builder, stop.getLoc(), stop.getType(), name));
      Expr value = fresh.with(holds).broadcast(shapeOf(fresh)).select(kept, fresh);
      stop.getResult().replaceUsesWithIf(value,
                                         [&](OpOperand &use) { return use.getOwner() != value.value.getDefiningOp(); });
      WriteOp::create(builder, stop.getLoc(), name, value);
    }
  }

  /// y + stop(line − y): the value of the line, the gradient of the op.
  static void passThrough(StraightThrough op) {
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    Expr y(builder, op.getLoc(), op->getResult(0));
    Expr line = y.with(op.buildPassing(builder)).select(y.with(op->getOperand(0)), y);
    Expr rest = line - y;
    Expr value = y + rest.with(StopGradientOp::create(builder, op.getLoc(), rest.value.getType(), rest));
    llvm::SmallPtrSet<Operation *, 3> own{line.value.getDefiningOp(), rest.value.getDefiningOp(),
                                          value.value.getDefiningOp()};
    y.value.replaceUsesWithIf(value, [&](OpOperand &use) { return !own.contains(use.getOwner()); });
  }

  static void declare(OpBuilder &builder, llvm::StringRef name, Type type) {
    VariableOp::create(builder, NameLoc::get(builder.getStringAttr(name)), name, type, "held",
                       builder.getF64FloatAttr(0), nullptr, -1);
  }
};

} // namespace
} // namespace tcc::train

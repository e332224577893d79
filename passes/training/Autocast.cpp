//===- Autocast.cpp - contractions in a 16-bit type ------------------------===//
//
// Mixed precision as in PyTorch's autocast (Micikevicius et al., "Mixed precision training", arXiv:1710.03740):
// products take 16-bit operands and give 16-bit results; everything else is f32, including weights, moments and
// gradients of weights. It runs before differentiation, so that the gradient of a cast is a cast. Ops that gain from it
// implement the interface `Autocast`.
//
// A kernel computes in f32 even on narrow operands, so only values stored between kernels have to be narrow. If a value
// depends on results of products alone, and another product reads it, its other readers take the rounded value, too:
// the residual of a convolution network is then stored once, as in PyTorch. A residual that starts in f32 (the
// embedding of a transformer) stays f32, as in PyTorch.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_AUTOCASTPASS
#include "passes/Passes.h.inc"

namespace {

class Autocaster {
public:
  Autocaster(func::FuncOp function, FloatType narrow) : function(function), narrow(narrow), builder(function) {}

  void run() {
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
      if (auto candidate = dyn_cast<Autocast>(op))
        castOperands(candidate);
    findNarrowValues();
    for (Operation *op : products)
      for (Value operand : op->getOperands())
        shareRounded(operand);
  }

private:
  static bool isSingle(Value value) { return elementTypeOf(value).isF32(); }

  void castOperands(Autocast op) {
    llvm::SmallVector<unsigned> operands = op.getAutocastOperands();
    if (operands.empty() || !isSingle(op->getResult(0)) ||
        llvm::any_of(operands, [&](unsigned i) { return !isSingle(op->getOperand(i)); }))
      return;
    builder.setInsertionPoint(op);
    for (unsigned i : operands)
      op->setOperand(i, train::cast(builder, op->getLoc(), op->getOperand(i), narrow));
    Value result = op->getResult(0);
    result.setType(RankedTensorType::get(shapeOf(result), narrow));
    builder.setInsertionPointAfter(op);
    Value wide = train::cast(builder, op->getLoc(), result, builder.getF32Type());
    result.replaceAllUsesExcept(wide, wide.getDefiningOp());
    products.push_back(op);
  }

  /// Finds the f32 values whose floating-point operands are all rounded values or state, at least one of them rounded.
  /// Graph inputs are no state, so rows of an embedding, which depend on indices, are none either.
  void findNarrowValues() {
    auto isNarrow = [&](Value value) { return elementTypeOf(value) == narrow || narrowValues.contains(value); };
    for (Operation &op : function.getBody().front()) {
      bool fromState = llvm::all_of(op.getOperands(), [&](Value operand) { return state.contains(operand); });
      bool fromNarrow = llvm::any_of(op.getOperands(), isNarrow) && llvm::all_of(op.getOperands(), [&](Value operand) {
        return !isFloatTensor(operand) || isNarrow(operand) || state.contains(operand);
      });
      for (Value result : op.getResults())
        if (fromState)
          state.insert(result); // constants and reads have no operands
        else if (fromNarrow && isFloatTensor(result))
          narrowValues.insert(result);
    }
  }

  /// If `operand` of a product is a rounded value that has other readers, makes these read the rounded value, too.
  void shareRounded(Value operand) {
    auto rounding = operand.getDefiningOp<CastOp>();
    if (!rounding || elementTypeOf(operand) != narrow)
      return;
    Value source = rounding.getInput();
    if (!narrowValues.contains(source) || source.getDefiningOp<CastOp>())
      return;
    auto isRounding = [&](OpOperand &use) {
      auto other = dyn_cast<CastOp>(use.getOwner());
      return other && elementTypeOf(other.getResult()) == narrow;
    };
    if (llvm::all_of(source.getUses(), isRounding))
      return;
    builder.setInsertionPointAfterValue(source);
    Value rounded = train::cast(builder, source.getLoc(), source, narrow);
    Value wide = train::cast(builder, source.getLoc(), rounded, elementTypeOf(source));
    source.replaceUsesWithIf(wide, [&](OpOperand &use) { return use.getOwner() != rounded.getDefiningOp(); });
    narrowValues.insert(wide);
  }

  func::FuncOp function;
  FloatType narrow;
  OpBuilder builder;
  llvm::SmallVector<Operation *> products;
  llvm::DenseSet<Value> narrowValues, state; // only looked up, never iterated
};

struct AutocastPass : impl::AutocastPassBase<AutocastPass> {
  using AutocastPassBase::AutocastPassBase;

  void runOnOperation() override {
    FloatType narrow;
    if (precision == "bf16")
      narrow = BFloat16Type::get(&getContext());
    else if (precision == "f16")
      narrow = Float16Type::get(&getContext());
    if (!narrow) {
      getOperation().emitError("autocast: unknown precision '") << precision << "'; expected bf16 or f16";
      return signalPassFailure();
    }
    for (llvm::StringRef name : {"forward", "loss"})
      if (func::FuncOp function = lookupFunction(getOperation(), name); function && !function.isDeclaration())
        Autocaster(function, narrow).run();
  }
};

} // namespace
} // namespace tcc::train

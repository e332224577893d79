//===- FuseEpilogues.cpp - kernels that a product's call makes needless ----===//
//
// Runs once kernels stand, so that each replacement is known to save a launch. A kernel is matched as a whole: all that
// it computes must be what a call with an epilogue gives. The readers of a product P that gelu is applied to are
// replaced together or not at all: P is then gone, and gelu's input P + b is kept in its place.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Views.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

#include "mlir/Analysis/TopologicalSortUtils.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_FUSEEPILOGUESPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// A matrix product whose columns are the last dimension of a kernel's operand.
MatMulOp productBehind(Value value) {
  SmallVector<Operation *> views;
  auto product = rootOf(value, &views).getDefiningOp<MatMulOp>();
  if (!product || !product->hasAttr(names::kCall) || product.getAddend() || shapeOf(product.getResult())[0] != 1 ||
      product.getResult().getType() != RankedTensorType::get(shapeOf(product.getResult()), elementTypeOf(value)) ||
      elementTypeOf(product.getLhs()) != elementTypeOf(value))
    return nullptr;
  const int64_t columns = shapeOf(product.getResult())[2];
  bool together = !shapeOf(value).empty() && shapeOf(value).back() == columns &&
                  llvm::all_of(views, [](Operation *view) { return isa<ReshapeOp>(view); });
  return together ? product : nullptr;
}

/// P + b, as a kernel computes it: the numbers of its operands.
struct BiasedProduct {
  unsigned product, bias;
};

std::optional<BiasedProduct> matchBias(AddOp add) {
  for (auto [sum, row] : {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())}) {
    auto product = dyn_cast<BlockArgument>(sum);
    auto broadcast = row.getDefiningOp<BroadcastOp>();
    auto bias = broadcast ? dyn_cast<BlockArgument>(broadcast.getInput()) : BlockArgument();
    if (product && bias && !shapeOf(bias).empty() && shapeOf(bias).back() == shapeOf(product).back() &&
        tensorTypeOf(bias).getNumElements() == shapeOf(bias).back())
      return BiasedProduct{product.getArgNumber(), bias.getArgNumber()};
  }
  return std::nullopt;
}

/// A sum over all dimensions but the last.
bool sumsRows(ReduceOp reduce) {
  if (reduce.getKind() != ReduceKind::sum)
    return false;
  ArrayRef<int64_t> shape = shapeOf(reduce.getInput());
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (llvm::is_contained(reduce.getDims(), int64_t(dim)) ? dim + 1 == shape.size()
                                                           : dim + 1 < shape.size() && extent > 1)
      return false;
  return !shape.empty();
}

ValueRange yieldedBy(FusedOp kernel) { return cast<YieldOp>(kernel.getBody().front().getTerminator()).getValues(); }

/// The only op of a type in the kernel's region; null if there are several or none.
template <typename Op> Op soleOp(FusedOp kernel) {
  auto ops = kernel.getBody().front().getOps<Op>();
  return llvm::hasSingleElement(ops) ? *ops.begin() : Op();
}
size_t opsOf(FusedOp kernel) { return llvm::range_size(kernel.getBody().front().without_terminator()); }

/// A kernel that computes P + b or gelu(P + b), and nothing else.
struct Forward {
  FusedOp kernel;
  MatMulOp product;
  Value bias;
  bool gelu = false;
};

std::optional<Forward> matchForward(FusedOp kernel) {
  auto add = soleOp<AddOp>(kernel);
  auto gelu = soleOp<GeluOp>(kernel);
  std::optional<BiasedProduct> sum = add ? matchBias(add) : std::nullopt;
  if (!sum || opsOf(kernel) != (gelu ? 3u : 2u) || kernel->getNumOperands() != 2 || yieldedBy(kernel).size() != 1 ||
      (gelu && (!gelu.getTanh() || gelu.getInput() != add.getResult())) ||
      yieldedBy(kernel)[0] != (gelu ? gelu.getResult() : add.getResult()))
    return std::nullopt;
  Forward found{kernel, productBehind(kernel->getOperand(sum->product)), kernel->getOperand(sum->bias), bool(gelu)};
  Operation *source = found.bias.getDefiningOp();
  bool ready = found.product && (!source || source->isBeforeInBlock(found.product));
  return ready ? std::optional(found) : std::nullopt;
}

/// A kernel that computes D · gelu'(P + b), perhaps with the sum over its rows, and nothing else.
struct Backward {
  FusedOp kernel;
  MatMulOp gradient; ///< D
  unsigned result = 0;
  std::optional<unsigned> sums;
};

std::optional<Backward> matchBackward(FusedOp kernel, MatMulOp product, Value bias) {
  auto add = soleOp<AddOp>(kernel);
  auto derivative = soleOp<GeluDerivativeOp>(kernel);
  auto multiply = soleOp<MulOp>(kernel);
  auto reduce = soleOp<ReduceOp>(kernel);
  std::optional<BiasedProduct> sum = add ? matchBias(add) : std::nullopt;
  if (!sum || !derivative || !multiply || opsOf(kernel) != (reduce ? 5u : 4u) || kernel->getNumOperands() != 3 ||
      !derivative.getTanh() || derivative.getInput() != add.getResult() ||
      rootOf(kernel->getOperand(sum->product)) != product.getResult() ||
      productBehind(kernel->getOperand(sum->product)) != product || kernel->getOperand(sum->bias) != bias)
    return std::nullopt;
  Value other = multiply.getLhs() == derivative.getResult() ? multiply.getRhs() : multiply.getLhs();
  auto argument = dyn_cast<BlockArgument>(other);
  Backward found{kernel, argument ? productBehind(kernel->getOperand(argument.getArgNumber())) : MatMulOp(), 0, {}};
  if (!found.gradient || usesAcrossViews(found.gradient.getResult()).size() != 1 ||
      shapeOf(found.gradient.getResult()) != shapeOf(product.getResult()) ||
      (multiply.getLhs() != derivative.getResult() && multiply.getRhs() != derivative.getResult()) ||
      (reduce && (reduce.getInput() != multiply.getResult() || !sumsRows(reduce))))
    return std::nullopt;
  bool hasResult = false;
  for (auto [number, value] : llvm::enumerate(yieldedBy(kernel)))
    if (value == multiply.getResult() && !hasResult) {
      hasResult = true;
      found.result = unsigned(number);
    } else if (reduce && value == reduce.getResult() && !found.sums) {
      found.sums = unsigned(number);
    } else {
      return std::nullopt;
    }
  return hasResult ? std::optional(found) : std::nullopt;
}

struct FuseEpilogues : impl::FuseEpiloguesPassBase<FuseEpilogues> {
  using FuseEpiloguesPassBase::FuseEpiloguesPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    target = target::targetOf(function);
    if (!function->hasAttr(names::kEntry) || !target || !target->capabilities().epilogues)
      return;
    for (auto kernel : llvm::make_early_inc_range(function.getOps<FusedOp>()))
      if (std::optional<Forward> forward = matchForward(kernel); forward && !(exact && forward->gelu))
        replaceReaders(*forward);
    eraseDeadOps(function); // a replaced product contracts nothing
    if (!exact)
      for (auto kernel : llvm::make_early_inc_range(function.getOps<FusedOp>()))
        replaceSums(kernel);
    eraseDeadOps(function);
    sortTopologically(&function.getBody().front()); // readers of sums may stand before the product
  }

private:
  /// A product with an epilogue in place of `product`; null where the target has no call for it.
  MatMulEpilogueOp build(OpBuilder &builder, Location loc, MatMulOp product, Value operand, StringRef kind, bool keeps,
                         StringRef sums) const {
    auto type = cast<RankedTensorType>(product.getResult().getType());
    SmallVector<Type> types{type};
    if (keeps)
      types.push_back(type);
    if (!sums.empty())
      types.push_back(RankedTensorType::get({type.getDimSize(sums == "lhs" ? 1 : 2)}, type.getElementType()));
    auto made = MatMulEpilogueOp::create(builder, loc, types, product.getLhs(), product.getRhs(), operand,
                                         builder.getStringAttr(kind), keeps ? builder.getUnitAttr() : UnitAttr(),
                                         builder.getStringAttr(sums), builder.getBoolAttr(product.getTransA()),
                                         builder.getBoolAttr(product.getTransB()));
    std::optional<target::Call> call = target->call(made);
    if (!call) {
      made->erase();
      return nullptr;
    }
    made->setAttr(names::kCall, CallAttr::get(builder.getContext(), call->text()));
    made->setAttr(names::kScratch, target::scratchOf(builder.getContext(), *call));
    return made;
  }

  static Location locationOf(Operation *product, Operation *kernel) {
    return FusedLoc::get(product->getContext(), {product->getLoc(), kernel->getLoc()});
  }

  static void replace(OpBuilder &builder, Value old, Value made) {
    old.replaceAllUsesWith(reshape(builder, made.getLoc(), made, shapeOf(old)));
  }

  /// Replaces all readers of a product, or none.
  void replaceReaders(Forward &forward) const {
    SmallVector<Backward> gradients;
    for (OpOperand *use : usesAcrossViews(forward.product.getResult())) {
      if (use->getOwner() == forward.kernel)
        continue;
      auto kernel = dyn_cast<FusedOp>(use->getOwner());
      std::optional<Backward> gradient =
          kernel && forward.gelu ? matchBackward(kernel, forward.product, forward.bias) : std::nullopt;
      if (!gradient)
        return;
      gradients.push_back(*gradient);
    }
    OpBuilder builder(forward.product);
    Value bias = reshape(builder, forward.bias.getLoc(), forward.bias, {shapeOf(forward.product.getResult())[2]});
    MatMulEpilogueOp made = build(builder, locationOf(forward.product, forward.kernel), forward.product, bias,
                                  forward.gelu ? "gelu" : "bias", !gradients.empty(), "");
    if (!made)
      return;
    SmallVector<MatMulEpilogueOp> derivatives;
    for (Backward &gradient : gradients) {
      builder.setInsertionPoint(gradient.kernel);
      MatMulEpilogueOp next = build(builder, locationOf(gradient.gradient, gradient.kernel), gradient.gradient,
                                    made->getResult(1), "gelu_gradient", false, gradient.sums ? "result" : "");
      if (next)
        derivatives.push_back(next);
    }
    if (derivatives.size() != gradients.size()) {
      for (MatMulEpilogueOp derivative : derivatives)
        derivative->erase();
      made->erase();
      return;
    }
    for (auto [gradient, derivative] : llvm::zip(gradients, derivatives)) {
      builder.setInsertionPoint(gradient.kernel);
      replace(builder, gradient.kernel->getResult(gradient.result), derivative->getResult(0));
      if (gradient.sums)
        replace(builder, gradient.kernel->getResult(*gradient.sums), derivative->getResults().back());
    }
    builder.setInsertionPoint(forward.kernel);
    replace(builder, forward.kernel->getResult(0), made->getResult(0));
  }

  /// A kernel that only sums the rows of a matrix that a product contracts: a bias's gradient beside the weight's. Its
  /// operand may be sums already, of parts of the matrix, which another kernel computes (split-reductions).
  void replaceSums(FusedOp kernel) const {
    auto reduce = soleOp<ReduceOp>(kernel);
    if (!reduce || opsOf(kernel) != 1 || kernel->getNumOperands() != 1 || kernel->getNumResults() != 1 ||
        !sumsRows(reduce))
      return;
    Value parts = rootOf(kernel->getOperand(0)), matrix = kernel->getOperand(0);
    auto maker = parts.getDefiningOp<FusedOp>();
    std::optional<Value> summed = maker ? summedByParts(maker, cast<OpResult>(parts)) : std::nullopt;
    if (summed && usesAcrossViews(parts).size() == 1 && shapeOf(matrix).back() == shapeOf(*summed).back() &&
        sumInProduct(kernel, *summed))
      dropResult(maker, cast<OpResult>(parts).getResultNumber());
    else
      sumInProduct(kernel, matrix);
  }

  /// The matrix outside of a kernel whose rows the kernel adds up to a result, some to each row of the result.
  static std::optional<Value> summedByParts(FusedOp maker, OpResult result) {
    auto reduce = yieldedBy(maker)[result.getResultNumber()].getDefiningOp<ReduceOp>();
    if (!reduce || reduce.getKind() != ReduceKind::sum ||
        llvm::is_contained(reduce.getDims(), int64_t(shapeOf(reduce.getInput()).size()) - 1))
      return std::nullopt;
    if (auto argument = dyn_cast<BlockArgument>(reduce.getInput()))
      return maker->getOperand(argument.getArgNumber());
    for (auto [number, value] : llvm::enumerate(yieldedBy(maker)))
      if (value == reduce.getInput())
        return maker->getResult(unsigned(number));
    return std::nullopt;
  }

  /// Has a product that contracts the rows of `matrix` compute the kernel's sums. False if none does.
  bool sumInProduct(FusedOp kernel, Value matrix) const {
    const int64_t columns = shapeOf(matrix).back();
    for (OpOperand *use : usesAcrossViews(rootOf(matrix))) {
      auto product = dyn_cast<MatMulOp>(use->getOwner());
      if (!product || use->getOperandNumber() > 1 || product.getAddend() || !product->hasAttr(names::kCall) ||
          shapeOf(product.getResult())[0] != 1)
        continue;
      const bool isLhs = use->getOperandNumber() == 0;
      SmallVector<Operation *> views;
      (void)rootOf(use->get(), &views);
      (void)rootOf(matrix, &views);
      // Rows of the matrix are what is contracted, its columns those of the sums.
      if ((isLhs ? !product.getTransA() : product.getTransB()) || shapeOf(use->get()).back() != columns ||
          !llvm::all_of(views, [](Operation *view) { return isa<ReshapeOp>(view); }) ||
          product.getResult().getType() != RankedTensorType::get(shapeOf(product.getResult()), elementTypeOf(matrix)) ||
          waitsFor(product, kernel))
        continue;
      OpBuilder builder(product);
      MatMulEpilogueOp made =
          build(builder, locationOf(product, kernel), product, Value(), "none", false, isLhs ? "lhs" : "rhs");
      if (!made)
        continue;
      replace(builder, kernel->getResult(0), made->getResult(1));
      product.getResult().replaceAllUsesWith(made->getResult(0));
      product->erase();
      return true;
    }
    return false;
  }

  /// The kernel without one of its results, which nobody reads any more but dead ops.
  static void dropResult(FusedOp kernel, unsigned dropped) {
    SmallVector<Type> types(kernel->getResultTypes());
    types.erase(types.begin() + dropped);
    if (types.empty())
      return;
    OpBuilder builder(kernel);
    auto smaller = FusedOp::create(builder, kernel.getLoc(), types, kernel->getOperands());
    smaller->setAttrs(kernel->getAttrs());
    smaller.getBody().takeBody(kernel.getBody());
    Block &body = smaller.getBody().front();
    body.getTerminator()->eraseOperand(dropped);
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
      if (isOpTriviallyDead(&op))
        op.erase();
    for (unsigned number = body.getNumArguments(); number-- > 0;)
      if (body.getArgument(number).use_empty()) {
        body.eraseArgument(number);
        smaller->eraseOperand(number);
      }
    for (unsigned number = 0, to = 0; number < kernel->getNumResults(); ++number)
      if (number != dropped)
        kernel->getResult(number).replaceAllUsesWith(smaller->getResult(to++));
    eraseReaders(kernel->getResult(dropped));
    kernel->erase();
  }

  /// Erases views of a value, and kernels that read it, none of which has a reader.
  static void eraseReaders(Value value) {
    for (Operation *user : llvm::make_early_inc_range(value.getUsers())) {
      for (Value result : user->getResults())
        eraseReaders(result);
      user->erase();
    }
  }

  /// Whether an operand of the product depends on the kernel, which cannot be computed with the product then.
  static bool waitsFor(MatMulOp product, FusedOp kernel) {
    SmallVector<Operation *> work{product};
    llvm::SmallPtrSet<Operation *, 32> seen;
    while (!work.empty()) {
      for (Value operand : work.pop_back_val()->getOperands())
        if (Operation *op = operand.getDefiningOp(); op && seen.insert(op).second) {
          if (op == kernel.getOperation())
            return true;
          work.push_back(op);
        }
    }
    return false;
  }

  const target::Target *target = nullptr;
};

} // namespace

} // namespace tcc::train

//===- FuseEpilogues.cpp - replace kernels by epilogues of products --------===//
//
// Runs after kernels are formed, so that each replacement is known to save a launch. A kernel is matched as a whole: a
// call with an epilogue must compute all of its results. The readers of a product P that gelu is applied to are
// replaced together or not at all: P is then gone, and gelu's input P + b is kept instead. In mixed precision a kernel
// widens the 16-bit P, computes in f32 and narrows its results; the call adds a 16-bit bias, which a small kernel
// converts from the f32 parameter. The call also keeps what MatMulEpilogueOp::buildKernels needs to compute the bits of
// the replaced kernels: the f32 bias, the form of gelu, and the parts into which split-reductions would have cut sums.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/passes/FinishingKernels.h"

#include "compiler/target/Target.h"
#include "compiler/target/cuda/passes/CudaPasses.h"
#include "passes/Lowering.h"
#include "passes/fusion/Fusion.h"

#include "mlir/Analysis/TopologicalSortUtils.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_FUSEEPILOGUESPASS
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

namespace finishing {

struct FuseEpilogues : impl::FuseEpiloguesPassBase<FuseEpilogues> {
  using FuseEpiloguesPassBase::FuseEpiloguesPassBase;

  void runOnOperation() override {
    const bool byDefault = StringRef(level) == "auto";
    for (auto [named, to] : {std::pair(byDefault ? StringRef(narrow) : StringRef(level), &ofProducts),
                             {byDefault ? StringRef(convolutions) : StringRef(level), &ofConvolutions},
                             {byDefault ? StringRef("exact") : StringRef(level), &ofOthers}}) {
      std::optional<Level> known = llvm::StringSwitch<std::optional<Level>>(named)
                                       .Case("exact", Level::exact)
                                       .Case("bias", Level::bias)
                                       .Case("gelu", Level::gelu)
                                       .Case("all", Level::all)
                                       .Default(std::nullopt);
      if (!known) {
        getOperation().emitError() << "fuse-epilogues has no level '" << named << "'";
        return signalPassFailure();
      }
      *to = *known;
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      target = target::targetOf(function);
      if (function->hasAttr(names::kEntry) && target)
        run(function);
    }
  }

private:
  void run(func::FuncOp function) const {
    for (auto kernel : llvm::make_early_inc_range(function.getOps<FusedOp>()))
      if (std::optional<Forward> forward = matchForward(kernel); forward) {
        if (forward->product && forward->level() <= levelOf(forward->product))
          replaceReaders(*forward);
        else if (forward->convolution && forward->level() <= levelOf(forward->convolution))
          replaceConvolution(*forward);
      }
    eraseDeadOps(function); // replaced products must not count as products that contract a matrix
    for (auto kernel : llvm::make_early_inc_range(function.getOps<FusedOp>()))
      replaceSums(kernel);
    eraseDeadOps(function);
    sortTopologically(&function.getBody().front()); // readers of sums may precede the product
    function.walk([&](Operation *op) {
      if (isa<MatMulEpilogueOp, ConvEpilogueOp>(op))
        explain(op);
    });
  }

  static bool isOfNarrow(Operation *call) { return isNarrow(elementTypeOf(call->getOperand(0))); }

  Level levelOf(Operation *call) const {
    return !isOfNarrow(call) ? ofOthers : isa<ConvOp, ConvEpilogueOp>(call) ? ofConvolutions : ofProducts;
  }

  /// Notes for the report why a call has an epilogue.
  void explain(Operation *call) const {
    const bool convolves = isa<ConvEpilogueOp>(call);
    std::string why = "compiler.epilogues is " + level;
    if (StringRef(level) == "auto")
      why = !isOfNarrow(call) ? "the default: biases keep their bits"
                              : "the default for " + target->name() + ": " +
                                    (convolves ? std::string(convolutionsWhy) : std::string(narrowWhy));
    auto module = call->getParentOfType<ModuleOp>();
    addNote(module, "epilogue", convolves ? "convolutions" : "products", why);
  }

  /// How kernels sum the rows of a matrix: its shape, with a dimension of parts where the machine needs some.
  struct Sums {
    SmallVector<int64_t> shape;
    std::optional<int64_t> partsDim;
  };
  Sums sumsOf(ArrayRef<int64_t> matrix) const {
    const SmallVector<int64_t> rows = llvm::to_vector(llvm::seq<int64_t>(0, int64_t(matrix.size()) - 1));
    const Cut cut = cutForUnits(matrix, rows, target->capabilities().reductionUnits, &target->code());
    Sums sums{llvm::to_vector(matrix), std::nullopt};
    for (auto [dim, parts] : llvm::enumerate(cut.parts)) // one dimension has parts
      if (parts > 1) {
        sums.partsDim = int64_t(dim);
        sums.shape[dim] /= parts;
        sums.shape.insert(sums.shape.begin() + int64_t(dim), parts);
        break;
      }
    return sums;
  }

  /// Builds a product with an epilogue to replace `product`; null if the target has no call for it. `summed`: the shape
  /// of the matrix of `sums`.
  MatMulEpilogueOp build(OpBuilder &builder, Location loc, MatMulOp product, ValueRange added, StringRef kind,
                         bool keeps, StringRef sums, ArrayRef<int64_t> summed = {}) const {
    auto type = cast<RankedTensorType>(product.getResult().getType());
    SmallVector<Type> types{type};
    if (keeps)
      types.push_back(type);
    Sums cut;
    if (!sums.empty()) {
      types.push_back(RankedTensorType::get({type.getDimSize(sums == "lhs" ? 1 : 2)}, type.getElementType()));
      cut = sumsOf(summed);
    }
    auto made = MatMulEpilogueOp::create(builder, loc, types, product.getLhs(), product.getRhs(), added,
                                         builder.getStringAttr(kind), keeps ? builder.getUnitAttr() : UnitAttr(),
                                         builder.getStringAttr(sums), builder.getBoolAttr(product.getTransA()),
                                         builder.getBoolAttr(product.getTransB()),
                                         sums.empty() ? DenseI64ArrayAttr() : builder.getDenseI64ArrayAttr(cut.shape),
                                         cut.partsDim ? builder.getI64IntegerAttr(*cut.partsDim) : IntegerAttr());
    return giveCall(made) ? made : nullptr;
  }

  /// Gives an op the target's call. If there is none, erases the op and returns false.
  bool giveCall(Operation *op) const {
    std::optional<target::Call> call = target->call(op);
    if (!call) {
      op->erase();
      return false;
    }
    op->setAttr(names::kCall, CallAttr::get(op->getContext(), call->text()));
    op->setAttr(names::kScratch, target::scratchOf(op->getContext(), *call));
    return true;
  }

  /// A bias in the form that a call reads, in the type of the product, and in that of kernels: in f32 if it has this
  /// type, else the same.
  struct Bias {
    Value ofCall, ofKernels;

    SmallVector<Value> values() const {
      return ofCall == ofKernels ? SmallVector<Value>{ofCall} : SmallVector<Value>{ofCall, ofKernels};
    }
  };
  static Bias biasFor(OpBuilder &builder, Value bias, Operation *product, ArrayRef<int64_t> shape) {
    Value vector = reshape(builder, bias.getLoc(), bias, shape);
    Value ofCall = converted(builder, bias.getLoc(), vector, elementTypeOf(product->getResult(0)));
    return {ofCall, elementTypeOf(vector).isF32() ? vector : ofCall};
  }

  static MatMulEpilogueOp marked(MatMulEpilogueOp made, Attribute near) {
    if (made && near)
      made->setAttr(names::kOfNarrow, near);
    return made;
  }

  void replaceConvolution(Forward &forward) const {
    ConvOp convolution = forward.convolution;
    if (!convolution->hasOneUse())
      return;
    OpBuilder builder(convolution);
    const int64_t features = shapeOf(convolution.getWeight())[0];
    const Bias bias = biasFor(builder, forward.bias, convolution, {features});
    auto made = ConvEpilogueOp::create(
        builder, locationOf(convolution, forward.kernel), convolution.getType(), convolution.getInput(),
        convolution.getWeight(), bias.ofCall, bias.ofKernels == bias.ofCall ? Value() : bias.ofKernels,
        convolution.getStrides(), convolution.getDilations(), convolution.getPadsBegin(), convolution.getPadsEnd(),
        convolution.getGroups(), convolution.getChannelsLast());
    if (giveCall(made))
      replace(builder, forward.kernel->getResult(0), made.getResult());
  }

  /// Erases dead ops and unread operands of a kernel.
  static void dropUnread(FusedOp kernel) {
    Block &body = kernel.getBody().front();
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
      if (isOpTriviallyDead(&op))
        op.erase();
    for (unsigned number = body.getNumArguments(); number-- > 0;)
      if (body.getArgument(number).use_empty()) {
        body.eraseArgument(number);
        kernel->eraseOperand(number);
      }
  }

  static Location locationOf(Operation *product, Operation *kernel) {
    return FusedLoc::get(product->getContext(), {product->getLoc(), kernel->getLoc()});
  }

  static void replace(OpBuilder &builder, Value old, Value made) {
    Value wanted = converted(builder, made.getLoc(), made, elementTypeOf(old));
    old.replaceAllUsesWith(reshape(builder, made.getLoc(), wanted, shapeOf(old)));
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
    const int64_t columns = shapeOf(forward.product.getResult())[2],
                  biases = tensorTypeOf(forward.bias).getNumElements() / columns;
    const Bias bias = biasFor(builder, forward.bias, forward.product,
                              biases == 1 ? SmallVector<int64_t>{columns} : SmallVector<int64_t>{biases, columns});
    MatMulEpilogueOp made = marked(build(builder, locationOf(forward.product, forward.kernel), forward.product,
                                         bias.values(), forward.gelu ? "gelu" : "bias", !gradients.empty(), ""),
                                   forward.near);
    if (!made)
      return;
    SmallVector<MatMulEpilogueOp> derivatives;
    for (Backward &gradient : gradients) {
      builder.setInsertionPoint(gradient.kernel);
      MatMulEpilogueOp next = marked(build(builder, locationOf(gradient.gradient, gradient.kernel), gradient.gradient,
                                           {made->getResult(1), bias.ofKernels}, "gelu_gradient", false,
                                           gradient.sums ? "result" : "", gradient.summed),
                                     gradient.near);
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

  /// Replaces a kernel that only sums the rows of a matrix that a product contracts: the bias gradient beside the
  /// weight gradient. The kernel's operand may be partial sums of the matrix from another kernel (split-reductions).
  void replaceSums(FusedOp kernel) const {
    KernelMatch match(kernel);
    auto reduce = match.sole<ReduceOp>();
    BlockArgument summand = reduce ? match.operandBehind(reduce.getInput()) : BlockArgument();
    if (!summand || !match.isWhole() || kernel->getNumOperands() != 1 || kernel->getNumResults() != 1 ||
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

  /// The matrix whose rows a kernel sums into partial sums, each row of `result` over some rows of the matrix.
  static std::optional<Value> summedByParts(FusedOp maker, OpResult result) {
    auto reduce = yieldedBy(maker)[result.getResultNumber()].getDefiningOp<ReduceOp>();
    if (!reduce || reduce.getKind() != ReduceKind::sum ||
        llvm::is_contained(reduce.getDims(), int64_t(shapeOf(reduce.getInput()).size()) - 1))
      return std::nullopt;
    if (BlockArgument argument = KernelMatch(maker).operandBehind(reduce.getInput()))
      return maker->getOperand(argument.getArgNumber());
    std::optional<Value> whole = storedBy(maker, reduce.getInput(), false);
    return whole ? whole : storedBy(maker, reduce.getInput(), true);
  }

  /// The kernel's result that stores a value of its region; with `narrowed`, rounded to 16 bits.
  static std::optional<Value> storedBy(FusedOp maker, Value value, bool narrowed) {
    for (auto [number, stored] : llvm::enumerate(yieldedBy(maker))) {
      auto cast = stored.getDefiningOp<CastOp>();
      if (narrowed ? cast && cast.getInput() == value && isNarrow(elementTypeOf(stored)) : stored == value)
        return maker->getResult(unsigned(number));
    }
    return std::nullopt;
  }

  /// The 16-bit matrix that is stored beside an f32 one, and that products read in its place; the matrix itself if
  /// there is none. PyTorch's autocast sums the 16-bit one as well.
  static Value multipliedFor(Value matrix) {
    auto result = dyn_cast<OpResult>(rootOf(matrix));
    auto maker = result ? dyn_cast<FusedOp>(result.getOwner()) : FusedOp();
    return maker ? storedBy(maker, yieldedBy(maker)[result.getResultNumber()], true).value_or(matrix) : matrix;
  }

  /// Has a product that contracts the rows of `matrix` compute the kernel's sums. False if none does.
  bool sumInProduct(FusedOp kernel, Value matrix) const {
    const int64_t columns = shapeOf(matrix).back();
    SmallVector<Operation *> around;
    (void)rootOf(matrix, &around);
    if (!llvm::all_of(around, [](Operation *view) { return isa<ReshapeOp>(view); }))
      return false;
    for (OpOperand *use : usesAcrossViews(rootOf(multipliedFor(matrix)))) {
      auto product = dyn_cast<MatMulOp>(use->getOwner());
      if (!product || levelOf(product) < Level::all || use->getOperandNumber() > 1 || product.getAddend() ||
          !product->hasAttr(names::kCall) || shapeOf(product.getResult())[0] != 1)
        continue;
      const bool isLhs = use->getOperandNumber() == 0;
      SmallVector<Operation *> views;
      (void)rootOf(use->get(), &views);
      // The product must contract the rows of the matrix; its columns must be those of the sums.
      if ((isLhs ? !product.getTransA() : product.getTransB()) || shapeOf(use->get()).back() != columns ||
          !llvm::all_of(views, [](Operation *view) { return isa<ReshapeOp>(view); }) ||
          elementTypeOf(product.getLhs()) != elementTypeOf(product.getRhs()) || waitsFor(product, kernel))
        continue;
      OpBuilder builder(product);
      MatMulEpilogueOp made = build(builder, locationOf(product, kernel), product, {}, "none", false,
                                    isLhs ? "lhs" : "rhs", shapeOf(matrix));
      if (!made)
        continue;
      replace(builder, kernel->getResult(0), made->getResult(1));
      product.getResult().replaceAllUsesWith(made->getResult(0));
      product->erase();
      return true;
    }
    return false;
  }

  /// Removes one result of a kernel, which only dead ops still read.
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
    dropUnread(smaller);
    for (unsigned number = 0, to = 0; number < kernel->getNumResults(); ++number)
      if (number != dropped)
        kernel->getResult(number).replaceAllUsesWith(smaller->getResult(to++));
    eraseReaders(kernel->getResult(dropped));
    kernel->erase();
  }

  /// Erases the views and kernels that read a value; none of their results is read by other ops.
  static void eraseReaders(Value value) {
    for (Operation *user : llvm::make_early_inc_range(value.getUsers())) {
      for (Value result : user->getResults())
        eraseReaders(result);
      user->erase();
    }
  }

  /// True if an operand of the product depends on the kernel, so that the product cannot compute its sums.
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
  Level ofProducts = Level::all, ofConvolutions = Level::all, ofOthers = Level::all; ///< the first two: of 16 bits
};

} // namespace finishing

} // namespace tcc::train

//===- FinishingKernels.h - kernels that only finish a product ---*- C++ -*-===//
//
// The patterns of FuseEpilogues: kernels that add a bias to a product or convolution, apply gelu, and compute gelu's
// gradient. A kernel is matched as a whole, op by op.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_CUDA_PASSES_FINISHINGKERNELS_H
#define TCC_COMPILER_TARGET_CUDA_PASSES_FINISHINGKERNELS_H

#include "compiler/dialect/Element.h"
#include "compiler/dialect/Views.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

namespace tcc::train::finishing {

using namespace mlir;

/// Which epilogues may change bits compared with kernels; each level includes the ones before it.
enum class Level { exact, bias, gelu, all };

inline bool isNarrow(Type element) { return element.isBF16() || element.isF16(); }

/// A matrix product whose columns are the last dimension of a kernel's operand.
inline MatMulOp productBehind(Value value) {
  SmallVector<Operation *> views;
  auto product = rootOf(value, &views).getDefiningOp<MatMulOp>();
  if (!product || !product->hasAttr(names::kCall) || product.getAddend() ||
      product.getResult().getType() != RankedTensorType::get(shapeOf(product.getResult()), elementTypeOf(value)) ||
      elementTypeOf(product.getLhs()) != elementTypeOf(product.getRhs()))
    return nullptr;
  const int64_t columns = shapeOf(product.getResult())[2];
  bool together = !shapeOf(value).empty() && shapeOf(value).back() == columns &&
                  llvm::all_of(views, [](Operation *view) { return isa<ReshapeOp>(view); });
  return together ? product : nullptr;
}

inline ConvOp convolutionBehind(Value value) {
  auto convolution = value.getDefiningOp<ConvOp>();
  return convolution && convolution->hasAttr(names::kCall) ? convolution : ConvOp();
}

inline ValueRange yieldedBy(FusedOp kernel) {
  return cast<YieldOp>(kernel.getBody().front().getTerminator()).getValues();
}

/// Tracks which ops of a kernel's region a pattern has matched. The kernel matches as a whole once no op is left.
class KernelMatch {
public:
  explicit KernelMatch(FusedOp kernel) : kernel(kernel) {}

  /// The only op of a type; null if there are several or none.
  template <typename Op> Op sole() {
    auto ops = kernel.getBody().front().getOps<Op>();
    return llvm::hasSingleElement(ops) ? named(*ops.begin()) : Op();
  }
  template <typename Op> Op named(Op op) {
    seen.insert(op.getOperation());
    return op;
  }
  bool isWhole() { return seen.size() == llvm::range_size(kernel.getBody().front().without_terminator()); }

  /// The operand that a value equals, directly or widened from 16 bits to f32; null for another value.
  BlockArgument operandBehind(Value value) {
    if (auto widened = value.getDefiningOp<CastOp>(); widened && isNarrow(elementTypeOf(widened.getInput())))
      if (auto argument = dyn_cast<BlockArgument>(widened.getInput()); argument && elementTypeOf(value).isF32()) {
        named(widened);
        return argument;
      }
    return dyn_cast<BlockArgument>(value);
  }
  /// The cast of a value to an element type, or the value itself if it has that type; null if there is no cast.
  Value storedAs(Value value, Type element) {
    if (elementTypeOf(value) == element)
      return value;
    for (Operation *user : value.getUsers())
      if (auto narrowed = dyn_cast<CastOp>(user); narrowed && elementTypeOf(narrowed.getResult()) == element)
        return named(narrowed).getResult();
    return nullptr;
  }

private:
  FusedOp kernel;
  llvm::SmallPtrSet<Operation *, 8> seen;
};

/// The operand numbers of P and b in a kernel that computes P + b.
struct BiasedProduct {
  unsigned product, bias;
};

/// True if a bias varies along one dimension of a tensor only, and is broadcast along the others. With `ofEach` it has
/// one row for each product of a batch.
inline bool isAlong(ArrayRef<int64_t> bias, ArrayRef<int64_t> shape, size_t dimension, bool ofEach) {
  const size_t skipped = shape.size() - bias.size();
  for (auto [index, extent] : llvm::enumerate(shape)) {
    const int64_t own = index < skipped ? 1 : bias[index - skipped];
    if (own != (index == dimension || (ofEach && index == 0) ? extent : 1))
      return false;
  }
  return true;
}

inline std::optional<BiasedProduct> matchBias(FusedOp kernel, KernelMatch &match, AddOp add) {
  for (auto [sum, row] : {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())}) {
    auto broadcast = row.getDefiningOp<BroadcastOp>();
    if (!broadcast)
      continue;
    const BlockArgument product = match.operandBehind(sum), bias = match.operandBehind(broadcast.getInput());
    if (!product || !bias || shapeOf(product).empty())
      continue;
    ConvOp convolution = convolutionBehind(kernel->getOperand(product.getArgNumber()));
    const size_t rank = shapeOf(product).size(),
                 dimension = convolution && !convolution.getChannelsLast() ? 1 : rank - 1;
    // A vector for all products of a batch, or one for each, of the same rank.
    const bool ofEach = !convolution && rank == 3 && shapeOf(bias).size() == 3 && shapeOf(bias)[0] > 1;
    if (!isAlong(shapeOf(bias), shapeOf(product), dimension, ofEach))
      continue;
    match.named(broadcast);
    return BiasedProduct{product.getArgNumber(), bias.getArgNumber()};
  }
  return std::nullopt;
}

/// The vector behind views that only raise its rank.
inline Value vectorBehind(Value bias) {
  SmallVector<Operation *> views;
  Value root = rootOf(bias, &views);
  return llvm::all_of(views, [](Operation *view) { return isa<ReshapeOp>(view); }) ? root : bias;
}

/// A sum over all dimensions but the last.
inline bool sumsRows(ReduceOp reduce) {
  if (reduce.getKind() != ReduceKind::sum)
    return false;
  ArrayRef<int64_t> shape = shapeOf(reduce.getInput());
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (llvm::is_contained(reduce.getDims(), int64_t(dim)) ? dim + 1 == shape.size()
                                                           : dim + 1 < shape.size() && extent > 1)
      return false;
  return !shape.empty();
}

/// A kernel that computes P + b or gelu(P + b), and nothing else.
struct Forward {
  FusedOp kernel;
  MatMulOp product;
  ConvOp convolution; ///< null if there is a product, which else is null
  Value bias;
  bool gelu = false;
  bool narrow = false; ///< the stored result has 16 bits
  Attribute near = {}; ///< names::kOfNarrow of gelu

  /// The library computes a convolution with a bias by other engines, which add in another order.
  Level level() const { return gelu ? Level::gelu : narrow || convolution ? Level::bias : Level::exact; }
};

/// The only epilogue of a batch of products is a bias: one vector, or one for each product.
inline bool suitsBatch(const Forward &forward, Value operand) {
  MatMulOp product = forward.product;
  ArrayRef<int64_t> shape = shapeOf(product.getResult());
  const int64_t biases = tensorTypeOf(forward.bias).getNumElements() / shape[2];
  return (shape[0] == 1 || !forward.gelu) && (biases == 1 || (biases == shape[0] && shapeOf(operand) == shape));
}

inline std::optional<Forward> matchForward(FusedOp kernel) {
  KernelMatch match(kernel);
  auto add = match.sole<AddOp>();
  auto gelu = match.sole<GeluOp>();
  std::optional<BiasedProduct> sum = add ? matchBias(kernel, match, add) : std::nullopt;
  if (!sum || kernel->getNumOperands() != 2 || kernel->getNumResults() != 1 ||
      (gelu && (!gelu.getTanh() || gelu.getInput() != add.getResult())))
    return std::nullopt;
  const Value operand = kernel->getOperand(sum->product);
  Forward found{kernel, productBehind(operand), convolutionBehind(operand),
                vectorBehind(kernel->getOperand(sum->bias))};
  found.gelu = bool(gelu);
  found.near = gelu ? gelu->getAttr(names::kOfNarrow) : Attribute();
  found.narrow = isNarrow(elementTypeOf(operand));
  const Value computed = gelu ? gelu.getResult() : add.getResult();
  const Value stored = match.storedAs(computed, elementTypeOf(operand));
  Operation *calls = found.product ? found.product : found.convolution;
  Operation *source = found.bias.getDefiningOp();
  const bool ready = calls && (!source || source->isBeforeInBlock(calls)) && stored && match.isWhole() &&
                     yieldedBy(kernel)[0] == stored && bool(found.product) != bool(found.convolution) &&
                     !(found.gelu && found.convolution) && (!found.product || suitsBatch(found, operand));
  return ready ? std::optional(found) : std::nullopt;
}

/// A kernel that computes D · gelu'(P + b), perhaps with the sum over its rows, and nothing else.
struct Backward {
  FusedOp kernel;
  MatMulOp gradient; ///< D
  unsigned result = 0;
  std::optional<unsigned> sums = {};
  SmallVector<int64_t> summed = {}; ///< the shape whose rows are summed
  Attribute near = {};              ///< names::kOfNarrow of gelu's derivative
};

inline std::optional<Backward> matchBackward(FusedOp kernel, MatMulOp product, Value bias) {
  KernelMatch match(kernel);
  auto add = match.sole<AddOp>();
  auto derivative = match.sole<GeluDerivativeOp>();
  auto multiply = match.sole<MulOp>();
  auto reduce = match.sole<ReduceOp>();
  std::optional<BiasedProduct> sum = add ? matchBias(kernel, match, add) : std::nullopt;
  if (!sum || !derivative || !multiply || kernel->getNumOperands() != 3 || !derivative.getTanh() ||
      derivative.getInput() != add.getResult() || rootOf(kernel->getOperand(sum->product)) != product.getResult() ||
      productBehind(kernel->getOperand(sum->product)) != product || vectorBehind(kernel->getOperand(sum->bias)) != bias)
    return std::nullopt;
  Value other = multiply.getLhs() == derivative.getResult() ? multiply.getRhs() : multiply.getLhs();
  BlockArgument argument = match.operandBehind(other);
  Backward found{kernel, argument ? productBehind(kernel->getOperand(argument.getArgNumber())) : MatMulOp()};
  found.near = derivative->getAttr(names::kOfNarrow);
  if (reduce)
    found.summed = llvm::to_vector(shapeOf(reduce.getInput()));
  const Value stored = match.storedAs(multiply.getResult(), elementTypeOf(product.getResult()));
  if (!found.gradient || !stored || !match.isWhole() || usesAcrossViews(found.gradient.getResult()).size() != 1 ||
      found.gradient.getResult().getType() != product.getResult().getType() ||
      (multiply.getLhs() != derivative.getResult() && multiply.getRhs() != derivative.getResult()) ||
      (reduce && (reduce.getInput() != multiply.getResult() || !sumsRows(reduce))))
    return std::nullopt;
  bool hasResult = false;
  for (auto [number, value] : llvm::enumerate(yieldedBy(kernel)))
    if (value == stored && !hasResult) {
      hasResult = true;
      found.result = unsigned(number);
    } else if (reduce && value == reduce.getResult() && !found.sums) {
      found.sums = unsigned(number);
    } else {
      return std::nullopt;
    }
  return hasResult ? std::optional(found) : std::nullopt;
}

/// Casts a value to another element type in a kernel of its own.
inline Value converted(OpBuilder &builder, Location loc, Value value, Type element) {
  if (elementTypeOf(value) == element)
    return value;
  auto kernel =
      FusedOp::create(builder, loc, TypeRange{RankedTensorType::get(shapeOf(value), element)}, ValueRange{value});
  Block *body = new Block;
  kernel.getBody().push_back(body);
  OpBuilder inside = OpBuilder::atBlockEnd(body);
  Value argument = body->addArgument(value.getType(), loc);
  YieldOp::create(inside, loc, ValueRange{CastOp::create(inside, loc, kernel->getResult(0).getType(), argument)});
  return kernel->getResult(0);
}

} // namespace tcc::train::finishing

#endif // TCC_COMPILER_TARGET_CUDA_PASSES_FINISHINGKERNELS_H

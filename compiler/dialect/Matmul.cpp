//===- Matmul.cpp - batched matrix product ----------------------*- C++ -*-===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Element.h"
#include "compiler/dialect/FourBits.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/PlanTypes.h"
#include "compiler/dialect/Window.h"

using namespace mlir;

namespace tcc::train {

namespace {
struct Sizes {
  int64_t batch, m, n, k;
};
} // namespace

static Sizes sizesOf(MatMulOp op) {
  llvm::ArrayRef<int64_t> lhs = shapeOf(op.getLhs()), result = shapeOf(op.getResult());
  return {result[0], result[1], result[2], lhs[op.getTransA() ? 1 : 2]};
}

LogicalResult MatMulOp::verify() {
  auto lhs = tensorTypeOf(getLhs()), rhs = tensorTypeOf(getRhs()), result = tensorTypeOf(getResult());
  if (lhs.getRank() != 3 || rhs.getRank() != 3 || result.getRank() != 3)
    return emitOpError("needs operands and result of rank 3: batch, rows, columns");
  Type element = lhs.getElementType();
  bool wider = (element.isBF16() || element.isF16()) && result.getElementType().isF32();
  bool rounded = element.isBF16() && rhs.getElementType().isF32();
  if ((element != rhs.getElementType() && !rounded) || (element != result.getElementType() && !wider))
    return emitOpError("needs one element type, or of 16-bit operands an f32 result, and of bf16 an f32 right operand");
  if (getAddend() && getAddend().getType() != getResult().getType())
    return emitOpError("needs an addend of its result's type");
  auto [batch, m, n, k] = sizesOf(*this);
  llvm::SmallVector<int64_t> expectedLhs = {batch, m, k}, expectedRhs = {batch, k, n};
  if (getTransA())
    std::swap(expectedLhs[1], expectedLhs[2]);
  if (getTransB())
    std::swap(expectedRhs[1], expectedRhs[2]);
  if (lhs.getShape() != llvm::ArrayRef(expectedLhs) || rhs.getShape() != llvm::ArrayRef(expectedRhs))
    return emitOpError("cannot multiply ") << lhs << " and " << rhs << " to " << result;
  return success();
}

double MatMulOp::getFlops() {
  auto [batch, m, n, k] = sizesOf(*this);
  return 2.0 * double(batch) * double(m) * double(n) * double(k);
}

void MatMulOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  auto [batch, m, n, k] = sizesOf(*this);
  const HostTensor &lhs = operands[0];
  HostTensor rhs(RankedTensorType::get(shapeOf(getRhs()), elementTypeOf(getLhs())));
  for (int64_t i = 0; i < rhs.size(); ++i)
    if (rhs.isFloat())
      rhs.setDouble(i, operands[1].getDouble(i));
    else
      rhs.setInt(i, operands[1].getInt(i));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        uint64_t integer = 0;
        for (int64_t l = 0; l < k; ++l) {
          int64_t left = getTransA() ? (b * k + l) * m + i : (b * m + i) * k + l;
          int64_t right = getTransB() ? (b * n + j) * k + l : (b * k + l) * n + j;
          if (lhs.isFloat())
            sum += lhs.getDouble(left) * rhs.getDouble(right);
          else
            integer += uint64_t(lhs.getInt(left)) * uint64_t(rhs.getInt(right));
        }
        int64_t index = (b * m + i) * n + j;
        if (lhs.isFloat())
          results[0].setDouble(index, (getAddend() ? operands[2].getDouble(index) : 0) + sum);
        else
          results[0].setInt(index, int64_t((getAddend() ? uint64_t(operands[2].getInt(index)) : 0) + integer));
      }
}

AffineMap MatMulOp::getOperandMap(unsigned operand) {
  return operand == 2 ? AffineMap::getMultiDimIdentityMap(3, getContext()) : AffineMap();
}

int MatMulOp::getInPlaceOperand() { return getAddend() ? 2 : -1; }

/// An f32 as the nearest bf16, ties to even; a NaN stays one.
static Lane roundedToBf16(Lane value) {
  Lane bits = value.bits();
  Lane nearest = bits + (bits.shiftRightUnsigned(16) & bits.likeInt(1)) + bits.likeInt(0x7fff);
  Lane quiet = bits | bits.likeInt(0x400000);
  return (isNan(value).select(quiet, nearest) & bits.likeInt(~int64_t(0xffff))).asFloat();
}

/// Without the addend, a running sum that must not be rounded.
llvm::SmallVector<unsigned> MatMulOp::getAutocastOperands() {
  return elementTypeOf(getResult()) == elementTypeOf(getLhs()) ? llvm::SmallVector<unsigned>{0, 1}
                                                               : llvm::SmallVector<unsigned>{};
}

Value MatMulOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  Value zero = builder.constant(elementTypeOf(getResult()), 0);
  Value sum = builder.loop(0, sizesOf(*this).k, zero, [&](Value i, ValueRange carried) -> llvm::SmallVector<Value> {
    Coord l = builder.uniform(i);
    llvm::SmallVector<Coord> lhs = {coords[0], coords[1], l}, rhs = {coords[0], l, coords[2]};
    if (getTransA())
      std::swap(lhs[1], lhs[2]);
    if (getTransB())
      std::swap(rhs[1], rhs[2]);
    Value left = builder.operand(0, lhs), right = builder.operand(1, rhs);
    if (elementTypeOf(getLhs()) != elementTypeOf(getRhs()))
      right = roundedToBf16(Lane(builder, right));
    return {multiplyAdd(builder, left, right, carried[0])};
  })[0];
  if (!getAddend())
    return sum;
  Value addend = builder.operand(2, coords);
  return isFloatTensor(getResult()) ? arith::AddFOp::create(builder.builder, builder.loc, addend, sum).getResult()
                                    : arith::AddIOp::create(builder.builder, builder.loc, addend, sum).getResult();
}

/// For C = op(A)·op(B): dop(A) = G·op(B)ᵀ and dop(B) = op(A)ᵀ·G, each transposed if A or B is stored transposed.
void MatMulOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                             llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(getNumOperands());
  Value a = getLhs(), b = getRhs(), g = resultGradients[0];
  if (!g || !isFloatTensor(a))
    return;
  if (getAddend())
    operandGradients[2] = g;
  g = Expr(builder, getLoc(), g).cast(elementTypeOf(a)).value;
  auto product = [&](Value like, Value lhs, Value rhs, bool transA, bool transB) -> Value {
    return MatMulOp::create(builder, getLoc(), like.getType(), lhs, rhs, transA, transB);
  };
  operandGradients[0] = getTransA() ? product(a, b, g, getTransB(), true) : product(a, g, b, false, !getTransB());
  operandGradients[1] = getTransB() ? product(b, g, a, true, getTransA()) : product(b, a, g, !getTransA(), false);
}

template <typename Product> static void setSizes(plan::MatmulCall &call, Product op) {
  auto [batch, m, n, k] = sizesOf(op);
  call.set_batch(batch);
  call.set_m(m);
  call.set_n(n);
  call.set_k(k);
  call.set_trans_a(op.getTransA());
  call.set_trans_b(op.getTransB());
}

void MatMulOp::buildCall(plan::Instruction &instruction) {
  plan::MatmulCall &call = *instruction.mutable_matmul();
  call.set_dtype(toPlan(elementTypeOf(getLhs())));
  call.set_result_dtype(toPlan(elementTypeOf(getResult())));
  call.set_accumulate(bool(getAddend()));
  call.set_rounds_b(elementTypeOf(getLhs()) != elementTypeOf(getRhs()));
  setSizes(call, *this);
}

//===----------------------------------------------------------------------===//
// With an epilogue
//===----------------------------------------------------------------------===//

using EpilogueText = std::pair<llvm::StringLiteral, int>;
static constexpr EpilogueText kEpilogueKinds[] = {{"none", plan::Epilogue::NONE},
                                                  {"bias", plan::Epilogue::BIAS},
                                                  {"gelu", plan::Epilogue::GELU},
                                                  {"gelu_gradient", plan::Epilogue::GELU_GRADIENT}};
static constexpr EpilogueText kEpilogueSums[] = {{"", plan::Epilogue::NO_SUMS},
                                                 {"result", plan::Epilogue::OF_RESULT},
                                                 {"lhs", plan::Epilogue::OF_A},
                                                 {"rhs", plan::Epilogue::OF_B}};

static int numberOf(llvm::ArrayRef<EpilogueText> table, llvm::StringRef text) {
  auto found = llvm::find_if(table, [&](const EpilogueText &entry) { return entry.first == text; });
  return found == table.end() ? -1 : found->second;
}

/// The result has the batch, M and N.
static Sizes sizesOf(MatMulEpilogueOp op) {
  llvm::ArrayRef<int64_t> lhs = shapeOf(op.getLhs()), result = shapeOf(op->getResult(0));
  return {result[0], result[1], result[2], lhs[op.getTransA() ? 1 : 2]};
}

LogicalResult MatMulEpilogueOp::verify() {
  const int kind = numberOf(kEpilogueKinds, getKind()), sums = numberOf(kEpilogueSums, getSums());
  if (kind < 0 || sums < 0)
    return emitOpError("knows no epilogue \"") << getKind() << "\" with sums \"" << getSums() << "\"";
  const bool ofResult = sums == plan::Epilogue::OF_RESULT;
  if ((kind == plan::Epilogue::NONE) == bool(getEpilogueOperand()) || getAdded().size() > 2 ||
      (getKeeps() && kind != plan::Epilogue::GELU) ||
      (kind == plan::Epilogue::NONE
           ? sums == plan::Epilogue::NO_SUMS || ofResult
           : sums != plan::Epilogue::NO_SUMS && !(ofResult && kind == plan::Epilogue::GELU_GRADIENT)))
    return emitOpError("has an operand, a kept value or sums that epilogue \"") << getKind() << "\" does not have";
  if (getNumResults() != 1u + getKeeps() + (sums != plan::Epilogue::NO_SUMS) || tensorTypeOf(getLhs()).getRank() != 3 ||
      tensorTypeOf(getRhs()).getRank() != 3 || tensorTypeOf(getResult(0)).getRank() != 3)
    return emitOpError("needs operands and result of rank 3, and a result for each value that it computes");
  auto [batch, m, n, k] = sizesOf(*this);
  Type element = elementTypeOf(getResult(0)), factor = elementTypeOf(getLhs());
  auto is = [&](Value value, llvm::ArrayRef<int64_t> shape) {
    return value.getType() == RankedTensorType::get(shape, element);
  };
  auto multiplies = [&](Value value, bool turned, int64_t rows, int64_t columns) {
    return value.getType() == RankedTensorType::get({batch, turned ? columns : rows, turned ? rows : columns}, factor);
  };
  if ((factor != element && !((factor.isBF16() || factor.isF16()) && element.isF32())) ||
      !multiplies(getLhs(), getTransA(), m, k) || !multiplies(getRhs(), getTransB(), k, n))
    return emitOpError(
        "needs factors of one element type that fit together, and a result of that type, or f32 of 16 bits");
  Value added = getEpilogueOperand(), bias = getKernelBias();
  const bool eachHasABias = kind == plan::Epilogue::BIAS && is(added, {batch, n});
  if (batch != 1 && kind != plan::Epilogue::BIAS)
    return emitOpError("needs one product, or a bias");
  if (kind == plan::Epilogue::GELU_GRADIENT ? !is(added, {1, m, n}) : added && !is(added, {n}) && !eachHasABias)
    return emitOpError("needs a vector of ") << n << " to add, or a matrix like its result";
  if (getAdded().size() > 1 &&
      bias.getType() !=
          RankedTensorType::get(kind == plan::Epilogue::GELU_GRADIENT ? llvm::ArrayRef<int64_t>(n) : shapeOf(added),
                                elementTypeOf(bias).isF32() ? elementTypeOf(bias) : element))
    return emitOpError("needs the bias for kernels to have as many elements as the library's, in f32 or its type");
  if (getKeeps() && !is(getResult(1), {1, m, n}))
    return emitOpError("keeps a matrix like its result");
  if (sums != plan::Epilogue::NO_SUMS && !is(getResults().back(), {sums == plan::Epilogue::OF_A ? m : n}))
    return emitOpError("needs a vector of ") << (sums == plan::Epilogue::OF_A ? m : n) << " for the sums";
  if (std::optional<llvm::ArrayRef<int64_t>> shape = getSumShape()) {
    int64_t elements = 1;
    for (int64_t extent : *shape)
      elements *= extent;
    const int64_t columns = sums == plan::Epilogue::OF_A ? m : n, rows = sums == plan::Epilogue::OF_RESULT ? m : k,
                  last = int64_t(shape->size()) - 1, parts = int64_t(getPartsDim().value_or(0));
    if (sums == plan::Epilogue::NO_SUMS || last < 1 || shape->back() != columns || elements != rows * columns ||
        parts < 0 || parts >= last)
      return emitOpError("needs a matrix of ") << rows << " × " << columns << " to sum, and parts of its rows";
  }
  return success();
}

double MatMulEpilogueOp::getFlops() {
  auto [batch, m, n, k] = sizesOf(*this);
  return 2.0 * double(batch) * double(m) * double(n) * double(k);
}

void MatMulEpilogueOp::buildCall(plan::Instruction &instruction) {
  plan::MatmulCall &call = *instruction.mutable_matmul();
  call.set_dtype(toPlan(elementTypeOf(getLhs())));
  call.set_result_dtype(toPlan(elementTypeOf(getResult(0))));
  setSizes(call, *this);
  plan::Epilogue &epilogue = *call.mutable_epilogue();
  epilogue.set_kind(plan::Epilogue::Kind(numberOf(kEpilogueKinds, getKind())));
  epilogue.set_keeps_input(getKeeps());
  epilogue.set_bias_of_each(getKind() == "bias" && tensorTypeOf(getEpilogueOperand()).getRank() == 2);
  epilogue.set_sums(plan::Epilogue::Sums(numberOf(kEpilogueSums, getSums())));
  epilogue.set_exact_bias(getAdded().size() > 1);
  if (getSumShape() && getPartsDim())
    epilogue.set_sum_parts((*getSumShape())[size_t(*getPartsDim())]);
}

/// Kernels that finish the plain product (CallKernels.h).
void MatMulEpilogueOp::buildKernels(Block &holder) {
  Type type = getResult(0).getType(), element = elementTypeOf(getResult(0)), wide = Float32Type::get(getContext());
  Location loc = getLoc();
  const bool isGradient = getKind() == "gelu_gradient";
  Value bias = getKernelBias();
  if (isGradient && !bias)
    return;
  if (bias) {
    auto [batch, m, n, k] = sizesOf(*this);
    const int64_t biases = tensorTypeOf(bias).getNumElements() / n;
    llvm::SmallVector<Type> operands(isGradient ? 2 : 1, type);
    operands.push_back(RankedTensorType::get({biases, 1, n}, elementTypeOf(bias)));
    FusedOp region = appendRegion(holder, loc, operands, type);
    OpBuilder builder = OpBuilder::atBlockEnd(&region.getBody().front());
    auto arguments = region.getBody().getArguments();
    Value product = cast(builder, loc, arguments[operands.size() - 2], wide),
          row = broadcastTo(builder, loc, cast(builder, loc, arguments.back(), wide), shapeOf(product)),
          sum = AddOp::create(builder, loc, product, row);
    auto marked = [&](Operation *op) {
      if (Attribute near = (*this)->getAttr(names::kOfNarrow))
        op->setAttr(names::kOfNarrow, near);
      return op->getResult(0);
    };
    Value result = sum;
    if (getKind() == "gelu")
      result = marked(GeluOp::create(builder, loc, sum.getType(), sum, true));
    if (isGradient)
      result = MulOp::create(builder, loc, cast(builder, loc, arguments[0], wide),
                             marked(GeluDerivativeOp::create(builder, loc, sum.getType(), sum, true)));
    YieldOp::create(builder, loc, cast(builder, loc, result, element));
  }
  if (getSums().empty())
    return;
  Value summed = getSums() == "lhs" ? getLhs() : getSums() == "rhs" ? getRhs() : getResult(0);
  const std::optional<uint64_t> partsDim = getPartsDim();
  const int64_t parts = partsDim ? int64_t(*partsDim) : -1;
  llvm::SmallVector<int64_t> shape = llvm::to_vector(getSumShape().value_or(shapeOf(summed))), dims;
  for (int64_t dim = 0; dim + 1 < int64_t(shape.size()); ++dim)
    if (dim != parts)
      dims.push_back(dim);
  llvm::SmallVector<int64_t> sums = shape;
  for (int64_t dim : dims)
    sums[size_t(dim)] = 1;
  auto reduces = [&](Type from, llvm::ArrayRef<int64_t> over, llvm::ArrayRef<int64_t> left, Type to) {
    FusedOp region = appendRegion(holder, loc, from, RankedTensorType::get(left, to));
    OpBuilder builder = OpBuilder::atBlockEnd(&region.getBody().front());
    Value all = reduceSum(builder, loc, cast(builder, loc, region.getBody().getArgument(0), wide), over);
    YieldOp::create(builder, loc, cast(builder, loc, all, to));
  };
  reduces(RankedTensorType::get(shape, elementTypeOf(summed)), dims, sums, parts >= 0 ? wide : element);
  if (parts < 0)
    return;
  const llvm::SmallVector<int64_t> ofParts = sums;
  sums[size_t(parts)] = 1;
  reduces(RankedTensorType::get(ofParts, wide), parts, sums, element);
}

//===----------------------------------------------------------------------===//
// With a matrix in 4 bits
//===----------------------------------------------------------------------===//

static Sizes sizesOf(MatMulUnpackOp op) {
  llvm::ArrayRef<int64_t> lhs = shapeOf(op.getLhs()), result = shapeOf(op.getResult());
  return {result[0], result[1], result[2], lhs[op.getTransA() ? 1 : 2]};
}

static plan::FourBits layoutOf(MatMulUnpackOp op) {
  auto [batch, m, n, k] = sizesOf(op);
  return layoutOf(op, {k, n});
}

LogicalResult MatMulUnpackOp::verify() {
  if (tensorTypeOf(getLhs()).getRank() != 3 || tensorTypeOf(getResult()).getRank() != 3)
    return emitOpError("needs operand and result of rank 3");
  auto [batch, m, n, k] = sizesOf(*this);
  if (batch != 1 || shapeOf(getLhs()) != llvm::ArrayRef<int64_t>({1, getTransA() ? k : m, getTransA() ? m : k}))
    return emitOpError("needs one product of fitting shapes");
  if (Type element = elementTypeOf(getResult()); element != elementTypeOf(getLhs()) && !element.isF32())
    return emitOpError("needs a result of its factor's type, or f32");
  if (!fits(layoutOf(*this), *this))
    return emitOpError("reads another number of bytes, scales or zero points than its layout has");
  return success();
}

double MatMulUnpackOp::getFlops() {
  auto [batch, m, n, k] = sizesOf(*this);
  return 2.0 * double(m) * double(n) * double(k);
}

void MatMulUnpackOp::buildCall(plan::Instruction &instruction) {
  auto [batch, m, n, k] = sizesOf(*this);
  plan::MatmulCall &call = *instruction.mutable_matmul();
  call.set_dtype(toPlan(elementTypeOf(getLhs())));
  call.set_result_dtype(toPlan(elementTypeOf(getResult())));
  call.set_batch(batch);
  call.set_m(m);
  call.set_n(n);
  call.set_k(k);
  call.set_trans_a(getTransA());
  call.set_trans_b(getStrides()[0] == 1); // the panels are copied along K
  *call.mutable_four_bits() = layoutOf(*this);
}

} // namespace tcc::train

//===- AttentionCall.cpp - attention by a library ---------------*- C++ -*-===//
//
// The forms of attention and its gradient that a target's library computes. In a region of fold-strides the call has
// the layout of each tensor in the region's operands and results; outside a region all tensors are dense.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Attention.h"
#include "compiler/dialect/PlanTypes.h"
#include "compiler/dialect/StridedLayout.h"
#include "runtime/plan/plan.pb.h"

using namespace mlir;

namespace tcc::train {

namespace {

template <typename OpTy> AttentionShape callShapeOf(OpTy op) {
  llvm::ArrayRef<int64_t> query = shapeOf(op.getQuery()), key = shapeOf(op.getKey());
  AttentionShape s{query[0],
                   query[1],
                   key[1],
                   query[2],
                   key[2],
                   query[3],
                   shapeOf(op.getValue())[3],
                   op.getScale().convertToDouble(),
                   0,
                   0,
                   op.getCausal(),
                   0,
                   0,
                   Float32Type::get(op.getContext())};
  constexpr bool isGradient = std::is_same_v<OpTy, AttentionGradCallOp>;
  if constexpr (isGradient) {
    s.output = 3;
    s.logsumexp = 4;
    s.outputGrad = 5;
  }
  if (op.getBias()) {
    s.bias = isGradient ? 6 : 3;
    s.biasShape = llvm::to_vector(shapeOf(op.getBias()));
  }
  return s;
}

/// True for tensors of heads, which may be strided views: all except logsumexp, the bias and its gradient.
template <typename OpTy> bool isOfHeads(bool isResult, unsigned number) {
  if (std::is_same_v<OpTy, AttentionCallOp>)
    return isResult ? number == 0 : number < 3;
  return isResult ? number < 3 : number != 4 && number != 6;
}

/// Libraries access a row in aligned pieces of 16 bytes.
constexpr int64_t kCallAccessElements = 8;

template <typename OpTy> bool acceptsCallLayout(OpTy op, bool isResult, unsigned number, const StridedLayout &layout) {
  if (!isOfHeads<OpTy>(isResult, number) || layout.strides.size() != 4 || layout.strides[3] != 1)
    return false;
  // No library documents support for broadcast rows, heads or samples (stride 0).
  llvm::ArrayRef<int64_t> shape = shapeOf(isResult ? Value(op->getResult(number)) : op->getOperand(number));
  for (auto [stride, extent] : llvm::zip_equal(layout.strides, shape))
    if (extent > 1 && stride == 0)
      return false;
  bool aligned = layout.offset % kCallAccessElements == 0;
  for (int64_t stride : llvm::ArrayRef(layout.strides).drop_back())
    aligned &= stride % kCallAccessElements == 0;
  return aligned;
}

/// Adds a tensor's strides to a call. Dimensions of extent 1, whose stride is 0 here, get the stride of a dense tensor.
void addTensor(plan::AttentionCall &call, unsigned operand, const StridedLayout &layout,
               llvm::ArrayRef<int64_t> shape) {
  plan::AttentionCall::Tensor &tensor = *call.add_tensors();
  tensor.set_operand(operand);
  tensor.set_offset(layout.offset);
  llvm::SmallVector<int64_t> strides(layout.strides);
  for (size_t d = shape.size(); d-- > 0;)
    if (shape[d] == 1)
      strides[d] = d + 1 < shape.size() ? strides[d + 1] * shape[d + 1] : 1;
  tensor.mutable_strides()->Add(strides.begin(), strides.end());
}

template <typename OpTy> void buildAttentionCall(OpTy op, plan::Instruction &instruction) {
  AttentionShape s = callShapeOf(op);
  plan::AttentionCall &call = *instruction.mutable_attention();
  call.set_kind(std::is_same_v<OpTy, AttentionCallOp> ? plan::AttentionCall::FORWARD : plan::AttentionCall::GRADIENT);
  call.set_dtype(toPlan(elementTypeOf(op.getQuery())));
  call.set_batch(s.batch);
  call.set_heads(s.heads);
  call.set_key_heads(s.keyHeads);
  call.set_queries(s.queries);
  call.set_keys(s.keys);
  call.set_depth(s.depth);
  call.set_width(s.width);
  call.set_scale(s.scale);
  call.set_causal(s.causal);
  if (s.bias >= 0) {
    call.set_bias_batch(s.biasShape[0]);
    call.set_bias_heads(s.biasShape[1]);
  }
  if constexpr (std::is_same_v<OpTy, AttentionGradCallOp>)
    call.set_bias_gradient(!op.getBiasGrad().empty());
  auto region = dyn_cast<FusedOp>(op->getParentOp());
  LoopKernel kernel = region ? LoopKernel(op.getOperation()) : LoopKernel();
  const unsigned operands = region ? region->getNumOperands() : op->getNumOperands();
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    llvm::ArrayRef<int64_t> shape = shapeOf(op->getOperand(i));
    std::optional<PlacedTensor> place = region ? placeOfOperand(kernel, i) : PlacedTensor{i, denseLayout(shape)};
    addTensor(call, place->number, place->layout, shape);
  }
  for (unsigned i = 0; i < op->getNumResults(); ++i) {
    llvm::ArrayRef<int64_t> shape = shapeOf(op->getResult(i));
    std::optional<PlacedTensor> place = region ? placeOfResult(kernel, i) : PlacedTensor{i, denseLayout(shape)};
    addTensor(call, operands + place->number, place->layout, shape);
  }
}

template <typename OpTy> LogicalResult verifyCallShapes(OpTy op) {
  llvm::ArrayRef<int64_t> query = shapeOf(op.getQuery()), key = shapeOf(op.getKey()), value = shapeOf(op.getValue());
  Type element = elementTypeOf(op.getQuery());
  if (query.size() != 4 || key.size() != 4 || value.size() != 4)
    return op.emitOpError("needs query, key and value of rank 4: batch, heads, positions, features");
  if (key[0] != query[0] || value[0] != query[0] || key[1] != value[1] || key[2] != value[2] || key[3] != query[3] ||
      key[1] == 0 || query[1] % key[1] != 0)
    return op.emitOpError("needs query, key and value of one batch, with as many features of key as of query, as many "
                          "heads and positions of value as of key, and a multiple of them of query");
  AttentionShape s = callShapeOf(op);
  const llvm::SmallVector<int64_t> output{s.batch, s.heads, s.queries, s.width}, rows{s.batch, s.heads, s.queries, 1};
  auto fits = [&](Value value, llvm::ArrayRef<int64_t> shape, Type type) {
    return shapeOf(value) == shape && elementTypeOf(value) == type;
  };
  bool good = elementTypeOf(op.getKey()) == element && elementTypeOf(op.getValue()) == element &&
              fits(op.getOutput(), output, element) && fits(op.getLogsumexp(), rows, s.sumType);
  if constexpr (std::is_same_v<OpTy, AttentionGradCallOp>)
    good &= fits(op.getOutputGrad(), output, element) && op.getQueryGrad().getType() == op.getQuery().getType() &&
            op.getKeyGrad().getType() == op.getKey().getType() &&
            op.getValueGrad().getType() == op.getValue().getType();
  if (!good)
    return op.emitOpError("needs tensors of heads in one element type, and one number a row in ") << s.sumType;
  const llvm::ArrayRef<int64_t> b = s.biasShape;
  bool biased = s.bias < 0 || (b.size() == 4 && (b[0] == 1 || b[0] == s.batch) && (b[1] == 1 || b[1] == s.heads) &&
                               b[2] == s.queries && b[3] == s.keys && elementTypeOf(op.getBias()) == element);
  if constexpr (std::is_same_v<OpTy, AttentionGradCallOp>)
    for (auto [number, gradient] : llvm::enumerate(op.getBiasGrad()))
      biased &= number == 0 && op.getBias() && gradient.getType() == op.getBias().getType();
  if (!biased)
    return op.emitOpError("needs a bias of the operands' element type for each query and key, of one sample or all and "
                          "one head or all, and a gradient of its type");
  return success();
}

// Kernels that compute the same as a call. They read and write the call's operands by the same strides.

/// A tensor in memory that some strides address: the dimensions of that memory, outermost first, and which of the
/// tensor's dimensions each is, from which index on.
struct MemoryOrder {
  llvm::SmallVector<int64_t> extents, starts, permutation; ///< tensor's dimension d is the memory's permutation[d]
};
std::optional<MemoryOrder> memoryOrderOf(const StridedLayout &layout, llvm::ArrayRef<int64_t> shape) {
  const auto rank = int64_t(shape.size());
  llvm::SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  // Dimensions of extent 1 have no stride: they stand outside.
  auto rest = std::stable_partition(order.begin(), order.end(), [&](int64_t dim) { return shape[size_t(dim)] == 1; });
  std::stable_sort(rest, order.end(),
                   [&](int64_t a, int64_t b) { return layout.strides[size_t(a)] > layout.strides[size_t(b)]; });
  MemoryOrder memory;
  memory.permutation.assign(size_t(rank), 0);
  int64_t step = 0, offset = layout.offset;
  for (auto [place, dim] : llvm::enumerate(order)) {
    const int64_t extent = shape[size_t(dim)], stride = layout.strides[size_t(dim)];
    memory.permutation[size_t(dim)] = int64_t(place);
    if (extent == 1) {
      memory.extents.push_back(1);
      memory.starts.push_back(0);
      continue;
    }
    if (stride <= 0 || (step && step % stride != 0))
      return std::nullopt;
    const int64_t start = offset / stride;
    offset %= stride;
    memory.extents.push_back(step ? step / stride : start + extent);
    memory.starts.push_back(start);
    if (start + extent > memory.extents.back())
      return std::nullopt;
    step = stride;
  }
  if (offset != 0 || step > 1)
    return std::nullopt;
  return memory;
}

/// The call's region, copied, or one around a copy of a call that stands alone.
FusedOp copyOfRegion(Operation *op, Block &holder) {
  if (auto region = dyn_cast<FusedOp>(op->getParentOp())) {
    IRMapping mapping;
    for (Value operand : region->getOperands())
      mapping.map(operand, holder.addArgument(operand.getType(), operand.getLoc()));
    auto copy = cast<FusedOp>(region->clone(mapping));
    copy->setAttrs(DictionaryAttr::get(op->getContext()));
    holder.push_back(copy);
    return copy;
  }
  FusedOp region =
      appendRegion(holder, op->getLoc(), llvm::to_vector(op->getOperandTypes()), llvm::to_vector(op->getResultTypes()));
  OpBuilder builder = OpBuilder::atBlockEnd(&region.getBody().front());
  Operation *copy = builder.clone(*op);
  copy->setOperands(region.getBody().getArguments());
  YieldOp::create(builder, op->getLoc(), copy->getResults());
  return region;
}

/// One kernel that sums output times its gradient over each row, in the order in which the gradient's call has both in
/// memory. Null: strides that do not express their order.
FusedOp sumRows(AttentionGradCallOp op, Block &holder) {
  const AttentionShape s = callShapeOf(op);
  auto region = dyn_cast<FusedOp>(op->getParentOp());
  llvm::SmallVector<Type> types;
  llvm::SmallVector<MemoryOrder> orders;
  for (int number : {s.output, s.outputGrad}) {
    Value tensor = op->getOperand(unsigned(number));
    StridedLayout layout = denseLayout(shapeOf(tensor));
    if (region) {
      std::optional<PlacedTensor> place = placeOfOperand(LoopKernel(op.getOperation()), unsigned(number));
      if (!place)
        return {};
      layout = place->layout;
    }
    std::optional<MemoryOrder> order = memoryOrderOf(layout, shapeOf(tensor));
    if (!order)
      return {};
    types.push_back(RankedTensorType::get(order->extents, elementTypeOf(tensor)));
    orders.push_back(std::move(*order));
  }
  Location loc = op.getLoc();
  FusedOp sums = appendRegion(holder, loc, types, op.getLogsumexp().getType());
  OpBuilder builder = OpBuilder::atBlockEnd(&sums.getBody().front());
  llvm::SmallVector<Value> rows;
  for (auto [argument, order] : llvm::zip_equal(sums.getBody().getArguments(), orders)) {
    Value moved = argument;
    llvm::SmallVector<int64_t> kept(order.extents.size());
    for (auto [dim, place] : llvm::enumerate(order.permutation))
      kept[size_t(place)] = shapeOf(op.getOutput())[dim];
    if (llvm::ArrayRef(order.extents) != llvm::ArrayRef(kept))
      moved = SliceOp::create(builder, loc, RankedTensorType::get(kept, elementTypeOf(moved)), moved, order.starts,
                              llvm::SmallVector<int64_t>(kept.size(), 1));
    if (!llvm::is_sorted(order.permutation))
      moved = transpose(builder, loc, moved, order.permutation);
    rows.push_back(cast(builder, loc, moved, s.sumType));
  }
  YieldOp::create(builder, loc, rowSums(builder, loc, rows[0], rows[1]));
  return sums;
}

} // namespace

Value rowSums(OpBuilder &builder, Location loc, Value output, Value outputGrad) {
  return reduceSum(builder, loc, MulOp::create(builder, loc, output, outputGrad), {3});
}

void dropUnreadOperands(FusedOp region) {
  Block &body = region.getBody().front();
  llvm::SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty())
      op->erase();
  for (unsigned i = region->getNumOperands(); i-- > 0;)
    if (body.getArgument(i).use_empty()) {
      body.eraseArgument(i);
      region->eraseOperand(i);
    }
}

LogicalResult AttentionCallOp::verify() { return verifyCallShapes(*this); }
double AttentionCallOp::getFlops() {
  AttentionShape s = callShapeOf(*this);
  return s.scores() * 2.0 * double(s.depth + s.width);
}
void AttentionCallOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  evaluateAttention(callShapeOf(*this), operands, results);
}
void AttentionCallOp::buildCall(plan::Instruction &instruction) { buildAttentionCall(*this, instruction); }
bool AttentionCallOp::acceptsLayout(bool isResult, unsigned number, const StridedLayout &layout) {
  return acceptsCallLayout(*this, isResult, number, layout);
}
int AttentionCallOp::getInPlaceOperand() { return -1; }
void AttentionCallOp::buildKernels(Block &holder) {
  FusedOp region = copyOfRegion(*this, holder);
  auto call = cast<AttentionCallOp>(region.getLoopKernel().getOperation());
  OpBuilder builder(call);
  auto op = AttentionOp::create(builder, getLoc(), call.getOutput().getType(), call.getLogsumexp().getType(),
                                call.getLogsumexp().getType(), call.getQuery(), call.getKey(), call.getValue(),
                                call.getBias(), /*mask=*/Value(), /*randomKey=*/Value(), getScale(), getCausal(),
                                /*causalOffset=*/0, /*softcap=*/llvm::APFloat(0.0), /*dropout=*/llvm::APFloat(0.0),
                                /*dropoutId=*/0, /*maskFill=*/FloatAttr());
  op->setAttr(names::kWordRows, builder.getUnitAttr());
  call.getOutput().replaceAllUsesWith(op.getOutput());
  call.getLogsumexp().replaceAllUsesWith(op.getLogsumexp());
  call.erase();
}
int64_t AttentionCallOp::getTileCount() { return 1; }
void AttentionCallOp::emitTile(LoopBuilder &, Value) { llvm_unreachable("a call has no loops"); }

LogicalResult AttentionGradCallOp::verify() { return verifyCallShapes(*this); }
double AttentionGradCallOp::getFlops() {
  AttentionShape s = callShapeOf(*this);
  return s.scores() * 2.0 * double(3 * s.depth + 2 * s.width);
}
void AttentionGradCallOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  evaluateAttentionGrad(callShapeOf(*this), operands, results);
}
void AttentionGradCallOp::buildCall(plan::Instruction &instruction) { buildAttentionCall(*this, instruction); }
bool AttentionGradCallOp::acceptsLayout(bool isResult, unsigned number, const StridedLayout &layout) {
  return acceptsCallLayout(*this, isResult, number, layout);
}
int AttentionGradCallOp::getInPlaceOperand() { return -1; }
void AttentionGradCallOp::buildKernels(Block &holder) {
  // The kernels store the gradient of each score, which the call sums.
  if (!getBiasGrad().empty() || !sumRows(*this, holder))
    return;
  FusedOp region = copyOfRegion(*this, holder);
  auto call = cast<AttentionGradCallOp>(region.getLoopKernel().getOperation());
  const Type rows = getLogsumexp().getType();
  region->insertOperands(region->getNumOperands(), holder.addArgument(rows, getLoc()));
  Value delta = region.getBody().front().addArgument(rows, getLoc());
  OpBuilder builder(call);
  auto op = AttentionGradOp::create(builder, getLoc(), call.getQueryGrad().getType(), call.getKeyGrad().getType(),
                                    call.getValueGrad().getType(), TypeRange(), call.getQuery(), call.getKey(),
                                    call.getValue(), call.getBias(), /*mask=*/Value(), /*randomKey=*/Value(),
                                    /*output=*/Value(), delta, call.getLogsumexp(), /*logsumexpRest=*/Value(),
                                    call.getOutputGrad(), getScale(), getCausal(), /*causalOffset=*/0,
                                    /*softcap=*/llvm::APFloat(0.0), /*dropout=*/llvm::APFloat(0.0), /*dropoutId=*/0,
                                    /*maskFill=*/FloatAttr());
  op->setAttr(names::kWordRows, builder.getUnitAttr());
  for (auto [old, now] : llvm::zip_equal(call->getResults(), op->getResults()))
    old.replaceAllUsesWith(now);
  call.erase();
  dropUnreadOperands(region);
}
int64_t AttentionGradCallOp::getTileCount() { return 1; }
void AttentionGradCallOp::emitTile(LoopBuilder &, Value) { llvm_unreachable("a call has no loops"); }

} // namespace tcc::train

//===- Layout.cpp - rewrite ops for channels-last tensors -------*- C++ -*-===//
//
// On a CPU, a reduction that keeps the channels would read the whole tensor once for every few channels, so it is split
// in two. The first reduces the innermost spatial dimensions, which are contiguous, the second the few sums that
// remain. Both are ops of the IR, so that the bits do not depend on fusion.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Layout.h"

#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Window.h"

using namespace mlir;

#include "compiler/dialect/Layout.cpp.inc"

namespace tcc::train {

llvm::SmallVector<int64_t> channelsLastPermutation(size_t rank) {
  return toChannelsLast<int64_t>(llvm::to_vector(llvm::seq<int64_t>(0, rank)));
}
llvm::SmallVector<int64_t> channelsFirstPermutation(size_t rank) {
  return toChannelsFirst<int64_t>(llvm::to_vector(llvm::seq<int64_t>(0, rank)));
}

RankedTensorType channelsLastType(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get(toChannelsLast(tensor.getShape()), tensor.getElementType());
}

bool isLaidOutAlike(Type type) {
  llvm::ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
  return shape[1] == 1 || llvm::all_of(shape.drop_front(2), [](int64_t extent) { return extent == 1; });
}

Value toChannelsLast(OpBuilder &builder, Location loc, Value value) {
  RankedTensorType type = channelsLastType(value.getType());
  if (auto constant = value.getDefiningOp<ConstantOp>())
    if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue()))
      return ConstantOp::create(builder, loc, splat.resizeSplat(type));
  if (isLaidOutAlike(value.getType()))
    return reshape(builder, loc, value, type.getShape());
  return transpose(builder, loc, value, channelsLastPermutation(type.getRank()));
}

Value toChannelsFirst(OpBuilder &builder, Location loc, Value value) {
  llvm::SmallVector<int64_t> shape = toChannelsFirst(shapeOf(value));
  if (isLaidOutAlike(RankedTensorType::get(shape, elementTypeOf(value))))
    return reshape(builder, loc, value, shape);
  return transpose(builder, loc, value, channelsFirstPermutation(shape.size()));
}

namespace {

/// The position of dimension `dim` of N, C, spatial in N, spatial, C.
int64_t storedDim(int64_t dim, size_t rank) { return dim == 0 ? 0 : dim == 1 ? int64_t(rank) - 1 : dim - 1; }

int64_t bytesOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * int64_t(llvm::divideCeil(tensor.getElementTypeBitWidth(), 8));
}

/// Builds an op with other operands and result types and the same attributes.
template <typename OpTy> OpTy rebuild(OpTy op, OpBuilder &builder, ValueRange operands, TypeRange types) {
  OperationState state(op.getLoc(), OpTy::getOperationName(), operands, types, op->getAttrs());
  return cast<OpTy>(builder.create(state));
}

/// An op whose tensors of full rank all have the same layout.
template <typename Model, typename OpTy> struct MovingModel : LayoutAware::ExternalModel<Model, OpTy> {
  llvm::SmallVector<unsigned> getLaidOutOperands(Operation *op) const {
    llvm::SmallVector<unsigned> all;
    for (auto [index, operand] : llvm::enumerate(op->getOperands()))
      if (shapeOf(operand).size() == shapeOf(op->getResult(0)).size())
        all.push_back(unsigned(index));
    return all;
  }
  llvm::SmallVector<unsigned> getLaidOutResults(Operation *op) const {
    return llvm::to_vector(llvm::seq<unsigned>(0, op->getNumResults()));
  }

protected:
  static llvm::SmallVector<Type> resultTypes(Operation *op) {
    llvm::SmallVector<Type> types;
    for (Type type : op->getResultTypes())
      types.push_back(channelsLastType(type));
    return types;
  }
};

/// Ops with the attribute channelsLast.
template <typename OpTy> struct PoolModel : MovingModel<PoolModel<OpTy>, OpTy> {
  using Base = MovingModel<PoolModel<OpTy>, OpTy>;
  /// Pooling only knows its spatial dimensions; there may be any number of others.
  static bool hasChannels(Operation *op) {
    return shapeOf(op->getResult(0)).size() == cast<OpTy>(op).getKernel().size() + 2;
  }
  llvm::SmallVector<unsigned> getLaidOutOperands(Operation *op) const {
    return hasChannels(op) && !cast<OpTy>(op).getChannelsLast() ? Base::getLaidOutOperands(op)
                                                                : llvm::SmallVector<unsigned>{};
  }
  llvm::SmallVector<unsigned> getLaidOutResults(Operation *op) const {
    return hasChannels(op) && !cast<OpTy>(op).getChannelsLast() ? Base::getLaidOutResults(op)
                                                                : llvm::SmallVector<unsigned>{};
  }
  llvm::SmallVector<Value> buildChannelsLast(Operation *op, OpBuilder &builder, ValueRange operands, bool) const {
    OpTy made = rebuild(cast<OpTy>(op), builder, operands, this->resultTypes(op));
    made.setChannelsLast(true);
    return llvm::SmallVector<Value>(made->getResults());
  }
};

template <typename OpTy> struct ConvModel : LayoutAware::ExternalModel<ConvModel<OpTy>, OpTy> {
  static constexpr bool kToWeight = std::is_same_v<OpTy, ConvWeightGradOp>;

  llvm::SmallVector<unsigned> getLaidOutOperands(Operation *op) const {
    if (cast<OpTy>(op).getChannelsLast())
      return {};
    return kToWeight ? llvm::SmallVector<unsigned>{0, 1} : llvm::SmallVector<unsigned>{0};
  }
  llvm::SmallVector<unsigned> getLaidOutResults(Operation *op) const {
    return kToWeight || cast<OpTy>(op).getChannelsLast() ? llvm::SmallVector<unsigned>{}
                                                         : llvm::SmallVector<unsigned>{0};
  }
  llvm::SmallVector<Value> buildChannelsLast(Operation *op, OpBuilder &builder, ValueRange operands, bool) const {
    Type type = op->getResult(0).getType();
    OpTy made = rebuild(cast<OpTy>(op), builder, operands, kToWeight ? type : Type(channelsLastType(type)));
    made.setChannelsLast(true);
    return {made.getResult()};
  }
};

/// Bytes of the contiguous part that is reduced at once: it fits into a core's first caches.
constexpr int64_t kReducedBlockBytes = 64 << 10;
/// Reductions of at most this many elements are not split.
constexpr int64_t kFewReduced = 512;

struct ReduceModel : MovingModel<ReduceModel, ReduceOp> {
  llvm::SmallVector<Value> buildChannelsLast(Operation *op, OpBuilder &builder, ValueRange operands,
                                             bool inBlocks) const {
    auto old = cast<ReduceOp>(op);
    llvm::ArrayRef<int64_t> shape = shapeOf(operands[0]);
    llvm::SmallVector<int64_t> dims;
    int64_t reduced = 1;
    for (int64_t dim : old.getDims()) {
      dims.push_back(storedDim(dim, shape.size()));
      reduced *= shape[dims.back()];
    }
    llvm::sort(dims);
    llvm::SmallVector<int64_t> inner = innermost(dims, operands[0]);
    Value value = operands[0];
    if (inBlocks && !inner.empty() && inner.size() < dims.size() && reduced > kFewReduced &&
        elementTypeOf(value).getIntOrFloatBitWidth() >= 32)
      value = reduce(builder, op->getLoc(), old.getKind(), value, inner);
    else
      inner.clear();
    llvm::SmallVector<int64_t> outer;
    for (int64_t dim : dims)
      if (!llvm::is_contained(inner, dim))
        outer.push_back(dim);
    auto last = rebuild(old, builder, value, channelsLastType(old.getType()));
    last.setDims(outer);
    return {last.getResult()};
  }

  /// The elements of a channel are scattered: readers of the result read the operand again, in a kernel of their own.
  LayoutCost getLayoutCost(Operation *op, bool channelsLast) const {
    auto reduction = cast<ReduceOp>(op);
    bool spread =
        channelsLast && llvm::is_contained(reduction.getDims(), 0) && !llvm::is_contained(reduction.getDims(), 1);
    return {spread ? bytesOf(reduction.getInput().getType()) : 0, 0};
  }

private:
  /// The innermost reduced spatial dimensions, as many as fit into a block, at least one; none if channels are reduced.
  static llvm::SmallVector<int64_t> innermost(llvm::ArrayRef<int64_t> dims, Value value) {
    llvm::ArrayRef<int64_t> shape = shapeOf(value);
    llvm::SmallVector<int64_t> inner;
    if (llvm::is_contained(dims, int64_t(shape.size()) - 1))
      return inner;
    int64_t bytes = shape.back() * elementTypeOf(value).getIntOrFloatBitWidth() / 8;
    for (int64_t dim = int64_t(shape.size()) - 2; dim > 0 && llvm::is_contained(dims, dim); --dim) {
      bytes *= shape[dim];
      if (!inner.empty() && bytes > kReducedBlockBytes)
        break;
      inner.insert(inner.begin(), dim);
    }
    return inner;
  }
};

struct BroadcastModel : MovingModel<BroadcastModel, BroadcastOp> {
  llvm::SmallVector<Value> buildChannelsLast(Operation *op, OpBuilder &builder, ValueRange operands, bool) const {
    Value value = operands[0];
    RankedTensorType type = channelsLastType(op->getResult(0).getType());
    llvm::SmallVector<int64_t> shape(shapeOf(value));
    if (shape.size() < size_t(type.getRank())) {
      // Broadcasting is right-aligned: make the leading dimensions of 1 explicit.
      shape.insert(shape.begin(), type.getRank() - shape.size(), 1);
      value = toChannelsLast(builder, op->getLoc(), reshape(builder, op->getLoc(), value, shape));
    }
    return {broadcastTo(builder, op->getLoc(), value, type.getShape())};
  }
};

struct SliceModel : MovingModel<SliceModel, SliceOp> {
  llvm::SmallVector<Value> buildChannelsLast(Operation *op, OpBuilder &builder, ValueRange operands, bool) const {
    auto old = cast<SliceOp>(op);
    auto made = rebuild(old, builder, operands, resultTypes(op));
    made.setStarts(toChannelsLast(old.getStarts()));
    made.setSteps(toChannelsLast(old.getSteps()));
    return {made.getResult()};
  }
};

struct PadModel : MovingModel<PadModel, PadOp> {
  llvm::SmallVector<Value> buildChannelsLast(Operation *op, OpBuilder &builder, ValueRange operands, bool) const {
    auto old = cast<PadOp>(op);
    auto made = rebuild(old, builder, operands, resultTypes(op));
    made.setLow(toChannelsLast(old.getLow()));
    made.setSteps(toChannelsLast(old.getSteps()));
    return {made.getResult()};
  }
};

struct ReverseModel : MovingModel<ReverseModel, ReverseOp> {
  llvm::SmallVector<Value> buildChannelsLast(Operation *op, OpBuilder &builder, ValueRange operands, bool) const {
    auto old = cast<ReverseOp>(op);
    auto made = rebuild(old, builder, operands, resultTypes(op));
    llvm::SmallVector<int64_t> dims;
    for (int64_t dim : old.getDims())
      dims.push_back(storedDim(dim, shapeOf(operands[0]).size()));
    llvm::sort(dims);
    made.setDims(dims);
    return {made.getResult()};
  }
};

struct ConcatModel : MovingModel<ConcatModel, ConcatOp> {
  llvm::SmallVector<Value> buildChannelsLast(Operation *op, OpBuilder &builder, ValueRange operands, bool) const {
    auto old = cast<ConcatOp>(op);
    auto made = rebuild(old, builder, operands, resultTypes(op));
    made.setDim(storedDim(int64_t(old.getDim()), shapeOf(old.getResult()).size()));
    return {made.getResult()};
  }
};

/// A model's own transpose between the two layouts becomes a no-op if its N, C, spatial side becomes channels-last.
struct TransposeModel : LayoutAware::ExternalModel<TransposeModel, TransposeOp> {
  static bool is(Operation *op, llvm::SmallVector<int64_t> (*permutation)(size_t)) {
    llvm::ArrayRef<int64_t> own = cast<TransposeOp>(op).getPermutation();
    return own.size() > 2 && own == llvm::ArrayRef(permutation(own.size()));
  }
  llvm::SmallVector<unsigned> getLaidOutOperands(Operation *op) const {
    return is(op, channelsLastPermutation) ? llvm::SmallVector<unsigned>{0} : llvm::SmallVector<unsigned>{};
  }
  llvm::SmallVector<unsigned> getLaidOutResults(Operation *op) const {
    bool back = is(op, channelsFirstPermutation) && !is(op, channelsLastPermutation);
    return back ? llvm::SmallVector<unsigned>{0} : llvm::SmallVector<unsigned>{};
  }
  llvm::SmallVector<Value> buildChannelsLast(Operation *, OpBuilder &, ValueRange operands, bool) const {
    return {operands[0]};
  }
  LayoutCost getLayoutCost(Operation *op, bool channelsLast) const {
    return {0, channelsLast ? 0 : bytesOf(op->getResult(0).getType())};
  }
};

} // namespace

void attachLayouts(MLIRContext &context) {
  ConvOp::attachInterface<ConvModel<ConvOp>>(context);
  ConvInputGradOp::attachInterface<ConvModel<ConvInputGradOp>>(context);
  ConvWeightGradOp::attachInterface<ConvModel<ConvWeightGradOp>>(context);
  MaxPoolOp::attachInterface<PoolModel<MaxPoolOp>>(context);
  MaxPoolGradOp::attachInterface<PoolModel<MaxPoolGradOp>>(context);
  SumPoolOp::attachInterface<PoolModel<SumPoolOp>>(context);
  SumPoolGradOp::attachInterface<PoolModel<SumPoolGradOp>>(context);
  ReduceOp::attachInterface<ReduceModel>(context);
  BroadcastOp::attachInterface<BroadcastModel>(context);
  SliceOp::attachInterface<SliceModel>(context);
  PadOp::attachInterface<PadModel>(context);
  ReverseOp::attachInterface<ReverseModel>(context);
  ConcatOp::attachInterface<ConcatModel>(context);
  TransposeOp::attachInterface<TransposeModel>(context);
}

} // namespace tcc::train

//===- WeightReads.cpp - how the forward pass reads a weight --------------===//
#include "passes/training/WeightReads.h"

#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {

namespace {

/// Follows a weight to its readers, through views and transposes of a matrix.
class WeightTrace {
public:
  explicit WeightTrace(ReadOp read) {
    found.read = read;
    found.type = cast<RankedTensorType>(read.getType());
    unpack(read.getResult());
    rank = found.type.getRank();
    if (rank < 2 || !isa<FloatType>(found.type.getElementType()))
      found.obstacle = "is no matrix";
    else if (!found.fourBits)
      follow(read.getResult(), false);
    for (UnpackOp reader : unpacked)
      if (found.obstacle.empty() && !reader.getIndices())
        follow(reader.getResult(), false);
      else if (found.obstacle.empty() && rank == 2 && reader.getAxis() == 0)
        found.lookups.push_back({reader, reader.getIndices()});
      else
        refuse(reader);
    const bool any = !found.products.empty() || !found.convolutions.empty() || !found.lookups.empty();
    if (found.obstacle.empty() && !any)
      found.obstacle = "is read by no product";
  }

  WeightReads take() { return std::move(found); }

private:
  /// Finds the matrices whose codes these bytes are.
  void unpack(Value bytes) {
    if (!elementTypeOf(bytes).isUnsignedInteger(8))
      return;
    for (OpOperand &use : bytes.getUses())
      if (auto reshape = dyn_cast<ReshapeOp>(use.getOwner()))
        unpack(reshape.getResult());
      else if (auto reader = dyn_cast<UnpackOp>(use.getOwner()); reader && use.getOperandNumber() == 0) {
        auto type = RankedTensorType::get(reader.getShape(), elementTypeOf(reader.getResult()));
        if (found.fourBits && type != found.type)
          refuse(reader);
        found.type = type;
        found.fourBits = true;
        unpacked.push_back(reader);
      } else
        refuse(use.getOwner());
  }

  void follow(Value value, bool swapped) {
    for (OpOperand &use : value.getUses())
      follow(use, swapped);
  }

  void follow(OpOperand &use, bool swapped) {
    Operation *op = use.getOwner();
    if (isa<CastOp>(op) && isFloatTensor(op->getResult(0)))
      return follow(op->getResult(0), swapped);
    if (auto conv = dyn_cast<ConvOp>(op); conv && use.getOperandNumber() == 1)
      return note(conv);
    if (rank != 2)
      return refuse(op);
    if (auto product = dyn_cast<MatMulOp>(op); product && use.getOperandNumber() < 2 && !product.getAddend())
      return note(product, use.getOperandNumber() == 1, swapped);
    if (auto lookup = dyn_cast<GatherOp>(op);
        lookup && use.getOperandNumber() == 0 && lookup.getAxis() == 0 && !swapped)
      return found.lookups.push_back({lookup, lookup.getIndices()});
    llvm::ArrayRef<int64_t> from = shapeOf(use.get());
    if (auto reshape = dyn_cast<ReshapeOp>(op)) {
      llvm::ArrayRef<int64_t> to = shapeOf(reshape.getResult());
      if (to.size() >= 2 && to.take_back(2) == from.take_back(2))
        return follow(reshape.getResult(), swapped);
    }
    if (auto transpose = dyn_cast<TransposeOp>(op)) {
      auto permutation = transpose.getPermutation();
      const int64_t dims = int64_t(permutation.size());
      bool leading = true;
      for (int64_t i = 0; i + 2 < dims; ++i)
        leading &= permutation[size_t(i)] == i;
      if (leading)
        return follow(transpose.getResult(), swapped != (permutation[size_t(dims - 1)] == dims - 2));
    }
    refuse(op);
  }

  void note(MatMulOp product, bool onRight, bool swapped) {
    if (product.getLhs() == product.getRhs() || shapeOf(product.getResult())[0] != 1)
      return refuse(product);
    const bool inputFirst = (onRight ? !product.getTransB() : product.getTransA()) != swapped;
    if (!found.products.empty() && found.inputFirst != inputFirst) {
      found.obstacle = "is multiplied by both as it is and transposed";
      return;
    }
    found.inputFirst = inputFirst;
    found.products.push_back({product, onRight});
  }

  void note(ConvOp conv) {
    if (conv.getInput() == conv.getWeight())
      return refuse(conv);
    if (conv.getGroups() != 1 && found.obstacle.empty())
      found.obstacle = "is the filter of a convolution in " + std::to_string(conv.getGroups()) +
                       " groups: its adapter in peft mixes the groups, so that no filter of groups could hold it";
    if (llvm::any_of(conv.getDilations(), [](int64_t dilation) { return dilation != 1; }))
      found.notPeft = "its lora_A has no dilation";
    found.convolutions.push_back(conv);
  }

  void refuse(Operation *op) {
    if (!found.obstacle.empty())
      return;
    llvm::StringRef node = nodeName(op->getLoc());
    found.obstacle =
        "is read by " + op->getName().stripDialect().str() + (node.empty() ? "" : " of node " + node.str());
  }

  size_t rank = 0;
  llvm::SmallVector<UnpackOp> unpacked; ///< the readers of a weight whose bytes hold two elements each
  WeightReads found;
};

/// Refuses weights with several kinds of readers: an adapter serves one kind.
void refuseSeveralKinds(WeightReads &reads) {
  if (!reads.obstacle.empty() || reads.lookups.empty() || reads.products.empty())
    return;
  llvm::StringRef node = nodeName(reads.lookups.front().op->getLoc());
  reads.obstacle = "is read by gather" + (node.empty() ? std::string() : " of node " + node.str()) +
                   " and by products: no adapter in peft is of both";
}

} // namespace

WeightReads readsOfWeight(llvm::ArrayRef<ReadOp> reads) {
  WeightReads joined;
  if (reads.empty())
    joined.obstacle = "is not read";
  for (ReadOp read : reads) {
    WeightReads one = WeightTrace(read).take();
    if (joined.obstacle.empty() && !joined.products.empty() && !one.products.empty() &&
        one.inputFirst != joined.inputFirst)
      one.obstacle = "is multiplied by both as it is and transposed";
    if (!one.obstacle.empty())
      joined.obstacle = one.obstacle;
    if (!one.notPeft.empty())
      joined.notPeft = one.notPeft;
    joined.read = joined.read ? joined.read : one.read;
    joined.type = one.type;
    joined.fourBits |= one.fourBits;
    if (!one.products.empty())
      joined.inputFirst = one.inputFirst;
    joined.products.append(one.products);
    joined.convolutions.append(one.convolutions);
    joined.lookups.append(one.lookups);
  }
  refuseSeveralKinds(joined);
  joined.inputFirst |= !joined.lookups.empty();
  return joined;
}

namespace {

/// Looks for a reader that sums or looks up along known dimensions of the weight.
class ChannelTrace {
public:
  explicit ChannelTrace(ReadOp read) : shape(shapeOf(read.getResult())) {
    Dims dims;
    for (size_t d = 0; d < shape.size(); ++d)
      dims.push_back(int64_t(d));
    follow(read.getResult(), dims);
  }

  /// Which dimensions of the weight have one scale for all their elements; empty: unknown.
  llvm::SmallVector<bool> shared;
  int strength = 0; ///< of the reader that decided: products before lookups

private:
  /// For each dimension of a value, that of the weight; −1: extent 1, or no single dimension.
  using Dims = llvm::SmallVector<int64_t>;

  void follow(Value value, const Dims &dims) {
    for (OpOperand &use : value.getUses())
      follow(use, dims);
  }

  void follow(OpOperand &use, const Dims &dims) {
    Operation *op = use.getOwner();
    if (isa<CastOp, SliceOp>(op))
      return follow(op->getResult(0), dims);
    if (auto transpose = dyn_cast<TransposeOp>(op)) {
      Dims next;
      for (int64_t from : transpose.getPermutation())
        next.push_back(dims[size_t(from)]);
      return follow(transpose.getResult(), next);
    }
    if (auto reshape = dyn_cast<ReshapeOp>(op))
      return follow(reshape.getResult(), reshaped(use.get(), reshape.getResult(), dims));
    const unsigned operand = use.getOperandNumber();
    if (auto product = dyn_cast<MatMulOp>(op); product && operand < 2)
      return decide(3, {dims[operand == 0 ? (product.getTransA() ? 1 : 2) : (product.getTransB() ? 2 : 1)]});
    if (isa<ConvOp>(op) && operand == 1)
      return decide(3, llvm::SmallVector<int64_t>(llvm::drop_begin(dims)));
    if (isa<ConvInputGradOp>(op) && operand == 1) {
      Dims summed(llvm::drop_begin(dims, 2));
      summed.push_back(dims[0]);
      return decide(3, summed);
    }
    if (isa<RecurrentOp>(op) && operand == 1)
      return decide(2, {dims[0]});
    if (auto lookup = dyn_cast<GatherOp>(op); lookup && operand == 0) {
      Dims together;
      for (auto [d, of] : llvm::enumerate(dims))
        if (int64_t(d) != int64_t(lookup.getAxis()))
          together.push_back(of);
      return decide(1, together);
    }
  }

  /// Maps dimensions through a reshape that only adds or removes extents of 1. For any other reshape, the weight's last
  /// dimension is taken to be the summed one, as in linear layers.
  Dims reshaped(Value from, Value to, const Dims &dims) {
    Dims left, next;
    llvm::SmallVector<int64_t> extents;
    for (auto [dim, extent] : llvm::zip(dims, shapeOf(from)))
      if (extent != 1) {
        left.push_back(dim);
        extents.push_back(extent);
      }
    size_t at = 0;
    for (int64_t extent : shapeOf(to)) {
      if (extent == 1)
        next.push_back(-1);
      else if (at < extents.size() && extents[at] == extent)
        next.push_back(left[at++]);
      else
        return Dims(shapeOf(to).size(), int64_t(shape.size()) - 1);
    }
    return next;
  }

  void decide(int by, llvm::ArrayRef<int64_t> dims) {
    if (by <= strength)
      return;
    strength = by;
    shared.assign(shape.size(), false);
    for (int64_t dim : dims)
      if (dim >= 0)
        shared[size_t(dim)] = true;
  }

  llvm::ArrayRef<int64_t> shape;
};

} // namespace

std::optional<llvm::SmallVector<int64_t>> scaleShapeOf(llvm::ArrayRef<ReadOp> reads) {
  llvm::SmallVector<bool> shared;
  int strength = 0;
  for (ReadOp read : reads)
    if (ChannelTrace trace(read); trace.strength > strength) {
      shared = trace.shared;
      strength = trace.strength;
    }
  if (!strength)
    return std::nullopt;
  llvm::SmallVector<int64_t> scales(shapeOf(llvm::ArrayRef<ReadOp>(reads).front()->getResult(0)));
  for (auto [extent, one] : llvm::zip_equal(scales, shared))
    if (one)
      extent = 1;
  return scales;
}

} // namespace tcc::train

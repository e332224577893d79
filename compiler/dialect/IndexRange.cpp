//===- IndexRange.cpp - propagate the legal values of indices -------------===//
#include "compiler/dialect/IndexRange.h"

#include "compiler/dialect/Builders.h"

using namespace mlir;

#include "compiler/dialect/IndexRange.cpp.inc"

namespace tcc::train {
namespace index_range { // named, since files share a translation unit
namespace {

/// ONNX's legal indices of an axis: negative ones count from its end.
IndexUse useOf(Operation *op, unsigned operand, Value table, int64_t axis) {
  IndexUse use;
  use.operand = operand;
  use.table = table;
  use.axis = axis;
  use.extent = shapeOf(table)[axis];
  use.low = -use.extent;
  use.high = use.extent - 1;
  if (auto uncounted = op->getAttrOfType<DenseI64ArrayAttr>(kUncountedLabels))
    use.exceptions.assign(uncounted.asArrayRef().begin(), uncounted.asArrayRef().end());
  return use;
}

struct GatherModel : IndexedAccess::ExternalModel<GatherModel, GatherOp> {
  std::optional<IndexUse> getIndexUse(Operation *op) const {
    auto gather = cast<GatherOp>(op);
    return useOf(op, 1, gather.getInput(), gather.getAxis());
  }
};
struct GatherElementsModel : IndexedAccess::ExternalModel<GatherElementsModel, GatherElementsOp> {
  std::optional<IndexUse> getIndexUse(Operation *op) const {
    auto gather = cast<GatherElementsOp>(op);
    return useOf(op, 1, gather.getInput(), gather.getAxis());
  }
};
struct ScatterModel : IndexedAccess::ExternalModel<ScatterModel, ScatterOp> {
  std::optional<IndexUse> getIndexUse(Operation *op) const {
    auto scatter = cast<ScatterOp>(op);
    return useOf(op, 1, scatter.getInit(), scatter.getAxis());
  }
};
/// A pick outside its table is 0 by definition, unless the table holds classes and the index is a label.
struct PickModel : IndexedAccess::ExternalModel<PickModel, PickOp> {
  std::optional<IndexUse> getIndexUse(Operation *op) const {
    if (!op->hasAttr(kUncountedLabels))
      return std::nullopt;
    auto pick = cast<PickOp>(op);
    IndexUse use = useOf(op, 1, pick.getInput(), pick.getDim());
    use.low = 0;
    use.table = nullptr;
    return use;
  }
};
struct SelectModel : IndexedAccess::ExternalModel<SelectModel, SelectOp> {
  std::optional<IndexUse> getIndexUse(Operation *op) const {
    auto extent = op->getAttrOfType<IntegerAttr>(kWrapsIndex);
    if (!extent)
      return std::nullopt;
    IndexUse use;
    use.operand = 2;
    use.extent = extent.getInt();
    use.low = -use.extent;
    use.high = use.extent - 1;
    return use;
  }
};

using Wide = __int128;
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

int64_t saturated(Wide value) { return value < kLeast ? kLeast : value > kMost ? kMost : int64_t(value); }

/// A bound plus `shift`; an absent bound stays absent.
int64_t moved(int64_t bound, Wide shift) {
  return bound == kLeast || bound == kMost ? bound : saturated(Wide(bound) + shift);
}

/// The demand on x that is equivalent to `demand` on −x.
IndexDemand mirrored(const IndexDemand &demand) {
  auto of = [](int64_t bound) { return bound == kLeast ? kMost : bound == kMost ? kLeast : -bound; };
  IndexDemand result = demand;
  result.low = of(demand.high);
  result.high = of(demand.low);
  return result;
}

/// Least and greatest element of an integer constant, also through views and broadcasts; nullopt for other values.
std::optional<std::pair<int64_t, int64_t>> constantRange(Value value) {
  constexpr int64_t kMostElements = int64_t(1) << 20;
  while (auto *op = value.getDefiningOp()) {
    if (!isa<BroadcastOp, ReshapeOp, TransposeOp>(op))
      break;
    value = op->getOperand(0);
  }
  auto constant = value.getDefiningOp<ConstantOp>();
  if (!constant || !isa<IntegerType>(elementTypeOf(value)))
    return std::nullopt;
  if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue())) {
    auto type = RankedTensorType::get({1}, elementTypeOf(value));
    int64_t only = HostTensor::fromAttribute(splat.resizeSplat(type)).getInt(0);
    return std::pair(only, only);
  }
  HostTensor elements;
  if (tensorTypeOf(value).getNumElements() == 0 || tensorTypeOf(value).getNumElements() > kMostElements)
    return std::nullopt;
  elements = HostTensor::fromAttribute(constant.getValue());
  std::pair<int64_t, int64_t> range(elements.getInt(0), elements.getInt(0));
  for (int64_t i = 1; i < elements.size(); ++i)
    range = {std::min(range.first, elements.getInt(i)), std::max(range.second, elements.getInt(i))};
  return range;
}

/// The range of the operand that is not `operand`.
std::optional<std::pair<int64_t, int64_t>> otherRange(Operation *op, unsigned operand) {
  return constantRange(op->getOperand(1 - operand));
}

// If the constant's elements differ, demand only what all of them require: this analysis does not know which of them an
// operand's element is combined with.

struct AddModel : IntegerFlow::ExternalModel<AddModel, AddOp> {
  std::optional<IndexDemand> pullBack(Operation *op, unsigned operand, const IndexDemand &demand) const {
    auto other = otherRange(op, operand);
    if (!other)
      return std::nullopt;
    IndexDemand result = demand;
    result.low = moved(demand.low, -Wide(other->second));
    result.high = moved(demand.high, -Wide(other->first));
    return result;
  }
};

struct SubModel : IntegerFlow::ExternalModel<SubModel, SubOp> {
  std::optional<IndexDemand> pullBack(Operation *op, unsigned operand, const IndexDemand &demand) const {
    auto other = otherRange(op, operand);
    if (!other)
      return std::nullopt;
    IndexDemand result = demand;
    if (operand == 0) { // x − c
      result.low = moved(demand.low, other->first);
      result.high = moved(demand.high, other->second);
      return result;
    }
    auto mirrored = [](int64_t bound, int64_t constant) { // c − x
      return bound == kLeast ? kMost : bound == kMost ? kLeast : saturated(Wide(constant) - bound);
    };
    result.low = mirrored(demand.high, other->first);
    result.high = mirrored(demand.low, other->second);
    return result;
  }
};

struct MulModel : IntegerFlow::ExternalModel<MulModel, MulOp> {
  std::optional<IndexDemand> pullBack(Operation *op, unsigned operand, const IndexDemand &demand) const {
    auto other = otherRange(op, operand);
    if (!other || other->first != other->second || other->first == 0)
      return std::nullopt;
    const Wide factor = other->first < 0 ? -Wide(other->first) : Wide(other->first);
    IndexDemand product = other->first < 0 ? mirrored(demand) : demand, result = product;
    auto floorOf = [&](Wide x) { return x / factor - (x % factor < 0); };
    if (product.low != kLeast)
      result.low = saturated(-floorOf(-Wide(product.low)));
    if (product.high != kMost)
      result.high = saturated(floorOf(product.high));
    return result;
  }
};

struct NegModel : IntegerFlow::ExternalModel<NegModel, NegOp> {
  std::optional<IndexDemand> pullBack(Operation *, unsigned, const IndexDemand &demand) const {
    return mirrored(demand);
  }
};

/// max(x, c) and min(x, c): the constant guarantees the bound on its side.
template <typename OpTy, bool isMax> struct ExtremeModel : IntegerFlow::ExternalModel<ExtremeModel<OpTy, isMax>, OpTy> {
  std::optional<IndexDemand> pullBack(Operation *op, unsigned operand, const IndexDemand &demand) const {
    auto other = otherRange(op, operand);
    if (!other || other->first < demand.low || other->second > demand.high)
      return std::nullopt;
    IndexDemand result = demand;
    (isMax ? result.low : result.high) = isMax ? kLeast : kMost;
    return result;
  }
};

struct StopGradientModel : IntegerFlow::ExternalModel<StopGradientModel, StopGradientOp> {
  std::optional<IndexDemand> pullBack(Operation *, unsigned, const IndexDemand &demand) const { return demand; }
};

struct CastModel : IntegerFlow::ExternalModel<CastModel, CastOp> {
  std::optional<IndexDemand> pullBack(Operation *op, unsigned, const IndexDemand &demand) const {
    const Type to = elementTypeOf(op->getResult(0)), from = elementTypeOf(op->getOperand(0));
    if (to.isInteger(1) || from.isInteger(1))
      return std::nullopt;
    // A narrowing cast wraps, and a byte index of 256 is legally 0. Wrapping of 32 bits is never intended.
    constexpr unsigned kNarrow = 32;
    if (isa<IntegerType>(to) && to.getIntOrFloatBitWidth() < kNarrow &&
        from.getIntOrFloatBitWidth() > to.getIntOrFloatBitWidth())
      return std::nullopt;
    return demand;
  }
};

// Movements. A demand on a box of a tensor passes through movements that map the box to a box.

template <typename OpTy> struct WholeModel : IntegerFlow::ExternalModel<WholeModel<OpTy>, OpTy> {
  std::optional<IndexDemand> pullBack(Operation *, unsigned, const IndexDemand &demand) const {
    return demand.ofAll() ? std::optional(demand) : std::nullopt;
  }
};

struct TransposeModel : IntegerFlow::ExternalModel<TransposeModel, TransposeOp> {
  std::optional<IndexDemand> pullBack(Operation *op, unsigned, const IndexDemand &demand) const {
    IndexDemand result = demand;
    if (!demand.ofAll())
      for (auto [dim, from] : llvm::enumerate(cast<TransposeOp>(op).getPermutation())) {
        result.begin[from] = demand.begin[dim];
        result.end[from] = demand.end[dim];
      }
    return result;
  }
};

struct SliceModel : IntegerFlow::ExternalModel<SliceModel, SliceOp> {
  std::optional<IndexDemand> pullBack(Operation *op, unsigned, const IndexDemand &demand) const {
    auto slice = cast<SliceOp>(op);
    llvm::ArrayRef<int64_t> shape = shapeOf(op->getResult(0));
    IndexDemand result = demand;
    if (demand.ofAll()) {
      result.begin.assign(shape.size(), 0);
      result.end.assign(shape.begin(), shape.end());
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      if (slice.getSteps()[d] != 1 && result.end[d] - result.begin[d] > 1)
        return std::nullopt;
      int64_t first = slice.getStarts()[d] + result.begin[d] * slice.getSteps()[d];
      result.end[d] = first + result.end[d] - result.begin[d];
      result.begin[d] = first;
    }
    return result;
  }
};

} // namespace
} // namespace index_range

void attachIndexRanges(MLIRContext &context) {
  GatherOp::attachInterface<index_range::GatherModel>(context);
  GatherElementsOp::attachInterface<index_range::GatherElementsModel>(context);
  ScatterOp::attachInterface<index_range::ScatterModel>(context);
  PickOp::attachInterface<index_range::PickModel>(context);
  SelectOp::attachInterface<index_range::SelectModel>(context);
  AddOp::attachInterface<index_range::AddModel>(context);
  SubOp::attachInterface<index_range::SubModel>(context);
  MulOp::attachInterface<index_range::MulModel>(context);
  NegOp::attachInterface<index_range::NegModel>(context);
  MaxOp::attachInterface<index_range::ExtremeModel<MaxOp, true>>(context);
  MinOp::attachInterface<index_range::ExtremeModel<MinOp, false>>(context);
  CastOp::attachInterface<index_range::CastModel>(context);
  StopGradientOp::attachInterface<index_range::StopGradientModel>(context);
  ReshapeOp::attachInterface<index_range::WholeModel<ReshapeOp>>(context);
  BroadcastOp::attachInterface<index_range::WholeModel<BroadcastOp>>(context);
  ReverseOp::attachInterface<index_range::WholeModel<ReverseOp>>(context);
  ConcatOp::attachInterface<index_range::WholeModel<ConcatOp>>(context);
  TransposeOp::attachInterface<index_range::TransposeModel>(context);
  SliceOp::attachInterface<index_range::SliceModel>(context);
}

} // namespace tcc::train

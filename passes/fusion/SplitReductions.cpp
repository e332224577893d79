//===- SplitReductions.cpp - long reductions become two kernels ----------===//
//
// On a GPU one lane group reduces a whole row. Few long rows, such as the columns of a bias's gradient or the sum of
// all squares, leave most groups idle. The pass cuts the reduced dimension that allows most parts: the first kernel
// computes the reduction's input and reduces each part, and a second one reduces the parts' results and computes small
// results from them. A third kernel computes dependent results of full shape, and further reductions, as in batch
// normalization; the pass cuts these in turn. Shapes and target alone determine the reduction tree.
//
// The parts become a dimension. The pass reshapes operands outside the region, rebuilds pointwise ops and broadcasts in
// the new shape, and reshapes the results of other ops inside the region.
//
// If one dimension has few divisors, as those of channels-last activations, the reduced dimensions become one before
// they are cut: 64 × 56 × 56 pixels have 512 parts of 392 pixels. Several lane groups can share the rows of a part only
// in one dimension.
//
// A kernel of rows that also sums columns (fuse-column-sums) is cut in the same way, into the parts that it names,
// along one dimension of the rows or several. Its first kernel walks over the rows of a part.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/ColumnSums.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/fusion/Fusion.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SPLITREDUCTIONSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

RankedTensorType typedAs(Value value, ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, cast<RankedTensorType>(value.getType()).getElementType());
}

} // namespace

int64_t Cut::count() const { return std::accumulate(parts.begin(), parts.end(), int64_t(1), std::multiplies<>()); }

Cut cutOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims, int64_t most) {
  int64_t best = 0, parts = 1;
  for (int64_t dim : dims)
    for (int64_t count = std::min(most, shape[size_t(dim)]); count > parts; --count)
      if (shape[size_t(dim)] % count == 0) {
        best = dim;
        parts = count;
      }
  Cut cut{Extents(shape.size(), 1)};
  cut.parts[size_t(best)] = parts;
  return cut;
}

Cut jointCutOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims, int64_t most) {
  int64_t rows = 1;
  for (int64_t dim : dims)
    rows *= shape[size_t(dim)];
  int64_t count = std::clamp<int64_t>(most, 1, std::max<int64_t>(rows, 1));
  while (rows % count)
    --count;
  Cut cut = cutOf(shape, dims, count);
  if (cut.count() == count)
    return cut;
  // After each dimension has taken the greatest common divisor, the quotient divides the product of the later extents.
  cut.parts.assign(shape.size(), 1);
  for (int64_t dim : dims) {
    cut.parts[size_t(dim)] = std::gcd(count, shape[size_t(dim)]);
    count /= cut.parts[size_t(dim)];
  }
  return cut;
}

Cut cutForUnits(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims, int64_t units, const target::CodeModel *code,
                int64_t length) {
  const int64_t lanes = code ? code->vectorLanes : kGroupThreads;
  int64_t lane = int64_t(shape.size()) - 1;
  while (lane > 0 && shape[size_t(lane)] == 1)
    --lane;
  int64_t rows = 1, reduced = 1;
  for (auto [dim, extent] : llvm::enumerate(shape)) {
    if (llvm::is_contained(dims, int64_t(dim)))
      reduced *= extent;
    else
      rows *= int64_t(dim) == lane ? int64_t(llvm::divideCeil(extent, lanes)) : extent;
  }
  // Steps of a unit: if the lanes run along the reduced row, one step takes one element for each lane.
  const int64_t steps = llvm::is_contained(dims, lane) ? int64_t(llvm::divideCeil(reduced, lanes)) : reduced;
  if (rows <= 0 || steps <= 0)
    return {Extents(shape.size(), 1)};
  // A block of several lane groups may reduce such a row.
  if (code && llvm::is_contained(dims, lane))
    rows *= code->threadsOfRow(rows, shape[size_t(lane)]) / lanes;
  return cutOf(shape, dims, std::min(units / rows, steps / length));
}

namespace {

/// A region under construction: its operands outside, and values inside.
class RegionBuilder {
public:
  RegionBuilder(FusedOp original)
      : outside(original), body(new Block), inside(original.getContext()), loc(original.getLoc()) {
    inside.setInsertionPointToEnd(body);
  }

  Value argument(Value operand) {
    auto [found, isNew] = arguments.insert({operand, Value()});
    if (isNew)
      found->second = body->addArgument(operand.getType(), loc);
    return found->second;
  }

  FusedOp finish(ArrayRef<Value> yielded) {
    YieldOp::create(inside, loc, yielded);
    SmallVector<Type> types;
    for (Value value : yielded)
      types.push_back(value.getType());
    SmallVector<Value> operands(llvm::make_first_range(arguments));
    auto fused = FusedOp::create(outside, loc, types, operands);
    fused.getBody().push_back(body);
    return fused;
  }

  OpBuilder outside;
  Block *body; ///< owned by the region once it is finished
  OpBuilder inside;
  Location loc;

private:
  llvm::MapVector<Value, Value> arguments;
};

class Splitter {
public:
  /// `code`: the model of the code that kernels become; null: that of lane groups.
  Splitter(FusedOp fused, int64_t units, const target::CodeModel *code, int64_t length)
      : fused(fused), block(fused.getBody().front()), units(units), code(code), length(length) {}

  /// Splits the kernel and returns the third one, whose reductions may be cut, too; null if there is none.
  FusedOp run() {
    if (!collect() || !choose() || !sort())
      return nullptr;
    FusedOp third = emitRest(emitParts());
    fused.erase();
    return third;
  }

private:
  /// Collects the reductions that depend on no other reduction, all over the same shape and dimensions, and the ops
  /// that depend on them.
  bool collect() {
    if (fused.getLoopKernel() || fused.getTileElements())
      return false;
    const SmallVector<ReduceOp> columns = columnSumsOf(fused);
    for (Operation &op : block.without_terminator()) {
      if (llvm::any_of(op.getOperands(), [&](Value operand) { return late.contains(operand.getDefiningOp()); })) {
        late.insert(&op);
        continue;
      }
      auto reducible = dyn_cast<Reducible>(&op);
      if (!reducible || (!columns.empty() && !llvm::is_contained(columns, &op)))
        continue; // reductions of rows stay whole
      auto reduce = dyn_cast<ReduceOp>(&op);
      if (!reduce)
        return false;
      if (reductions.empty()) {
        full = extentsOf(reduce.getInput());
        dims = reducible.getReducedDims();
      } else if (extentsOf(reduce.getInput()) != full || reducible.getReducedDims() != ArrayRef<int64_t>(dims)) {
        return false;
      }
      reductions.push_back(reduce);
      late.insert(reduce);
    }
    return !reductions.empty();
  }

  /// Chooses the cut dimension and the number of parts: enough for the machine, but none shorter than `length` steps.
  bool choose() {
    if (auto wanted = fused->getAttrOfType<IntegerAttr>(names::kParts)) {
      cut = jointCutOf(full, dims, wanted.getInt());
      return cut.count() > 1;
    }
    cut = cutForUnits(full, dims, units, code, length);
    if (canMerge()) {
      Extents whole(full.begin(), full.begin() + dims.front() + 1);
      for (int64_t dim : ArrayRef(dims).drop_front())
        whole.back() *= full[size_t(dim)];
      whole.append(full.begin() + dims.back() + 1, full.end());
      Cut joint = cutForUnits(whole, {dims.front()}, units, code, length);
      if (joint.count() > kMostMergedParts)
        joint = cutOf(whole, {dims.front()}, kMostMergedParts);
      if (joint.count() >= 2 * cut.count()) {
        cut.parts.assign(full.size(), 1);
        cut.parts[size_t(dims.front())] = joint.count();
        merges = true;
      }
    }
    return cut.count() > 1;
  }

  /// The second kernel has few lane groups: with more parts it loses more time than the first one gains.
  static constexpr int64_t kMostMergedParts = 512;

  /// True if the reduced dimensions are adjacent and the lanes run along another one, and each value of the first
  /// kernel is elementwise and either has all of them or none.
  bool canMerge() {
    if (dims.size() < 2 || dims.back() - dims.front() + 1 != int64_t(dims.size()) || !llvm::is_sorted(dims))
      return false;
    if (llvm::all_of(ArrayRef(full).drop_front(size_t(dims.back()) + 1), [](int64_t extent) { return extent == 1; }))
      return false;
    auto isWhole = [&](Value value) {
      Extents shape = extentsOf(value);
      if (shape.size() > full.size())
        return false;
      shape.insert(shape.begin(), full.size() - shape.size(), 1);
      auto all = [&](auto test) { return llvm::all_of(dims, [&](int64_t dim) { return test(size_t(dim)); }); };
      return all([&](size_t dim) { return shape[dim] == full[dim]; }) ||
             all([&](size_t dim) { return shape[dim] == 1; });
    };
    SmallVector<Value> work;
    for (ReduceOp reduce : reductions)
      work.push_back(reduce.getInput());
    for (Value value : yieldedValues())
      if (!late.contains(value.getDefiningOp()))
        work.push_back(value);
    llvm::SmallPtrSet<Operation *, 16> seen;
    while (!work.empty()) {
      Value value = work.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (!isWhole(value))
        return false;
      if (!op || !seen.insert(op).second)
        continue;
      auto constant = dyn_cast<ConstantOp>(op);
      if (constant ? !isa<SplatElementsAttr>(constant.getValue())
                   : op->getNumResults() != 1 || !(op->hasTrait<Pointwise>() || isa<BroadcastOp>(op)))
        return false;
      llvm::append_range(work, op->getOperands());
    }
    return true;
  }

  /// Assigns each result to a kernel: results of full shape that need no reduction to the first, small results computed
  /// from small values and the reductions to the second, the rest to a third. False if no loop nest computes the rest.
  bool sort() {
    const bool walks = fused->hasAttr(names::kParts);
    bool reducesAgain = llvm::any_of(late, [&](Operation *op) { return isa<Reducible>(op) && !isFirst(op); });
    for (Value value : yieldedValues()) {
      if (!late.contains(value.getDefiningOp()) && (walks || extentsOf(value) == full))
        kernels.push_back(0);
      else if (fitsSecond(value))
        kernels.push_back(1);
      else if (reducesAgain || extentsOf(value) == full)
        kernels.push_back(2);
      else
        return false; // a nest without reductions has results of one shape
    }
    return true;
  }

  bool isFirst(Operation *op) { return llvm::is_contained(reductions, op); }

  /// The shape of the reductions' results.
  Extents rowShape() {
    Extents row(full);
    for (int64_t dim : dims)
      row[size_t(dim)] = 1;
    return row;
  }
  bool isRow(Value value) { return extentsOf(value) == rowShape(); }
  bool isSmall(Value value) {
    const Extents row = rowShape();
    return elementsOf(value) <= std::accumulate(row.begin(), row.end(), int64_t(1), std::multiplies<>());
  }
  /// True if the value is small, and so are all values of the region that it is computed from, up to the reductions.
  bool fitsSecond(Value value) {
    SmallVector<Value> work{value};
    llvm::SmallPtrSet<Operation *, 8> seen;
    while (!work.empty()) {
      Value next = work.pop_back_val();
      Operation *op = next.getDefiningOp();
      if (!isSmall(next))
        return false;
      if (op && !isFirst(op) && seen.insert(op).second)
        llvm::append_range(work, op->getOperands());
    }
    return true;
  }

  //===-- The kernel of the parts ----------------------------------------------===//

  bool isCut(size_t dim) const { return cut.parts[dim] > 1; }
  /// True for a dimension that has become a part of the cut one before it.
  bool isMerged(size_t dim) const { return merges && int64_t(dim) > dims.front() && int64_t(dim) <= dims.back(); }

  /// Replaces each cut dimension of a shape by two: parts, and elements of a part. Nullopt if the shape does not
  /// broadcast to that of the reductions' operand.
  std::optional<Extents> splitShape(ArrayRef<int64_t> shape) {
    if (shape.size() > full.size())
      return std::nullopt;
    Extents result;
    int64_t lead = int64_t(full.size() - shape.size());
    for (auto [dim, extent] : llvm::enumerate(shape)) {
      const auto place = size_t(int64_t(dim) + lead);
      if (extent != 1 && extent != full[place])
        return std::nullopt;
      if (isMerged(place))
        continue;
      if (isCut(place) && lengthOf(shape, dim, place) != 1)
        result.append({cut.parts[place], lengthOf(shape, dim, place) / cut.parts[place]});
      else if (isCut(place))
        result.append({1, 1});
      else
        result.push_back(extent);
    }
    return result;
  }

  /// The extent of dimension `dim` of a shape, the reductions' dimension `place`, with those that become a part of it.
  int64_t lengthOf(ArrayRef<int64_t> shape, size_t dim, size_t place) const {
    int64_t length = shape[dim];
    while (++dim < shape.size() && isMerged(++place))
      length *= shape[dim];
    return length;
  }

  Value operandOf(Value argument) { return fused->getOperand(cast<BlockArgument>(argument).getArgNumber()); }

  /// The value rebuilt in its original shape.
  Value plain(RegionBuilder &region, Value value) {
    if (Value found = plainValues.lookup(value))
      return found;
    Value result;
    if (isa<BlockArgument>(value)) {
      result = region.argument(operandOf(value));
    } else {
      Operation *op = value.getDefiningOp();
      IRMapping mapping;
      for (Value operand : op->getOperands())
        mapping.map(operand, plain(region, operand));
      Operation *copy = region.inside.clone(*op, mapping);
      for (auto [from, to] : llvm::zip(op->getResults(), copy->getResults()))
        plainValues[from] = to;
      return plainValues.lookup(value);
    }
    plainValues[value] = result;
    return result;
  }

  /// The value rebuilt with each cut dimension split into two.
  Value split(RegionBuilder &region, Value value) {
    if (Value found = splitValues.lookup(value))
      return found;
    Extents shape = *splitShape(extentsOf(value));
    RankedTensorType type = typedAs(value, shape);
    Operation *op = value.getDefiningOp();
    auto constant = dyn_cast_or_null<ConstantOp>(op);
    auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
    auto fits = [&](Value operand) { return splitShape(extentsOf(operand)).has_value(); };
    Value result;
    if (!op) {
      Value operand = operandOf(value);
      result = region.argument(type == operand.getType()
                                   ? operand
                                   : ReshapeOp::create(region.outside, operand.getLoc(), type, operand).getResult());
    } else if (splat) {
      result = ConstantOp::create(region.inside, op->getLoc(), splat.resizeSplat(type)).getResult();
    } else if (auto row = dyn_cast<ReduceOp>(op); row && extentsOf(row.getInput()) == full) {
      Value input = split(region, row.getInput());
      result = ReduceOp::create(region.inside, op->getLoc(), type, row.getKind(), input, behindCut(row.getDims()));
    } else if (op->getNumResults() == 1 && llvm::all_of(op->getOperands(), fits) &&
               (op->hasTrait<Pointwise>() || isa<BroadcastOp>(op))) {
      SmallVector<Value> operands;
      for (Value operand : op->getOperands())
        operands.push_back(split(region, operand));
      OperationState state(op->getLoc(), op->getName(), operands, type, op->getAttrs());
      result = region.inside.create(state)->getResult(0);
    } else {
      Value whole = plain(region, value);
      result =
          type == whole.getType() ? whole : ReshapeOp::create(region.inside, op->getLoc(), type, whole).getResult();
    }
    splitValues[value] = result;
    return result;
  }

  /// Dimensions of the original shape, in the shape with parts; a cut one becomes the elements of a part.
  SmallVector<int64_t> behindCut(ArrayRef<int64_t> original) {
    SmallVector<int64_t> result;
    int64_t place = 0;
    for (size_t dim = 0; dim < full.size(); ++dim) {
      if (isMerged(dim))
        continue;
      place += isCut(dim);
      if (llvm::is_contained(original, int64_t(dim)))
        result.push_back(place);
      ++place;
    }
    return result;
  }

  FusedOp emitParts() {
    RegionBuilder region(fused);
    plainValues.clear();
    const SmallVector<int64_t> inner = behindCut(dims); // reduced within a part
    SmallVector<Value> yielded;
    for (ReduceOp reduce : reductions) {
      Value input = split(region, reduce.getInput());
      Extents shape = extentsOf(input);
      for (int64_t dim : inner)
        shape[size_t(dim)] = 1;
      yielded.push_back(ReduceOp::create(region.inside, reduce.getLoc(), typedAs(reduce.getResult(), shape),
                                         reduce.getKind(), input, inner));
    }
    for (auto [value, kernel] : llvm::zip(yieldedValues(), kernels))
      if (kernel == 0)
        yielded.push_back(split(region, value));
    return region.finish(yielded);
  }

  OperandRange yieldedValues() { return cast<YieldOp>(block.getTerminator()).getValues(); }

  //===-- The kernel of the results --------------------------------------------===//

  FusedOp emitRest(FusedOp first) {
    RegionBuilder region(fused);
    plainValues.clear();
    // The reduced dimensions become 1; only the parts remain to be reduced. Those of several dimensions, which are
    // adjacent (jointCutOf), become one.
    Extents kept = rowShape();
    int64_t ofParts = 0;
    while (!isCut(size_t(ofParts)))
      ++ofParts;
    kept[size_t(ofParts)] = cut.count();
    for (auto [index, reduce] : llvm::enumerate(reductions)) {
      Value results = first.getResult(unsigned(index));
      Value argument = region.argument(
          ReshapeOp::create(region.outside, reduce.getLoc(), typedAs(results, kept), results).getResult());
      plainValues[reduce.getResult()] = ReduceOp::create(region.inside, reduce.getLoc(), reduce.getType(),
                                                         reduce.getKind(), argument, ArrayRef<int64_t>{ofParts});
    }
    // The results of the first and the second kernel: those of the region, and those that the third kernel reads.
    llvm::MapVector<Value, Value> stored, small;
    unsigned next = unsigned(reductions.size());
    for (auto [value, kernel] : llvm::zip(yieldedValues(), kernels))
      if (kernel == 0)
        stored[value] = first.getResult(next++);
      else if (kernel == 1)
        small[value] = Value();
    const Inputs inputs = inputsOfThird();
    for (Value value : inputs.values)
      if (!stored.count(value))
        small[value] = Value();
    SmallVector<Value> yielded;
    for (auto &[value, result] : small)
      yielded.push_back(plain(region, value));
    FusedOp second = region.finish(yielded), third;
    for (auto [index, entry] : llvm::enumerate(small))
      entry.second = second.getResult(unsigned(index));
    auto inOriginalShape = [&](Value original, Value value) {
      OpBuilder builder(fused);
      return value.getType() == original.getType()
                 ? value
                 : ReshapeOp::create(builder, fused.getLoc(), original.getType(), value).getResult();
    };
    llvm::MapVector<Value, Value> rest;
    if (llvm::is_contained(kernels, 2)) {
      RegionBuilder builder(fused);
      plainValues.clear();
      for (Value value : inputs.values)
        plainValues[value] =
            builder.argument(inOriginalShape(value, stored.count(value) ? stored[value] : small[value]));
      SmallVector<Value> last;
      for (auto [value, kernel] : llvm::zip(yieldedValues(), kernels))
        if (kernel == 2) {
          rest[value] = Value();
          last.push_back(plain(builder, value));
        }
      third = builder.finish(last);
      for (auto [index, value] : llvm::enumerate(yieldedOf(2)))
        rest[value] = third.getResult(unsigned(index));
    }
    llvm::MapVector<Value, Value> *made[] = {&stored, &small, &rest};
    for (auto [value, kernel, result] : llvm::zip(yieldedValues(), kernels, fused.getResults()))
      result.replaceAllUsesWith(inOriginalShape(result, made[kernel]->lookup(value)));
    return third;
  }

  SmallVector<Value> yieldedOf(unsigned wanted) {
    SmallVector<Value> values;
    for (auto [value, kernel] : llvm::zip(yieldedValues(), kernels))
      if (kernel == wanted)
        values.push_back(value);
    return values;
  }

  /// Values of the region that the third kernel reads in place of computing them.
  struct Inputs {
    llvm::SetVector<Value> values;
    int64_t bytes = 0; ///< of these values and of the region's operands that the kernel reads
  };

  /// The third kernel reads small results of the second one, and values that the first one stores if that is fewer
  /// bytes than reading what they are computed from.
  Inputs inputsOfThird() {
    const Inputs computed = inputsOfThird({}), read = inputsOfThird(yieldedOf(0));
    return read.bytes < computed.bytes ? read : computed;
  }
  Inputs inputsOfThird(ArrayRef<Value> stored) {
    Inputs inputs;
    auto work = yieldedOf(2);
    llvm::DenseSet<Value> seen;
    while (!work.empty()) {
      Value value = work.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (!seen.insert(value).second)
        continue;
      const bool isInput =
          op && ((late.contains(op) && isRow(value) && fitsSecond(value)) || llvm::is_contained(stored, value));
      if (isInput)
        inputs.values.insert(value);
      if (isInput || !op)
        inputs.bytes +=
            elementsOf(value) * llvm::divideCeil(cast<RankedTensorType>(value.getType()).getElementTypeBitWidth(), 8);
      else
        llvm::append_range(work, op->getOperands());
    }
    return inputs;
  }

  FusedOp fused;
  Block &block;
  int64_t units;
  const target::CodeModel *code;
  int64_t length;
  SmallVector<ReduceOp> reductions;
  Extents full, dims;
  Cut cut;
  bool merges = false; ///< the reduced dimensions become one
  llvm::SetVector<Operation *> late;
  SmallVector<unsigned> kernels; ///< that write the results: 0, 1 or 2
  llvm::DenseMap<Value, Value> plainValues, splitValues;
};

struct SplitReductions : impl::SplitReductionsPassBase<SplitReductions> {
  using SplitReductionsPassBase::SplitReductionsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    const target::Target *target = target::targetOf(function);
    int64_t wanted = units ? int64_t(units) : target ? target->capabilities().reductionUnits : 0;
    if (!function->hasAttr(names::kEntry) || !wanted)
      return;
    const target::CodeModel *code = target ? &target->code() : nullptr;
    SmallVector<FusedOp> kernels(function.getBody().front().getOps<FusedOp>());
    for (FusedOp fused : kernels)
      while (fused)
        fused = Splitter(fused, wanted, code, length).run();
  }
};

} // namespace

} // namespace tcc::train

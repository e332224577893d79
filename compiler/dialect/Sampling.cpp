//===- Sampling.cpp - weighted sums of elements at given places -*- C++ -*-===//
//
// With x the input, w the weights, y the result: y = sample(x, w) is linear in both, so that each of the three ops is
// the derivative of another: ⟨sample(x, w), g⟩ = ⟨x, spread(g, w)⟩ = ⟨w, sample_weight_grad(x, g)⟩. If the places are
// known at compile time (a resize, a reflected border), the gradient is a sample by the transposed table, not a
// scatter.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Verify.h"
#include "compiler/dialect/Window.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace tcc::train {

namespace {
/// The extents of [b, c, s, i] → [b, c, p, i] by [b, t, p].
struct Sampling {
  int64_t batch, channels, size, inner, taps, points;

  int64_t from(int64_t b, int64_t c, int64_t s, int64_t i) const { return ((b * channels + c) * size + s) * inner + i; }
  int64_t to(int64_t b, int64_t c, int64_t p, int64_t i) const { return ((b * channels + c) * points + p) * inner + i; }
  int64_t tap(int64_t b, int64_t t, int64_t p) const { return (b * taps + t) * points + p; }
  double flops() const { return 2.0 * double(batch * channels * points * inner) * double(taps); }
};
} // namespace

/// `from` has the elements, `to` the sums.
static Sampling samplingOf(Value from, Value to, Value table) {
  llvm::ArrayRef<int64_t> x = shapeOf(from), y = shapeOf(to), w = shapeOf(table);
  return {x[0], x[1], x[2], x[3], w[1], y[2]};
}
static Sampling samplingOf(SampleOp op) { return samplingOf(op.getInput(), op.getResult(), op.getIndices()); }
static Sampling samplingOf(SpreadOp op) { return samplingOf(op.getResult(), op.getUpdates(), op.getIndices()); }
static Sampling samplingOf(SampleWeightGradOp op) { return samplingOf(op.getInput(), op.getGrad(), op.getIndices()); }

static Type sumTypeOf(Value value) {
  Type element = elementTypeOf(value);
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

static LogicalResult verifySampling(Operation *op, Value from, Value to, Value indices, Value weights) {
  llvm::ArrayRef<int64_t> x = shapeOf(from), y = shapeOf(to), w = shapeOf(weights);
  if (x.size() != 4 || y.size() != 4 || w.size() != 3 || x[0] != y[0] || x[1] != y[1] || x[3] != y[3] || w[0] != x[0] ||
      w[2] != y[2])
    return op->emitOpError("needs [b, c, s, i] and [b, c, p, i], and [b, t, p] of weights");
  if (shapeOf(indices) != w)
    return op->emitOpError("needs an index for each weight");
  if (x[2] < 1)
    return op->emitOpError("reads from a dimension without elements");
  if (elementTypeOf(from) != elementTypeOf(to) || elementTypeOf(weights) != sumTypeOf(from))
    return op->emitOpError("needs one element type, and weights of f64 for f64, else of f32");
  return success();
}
LogicalResult SampleOp::verify() { return verifySampling(*this, getInput(), getResult(), getIndices(), getWeights()); }
LogicalResult SpreadOp::verify() {
  return verifySampling(*this, getResult(), getUpdates(), getIndices(), getWeights());
}
LogicalResult SampleWeightGradOp::verify() {
  return verifySampling(*this, getInput(), getGrad(), getIndices(), getResult());
}

double SampleOp::getFlops() { return samplingOf(*this).flops(); }
double SpreadOp::getFlops() { return samplingOf(*this).flops(); }
double SampleWeightGradOp::getFlops() { return samplingOf(*this).flops(); }

//===----------------------------------------------------------------------===//
// Evaluators: one walk over all products
//===----------------------------------------------------------------------===//

/// Calls `product` with the linear indices of each element, sum and weight that go together.
static void forEachTap(const Sampling &s, const HostTensor &indices,
                       llvm::function_ref<void(int64_t from, int64_t to, int64_t tap)> product) {
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t t = 0; t < s.taps; ++t)
      for (int64_t p = 0; p < s.points; ++p) {
        int64_t tap = s.tap(b, t, p), index = indices.getInt(tap);
        if (index < 0 || index >= s.size)
          continue;
        for (int64_t c = 0; c < s.channels; ++c)
          for (int64_t i = 0; i < s.inner; ++i)
            product(s.from(b, c, index, i), s.to(b, c, p, i), tap);
      }
}
static void store(const std::vector<double> &sums, HostTensor &result) {
  for (int64_t i = 0; i < result.size(); ++i)
    result.setDouble(i, sums[i]);
}
void SampleOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  std::vector<double> sums(results[0].size());
  forEachTap(samplingOf(*this), operands[1], [&](int64_t from, int64_t to, int64_t tap) {
    sums[to] += operands[0].getDouble(from) * operands[2].getDouble(tap);
  });
  store(sums, results[0]);
}
void SpreadOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  std::vector<double> sums(results[0].size());
  forEachTap(samplingOf(*this), operands[1], [&](int64_t from, int64_t to, int64_t tap) {
    sums[from] += operands[0].getDouble(to) * operands[2].getDouble(tap);
  });
  store(sums, results[0]);
}
void SampleWeightGradOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  std::vector<double> sums(results[0].size());
  forEachTap(samplingOf(*this), operands[1], [&](int64_t from, int64_t to, int64_t tap) {
    sums[tap] += operands[0].getDouble(from) * operands[2].getDouble(to);
  });
  store(sums, results[0]);
}

//===----------------------------------------------------------------------===//
// Scalar programs
//===----------------------------------------------------------------------===//
AffineMap SampleOp::getOperandMap(unsigned) { return {}; }
AffineMap SampleWeightGradOp::getOperandMap(unsigned) { return {}; }

/// The index at `coords` as a coordinate. An index that all lanes share stays a scalar, so that their elements are read
/// together.
static Coord placeAt(ElementBuilder &builder, llvm::ArrayRef<Coord> coords, Type element) {
  Value index = builder.operand(1, coords);
  bool shared = llvm::all_of(coords, [](const Coord &coord) { return !coord.lanes && coord.laneStride == 0; });
  if (shared && isa<VectorType>(index.getType()))
    index = vector::ExtractOp::create(builder.builder, builder.loc, index, 0);
  auto vector = dyn_cast<VectorType>(index.getType());
  Type i64 = builder.builder.getI64Type(), wide = vector ? Type(VectorType::get(vector.getShape(), i64)) : i64;
  if (index.getType() != wide && element.isUnsignedInteger())
    index = arith::ExtUIOp::create(builder.builder, builder.loc, wide, index);
  return builder.coordFromValue(index);
}

Value SampleOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  Sampling s = samplingOf(*this);
  Value zero = builder.constant(sumTypeOf(getInput()), 0);
  return loopNest(builder, {s.taps}, zero, [&](ValueRange counters, ValueRange carried) -> llvm::SmallVector<Value> {
    llvm::SmallVector<Coord> tap = {coords[0], builder.uniform(counters[0]), coords[2]};
    Coord place = placeAt(builder, tap, elementTypeOf(getIndices()));
    Value w = builder.operand(2, tap);
    Value inside = builder.inBounds(place, s.size);
    Value x = builder.operandIf(0, {coords[0], coords[1], place, coords[3]}, inside, zero);
    return {multiplyAddInside(builder, w, x, carried[0], inside)};
  })[0];
}

Value SampleWeightGradOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  Sampling s = samplingOf(*this);
  Value zero = builder.constant(sumTypeOf(getInput()), 0);
  Coord place = placeAt(builder, coords, elementTypeOf(getIndices()));
  Value inside = builder.inBounds(place, s.size);
  return loopNest(builder, {s.channels, s.inner}, zero,
                  [&](ValueRange counters, ValueRange carried) -> llvm::SmallVector<Value> {
                    Coord channel = builder.uniform(counters[0]), inner = builder.uniform(counters[1]);
                    Value x = builder.operandIf(0, {coords[0], channel, place, inner}, inside, zero);
                    Value g = builder.operand(2, {coords[0], channel, coords[2], inner});
                    return {multiplyAddInside(builder, x, g, carried[0], inside)};
                  })[0];
}

/// Columns of one tile. A tile processes all places in order, so that sums do not depend on parallelism.
static constexpr int64_t kSpreadColumns = 64;

int64_t SpreadOp::getTileCount() {
  Sampling s = samplingOf(*this);
  return s.batch * s.channels * llvm::divideCeil(s.inner, kSpreadColumns);
}

void SpreadOp::emitTile(LoopBuilder &loops, Value tile) {
  OpBuilder &b = loops.builder;
  Location loc = loops.loc;
  Sampling s = samplingOf(*this);
  Type element = elementTypeOf(getResult()), indexElement = elementTypeOf(getIndices());
  Type sum = laneTypeOf(element, 1);
  int64_t blocks = llvm::divideCeil(s.inner, kSpreadColumns), lanes = s.inner == 1 ? 1 : loops.lanes(element);
  auto plus = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, loc, x, y); };
  auto times = [&](Value x, int64_t y) -> Value { return arith::MulIOp::create(b, loc, x, loops.index(y)); };
  auto repeated = [&](Value x) -> Value {
    return lanes == 1 ? x : vector::BroadcastOp::create(b, loc, VectorType::get({lanes}, x.getType()), x).getResult();
  };
  auto remaining = [&](Value column, Value end) -> Value {
    return lanes == 1 ? Value() : arith::SubIOp::create(b, loc, end, column).getResult();
  };
  Value plane = arith::DivUIOp::create(b, loc, tile, loops.index(blocks));
  Value sample = arith::DivUIOp::create(b, loc, plane, loops.index(s.channels));
  Value begin = times(arith::RemUIOp::create(b, loc, tile, loops.index(blocks)), kSpreadColumns);
  Value end = arith::MinSIOp::create(b, loc, plus(begin, loops.index(kSpreadColumns)), loops.index(s.inner));
  Value zero = repeated(arith::ConstantOp::create(b, loc, b.getFloatAttr(sum, 0)));
  Value none = loops.index(0);
  loops.loop(none, loops.index(s.size), 1, {}, [&](Value row, ValueRange) -> llvm::SmallVector<Value> {
    Value target = times(plus(times(plane, s.size), row), s.inner);
    loops.loop(begin, end, lanes, {}, [&](Value column, ValueRange) -> llvm::SmallVector<Value> {
      loops.store(0, plus(target, column), zero, remaining(column, end));
      return {};
    });
    return {};
  });
  loops.loop(none, loops.index(s.taps), 1, {}, [&](Value t, ValueRange) -> llvm::SmallVector<Value> {
    loops.loop(none, loops.index(s.points), 1, {}, [&](Value p, ValueRange) -> llvm::SmallVector<Value> {
      Value tap = plus(times(plus(times(sample, s.taps), t), s.points), p), index = loops.load(1, tap);
      Value weight = loops.load(2, tap);
      if (!index.getType().isInteger(64))
        index = indexElement.isUnsignedInteger() ? arith::ExtUIOp::create(b, loc, b.getI64Type(), index).getResult()
                                                 : arith::ExtSIOp::create(b, loc, b.getI64Type(), index).getResult();
      // An index outside is clamped, and adds nothing.
      Value kept = arith::MinSIOp::create(b, loc, arith::MaxSIOp::create(b, loc, index, none), loops.index(s.size - 1));
      Value inside = repeated(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, kept, index));
      Value target = times(plus(times(plane, s.size), kept), s.inner),
            source = times(plus(times(plane, s.points), p), s.inner);
      loops.loop(begin, end, lanes, {}, [&](Value column, ValueRange) -> llvm::SmallVector<Value> {
        Value active = remaining(column, end);
        Value old = loops.loadResult(0, plus(target, column), lanes, active);
        Value update = loops.load(0, plus(source, column), lanes, active);
        Value added = math::FmaOp::create(b, loc, repeated(weight), update, old);
        loops.store(0, plus(target, column), arith::SelectOp::create(b, loc, inside, added, old), active);
        return {};
      });
      return {};
    });
    return {};
  });
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//
namespace {
/// Builds the three ops for one table.
struct Sampler {
  OpBuilder &builder;
  Location loc;
  Value indices;

  Value sample(Value like, Value x, Value weights) const {
    return SampleOp::create(builder, loc, like.getType(), x, indices, weights);
  }
  Value spread(Value like, Value g, Value weights) const;
  Value weights(Value like, Value x, Value g) const {
    return SampleWeightGradOp::create(builder, loc, like.getType(), x, indices, g);
  }
};
} // namespace

/// The transposed table, which lists for each element the sums that read it. Null if the table is not constant, or so
/// uneven that most of the transposed one would be empty.
static std::pair<Value, Value> transposedTable(OpBuilder &builder, Location loc, Value indices, Value weights,
                                               int64_t size) {
  auto knownIndices = indices.getDefiningOp<ConstantOp>(), knownWeights = weights.getDefiningOp<ConstantOp>();
  if (!knownIndices || !knownWeights)
    return {};
  HostTensor places = HostTensor::fromAttribute(knownIndices.getValue()),
             w = HostTensor::fromAttribute(knownWeights.getValue());
  int64_t batch = places.shape()[0], taps = places.shape()[1], points = places.shape()[2], most = 1;
  std::vector<std::vector<std::pair<int64_t, double>>> readers(batch * size);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t p = 0; p < points; ++p) {
        int64_t tap = (b * taps + t) * points + p, index = places.getInt(tap);
        if (index < 0 || index >= size || w.getDouble(tap) == 0)
          continue;
        auto &list = readers[b * size + index];
        list.emplace_back(p, w.getDouble(tap));
        most = std::max<int64_t>(most, int64_t(list.size()));
      }
  if (most * size * batch > 4 * places.size() + 64)
    return {};
  HostTensor from(RankedTensorType::get({batch, most, size}, builder.getI32Type()));
  HostTensor by(RankedTensorType::get(from.shape(), w.elementType()));
  for (int64_t i = 0; i < from.size(); ++i)
    from.setInt(i, -1);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 0; s < size; ++s)
      for (auto [t, reader] : llvm::enumerate(readers[b * size + s])) {
        from.setInt((b * most + int64_t(t)) * size + s, reader.first);
        by.setDouble((b * most + int64_t(t)) * size + s, reader.second);
      }
  return {ConstantOp::create(builder, loc, from.toAttribute()), ConstantOp::create(builder, loc, by.toAttribute())};
}

/// Accumulates 16-bit sums in f32.
Value Sampler::spread(Value like, Value g, Value weights) const {
  if (auto [places, by] = transposedTable(builder, loc, indices, weights, shapeOf(like)[2]); places)
    return SampleOp::create(builder, loc, like.getType(), g, places, by);
  Type inner = sumTypeOf(g);
  Value sums = SpreadOp::create(builder, loc, RankedTensorType::get(shapeOf(like), inner),
                                train::cast(builder, loc, g, inner), indices, weights);
  return train::cast(builder, loc, sums, elementTypeOf(like));
}

/// dx = spread(g, w), dw = sample_weight_grad(x, g)
void SampleOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                             llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(3);
  Value g = resultGradients[0];
  if (!g)
    return;
  Sampler sampler{builder, getLoc(), getIndices()};
  operandGradients[0] = sampler.spread(getInput(), g, getWeights());
  operandGradients[2] = sampler.weights(getWeights(), getInput(), g);
}
/// Of spread(y, w) with gradient g (shaped as x): dy = sample(g, w), dw = sample_weight_grad(g, y)
void SpreadOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                             llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(3);
  Value g = resultGradients[0];
  if (!g)
    return;
  Sampler sampler{builder, getLoc(), getIndices()};
  operandGradients[0] = sampler.sample(getUpdates(), g, getWeights());
  operandGradients[2] = sampler.weights(getWeights(), g, getUpdates());
}
/// Of sample_weight_grad(x, y) with gradient g (shaped as w): dx = spread(y, g), dy = sample(x, g)
void SampleWeightGradOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                       llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(3);
  Value g = resultGradients[0];
  if (!g)
    return;
  Sampler sampler{builder, getLoc(), getIndices()};
  operandGradients[0] = sampler.spread(getInput(), getGrad(), g);
  operandGradients[2] = sampler.sample(getGrad(), getInput(), g);
}

} // namespace tcc::train

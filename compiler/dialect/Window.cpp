//===- Window.cpp - loops over sliding windows -----------------------------===//
#include "compiler/dialect/Window.h"

#include "compiler/dialect/Verify.h"

#include <functional>

using namespace mlir;

namespace tcc::train {

bool Window::input(llvm::ArrayRef<int64_t> q, llvm::ArrayRef<int64_t> k, llvm::ArrayRef<int64_t> extents,
                   llvm::SmallVectorImpl<int64_t> &in) const {
  in.clear();
  for (size_t d = 0; d < rank(); ++d) {
    in.push_back(input(d, q[d], k[d]));
    if (in.back() < 0 || in.back() >= extents[d])
      return false;
  }
  return true;
}

static Value both(ElementBuilder &builder, Value x, Value y) {
  return x ? arith::AndIOp::create(builder.builder, builder.loc, x, y).getResult() : y;
}

WindowElement inputsOf(ElementBuilder &builder, const Window &window, llvm::ArrayRef<Coord> q, ValueRange k,
                       llvm::ArrayRef<int64_t> kernel, llvm::ArrayRef<int64_t> inputs,
                       llvm::ArrayRef<int64_t> outputs) {
  WindowElement element;
  for (size_t d = 0; d < window.rank(); ++d) {
    Coord in = builder.add(builder.affine(q[d], window.strides[d], -window.pads[d]),
                           builder.affine(builder.uniform(k[d]), window.dilations[d], 0));
    element.coords.push_back(in);
    if (window.pads[d] > 0 || window.input(d, outputs[d] - 1, kernel[d] - 1) >= inputs[d])
      element.inside = both(builder, element.inside, builder.inBounds(in, inputs[d]));
  }
  return element;
}

WindowElement outputsOf(ElementBuilder &builder, const Window &window, llvm::ArrayRef<Coord> in, ValueRange k,
                        llvm::ArrayRef<int64_t> outputs) {
  WindowElement element;
  for (size_t d = 0; d < window.rank(); ++d) {
    int64_t stride = window.strides[d];
    Coord scaled = builder.add(builder.affine(in[d], 1, window.pads[d]),
                               builder.affine(builder.uniform(k[d]), -window.dilations[d], 0));
    Value inside = builder.inBounds(scaled, (outputs[d] - 1) * stride + 1);
    if (stride > 1) {
      // A window starts here only if the distance is a multiple of the stride.
      Coord q = digitOf(builder, scaled, stride, 0);
      Lane back(builder, builder.coordValue(builder.affine(q, stride, 0)));
      inside = both(builder, inside, equal(back, back.with(builder.coordValue(scaled))));
      scaled = q;
    }
    element.coords.push_back(scaled);
    element.inside = both(builder, element.inside, inside);
  }
  return element;
}

static bool isUniform(ElementBuilder &builder, const Coord &coord) {
  return !coord.lanes && (builder.lanes() == 1 || coord.laneStride == 0);
}
/// The same coordinate without a lane stride: one value if it is uniform, else a value for each lane.
static Coord withoutStride(ElementBuilder &builder, const Coord &coord) {
  return isUniform(builder, coord) ? builder.uniform(coord.base) : Coord{nullptr, 0, builder.coordValue(coord)};
}
static Value valueOf(const Coord &coord) { return coord.lanes ? coord.lanes : coord.base; }
static Coord withValue(const Coord &coord, Value value) {
  return coord.lanes ? Coord{nullptr, 0, value} : Coord{value, 0, nullptr};
}

Coord clampCoord(ElementBuilder &builder, const Coord &coord, int64_t size) {
  Coord at = withoutStride(builder, coord), zero = builder.uniform(int64_t(0)), last = builder.uniform(size - 1);
  auto like = [&](const Coord &bound) { return at.lanes ? builder.splat(bound.base) : bound.base; };
  Value value = arith::MaxSIOp::create(builder.builder, builder.loc, valueOf(at), like(zero));
  return withValue(at, arith::MinSIOp::create(builder.builder, builder.loc, value, like(last)));
}

Value offsetInWindow(ElementBuilder &builder, llvm::ArrayRef<Coord> offsets, llvm::ArrayRef<int64_t> kernel) {
  Coord flat = builder.uniform(int64_t(0));
  for (auto [offset, extent] : llvm::zip_equal(offsets, kernel))
    flat = builder.add(builder.affine(flat, extent, 0), offset);
  flat = withoutStride(builder, flat);
  Type i32 = builder.builder.getI32Type();
  Type type = flat.lanes ? builder.laneType(i32) : i32;
  return builder.splat(arith::TruncIOp::create(builder.builder, builder.loc, type, valueOf(flat)));
}

llvm::SmallVector<int64_t> mostWindowsOfInput(const Window &window, llvm::ArrayRef<int64_t> kernel) {
  llvm::SmallVector<int64_t> counts(kernel);
  for (size_t d = 0; d < window.rank(); ++d)
    if (window.dilations[d] == 1)
      counts[d] = (kernel[d] + window.strides[d] - 1) / window.strides[d];
  return counts;
}

HoldingWindow windowOfInput(ElementBuilder &builder, const Window &window, llvm::ArrayRef<Coord> in, ValueRange number,
                            llvm::ArrayRef<int64_t> kernel, llvm::ArrayRef<int64_t> outputs) {
  HoldingWindow holding;
  llvm::SmallVector<Value> conditions;
  auto compare = [&](arith::CmpIPredicate predicate, const Coord &coord, const Coord &bound) {
    Value right = coord.lanes && !bound.lanes ? builder.splat(bound.base) : valueOf(bound);
    conditions.push_back(arith::CmpIOp::create(builder.builder, builder.loc, predicate, valueOf(coord), right));
  };
  holding.uniform = llvm::all_of(in, [&](const Coord &coord) { return isUniform(builder, coord); });
  for (size_t d = 0; d < window.rank(); ++d) {
    int64_t stride = window.strides[d], dilation = window.dilations[d];
    Coord position = builder.affine(in[d], 1, window.pads[d]), counter = builder.uniform(number[d]), start, offset;
    if (dilation == 1) {
      // Count back from the last window that begins at or before the input.
      Coord last = withoutStride(builder, stride > 1 ? digitOf(builder, position, stride, 0) : position);
      start = builder.add(last, builder.affine(counter, -1, 0));
      offset = withoutStride(builder, builder.add(position, builder.affine(start, -stride, 0)));
      if (kernel[d] % stride != 0)
        compare(arith::CmpIPredicate::slt, offset, builder.uniform(kernel[d]));
    } else {
      // A window has the input at this offset only if their distance is a multiple of the stride.
      offset = counter;
      Coord distance = withoutStride(builder, builder.add(position, builder.affine(counter, -dilation, 0)));
      compare(arith::CmpIPredicate::sge, distance, builder.uniform(int64_t(0)));
      start = digitOf(builder, distance, stride, 0);
      if (stride > 1)
        compare(arith::CmpIPredicate::eq, builder.affine(start, stride, 0), distance);
    }
    Coord clamped = clampCoord(builder, start, outputs[d]);
    compare(arith::CmpIPredicate::eq, clamped, withoutStride(builder, start));
    holding.coords.push_back(clamped);
    holding.offsets.push_back(offset);
  }
  for (Value condition : conditions)
    holding.inside = both(builder, holding.inside, holding.uniform ? condition : builder.splat(condition));
  return holding;
}

Value operandInside(ElementBuilder &builder, unsigned operand, llvm::ArrayRef<Coord> coords, Value inside,
                    Value otherwise) {
  return inside ? builder.operandIf(operand, coords, inside, otherwise) : builder.operand(operand, coords);
}

llvm::SmallVector<Value> loopNest(ElementBuilder &builder, llvm::ArrayRef<int64_t> extents, ValueRange inits,
                                  llvm::function_ref<llvm::SmallVector<Value>(ValueRange, ValueRange)> body) {
  llvm::SmallVector<Value> counters;
  std::function<llvm::SmallVector<Value>(ValueRange)> nest = [&](ValueRange carried) -> llvm::SmallVector<Value> {
    if (counters.size() == extents.size())
      return body(counters, carried);
    return builder.loop(0, extents[counters.size()], carried, [&](Value i, ValueRange inner) {
      counters.push_back(i);
      llvm::SmallVector<Value> next = nest(inner);
      counters.pop_back();
      return next;
    });
  };
  return nest(inits);
}

llvm::SmallVector<Value> unrolledNest(ElementBuilder &builder, llvm::ArrayRef<int64_t> extents, ValueRange inits,
                                      llvm::function_ref<llvm::SmallVector<Value>(ValueRange, ValueRange)> body) {
  constexpr int64_t kMostRounds = 16;
  int64_t rounds = 1;
  for (int64_t extent : extents)
    rounds *= extent;
  if (rounds > kMostRounds)
    return loopNest(builder, extents, inits, body);
  llvm::SmallVector<Value> carried(inits);
  for (int64_t round = 0; round < rounds; ++round) {
    llvm::SmallVector<Value> counters;
    for (int64_t counter : unravel(round, extents))
      counters.push_back(builder.uniform(counter).base);
    carried = body(counters, carried);
  }
  return carried;
}

} // namespace tcc::train

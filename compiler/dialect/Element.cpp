//===- Element.cpp - how ops describe one element to a loop nest -*- C++ -*-===//
#include "compiler/dialect/Element.h"
#include "compiler/dialect/Verify.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

namespace tcc::train {

/// The type in which an element type is computed: f32 for 16-bit floats, signless integers for unsigned ones.
static Type computeType(Type element) {
  if (element.isF16() || element.isBF16())
    return Float32Type::get(element.getContext());
  if (auto integer = dyn_cast<IntegerType>(element))
    return IntegerType::get(element.getContext(), integer.getWidth());
  return element;
}

static Value constantOf(OpBuilder &builder, Location loc, Type type, Attribute scalar) {
  if (auto vector = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(vector, scalar));
  return arith::ConstantOp::create(builder, loc, cast<TypedAttr>(scalar));
}

Type laneTypeOf(Type element, int64_t lanes) {
  Type type = computeType(element);
  return lanes == 1 ? type : VectorType::get({lanes}, type);
}

Type ElementBuilder::laneType(Type element) const { return laneTypeOf(element, lanes()); }

Value ElementBuilder::floatConstant(Type element, double value) {
  return constantOf(builder, loc, laneType(element), builder.getFloatAttr(computeType(element), value));
}

Value ElementBuilder::intConstant(Type element, int64_t value) {
  auto type = cast<IntegerType>(computeType(element));
  llvm::APInt bits(type.getWidth(), value, /*isSigned=*/true, /*implicitTrunc=*/true);
  return constantOf(builder, loc, laneType(element), builder.getIntegerAttr(type, bits));
}

Value ElementBuilder::constant(Type element, double value) {
  return isa<FloatType>(element) ? floatConstant(element, value) : intConstant(element, int64_t(value));
}

Value ElementBuilder::splat(Value scalar) {
  if (lanes() == 1 || isa<VectorType>(scalar.getType()))
    return scalar;
  return vector::BroadcastOp::create(builder, loc, VectorType::get({lanes()}, scalar.getType()), scalar);
}

static Value indexConstant(OpBuilder &builder, Location loc, int64_t value) {
  return arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(value));
}

Coord ElementBuilder::uniform(int64_t value) { return Coord{indexConstant(builder, loc, value), 0, nullptr}; }
Coord ElementBuilder::uniform(Value i64) { return Coord{i64, 0, nullptr}; }

Value ElementBuilder::coordValue(const Coord &coord) {
  if (coord.lanes)
    return coord.lanes;
  Value base = splat(coord.base);
  if (lanes() == 1 || coord.laneStride == 0)
    return base;
  llvm::SmallVector<int64_t> offsets;
  for (int64_t lane = 0; lane < lanes(); ++lane)
    offsets.push_back(lane * coord.laneStride);
  auto type = VectorType::get({lanes()}, builder.getI64Type());
  Value steps = arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, llvm::ArrayRef<int64_t>(offsets)));
  return arith::AddIOp::create(builder, loc, base, steps);
}

Coord ElementBuilder::coordFromValue(Value integer) {
  Type i64 = builder.getI64Type();
  auto vector = dyn_cast<VectorType>(integer.getType());
  Type wide = vector ? Type(VectorType::get(vector.getShape(), i64)) : i64;
  if (integer.getType() != wide)
    integer = arith::ExtSIOp::create(builder, loc, wide, integer);
  return vector ? Coord{nullptr, 0, integer} : Coord{integer, 0, nullptr};
}

Coord ElementBuilder::affine(const Coord &coord, int64_t scale, int64_t offset) {
  Coord result = coord;
  Value &value = coord.lanes ? result.lanes : result.base;
  auto constant = [&](int64_t number) {
    return coord.lanes ? intConstant(builder.getI64Type(), number) : indexConstant(builder, loc, number);
  };
  if (scale != 1)
    value = arith::MulIOp::create(builder, loc, value, constant(scale));
  if (offset != 0)
    value = arith::AddIOp::create(builder, loc, value, constant(offset));
  result.laneStride *= scale;
  return result;
}

Coord ElementBuilder::add(const Coord &left, const Coord &right) {
  if (left.lanes || right.lanes)
    return Coord{nullptr, 0, arith::AddIOp::create(builder, loc, coordValue(left), coordValue(right))};
  return Coord{arith::AddIOp::create(builder, loc, left.base, right.base), left.laneStride + right.laneStride, nullptr};
}

Value ElementBuilder::inBounds(const Coord &coord, int64_t size) {
  // One unsigned comparison suffices: negative coordinates become huge.
  bool perLane = coord.lanes || (lanes() != 1 && coord.laneStride != 0);
  Value value = perLane ? coordValue(coord) : coord.base;
  Value limit = perLane ? intConstant(builder.getI64Type(), size) : indexConstant(builder, loc, size);
  return splat(arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, value, limit));
}

Coord digitOf(ElementBuilder &b, const Coord &coord, int64_t divisor, int64_t modulus) {
  bool perLane = coord.lanes || (b.lanes() != 1 && coord.laneStride != 0);
  Value value = perLane ? b.coordValue(coord) : coord.base;
  auto constant = [&](int64_t number) {
    return perLane ? b.intConstant(b.builder.getI64Type(), number) : indexConstant(b.builder, b.loc, number);
  };
  if (divisor > 1)
    value = arith::DivUIOp::create(b.builder, b.loc, value, constant(divisor));
  if (modulus > 0)
    value = arith::RemUIOp::create(b.builder, b.loc, value, constant(modulus));
  return perLane ? Coord{nullptr, 0, value} : Coord{value, 0, nullptr};
}

Value LoopBuilder::index(int64_t value) { return indexConstant(builder, loc, value); }

} // namespace tcc::train

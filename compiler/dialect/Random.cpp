//===- Random.cpp - counter-based random numbers ----------------*- C++ -*-===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/ElementwiseMath.h"
#include "compiler/dialect/PhiloxLanes.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {

namespace {

constexpr int64_t kKeyWords = 4;
constexpr double kTwoPi = 6.283185307179586476925;

/// Bits of a uniform number in [0, 1): those of the significand, with the hidden one.
int significandBits(Type element) { return element.isF64() ? 53 : element.isF32() ? 24 : element.isF16() ? 11 : 8; }
/// Bits of each of the two uniform numbers of a normal one.
int normalBits(Type element) { return element.isF64() ? 53 : 24; }

/// A number in [0, 1) with `bits` bits, from two words (of which 32 bits and less use the first).
double unitOf(uint32_t high, uint32_t low, int bits) {
  uint64_t word = bits > 32 ? (uint64_t(high) << 32 | low) >> (64 - bits) : high >> (32 - bits);
  return std::ldexp(double(word), -bits);
}

/// unitOf() on lanes, in f64 or f32.
Lane emitUnit(Lane high, Lane low, int bits, bool wide) {
  ElementBuilder &b = *high.b;
  Type type = wide ? Type(b.builder.getF64Type()) : Type(b.builder.getF32Type());
  Lane word = bits > 32 ? (high.shiftLeft(32) | low).shiftRightUnsigned(64 - bits) : high.shiftRightUnsigned(32 - bits);
  if (!wide) // 32 bits convert faster
    word = word.make<arith::TruncIOp>(b.laneType(b.builder.getI32Type()), word.value);
  Lane number = word.make<arith::SIToFPOp>(b.laneType(type), word.value);
  return number * number.like(std::ldexp(1.0, -bits));
}

} // namespace

LogicalResult RandomOp::verify() {
  if (shapeOf(getKey()) != llvm::ArrayRef<int64_t>{kKeyWords})
    return emitOpError("needs a key of ") << kKeyWords << " words";
  Type element = elementTypeOf(getResult());
  if (getKind() == RandomKind::bits ? !element.isUnsignedInteger(32) : !isa<FloatType>(element))
    return emitOpError("draws bits as ui32, and numbers as floats");
  return success();
}

double RandomOp::getFlops() {
  return tensorTypeOf(getResult()).getNumElements() * (getKind() == RandomKind::normal ? 120.0 : 60.0);
}
/// Drawing again costs about as much as reading, and needs no memory between forward and backward.
bool RandomOp::isCheapToRecompute() { return true; }

void RandomOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  auto word = [&](int64_t i) { return uint32_t(operands[0].getInt(i)); };
  uint64_t id = uint64_t(getId());
  Type element = elementTypeOf(getResult());
  for (int64_t i = 0; i < results[0].size(); ++i) {
    auto [a, b, c, d] = philox({uint32_t(i), uint32_t(uint64_t(i) >> 32), word(2), word(3)},
                               {word(0) ^ uint32_t(id), word(1) ^ uint32_t(id >> 32)});
    if (getKind() == RandomKind::bits) {
      results[0].setInt(i, a);
    } else if (getKind() == RandomKind::uniform) {
      results[0].setDouble(i, unitOf(a, b, significandBits(element)));
    } else {
      bool wide = element.isF64();
      double u = unitOf(a, b, normalBits(element)), v = wide ? unitOf(c, d, 53) : unitOf(b, c, normalBits(element));
      results[0].setDouble(i, std::sqrt(-2 * std::log(1 - u)) * std::cos(kTwoPi * v));
    }
  }
}

AffineMap RandomOp::getOperandMap(unsigned) { return {}; }

Value RandomOp::emitElement(ElementBuilder &b, unsigned, llvm::ArrayRef<Coord> coords) {
  Type i64 = b.builder.getI64Type(), element = elementTypeOf(getResult());
  Coord index = b.uniform(int64_t(0));
  for (auto [extent, coord] : llvm::zip_equal(shapeOf(getResult()), coords))
    index = b.add(b.affine(index, extent, 0), coord);
  auto word = [&](int64_t i) {
    Lane stored(b, b.operand(0, {b.uniform(i)}));
    return stored.make<arith::ExtUIOp>(b.laneType(i64), stored.value);
  };
  Lane position(b, b.coordValue(index));
  PhiloxLanes words = emitPhilox(position, {word(0), word(1), word(2), word(3)}, uint64_t(getId()));
  if (getKind() == RandomKind::bits)
    return words[0].make<arith::TruncIOp>(b.laneType(b.builder.getI32Type()), words[0].value);
  bool wide = element.isF64();
  if (getKind() == RandomKind::uniform)
    return emitUnit(words[0], words[1], significandBits(element), wide);
  Lane u = emitUnit(words[0], words[1], normalBits(element), wide);
  Lane v = wide ? emitUnit(words[2], words[3], normalBits(element), wide)
                : emitUnit(words[1], words[2], normalBits(element), wide);
  Lane logarithm = u.with(emitLog(b, u.like(1) - u)), cosine = u.with(emitCos(b, v * v.like(kTwoPi)));
  return (u.like(-2) * logarithm).sqrt() * cosine;
}

} // namespace tcc::train

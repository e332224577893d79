//===- EmitInteger.cpp - integers, bits and bytes (9.7.1, 9.7.2, 9.7.8) --===//
#include "test/emulation/ptx/Emitter.h"

using namespace llvm;

namespace tcc::emulation::ptx {

/// add, sub and their forms with a carry, which LLVM uses for 128-bit integers.
void Emitter::carryOp(bool subtraction) {
  bool takes = now->opcode.ends_with("c"), gives = has("cc");
  ScalarType t = type();
  if (t.isFloat())
    refuse("a carry belongs to integers");
  Value *a = in(1, t.bits), *b = in(2, t.bits);
  Intrinsic::ID id = subtraction ? Intrinsic::usub_with_overflow : Intrinsic::uadd_with_overflow;
  Value *first = builder.CreateIntrinsic(id, {a->getType()}, {a, b});
  Value *result = builder.CreateExtractValue(first, 0), *overflow = builder.CreateExtractValue(first, 1);
  if (takes) {
    Value *carried = builder.CreateZExt(builder.CreateLoad(builder.getInt1Ty(), carry), a->getType());
    Value *second = builder.CreateIntrinsic(id, {a->getType()}, {result, carried});
    result = builder.CreateExtractValue(second, 0);
    overflow = builder.CreateOr(overflow, builder.CreateExtractValue(second, 1));
  }
  if (gives)
    builder.CreateStore(overflow, carry);
  out(result);
}

/// An integer operand as a scalar, or as a vector of two lanes.
Value *Emitter::inLanes(size_t operand, const ScalarType &t) {
  Value *bits = in(operand, t.wholeBits());
  return t.lanes == 1 ? bits : builder.CreateBitCast(bits, FixedVectorType::get(intType(t.bits), t.lanes));
}

void Emitter::outLanes(const ScalarType &t, Value *value) {
  out(t.lanes == 1 ? value : builder.CreateBitCast(value, intType(t.wholeBits())));
}

void Emitter::add() {
  expectOperands(3);
  bool carries =
      now->opcode == "addc" || std::find(now->suffixes.begin(), now->suffixes.end(), "cc") != now->suffixes.end();
  if (carries)
    return carryOp(false);
  ScalarType t = type();
  if (t.isFloat())
    return floatArithmetic(t);
  outLanes(t, builder.CreateAdd(inLanes(1, t), inLanes(2, t)));
}

void Emitter::subtract() {
  expectOperands(3);
  bool carries =
      now->opcode == "subc" || std::find(now->suffixes.begin(), now->suffixes.end(), "cc") != now->suffixes.end();
  if (carries)
    return carryOp(true);
  ScalarType t = type();
  if (t.isFloat())
    return floatArithmetic(t);
  out(builder.CreateSub(in(1, t.bits), in(2, t.bits)));
}

void Emitter::multiply() {
  expectOperands(3);
  bool low = has("lo"), high = has("hi"), wide = has("wide");
  ScalarType t = type();
  if (t.isFloat())
    return floatArithmetic(t);
  if (low + high + wide != 1)
    refuse("an integer product says .lo, .hi or .wide");
  if (low)
    return out(builder.CreateMul(in(1, t.bits), in(2, t.bits)));
  auto *twice = intType(2 * t.bits);
  auto extend = [&](Value *v) { return t.isSigned() ? builder.CreateSExt(v, twice) : builder.CreateZExt(v, twice); };
  Value *product = builder.CreateMul(extend(in(1, t.bits)), extend(in(2, t.bits)));
  if (high)
    product = builder.CreateTrunc(builder.CreateLShr(product, t.bits), intType(t.bits));
  out(product);
}

void Emitter::multiplyAdd() {
  expectOperands(4);
  bool low = has("lo"), high = has("hi"), wide = has("wide");
  ScalarType t = type();
  if (t.isFloat())
    refuse("whether mad rounds once is left open; fma.rn says that it does");
  if (low + high + wide != 1)
    refuse("an integer product says .lo, .hi or .wide");
  if (low)
    return out(builder.CreateAdd(builder.CreateMul(in(1, t.bits), in(2, t.bits)), in(3, t.bits)));
  auto *twice = intType(2 * t.bits);
  auto extend = [&](Value *v) { return t.isSigned() ? builder.CreateSExt(v, twice) : builder.CreateZExt(v, twice); };
  Value *product = builder.CreateMul(extend(in(1, t.bits)), extend(in(2, t.bits)));
  if (wide)
    return out(builder.CreateAdd(product, in(3, 2 * t.bits)));
  product = builder.CreateTrunc(builder.CreateLShr(product, t.bits), intType(t.bits));
  out(builder.CreateAdd(product, in(3, t.bits)));
}

/// A divisor of 0 is a fault in checked mode; in fast mode the result is an arbitrary value.
Value *Emitter::checkDivisor(Value *divisor) {
  Value *zero = builder.CreateIsNull(divisor);
  if (outside.checked) {
    BasicBlock *then = BasicBlock::Create(context, "", function), *after = BasicBlock::Create(context, "", function);
    builder.CreateCondBr(zero, then, after);
    builder.SetInsertPoint(then);
    call("tccEmulationDivisionByZero", builder.getVoidTy(), {thread, site()});
    builder.CreateBr(after);
    builder.SetInsertPoint(after);
  }
  return builder.CreateSelect(zero, ConstantInt::get(divisor->getType(), 1), divisor);
}

void Emitter::divide() {
  expectOperands(3);
  ScalarType t = type();
  if (t.isFloat())
    return floatArithmetic(t);
  Value *a = in(1, t.bits), *b = checkDivisor(in(2, t.bits));
  if (!t.isSigned())
    return out(builder.CreateUDiv(a, b));
  // The least number divided by −1 wraps around; x86 would trap.
  Value *minusOne = builder.CreateICmpEQ(b, Constant::getAllOnesValue(b->getType()));
  Value *quotient = builder.CreateSDiv(a, builder.CreateSelect(minusOne, ConstantInt::get(b->getType(), 1), b));
  out(builder.CreateSelect(minusOne, builder.CreateNeg(a), quotient));
}

void Emitter::remainder() {
  expectOperands(3);
  ScalarType t = type();
  Value *a = in(1, t.bits), *b = checkDivisor(in(2, t.bits));
  if (!t.isSigned())
    return out(builder.CreateURem(a, b));
  Value *minusOne = builder.CreateICmpEQ(b, Constant::getAllOnesValue(b->getType()));
  out(builder.CreateSRem(a, builder.CreateSelect(minusOne, ConstantInt::get(b->getType(), 1), b)));
}

void Emitter::minimumMaximum() {
  expectOperands(3);
  bool least = now->opcode == "min";
  bool nan = has("NaN");
  ScalarType t = type();
  if (t.isFloat()) {
    if (nan)
      suffixesTaken &= ~(1u << (std::find(now->suffixes.begin(), now->suffixes.end(), "NaN") - now->suffixes.begin()));
    return floatMinimumMaximum(t);
  }
  Value *a = inLanes(1, t), *b = inLanes(2, t);
  Intrinsic::ID id =
      t.isSigned() ? (least ? Intrinsic::smin : Intrinsic::smax) : (least ? Intrinsic::umin : Intrinsic::umax);
  outLanes(t, builder.CreateBinaryIntrinsic(id, a, b));
}

void Emitter::absolute() {
  expectOperands(2);
  ScalarType t = type();
  if (t.isFloat()) {
    APInt mask = APInt::getSplat(t.wholeBits(), APInt::getSignedMaxValue(t.bits));
    return out(builder.CreateAnd(in(1, t.wholeBits()), ConstantInt::get(context, mask)));
  }
  out(builder.CreateBinaryIntrinsic(Intrinsic::abs, in(1, t.bits), builder.getFalse()));
}

void Emitter::negate() {
  expectOperands(2);
  ScalarType t = type();
  if (t.isFloat()) {
    APInt signs = APInt::getSplat(t.wholeBits(), APInt::getSignMask(t.bits));
    return out(builder.CreateXor(in(1, t.wholeBits()), ConstantInt::get(context, signs)));
  }
  out(builder.CreateNeg(in(1, t.bits)));
}

void Emitter::logic() {
  expectOperands(3);
  ScalarType t = type();
  Value *a = in(1, t.bits), *b = in(2, t.bits);
  out(now->opcode == "and"  ? builder.CreateAnd(a, b)
      : now->opcode == "or" ? builder.CreateOr(a, b)
                            : builder.CreateXor(a, b));
}

void Emitter::invert() {
  expectOperands(2);
  out(builder.CreateNot(in(1, type().bits)));
}

/// Shift amounts beyond the width are clamped to the width.
void Emitter::shift() {
  expectOperands(3);
  ScalarType t = type();
  Value *a = in(1, t.bits), *amount = in(2, 32);
  Value *beyond = builder.CreateICmpUGE(amount, builder.getInt32(t.bits));
  Value *within = builder.CreateZExtOrTrunc(builder.CreateSelect(beyond, builder.getInt32(0), amount), a->getType());
  Value *result, *rest = Constant::getNullValue(a->getType());
  if (now->opcode == "shl") {
    result = builder.CreateShl(a, within);
  } else if (t.isSigned()) {
    result = builder.CreateAShr(a, within);
    rest = builder.CreateAShr(a, t.bits - 1);
  } else {
    result = builder.CreateLShr(a, within);
  }
  out(builder.CreateSelect(beyond, rest, result));
}

/// shf.l takes the high 32 bits of (b:a) << n, shf.r the low 32 of (b:a) >> n.
void Emitter::funnelShift() {
  expectOperands(4);
  bool left = has("l"), right = has("r"), wrap = has("wrap"), clamp = has("clamp");
  if (left == right || wrap == clamp || type().bits != 32)
    refuse("shf needs .l or .r, .wrap or .clamp, and .b32");
  Value *low = in(1, 32), *high = in(2, 32), *n = in(3, 32);
  n = wrap ? builder.CreateAnd(n, 31) : builder.CreateBinaryIntrinsic(Intrinsic::umin, n, builder.getInt32(32));
  auto *wide = builder.getInt64Ty();
  Value *both = builder.CreateOr(builder.CreateShl(builder.CreateZExt(high, wide), 32), builder.CreateZExt(low, wide));
  Value *amount = builder.CreateZExt(n, wide);
  Value *shifted = left ? builder.CreateLShr(builder.CreateShl(both, amount), 32) : builder.CreateLShr(both, amount);
  out(builder.CreateTrunc(shifted, builder.getInt32Ty()));
}

/// bfe: `length` bits from `position`; bits beyond the width are the sign bit, or 0 if unsigned.
void Emitter::extractField() {
  expectOperands(4);
  ScalarType t = type();
  auto *wide = intType(2 * t.bits + 256); // positions and lengths go to 255: no shift is out of range
  Value *a = in(1, t.bits);
  Value *position = builder.CreateZExt(builder.CreateAnd(in(2, 32), 255), wide);
  Value *length = builder.CreateZExt(builder.CreateAnd(in(3, 32), 255), wide);
  Value *all = t.isSigned() ? builder.CreateSExt(a, wide) : builder.CreateZExt(a, wide);
  Value *field = builder.CreateLShr(all, position);
  Value *mask = builder.CreateSub(builder.CreateShl(ConstantInt::get(wide, 1), length), ConstantInt::get(wide, 1));
  Value *kept = builder.CreateAnd(field, mask);
  if (t.isSigned()) {
    // The field's sign is that of bit min(position + length − 1, msb); a length of 0 gives 0.
    Value *last = builder.CreateSub(builder.CreateAdd(position, length), ConstantInt::get(wide, 1));
    Value *msb = ConstantInt::get(wide, t.bits - 1);
    Value *signBit = builder.CreateSelect(builder.CreateICmpULT(last, msb), last, msb);
    Value *negative = builder.CreateTrunc(builder.CreateLShr(all, signBit), builder.getInt1Ty());
    kept = builder.CreateSelect(negative, builder.CreateOr(kept, builder.CreateNot(mask)), kept);
    kept = builder.CreateSelect(builder.CreateIsNull(length), Constant::getNullValue(wide), kept);
  }
  out(builder.CreateTrunc(kept, intType(t.bits)));
}

/// bfi d, a, b, position, length: the low bits of a replace a field of b.
void Emitter::insertField() {
  expectOperands(5);
  ScalarType t = type();
  auto *wide = intType(2 * t.bits + 512);
  Value *a = builder.CreateZExt(in(1, t.bits), wide), *b = builder.CreateZExt(in(2, t.bits), wide);
  Value *position = builder.CreateZExt(builder.CreateAnd(in(3, 32), 255), wide);
  Value *length = builder.CreateZExt(builder.CreateAnd(in(4, 32), 255), wide);
  Value *ones = builder.CreateSub(builder.CreateShl(ConstantInt::get(wide, 1), length), ConstantInt::get(wide, 1));
  Value *mask = builder.CreateShl(ones, position);
  Value *result = builder.CreateOr(builder.CreateAnd(b, builder.CreateNot(mask)),
                                   builder.CreateAnd(builder.CreateShl(a, position), mask));
  out(builder.CreateTrunc(result, intType(t.bits)));
}

/// Four selectors of four bits choose among the eight bytes of (b:a); a selector's top bit spreads the byte's sign.
void Emitter::permuteBytes() {
  expectOperands(4);
  if (type().bits != 32)
    refuse("prmt permutes 32 bits");
  auto *wide = builder.getInt64Ty();
  Value *both =
      builder.CreateOr(builder.CreateShl(builder.CreateZExt(in(2, 32), wide), 32), builder.CreateZExt(in(1, 32), wide));
  Value *selectors = in(3, 32), *result = builder.getInt32(0);
  for (unsigned i = 0; i < 4; ++i) {
    Value *selector = builder.CreateAnd(builder.CreateLShr(selectors, 4 * i), 15);
    Value *amount = builder.CreateZExt(builder.CreateShl(builder.CreateAnd(selector, 7), 3), wide);
    Value *byte = builder.CreateTrunc(builder.CreateLShr(both, amount), builder.getInt8Ty());
    Value *spread = builder.CreateICmpNE(builder.CreateAnd(selector, 8), builder.getInt32(0));
    byte = builder.CreateSelect(spread, builder.CreateAShr(byte, 7), byte);
    result = builder.CreateOr(result, builder.CreateShl(builder.CreateZExt(byte, builder.getInt32Ty()), 8 * i));
  }
  out(result);
}

void Emitter::countBits() {
  expectOperands(2);
  Value *a = in(1, type().bits);
  Value *count = now->opcode == "popc" ? builder.CreateUnaryIntrinsic(Intrinsic::ctpop, a)
                                       : builder.CreateBinaryIntrinsic(Intrinsic::ctlz, a, builder.getFalse());
  out(builder.CreateZExtOrTrunc(count, builder.getInt32Ty()));
}

void Emitter::reverseBits() {
  expectOperands(2);
  out(builder.CreateUnaryIntrinsic(Intrinsic::bitreverse, in(1, type().bits)));
}

/// Bit 4a + 2b + c of the table is the result for bits a, b, c.
void Emitter::lookupLogic() {
  expectOperands(5);
  if (type().bits != 32 || now->operands[4].kind != Operand::Kind::Integer)
    refuse("lop3 needs .b32 and a constant table");
  Value *operands[3] = {in(1, 32), in(2, 32), in(3, 32)}, *result = builder.getInt32(0);
  for (unsigned row = 0; row < 8; ++row) {
    if (!(now->operands[4].bits >> row & 1))
      continue;
    Value *term = builder.getInt32(~0u);
    for (unsigned i = 0; i < 3; ++i)
      term = builder.CreateAnd(term, row >> (2 - i) & 1 ? operands[i] : builder.CreateNot(operands[i]));
    result = builder.CreateOr(result, term);
  }
  out(result);
}

} // namespace tcc::emulation::ptx

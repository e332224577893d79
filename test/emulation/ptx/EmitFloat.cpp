//===- EmitFloat.cpp - floating-point arithmetic (9.7.3 to 9.7.5) --------===//
//
// Only instructions with one defined result are emulated: .rn, no .ftz, nothing approximate. `add.f32` without a
// rounding modifier is refused as well, since ptxas may contract it with a product.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/ptx/Emitter.h"

using namespace llvm;

namespace tcc::emulation::ptx {

void Emitter::takeRounding(const ScalarType &type) {
  if (has("ftz"))
    refuse("flushes subnormal numbers to 0; compile without -nvptx-f32ftz and denormal-fp-math attributes");
  for (std::string_view directed : {"rz", "rm", "rp"})
    if (has(directed))
      refuse(fmt::format("of roundings only .rn is emulated, not .{}", directed));
  if (!has("rn"))
    refuse("without a rounding it may be contracted to an fma; write .rn");
}

/// One operation per lane on 16-bit numbers, computed in f32 and rounded again. The second rounding is harmless, since
/// f32 has at least two bits more than twice the mantissa.
Value *Emitter::narrowBinary(const ScalarType &t, function_ref<Value *(unsigned)> make) {
  Value *result = nullptr;
  for (unsigned lane = 0; lane < t.lanes; ++lane) {
    Value *bits = make(lane);
    if (t.lanes == 1)
      return bits;
    Value *shifted = builder.CreateShl(builder.CreateZExt(bits, builder.getInt32Ty()), 16 * lane);
    result = result ? builder.CreateOr(result, shifted) : shifted;
  }
  return result;
}

void Emitter::floatArithmetic(const ScalarType &t) {
  takeRounding(t);
  auto apply = [&](Value *a, Value *b) {
    return now->opcode == "add"   ? builder.CreateFAdd(a, b)
           : now->opcode == "sub" ? builder.CreateFSub(a, b)
           : now->opcode == "mul" ? builder.CreateFMul(a, b)
                                  : builder.CreateFDiv(a, b);
  };
  if (t.bits > 16)
    return setFloat(now->operands[0], apply(inFloat(1, t), inFloat(2, t)), t);
  if (now->opcode == "div")
    refuse("there is no division in 16 bits");
  Value *a = in(1, t.wholeBits()), *b = in(2, t.wholeBits());
  ScalarType one{t.kind, 16, 1};
  out(narrowBinary(t, [&](unsigned lane) {
    auto part = [&](Value *v) {
      return widen(builder.CreateTrunc(builder.CreateLShr(v, 16 * lane), builder.getInt16Ty()), one);
    };
    return narrow(apply(part(a), part(b)), one, false);
  }));
}

void Emitter::fusedMultiplyAdd() {
  expectOperands(4);
  ScalarType t = type();
  takeRounding(t);
  if (t.bits > 16) {
    Value *a = inFloat(1, t), *b = inFloat(2, t), *c = inFloat(3, t);
    return setFloat(now->operands[0], builder.CreateIntrinsic(Intrinsic::fma, {a->getType()}, {a, b, c}), t);
  }
  Value *operands[3] = {in(1, t.wholeBits()), in(2, t.wholeBits()), in(3, t.wholeBits())};
  ScalarType one{t.kind, 16, 1};
  out(narrowBinary(t, [&](unsigned lane) {
    SmallVector<Value *> arguments;
    for (Value *v : operands)
      arguments.push_back(
          builder.CreateFPExt(widen(builder.CreateTrunc(builder.CreateLShr(v, 16 * lane), builder.getInt16Ty()), one),
                              builder.getDoubleTy()));
    arguments.push_back(builder.getInt32(t.kind == 'h' ? 7 : 10));
    return call("tccEmulationFusedTo16", builder.getInt16Ty(), arguments);
  }));
}

void Emitter::roundedFunction() {
  expectOperands(2);
  if (has("approx"))
    return now->opcode == "rcp" ? nearReciprocal(Intrinsic::not_intrinsic) : refuseApproximate();
  ScalarType t = type();
  takeRounding(t);
  if (t.kind != 'f' || t.bits < 32)
    refuse("exists in f32 and f64");
  Value *a = inFloat(1, t);
  Value *result =
      now->opcode == "sqrt" ? intrinsic(Intrinsic::sqrt, {a}) : builder.CreateFDiv(ConstantFP::get(a->getType(), 1), a);
  setFloat(now->operands[0], result, t);
}

/// −0 is less than 0. The minimum of a number and a NaN is the number; with .NaN it is NaN.
void Emitter::floatMinimumMaximum(const ScalarType &t) {
  bool nan = has("NaN"), least = now->opcode == "min";
  if (has("ftz"))
    refuse("flushes subnormal numbers to 0");
  Intrinsic::ID id =
      nan ? (least ? Intrinsic::minimum : Intrinsic::maximum) : (least ? Intrinsic::minimumnum : Intrinsic::maximumnum);
  if (t.bits == 64) {
    // If both operands are NaN, or one with .NaN, the result is the canonical NaN.
    Value *result = builder.CreateBinaryIntrinsic(id, inFloat(1, t), inFloat(2, t));
    Value *bits = builder.CreateBitCast(result, builder.getInt64Ty());
    return out(builder.CreateSelect(builder.CreateFCmpUNO(result, result), builder.getInt64(INT64_MAX), bits));
  }
  if (t.bits == 32)
    return setFloat(now->operands[0], builder.CreateBinaryIntrinsic(id, inFloat(1, t), inFloat(2, t)), t);
  Value *a = in(1, t.wholeBits()), *b = in(2, t.wholeBits());
  ScalarType one{t.kind, 16, 1};
  out(narrowBinary(t, [&](unsigned lane) {
    auto part = [&](Value *v) {
      return widen(builder.CreateTrunc(builder.CreateLShr(v, 16 * lane), builder.getInt16Ty()), one);
    };
    return narrow(builder.CreateBinaryIntrinsic(id, part(a), part(b)), one, false);
  }));
}

/// The sign of the first operand, the magnitude of the second.
void Emitter::copySign() {
  expectOperands(3);
  ScalarType t = type();
  Value *sign = builder.CreateAnd(in(1, t.bits), ConstantInt::get(context, APInt::getSignMask(t.bits)));
  out(builder.CreateOr(sign,
                       builder.CreateAnd(in(2, t.bits), ConstantInt::get(context, APInt::getSignedMaxValue(t.bits)))));
}

void Emitter::testProperty() {
  expectOperands(2);
  static const std::pair<std::string_view, FPClassTest> properties[] = {
      {"finite", fcFinite},  {"infinite", fcInf},  {"number", FPClassTest(fcAllFlags & ~fcNan)},
      {"notanumber", fcNan}, {"normal", fcNormal}, {"subnormal", fcSubnormal}};
  for (auto &[name, classes] : properties)
    if (has(name)) {
      Value *a = inFloat(1, type());
      return out(builder.createIsFPClass(a, classes));
    }
  refuse("this property is not emulated");
}

/// ex2.approx.ftz, which attention on tiles and functions of 16-bit results use. PTX bounds its error by 2 ulp (PTX
/// ISA, ex2); here the result is the nearest number.
void Emitter::powerOfTwo() {
  expectOperands(2);
  ScalarType t = type();
  if (!has("approx") || !has("ftz") || t.kind != 'f' || t.bits != 32)
    return refuseApproximate();
  setFloat(now->operands[0], call("tccEmulationPowerOfTwo", builder.getFloatTy(), {inFloat(1, t)}), t);
}

/// 1/x or 1/√x, the approximations from which exact quotients and roots are made (compiler/codegen/ExactQuotients.cpp);
/// functions of 16-bit results use 1/x as it is.
/// PTX bounds their error by 1 or 2 ulp (PTX ISA, rcp and rsqrt); here the result is the nearest number. Subnormal
/// operands and results are 0.
void Emitter::nearReciprocal(Intrinsic::ID function) {
  ScalarType t = type();
  if (!has("ftz") || t.kind != 'f' || t.bits != 32)
    return refuseApproximate();
  auto flushed = [&](Value *x) {
    Value *zero = builder.CreateBinaryIntrinsic(Intrinsic::copysign, ConstantFP::get(x->getType(), 0), x);
    return builder.CreateSelect(builder.createIsFPClass(x, fcSubnormal), zero, x);
  };
  Value *x = builder.CreateFPExt(flushed(inFloat(1, t)), builder.getDoubleTy());
  if (function != Intrinsic::not_intrinsic)
    x = intrinsic(function, {x});
  Value *result = builder.CreateFDiv(ConstantFP::get(builder.getDoubleTy(), 1), x);
  setFloat(now->operands[0], flushed(builder.CreateFPTrunc(result, builder.getFloatTy())), t);
}
void Emitter::nearRootsReciprocal() {
  expectOperands(2);
  if (!has("approx"))
    return refuseApproximate();
  nearReciprocal(Intrinsic::sqrt);
}

void Emitter::refuseApproximate() {
  refuse("an approximate result differs between architectures; compute it from exact operations");
}

} // namespace tcc::emulation::ptx

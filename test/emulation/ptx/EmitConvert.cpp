//===- EmitConvert.cpp - cvt, mov, setp, selp (9.7.6, 9.7.7, 9.7.9) ------===//
#include "test/emulation/ptx/Emitter.h"

using namespace llvm;

namespace tcc::emulation::ptx {

/// Widens a 16-bit number to f32; leaves f32 and f64 unchanged.
Value *Emitter::widen(Value *bits, const ScalarType &from) {
  if (from.kind == 'h')
    return builder.CreateBitCast(builder.CreateShl(builder.CreateZExt(bits, builder.getInt32Ty()), 16),
                                 builder.getFloatTy());
  Value *value = builder.CreateBitCast(bits, floatType(from));
  return from.bits == 16 ? builder.CreateFPExt(value, builder.getFloatTy()) : value;
}

/// Rounds an f32 or f64 once to a narrower type, and returns its bits.
Value *Emitter::narrow(Value *value, const ScalarType &to, bool towardZero) {
  if (to.bits == 16) {
    bool single = value->getType()->isFloatTy();
    auto *i32 = builder.getInt32Ty();
    if (to.kind == 'h' && single) {
      Value *bits = builder.CreateBitCast(value, i32);
      Value *round = builder.getInt32(0);
      if (!towardZero) // to nearest, ties to even
        round = builder.CreateAdd(builder.CreateAnd(builder.CreateLShr(bits, 16), 1), builder.getInt32(0x7fff));
      Value *rounded =
          builder.CreateTrunc(builder.CreateLShr(builder.CreateAdd(bits, round), 16), builder.getInt16Ty());
      return builder.CreateSelect(builder.CreateFCmpUNO(value, value), builder.getInt16(0x7fff), rounded);
    }
    if (to.kind == 'f' && single && !towardZero) {
      Value *rounded = builder.CreateBitCast(builder.CreateFPTrunc(value, builder.getHalfTy()), builder.getInt16Ty());
      return builder.CreateSelect(builder.CreateFCmpUNO(value, value), builder.getInt16(0x7fff), rounded);
    }
    Value *wide = single ? builder.CreateFPExt(value, builder.getDoubleTy()) : value;
    return call("tccEmulationRoundTo16", builder.getInt16Ty(),
                {wide, builder.getInt32(to.kind == 'h' ? 7 : 10), builder.getInt1(towardZero)});
  }
  Value *result = towardZero ? call("tccEmulationRoundToF32TowardZero", builder.getFloatTy(), {value})
                             : builder.CreateFPTrunc(value, builder.getFloatTy());
  return builder.CreateBitCast(result, builder.getInt32Ty());
}

/// Rounds, then clamps to the integer's range. NaN gives 0; from f64 or to 64 bits it gives the least integer (9.7.9,
/// "cvt").
void Emitter::floatToInteger(const ScalarType &to, const ScalarType &from) {
  Value *value = widen(in(1, from.bits), from);
  Intrinsic::ID rounding = has("rni")   ? Intrinsic::roundeven
                           : has("rmi") ? Intrinsic::floor
                           : has("rpi") ? Intrinsic::ceil
                           : has("rzi") ? Intrinsic::trunc
                                        : Intrinsic::not_intrinsic;
  if (rounding == Intrinsic::not_intrinsic)
    refuse("a conversion to an integer says .rni, .rzi, .rmi or .rpi");
  Value *whole = intrinsic(rounding, {value});
  auto *result = intType(to.bits);
  Value *integer = builder.CreateIntrinsic(to.isSigned() ? Intrinsic::fptosi_sat : Intrinsic::fptoui_sat,
                                           {result, whole->getType()}, {whole});
  bool least = from.bits == 64 || to.bits == 64;
  Value *ofNan = ConstantInt::get(context, least ? APInt::getSignMask(to.bits) : APInt(to.bits, 0));
  out(builder.CreateSelect(builder.CreateFCmpUNO(value, value), ofNan, integer), to.isSigned());
}

/// cvt.rn.bf16x2.f32 d, a, b: a becomes the upper half.
void Emitter::convertPair(const ScalarType &to) {
  expectOperands(3);
  ScalarType from = type(), one{to.kind, 16, 1};
  bool zero = has("rz");
  if (from.bits != 32 || from.kind != 'f' || (!zero && !has("rn")))
    refuse("two numbers of 16 bits are made from f32, with .rn or .rz");
  auto half = [&](size_t i) { return builder.CreateZExt(narrow(inFloat(i, from), one, zero), builder.getInt32Ty()); };
  out(builder.CreateOr(builder.CreateShl(half(1), 16), half(2)));
}

/// cvt.rna.tf32.f32: the nearest number with 10 bits of mantissa, ties away from 0. The other 13 bits of the word are
/// 0.
void Emitter::convertToTf32() {
  expectOperands(2);
  const ScalarType from = type();
  if (from.bits != 32 || from.kind != 'f' || !has("rna"))
    refuse("TF32 is made from f32, with .rna");
  Value *value = inFloat(1, from), *bits = builder.CreateBitCast(value, builder.getInt32Ty());
  Value *rounded = builder.CreateAnd(builder.CreateAdd(bits, builder.getInt32(0x1000)), builder.getInt32(~0x1fffu));
  out(builder.CreateSelect(builder.CreateFCmpUNO(value, value), builder.getInt32(0x7fffffff), rounded));
}

void Emitter::convert() {
  if (has("ftz"))
    refuse("flushes subnormal numbers to 0");
  if (has("sat") || has("satfinite") || has("relu"))
    refuse("conversions that clamp are not emulated");
  ScalarType to = type();
  if (to.lanes == 2)
    return convertPair(to);
  if (to.kind == 't')
    return convertToTf32();
  expectOperands(2);
  ScalarType from = type();
  if (!to.isFloat() && !from.isFloat()) {
    Value *value = in(1, from.bits);
    Value *result = from.isSigned() ? builder.CreateSExtOrTrunc(value, intType(to.bits))
                                    : builder.CreateZExtOrTrunc(value, intType(to.bits));
    return out(result, to.isSigned());
  }
  if (!to.isFloat())
    return floatToInteger(to, from);
  if (!from.isFloat()) {
    if (!has("rn"))
      refuse("of roundings from integers only .rn is emulated");
    if (to.kind == 'h' && from.bits > 32)
      refuse("integers of 64 bits are not converted to bf16: they would be rounded twice");
    auto *result = to.bits == 16 ? builder.getDoubleTy() : floatType(to);
    Value *value = in(1, from.bits);
    if (to.bits == 16 && from.bits > 32) { // clamp to ±2¹⁷, which overflows f16 as well and is exact in f64
      Value *most = ConstantInt::get(value->getType(), 1 << 17);
      value = builder.CreateBinaryIntrinsic(from.isSigned() ? Intrinsic::smin : Intrinsic::umin, value, most);
      if (from.isSigned())
        value = builder.CreateBinaryIntrinsic(Intrinsic::smax, value, builder.CreateNeg(most));
    }
    Value *number = from.isSigned() ? builder.CreateSIToFP(value, result) : builder.CreateUIToFP(value, result);
    return to.bits == 16 ? out(narrow(number, to, false)) : setFloat(now->operands[0], number, to);
  }
  Value *value = widen(in(1, from.bits), from);
  if (to.bits == from.bits && to.kind == from.kind) { // rounds to an integral number
    Intrinsic::ID rounding = has("rni")   ? Intrinsic::roundeven
                             : has("rmi") ? Intrinsic::floor
                             : has("rpi") ? Intrinsic::ceil
                             : has("rzi") ? Intrinsic::trunc
                                          : Intrinsic::not_intrinsic;
    if (rounding != Intrinsic::not_intrinsic)
      value = intrinsic(rounding, {value});
    return to.bits == 16 ? out(narrow(value, to, false)) : setFloat(now->operands[0], value, to);
  }
  if (to.bits > from.bits) { // exact
    if (to.bits == 64)
      value = builder.CreateFPExt(value, builder.getDoubleTy());
    return setFloat(now->operands[0], value, to);
  }
  bool zero = has("rz");
  if (!zero && !has("rn"))
    refuse("a conversion to a narrower type says .rn or .rz");
  Value *bits = narrow(value, to, zero);
  if (to.bits == 32)
    return setFloat(now->operands[0], builder.CreateBitCast(bits, builder.getFloatTy()), to);
  out(bits);
}

/// Also packs and unpacks: mov.b64 %rd, {%r1, %r2}.
void Emitter::move() {
  expectOperands(2);
  ScalarType t = type();
  const Operand &to = now->operands[0], &from = now->operands[1];
  if (from.kind == Operand::Kind::Vector) {
    auto count = static_cast<unsigned>(from.parts.size());
    Value *result = ConstantInt::get(intType(t.bits), 0);
    for (unsigned i = 0; i < count; ++i) {
      Value *part = builder.CreateZExt(get(from.parts[i], t.bits / count), intType(t.bits));
      result = builder.CreateOr(result, builder.CreateShl(part, uint64_t{i} * (t.bits / count)));
    }
    return out(result);
  }
  Value *value = get(from, t.bits);
  if (to.kind != Operand::Kind::Vector)
    return out(value);
  auto count = static_cast<unsigned>(to.parts.size());
  for (unsigned i = 0; i < count; ++i)
    set(to.parts[i],
        builder.CreateTrunc(builder.CreateLShr(value, uint64_t{i} * (t.bits / count)), intType(t.bits / count)));
}

void Emitter::compare() {
  static const std::map<std::string_view, CmpInst::Predicate> floats = {
      {"eq", CmpInst::FCMP_OEQ},  {"ne", CmpInst::FCMP_ONE},  {"lt", CmpInst::FCMP_OLT},  {"le", CmpInst::FCMP_OLE},
      {"gt", CmpInst::FCMP_OGT},  {"ge", CmpInst::FCMP_OGE},  {"equ", CmpInst::FCMP_UEQ}, {"neu", CmpInst::FCMP_UNE},
      {"ltu", CmpInst::FCMP_ULT}, {"leu", CmpInst::FCMP_ULE}, {"gtu", CmpInst::FCMP_UGT}, {"geu", CmpInst::FCMP_UGE},
      {"num", CmpInst::FCMP_ORD}, {"nan", CmpInst::FCMP_UNO}};
  static const std::map<std::string_view, std::pair<CmpInst::Predicate, CmpInst::Predicate>> integers = {
      {"eq", {CmpInst::ICMP_EQ, CmpInst::ICMP_EQ}},   {"ne", {CmpInst::ICMP_NE, CmpInst::ICMP_NE}},
      {"lt", {CmpInst::ICMP_SLT, CmpInst::ICMP_ULT}}, {"le", {CmpInst::ICMP_SLE, CmpInst::ICMP_ULE}},
      {"gt", {CmpInst::ICMP_SGT, CmpInst::ICMP_UGT}}, {"ge", {CmpInst::ICMP_SGE, CmpInst::ICMP_UGE}},
      {"lo", {CmpInst::ICMP_ULT, CmpInst::ICMP_ULT}}, {"ls", {CmpInst::ICMP_ULE, CmpInst::ICMP_ULE}},
      {"hi", {CmpInst::ICMP_UGT, CmpInst::ICMP_UGT}}, {"hs", {CmpInst::ICMP_UGE, CmpInst::ICMP_UGE}}};
  if (now->suffixes.empty())
    refuse("a comparison is missing");
  std::string_view name = now->suffixes[0];
  suffixesTaken |= 1;
  bool conjunction = has("and"), disjunction = has("or"), exclusive = has("xor"),
       combines = conjunction || disjunction || exclusive;
  expectOperands(combines ? 4 : 3);
  if (has("ftz"))
    refuse("flushes subnormal numbers to 0");
  ScalarType t = type();
  Value *result;
  if (t.isFloat() && t.lanes == 1) {
    auto found = floats.find(name);
    if (found == floats.end())
      refuse("this comparison is not emulated");
    result = builder.CreateFCmp(found->second, widen(in(1, t.bits), t), widen(in(2, t.bits), t));
  } else {
    auto found = integers.find(name);
    if (found == integers.end() || t.isFloat())
      refuse("this comparison is not emulated");
    result =
        builder.CreateICmp(t.isSigned() ? found->second.first : found->second.second, in(1, t.bits), in(2, t.bits));
  }
  auto combined = [&](Value *value) {
    if (!combines)
      return value;
    Value *other = getPredicate(now->operands[3]);
    return conjunction   ? builder.CreateAnd(value, other)
           : disjunction ? builder.CreateOr(value, other)
                         : builder.CreateXor(value, other);
  };
  const Operand &to = now->operands[0];
  if (to.kind != Operand::Kind::Pair)
    return set(to, combined(result));
  Value *first = combined(result), *second = combined(builder.CreateNot(result));
  set(to.parts[0], first);
  set(to.parts[1], second);
}

void Emitter::select() {
  expectOperands(4);
  ScalarType t = type();
  Value *condition = getPredicate(now->operands[3]);
  out(builder.CreateSelect(condition, in(1, t.wholeBits()), in(2, t.wholeBits())));
}

} // namespace tcc::emulation::ptx

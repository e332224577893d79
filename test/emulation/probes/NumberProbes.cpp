//===- NumberProbes.cpp - beliefs about PTX instructions -----------------===//
//
// Places where a translator could err: rounding, NaN, shifts beyond the width, lanes beyond a segment.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/Probe.h"

#include <cmath>

using namespace tcc::probes;

PROBE(ANanOfF32IsOne, "Programming Guide: Floating-Point Standard") {
  EXPECT(p.compute("add.rn.f32 %r0, %r1, %r2;", 0xffc12345, 0x3f800000) == 0x7fffffff);
  EXPECT(p.compute("mul.rn.f32 %r0, %r1, %r2;", 0x7f800000, 0) == 0x7fffffff);
  EXPECT(p.compute("sqrt.rn.f32 %r0, %r1;", 0xbf800000) == 0x7fffffff);
}
PROBE(AnFmaRoundsOnce, "PTX ISA: fma") {
  float x = 1 + 0x1p-12f;
  EXPECT(p.compute("fma.rn.f32 %r0, %r1, %r1, %r2;", bits(x), bits(-1 - 0x1p-11f)) == bits(0x1p-24f));
}
PROBE(SubnormalNumbersStay, "PTX ISA: add, mul (no .ftz)") {
  EXPECT(p.compute("mul.rn.f32 %r0, %r1, %r2;", 0x00800000, 0x3f000000) == 0x00400000);
  EXPECT(p.compute("add.rn.f32 %r0, %r1, %r2;", 1, 1) == 2);
  EXPECT(p.compute("div.rn.f32 %r0, %r1, %r2;", 0x00000003, 0x40000000) == 2); // a tie, to even
}
PROBE(DivisionsAndRootsAreExact, "PTX ISA: div, sqrt, rcp (.rn)") {
  for (float x : {3.0f, 0.1f, 1e-38f, 16777215.0f}) {
    EXPECT(p.compute("div.rn.f32 %r0, %r1, %r2;", bits(x), bits(7.7f)) == bits(x / 7.7f));
    EXPECT(p.compute("sqrt.rn.f32 %r0, %r1;", bits(x)) == bits(std::sqrt(x)));
    EXPECT(p.compute("rcp.rn.f32 %r0, %r1;", bits(x)) == bits(1 / x));
  }
}
// How exact quotients and roots are made from the card's approximations (compiler/codegen/ExactQuotients.cpp). Each loop
// counts in %r0 the numbers whose refined result is not the exact one.
PROBE(ReciprocalsOfEveryMantissa, "PTX ISA: rcp (.approx.ftz, .rn)") {
  EXPECT(p.compute("mov.b32 %r2, 0x3f800000; mov.b32 %r0, 0;\n"
                   "again: rcp.approx.ftz.f32 %r3, %r2; neg.f32 %r4, %r2; fma.rn.f32 %r5, %r4, %r3, 0f3F800000;\n"
                   "fma.rn.f32 %r5, %r5, %r3, %r3; rcp.rn.f32 %r6, %r2; setp.ne.b32 %p1, %r5, %r6;\n"
                   "selp.b32 %r7, 1, 0, %p1; add.s32 %r0, %r0, %r7; add.s32 %r2, %r2, 1;\n"
                   "setp.lt.u32 %p2, %r2, 0x40000000; @%p2 bra again;",
                   0) == 0);
}
PROBE(RootsOfEveryMantissa, "PTX ISA: rsqrt (.approx.ftz), sqrt (.rn)") {
  EXPECT(p.compute("mov.b32 %r2, 0x3f800000; mov.b32 %r0, 0;\n"
                   "again: rsqrt.approx.ftz.f32 %r3, %r2; mul.rn.f32 %r4, %r2, %r3; mul.rn.f32 %r5, %r3, 0f3F000000;\n"
                   "neg.f32 %r6, %r4; fma.rn.f32 %r6, %r6, %r4, %r2; fma.rn.f32 %r4, %r6, %r5, %r4;\n"
                   "sqrt.rn.f32 %r6, %r2; setp.ne.b32 %p1, %r4, %r6; selp.b32 %r7, 1, 0, %p1;\n"
                   "add.s32 %r0, %r0, %r7; add.s32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 0x40800000; @%p2 bra again;",
                   0) == 0);
}
PROBE(QuotientsOfManyNumbers, "PTX ISA: div (.rn)") {
  // Both operands from [1, 2), by a linear congruential generator.
  EXPECT(p.compute("mov.b32 %r1, 1; mov.b32 %r9, 0; mov.b32 %r0, 0;\n"
                   "again: mad.lo.s32 %r1, %r1, 1664525, 1013904223; shr.u32 %r2, %r1, 9; or.b32 %r2, %r2, 0x3f800000;\n"
                   "mad.lo.s32 %r1, %r1, 1664525, 1013904223; shr.u32 %r3, %r1, 9; or.b32 %r3, %r3, 0x3f800000;\n"
                   "rcp.approx.ftz.f32 %r4, %r3; neg.f32 %r5, %r3; fma.rn.f32 %r6, %r5, %r4, 0f3F800000;\n"
                   "fma.rn.f32 %r4, %r6, %r4, %r4; mul.rn.f32 %r6, %r2, %r4; fma.rn.f32 %r7, %r5, %r6, %r2;\n"
                   "fma.rn.f32 %r6, %r7, %r4, %r6; fma.rn.f32 %r7, %r5, %r6, %r2; fma.rn.f32 %r6, %r7, %r4, %r6;\n"
                   "div.rn.f32 %r7, %r2, %r3; setp.ne.b32 %p1, %r6, %r7; selp.b32 %r8, 1, 0, %p1;\n"
                   "add.s32 %r0, %r0, %r8; add.s32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 0x400000; @%p2 bra again;",
                   0) == 0);
}
PROBE(PowersOfTwoAreNear, "PTX ISA: ex2 (.approx.ftz)") {
  auto power = [&](uint32_t x) { return uint32_t(p.compute("ex2.approx.ftz.f32 %r0, %r1;", x)); };
  EXPECT(power(bits(0.0f)) == bits(1.0f) && power(bits(-0.0f)) == bits(1.0f));
  EXPECT(power(0x00000001) == bits(1.0f) && power(bits(-INFINITY)) == 0 && power(bits(INFINITY)) == bits(INFINITY));
  EXPECT(power(bits(-126.5f)) == 0 && power(bits(-200.0f)) == 0); // subnormal results are 0
  EXPECT(power(0x7fc00000) == 0x7fffffff);
  for (float x : {-125.9f, -31.7f, -3.3f, -0.6f, -0.001f, 0.4f, 20.2f})
    EXPECT(std::abs(int64_t(power(bits(x))) - int64_t(bits(float(std::exp2(double(x)))))) <= 2);
}
PROBE(ReciprocalsAreNear, "PTX ISA: rcp (.approx.ftz)") {
  // Counts in %r0 the mantissas whose approximation is more than one unit in the last place away from the nearest.
  EXPECT(p.compute("mov.b32 %r2, 0x3f800000; mov.b32 %r0, 0;\n"
                   "again: rcp.approx.ftz.f32 %r3, %r2; rcp.rn.f32 %r4, %r2; sub.s32 %r5, %r3, %r4;\n"
                   "add.s32 %r5, %r5, 1; setp.gt.u32 %p1, %r5, 2; selp.b32 %r7, 1, 0, %p1; add.s32 %r0, %r0, %r7; add.s32 %r2, %r2, 1;\n"
                   "setp.lt.u32 %p2, %r2, 0x40000000; @%p2 bra again;",
                   0) == 0);
  auto reciprocal = [&](float x) { return uint32_t(p.compute("rcp.approx.ftz.f32 %r0, %r1;", bits(x))); };
  EXPECT(reciprocal(INFINITY) == 0 && reciprocal(0x1p127f) == 0); // subnormal results are 0
  EXPECT(reciprocal(0.0f) == bits(INFINITY) && reciprocal(0x1p-149f) == bits(INFINITY));
  EXPECT(reciprocal(NAN) == 0x7fffffff);
}
PROBE(MinimaPreferNumbers, "PTX ISA: min, max") {
  EXPECT(p.compute("min.f32 %r0, %r1, %r2;", 0x7fc00000, bits(2.0f)) == bits(2.0f));
  EXPECT(p.compute("min.f32 %r0, %r1, %r2;", bits(0.0f), bits(-0.0f)) == bits(-0.0f));
  EXPECT(p.compute("max.f32 %r0, %r1, %r2;", bits(-0.0f), bits(0.0f)) == bits(0.0f));
  EXPECT(p.compute("max.NaN.f32 %r0, %r1, %r2;", 0x7fc00000, bits(2.0f)) == 0x7fffffff);
  EXPECT(p.compute("max.f32 %r0, %r1, %r2;", 0x7fc00000, 0xffc00000) == 0x7fffffff);
}
PROBE(ConversionsToIntegersClamp, "PTX ISA: cvt") {
  EXPECT(p.compute("cvt.rzi.s32.f32 %r0, %r1;", bits(3e9f)) == 0x7fffffff);
  EXPECT(p.compute("cvt.rzi.u32.f32 %r0, %r1;", bits(-3.0f)) == 0);
  EXPECT(p.compute("cvt.rni.s32.f32 %r0, %r1;", bits(2.5f)) == 2);
  EXPECT(p.compute("cvt.rmi.s32.f32 %r0, %r1;", bits(-2.5f)) == 0xfffffffd);
}
PROBE(NanBecomesAnInteger, "PTX ISA: cvt, notes on NaN") {
  EXPECT(p.compute("cvt.rzi.s32.f32 %r0, %r1;", 0x7fc00000) == 0);
  EXPECT(p.compute("cvt.rzi.s64.f32 %d0, %r1;", 0x7fc00000) == uint64_t{1} << 63);
  EXPECT(p.compute("cvt.rzi.s32.f64 %r0, %d1;", 0x7ff8000000000000) == 0x80000000);
}
PROBE(RoundingToIntegralNumbers, "PTX ISA: cvt (.rni, .rzi, .rmi, .rpi)") {
  EXPECT(p.compute("cvt.rni.f32.f32 %r0, %r1;", bits(-0.5f)) == bits(-0.0f));
  EXPECT(p.compute("cvt.rpi.f32.f32 %r0, %r1;", bits(1.25f)) == bits(2.0f));
}
PROBE(Bfloat16RoundsToEven, "PTX ISA: cvt.rn.bf16.f32") {
  EXPECT(p.compute("cvt.rn.bf16.f32 %h0, %r1; cvt.u32.u16 %r0, %h0;", 0x3f808000) == 0x3f80);
  EXPECT(p.compute("cvt.rn.bf16.f32 %h0, %r1; cvt.u32.u16 %r0, %h0;", 0x3f818000) == 0x3f82);
  EXPECT(p.compute("cvt.rn.bf16.f32 %h0, %r1; cvt.u32.u16 %r0, %h0;", 0x7f7fffff) == 0x7f80);
  EXPECT(p.compute("cvt.rn.bf16.f32 %h0, %r1; cvt.u32.u16 %r0, %h0;", 0xff800001) == 0x7fff);
}
PROBE(APairOfF16BecomesInfiniteBeyond65504, "PTX ISA: cvt.rn.f16x2.f32") {
  EXPECT(p.compute("cvt.rn.f16x2.f32 %r0, %r1, %r2;", bits(1.0f), bits(65520.0f)) == 0x3c007c00);
}
PROBE(APairTakesItsUpperHalfFirst, "PTX ISA: cvt.rn.bf16x2.f32") {
  EXPECT(p.compute("cvt.rn.bf16x2.f32 %r0, %r1, %r2;", bits(1.0f), bits(2.0f)) == 0x3f804000);
}
PROBE(HalfRoundsOnce, "PTX ISA: cvt.rn.f16") {
  EXPECT(p.compute("cvt.rn.f16.f32 %h0, %r1; cvt.u32.u16 %r0, %h0;", bits(65520.0f)) == 0x7c00);
  EXPECT(p.compute("cvt.rn.f16.f32 %h0, %r1; cvt.u32.u16 %r0, %h0;", bits(0x1p-25f)) == 0);
  // Above a tie by less than f32 can tell: rounding twice would give 0x3c00.
  EXPECT(p.compute("cvt.rn.f16.f64 %h0, %d1; cvt.u32.u16 %r0, %h0;", std::bit_cast<uint64_t>(1 + 0x1p-11 + 0x1p-40)) ==
         0x3c01);
}
PROBE(ShiftsClampTheirAmount, "PTX ISA: shl, shr") {
  EXPECT(p.compute("shl.b32 %r0, %r1, %r2;", 1, 32) == 0);
  EXPECT(p.compute("shr.s32 %r0, %r1, %r2;", 0x80000000, 99) == 0xffffffff);
  EXPECT(p.compute("shf.l.wrap.b32 %r0, %r1, %r2, 33;", 0x80000000, 1) == 3);
}
PROBE(FieldsBeyondTheWidth, "PTX ISA: bfe") {
  EXPECT(p.compute("bfe.s32 %r0, %r1, 28, 8;", 0x80000000) == 0xfffffff8);
  EXPECT(p.compute("bfe.u32 %r0, %r1, 28, 8;", 0x80000000) == 8);
  EXPECT(p.compute("bfe.s32 %r0, %r1, 4, 0;", 0xffffffff) == 0);
}
PROBE(PermutedBytesCopySigns, "PTX ISA: prmt") {
  EXPECT(p.compute("prmt.b32 %r0, %r1, %r2, 0xc321;", 0x11223344, 0x800000f0) == 0xff112233);
}
PROBE(TheHighHalfOfAProduct, "PTX ISA: mul.hi") {
  EXPECT(p.compute("mul.hi.u64 %d0, %d1, %d2;", ~uint64_t{0}, ~uint64_t{0}) == ~uint64_t{0} - 1);
  EXPECT(p.compute("mul.hi.s32 %r0, %r1, %r2;", 0xffffffff, 5) == 0xffffffff);
}
PROBE(ACarryTravels, "PTX ISA: add.cc, addc") {
  EXPECT(p.compute("add.cc.u64 %d3, %d1, %d2; addc.u64 %d0, 0, 0;", ~uint64_t{0}, 1) == 1);
}

namespace {
/// The lane number that `lane` receives in a shuffle; bit 8 is set if it came from inside the segment.
unsigned shuffled(Program &p, const std::string &form, unsigned lane) {
  CUfunction kernel = p.kernel("mul.wide.u32 %d3, %r1, 4; add.s64 %d3, %d1, %d3;\nshfl.sync." + form +
                               ", -1;\nselp.b32 %r5, 256, 0, %p1; or.b32 %r4, %r4, %r5; st.global.b32 [%d3], %r4;");
  p.launch(kernel, p.a, 0, nullptr, 32);
  return p.word(p.a + 4 * lane);
}
/// A product of tiles plus 0.5. The right tile holds 8·row + column; in the left one only half `half` of word `word` of
/// lane `lane` is 1. sumOf() returns one of the four sums of a lane.
struct TileProduct {
  unsigned lane, word, half;
};
float sumOf(Program &p, const TileProduct &one, unsigned lane, unsigned sum, const std::string &type = "bf16") {
  const std::string unit = type == "f16" ? "0x3c00" : "0x3f80";
  std::string body = "shr.u32 %r5, %r1, 2; and.b32 %r6, %r1, 3; mad.lo.u32 %r7, %r6, 16, %r5;\n";
  for (unsigned i = 0; i < 4; ++i) // rows 2t, 2t + 1, 2t + 8 and 2t + 9 of this lane's column
    body += "add.u32 %r8, %r7, " + std::to_string(i % 2 * 8 + i / 2 * 64) + "; cvt.rn.f32.u32 %r" +
            std::to_string(9 + i) + ", %r8;\n";
  body += "cvt.rn." + type + "x2.f32 %r13, %r10, %r9; cvt.rn." + type +
          "x2.f32 %r14, %r12, %r11;\nsetp.eq.u32 %p1, %r1, " + std::to_string(one.lane) + ";\n";
  for (unsigned i = 0; i < 4; ++i)
    body += "selp.b32 %r" + std::to_string(15 + i) + ", " +
            (i == one.word ? one.half ? unit + "0000" : unit : std::string("0")) + ", 0, %p1;\n";
  body += "mov.b32 %r19, 0x3f000000; mma.sync.aligned.m16n8k16.row.col.f32." + type + "." + type +
          ".f32 {%r20, %r21, %r22, %r23}, {%r15, %r16, %r17, %r18}, {%r13, %r14}, {%r19, %r19, %r19, %r19};\n"
          "mul.wide.u32 %d3, %r1, 4; add.s64 %d3, %d1, %d3; st.global.b32 [%d3], %r" +
          std::to_string(20 + sum) + ";";
  p.launch(p.kernel(body), p.a, 0, nullptr, 32);
  return std::bit_cast<float>(p.word(p.a + 4 * lane));
}
/// The same for m16n8k8 in TF32, where a word holds one number: `half` has no effect.
float sumOfTf32(Program &p, const TileProduct &one, unsigned lane, unsigned sum) {
  std::string body = "shr.u32 %r5, %r1, 2; and.b32 %r6, %r1, 3; mad.lo.u32 %r7, %r6, 8, %r5;\n"
                     "cvt.rn.f32.u32 %r13, %r7; add.u32 %r8, %r7, 32; cvt.rn.f32.u32 %r14, %r8;\n"
                     "setp.eq.u32 %p1, %r1, " +
                     std::to_string(one.lane) + ";\n";
  for (unsigned i = 0; i < 4; ++i)
    body += "selp.b32 %r" + std::to_string(15 + i) + ", " + (i == one.word ? "0x3f800000" : "0") + ", 0, %p1;\n";
  body += "mov.b32 %r19, 0x3f000000; mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r20, %r21, %r22, %r23}, "
          "{%r15, %r16, %r17, %r18}, {%r13, %r14}, {%r19, %r19, %r19, %r19};\n"
          "mul.wide.u32 %d3, %r1, 4; add.s64 %d3, %d1, %d3; st.global.b32 [%d3], %r" +
          std::to_string(20 + sum) + ";";
  p.launch(p.kernel(body), p.a, 0, nullptr, 32);
  return std::bit_cast<float>(p.word(p.a + 4 * lane));
}
} // namespace

PROBE(AShuffleBeyondItsSegmentKeepsItsOwn, "PTX ISA: shfl.sync") {
  EXPECT(shuffled(p, "up.b32 %r4|%p1, %r1, 3, 0", 2) == 2);
  EXPECT(shuffled(p, "up.b32 %r4|%p1, %r1, 3, 0", 9) == 256 + 6);
  EXPECT(shuffled(p, "down.b32 %r4|%p1, %r1, 3, 31", 30) == 30);
  EXPECT(shuffled(p, "down.b32 %r4|%p1, %r1, 3, 0x181f", 6) == 6);
  EXPECT(shuffled(p, "bfly.b32 %r4|%p1, %r1, 5, 31", 8) == 256 + 13);
  EXPECT(shuffled(p, "idx.b32 %r4|%p1, %r1, 11, 0x181f", 20) == 256 + 19);
}
PROBE(ATileIsSpreadOverItsWarp, "PTX ISA: mma.m16n8k16, fragments for .bf16") {
  EXPECT(sumOf(p, {14, 1, 1}, 14, 3) == 45.5f);  // row 11 times column 5: row 5 of the right tile
  EXPECT(sumOf(p, {14, 1, 1}, 14, 1) == 0.5f);   // row 3
  EXPECT(sumOf(p, {14, 2, 0}, 12, 0) == 96.5f);  // row 3, column 0: row 12
  EXPECT(sumOf(p, {3, 0, 1}, 3, 1) == 63.5f);    // row 0, column 7: row 7
  EXPECT(sumOf(p, {31, 3, 1}, 28, 2) == 120.5f); // row 15, column 0: row 15
}
PROBE(ATileOfF16IsSpreadAsOneOfBf16, "PTX ISA: mma.m16n8k16, fragments for .f16") {
  EXPECT(sumOf(p, {14, 1, 1}, 14, 3, "f16") == 45.5f);
  EXPECT(sumOf(p, {14, 2, 0}, 12, 0, "f16") == 96.5f);
  EXPECT(sumOf(p, {31, 3, 1}, 28, 2, "f16") == 120.5f);
}
PROBE(ATileOfTf32IsSpreadOverItsWarp, "PTX ISA: mma.m16n8k8, fragments for .tf32") {
  EXPECT(sumOfTf32(p, {14, 1, 0}, 14, 3) == 21.5f); // row 11 times column 5: row 2 of the right tile
  EXPECT(sumOfTf32(p, {14, 1, 0}, 14, 1) == 0.5f);  // row 3
  EXPECT(sumOfTf32(p, {14, 2, 0}, 12, 0) == 48.5f); // row 3, column 0: row 6
  EXPECT(sumOfTf32(p, {31, 3, 0}, 28, 2) == 56.5f); // row 15, column 0: row 7
}
PROBE(ANumberOfTf32IsTheNearest, "PTX ISA: cvt.rna.tf32.f32") {
  EXPECT(p.compute("cvt.rna.tf32.f32 %r0, %r1;", 0x3f801000) == 0x3f802000); // ties go away from 0
  EXPECT(p.compute("cvt.rna.tf32.f32 %r0, %r1;", 0xbf801000) == 0xbf802000);
  EXPECT(p.compute("cvt.rna.tf32.f32 %r0, %r1;", 0x3f800fff) == 0x3f800000);
  EXPECT(p.compute("cvt.rna.tf32.f32 %r0, %r1;", 0x7f800000) == 0x7f800000);
}
PROBE(ACopyFillsWithZeros, "PTX ISA: cp.async, src-size") {
  // 63 threads copy 4 bytes, the last one 0 of 4; the words come back in reverse order.
  CUfunction kernel = p.kernel(
      "mul.wide.u32 %d3, %r1, 4; mov.b64 %d4, part; add.s64 %d5, %d4, %d3; add.s64 %d7, %d1, %d3;\n"
      "add.s32 %r4, %r1, 7; st.global.b32 [%d7], %r4; bar.sync 0;\n"
      "setp.eq.u32 %p1, %r1, 63; selp.b32 %r2, 0, 4, %p1; cp.async.ca.shared.global [%d5], [%d7], 4, %r2;\n"
      "cp.async.wait_all; bar.sync 0;\n"
      "sub.s32 %r2, 63, %r1; mul.wide.u32 %d6, %r2, 4; add.s64 %d6, %d4, %d6; ld.shared.b32 %r3, [%d6];\n"
      "st.global.b32 [%d7], %r3;",
      ".shared .align 16 .b8 part[256];\n");
  p.launch(kernel, p.a, 0, nullptr, 64);
  EXPECT(p.word(p.a) == 0 && p.word(p.a + 4) == 62 + 7 && p.word(p.a + 252) == 7);
}
PROBE(ACopyOf16BytesGoesAroundTheCache, "PTX ISA: cp.async.cg") {
  CUfunction kernel = p.kernel(
      "mul.wide.u32 %d3, %r1, 16; mov.b64 %d4, part; add.s64 %d5, %d4, %d3; add.s64 %d7, %d1, %d3;\n"
      "st.global.v4.b32 [%d7], {%r1, %r1, 5, %r1}; bar.sync 0;\n"
      "cp.async.cg.shared.global [%d5], [%d7], 16; cp.async.wait_all; ld.shared.b32 %r3, [%d5+8];\n"
      "st.global.b32 [%d7], %r3;",
      ".shared .align 16 .b8 part[256];\n");
  p.launch(kernel, p.a, 0, nullptr, 16);
  EXPECT(p.word(p.a) == 5 && p.word(p.a + 4) == 0 && p.word(p.a + 240) == 5 && p.word(p.a + 252) == 15);
}
PROBE(ABallotIsOfItsMask, "PTX ISA: vote.sync") {
  CUfunction whole = p.kernel("setp.lt.u32 %p1, %r1, 5; vote.sync.ballot.b32 %r4, %p1, -1;\nsetp.eq.u32 %p2, %r1, 0; "
                              "@%p2 st.global.b32 [%d1], %r4;");
  p.launch(whole, p.b, 0, nullptr, 32);
  EXPECT(p.word(p.b) == 31);
}
PROBE(ABarrierOrdersSharedMemory, "PTX ISA: bar.sync") {
  CUfunction kernel = p.kernel(
      "mul.wide.u32 %d3, %r1, 4; mov.b64 %d4, part; add.s64 %d5, %d4, %d3; st.shared.b32 [%d5], %r1; bar.sync 0;\n"
      "sub.s32 %r2, 63, %r1; mul.wide.u32 %d6, %r2, 4; add.s64 %d6, %d4, %d6; ld.shared.b32 %r3, [%d6];\n"
      "add.s64 %d7, %d1, %d3; st.global.b32 [%d7], %r3;",
      ".shared .align 4 .b8 part[256];\n");
  p.launch(kernel, p.a, 0, nullptr, 64);
  EXPECT(p.word(p.a) == 63 && p.word(p.a + 40) == 53 && p.word(p.a + 252) == 0);
}

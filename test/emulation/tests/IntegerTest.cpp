//===- IntegerTest.cpp - integer instructions against C++ ----------------===//
#include "test/emulation/tests/Evaluate.h"

#include <gtest/gtest.h>
#include <random>

using namespace tcc::emulation;

namespace {
std::vector<Inputs> integers() {
  std::vector<uint64_t> interesting = {0,
                                       1,
                                       2,
                                       7,
                                       31,
                                       32,
                                       33,
                                       63,
                                       64,
                                       65,
                                       127,
                                       128,
                                       255,
                                       256,
                                       0x7fffffff,
                                       0x80000000,
                                       0xffffffff,
                                       0x100000000,
                                       INT64_MAX,
                                       uint64_t{1} << 63,
                                       ~uint64_t{0},
                                       0x0123456789abcdef};
  std::vector<Inputs> all;
  std::mt19937_64 random(17);
  for (uint64_t a : interesting)
    for (uint64_t b : interesting)
      all.push_back({a, b, interesting[random() % interesting.size()], random() % 80});
  for (int i = 0; i < 500; ++i)
    all.push_back({random(), random(), random(), random()});
  return all;
}

/// Compares an instruction with a function of its operands' bits.
template <typename F> void expectEach(const std::string &body, char result, F reference) {
  auto inputs = integers();
  auto got = evaluate(body, result, inputs);
  ASSERT_EQ(got.problem, "") << body;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto &[a, b, c, d] = inputs[i];
    ASSERT_EQ(got.results[i], static_cast<uint64_t>(reference(a, b, c, d)))
        << body << " of " << std::hex << a << ", " << b << ", " << c << ", " << d;
  }
}
using u64 = uint64_t;
using u32 = uint32_t;
using s32 = int32_t;
using s64 = int64_t;
using u128 = unsigned __int128;
using s128 = __int128;
} // namespace

TEST(Integers, SumsAndProducts) {
  expectEach("add.s32 %r0, %r1, %r2;", 'r', [](u64 a, u64 b, u64, u64) { return u32(a + b); });
  expectEach("sub.s64 %d0, %d1, %d2;", 'd', [](u64 a, u64 b, u64, u64) { return a - b; });
  expectEach("add.s16 %h0, %h1, %h2;", 'h', [](u64 a, u64 b, u64, u64) { return uint16_t(a + b); });
  expectEach("mul.lo.s32 %r0, %r1, %r2;", 'r', [](u64 a, u64 b, u64, u64) { return u32(a) * u32(b); });
  expectEach("mul.hi.u32 %r0, %r1, %r2;", 'r', [](u64 a, u64 b, u64, u64) { return u32(u64{u32(a)} * u32(b) >> 32); });
  expectEach("mul.hi.s32 %r0, %r1, %r2;", 'r', [](u64 a, u64 b, u64, u64) { return u32(s64{s32(a)} * s32(b) >> 32); });
  expectEach("mul.wide.u32 %d0, %r1, %r2;", 'd', [](u64 a, u64 b, u64, u64) { return u64{u32(a)} * u32(b); });
  expectEach("mul.wide.s32 %d0, %r1, %r2;", 'd', [](u64 a, u64 b, u64, u64) { return s64{s32(a)} * s32(b); });
  expectEach("mul.hi.u64 %d0, %d1, %d2;", 'd', [](u64 a, u64 b, u64, u64) { return u64(u128(a) * b >> 64); });
  expectEach("mul.hi.s64 %d0, %d1, %d2;", 'd', [](u64 a, u64 b, u64, u64) { return u64(s128(s64(a)) * s64(b) >> 64); });
  expectEach("mad.lo.s32 %r0, %r1, %r2, %r3;", 'r', [](u64 a, u64 b, u64 c, u64) { return u32(a) * u32(b) + u32(c); });
  expectEach("mad.wide.s32 %d0, %r1, %r2, %d3;", 'd',
             [](u64 a, u64 b, u64 c, u64) { return u64(s64{s32(a)} * s32(b)) + c; });
  expectEach("add.cc.s64 %d0, %d1, %d2; addc.s64 %d0, %d3, %d4;", 'd',
             [](u64 a, u64 b, u64 c, u64 d) { return c + d + (a + b < a); });
  expectEach("sub.cc.s64 %d0, %d1, %d2; subc.s64 %d0, %d3, %d4;", 'd',
             [](u64 a, u64 b, u64 c, u64 d) { return c - d - (a < b); });
}

TEST(Integers, Pairs) {
  auto each = [](u64 a, u64 b, auto op) { return u32(uint16_t(op(a, b))) | u32(uint16_t(op(a >> 16, b >> 16))) << 16; };
  auto signedLess = [](u64 a, u64 b) { return int16_t(a) < int16_t(b); };
  expectEach("add.s16x2 %r0, %r1, %r2;", 'r',
             [&](u64 a, u64 b, u64, u64) { return each(a, b, [](u64 x, u64 y) { return x + y; }); });
  expectEach("min.s16x2 %r0, %r1, %r2;", 'r',
             [&](u64 a, u64 b, u64, u64) { return each(a, b, [&](u64 x, u64 y) { return signedLess(x, y) ? x : y; }); });
  expectEach("max.u16x2 %r0, %r1, %r2;", 'r', [&](u64 a, u64 b, u64, u64) {
    return each(a, b, [](u64 x, u64 y) { return std::max(uint16_t(x), uint16_t(y)); });
  });
  EXPECT_NE(evaluate("sub.s16x2 %r0, %r1, %r2;", 'r', integers()).problem, "");
}

TEST(Integers, Divisions) {
  auto or1 = [](auto v) { return v ? v : 1; };
  std::string guard =
      "setp.eq.b64 %p5, %d2, 0; selp.b64 %d2, 1, %d2, %p5; setp.eq.b32 %p6, %r2, 0; selp.b32 %r2, 1, %r2, %p6; ";
  expectEach(guard + "div.u32 %r0, %r1, %r2;", 'r', [&](u64 a, u64 b, u64, u64) { return u32(a) / or1(u32(b)); });
  expectEach(guard + "rem.u64 %d0, %d1, %d2;", 'd', [&](u64 a, u64 b, u64, u64) { return a % or1(b); });
  expectEach(guard + "div.s32 %r0, %r1, %r2;", 'r',
             [&](u64 a, u64 b, u64, u64) { return u32(s64{s32(a)} / or1(s32(b))); });
  expectEach(guard + "rem.s32 %r0, %r1, %r2;", 'r',
             [&](u64 a, u64 b, u64, u64) { return u32(s64{s32(a)} % or1(s32(b))); });
  expectEach(guard + "div.s64 %d0, %d1, %d2;", 'd',
             [&](u64 a, u64 b, u64, u64) { return u64(s128(s64(a)) / or1(s64(b))); });
}

TEST(Integers, ComparedAndChosen) {
  expectEach("min.s32 %r0, %r1, %r2;", 'r', [](u64 a, u64 b, u64, u64) { return u32(std::min(s32(a), s32(b))); });
  expectEach("max.u64 %d0, %d1, %d2;", 'd', [](u64 a, u64 b, u64, u64) { return std::max(a, b); });
  expectEach("setp.lt.s32 %p0, %r1, %r2;", 'p', [](u64 a, u64 b, u64, u64) { return s32(a) < s32(b); });
  expectEach("setp.ge.u64 %p0, %d1, %d2;", 'p', [](u64 a, u64 b, u64, u64) { return a >= b; });
  expectEach("setp.hi.u32 %p0, %r1, %r2;", 'p', [](u64 a, u64 b, u64, u64) { return u32(a) > u32(b); });
  expectEach("setp.lt.and.s64 %p0|%p5, %d1, %d2, !%p3;", 'p',
             [](u64 a, u64 b, u64 c, u64) { return s64(a) < s64(b) && !u32(c); });
  expectEach("setp.lt.xor.s64 %p5|%p0, %d1, %d2, %p3;", 'p',
             [](u64 a, u64 b, u64 c, u64) { return (s64(a) >= s64(b)) != (u32(c) != 0); });
  expectEach("selp.b64 %d0, %d1, %d2, %p3;", 'd', [](u64 a, u64 b, u64 c, u64) { return u32(c) ? a : b; });
  expectEach("abs.s32 %r0, %r1;", 'r', [](u64 a, u64, u64, u64) { return s32(a) < 0 ? 0u - u32(a) : u32(a); });
  expectEach("neg.s64 %d0, %d1;", 'd', [](u64 a, u64, u64, u64) { return 0 - a; });
}

TEST(Integers, Bits) {
  expectEach("and.b64 %d0, %d1, %d2;", 'd', [](u64 a, u64 b, u64, u64) { return a & b; });
  expectEach("xor.pred %p0, %p1, %p2;", 'p', [](u64 a, u64 b, u64, u64) { return (u32(a) != 0) != (u32(b) != 0); });
  expectEach("not.b16 %h0, %h1;", 'h', [](u64 a, u64, u64, u64) { return uint16_t(~a); });
  expectEach("shl.b32 %r0, %r1, %r2;", 'r', [](u64 a, u64 b, u64, u64) { return u32(b) > 31 ? 0 : u32(a) << u32(b); });
  expectEach("shl.b64 %d0, %d1, %r2;", 'd', [](u64 a, u64 b, u64, u64) { return u32(b) > 63 ? 0 : a << u32(b); });
  expectEach("shr.u64 %d0, %d1, %r2;", 'd', [](u64 a, u64 b, u64, u64) { return u32(b) > 63 ? 0 : a >> u32(b); });
  expectEach("shr.s32 %r0, %r1, %r2;", 'r',
             [](u64 a, u64 b, u64, u64) { return u32(s32(a) >> std::min(u32(b), 31u)); });
  expectEach("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", 'r',
             [](u64 a, u64 b, u64 c, u64) { return u32((b << 32 | u32(a)) << (c & 31) >> 32); });
  expectEach("shf.r.wrap.b32 %r0, %r1, %r2, %r3;", 'r',
             [](u64 a, u64 b, u64 c, u64) { return u32((b << 32 | u32(a)) >> (c & 31)); });
  expectEach("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", 'r',
             [](u64 a, u64 b, u64 c, u64) { return u32(u32(c) > 31 ? b : (b << 32 | u32(a)) >> u32(c)); });
  expectEach("popc.b64 %r0, %d1;", 'r', [](u64 a, u64, u64, u64) { return std::popcount(a); });
  expectEach("clz.b32 %r0, %r1;", 'r', [](u64 a, u64, u64, u64) { return std::countl_zero(u32(a)); });
  expectEach("clz.b64 %r0, %d1;", 'r', [](u64 a, u64, u64, u64) { return std::countl_zero(a); });
  expectEach("brev.b32 %r0, %r1;", 'r', [](u64 a, u64, u64, u64) {
    u32 r = 0;
    for (int i = 0; i < 32; ++i)
      r |= u32(a >> i & 1) << (31 - i);
    return r;
  });
  expectEach("lop3.b32 %r0, %r1, %r2, %r3, 0xe2;", 'r', [](u64 a, u64 b, u64 c, u64) { // 0xe2: b chooses a or c
    return u32((b & a) | (~b & c));
  });
  expectEach("prmt.b32 %r0, %r1, 0, 0x123U;", 'r', [](u64 a, u64, u64, u64) { return __builtin_bswap32(u32(a)); });
  expectEach("prmt.b32 %r0, %r1, %r2, 0xe540U;", 'r', [](u64 a, u64 b, u64, u64) {
    return u32(a & 0xff) | u32(b & 0xff) << 8 | u32(b >> 8 & 0xff) << 16 | (b >> 23 & 1 ? 0xff000000u : 0);
  });
}

// The formulas of the PTX ISA, sections "bfe" and "bfi", bit by bit.
TEST(Integers, BitFields) {
  auto extract = [](u64 a, unsigned pos, unsigned len, unsigned width, bool isSigned) {
    unsigned msb = width - 1;
    bool sign = isSigned && len ? a >> std::min(pos + len - 1, msb) & 1 : false;
    u64 d = 0;
    for (unsigned i = 0; i <= msb; ++i)
      d |= u64(i < len && pos + i <= msb ? a >> (pos + i) & 1 : sign) << i;
    return d;
  };
  expectEach("bfe.u32 %r0, %r1, %r2, %r4;", 'r',
             [&](u64 a, u64 b, u64, u64 d) { return extract(u32(a), b & 255, d & 255, 32, false); });
  expectEach("bfe.s32 %r0, %r1, %r2, %r4;", 'r',
             [&](u64 a, u64 b, u64, u64 d) { return extract(u32(a), b & 255, d & 255, 32, true); });
  expectEach("bfe.s64 %d0, %d1, %r2, %r4;", 'd',
             [&](u64 a, u64 b, u64, u64 d) { return extract(a, b & 255, d & 255, 64, true); });
  expectEach("bfi.b32 %r0, %r1, %r2, %r3, %r4;", 'r', [](u64 a, u64 b, u64 c, u64 d) {
    u32 f = u32(b);
    for (unsigned i = 0; i < (d & 255) && (c & 255) + i < 32; ++i) {
      unsigned at = unsigned(c & 255) + i;
      f = (f & ~(1u << at)) | u32(i < 32 ? a >> i & 1 : 0) << at;
    }
    return f;
  });
}

TEST(Integers, WidthsAndPacks) {
  expectEach("cvt.s64.s32 %d0, %r1;", 'd', [](u64 a, u64, u64, u64) { return s64{s32(a)}; });
  expectEach("cvt.s32.s8 %r0, %r1;", 'r', [](u64 a, u64, u64, u64) { return u32(s32{int8_t(a)}); });
  expectEach("cvt.u32.u16 %r0, %h1;", 'r', [](u64 a, u64, u64, u64) { return uint16_t(a); });
  expectEach("cvt.s16.s8 %r0, %r1;", 'r', [](u64 a, u64, u64, u64) { return u32(s32{int8_t(a)}); });
  expectEach("mov.b32 {%h0, _}, %r1;", 'h', [](u64 a, u64, u64, u64) { return uint16_t(a); });
  expectEach("mov.b32 {_, %h0}, %r1;", 'h', [](u64 a, u64, u64, u64) { return uint16_t(a >> 16); });
  expectEach("mov.b64 %d0, {%r1, %r2};", 'd', [](u64 a, u64 b, u64, u64) { return u64{u32(a)} | b << 32; });
  expectEach("mov.b64 {%r5, %r6}, %d1; mov.b64 %d0, {%r6, %r5};", 'd',
             [](u64 a, u64, u64, u64) { return a << 32 | a >> 32; });
}

TEST(Integers, GuardsAndBranches) {
  expectEach("mov.b64 %d0, 5; @%p1 mov.b64 %d0, 7; @!%p2 add.s64 %d0, %d0, 1;", 'd',
             [](u64 a, u64 b, u64, u64) { return (u32(a) ? 7 : 5) + (u32(b) ? 0 : 1); });
  expectEach("and.b32 %r5, %r1, 3; mov.b32 %r6, 0;\n"
             "$loop: add.s32 %r6, %r6, %r5; sub.s32 %r5, %r5, 1; setp.gt.s32 %p5, %r5, 0; @%p5 bra $loop;\n"
             "list: .branchtargets $zero, $one, $loopdone;\n"
             "min.u32 %r7, %r6, 2; brx.idx %r7, list;\n"
             "$zero: mov.b32 %r0, 100; bra.uni $out;\n$one: mov.b32 %r0, 101; bra.uni $out;\n"
             "$loopdone: mov.b32 %r0, %r6;\n$out:",
             'r', [](u64 a, u64, u64, u64) {
               u32 n = a & 3, sum = n == 0 ? 0 : n * (n + 1) / 2;
               return sum == 0 ? 100 : sum == 1 ? 101 : sum;
             });
}

//===- FloatTest.cpp - floating point and conversions against C++ --------===//
//
// x86 computes f32 and f64 as IEEE 754 says. Results in 16-bit formats are compared with the nearest number of the
// format, found by a search with 113-bit arithmetic.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/tests/Evaluate.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace tcc::emulation;

namespace {
using u64 = uint64_t;
using u32 = uint32_t;
float f32(u64 bits) { return std::bit_cast<float>(u32(bits)); }
double f64(u64 bits) { return std::bit_cast<double>(bits); }
/// The bits of a result; every NaN in f32 has the same bits.
u64 out(float v) { return std::isnan(v) ? 0x7fffffff : bits(v); }
u64 out(double v) { return bits(v); }

std::vector<u64> specialFloats() {
  std::vector<u64> all;
  for (u32 magnitude : {0u,          1u,          2u,          0x7fffffu,   0x800000u,   0x800001u,   0x3f7fffffu,
                        0x3f800000u, 0x3f800001u, 0x3f000000u, 0x3fc00000u, 0x40200000u, 0x4b000000u, 0x4b000001u,
                        0x4effffffu, 0x4f000000u, 0x4f7fffffu, 0x4f800000u, 0x5f000000u, 0x5f800000u, 0x477fe000u,
                        0x477ff000u, 0x33000000u, 0x33000001u, 0x38800000u, 0x7f7fffffu, 0x7f7f7fffu, 0x7f7f8000u,
                        0x7f800000u, 0x7fc00000u, 0x7f800001u, 0x00004000u, 0x0000c000u, 0x00008000u})
    all.insert(all.end(), {magnitude, magnitude | 0x80000000u});
  return all;
}
std::vector<u64> specialDoubles() {
  std::vector<u64> all;
  for (u64 v : specialFloats())
    all.push_back(bits(static_cast<double>(f32(v))));
  for (double v : {1e300, 4.9e-324, 65504.0, 65519.999999, 65520.0, 5.96046448e-8, 2.98023223876953125e-8,
                   2.9802322387695316e-8, 9.2e18, 9.3e18, 1.0009765625000002, 1.00048828125, 1.0004882812500002,
                   1.00390625, 1.0039062500000002, 1.001953125e-40, 9.183549615799121e-41})
    all.insert(all.end(), {bits(v), bits(-v)});
  return all;
}
std::vector<Inputs> triples(const std::vector<u64> &special, bool wide) {
  std::vector<Inputs> all;
  std::mt19937_64 random(5);
  for (u64 a : special)
    for (u64 b : special)
      all.push_back({a, b, special[random() % special.size()], random()});
  for (int i = 0; i < 3000; ++i)
    all.push_back({random(), random(), random(), random()});
  for (int i = 0; i < 3000; ++i) { // near 1, where sums cancel
    auto draw = [&] { return wide ? bits(double(random() % 4096) / 1024) : bits(float(random() % 4096) / 1024); };
    all.push_back({draw(), draw(), draw(), random()});
  }
  return all;
}
template <typename F>
void expectEach(const std::string &body, char result, const std::vector<Inputs> &inputs, F reference) {
  auto got = evaluate(body, result, inputs);
  ASSERT_EQ(got.problem, "") << body;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto &[a, b, c, d] = inputs[i];
    u64 expected = static_cast<u64>(reference(a, b, c));
    ASSERT_EQ(got.results[i], expected) << body << " of " << std::hex << a << ", " << b << ", " << c << " gives "
                                        << got.results[i] << ", expected " << expected;
  }
}

/// A 16-bit format; nearest() finds the number of the format that is nearest to a value.
struct Narrow {
  unsigned fraction;
  double value(unsigned bits) const {
    int exponentBits = int(15 - fraction), bias = (1 << (exponentBits - 1)) - 1;
    int exponent = int(bits >> fraction & ((1u << exponentBits) - 1));
    double f = double(bits & ((1u << fraction) - 1));
    double magnitude = exponent ? std::ldexp(f + double(1u << fraction), exponent - bias - int(fraction))
                                : std::ldexp(f, 1 - bias - int(fraction));
    return bits & 0x8000 ? -magnitude : magnitude;
  }
  unsigned infinity() const { return 0x7fffu & ~((1u << fraction) - 1); }
  u64 nearest(__float128 v, bool negativeZero) const {
    if (v != v)
      return 0x7fff;
    bool negative = v < 0 || (v == 0 && negativeZero);
    __float128 magnitude = v < 0 ? -v : v;
    unsigned low = 0, high = infinity(); // magnitude is in [value(low), value(high)]
    if (magnitude > __float128(value(high - 1)) * 4)
      return (negative ? 0x8000u : 0u) | infinity();
    while (high - low > 1) {
      unsigned middle = (low + high) / 2;
      (__float128(value(middle)) <= magnitude ? low : high) = middle;
    }
    // When rounding beyond the largest number, infinity counts as the next power of two.
    __float128 below = __float128(value(low)),
               above = high == infinity() ? below + (below - __float128(value(low - 1))) : __float128(value(high));
    __float128 down = magnitude - below, up = above - magnitude;
    unsigned chosen = down < up || (down == up && !(low & 1)) ? low : high;
    return (negative ? 0x8000u : 0u) | chosen;
  }
  double number(u64 bits) const {
    unsigned magnitude = bits & 0x7fff;
    if (magnitude > infinity())
      return std::numeric_limits<double>::quiet_NaN();
    double sign = bits & 0x8000 ? -1 : 1;
    return magnitude == infinity() ? sign * std::numeric_limits<double>::infinity() : value(unsigned(bits & 0xffff));
  }
};
constexpr Narrow kHalf{10}, kBfloat{7};
} // namespace

TEST(Floats, Arithmetic32) {
  auto inputs = triples(specialFloats(), false);
  expectEach("add.rn.f32 %r0, %r1, %r2;", 'r', inputs, [](u64 a, u64 b, u64) { return out(f32(a) + f32(b)); });
  expectEach("sub.rn.f32 %r0, %r1, %r2;", 'r', inputs, [](u64 a, u64 b, u64) { return out(f32(a) - f32(b)); });
  expectEach("mul.rn.f32 %r0, %r1, %r2;", 'r', inputs, [](u64 a, u64 b, u64) { return out(f32(a) * f32(b)); });
  expectEach("div.rn.f32 %r0, %r1, %r2;", 'r', inputs, [](u64 a, u64 b, u64) { return out(f32(a) / f32(b)); });
  expectEach("fma.rn.f32 %r0, %r1, %r2, %r3;", 'r', inputs,
             [](u64 a, u64 b, u64 c) { return out(std::fma(f32(a), f32(b), f32(c))); });
  expectEach("sqrt.rn.f32 %r0, %r1;", 'r', inputs, [](u64 a, u64, u64) { return out(std::sqrt(f32(a))); });
  expectEach("rcp.rn.f32 %r0, %r1;", 'r', inputs, [](u64 a, u64, u64) { return out(1.0f / f32(a)); });
  expectEach("neg.f32 %r0, %r1;", 'r', inputs, [](u64 a, u64, u64) { return u32(a) ^ 0x80000000u; });
  expectEach("abs.f32 %r0, %r1;", 'r', inputs, [](u64 a, u64, u64) { return a & 0x7fffffff; });
  expectEach("copysign.f32 %r0, %r1, %r2;", 'r', inputs,
             [](u64 a, u64 b, u64) { return (a & 0x80000000) | (b & 0x7fffffff); });
}

TEST(Floats, Arithmetic64) {
  auto inputs = triples(specialDoubles(), true);
  auto skip = [](u64 got) { return std::isnan(f64(got)) ? u64{1} : got; };
  auto wrap = [&](const std::string &body, auto reference) { // skips NaN, whose payload may be either operand's
    expectEach(body + " testp.notanumber.f64 %p5, %d0; selp.b64 %d0, 1, %d0, %p5;", 'd', inputs,
               [&](u64 a, u64 b, u64 c) { return skip(out(reference(f64(a), f64(b), f64(c)))); });
  };
  wrap("add.rn.f64 %d0, %d1, %d2;", [](double a, double b, double) { return a + b; });
  wrap("mul.rn.f64 %d0, %d1, %d2;", [](double a, double b, double) { return a * b; });
  wrap("div.rn.f64 %d0, %d1, %d2;", [](double a, double b, double) { return a / b; });
  wrap("fma.rn.f64 %d0, %d1, %d2, %d3;", [](double a, double b, double c) { return std::fma(a, b, c); });
  wrap("sqrt.rn.f64 %d0, %d1;", [](double a, double, double) { return std::sqrt(a); });
}

TEST(Floats, MinimaAndComparisons) {
  auto inputs = triples(specialFloats(), false);
  auto less = [](float a, float b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); };
  auto number = [&](u64 a, u64 b, bool least) {
    float x = f32(a), y = f32(b);
    if (std::isnan(x) || std::isnan(y))
      return out(std::isnan(x) ? y : x);
    return out(less(x, y) == least ? x : y);
  };
  expectEach("min.f32 %r0, %r1, %r2;", 'r', inputs, [&](u64 a, u64 b, u64) { return number(a, b, true); });
  expectEach("max.f32 %r0, %r1, %r2;", 'r', inputs, [&](u64 a, u64 b, u64) { return number(a, b, false); });
  expectEach("max.NaN.f32 %r0, %r1, %r2;", 'r', inputs, [&](u64 a, u64 b, u64) {
    return std::isnan(f32(a)) || std::isnan(f32(b)) ? 0x7fffffff : number(a, b, false);
  });
  expectEach("setp.lt.f32 %p0, %r1, %r2;", 'p', inputs, [](u64 a, u64 b, u64) { return f32(a) < f32(b); });
  expectEach("setp.geu.f32 %p0, %r1, %r2;", 'p', inputs, [](u64 a, u64 b, u64) { return !(f32(a) < f32(b)); });
  expectEach("setp.ne.f32 %p0, %r1, %r2;", 'p', inputs,
             [](u64 a, u64 b, u64) { return f32(a) < f32(b) || f32(a) > f32(b); });
  expectEach("setp.neu.f32 %p0, %r1, %r2;", 'p', inputs, [](u64 a, u64 b, u64) { return f32(a) != f32(b); });
  expectEach("setp.nan.f32 %p0, %r1, %r2;", 'p', inputs,
             [](u64 a, u64 b, u64) { return std::isnan(f32(a)) || std::isnan(f32(b)); });
}

TEST(Floats, IntegralNumbers) {
  auto inputs = triples(specialFloats(), false);
  expectEach("cvt.rni.f32.f32 %r0, %r1;", 'r', inputs, [](u64 a, u64, u64) { return out(std::nearbyint(f32(a))); });
  expectEach("cvt.rmi.f32.f32 %r0, %r1;", 'r', inputs, [](u64 a, u64, u64) { return out(std::floor(f32(a))); });
  expectEach("cvt.rpi.f32.f32 %r0, %r1;", 'r', inputs, [](u64 a, u64, u64) { return out(std::ceil(f32(a))); });
  expectEach("cvt.rzi.f32.f32 %r0, %r1;", 'r', inputs, [](u64 a, u64, u64) { return out(std::trunc(f32(a))); });
  auto clamp = [](double v, double least, double most, u64 low, u64 high, u64 ofNan) {
    return std::isnan(v) ? ofNan
           : v <= least  ? low
           : v >= most   ? high
                         : u64(int64_t(v < 9.2e18 ? v : v - 9.2e18)) + (v < 9.2e18 ? 0 : u64(9.2e18));
  };
  expectEach("cvt.rzi.s32.f32 %r0, %r1;", 'r', inputs, [&](u64 a, u64, u64) {
    return u32(clamp(std::trunc(f32(a)), -2147483648.0, 2147483647.0, 0x80000000, 0x7fffffff, 0));
  });
  expectEach("cvt.rni.u32.f32 %r0, %r1;", 'r', inputs,
             [&](u64 a, u64, u64) { return u32(clamp(std::nearbyint(f32(a)), 0, 4294967295.0, 0, 0xffffffff, 0)); });
  expectEach("cvt.rzi.s64.f32 %d0, %r1;", 'd', inputs, [&](u64 a, u64, u64) {
    return clamp(std::trunc(f32(a)), -0x1p63, 0x1p63, u64{1} << 63, INT64_MAX, u64{1} << 63);
  });
  expectEach("cvt.rmi.s32.f64 %r0, %d1;", 'r', triples(specialDoubles(), true), [&](u64 a, u64, u64) {
    return u32(clamp(std::floor(f64(a)), -2147483648.0, 2147483647.0, 0x80000000, 0x7fffffff, 0x80000000));
  });
}

TEST(Floats, Conversions) {
  auto floats = triples(specialFloats(), false), doubles = triples(specialDoubles(), true);
  expectEach("cvt.rn.f32.f64 %r0, %d1;", 'r', doubles, [](u64 a, u64, u64) { return out(float(f64(a))); });
  expectEach("cvt.rz.f32.f64 %r0, %d1;", 'r', doubles, [](u64 a, u64, u64) {
    float v = float(f64(a));
    return out(!std::isnan(v) && !std::isinf(f64(a)) && std::fabs(double(v)) > std::fabs(f64(a))
                   ? std::nextafter(v, 0.0f)
                   : v);
  });
  expectEach("cvt.f64.f32 %d0, %r1; testp.notanumber.f64 %p5, %d0; selp.b64 %d0, 1, %d0, %p5;", 'd', floats,
             [](u64 a, u64, u64) { return std::isnan(f32(a)) ? 1 : bits(double(f32(a))); });
  expectEach("cvt.rn.f32.s32 %r0, %r1;", 'r', floats, [](u64 a, u64, u64) { return out(float(int32_t(a))); });
  expectEach("cvt.rn.f32.u64 %r0, %d1;", 'r', doubles, [](u64 a, u64, u64) { return out(float(a)); });
  expectEach("cvt.rn.f64.s64 %d0, %d1;", 'd', doubles, [](u64 a, u64, u64) { return bits(double(int64_t(a))); });
  for (auto &[type, format] : {std::pair{"f16", kHalf}, std::pair{"bf16", kBfloat}}) {
    std::string t = type;
    auto round = [format = format](double v) { return format.nearest(v, std::signbit(v)); };
    expectEach("cvt.rn." + t + ".f32 %h0, %r1;", 'h', floats, [&](u64 a, u64, u64) { return round(double(f32(a))); });
    expectEach("cvt.rn." + t + ".f64 %h0, %d1;", 'h', doubles, [&](u64 a, u64, u64) { return round(f64(a)); });
    expectEach("cvt.rn." + t + ".s32 %h0, %r1;", 'h', floats,
               [&](u64 a, u64, u64) { return round(double(int32_t(a))); });
    if (t == "f16") {
      std::vector<Inputs> wide = doubles;
      for (u64 value : {u64{2049}, u64{4095}, u64{65519}, u64{65520}, u64{65536}, u64{1} << 63, ~u64{0}, ~u64{2048}})
        wide.push_back({value, 0, 0, 0});
      expectEach("cvt.rn.f16.u64 %h0, %d1;", 'h', wide, [&](u64 a, u64, u64) { return format.nearest(__float128(a), false); });
      expectEach("cvt.rn.f16.s64 %h0, %d1;", 'h', wide,
                 [&](u64 a, u64, u64) { return format.nearest(__float128(int64_t(a)), false); });
    }
    expectEach("cvt.f32." + t + " %r0, %h1;", 'r', floats,
               [format = format](u64 a, u64, u64) { return out(float(format.number(a))); });
    expectEach("cvt.rn." + t + "x2.f32 %r0, %r1, %r2;", 'r', floats,
               [&](u64 a, u64 b, u64) { return round(double(f32(a))) << 16 | round(double(f32(b))); });
  }
}

TEST(Floats, Arithmetic16) {
  std::vector<Inputs> inputs;
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) { // exponents near each other, so that 113 bits hold a product and a sum
    auto near = [&](unsigned fraction, unsigned spread) {
      unsigned least = (1u << (14 - fraction)) - spread / 2;
      return (random() & 0x8000) | (least + random() % spread) << fraction | (random() & ((1u << fraction) - 1));
    };
    u64 h = 0, b = 0;
    Inputs in;
    for (u64 &value : in) {
      h = near(10, 16);
      b = near(7, 24);
      value = h | b << 16 | near(10, 16) << 32 | near(7, 24) << 48;
    }
    inputs.push_back(in);
  }
  for (u64 v : {0x0000u, 0x8000u, 0x0001u, 0x7c00u, 0xfc00u, 0x7e00u, 0x7f80u, 0x7fc0u, 0x3c00u, 0x3f80u, 0x7bffu})
    for (u64 w : {0x0000u, 0x8000u, 0x0001u, 0x7c00u, 0xfc00u, 0x7e00u, 0x7f80u, 0x7fc0u, 0x3c00u, 0x3f80u, 0x7bffu})
      inputs.push_back({v * 0x10001, w * 0x10001, v * 0x10001, 0});
  auto sum = [](const Narrow &f, u64 a, u64 b) {
    double v = f.number(a) + f.number(b);
    return f.nearest(v, std::signbit(v));
  };
  auto fused = [](const Narrow &f, u64 a, u64 b, u64 c) {
    double sign = std::fma(f.number(a), f.number(b), f.number(c));
    if (!std::isfinite(sign))
      return f.nearest(sign, false);
    return f.nearest(__float128(f.number(a)) * f.number(b) + f.number(c), std::signbit(sign));
  };
  expectEach("add.rn.f16 %h0, %h1, %h2;", 'h', inputs, [&](u64 a, u64 b, u64) { return sum(kHalf, a, b); });
  expectEach("fma.rn.f16 %h0, %h1, %h2, %h3;", 'h', inputs, [&](u64 a, u64 b, u64 c) { return fused(kHalf, a, b, c); });
  std::string upper = "mov.b32 {_, %h1}, %r1; mov.b32 {_, %h2}, %r2; mov.b32 {_, %h3}, %r3; ";
  expectEach(upper + "add.rn.bf16 %h0, %h1, %h2;", 'h', inputs,
             [&](u64 a, u64 b, u64) { return sum(kBfloat, a >> 16, b >> 16); });
  expectEach(upper + "fma.rn.bf16 %h0, %h1, %h2, %h3;", 'h', inputs,
             [&](u64 a, u64 b, u64 c) { return fused(kBfloat, a >> 16, b >> 16, c >> 16); });
  expectEach("add.rn.f16x2 %r0, %r1, %r2;", 'r', inputs,
             [&](u64 a, u64 b, u64) { return sum(kHalf, a, b) | sum(kHalf, a >> 16, b >> 16) << 16; });
}

//===- Numbers.cpp - roundings that x86 has no instruction for -----------===//
#include "test/emulation/ptx/Numbers.h"

#include <bit>
#include <cmath>

namespace tcc::emulation::ptx {

uint16_t roundTo16(double value, unsigned fraction, bool towardZero) {
  if (std::isnan(value))
    return 0x7fff;
  const unsigned exponentBits = 15 - fraction;
  const int bias = (1 << (exponentBits - 1)) - 1, least = 1 - bias;
  auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  auto infinity = static_cast<uint16_t>(((1u << exponentBits) - 1) << fraction);
  double magnitude = std::fabs(value);
  if (std::isinf(magnitude))
    return sign | infinity;
  if (magnitude == 0)
    return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < least)
    exponent = least; // subnormal: the quantum stays
  // In units of the last place the number is exact in a double; its fractional part decides the rounding.
  double units = std::ldexp(magnitude, static_cast<int>(fraction) - exponent);
  double whole = std::floor(units), rest = units - whole;
  if (!towardZero && (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) == 1)))
    whole += 1;
  // A carry out of the fraction moves into the exponent by itself.
  auto bits = static_cast<int64_t>(whole) + (static_cast<int64_t>(exponent - least) << fraction);
  if (bits >= infinity)
    return sign | (towardZero ? static_cast<uint16_t>(infinity - 1) : infinity);
  return sign | static_cast<uint16_t>(bits);
}

uint16_t fusedTo16(double a, double b, double c, unsigned fraction) {
  // The product of two such numbers is exact in a double. The sum is rounded to odd, which makes the second rounding
  // the only one that counts (Boldo and Melquiond, 2008): its error is exact by Knuth's two-sum.
  double product = a * b, sum = product + c;
  if (!std::isfinite(sum))
    return roundTo16(sum, fraction, false);
  double part = sum - product, error = (product - (sum - part)) + (c - part);
  auto bits = std::bit_cast<uint64_t>(sum);
  if (error != 0 && !(bits & 1))
    sum = std::bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
  return roundTo16(sum, fraction, false);
}

float roundToF32TowardZero(double value) {
  auto nearest = static_cast<float>(value);
  if (std::isnan(nearest) || std::isinf(value))
    return nearest;
  return std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? std::nextafter(nearest, 0.0f) : nearest;
}

} // namespace tcc::emulation::ptx

//===- Convert.cpp - element types of columns and inputs -----------------===//
#include "runtime/data/Convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <utility>

using namespace tcc;
using namespace tcc::runtime;

namespace {
using Wide = __int128;

template <typename T> T load(const std::byte *source, uint64_t index) {
  T value;
  std::memcpy(&value, source + index * sizeof(T), sizeof(T));
  return value;
}

Wide loadInteger(const std::byte *source, plan::DType dtype, uint64_t i) {
  switch (dtype) {
  case plan::I64:
    return load<int64_t>(source, i);
  case plan::I32:
    return load<int32_t>(source, i);
  case plan::I16:
    return load<int16_t>(source, i);
  case plan::I8:
    return load<int8_t>(source, i);
  case plan::U64:
    return load<uint64_t>(source, i);
  case plan::U32:
    return load<uint32_t>(source, i);
  case plan::U16:
    return load<uint16_t>(source, i);
  case plan::U8:
    return load<uint8_t>(source, i);
  case plan::I1:
    return load<uint8_t>(source, i) != 0;
  default:
    return 0;
  }
}

template <typename T> std::pair<Wide, Wide> rangeOf() {
  return {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
}

std::pair<Wide, Wide> integerRange(plan::DType dtype) {
  switch (dtype) {
  case plan::I64:
    return rangeOf<int64_t>();
  case plan::I32:
    return rangeOf<int32_t>();
  case plan::I16:
    return rangeOf<int16_t>();
  case plan::I8:
    return rangeOf<int8_t>();
  case plan::U64:
    return rangeOf<uint64_t>();
  case plan::U32:
    return rangeOf<uint32_t>();
  case plan::U16:
    return rangeOf<uint16_t>();
  case plan::U8:
    return rangeOf<uint8_t>();
  default:
    return {0, 1};
  }
}

bool isInteger(plan::DType dtype) { return dtype != plan::DTYPE_NONE && !plan::isFloatingPoint(dtype); }
} // namespace

bool tcc::runtime::mayConvert(plan::DType from, plan::DType to, bool text) {
  return from == to || (isInteger(from) && isInteger(to)) || (text && plan::isFloatingPoint(to));
}

bool tcc::runtime::alwaysFits(plan::DType from, plan::DType to) {
  if (from == to || to == plan::F64 || (to != plan::F16 && plan::isFloatingPoint(to) && isInteger(from)))
    return true; // of the floating-point types, only f16 has a largest number below some integers
  if (plan::isFloatingPoint(from) || plan::isFloatingPoint(to))
    return false;
  auto [fromLeast, fromMost] = integerRange(from);
  auto [toLeast, toMost] = integerRange(to);
  return fromLeast >= toLeast && fromMost <= toMost;
}

std::optional<uint64_t> tcc::runtime::convertElements(const std::byte *source, plan::DType from, std::byte *destination,
                                                      plan::DType to, uint64_t count) {
  uint64_t width = plan::dtypeBytes(to);
  if (from == to && from != plan::I1) {
    std::memcpy(destination, source, count * width);
    return std::nullopt;
  }
  if (plan::isFloatingPoint(to)) {
    for (uint64_t i = 0; i < count; ++i) {
      const double value = numberElement(source, from, i);
      plan::fillElements(destination + i * width, to, 1, value);
      if (std::isfinite(value) && !std::isfinite(floatElement(destination, to, i)))
        return i;
    }
    return std::nullopt;
  }
  auto [least, most] = integerRange(to);
  for (uint64_t i = 0; i < count; ++i) {
    Wide value = loadInteger(source, from, i);
    if (value < least || value > most)
      return i;
    auto low = static_cast<uint64_t>(value); // two's complement, little endian: the low bytes are the value
    std::memcpy(destination + i * width, &low, width);
  }
  return std::nullopt;
}

int64_t tcc::runtime::integerElement(const std::byte *source, plan::DType dtype, uint64_t index) {
  return static_cast<int64_t>(loadInteger(source, dtype, index));
}

namespace {
/// A value is not finite if all exponent bits are set, and a NaN if a bit of the mantissa is set, too. `Bits` is an
/// unsigned integer as wide as the type. Works in blocks, so that the test is vectorised and still stops early.
template <typename Bits>
std::optional<uint64_t> firstSpecial(const std::byte *source, uint64_t count, unsigned mantissa, bool infinities) {
  constexpr uint64_t kBlock = 4096;
  const Bits magnitude = static_cast<Bits>(~(Bits(1) << (8 * sizeof(Bits) - 1)));
  const Bits infinity = static_cast<Bits>(magnitude & ~((Bits(1) << mantissa) - 1));
  const Bits most = static_cast<Bits>(infinities ? infinity - 1 : infinity);
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    uint64_t end = std::min(begin + kBlock, count);
    bool bad = false;
    for (uint64_t i = begin; i < end; ++i)
      bad |= static_cast<Bits>(load<Bits>(source, i) & magnitude) > most;
    for (uint64_t i = begin; bad && i < end; ++i)
      if (static_cast<Bits>(load<Bits>(source, i) & magnitude) > most)
        return i;
  }
  return std::nullopt;
}

template <typename T>
std::optional<uint64_t> firstOutsideOf(const std::byte *source, uint64_t count, int64_t low, int64_t high) {
  auto [least, most] = rangeOf<T>();
  if (count == 0 || (Wide(low) <= least && Wide(high) >= most))
    return std::nullopt;
  if (low > high || Wide(low) > most || Wide(high) < least)
    return 0;
  const T from = static_cast<T>(std::max(Wide(low), least)), to = static_cast<T>(std::min(Wide(high), most));
  constexpr uint64_t kBlock = 4096;
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    uint64_t end = std::min(begin + kBlock, count);
    bool bad = false;
    for (uint64_t i = begin; i < end; ++i) {
      T value = load<T>(source, i);
      bad |= (value < from) | (value > to);
    }
    for (uint64_t i = begin; bad && i < end; ++i)
      if (T value = load<T>(source, i); value < from || value > to)
        return i;
  }
  return std::nullopt;
}
} // namespace

std::optional<uint64_t> tcc::runtime::firstNonFinite(const std::byte *source, plan::DType dtype, uint64_t count,
                                                     bool infinities) {
  switch (dtype) {
  case plan::F64:
    return firstSpecial<uint64_t>(source, count, 52, infinities);
  case plan::F32:
    return firstSpecial<uint32_t>(source, count, 23, infinities);
  case plan::BF16:
    return firstSpecial<uint16_t>(source, count, 7, infinities);
  case plan::F16:
    return firstSpecial<uint16_t>(source, count, 10, infinities);
  default:
    return std::nullopt;
  }
}

std::optional<uint64_t> tcc::runtime::firstOutside(const std::byte *source, plan::DType dtype, uint64_t count,
                                                   int64_t low, int64_t high) {
  switch (dtype) {
  case plan::I64:
    return firstOutsideOf<int64_t>(source, count, low, high);
  case plan::I32:
    return firstOutsideOf<int32_t>(source, count, low, high);
  case plan::I16:
    return firstOutsideOf<int16_t>(source, count, low, high);
  case plan::I8:
    return firstOutsideOf<int8_t>(source, count, low, high);
  case plan::U64:
    return firstOutsideOf<uint64_t>(source, count, low, high);
  case plan::U32:
    return firstOutsideOf<uint32_t>(source, count, low, high);
  case plan::U16:
    return firstOutsideOf<uint16_t>(source, count, low, high);
  case plan::U8:
  case plan::I1:
    return firstOutsideOf<uint8_t>(source, count, low, high);
  default:
    return std::nullopt;
  }
}

double tcc::runtime::floatElement(const std::byte *source, plan::DType dtype, uint64_t index) {
  switch (dtype) {
  case plan::F64:
    return load<double>(source, index);
  case plan::F32:
    return load<float>(source, index);
  case plan::BF16:
    return std::bit_cast<float>(uint32_t(load<uint16_t>(source, index)) << 16);
  case plan::F16: {
    uint16_t bits = load<uint16_t>(source, index);
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent == 31 ? (mantissa ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL)
                   : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                  : std::ldexp(mantissa, -24);
    return bits & 0x8000 ? -value : value;
  }
  default:
    return 0;
  }
}

double tcc::runtime::numberElement(const std::byte *source, plan::DType dtype, uint64_t index) {
  return plan::isFloatingPoint(dtype) ? floatElement(source, dtype, index)
                                      : static_cast<double>(loadInteger(source, dtype, index));
}

std::string tcc::runtime::elementText(const std::byte *source, plan::DType dtype, uint64_t index) {
  if (plan::isFloatingPoint(dtype)) {
    double value = floatElement(source, dtype, index);
    return std::isnan(value) ? "NaN" : fmt::format("{}", value); // the sign of a NaN is meaningless
  }
  Wide value = loadInteger(source, dtype, index);
  return value < 0 ? std::to_string(static_cast<int64_t>(value)) : std::to_string(static_cast<uint64_t>(value));
}

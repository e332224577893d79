//===- DType.cpp - sizes and names of element types ----------------------===//
#include "runtime/plan/DType.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

namespace tcc::plan {

namespace {
struct Info {
  DType dtype;
  const char *name;
  uint64_t bytes;
};
constexpr std::array<Info, 13> kInfos = {{{F64, "f64", 8},
                                          {F32, "f32", 4},
                                          {BF16, "bf16", 2},
                                          {F16, "f16", 2},
                                          {I64, "i64", 8},
                                          {I32, "i32", 4},
                                          {I16, "i16", 2},
                                          {I8, "i8", 1},
                                          {U64, "u64", 8},
                                          {U32, "u32", 4},
                                          {U16, "u16", 2},
                                          {U8, "u8", 1},
                                          {I1, "i1", 1}}};

uint16_t toBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// Round to nearest even, with subnormals and overflow to infinity.
uint16_t toF16(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(value);
  if (std::isnan(value))
    return sign | 0x7e00;
  if (magnitude >= 65520.0)
    return sign | 0x7c00;
  if (magnitude < 0x1p-14)
    return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24));
  int exponent;
  double fraction = std::frexp(magnitude, &exponent);                       // in [0.5, 1)
  auto mantissa = static_cast<uint32_t>(std::nearbyint(fraction * 2048.0)); // in [1024, 2048]
  return sign | static_cast<uint16_t>(((exponent + 14) << 10) + (mantissa - 1024));
}

template <typename T> void fillAs(void *destination, uint64_t count, T value) {
  auto *bytes = static_cast<char *>(destination);
  for (uint64_t i = 0; i < count; ++i)
    std::memcpy(bytes + i * sizeof(T), &value, sizeof(T));
}

/// Conversion to an integer type; out of range values saturate, NaN becomes 0, so that no input is undefined.
template <typename T> T toInteger(double value) {
  if (std::isnan(value))
    return 0;
  constexpr int digits = std::numeric_limits<T>::digits;
  if (value >= std::ldexp(1.0, digits))
    return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}
} // namespace

uint64_t dtypeBytes(DType dtype) {
  for (const Info &info : kInfos)
    if (info.dtype == dtype)
      return info.bytes;
  return 0;
}

std::string_view dtypeName(DType dtype) {
  for (const Info &info : kInfos)
    if (info.dtype == dtype)
      return info.name;
  return "none";
}

std::optional<DType> dtypeFromName(std::string_view name) {
  for (const Info &info : kInfos)
    if (info.name == name)
      return info.dtype;
  return std::nullopt;
}

bool isFloatingPoint(DType dtype) { return dtype == F64 || dtype == F32 || dtype == BF16 || dtype == F16; }

std::optional<uint64_t> elementCount(const TensorType &type) {
  constexpr uint64_t limit = uint64_t(1) << 62;
  uint64_t count = 1;
  for (int64_t dim : type.dims()) {
    if (dim < 0)
      return std::nullopt;
    if (dim != 0 && count > limit / static_cast<uint64_t>(dim))
      return std::nullopt;
    count *= static_cast<uint64_t>(dim);
  }
  return count;
}

std::optional<uint64_t> tensorBytes(const TensorType &type) {
  std::optional<uint64_t> count = elementCount(type);
  uint64_t size = dtypeBytes(type.dtype());
  if (!count || (size != 0 && *count > (uint64_t(1) << 62) / size))
    return std::nullopt;
  return *count * size;
}

std::string typeName(const TensorType &type) {
  return fmt::format("{}[{}]", dtypeName(type.dtype()), fmt::join(type.dims(), "x"));
}

void fillElements(void *destination, DType dtype, uint64_t count, double value) {
  switch (dtype) {
  case F64:
    return fillAs(destination, count, value);
  case F32:
    return fillAs(destination, count, static_cast<float>(value));
  case BF16:
    return fillAs(destination, count, toBf16(static_cast<float>(value)));
  case F16:
    return fillAs(destination, count, toF16(value));
  case I64:
    return fillAs(destination, count, toInteger<int64_t>(value));
  case I32:
    return fillAs(destination, count, toInteger<int32_t>(value));
  case I16:
    return fillAs(destination, count, toInteger<int16_t>(value));
  case I8:
    return fillAs(destination, count, toInteger<int8_t>(value));
  case U64:
    return fillAs(destination, count, toInteger<uint64_t>(value));
  case U32:
    return fillAs(destination, count, toInteger<uint32_t>(value));
  case U16:
    return fillAs(destination, count, toInteger<uint16_t>(value));
  case U8:
    return fillAs(destination, count, toInteger<uint8_t>(value));
  case I1:
    return fillAs(destination, count, static_cast<uint8_t>(value != 0));
  default:
    return;
  }
}

double floatElement(const void *elements, DType dtype, uint64_t index) {
  auto load = [&](auto value) {
    std::memcpy(&value, static_cast<const char *>(elements) + index * sizeof(value), sizeof(value));
    return value;
  };
  switch (dtype) {
  case F64:
    return load(double());
  case F32:
    return load(float());
  case BF16:
    return std::bit_cast<float>(static_cast<uint32_t>(load(uint16_t())) << 16);
  case F16: {
    const uint16_t bits = load(uint16_t());
    const int exponent = bits >> 10 & 31;
    const double fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
    if (exponent == 31)
      return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
    return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
  }
  default:
    return std::numeric_limits<double>::quiet_NaN();
  }
}

} // namespace tcc::plan

//===- Convert.cpp - element types of columns and inputs -----------------===//
#include "runtime/data/Convert.h"

#include <cstring>
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
  if (from == to || plan::isFloatingPoint(to))
    return true;
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
    for (uint64_t i = 0; i < count; ++i)
      plan::fillElements(destination + i * width, to, 1,
                         from == plan::F64 ? load<double>(source, i)
                                           : static_cast<double>(static_cast<int64_t>(loadInteger(source, from, i))));
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

std::string tcc::runtime::elementText(const std::byte *source, plan::DType dtype, uint64_t index) {
  if (dtype == plan::F32)
    return std::to_string(load<float>(source, index));
  if (dtype == plan::F64)
    return std::to_string(load<double>(source, index));
  Wide value = loadInteger(source, dtype, index);
  return value < 0 ? std::to_string(static_cast<int64_t>(value)) : std::to_string(static_cast<uint64_t>(value));
}

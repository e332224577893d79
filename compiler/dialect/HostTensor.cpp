//===- HostTensor.cpp - a tensor in host memory -----------------*- C++ -*-===//
//
// APFloat rounds to types that the host lacks: once, to nearest even.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/HostTensor.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

using namespace mlir;

namespace tcc::train {

int64_t elementBytes(Type elementType) { return std::max<int64_t>(1, elementType.getIntOrFloatBitWidth() / 8); }

int64_t tensorBytes(Type tensorType) {
  // Saturate instead of wrapping, so that allocations and comparisons with limits fail.
  auto type = cast<RankedTensorType>(tensorType);
  int64_t bytes = elementBytes(type.getElementType());
  for (int64_t extent : type.getShape())
    if (extent == 0)
      return 0;
    else if (__builtin_mul_overflow(bytes, extent, &bytes))
      bytes = std::numeric_limits<int64_t>::max();
  return bytes;
}

llvm::SmallVector<int64_t> unravel(int64_t index, llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<int64_t> coordinates(shape.size());
  for (size_t i = shape.size(); i-- > 0; index /= shape[i])
    coordinates[i] = index % shape[i];
  return coordinates;
}

int64_t ravel(llvm::ArrayRef<int64_t> coordinates, llvm::ArrayRef<int64_t> shape) {
  int64_t index = 0;
  for (size_t i = 0; i < shape.size(); ++i)
    index = index * shape[i] + coordinates[i];
  return index;
}

HostTensor::HostTensor(RankedTensorType type)
    : tensorType(type), storage(storageOf(type.getElementType())), bytes(tensorBytes(type)) {}

HostTensor HostTensor::fromAttribute(ElementsAttr value) {
  HostTensor tensor(cast<RankedTensorType>(value.getType()));
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(value)) {
    if (const AsmResourceBlob *blob = resource.getRawHandle().getBlob())
      std::memcpy(tensor.data(), blob->getData().data(), std::min(tensor.sizeBytes(), blob->getData().size()));
    return tensor;
  }
  auto dense = cast<DenseElementsAttr>(value);
  int64_t size = tensor.size();
  if (tensor.elementType().isInteger(1)) {
    for (auto [i, bit] : llvm::enumerate(dense.getValues<bool>()))
      tensor.bytes[i] = bit;
  } else if (dense.isSplat()) {
    int64_t width = elementBytes(tensor.elementType());
    for (int64_t i = 0; i < size; ++i)
      std::memcpy(tensor.data() + i * width, dense.getRawData().data(), width);
  } else if (size > 0) {
    std::memcpy(tensor.data(), dense.getRawData().data(), tensor.sizeBytes());
  }
  return tensor;
}

DenseElementsAttr HostTensor::toAttribute() const {
  int64_t width = elementBytes(elementType()), count = size();
  bool splat = count > 0;
  for (int64_t i = 1; i < count && splat; ++i)
    splat = std::memcmp(data(), data() + i * width, width) == 0;
  if (elementType().isInteger(1)) {
    llvm::SmallVector<bool> bits(data(), data() + (splat ? 1 : count));
    return DenseElementsAttr::get(tensorType, llvm::ArrayRef<bool>(bits));
  }
  return DenseElementsAttr::getFromRawBuffer(tensorType, llvm::ArrayRef<char>(data(), splat ? width : sizeBytes()));
}

namespace {
template <typename T> T load(const char *bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T> void store(char *bytes, int64_t index, T value) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}
} // namespace

HostTensor::Storage HostTensor::storageOf(Type elementType) {
  if (isa<FloatType>(elementType))
    return elementType.isF64()    ? Storage::F64
           : elementType.isF32()  ? Storage::F32
           : elementType.isBF16() ? Storage::BF16
                                  : Storage::F16;
  const bool isUnsigned = elementType.isUnsignedInteger();
  switch (elementType.getIntOrFloatBitWidth()) {
  case 1:
    return Storage::I1;
  case 8:
    return isUnsigned ? Storage::U8 : Storage::I8;
  case 16:
    return isUnsigned ? Storage::U16 : Storage::I16;
  case 32:
    return isUnsigned ? Storage::U32 : Storage::I32;
  default:
    return isUnsigned ? Storage::U64 : Storage::I64;
  }
}

namespace {
/// Sign, five bits of exponent, ten of fraction.
double fromF16(uint16_t bits) {
  constexpr int kFractionBits = 10, kBias = 15, kSpecial = 31;
  const int exponent = bits >> kFractionBits & kSpecial, fraction = bits & ((1 << kFractionBits) - 1);
  double value;
  if (exponent == kSpecial)
    value = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(fraction, 1 - kBias - kFractionBits);
  else
    value = std::ldexp(fraction + (1 << kFractionBits), exponent - kBias - kFractionBits);
  return bits >> 15 ? -value : value;
}

double fromBF16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint16_t rounded(double value, const llvm::fltSemantics &semantics) {
  llvm::APFloat result(value);
  bool losesInfo;
  result.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return uint16_t(result.bitcastToAPInt().getZExtValue());
}
} // namespace

double HostTensor::getDouble(int64_t index) const {
  switch (storage) {
  case Storage::F64:
    return load<double>(data(), index);
  case Storage::F32:
    return load<float>(data(), index);
  case Storage::BF16:
    return fromBF16(load<uint16_t>(data(), index));
  case Storage::F16:
    return fromF16(load<uint16_t>(data(), index));
  case Storage::U64:
    return double(load<uint64_t>(data(), index));
  default:
    return double(getInt(index));
  }
}

int64_t HostTensor::getInt(int64_t index) const {
  switch (storage) {
  case Storage::I1:
    return load<uint8_t>(data(), index) != 0;
  case Storage::I8:
    return load<int8_t>(data(), index);
  case Storage::U8:
    return load<uint8_t>(data(), index);
  case Storage::I16:
    return load<int16_t>(data(), index);
  case Storage::U16:
    return load<uint16_t>(data(), index);
  case Storage::I32:
    return load<int32_t>(data(), index);
  case Storage::U32:
    return load<uint32_t>(data(), index);
  case Storage::I64:
  case Storage::U64:
    return load<int64_t>(data(), index);
  default:
    return int64_t(getDouble(index));
  }
}

void HostTensor::setDouble(int64_t index, double value) {
  switch (storage) {
  case Storage::F64:
    return store(data(), index, value);
  case Storage::F32:
    return store(data(), index, float(value));
  case Storage::BF16:
    return store(data(), index, rounded(value, llvm::APFloat::BFloat()));
  case Storage::F16:
    return store(data(), index, rounded(value, llvm::APFloat::IEEEhalf()));
  default:
    return setInt(index, int64_t(value));
  }
}

void HostTensor::setInt(int64_t index, int64_t value) {
  switch (storage) {
  case Storage::I1:
    return store(data(), index, uint8_t(value & 1));
  case Storage::I8:
  case Storage::U8:
    return store(data(), index, uint8_t(value));
  case Storage::I16:
  case Storage::U16:
    return store(data(), index, uint16_t(value));
  case Storage::I32:
  case Storage::U32:
    return store(data(), index, uint32_t(value));
  case Storage::I64:
  case Storage::U64:
    return store(data(), index, value);
  default:
    return setDouble(index, double(value));
  }
}

} // namespace tcc::train

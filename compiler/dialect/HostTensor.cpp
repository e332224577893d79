//===- HostTensor.cpp - a tensor in host memory -----------------*- C++ -*-===//
//
// Elements are converted through APFloat where the host has no such type, so that rounding is to nearest even, once.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/HostTensor.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <cstring>
#include <limits>

using namespace mlir;

namespace tcc::train {

int64_t elementBytes(Type elementType) {
  return std::max<int64_t>(1, elementType.getIntOrFloatBitWidth() / 8);
}

int64_t tensorBytes(Type tensorType) {
  // The largest number instead of a wrapped one: allocations and comparisons with limits fail then, as they must.
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

HostTensor::HostTensor(RankedTensorType type) : tensorType(type), bytes(tensorBytes(type)) {}

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

double HostTensor::getDouble(int64_t index) const {
  auto type = dyn_cast<FloatType>(elementType());
  if (!type) {
    int64_t value = getInt(index);
    return elementType().isUnsignedInteger(64) ? double(uint64_t(value)) : double(value);
  }
  if (type.isF64())
    return load<double>(data(), index);
  if (type.isF32())
    return load<float>(data(), index);
  llvm::APFloat value(type.getFloatSemantics(), llvm::APInt(16, load<uint16_t>(data(), index)));
  return value.convertToDouble();
}

int64_t HostTensor::getInt(int64_t index) const {
  Type type = elementType();
  if (isa<FloatType>(type))
    return int64_t(getDouble(index));
  bool isUnsigned = type.isUnsignedInteger();
  switch (type.getIntOrFloatBitWidth()) {
  case 1:
    return load<uint8_t>(data(), index) != 0;
  case 8:
    return isUnsigned ? load<uint8_t>(data(), index) : load<int8_t>(data(), index);
  case 16:
    return isUnsigned ? load<uint16_t>(data(), index) : load<int16_t>(data(), index);
  case 32:
    return isUnsigned ? int64_t(load<uint32_t>(data(), index)) : load<int32_t>(data(), index);
  default:
    return load<int64_t>(data(), index);
  }
}

void HostTensor::setDouble(int64_t index, double value) {
  auto type = dyn_cast<FloatType>(elementType());
  if (!type)
    return setInt(index, int64_t(value));
  if (type.isF64())
    return store(data(), index, value);
  if (type.isF32())
    return store(data(), index, float(value));
  llvm::APFloat rounded(value);
  bool losesInfo;
  rounded.convert(type.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  store(data(), index, uint16_t(rounded.bitcastToAPInt().getZExtValue()));
}

void HostTensor::setInt(int64_t index, int64_t value) {
  if (isa<FloatType>(elementType()))
    return setDouble(index, double(value));
  switch (elementType().getIntOrFloatBitWidth()) {
  case 1:
    return store(data(), index, uint8_t(value & 1));
  case 8:
    return store(data(), index, uint8_t(value));
  case 16:
    return store(data(), index, uint16_t(value));
  case 32:
    return store(data(), index, uint32_t(value));
  default:
    return store(data(), index, value);
  }
}

} // namespace tcc::train

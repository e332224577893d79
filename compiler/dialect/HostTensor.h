//===- HostTensor.h - a tensor in host memory -------------------*- C++ -*-===//
//
// The tensors of the naive evaluators: bytes in row-major order under an MLIR tensor type. Element access converts
// through double or int64.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_HOSTTENSOR_H
#define TCC_DIALECT_HOSTTENSOR_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

#include <cstdint>
#include <vector>

namespace tcc::train {

/// A tensor of static shape, i1 stored as one byte per element.
class HostTensor {
public:
  HostTensor() = default;
  explicit HostTensor(mlir::RankedTensorType type);

  /// Elements of a constant attribute (dense, splat or resource).
  static HostTensor fromAttribute(mlir::ElementsAttr value);
  /// The tensor as a dense attribute.
  mlir::DenseElementsAttr toAttribute() const;

  mlir::RankedTensorType type() const { return tensorType; }
  mlir::Type elementType() const { return tensorType.getElementType(); }
  llvm::ArrayRef<int64_t> shape() const { return tensorType.getShape(); }
  int64_t size() const { return tensorType.getNumElements(); }
  bool isFloat() const { return mlir::isa<mlir::FloatType>(elementType()); }

  /// Element `index` in row-major order. Integers wrap to the width, floats round to nearest even.
  double getDouble(int64_t index) const;
  int64_t getInt(int64_t index) const;
  void setDouble(int64_t index, double value);
  void setInt(int64_t index, int64_t value);

  char *data() { return bytes.data(); }
  const char *data() const { return bytes.data(); }
  size_t sizeBytes() const { return bytes.size(); }

private:
  /// The element type as an enum, since every element access switches over it.
  enum class Storage : uint8_t { F64, F32, BF16, F16, I1, I8, U8, I16, U16, I32, U32, I64, U64 };
  static Storage storageOf(mlir::Type elementType);

  mlir::RankedTensorType tensorType;
  Storage storage = Storage::F64;
  std::vector<char> bytes;
};

/// Bytes of one stored element; i1 takes one.
int64_t elementBytes(mlir::Type elementType);
/// Bytes of a stored tensor.
int64_t tensorBytes(mlir::Type tensorType);
/// Row-major coordinates of a linear index, and back.
llvm::SmallVector<int64_t> unravel(int64_t index, llvm::ArrayRef<int64_t> shape);
int64_t ravel(llvm::ArrayRef<int64_t> coordinates, llvm::ArrayRef<int64_t> shape);

} // namespace tcc::train

#endif // TCC_DIALECT_HOSTTENSOR_H

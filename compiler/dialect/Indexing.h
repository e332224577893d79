//===- Indexing.h - helpers of ops that index -------------------*- C++ -*-===//
//
// The meaning of an index, and arithmetic on linear indices for LoopKernel ops.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_INDEXING_H
#define TCC_DIALECT_INDEXING_H

#include "compiler/dialect/Builders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>

namespace tcc::train {

inline int64_t product(llvm::ArrayRef<int64_t> shape) {
  int64_t result = 1;
  for (int64_t extent : shape)
    result *= extent;
  return result;
}

/// An index by ONNX's rules: negative ones count from the end; the result is clamped to the extent.
inline int64_t resolve(int64_t index, int64_t extent) {
  return std::clamp<int64_t>(index < 0 ? index + extent : index, 0, std::max<int64_t>(0, extent - 1));
}
/// The same on lanes (or on a scalar), from the index's own type to i64.
mlir::Value emitResolve(mlir::OpBuilder &b, mlir::Location loc, mlir::Value index, mlir::Type element, int64_t extent);

/// The shape of a gather: input[:axis] ++ indices ++ input[axis+1:].
llvm::SmallVector<int64_t> gatheredShape(llvm::ArrayRef<int64_t> input, llvm::ArrayRef<int64_t> indices, int64_t axis);

/// The index at `coords` of an operand, as a coordinate of a dimension of `extent`. If all lanes share the index it
/// stays a scalar, so that the lanes of a row are read together.
Coord indexAt(ElementBuilder &builder, unsigned operand, llvm::ArrayRef<Coord> coords, mlir::Type element,
              int64_t extent, llvm::function_ref<mlir::Value(mlir::Value)> convert);

/// An i64 of a kernel under construction.
struct Index {
  LoopBuilder *loops;
  mlir::Value value;

  Index(LoopBuilder &loops, mlir::Value value) : loops(&loops), value(value) {}
  Index(LoopBuilder &loops, int64_t constant) : loops(&loops), value(loops.index(constant)) {}
  operator mlir::Value() const { return value; }

  template <typename OpTy> Index make(mlir::Value right) const {
    return Index(*loops, OpTy::create(loops->builder, loops->loc, value, right).getResult());
  }
  Index operator+(mlir::Value right) const { return make<mlir::arith::AddIOp>(right); }
  Index operator-(mlir::Value right) const { return make<mlir::arith::SubIOp>(right); }
  Index operator+(int64_t right) const { return *this + loops->index(right); }
  Index operator-(int64_t right) const { return *this - loops->index(right); }
  Index operator*(int64_t right) const { return make<mlir::arith::MulIOp>(loops->index(right)); }
  /// Unsigned division: both numbers must not be negative.
  Index operator/(int64_t right) const { return make<mlir::arith::DivUIOp>(loops->index(right)); }
  Index operator%(int64_t right) const { return make<mlir::arith::RemUIOp>(loops->index(right)); }
  Index atMost(int64_t right) const { return make<mlir::arith::MinSIOp>(loops->index(right)); }
  mlir::Value isBelow(mlir::Value right) const {
    return mlir::arith::CmpIOp::create(loops->builder, loops->loc, mlir::arith::CmpIPredicate::slt, value, right);
  }
};

/// Number of rows, columns or lines in one tile, so that tiles are neither tiny nor few. Depends on shapes alone.
inline int64_t unitsPerTile(int64_t elementsOfUnit, int64_t units) {
  return std::clamp<int64_t>(llvm::divideCeil(4096, std::max<int64_t>(1, elementsOfUnit)), 1,
                             std::max<int64_t>(1, units));
}

} // namespace tcc::train

#endif // TCC_DIALECT_INDEXING_H

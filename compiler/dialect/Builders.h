//===- Builders.h - helpers that build train ops ----------------*- C++ -*-===//
//
// Gradient rules and passes are written with these. `Expr` is a value with arithmetic operators that broadcast as numpy
// does, so that a rule reads as its formula.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_BUILDERS_H
#define TCC_DIALECT_BUILDERS_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

inline mlir::RankedTensorType tensorTypeOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) { return tensorTypeOf(value).getShape(); }
inline mlir::Type elementTypeOf(mlir::Value value) { return tensorTypeOf(value).getElementType(); }
inline bool isFloatTensor(mlir::Value value) { return mlir::isa<mlir::FloatType>(elementTypeOf(value)); }

/// A constant of type `type` (a ranked tensor) with `value` in every element.
mlir::Value splat(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type, double value);
mlir::Value splatInt(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type, int64_t value);
/// A constant 1-d i64 tensor.
mlir::Value vectorOf(mlir::OpBuilder &builder, mlir::Location loc, llvm::ArrayRef<int64_t> values);

// Arithmetic on equal types.
mlir::Value add(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value sub(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value mul(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value div(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, mlir::Value y);
/// i1: x `kind` y; both of one type.
mlir::Value compare(mlir::OpBuilder &builder, mlir::Location loc, CompareKind kind, mlir::Value x, mlir::Value y);
mlir::Value select(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value condition, mlir::Value x, mlir::Value y);

// Each returns its operand if there is nothing to do.
mlir::Value cast(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, mlir::Type elementType);
mlir::Value reshape(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, llvm::ArrayRef<int64_t> shape);
mlir::Value transpose(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, llvm::ArrayRef<int64_t> permutation);
mlir::Value broadcastTo(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, llvm::ArrayRef<int64_t> shape);
/// Reduces over `dims` (any order), which keep extent 1.
mlir::Value reduce(mlir::OpBuilder &builder, mlir::Location loc, ReduceKind kind, mlir::Value x,
                   llvm::ArrayRef<int64_t> dims);
mlir::Value reduceSum(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, llvm::ArrayRef<int64_t> dims);
/// The derivative of broadcastTo: sums `x` over the dimensions that a broadcast from `shape` repeats.
mlir::Value unbroadcast(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, llvm::ArrayRef<int64_t> shape);
/// The shape that two shapes broadcast to by numpy's rules; nullopt if they do not.
std::optional<llvm::SmallVector<int64_t>> broadcastShapes(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y);

/// A region of its own at the end of a block, without a terminator: it has arguments of these types, and the block gets
/// an argument for each of its operands.
FusedOp appendRegion(mlir::Block &holder, mlir::Location loc, llvm::ArrayRef<mlir::Type> operands,
                     llvm::ArrayRef<mlir::Type> results);

/// A value with arithmetic. Operators broadcast; both operands have one element type.
struct Expr {
  mlir::OpBuilder *builder;
  mlir::Location loc;
  mlir::Value value;

  Expr(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value) : builder(&builder), loc(loc), value(value) {}
  operator mlir::Value() const { return value; }
  /// Another value with the same builder and location.
  Expr with(mlir::Value other) const { return Expr(*builder, loc, other); }
  /// A constant of this type.
  Expr like(double constant) const;

  template <typename OpTy> Expr apply() const { return with(OpTy::create(*builder, loc, value)); }
  Expr exp() const { return apply<ExpOp>(); }
  Expr log() const { return apply<LogOp>(); }
  Expr sum(llvm::ArrayRef<int64_t> dims) const { return with(reduceSum(*builder, loc, value, dims)); }
  Expr max(llvm::ArrayRef<int64_t> dims) const { return with(reduce(*builder, loc, ReduceKind::max, value, dims)); }
  Expr mean(llvm::ArrayRef<int64_t> dims) const;
  Expr cast(mlir::Type elementType) const { return with(train::cast(*builder, loc, value, elementType)); }
  Expr broadcast(llvm::ArrayRef<int64_t> shape) const { return with(broadcastTo(*builder, loc, value, shape)); }
  Expr reshape(llvm::ArrayRef<int64_t> shape) const { return with(train::reshape(*builder, loc, value, shape)); }
  /// i1 comparisons, broadcasting.
  Expr compare(CompareKind kind, const Expr &other) const;
  Expr compare(CompareKind kind, double other) const { return compare(kind, like(other)); }
  /// For an i1 value: x where it holds, else y (broadcast to the common shape).
  Expr select(const Expr &x, const Expr &y) const;
};
Expr operator+(const Expr &x, const Expr &y);
Expr operator-(const Expr &x, const Expr &y);
Expr operator*(const Expr &x, const Expr &y);
Expr operator/(const Expr &x, const Expr &y);
Expr operator-(const Expr &x);
inline Expr operator+(const Expr &x, double y) { return x + x.like(y); }
inline Expr operator-(const Expr &x, double y) { return x - x.like(y); }
inline Expr operator*(const Expr &x, double y) { return x * x.like(y); }
inline Expr operator/(const Expr &x, double y) { return x / x.like(y); }
inline Expr operator+(double x, const Expr &y) { return y.like(x) + y; }
inline Expr operator-(double x, const Expr &y) { return y.like(x) - y; }
inline Expr operator*(double x, const Expr &y) { return y.like(x) * y; }
inline Expr operator/(double x, const Expr &y) { return y.like(x) / y; }

} // namespace tcc::train

#endif // TCC_DIALECT_BUILDERS_H

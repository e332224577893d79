//===- Builders.cpp - helpers that build train ops --------------*- C++ -*-===//
#include "compiler/dialect/Builders.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/raw_ostream.h>
#include <stdexcept>

using namespace mlir;

namespace tcc::train {

static RankedTensorType withShape(Value value, llvm::ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, elementTypeOf(value));
}

Value splat(OpBuilder &builder, Location loc, Type type, double value) {
  auto tensor = mlir::cast<RankedTensorType>(type);
  HostTensor one(RankedTensorType::get({}, tensor.getElementType()));
  one.setDouble(0, value);
  return ConstantOp::create(builder, loc, one.toAttribute().resizeSplat(tensor));
}

Value splatInt(OpBuilder &builder, Location loc, Type type, int64_t value) {
  auto tensor = mlir::cast<RankedTensorType>(type);
  HostTensor one(RankedTensorType::get({}, tensor.getElementType()));
  one.setInt(0, value);
  return ConstantOp::create(builder, loc, one.toAttribute().resizeSplat(tensor));
}

Value vectorOf(OpBuilder &builder, Location loc, llvm::ArrayRef<int64_t> values) {
  return ConstantOp::create(builder, loc, builder.getI64TensorAttr(values));
}

Value add(OpBuilder &builder, Location loc, Value x, Value y) { return AddOp::create(builder, loc, x, y); }
Value sub(OpBuilder &builder, Location loc, Value x, Value y) { return SubOp::create(builder, loc, x, y); }
Value mul(OpBuilder &builder, Location loc, Value x, Value y) { return MulOp::create(builder, loc, x, y); }
Value div(OpBuilder &builder, Location loc, Value x, Value y) { return DivOp::create(builder, loc, x, y); }

Value compare(OpBuilder &builder, Location loc, CompareKind kind, Value x, Value y) {
  return CompareOp::create(builder, loc, RankedTensorType::get(shapeOf(x), builder.getI1Type()), kind, x, y);
}

Value select(OpBuilder &builder, Location loc, Value condition, Value x, Value y) {
  return SelectOp::create(builder, loc, x.getType(), condition, x, y);
}

Value cast(OpBuilder &builder, Location loc, Value x, Type elementType) {
  if (elementTypeOf(x) == elementType)
    return x;
  return CastOp::create(builder, loc, RankedTensorType::get(shapeOf(x), elementType), x);
}

Value reshape(OpBuilder &builder, Location loc, Value x, llvm::ArrayRef<int64_t> shape) {
  if (shapeOf(x) == shape)
    return x;
  return ReshapeOp::create(builder, loc, withShape(x, shape), x);
}

Value transpose(OpBuilder &builder, Location loc, Value x, llvm::ArrayRef<int64_t> permutation) {
  bool identity = true;
  llvm::SmallVector<int64_t> shape;
  for (auto [i, dim] : llvm::enumerate(permutation)) {
    identity &= int64_t(i) == dim;
    shape.push_back(shapeOf(x)[dim]);
  }
  return identity ? x : TransposeOp::create(builder, loc, withShape(x, shape), x, permutation).getResult();
}

Value broadcastTo(OpBuilder &builder, Location loc, Value x, llvm::ArrayRef<int64_t> shape) {
  if (shapeOf(x) == shape)
    return x;
  return BroadcastOp::create(builder, loc, withShape(x, shape), x);
}

Value reduce(OpBuilder &builder, Location loc, ReduceKind kind, Value x, llvm::ArrayRef<int64_t> dims) {
  llvm::SmallVector<int64_t> sorted(dims), shape(shapeOf(x));
  llvm::sort(sorted);
  if (sorted.empty())
    return x;
  for (int64_t dim : sorted)
    shape[dim] = 1;
  return ReduceOp::create(builder, loc, withShape(x, shape), kind, x, sorted);
}

Value reduceSum(OpBuilder &builder, Location loc, Value x, llvm::ArrayRef<int64_t> dims) {
  return reduce(builder, loc, ReduceKind::sum, x, dims);
}

FusedOp appendRegion(Block &holder, Location loc, llvm::ArrayRef<Type> operands, llvm::ArrayRef<Type> results) {
  llvm::SmallVector<Value> arguments;
  for (Type type : operands)
    arguments.push_back(holder.addArgument(type, loc));
  OpBuilder builder(loc.getContext());
  builder.setInsertionPointToEnd(&holder);
  auto region = FusedOp::create(builder, loc, results, arguments);
  auto *body = new Block;
  region.getBody().push_back(body);
  for (Type type : operands)
    body->addArgument(type, loc);
  return region;
}

Value unbroadcast(OpBuilder &builder, Location loc, Value x, llvm::ArrayRef<int64_t> shape) {
  int64_t leading = shapeOf(x).size() - shape.size();
  llvm::SmallVector<int64_t> dims;
  for (int64_t i = 0, rank = shapeOf(x).size(); i < rank; ++i)
    if (shapeOf(x)[i] != 1 && (i < leading || shape[i - leading] == 1))
      dims.push_back(i);
  return reshape(builder, loc, reduceSum(builder, loc, x, dims), shape);
}

std::optional<llvm::SmallVector<int64_t>> broadcastShapes(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y) {
  if (x.size() < y.size())
    std::swap(x, y);
  llvm::SmallVector<int64_t> shape(x);
  for (size_t i = 0, leading = x.size() - y.size(); i < y.size(); ++i) {
    int64_t &extent = shape[leading + i];
    if (extent == 1)
      extent = y[i];
    else if (y[i] != 1 && y[i] != extent)
      return std::nullopt;
  }
  return shape;
}

Expr Expr::like(double constant) const { return with(splat(*builder, loc, value.getType(), constant)); }

Expr Expr::mean(llvm::ArrayRef<int64_t> dims) const {
  double count = 1;
  for (int64_t dim : dims)
    count *= shapeOf(value)[dim];
  return sum(dims) * (1 / count);
}

/// The shape that both broadcast to. Throws if there is none, since an importer may meet any pair of shapes.
static llvm::SmallVector<int64_t> commonShape(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y) {
  auto shape = broadcastShapes(x, y);
  if (!shape) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    stream << "shapes [";
    llvm::interleaveComma(x, stream);
    stream << "] and [";
    llvm::interleaveComma(y, stream);
    stream << "] do not broadcast together";
    throw std::invalid_argument(text);
  }
  return *shape;
}

/// Both operands, broadcast to their common shape.
static std::pair<Value, Value> align(const Expr &x, const Expr &y) {
  auto shape = commonShape(shapeOf(x), shapeOf(y));
  auto widen = [&](const Expr &operand) { return broadcastTo(*operand.builder, operand.loc, operand, shape); };
  Value left = widen(x);
  return {left, widen(y)};
}

Expr Expr::compare(CompareKind kind, const Expr &other) const {
  auto [x, y] = align(*this, other);
  return with(train::compare(*builder, loc, kind, x, y));
}

Expr Expr::select(const Expr &x, const Expr &y) const {
  auto [left, right] = align(x, y);
  auto shape = commonShape(shapeOf(value), shapeOf(left));
  return with(
      train::select(*builder, loc, broadcast(shape), x.with(left).broadcast(shape), x.with(right).broadcast(shape)));
}

Expr operator+(const Expr &x, const Expr &y) {
  auto [left, right] = align(x, y);
  return x.with(add(*x.builder, x.loc, left, right));
}
Expr operator-(const Expr &x, const Expr &y) {
  auto [left, right] = align(x, y);
  return x.with(sub(*x.builder, x.loc, left, right));
}
Expr operator*(const Expr &x, const Expr &y) {
  auto [left, right] = align(x, y);
  return x.with(mul(*x.builder, x.loc, left, right));
}
Expr operator/(const Expr &x, const Expr &y) {
  auto [left, right] = align(x, y);
  return x.with(div(*x.builder, x.loc, left, right));
}
Expr operator-(const Expr &x) { return x.apply<NegOp>(); }

} // namespace tcc::train

//===- Scan.cpp - cumulative sums and products along a dimension --*- C++ -*-===//
//
// A scan runs along one dimension; inner dimensions are columns, and lanes run along them. A tile is a few rows, or a
// block of columns of one row, so that no result depends on parallelism.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Indexing.h"
#include "compiler/dialect/Verify.h"

using namespace mlir;

namespace tcc::train {

namespace {

/// The tiling of a scan over `dim`. Rows are the positions of the dimensions before `dim`, columns those of the
/// dimensions after it.
struct ScanSpace {
  static constexpr int64_t kColumns = 64;
  int64_t outer, extent, inner;

  ScanSpace(llvm::ArrayRef<int64_t> shape, int64_t dim)
      : outer(product(shape.take_front(dim))), extent(shape[dim]), inner(product(shape.drop_front(dim + 1))) {}
  int64_t blocks() const { return llvm::divideCeil(inner, kColumns); }
  int64_t rows() const { return blocks() == 1 ? unitsPerTile(extent * inner, outer) : 1; }
  int64_t tiles() const { return llvm::divideCeil(outer, rows()) * blocks(); }
};

/// One step at linear index `index`: stores its results and returns the next carried values.
using ScanStep = llvm::function_ref<Value(Value index, int64_t lanes, Value active, Value carried)>;

void emitScan(LoopBuilder &loops, Value tile, const ScanSpace &space, Type element, bool reverse, double start,
              ScanStep step) {
  OpBuilder &b = loops.builder;
  int64_t lanes = space.inner == 1 ? 1 : loops.lanes(element);
  Type type = laneTypeOf(element, lanes), scalar = laneTypeOf(element, 1);
  TypedAttr one = isa<FloatType>(scalar) ? TypedAttr(b.getFloatAttr(scalar, start))
                                         : TypedAttr(b.getIntegerAttr(scalar, int64_t(start)));
  TypedAttr all = lanes == 1 ? one : TypedAttr(DenseElementsAttr::get(cast<ShapedType>(type), Attribute(one)));
  Value initial = arith::ConstantOp::create(b, loops.loc, all);
  Index number(loops, tile), row = number / space.blocks() * space.rows(),
                             begin = number % space.blocks() * ScanSpace::kColumns;
  Index end = (begin + ScanSpace::kColumns).atMost(space.inner);
  loops.loop(row, (row + space.rows()).atMost(space.outer), 1, {},
             [&](Value outer, ValueRange) -> llvm::SmallVector<Value> {
               loops.loop(begin, end, lanes, {}, [&](Value column, ValueRange) -> llvm::SmallVector<Value> {
                 Value active = lanes == 1 ? Value() : (end - column).value;
                 loops.loop(loops.index(0), loops.index(space.extent), 1, initial,
                            [&](Value i, ValueRange carried) -> llvm::SmallVector<Value> {
                              Index position = reverse ? Index(loops, space.extent - 1) - i : Index(loops, i);
                              Index index = (Index(loops, outer) * space.extent + position) * space.inner + column;
                              return {step(index, lanes, active, carried[0])};
                            });
                 return {};
               });
               return {};
             });
}

Value emitSum(LoopBuilder &loops, Value x, Value y) {
  return isa<FloatType>(getElementTypeOrSelf(x.getType()))
             ? arith::AddFOp::create(loops.builder, loops.loc, x, y).getResult()
             : arith::AddIOp::create(loops.builder, loops.loc, x, y).getResult();
}
Value emitProduct(LoopBuilder &loops, Value x, Value y) {
  return isa<FloatType>(getElementTypeOrSelf(x.getType()))
             ? arith::MulFOp::create(loops.builder, loops.loc, x, y).getResult()
             : arith::MulIOp::create(loops.builder, loops.loc, x, y).getResult();
}

/// Evaluates a running sum or product naively: combines the elements of each place one by one.
void evaluateRunning(const HostTensor &in, HostTensor &out, int64_t dim, bool exclusive, bool reverse, bool isProduct) {
  int64_t extent = in.shape()[size_t(dim)];
  for (int64_t i = 0; i < out.size(); ++i) {
    llvm::SmallVector<int64_t> at = unravel(i, out.shape());
    int64_t here = at[size_t(dim)];
    int64_t begin = reverse ? here + exclusive : 0, end = reverse ? extent : here + !exclusive;
    double number = isProduct;
    uint64_t integer = isProduct;
    for (at[size_t(dim)] = begin; at[size_t(dim)] < end; ++at[size_t(dim)]) {
      int64_t index = ravel(at, in.shape());
      double x = in.isFloat() ? in.getDouble(index) : 0;
      uint64_t n = in.isFloat() ? 0 : uint64_t(in.getInt(index));
      number = isProduct ? number * x : number + x;
      integer = isProduct ? integer * n : integer + n;
    }
    if (in.isFloat())
      out.setDouble(i, number);
    else
      out.setInt(i, int64_t(integer));
  }
}

/// result[i] = x[i + 1] along `dim` (or x[i − 1]); 0 at the end without a neighbour.
Value neighbour(OpBuilder &builder, Location loc, Value x, int64_t dim, bool next) {
  RankedTensorType type = tensorTypeOf(x);
  llvm::SmallVector<int64_t> shape(type.getShape()), starts(shape.size(), 0), low(starts), steps(shape.size(), 1);
  if (shape[size_t(dim)] < 2)
    return splat(builder, loc, type, 0);
  --shape[size_t(dim)];
  (next ? starts : low)[size_t(dim)] = 1;
  Value rest = SliceOp::create(builder, loc, RankedTensorType::get(shape, type.getElementType()), x, starts, steps);
  return PadOp::create(builder, loc, type, rest, low, steps, llvm::APFloat(0.0));
}

} // namespace

//===----------------------------------------------------------------------===//
// cumsum
//===----------------------------------------------------------------------===//
LogicalResult CumSumOp::verify() { return verifyDim(*this, getDim(), shapeOf(getInput()).size()); }
double CumSumOp::getFlops() { return double(tensorTypeOf(getInput()).getNumElements()); }
int64_t CumSumOp::getTileCount() { return ScanSpace(shapeOf(getInput()), getDim()).tiles(); }
void CumSumOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  evaluateRunning(operands[0], results[0], getDim(), getExclusive(), getReverse(), false);
}
void CumSumOp::emitTile(LoopBuilder &loops, Value tile) {
  emitScan(loops, tile, ScanSpace(shapeOf(getInput()), getDim()), elementTypeOf(getInput()), getReverse(), 0,
           [&](Value index, int64_t lanes, Value active, Value carried) {
             Value sum = emitSum(loops, carried, loops.load(0, index, lanes, active));
             loops.store(0, index, getExclusive() ? carried : sum, active);
             return sum;
           });
}
/// Element i is in the sums from i on: the gradient is the scan in the other direction.
void CumSumOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                             llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (resultGradients[0] && isFloatTensor(getInput()))
    operandGradients[0] =
        CumSumOp::create(builder, getLoc(), resultGradients[0], getDim(), getExclusive(), !getReverse());
}

//===----------------------------------------------------------------------===//
// cumprod
//===----------------------------------------------------------------------===//
LogicalResult CumProdOp::verify() { return verifyDim(*this, getDim(), shapeOf(getInput()).size()); }
double CumProdOp::getFlops() { return double(tensorTypeOf(getInput()).getNumElements()); }
int64_t CumProdOp::getTileCount() { return ScanSpace(shapeOf(getInput()), getDim()).tiles(); }
void CumProdOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  evaluateRunning(operands[0], results[0], getDim(), getExclusive(), getReverse(), true);
}
void CumProdOp::emitTile(LoopBuilder &loops, Value tile) {
  emitScan(loops, tile, ScanSpace(shapeOf(getInput()), getDim()), elementTypeOf(getInput()), getReverse(), 1,
           [&](Value index, int64_t lanes, Value active, Value carried) {
             Value all = emitProduct(loops, carried, loops.load(0, index, lanes, active));
             loops.store(0, index, getExclusive() ? carried : all, active);
             return all;
           });
}
/// x_k is in the products from k on: Σ_{i ≥ k} g_i · Π_{j ≤ i, j ≠ k} x_j = (Π_{j < k} x_j) · r_k with
/// r_k = g_k + x_{k+1} · r_{k+1}; for exclusive products r_k = g_{k+1} + x_{k+1} · r_{k+1}.
void CumProdOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                              llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (!resultGradients[0] || !isFloatTensor(getInput()))
    return;
  Expr g(builder, getLoc(), resultGradients[0]), x = g.with(getInput());
  Value factor = neighbour(builder, getLoc(), x, getDim(), !getReverse());
  Value term = getExclusive() ? neighbour(builder, getLoc(), g, getDim(), !getReverse()) : g.value;
  Expr behind = g.with(LinearScanOp::create(builder, getLoc(), factor, term, getDim(), !getReverse()));
  operandGradients[0] = g.with(CumProdOp::create(builder, getLoc(), x.value, getDim(), true, getReverse())) * behind;
}

//===----------------------------------------------------------------------===//
// linear_scan
//===----------------------------------------------------------------------===//
LogicalResult LinearScanOp::verify() { return verifyDim(*this, getDim(), shapeOf(getTerm()).size()); }
double LinearScanOp::getFlops() { return 2.0 * double(tensorTypeOf(getTerm()).getNumElements()); }
int64_t LinearScanOp::getTileCount() { return ScanSpace(shapeOf(getTerm()), getDim()).tiles(); }

void LinearScanOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  HostTensor &out = results[0];
  ScanSpace space(out.shape(), getDim());
  for (int64_t row = 0; row < space.outer; ++row)
    for (int64_t column = 0; column < space.inner; ++column) {
      double number = 0;
      uint64_t integer = 0;
      for (int64_t i = 0; i < space.extent; ++i) {
        int64_t at = (row * space.extent + (getReverse() ? space.extent - 1 - i : i)) * space.inner + column;
        if (out.isFloat())
          out.setDouble(at, number = operands[0].getDouble(at) * number + operands[1].getDouble(at));
        else
          out.setInt(at,
                     int64_t(integer = uint64_t(operands[0].getInt(at)) * integer + uint64_t(operands[1].getInt(at))));
      }
    }
}
void LinearScanOp::emitTile(LoopBuilder &loops, Value tile) {
  emitScan(loops, tile, ScanSpace(shapeOf(getTerm()), getDim()), elementTypeOf(getTerm()), getReverse(), 0,
           [&](Value index, int64_t lanes, Value active, Value carried) {
             Value scaled = emitProduct(loops, loops.load(0, index, lanes, active), carried);
             Value next = emitSum(loops, scaled, loops.load(1, index, lanes, active));
             loops.store(0, index, next, active);
             return next;
           });
}
/// s_i = g_i + a_{i+1} · s_{i+1} is the gradient of term i, and s_i · h_{i−1} that of factor i.
void LinearScanOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                 llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(2);
  if (!resultGradients[0] || !isFloatTensor(getTerm()))
    return;
  Value factor = neighbour(builder, getLoc(), getFactor(), getDim(), !getReverse());
  Expr sum(builder, getLoc(),
           LinearScanOp::create(builder, getLoc(), factor, resultGradients[0], getDim(), !getReverse()));
  operandGradients[0] = sum * sum.with(neighbour(builder, getLoc(), getResult(), getDim(), getReverse()));
  operandGradients[1] = sum;
}

} // namespace tcc::train

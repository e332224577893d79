//===- Indexing.cpp - gather, scatter, pick ---------------------*- C++ -*-===//
#include "compiler/dialect/Indexing.h"
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/OwnElement.h"
#include "compiler/dialect/ScatterRows.h"
#include "compiler/dialect/Verify.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace tcc::train {

Value emitResolve(OpBuilder &b, Location loc, Value index, Type element, int64_t extent) {
  auto vector = dyn_cast<VectorType>(index.getType());
  Type i64 = b.getI64Type(), wide = vector ? Type(VectorType::get(vector.getShape(), i64)) : i64;
  auto constant = [&](int64_t value) -> Value {
    Attribute scalar = b.getI64IntegerAttr(value);
    return arith::ConstantOp::create(
        b, loc,
        vector ? cast<TypedAttr>(Attribute(DenseElementsAttr::get(cast<VectorType>(wide), scalar)))
               : cast<TypedAttr>(scalar));
  };
  if (index.getType() != wide)
    index = element.isUnsignedInteger() ? arith::ExtUIOp::create(b, loc, wide, index).getResult()
                                        : arith::ExtSIOp::create(b, loc, wide, index).getResult();
  if (!element.isUnsignedInteger()) {
    Value negative = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, index, constant(0));
    Value wrapped = arith::AddIOp::create(b, loc, index, constant(extent));
    index = arith::SelectOp::create(b, loc, negative, wrapped, index);
  }
  index = arith::MaxSIOp::create(b, loc, index, constant(0));
  return arith::MinSIOp::create(b, loc, index, constant(extent - 1));
}

Coord indexAt(ElementBuilder &builder, unsigned operand, llvm::ArrayRef<Coord> coords, Type element, int64_t extent,
              llvm::function_ref<Value(Value)> convert) {
  Value index = builder.operand(operand, coords);
  bool shared = llvm::all_of(coords, [](const Coord &coord) { return !coord.lanes && coord.laneStride == 0; });
  if (shared && isa<VectorType>(index.getType()))
    index = vector::ExtractOp::create(builder.builder, builder.loc, index, 0);
  return builder.coordFromValue(convert(index));
}

//===----------------------------------------------------------------------===//
// gather
//===----------------------------------------------------------------------===//
llvm::SmallVector<int64_t> gatheredShape(llvm::ArrayRef<int64_t> input, llvm::ArrayRef<int64_t> indices, int64_t axis) {
  llvm::SmallVector<int64_t> shape(input.take_front(axis));
  llvm::append_range(shape, indices);
  llvm::append_range(shape, input.drop_front(axis + 1));
  return shape;
}

LogicalResult GatherOp::verify() {
  llvm::ArrayRef<int64_t> input = shapeOf(getInput());
  if (failed(verifyDim(*this, getAxis(), input.size())))
    return failure();
  if (elementTypeOf(getInput()) != elementTypeOf(getResult()) ||
      shapeOf(getResult()) != llvm::ArrayRef(gatheredShape(input, shapeOf(getIndices()), getAxis())))
    return emitOpError("result must be input[:axis] ++ indices ++ input[axis+1:], of the input's element type");
  if (input[getAxis()] == 0 && tensorTypeOf(getResult()).getNumElements() > 0)
    return emitOpError("reads from a dimension without elements");
  return success();
}
/// gather(unpack(t), i) becomes unpack(t at i), also behind a cast: only the slices in use are unpacked.
LogicalResult GatherOp::canonicalize(GatherOp gather, PatternRewriter &rewriter) {
  auto cast = gather.getInput().getDefiningOp<CastOp>();
  auto unpack = (cast ? cast.getInput() : gather.getInput()).getDefiningOp<UnpackOp>();
  if (!unpack || unpack.getIndices())
    return failure();
  auto type = RankedTensorType::get(shapeOf(gather.getResult()), elementTypeOf(unpack.getResult()));
  Value slices =
      UnpackOp::create(rewriter, gather.getLoc(), type, unpack.getBytes(), unpack.getScales(), unpack.getZeros(),
                       unpack.getNested(), unpack.getMap(), gather.getIndices(), unpack.getCode(), unpack.getBlock(),
                       unpack.getShape(), unpack.getStrides(), gather.getAxis(), unpack.getBlocks(),
                       unpack.getScaleStrides(), unpack.getZeroStrides());
  rewriter.replaceOp(gather, train::cast(rewriter, gather.getLoc(), slices, elementTypeOf(gather.getResult())));
  return success();
}
double GatherOp::getFlops() { return 0; }
/// Only for slices that are long enough, since with short ones every reader would repeat the lookup of the index, and
/// for numbers of a constant table, each at its own index: that is a function of the index.
bool GatherOp::isCheapToRecompute() {
  if (getInput().getDefiningOp<ConstantOp>() && readsItsOwnElement(getIndicesMutable()))
    return true;
  constexpr int64_t kLeastSlice = 16;
  return product(shapeOf(getInput()).drop_front(getAxis() + 1)) >= kLeastSlice;
}

void GatherOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  llvm::ArrayRef<int64_t> shape = operands[0].shape();
  int64_t outer = product(shape.take_front(getAxis())), extent = shape[getAxis()],
          inner = product(shape.drop_front(getAxis() + 1));
  int64_t rowBytes = inner * elementBytes(operands[0].elementType()), count = operands[1].size();
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t m = 0; m < count; ++m)
      std::copy_n(operands[0].data() + (o * extent + resolve(operands[1].getInt(m), extent)) * rowBytes, rowBytes,
                  results[0].data() + (o * count + m) * rowBytes);
}

AffineMap GatherOp::getOperandMap(unsigned operand) {
  if (operand == 0)
    return {};
  size_t rank = shapeOf(getResult()).size(), indexRank = shapeOf(getIndices()).size();
  return AffineMap::getMultiDimIdentityMap(rank, getContext()).getSliceMap(getAxis(), indexRank);
}

/// Gathers whole rows: neighbours along the last dimension are neighbours in the input. All of a row shares one index.
bool GatherOp::readsNeighbours(unsigned operand, unsigned dim, int64_t) {
  return operand == 0 && dim + 1 == shapeOf(getResult()).size() && getAxis() + 1 < shapeOf(getInput()).size();
}

Value GatherOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  size_t axis = getAxis(), indexRank = shapeOf(getIndices()).size();
  int64_t extent = shapeOf(getInput())[axis];
  Type element = elementTypeOf(getIndices());
  Coord at = indexAt(builder, 1, coords.slice(axis, indexRank), element, extent,
                     [&](Value index) { return emitResolve(builder.builder, builder.loc, index, element, extent); });
  llvm::SmallVector<Coord> source(coords.take_front(axis));
  source.push_back(at);
  llvm::append_range(source, coords.drop_front(axis + indexRank));
  return builder.operand(0, source);
}

/// Adds the slices of g at the places that they were gathered from.
void GatherOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                             llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(2);
  if (!resultGradients[0] || !isFloatTensor(getInput()))
    return;
  Value zero = splat(builder, getLoc(), getInput().getType(), 0);
  operandGradients[0] =
      ScatterAddOp::create(builder, getLoc(), getInput().getType(), zero, getIndices(), resultGradients[0], getAxis());
}

//===----------------------------------------------------------------------===//
// scatter_add
//===----------------------------------------------------------------------===//
LogicalResult ScatterAddOp::verify() {
  llvm::ArrayRef<int64_t> init = shapeOf(getInit());
  if (failed(verifyDim(*this, getAxis(), init.size())))
    return failure();
  if (getInit().getType() != getResult().getType())
    return emitOpError("changes the type of its initial value");
  if (elementTypeOf(getInit()) != elementTypeOf(getUpdates()) ||
      shapeOf(getUpdates()) != llvm::ArrayRef(gatheredShape(init, shapeOf(getIndices()), getAxis())))
    return emitOpError("updates must be init[:axis] ++ indices ++ init[axis+1:], of its element type");
  if (init[getAxis()] == 0 && tensorTypeOf(getUpdates()).getNumElements() > 0)
    return emitOpError("writes to a dimension without elements");
  return success();
}
double ScatterAddOp::getFlops() { return double(tensorTypeOf(getUpdates()).getNumElements()); }
int ScatterAddOp::getInPlaceOperand() { return 0; }

void ScatterAddOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  HostTensor &out = results[0];
  llvm::ArrayRef<int64_t> shape = out.shape();
  int64_t outer = product(shape.take_front(getAxis())), extent = shape[getAxis()],
          inner = product(shape.drop_front(getAxis() + 1));
  int64_t count = operands[1].size();
  std::vector<double> floats(out.size());
  std::vector<uint64_t> integers(out.size());
  for (int64_t i = 0; i < out.size(); ++i) {
    floats[i] = out.isFloat() ? operands[0].getDouble(i) : 0;
    integers[i] = out.isFloat() ? 0 : operands[0].getInt(i);
  }
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t m = 0; m < count; ++m)
      for (int64_t c = 0; c < inner; ++c) {
        int64_t target = (o * extent + resolve(operands[1].getInt(m), extent)) * inner + c,
                source = (o * count + m) * inner + c;
        if (out.isFloat())
          floats[target] += operands[2].getDouble(source);
        else
          integers[target] += operands[2].getInt(source);
      }
  for (int64_t i = 0; i < out.size(); ++i)
    if (out.isFloat())
      out.setDouble(i, floats[i]);
    else
      out.setInt(i, int64_t(integers[i]));
}

/// Columns of one tile. A tile processes all indices in order, so that sums do not depend on parallelism.
static constexpr int64_t kColumnsPerTile = 64;

int64_t ScatterAddOp::getTileCount() {
  llvm::ArrayRef<int64_t> shape = shapeOf(getInit());
  return product(shape.take_front(getAxis())) *
         llvm::divideCeil(product(shape.drop_front(getAxis() + 1)), kColumnsPerTile);
}

void ScatterAddOp::emitTile(LoopBuilder &loops, Value tile) {
  OpBuilder &b = loops.builder;
  Location loc = loops.loc;
  llvm::ArrayRef<int64_t> shape = shapeOf(getInit());
  Type element = elementTypeOf(getInit()), indexElement = elementTypeOf(getIndices());
  int64_t extent = shape[getAxis()], inner = product(shape.drop_front(getAxis() + 1));
  int64_t count = tensorTypeOf(getIndices()).getNumElements();
  int64_t blocks = llvm::divideCeil(inner, kColumnsPerTile), lanes = inner == 1 ? 1 : loops.lanes(element);
  auto plus = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, loc, x, y); };
  auto times = [&](Value x, int64_t y) -> Value { return arith::MulIOp::create(b, loc, x, loops.index(y)); };
  Value outer = arith::DivUIOp::create(b, loc, tile, loops.index(blocks));
  Value begin = times(arith::RemUIOp::create(b, loc, tile, loops.index(blocks)), kColumnsPerTile);
  Value end = arith::MinSIOp::create(b, loc, plus(begin, loops.index(kColumnsPerTile)), loops.index(inner));
  loops.loop(loops.index(0), loops.index(count), 1, {}, [&](Value m, ValueRange) -> llvm::SmallVector<Value> {
    Value index = emitResolve(b, loc, loops.load(1, m), indexElement, extent);
    Value target = times(plus(times(outer, extent), index), inner), source = times(plus(times(outer, count), m), inner);
    loops.loop(begin, end, lanes, {}, [&](Value column, ValueRange) -> llvm::SmallVector<Value> {
      Value active = lanes == 1 ? Value() : arith::SubIOp::create(b, loc, end, column).getResult();
      Value old = loops.loadResult(0, plus(target, column), lanes, active);
      Value update = loops.load(2, plus(source, column), lanes, active);
      Value sum = isa<FloatType>(element) ? arith::AddFOp::create(b, loc, old, update).getResult() : plus(old, update);
      loops.store(0, plus(target, column), sum, active);
      return {};
    });
    return {};
  });
}

static ScatterRows rowsOf(ScatterAddOp op) {
  llvm::ArrayRef<int64_t> shape = shapeOf(op.getInit());
  ScatterRows rows;
  rows.lines = product(shape.take_front(op.getAxis()));
  rows.extent = shape[op.getAxis()];
  rows.count = tensorTypeOf(op.getIndices()).getNumElements();
  rows.columns = rows.resultRow = rows.updateRow = product(shape.drop_front(op.getAxis() + 1));
  return rows;
}

int64_t ScatterAddOp::getGroupTileCount() { return rowsOf(*this).groupTiles(); }

void ScatterAddOp::emitGroupTile(LoopBuilder &loops, Value tile) {
  ScatterRows rows = rowsOf(*this);
  Type element = elementTypeOf(getInit());
  auto lineAt = [&](Value line) -> ScatterLine {
    Index number(loops, line);
    return {number * (rows.extent * rows.columns), number * (rows.count * rows.columns), Index(loops, int64_t(0))};
  };
  emitScatterRows(loops, rows, tile, element, elementTypeOf(getIndices()), /*overwrites=*/false, lineAt,
                  [&](Value old, Value update) -> Value {
                    if (isa<FloatType>(element))
                      return arith::AddFOp::create(loops.builder, loops.loc, old, update);
                    return arith::AddIOp::create(loops.builder, loops.loc, old, update);
                  });
}

void ScatterAddOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                 llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(3);
  if (!resultGradients[0] || !isFloatTensor(getInit()))
    return;
  operandGradients[0] = resultGradients[0];
  operandGradients[2] =
      GatherOp::create(builder, getLoc(), getUpdates().getType(), resultGradients[0], getIndices(), getAxis());
}

//===----------------------------------------------------------------------===//
// pick
//===----------------------------------------------------------------------===//
LogicalResult PickOp::verify() {
  if (failed(verifyDim(*this, getDim(), shapeOf(getInput()).size())))
    return failure();
  if (elementTypeOf(getInput()) != elementTypeOf(getResult()) || shapeOf(getIndices()) != shapeOf(getResult()))
    return emitOpError("needs one index for each element of its result, which has the input's element type");
  return verifyKeepsDims(*this, shapeOf(getInput()), shapeOf(getResult()), {int64_t(getDim())});
}
double PickOp::getFlops() { return 0; }

void PickOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  int64_t extent = operands[0].shape()[getDim()];
  for (int64_t i = 0; i < results[0].size(); ++i) {
    llvm::SmallVector<int64_t> at = unravel(i, results[0].shape());
    int64_t index = operands[1].getInt(i);
    bool inside = index >= 0 && index < extent;
    at[getDim()] = inside ? index : 0;
    int64_t source = ravel(at, operands[0].shape());
    if (results[0].isFloat())
      results[0].setDouble(i, inside ? operands[0].getDouble(source) : 0);
    else
      results[0].setInt(i, inside ? operands[0].getInt(source) : 0);
  }
}

AffineMap PickOp::getOperandMap(unsigned operand) {
  if (operand == 0)
    return {};
  return AffineMap::getMultiDimIdentityMap(shapeOf(getResult()).size(), getContext());
}

Value PickOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  Type element = elementTypeOf(getIndices());
  int64_t extent = shapeOf(getInput())[getDim()];
  Coord at = indexAt(builder, 1, coords, element, extent, [&](Value index) -> Value {
    auto vector = dyn_cast<VectorType>(index.getType());
    Type i64 = builder.builder.getI64Type(), wide = vector ? Type(VectorType::get(vector.getShape(), i64)) : i64;
    if (index.getType() == wide || !element.isUnsignedInteger())
      return index;
    return arith::ExtUIOp::create(builder.builder, builder.loc, wide, index);
  });
  llvm::SmallVector<Coord> source(coords);
  source[getDim()] = at;
  return builder.operandIf(0, source, builder.inBounds(at, extent), builder.constant(elementTypeOf(getInput()), 0));
}

/// g at the picked element, 0 elsewhere.
void PickOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                           llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(2);
  if (!resultGradients[0] || !isFloatTensor(getInput()))
    return;
  Expr g(builder, getLoc(), resultGradients[0]);
  // i64 holds every class number; a narrow index type might wrap.
  Expr index = g.with(getIndices()).cast(builder.getI64Type());
  auto type = RankedTensorType::get(shapeOf(getInput()), builder.getI64Type());
  Expr classes = g.with(IotaOp::create(builder, getLoc(), type, getDim()));
  Expr gradient = g.broadcast(shapeOf(getInput()));
  operandGradients[0] = classes.compare(CompareKind::eq, index).select(gradient, gradient.like(0));
}

} // namespace tcc::train

//===- Scatter.cpp - scatter and gather with an index for each element --*- C++ -*-===//
//
// A line is everything along `axis` at one place of the other dimensions. Lines are independent, so tiles consist of
// lines. Updates of a line are applied in order. If neighbouring lines share their indices (whole rows are scattered),
// lanes run across lines.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Indexing.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/ScatterRows.h"
#include "compiler/dialect/Verify.h"

using namespace mlir;

namespace tcc::train {

/// Checks shapes: `whole` is the tensor gathered from or scattered into, `part` has an element for each index.
static LogicalResult verifyIndexed(Operation *op, Value whole, Value indices, Value part, int64_t axis) {
  llvm::ArrayRef<int64_t> from = shapeOf(whole), at = shapeOf(indices), to = shapeOf(part);
  if (failed(verifyDim(op, axis, int64_t(from.size()))))
    return failure();
  if (from.size() != at.size() || from.size() != to.size() || elementTypeOf(whole) != elementTypeOf(part))
    return op->emitOpError("needs tensors of one rank, and one element type");
  for (size_t d = 0; d < from.size(); ++d) {
    if (int64_t(d) != axis && to[d] > from[d])
      return op->emitOpError("has ") << to[d] << " elements along dimension " << d << ", where there are " << from[d];
    if (at[d] != to[d] && (at[d] != 1 || int64_t(d) == axis))
      return op->emitOpError("has ") << at[d] << " indices along dimension " << d << ", where there are " << to[d]
                                     << " elements";
  }
  if (from[size_t(axis)] == 0 && tensorTypeOf(part).getNumElements() > 0)
    return op->emitOpError("indexes a dimension without elements");
  return success();
}

namespace {
/// Calls `each(element of the part, element of the whole)` in order.
template <typename Each>
void forEachIndexed(llvm::ArrayRef<int64_t> whole, const HostTensor &indices, llvm::ArrayRef<int64_t> part, size_t axis,
                    Each each) {
  for (int64_t i = 0, count = product(part); i < count; ++i) {
    llvm::SmallVector<int64_t> at = unravel(i, part), shared(at);
    for (size_t d = 0; d < at.size(); ++d)
      if (indices.shape()[d] == 1)
        shared[d] = 0;
    at[axis] = resolve(indices.getInt(ravel(shared, indices.shape())), whole[axis]);
    each(i, ravel(at, whole));
  }
}
} // namespace

//===----------------------------------------------------------------------===//
// gather_elements
//===----------------------------------------------------------------------===//
LogicalResult GatherElementsOp::verify() {
  return verifyIndexed(*this, getInput(), getIndices(), getResult(), getAxis());
}
double GatherElementsOp::getFlops() { return 0; }

void GatherElementsOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  int64_t bytes = elementBytes(operands[0].elementType());
  forEachIndexed(operands[0].shape(), operands[1], results[0].shape(), getAxis(), [&](int64_t to, int64_t from) {
    std::copy_n(operands[0].data() + from * bytes, bytes, results[0].data() + to * bytes);
  });
}

AffineMap GatherElementsOp::getOperandMap(unsigned operand) {
  if (operand == 0)
    return {};
  llvm::SmallVector<AffineExpr> coords;
  for (auto [d, extent] : llvm::enumerate(shapeOf(getIndices())))
    coords.push_back(extent == 1 ? getAffineConstantExpr(0, getContext())
                                 : getAffineDimExpr(unsigned(d), getContext()));
  return AffineMap::get(unsigned(coords.size()), 0, coords, getContext());
}

Value GatherElementsOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  int64_t extent = shapeOf(getInput())[getAxis()];
  Type element = elementTypeOf(getIndices());
  llvm::SmallVector<Coord> source(coords), at(coords);
  for (auto [d, shared] : llvm::enumerate(shapeOf(getIndices())))
    if (shared == 1)
      at[d] = builder.uniform(int64_t(0));
  source[getAxis()] = indexAt(builder, 1, at, element, extent, [&](Value index) {
    return emitResolve(builder.builder, builder.loc, index, element, extent);
  });
  return builder.operand(0, source);
}

/// Adds each element of g at the place that it was gathered from.
void GatherElementsOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                     llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(2);
  if (!resultGradients[0] || !isFloatTensor(getInput()))
    return;
  Value zero = splat(builder, getLoc(), getInput().getType(), 0);
  operandGradients[0] = ScatterOp::create(builder, getLoc(), getInput().getType(), ScatterKind::add, zero, getIndices(),
                                          resultGradients[0], getAxis());
}

//===----------------------------------------------------------------------===//
// scatter
//===----------------------------------------------------------------------===//
LogicalResult ScatterOp::verify() {
  if (getInit().getType() != getResult().getType())
    return emitOpError("changes the type of its initial value");
  return verifyIndexed(*this, getInit(), getIndices(), getUpdates(), getAxis());
}
double ScatterOp::getFlops() {
  return getKind() == ScatterKind::set ? 0 : double(tensorTypeOf(getUpdates()).getNumElements());
}
int ScatterOp::getInPlaceOperand() { return 0; }

static double scattered(ScatterKind kind, double old, double update) {
  switch (kind) {
  case ScatterKind::set:
    return update;
  case ScatterKind::add:
    return old + update;
  case ScatterKind::mul:
    return old * update;
  case ScatterKind::max:
    return old != old || old > update ? old : update;
  case ScatterKind::min:
    return old != old || old < update ? old : update;
  }
  llvm_unreachable("every kind is listed");
}
static int64_t scattered(ScatterKind kind, int64_t old, int64_t update, bool isUnsigned, bool isBool) {
  bool less = isUnsigned ? uint64_t(old) < uint64_t(update) : old < update;
  switch (kind) {
  case ScatterKind::set:
    return update;
  case ScatterKind::add:
    return isBool ? old | update : int64_t(uint64_t(old) + uint64_t(update));
  case ScatterKind::mul:
    return int64_t(uint64_t(old) * uint64_t(update));
  case ScatterKind::max:
    return less ? update : old;
  case ScatterKind::min:
    return less ? old : update;
  }
  llvm_unreachable("every kind is listed");
}

void ScatterOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  HostTensor &out = results[0];
  const HostTensor &updates = operands[2];
  Type element = out.elementType();
  std::vector<double> floats(out.isFloat() ? out.size() : 0);
  std::vector<int64_t> integers(out.isFloat() ? 0 : out.size());
  for (int64_t i = 0; i < out.size(); ++i)
    if (out.isFloat())
      floats[i] = operands[0].getDouble(i);
    else
      integers[i] = operands[0].getInt(i);
  forEachIndexed(out.shape(), operands[1], updates.shape(), getAxis(), [&](int64_t from, int64_t to) {
    if (out.isFloat()) {
      floats[to] = scattered(getKind(), floats[to], updates.getDouble(from));
      return;
    }
    // Wrap to the type's width at each step, like a register of that width.
    out.setInt(to, scattered(getKind(), integers[to], updates.getInt(from), element.isUnsignedInteger(),
                             element.isInteger(1)));
    integers[to] = out.getInt(to);
  });
  for (int64_t i = 0; i < out.size(); ++i)
    if (out.isFloat())
      out.setDouble(i, floats[i]);
    else
      out.setInt(i, integers[i]);
}

namespace {

/// The dimensions other than the axis, merged as far as strides allow, and how they are cut into tiles.
struct ScatterSpace {
  struct Dim {
    int64_t extent, init, indices, updates; ///< extent, and the strides of the three tensors
  };
  static constexpr int64_t kColumns = 64;
  llvm::SmallVector<Dim> dims;               ///< of lines, outermost first
  Dim axis{1, 1, 1, 1}, columns{1, 0, 0, 0}; ///< columns: innermost lines that are contiguous in the updates
  int64_t lines = 1;

  explicit ScatterSpace(ScatterOp op) {
    llvm::ArrayRef<int64_t> whole = shapeOf(op.getInit()), at = shapeOf(op.getIndices()),
                            part = shapeOf(op.getUpdates());
    Dim stride{1, 1, 1, 1};
    llvm::SmallVector<Dim> inward; // innermost first
    for (size_t d = whole.size(); d-- > 0;) {
      Dim dim{part[d], stride.init, at[d] == 1 ? 0 : stride.indices, stride.updates};
      if (d == op.getAxis())
        axis = dim;
      else if (!inward.empty() && dim.init == inward.back().init * inward.back().extent &&
               dim.indices == inward.back().indices * inward.back().extent &&
               dim.updates == inward.back().updates * inward.back().extent)
        inward.back().extent *= dim.extent;
      else if (dim.extent != 1)
        inward.push_back(dim);
      stride.init *= whole[d];
      stride.indices *= at[d];
      stride.updates *= part[d];
    }
    dims.assign(inward.rbegin(), inward.rend());
    if (!dims.empty() && dims.back().init == 1 && dims.back().updates == 1)
      columns = dims.pop_back_val();
    for (const Dim &dim : dims)
      lines *= dim.extent;
  }
  int64_t blocks() const { return llvm::divideCeil(columns.extent, kColumns); }
  int64_t linesPerTile() const { return blocks() == 1 ? unitsPerTile(axis.extent * columns.extent, lines) : 1; }
  int64_t tiles() const { return llvm::divideCeil(lines, linesPerTile()) * blocks(); }

  /// Offsets of a line's first elements.
  ScatterLine lineAt(LoopBuilder &loops, Value line) const {
    Index init(loops, int64_t(0)), indices = init, updates = init, rest(loops, line);
    for (size_t d = dims.size(); d-- > 0;) {
      Index coordinate = d == 0 ? rest : rest % dims[d].extent;
      rest = d == 0 ? rest : rest / dims[d].extent;
      init = init + coordinate * dims[d].init;
      indices = indices + coordinate * dims[d].indices;
      updates = updates + coordinate * dims[d].updates;
    }
    return {init, updates, indices};
  }
};

Value emitScattered(LoopBuilder &loops, ScatterKind kind, Type element, Value old, Value update) {
  OpBuilder &b = loops.builder;
  Location loc = loops.loc;
  bool isFloat = isa<FloatType>(element), isBool = element.isInteger(1),
       isUnsigned = element.isUnsignedInteger() || isBool;
  switch (kind) {
  case ScatterKind::set:
    return update;
  case ScatterKind::add:
    if (isFloat)
      return arith::AddFOp::create(b, loc, old, update);
    return isBool ? arith::OrIOp::create(b, loc, old, update).getResult()
                  : arith::AddIOp::create(b, loc, old, update).getResult();
  case ScatterKind::mul:
    return isFloat ? arith::MulFOp::create(b, loc, old, update).getResult()
                   : arith::MulIOp::create(b, loc, old, update).getResult();
  case ScatterKind::max:
    if (isFloat)
      return arith::MaximumFOp::create(b, loc, old, update);
    return isUnsigned ? arith::MaxUIOp::create(b, loc, old, update).getResult()
                      : arith::MaxSIOp::create(b, loc, old, update).getResult();
  case ScatterKind::min:
    if (isFloat)
      return arith::MinimumFOp::create(b, loc, old, update);
    return isUnsigned ? arith::MinUIOp::create(b, loc, old, update).getResult()
                      : arith::MinSIOp::create(b, loc, old, update).getResult();
  }
  llvm_unreachable("every kind is listed");
}

} // namespace

int64_t ScatterOp::getTileCount() { return ScatterSpace(*this).tiles(); }

void ScatterOp::emitTile(LoopBuilder &loops, Value tile) {
  using Carried = llvm::SmallVector<Value>;
  ScatterSpace space(*this);
  Type element = elementTypeOf(getInit()), indexElement = elementTypeOf(getIndices());
  int64_t extent = shapeOf(getInit())[getAxis()], group = space.linesPerTile();
  bool shared = space.columns.indices == 0;
  int64_t lanes = shared && space.columns.extent > 1 ? loops.lanes(element) : 1;
  Index number(loops, tile), first = number / space.blocks() * group,
                             begin = number % space.blocks() * ScatterSpace::kColumns;
  Index end = (begin + ScatterSpace::kColumns).atMost(space.columns.extent);
  auto rowAt = [&](Value position) {
    return Index(loops, emitResolve(loops.builder, loops.loc, loops.load(1, position), indexElement, extent));
  };
  loops.loop(first, (first + group).atMost(space.lines), 1, {}, [&](Value line, ValueRange) -> Carried {
    auto [init, updates, indices] = space.lineAt(loops, line);
    loops.loop(loops.index(0), loops.index(space.axis.extent), 1, {}, [&](Value m, ValueRange) -> Carried {
      Index position = indices + Index(loops, m) * space.axis.indices,
            source = updates + Index(loops, m) * space.axis.updates;
      Index row = shared ? rowAt(position) : position;
      loops.loop(begin, end, lanes, {}, [&](Value column, ValueRange) -> Carried {
        Value active = lanes == 1 ? Value() : (end - column).value;
        Index index = shared ? row : rowAt(position + Index(loops, column) * space.columns.indices);
        Value target = init + index * space.axis.init + Index(loops, column) * space.columns.init;
        Value update = loops.load(2, source + Index(loops, column) * space.columns.updates, lanes, active);
        Value old = getKind() == ScatterKind::set ? update : loops.loadResult(0, target, lanes, active);
        loops.store(0, target, emitScattered(loops, getKind(), element, old, update), active);
        return {};
      });
      return {};
    });
    return {};
  });
}

/// The scatter as one of whole rows; nothing if elements of a row have indices of their own.
static std::optional<ScatterRows> rowsOf(ScatterOp op, const ScatterSpace &space) {
  if (space.columns.indices != 0)
    return std::nullopt;
  ScatterRows rows;
  rows.lines = space.lines;
  rows.extent = shapeOf(op.getInit())[op.getAxis()];
  rows.count = space.axis.extent;
  rows.columns = space.columns.extent;
  rows.resultRow = space.axis.init, rows.resultColumn = space.columns.init;
  rows.updateRow = space.axis.updates, rows.updateColumn = space.columns.updates;
  rows.indexRow = space.axis.indices;
  return rows;
}

int64_t ScatterOp::getGroupTileCount() {
  std::optional<ScatterRows> rows = rowsOf(*this, ScatterSpace(*this));
  return rows ? rows->groupTiles() : 0;
}

void ScatterOp::emitGroupTile(LoopBuilder &loops, Value tile) {
  ScatterSpace space(*this);
  Type element = elementTypeOf(getInit());
  emitScatterRows(loops, *rowsOf(*this, space), tile, element, elementTypeOf(getIndices()),
                  getKind() == ScatterKind::set, [&](Value line) { return space.lineAt(loops, line); },
                  [&](Value old, Value update) { return emitScattered(loops, getKind(), element, old, update); });
}

void ScatterOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                              llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(3);
  if (!resultGradients[0] || !isFloatTensor(getInit()))
    return;
  Expr g(builder, getLoc(), resultGradients[0]), init = g.with(getInit()), updates = g.with(getUpdates()),
                                                 result = g.with(getResult());
  Type element = elementTypeOf(init);
  llvm::ArrayRef<int64_t> part = shapeOf(updates);
  auto at = [&](const Expr &whole) {
    Type type = RankedTensorType::get(part, elementTypeOf(whole));
    return whole.with(GatherElementsOp::create(builder, getLoc(), type, whole.value, getIndices(), getAxis()));
  };
  auto scatter = [&](ScatterKind kind, const Expr &onto, const Expr &values) {
    return onto.with(ScatterOp::create(builder, getLoc(), onto.value.getType(), kind, onto.value, getIndices(),
                                       values.value, getAxis()));
  };
  switch (getKind()) {
  case ScatterKind::add:
    operandGradients[0] = g;
    operandGradients[2] = at(g);
    return;
  case ScatterKind::set: { // to the last write: scatter the writes' numbers to find it
    int64_t count = product(part);
    Type numbers = count < (int64_t(1) << 31) ? builder.getI32Type() : builder.getI64Type();
    Expr number = g.with(IotaOp::create(builder, getLoc(), RankedTensorType::get({count}, numbers), 0)).reshape(part);
    Expr none = g.with(splatInt(builder, getLoc(), RankedTensorType::get(shapeOf(init), numbers), -1));
    Expr last = scatter(ScatterKind::set, none, number);
    operandGradients[0] = last.compare(CompareKind::lt, 0).select(g, g.like(0));
    operandGradients[2] = at(last).compare(CompareKind::eq, number).select(at(g), updates.like(0));
    return;
  }
  case ScatterKind::mul: { // the product of all others, of which some may be 0
    Expr isZero = updates.compare(CompareKind::eq, 0.0), one = isZero.cast(element),
         nonZero = isZero.select(updates.like(1), updates);
    Expr zeros = scatter(ScatterKind::add, init.like(0), one),
         factors = scatter(ScatterKind::mul, init.like(1), nonZero);
    operandGradients[0] = g * zeros.compare(CompareKind::eq, 0.0).select(factors, factors.like(0));
    Expr others = at(zeros).compare(CompareKind::eq, one).select(at(factors) / nonZero, nonZero.like(0));
    operandGradients[2] = at(g * init) * others;
    return;
  }
  case ScatterKind::max:
  case ScatterKind::min: { // shared equally by all elements that attain the extreme
    Expr initAttains = init.compare(CompareKind::eq, result), attains = updates.compare(CompareKind::eq, at(result));
    Expr share = g / scatter(ScatterKind::add, initAttains.cast(element), attains.cast(element));
    operandGradients[0] = initAttains.select(share, share.like(0));
    operandGradients[2] = attains.select(at(share), updates.like(0));
    return;
  }
  }
}

} // namespace tcc::train

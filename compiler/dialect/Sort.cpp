//===- Sort.cpp - sort and top-k along a dimension --------------*- C++ -*-===//
//
// The best k of a row are kept as a heap whose root is the last of them in sorted order: an element that precedes the
// root replaces it. At the end the root is removed repeatedly, which fills the row from the back. Elements compare by
// value, then by index, so that no two are equal and the sort is stable. The result's memory holds the heap.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Indexing.h"
#include "compiler/dialect/Verify.h"

#include <cmath>
#include <numeric>

using namespace mlir;

namespace tcc::train {

LogicalResult SortOp::verify() {
  llvm::ArrayRef<int64_t> from = shapeOf(getInput()), to = shapeOf(getValues());
  if (failed(verifyDim(*this, getDim(), from.size())))
    return failure();
  llvm::SmallVector<int64_t> expected(from);
  if (to.size() == from.size())
    expected[getDim()] = to[getDim()];
  if (to != llvm::ArrayRef(expected) || to != shapeOf(getIndices()) || to[getDim()] > from[getDim()])
    return emitOpError("results must have the input's shape, with at most its extent along the sorted dimension");
  if (elementTypeOf(getInput()) != elementTypeOf(getValues()))
    return emitOpError("changes the element type");
  return success();
}
double SortOp::getFlops() {
  return double(tensorTypeOf(getInput()).getNumElements()) * std::log2(2.0 + double(shapeOf(getValues())[getDim()]));
}

void SortOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  const HostTensor &in = operands[0];
  int64_t extent = in.shape()[getDim()], count = results[0].shape()[getDim()],
          inner = product(in.shape().drop_front(getDim() + 1));
  int64_t outer = product(in.shape().take_front(getDim()));
  bool isUnsigned = in.elementType().isUnsignedInteger();
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t c = 0; c < inner; ++c) {
      auto at = [&](int64_t i) { return (o * extent + i) * inner + c; };
      auto ascends = [&](int64_t i, int64_t j) {
        if (!in.isFloat())
          return isUnsigned ? uint64_t(in.getInt(at(i))) < uint64_t(in.getInt(at(j)))
                            : in.getInt(at(i)) < in.getInt(at(j));
        double x = in.getDouble(at(i)), y = in.getDouble(at(j));
        return x < y || (std::isnan(y) && !std::isnan(x));
      };
      llvm::SmallVector<int64_t> order(extent);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t i, int64_t j) { return getDescending() ? ascends(j, i) : ascends(i, j); });
      for (int64_t i = 0; i < count; ++i) {
        int64_t to = (o * count + i) * inner + c;
        if (in.isFloat())
          results[0].setDouble(to, in.getDouble(at(order[i])));
        else
          results[0].setInt(to, in.getInt(at(order[i])));
        results[1].setInt(to, order[i]);
      }
    }
}

int64_t SortOp::getTileCount() {
  int64_t extent = shapeOf(getInput())[getDim()],
          rows = extent ? tensorTypeOf(getInput()).getNumElements() / extent : 0;
  return llvm::divideCeil(rows, unitsPerTile(extent, rows));
}

namespace {

/// An element and its index.
struct Entry {
  Value value, place;
};

/// One row under construction.
struct RowSort {
  LoopBuilder &loops;
  Type element;
  bool descending;
  Value base;    ///< offset of the row in the results
  int64_t inner; ///< stride of a row's elements
  int64_t count; ///< number of elements kept

  template <typename OpTy, typename... Args> Value make(Args... args) const {
    return OpTy::create(loops.builder, loops.loc, args...);
  }
  Index at(Value slot) const { return Index(loops, slot) * inner + base; }
  Entry read(Value slot) const { return {loops.loadResult(0, at(slot)), loops.loadResult(1, at(slot))}; }
  void write(Value slot, const Entry &entry) const {
    loops.store(0, at(slot), entry.value);
    loops.store(1, at(slot), entry.place);
  }

  Value ascends(Value x, Value y) const {
    if (!isa<FloatType>(x.getType())) {
      bool isUnsigned = element.isUnsignedInteger() || element.isInteger(1);
      return make<arith::CmpIOp>(isUnsigned ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt, x, y);
    }
    // NaN is larger than every number: x < y, or y is NaN and x is not.
    Value number = make<arith::CmpFOp>(arith::CmpFPredicate::ORD, x, x);
    Value less = make<arith::CmpFOp>(arith::CmpFPredicate::ULT, x, y);
    return make<arith::AndIOp>(number, less);
  }
  /// True if `x` precedes `y` in the sorted row.
  Value precedes(const Entry &x, const Entry &y) const {
    Value first = descending ? ascends(y.value, x.value) : ascends(x.value, y.value);
    Value second = descending ? ascends(x.value, y.value) : ascends(y.value, x.value);
    Value earlier = make<arith::CmpIOp>(arith::CmpIPredicate::slt, x.place, y.place);
    Value no = make<arith::ConstantOp>(loops.builder.getBoolAttr(false));
    return make<arith::OrIOp>(first, make<arith::SelectOp>(second, no, earlier));
  }

  /// Inserts `entry` into the heap of `size` slots from `slot` down: children that are later in order move up.
  void siftDown(Value slot, Value size, const Entry &entry) const {
    Index last = Index(loops, size) - 1;
    // Carried: the hole, the child that may fill it (its slot and entry), and whether it does.
    auto child = [&](Value hole) {
      Index left = Index(loops, hole) * 2 + 1;
      Value inside = left.isBelow(size);
      Value first = make<arith::MinSIOp>(left.value, last.value),
            second = make<arith::MinSIOp>((left + 1).value, last.value);
      Entry x = read(first), y = read(second);
      Value later = precedes(x, y);
      Entry chosen{make<arith::SelectOp>(later, y.value, x.value), make<arith::SelectOp>(later, y.place, x.place)};
      Value moves = make<arith::AndIOp>(inside, precedes(entry, chosen));
      return llvm::SmallVector<Value>{hole, make<arith::SelectOp>(later, second, first), chosen.value, chosen.place,
                                      moves};
    };
    llvm::SmallVector<Value> end = loops.repeat(
        child(slot), [](ValueRange carried) { return carried[4]; },
        [&](ValueRange carried) {
          write(carried[0], {carried[2], carried[3]});
          return child(carried[1]);
        });
    write(end[0], entry);
  }
};

} // namespace

void SortOp::emitTile(LoopBuilder &loops, Value tile) {
  OpBuilder &b = loops.builder;
  llvm::ArrayRef<int64_t> shape = shapeOf(getInput());
  Type element = elementTypeOf(getInput());
  int64_t extent = shape[getDim()], inner = product(shape.drop_front(getDim() + 1)),
          count = shapeOf(getValues())[getDim()];
  int64_t rows = extent ? tensorTypeOf(getInput()).getNumElements() / extent : 0, group = unitsPerTile(extent, rows);
  if (rows == 0 || count == 0)
    return;
  using Carried = llvm::SmallVector<Value>;
  Index begin = Index(loops, tile) * group, zero(loops, int64_t(0)), kept(loops, count);
  loops.loop(begin, (begin + group).atMost(rows), 1, {}, [&](Value number, ValueRange) -> Carried {
    Index outer = Index(loops, number) / inner, column = Index(loops, number) % inner;
    Value base = outer * (count * inner) + column;
    Index source = outer * (extent * inner) + column;
    RowSort row{loops, element, getDescending(), base, inner, count};
    auto read = [&](Value i) { return Entry{loops.load(0, Index(loops, i) * inner + source), i}; };
    loops.loop(zero, kept, 1, {}, [&](Value i, ValueRange) -> Carried {
      row.write(i, read(i));
      return {};
    });
    loops.loop(zero, loops.index(count / 2), 1, {}, [&](Value i, ValueRange) -> Carried {
      Value slot = Index(loops, count / 2 - 1) - i;
      row.siftDown(slot, kept, row.read(slot));
      return {};
    });
    loops.loop(kept, loops.index(extent), 1, {}, [&](Value i, ValueRange) -> Carried {
      Entry entry = read(i);
      Value enters = arith::ExtUIOp::create(b, loops.loc, b.getI64Type(), row.precedes(entry, row.read(zero)));
      loops.loop(zero, enters, 1, {}, [&](Value, ValueRange) -> Carried {
        row.siftDown(zero, kept, entry);
        return {};
      });
      return {};
    });
    loops.loop(zero, loops.index(count - 1), 1, {}, [&](Value i, ValueRange) -> Carried {
      Value slot = Index(loops, count - 1) - i;
      Entry entry = row.read(slot);
      row.write(slot, row.read(zero));
      row.siftDown(zero, slot, entry);
      return {};
    });
    return {};
  });
}

/// Every value is one element of the input.
void SortOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                           llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (!resultGradients[0] || !isFloatTensor(getInput()))
    return;
  Value zero = splat(builder, getLoc(), getInput().getType(), 0);
  operandGradients[0] = ScatterOp::create(builder, getLoc(), getInput().getType(), ScatterKind::add, zero, getIndices(),
                                          resultGradients[0], getDim());
}

} // namespace tcc::train

//===- BlockProduct.cpp - small matrix products inside kernels --*- C++ -*-===//
#include "compiler/kernels/BlockProduct.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace tcc::train {

/// 32 registers hold the sums of 8 rows of two vectors besides the factors, 16 hold those of 4.
BlockEmitter::BlockEmitter(LoopBuilder &loops, Type sumType)
    : loops(loops), b(loops.builder), loc(loops.loc), sumType(sumType), width(loops.lanes(sumType)),
      height(width > 16 ? 8 : 4) {
  if (sumType.isF64())
    width = std::max(kLeastLanes, width / 2); // still two registers, except for a card's thread
  height = std::min(height, width / 2);
}

Value BlockEmitter::plus(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
Value BlockEmitter::plus(Value x, int64_t y) { return y ? plus(x, index(y)) : x; }
Value BlockEmitter::minus(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
Value BlockEmitter::times(Value x, int64_t y) {
  return y == 1 ? x : arith::MulIOp::create(b, loc, x, index(y)).getResult();
}
Value BlockEmitter::least(Value x, Value y) { return arith::MinSIOp::create(b, loc, x, y); }
Value BlockEmitter::most(Value x, Value y) { return arith::MaxSIOp::create(b, loc, x, y); }
Value BlockEmitter::divide(Value x, int64_t y) { return arith::DivUIOp::create(b, loc, x, index(y)); }
Value BlockEmitter::remainder(Value x, int64_t y) { return arith::RemUIOp::create(b, loc, x, index(y)); }
Value BlockEmitter::roundUp(Value x, int64_t y) { return times(divide(plus(x, y - 1), y), y); }

Value BlockEmitter::choose(arith::CmpIPredicate predicate, Value left, Value right, Value first, Value second) {
  return arith::SelectOp::create(b, loc, arith::CmpIOp::create(b, loc, predicate, left, right), first, second);
}

Value BlockEmitter::indexOf(const MatrixView &m, Value row, Value column) {
  return plus(plus(m.base, times(row, m.rowStride)), times(column, m.columnStride));
}

void BlockEmitter::each(Value lower, Value upper, int64_t step, llvm::function_ref<void(Value)> body) {
  loops.loop(lower, upper, step, {}, [&](Value i, ValueRange) -> llvm::SmallVector<Value> {
    body(i);
    return {};
  });
}

void BlockEmitter::when(Value condition, llvm::function_ref<void()> body) {
  each(index(0), arith::ExtUIOp::create(b, loc, b.getI64Type(), condition), 1, [&](Value) { body(); });
}

void BlockEmitter::columns(int64_t count, llvm::function_ref<void(Value, int64_t, Value)> body) {
  int64_t full = count / width * width, rest = count - full;
  if (full)
    each(index(0), index(full), width, [&](Value column) { body(column, width, nullptr); });
  if (!rest)
    return;
  int64_t lanes = std::max<int64_t>(4, int64_t(llvm::PowerOf2Ceil(uint64_t(rest))));
  body(index(full), lanes, lanes == rest ? Value() : index(rest));
}

Value BlockEmitter::load(const MatrixView &m, Value index, int64_t count, Value active) {
  switch (m.place) {
  case MatrixView::kOperand:
    return m.words ? loops.loadWords(m.number, index, count, active) : loops.load(m.number, index, count, active);
  case MatrixView::kResult:
    return loops.loadResult(m.number, index, count, active);
  case MatrixView::kScratch:
    return loops.loadScratch(m.words ? b.getI32Type() : sumType, index, count, active);
  }
  llvm_unreachable("all places");
}

void BlockEmitter::store(const MatrixView &m, Value index, Value value, Value active) {
  if (m.place == MatrixView::kScratch)
    loops.storeScratch(m.words ? b.getI32Type() : sumType, index, value, active);
  else
    loops.store(m.number, index, value, active);
}

Value BlockEmitter::splat(Value scalar, int64_t count) {
  return vector::BroadcastOp::create(b, loc, VectorType::get({count}, scalar.getType()), scalar);
}

Value BlockEmitter::zeros(int64_t count) {
  return arith::ConstantOp::create(b, loc, b.getZeroAttr(VectorType::get({count}, sumType)));
}

void BlockEmitter::multiplyRows(const Product &p, Value row, int64_t count, Value column, int64_t lanes, Value active) {
  llvm::SmallVector<Value> sums;
  Value here = indexOf(p.c, row, column);
  for (int64_t r = 0; r < count; ++r) {
    Value sum = p.accumulate ? load(p.c, plus(here, r * p.c.rowStride), lanes, active) : zeros(lanes);
    if (p.scale)
      sum = arith::MulFOp::create(b, loc, sum, p.scale);
    sums.push_back(sum);
  }
  if (p.beside)
    p.beside(row, column);
  auto [first, end] = p.depth(row);
  Value left = indexOf(p.a, row, index(0)), right = indexOf(p.b, index(0), column);
  sums = loops.loop(first, end, 1, sums, [&](Value k, ValueRange carried) -> llvm::SmallVector<Value> {
    Value factor = load(p.b, plus(right, times(k, p.b.rowStride)), lanes, active);
    Value at = plus(left, times(k, p.a.columnStride));
    llvm::SmallVector<Value> next;
    for (auto [r, sum] : llvm::enumerate(carried)) {
      Value other = splat(load(p.a, plus(at, int64_t(r) * p.a.rowStride)), lanes);
      next.push_back(p.a.words ? loops.addPairs(sum, other, factor)
                               : math::FmaOp::create(b, loc, other, factor, sum).getResult());
    }
    return next;
  });
  for (auto [r, sum] : llvm::enumerate(sums))
    store(p.c, plus(here, int64_t(r) * p.c.rowStride), p.finish ? p.finish(plus(row, int64_t(r)), sum) : sum, active);
}

/// Loops over vectors of columns outside, rows inside: a column vector's part of b stays in the first-level cache.
void BlockEmitter::multiply(const Product &p) {
  columns(p.columns, [&](Value column, int64_t lanes, Value active) {
    Value mainEnd = p.rowEnd;
    if (p.tail)
      mainEnd = minus(p.rowEnd, remainder(p.rowEnd, height));
    each(index(0), mainEnd, height, [&](Value row) { multiplyRows(p, row, height, column, lanes, active); });
    if (p.tail) // runs at most once
      each(mainEnd, p.rowEnd, p.tail, [&](Value row) { multiplyRows(p, row, p.tail, column, lanes, active); });
  });
}

/// Swaps off-diagonal blocks recursively, from halves down to single elements.
void BlockEmitter::transposeSquare(llvm::SmallVector<Value> &rows) {
  int64_t size = int64_t(rows.size());
  for (int64_t half = size / 2; half >= 1; half /= 2) {
    llvm::SmallVector<int64_t> low(size), high(size);
    for (int64_t t = 0; t < size; ++t) {
      low[t] = t & half ? size + t - half : t;
      high[t] = t & half ? size + t : t + half;
    }
    for (int64_t r = 0; r < size; ++r) {
      if (r & half)
        continue;
      Value above = rows[r], below = rows[r + half];
      rows[r] = vector::ShuffleOp::create(b, loc, above, below, low);
      rows[r + half] = vector::ShuffleOp::create(b, loc, above, below, high);
    }
  }
}

void BlockEmitter::transposeIn(const MatrixView &from, const MatrixView &to, int64_t rowCount, Value rowLimit,
                               Value columnBegin, Value columnEnd, int64_t columnExtent) {
  int64_t size = width / 2, rest = columnExtent % size;
  each(index(0), index(rowCount), size, [&](Value row) {
    auto square = [&](Value column, int64_t count) {
      Value start = indexOf(from, row, column);
      llvm::SmallVector<Value> values;
      for (int64_t r = 0; r < size; ++r) {
        Value active = count < size ? index(count) : Value();
        if (rowLimit) {
          Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, plus(row, r), rowLimit);
          active = arith::SelectOp::create(b, loc, inside, index(count), index(0));
        }
        Value value = load(from, plus(start, r * from.rowStride), size, active);
        if (!from.words && !isa<FloatType>(getElementTypeOrSelf(value.getType())))
          value = arith::UIToFPOp::create(b, loc, VectorType::get({size}, sumType), value);
        values.push_back(value);
      }
      transposeSquare(values);
      Value target = indexOf(to, column, row);
      for (int64_t c = 0; c < count; ++c)
        store(to, plus(target, c * to.rowStride), values[c]);
    };
    Value full = least(roundUp(columnEnd, size), index(columnExtent - rest));
    each(columnBegin, full, size, [&](Value column) { square(column, size); });
    if (rest) // runs at most once
      each(index(columnExtent - rest), columnEnd, rest, [&](Value column) { square(column, rest); });
  });
}

void BlockEmitter::transposeOut(const MatrixView &from, const MatrixView &to, int64_t rowCount, Value rowLimit,
                                Value columnLimit) {
  int64_t size = width / 2, rest = rowLimit ? 0 : rowCount % size;
  each(index(0), columnLimit ? roundUp(columnLimit, size) : index(width), size, [&](Value column) {
    auto square = [&](Value row, int64_t count) {
      Value start = indexOf(from, row, column);
      llvm::SmallVector<Value> values;
      for (int64_t r = 0; r < size; ++r)
        values.push_back(r < count ? load(from, plus(start, r * from.rowStride), size) : zeros(size));
      transposeSquare(values);
      Value target = indexOf(to, column, row);
      Value whole = rowLimit ? minus(rowLimit, row) : count < size ? index(count) : Value();
      for (int64_t c = 0; c < size; ++c) {
        Value active = whole;
        if (columnLimit) {
          Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, plus(column, c), columnLimit);
          active = arith::SelectOp::create(b, loc, inside, whole ? whole : index(count), index(0));
        }
        store(to, plus(target, c * to.rowStride), values[c], active);
      }
    };
    each(index(0), rowLimit ? rowLimit : index(rowCount - rest), size, [&](Value row) { square(row, size); });
    if (rest)
      square(index(rowCount - rest), rest);
  });
}

void BlockEmitter::copyRows(const MatrixView &from, const MatrixView &to, Value rowEnd, int64_t columnCount) {
  each(index(0), rowEnd, 1, [&](Value row) {
    columns(columnCount, [&](Value column, int64_t lanes, Value active) {
      store(to, indexOf(to, row, column), load(from, indexOf(from, row, column), lanes, active), active);
    });
  });
}

void BlockEmitter::zeroRows(const MatrixView &to, Value rowEnd, int64_t columnCount) {
  each(index(0), rowEnd, 1, [&](Value row) {
    columns(columnCount, [&](Value column, int64_t lanes, Value active) {
      store(to, indexOf(to, row, column), zeros(lanes), active);
    });
  });
}

Value BlockEmitter::paired(Value low, Value high) {
  int64_t count = cast<VectorType>(low.getType()).getNumElements();
  llvm::SmallVector<int64_t> order;
  for (int64_t i = 0; i < count; ++i)
    order.append({i, count + i});
  Value both = vector::ShuffleOp::create(b, loc, low, high, order);
  return vector::BitCastOp::create(b, loc, VectorType::get({count}, b.getI32Type()), both);
}

llvm::SmallVector<Value>
BlockEmitter::eachPair(Value rowEnd, bool odd, ValueRange inits,
                       llvm::function_ref<llvm::SmallVector<Value>(Value, bool, ValueRange)> body) {
  Value even = odd ? minus(rowEnd, remainder(rowEnd, 2)) : rowEnd;
  llvm::SmallVector<Value> carried =
      loops.loop(index(0), even, 2, inits, [&](Value row, ValueRange values) { return body(row, false, values); });
  if (!odd)
    return carried;
  return loops.loop(even, rowEnd, 1, carried, // runs at most once
                    [&](Value row, ValueRange values) { return body(row, true, values); });
}

void BlockEmitter::pairRows(const MatrixView &from, const MatrixView &to, Value rowEnd, bool odd, int64_t wordCount) {
  eachPair(rowEnd, odd, {}, [&](Value row, bool alone, ValueRange) {
    columns(wordCount, [&](Value column, int64_t lanes, Value active) {
      auto halves = [&](Value words) {
        return vector::BitCastOp::create(b, loc, VectorType::get({2 * lanes}, b.getI16Type()), words).getResult();
      };
      Value here = indexOf(from, row, column);
      Value low = load(from, here, lanes, active);
      Value high = alone ? arith::ConstantOp::create(b, loc, b.getZeroAttr(low.getType())).getResult()
                         : load(from, plus(here, from.rowStride), lanes, active);
      store(to, indexOf(to, divide(row, 2), times(column, 2)), paired(halves(low), halves(high)),
            active ? times(active, 2) : active);
    });
    return llvm::SmallVector<Value>();
  });
}

} // namespace tcc::train

//===- AttentionBlock.cpp - blocks of queries and keys --------------------===//
#include "compiler/kernels/AttentionBlock.h"

using namespace mlir;

namespace tcc::train {

Lane AttentionCode::load(int64_t scratchOffset, Value index) {
  return lane(e.load(scratch(0, 1), e.plus(index, scratchOffset), e.lanes()));
}

void AttentionCode::store(int64_t scratchOffset, Value index, Value value) {
  e.store(scratch(0, 1), e.plus(index, scratchOffset), value);
}

Lane AttentionCode::lanesFrom(Value first) {
  llvm::SmallVector<int32_t> numbers(e.lanes());
  for (int64_t i = 0; i < e.lanes(); ++i)
    numbers[i] = int32_t(i);
  auto type = VectorType::get({e.lanes()}, b.getI32Type());
  Value lanes = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, llvm::ArrayRef<int32_t>(numbers)));
  Value bound = e.splat(arith::TruncIOp::create(b, loc, b.getI32Type(), first), e.lanes());
  return lane(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, lanes, bound));
}

void AttentionBlock::setHead(Value newBatch, Value newHead) {
  batch = newBatch;
  head = newHead;
  keyHead = keyHeadOf(head);
}

void AttentionBlock::setQueries(Value first) {
  queryFirst = first;
  queryEnd = e.least(e.plus(first, AttentionCode::kBlockQueries), e.index(s.queries));
}

void AttentionBlock::setKeys(Value first) {
  keyFirst = first;
  keyEnd = e.least(e.plus(first, c.layout.blockKeys), keysSeenBefore(queryEnd));
}

Value AttentionBlock::keysSeenBefore(Value end) {
  if (!s.causal)
    return e.index(s.keys);
  return e.most(e.least(e.plus(end, s.causalOffset), e.index(s.keys)), e.index(0));
}

MatrixView AttentionBlock::rowsOf(MatrixView::Place place, int number, Value ofBatch, Value ofHead, Value first) {
  bool reads = place == MatrixView::kOperand;
  const StridedLayout &layout = reads ? c.loops.layout(unsigned(number)) : c.loops.resultLayout(unsigned(number));
  const bool words = reads && c.layout.pairs;
  auto in = [&](int64_t elements) { return words ? elements / 2 : elements; };
  Value base = e.plus(e.times(ofBatch, in(layout.strides[0])), e.times(ofHead, in(layout.strides[1])));
  base = e.plus(e.plus(base, e.times(first, in(layout.strides[2]))), in(layout.offset));
  return {place, unsigned(number), base, in(layout.strides[2]), 1, words};
}

void AttentionBlock::eachVectorOfQueries(llvm::function_ref<void(QueryVector)> body) {
  e.each(queryFirst, queryEnd, e.lanes(), [&](Value first) {
    QueryVector v;
    v.first = first;
    v.offset = e.minus(first, queryFirst);
    if (s.queries % e.lanes())
      v.active = e.minus(e.index(s.queries), first);
    body(v);
  });
}

void AttentionBlock::eachVector(llvm::function_ref<void(const QueryVector &)> body) {
  eachVectorOfQueries([&](QueryVector v) {
    Value end = e.least(e.plus(v.first, e.lanes()), queryEnd), zero = e.index(0);
    Value seen = e.most(e.minus(e.least(keysSeenBefore(end), keyEnd), keyFirst), zero);
    v.rowEnd = e.least(e.roundUp(seen, e.rows()), e.minus(e.index(s.keys), keyFirst));
    v.freeEnd = v.rowEnd;
    if (s.causal) {
      v.freeEnd = e.least(e.most(e.minus(e.plus(v.first, s.causalOffset + 1), keyFirst), zero), v.rowEnd);
      Value half = e.most(e.minus(keysSeenBefore(e.plus(v.first, e.lanes() / 2)), keyFirst), zero);
      v.halfEnd = e.least(e.roundUp(half, e.rows()), v.rowEnd);
    }
    body(v);
  });
}

llvm::SmallVector<Value>
AttentionBlock::eachRow(const QueryVector &v, ValueRange inits,
                        llvm::function_ref<llvm::SmallVector<Value>(Value, bool, ValueRange)> body) {
  llvm::SmallVector<Value> carried = c.loops.loop(
      e.index(0), v.freeEnd, 1, inits, [&](Value row, ValueRange values) { return body(row, false, values); });
  if (!s.causal)
    return carried;
  return c.loops.loop(v.freeEnd, v.rowEnd, 1, carried,
                      [&](Value row, ValueRange values) { return body(row, true, values); });
}

} // namespace tcc::train

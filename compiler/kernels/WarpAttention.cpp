//===- WarpAttention.cpp - attention by a warp's matrix unit --------------===//
#include "compiler/kernels/WarpAttention.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <numeric>

using namespace mlir;

namespace tcc::train {

namespace {

constexpr int64_t kMostWords = 4, kWordElements = 2, kWordBytes = 4;

} // namespace

WarpAttention::WarpAttention(LoopBuilder &loops, const AttentionShape &shape)
    : loops(loops), b(loops.builder), loc(loops.loc), s(shape), numbers(loops, 1), formula(s, numbers),
      stage(loops, s.depth, s.width), warp(stage.warp), eighth(stage.eighth), fourth(stage.fourth),
      queryBase(loops, 0) {
  formula.exp2 = [this](Lane x) {
    auto name = b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f32");
    return lane(LLVM::CallIntrinsicOp::create(b, loc, b.getF32Type(), name, ValueRange{x}).getResult(0));
  };
  for (int64_t i = 0; s.dropout > 0 && i < 4; ++i) {
    Value stored = loops.load(unsigned(s.randomKey), loops.index(i));
    randomWords.push_back(lane(arith::ExtUIOp::create(b, loc, b.getI64Type(), stored)));
  }
}

void WarpAttention::keepResident(int64_t blocks) {
  Operation *parent = b.getInsertionBlock()->getParentOp();
  auto kernel = dyn_cast<LLVM::LLVMFuncOp>(parent);
  if (!kernel)
    kernel = parent->getParentOfType<LLVM::LLVMFuncOp>();
  llvm::SmallVector<Attribute> attributes(kernel.getPassthroughAttr().getValue());
  attributes.push_back(b.getStrArrayAttr({"nvvm.minctasm", std::to_string(blocks)}));
  kernel.setPassthroughAttr(b.getArrayAttr(attributes));
}

void WarpAttention::setHead(Value newBatch, Value newHead) {
  batch = newBatch;
  head = newHead;
  keyHead = s.groupSize() == 1 ? newHead : (index(newHead) / s.groupSize()).value;
  queryBase = (index(batch) * s.heads + head) * s.queries;
}

WarpAttention::Rows WarpAttention::rowsOf(int number, const StridedLayout &layout, Value ofBatch, Value ofHead,
                                          int64_t features) const {
  Index base = Index(loops, ofBatch) * layout.strides[0] + Index(loops, ofHead) * layout.strides[1] + layout.offset;
  int64_t common = kMostWords * kWordElements;
  for (int64_t distance : {layout.strides[0], layout.strides[1], layout.strides[2], layout.offset})
    common = std::gcd(common, distance);
  return {unsigned(number), base, layout.strides[2], features, common * kWordBytes / kWordElements};
}

WarpAttention::Rows WarpAttention::operandRows(int number, Value ofBatch, Value ofHead, int64_t features) const {
  return rowsOf(number, loops.layout(unsigned(number)), ofBatch, ofHead, features);
}

WarpAttention::Rows WarpAttention::resultRows(int number, Value ofBatch, Value ofHead, int64_t features) const {
  return rowsOf(number, loops.resultLayout(unsigned(number)), ofBatch, ofHead, features);
}

WarpAttention::Values WarpAttention::featuresOf(const Rows &rows, Value row) {
  Index start = Index(loops, rows.base) + index(row) * rows.stride;
  Values words;
  for (FeaturePart part : featurePartsOf(rows.features, kFeatureThreads))
    for (int64_t feature = 0; feature < part.perThread; feature += kWordElements) {
      Value at = start + fourth * part.perThread + (part.first + feature);
      llvm::append_range(words, loops.loadRow(rows.number, at, 1, std::min(rows.alignment, kWordBytes)));
    }
  return words;
}

WarpAttention::Row WarpAttention::existing(Index row, int64_t count, int64_t unit) {
  if (count % unit == 0)
    return {row, {}};
  return {row.atMost(count - 1), row.isBelow(loops.index(count))};
}

WarpAttention::Values WarpAttention::multiplyFeatures(const Left &left, ValueRange right) {
  Values sums(kTileSums, zeroSum());
  for (size_t i = 0; i < right.size(); i += 2)
    sums = loops.multiplyTile(sums, {left.lower[i], left.upper[i], left.lower[i + 1], left.upper[i + 1]},
                              {right[i], right[i + 1]});
  return sums;
}

void WarpAttention::addRows(Values &sums, ValueRange left, ValueRange right) {
  for (size_t tile = 0; 2 * tile < right.size(); ++tile) {
    auto begin = sums.begin() + std::ptrdiff_t(tile * kTileSums);
    Values added = loops.multiplyTile(Values(begin, begin + kTileSums), left, {right[2 * tile], right[2 * tile + 1]});
    llvm::copy(added, begin);
  }
}

WarpAttention::Values WarpAttention::asLeft(llvm::ArrayRef<Lane> tiles) {
  Values words;
  for (size_t i = 0; i < tiles.size(); i += 2)
    words.push_back(loops.roundToWord(tiles[i], tiles[i + 1]));
  return words;
}

void WarpAttention::storeFeatures(const Rows &rows, Value row, int64_t half, ValueRange sums) {
  Index start = Index(loops, rows.base) + index(row) * rows.stride;
  size_t tile = 0;
  for (FeaturePart part : featurePartsOf(rows.features, kColumnThreads)) {
    // Column c of a part's tile j is feature perThread·c + j: this thread's two columns are neighbours in memory.
    Values elements(size_t(2 * part.perThread));
    for (int64_t j = 0; j < part.perThread; ++j, ++tile)
      for (int64_t column = 0; column < 2; ++column)
        elements[size_t(column * part.perThread + j)] = sums[tile * kTileSums + size_t(2 * half + column)];
    Values words;
    for (size_t i = 0; i < elements.size(); i += 2)
      words.push_back(loops.roundToWord(elements[i], elements[i + 1]));
    Index first = start + fourth * (2 * part.perThread) + part.first;
    int64_t count = std::min(kMostWords, int64_t(words.size()));
    for (int64_t i = 0; i < int64_t(words.size()); i += count)
      loops.storeRow(rows.number, first + i * kWordElements, ValueRange(words).slice(size_t(i), size_t(count)),
                     std::min(rows.alignment, count * kWordBytes));
  }
}

Value WarpAttention::termAt(llvm::ArrayRef<int64_t> shape, Value query, Value key) {
  Index at(loops, 0);
  int64_t stride = 1;
  Value coordinates[] = {batch, head, query, key};
  for (size_t dim = shape.size(); dim-- > 0; stride *= shape[dim])
    if (shape[dim] > 1)
      at = at + index(coordinates[dim]) * stride;
  return at;
}

Lane WarpAttention::score(Lane product, Value query, Value key, std::optional<Lane> *slope) {
  auto bias = [&] { return lane(loops.load(unsigned(s.bias), termAt(s.biasShape, query, key))); };
  auto shown = [&] { return lane(loops.load(unsigned(s.mask), termAt(s.maskShape, query, key))); };
  return formula.score(product, bias, shown, slope);
}

Lane WarpAttention::kept(Value query, Value key) {
  return formula.kept(lane((queryBase + query) * s.keys + key), randomWords);
}

Lane WarpAttention::sees(Value query, Value key) {
  return lane(compare(arith::CmpIPredicate::sle, key, index(query) + s.causalOffset));
}

Value WarpAttention::keysSeenBefore(Value end) {
  if (!s.causal)
    return loops.index(s.keys);
  return most(least(index(end) + s.causalOffset, loops.index(s.keys)), loops.index(0));
}

} // namespace tcc::train

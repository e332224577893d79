//===- WarpAttention.cpp - attention by a warp's matrix unit --------------===//
#include "compiler/kernels/WarpAttention.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <numeric>

using namespace mlir;

namespace tcc::train {

namespace {

constexpr int64_t kMostWords = 4, kWordBytes = 4;

} // namespace

WarpAttention::WarpAttention(LoopBuilder &loops, const AttentionShape &shape, TileNumbers tiles)
    : loops(loops), b(loops.builder), loc(loops.loc), s(shape), form{tiles}, numbers(loops, 1), formula(s, numbers),
      stage(loops, form, s.depth, s.width), warp(stage.warp), eighth(stage.eighth), fourth(stage.fourth),
      queryBase(loops, 0) {
  if (form.numbers != TileNumbers::F32) // products of f32 are more precise than the instruction
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
  int64_t common = kMostWords * form.wordElements();
  for (int64_t distance : {layout.strides[0], layout.strides[1], layout.strides[2], layout.offset})
    common = std::gcd(common, distance);
  return {unsigned(number), base, layout.strides[2], features, common * form.elementBytes()};
}

WarpAttention::Rows WarpAttention::operandRows(int number, Value ofBatch, Value ofHead, int64_t features) const {
  return rowsOf(number, loops.layout(unsigned(number)), ofBatch, ofHead, features);
}

WarpAttention::Rows WarpAttention::resultRows(int number, Value ofBatch, Value ofHead, int64_t features) const {
  return rowsOf(number, loops.resultLayout(unsigned(number)), ofBatch, ofHead, features);
}

WarpAttention::Factors WarpAttention::Factors::slice(size_t first, size_t count) const {
  Factors some{Values(ValueRange(words).slice(first, count)), {}};
  if (!rests.empty())
    some.rests = Values(ValueRange(rests).slice(first, count));
  return some;
}

void WarpAttention::Factors::push_back(const Factors &other, size_t i) {
  words.push_back(other.words[i]);
  if (!other.rests.empty())
    rests.push_back(other.rests[i]);
}

WarpAttention::Factors WarpAttention::factorsOf(ValueRange words) {
  if (form.isNarrow())
    return {Values(words), {}};
  Factors factors;
  for (Value word : words) {
    Lane x = lane(arith::BitcastOp::create(b, loc, b.getF32Type(), word));
    Value rounded = loops.roundToTf32(x);
    factors.words.push_back(rounded);
    if (form.numbers != TileNumbers::F32)
      continue;
    // A number that is not finite or rounds to ∞ gets the rest 0, which would be NaN otherwise.
    Lane whole = lane(arith::BitcastOp::create(b, loc, b.getF32Type(), rounded)), rest = x - whole;
    Lane finite = less(rest.abs(), HUGE_VAL);
    factors.rests.push_back(loops.roundToTf32(finite.select(rest, number(0))));
  }
  return factors;
}

WarpAttention::Factors WarpAttention::featuresOf(const Rows &rows, Value row) {
  Index start = Index(loops, rows.base) + index(row) * rows.stride;
  Values words;
  for (FeaturePart part : featurePartsOf(form, form.padded(rows.features), kFeatureThreads))
    for (int64_t feature = 0; feature < part.perThread; feature += form.wordElements()) {
      Index first = fourth * part.perThread + (part.first + feature);
      auto load = [&](Value at) {
        return loops.loadRow(rows.number, start + at, 1, std::min(rows.alignment, kWordBytes)).front();
      };
      if (part.first + part.perThread * kFeatureThreads <= rows.features) {
        words.push_back(load(first));
        continue;
      }
      Value none = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
      words.push_back(arith::SelectOp::create(b, loc, first.isBelow(loops.index(rows.features)),
                                              load(first.atMost(rows.features - form.wordElements())), none));
    }
  return factorsOf(words);
}

WarpAttention::Row WarpAttention::existing(Index row, int64_t count, int64_t unit) {
  if (count % unit == 0)
    return {row, {}};
  return {row.atMost(count - 1), row.isBelow(loops.index(count))};
}

WarpAttention::Values WarpAttention::addTile(ValueRange sums, const Factors &left, const Factors &right) {
  const TileNumbers tiles = form.isNarrow() ? form.numbers : TileNumbers::TF32;
  Values all(sums);
  if (form.numbers == TileNumbers::F32) { // smallest terms first
    all = loops.multiplyTile(tiles, all, left.rests, right.words);
    all = loops.multiplyTile(tiles, all, left.words, right.rests);
  }
  return loops.multiplyTile(tiles, all, left.words, right.words);
}

WarpAttention::Values WarpAttention::multiplyFeatures(const Left &left, const Factors &right) {
  Values sums(kTileSums, zeroSum());
  for (size_t i = 0; i < right.size(); i += 2) {
    Factors own;
    for (size_t word : {i, i + 1})
      for (const Factors *row : {&left.lower, &left.upper})
        own.push_back(*row, word);
    sums = addTile(sums, own, right.slice(i, 2));
  }
  return sums;
}

void WarpAttention::addRows(Values &sums, const Factors &left, const Factors &right) {
  const size_t steps = left.size() / 4; // of the group's rows
  for (size_t tile = 0; tile * 2 * steps < right.size(); ++tile) {
    auto begin = sums.begin() + std::ptrdiff_t(tile * kTileSums);
    Values added(begin, begin + kTileSums);
    for (size_t step = 0; step < steps; ++step)
      added = addTile(added, left.slice(4 * step, 4), right.slice(2 * (tile * steps + step), 2));
    llvm::copy(added, begin);
  }
}

WarpAttention::Factors WarpAttention::asLeft(llvm::ArrayRef<Lane> tiles) {
  Values words;
  if (form.isNarrow()) {
    for (size_t i = 0; i < tiles.size(); i += 2)
      words.push_back(loops.roundToWord(form.numbers, tiles[i], tiles[i + 1]));
    return {words, {}};
  }
  // A tile is a step: the first column of rows g and g + 8, then the second one.
  for (size_t tile = 0; tile < tiles.size(); tile += size_t(kTileSums))
    for (size_t place : {0, 2, 1, 3})
      words.push_back(arith::BitcastOp::create(b, loc, b.getI32Type(), tiles[tile + place]));
  return factorsOf(words);
}

void WarpAttention::storeFeatures(const Rows &rows, Value row, int64_t half, ValueRange sums,
                                  const FeatureRange &range) {
  Index start = Index(loops, rows.base) + index(row) * rows.stride;
  size_t tile = 0;
  for (FeaturePart part : featurePartsOf(form, form.padded(rows.features), kColumnThreads)) {
    if (!range.contains(part))
      continue;
    // Column c of a part's tile j is feature perThread·c + j: this thread's two columns are neighbours in memory.
    Values elements(size_t(2 * part.perThread));
    for (int64_t j = 0; j < part.perThread; ++j, ++tile)
      for (int64_t column = 0; column < 2; ++column)
        elements[size_t(column * part.perThread + j)] = sums[tile * kTileSums + size_t(2 * half + column)];
    Values words;
    for (size_t i = 0; i < elements.size(); i += size_t(form.wordElements()))
      words.push_back(form.isNarrow() ? loops.roundToWord(form.numbers, elements[i], elements[i + 1])
                                      : arith::BitcastOp::create(b, loc, b.getI32Type(), elements[i]).getResult());
    Index first = fourth * (2 * part.perThread) + part.first;
    const bool isWhole = part.first + part.perThread * kColumnThreads <= rows.features;
    int64_t count = std::min(kMostWords, int64_t(words.size()));
    while (!isWhole && rows.features % (count * form.wordElements())) // no access crosses the last feature
      count /= 2;
    for (int64_t i = 0; i < int64_t(words.size()); i += count) {
      Index feature = first + i * form.wordElements();
      auto store = [&]() -> Values {
        loops.storeRow(rows.number, start + feature, ValueRange(words).slice(size_t(i), size_t(count)),
                       std::min(rows.alignment, count * kWordBytes));
        return {};
      };
      if (isWhole)
        store();
      else
        loops.when(feature.isBelow(loops.index(rows.features)), store, {});
    }
  }
}

Lane WarpAttention::ofPartner(Lane value, int64_t distance) {
  Value mine = arith::TruncIOp::create(b, loc, b.getI32Type(), loops.thread());
  Value bits = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(int32_t(distance)));
  return lane(loops.ofThread(value, arith::XOrIOp::create(b, loc, mine, bits)));
}

Value WarpAttention::anyHas(Value condition) {
  Value none = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
  return compare(arith::CmpIPredicate::ne, loops.ballot(condition), none);
}

double WarpAttention::weightFactor() const {
  constexpr int kMost = 15; // 2^15 leaves room for rounding below 65504
  return isShort() && s.keptScale() > 0 ? std::ldexp(1.0, kMost - int(std::ceil(std::log2(s.keptScale())))) : 1.0;
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
  auto keys = [&] { return shownKeys.end ? shownKeys.end : loops.index(s.keys); };
  if (!s.causal)
    return keys();
  return most(least(index(end) + s.causalOffset, keys()), loops.index(0));
}

Value WarpAttention::firstStage(Value first) {
  if (!shownKeys.first)
    return loops.index(0);
  Value stageFirst = index(shownKeys.first) / stage.rows() * stage.rows();
  // Rows that see nothing but padding have weights there if a finite number excludes it.
  return s.causal ? arith::SelectOp::create(b, loc, seesShown(first), stageFirst, loops.index(0)) : stageFirst;
}

WarpAttention::ShownKeys WarpAttention::findShown(Value ofBatch, int64_t unit) {
  const PaddingRule rule = paddingRuleOf(s);
  if (!rule)
    return {};
  constexpr int64_t kMostTogether = 4; // loads in flight
  const int64_t biasBytes = rule.byBias ? s.biasType.getIntOrFloatBitWidth() / 8 : 1;
  int64_t count = kMostWords * kWordBytes / biasBytes; // keys that a thread reads at once
  if (s.keys % count)
    count = 1;
  auto rowOf = [&](llvm::ArrayRef<int64_t> shape, Index key) {
    return shape[0] > 1 ? index(ofBatch) * s.keys + key : key;
  };
  auto wordsOf = [&](int operand, llvm::ArrayRef<int64_t> shape, Index key, int64_t bytes) {
    return loops.loadRow(unsigned(operand), rowOf(shape, key), count * bytes / kWordBytes, count * bytes);
  };
  // Element i of a row of words, as the upper bits of a word.
  auto elementOf = [&](const Values &words, int64_t i, int64_t bytes) {
    const int64_t inWord = kWordBytes / bytes, above = (inWord - 1 - i % inWord) * bytes * 8;
    Lane word = lane(words[size_t(i / inWord)]);
    return above ? word.shiftLeft(above) : word;
  };
  auto isAbove = [&](Lane bias) { return bias.compare(arith::CmpFPredicate::UGT, number(rule.lowest)); }; // or NaN
  // i1: one of the keys that a thread reads is shown.
  auto isShown = [&](Index first) {
    Values maskWords, biasWords;
    if (rule.byMask)
      maskWords = count > 1 ? wordsOf(s.mask, s.maskShape, first, 1)
                            : Values{loops.load(unsigned(s.mask), rowOf(s.maskShape, first))};
    if (rule.byBias)
      biasWords = count > 1 ? wordsOf(s.bias, s.biasShape, first, biasBytes)
                            : Values{loops.load(unsigned(s.bias), rowOf(s.biasShape, first))};
    std::optional<Lane> any;
    for (int64_t i = 0; i < count; ++i) {
      std::optional<Lane> one;
      if (rule.byMask && count == 1)
        one = lane(maskWords[0]);
      else if (rule.byMask)
        one = isFalse(less(elementOf(maskWords, i, 1).shiftRightUnsigned(24), 1));
      if (rule.byBias) {
        Lane bias = lane(biasWords[0]);
        if (count > 1) {
          bias = elementOf(biasWords, i, biasBytes);
          if (s.biasType.isF16()) {
            Value half = arith::TruncIOp::create(b, loc, b.getI16Type(), bias.shiftRightUnsigned(16));
            half = arith::BitcastOp::create(b, loc, b.getF16Type(), half);
            bias = lane(arith::ExtFOp::create(b, loc, b.getF32Type(), half));
          } else if (s.biasType.isBF16()) { // the upper half of an f32
            bias = (bias & bias.likeInt(int64_t(0xffff0000))).asFloat();
          } else {
            bias = bias.asFloat();
          }
        }
        one = one ? *one & isAbove(bias) : isAbove(bias);
      }
      any = any ? *any | *one : *one;
    }
    return *any;
  };
  auto asWord = [&](Value i64) { return arith::TruncIOp::create(b, loc, b.getI32Type(), i64).getResult(); };
  auto word = [&](int64_t value) { return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(int32_t(value))); };
  const int64_t step = count * kGroupThreads,
                together = std::min<int64_t>(kMostTogether, llvm::divideCeil(s.keys, step));
  Index own = index(loops.thread()) % kGroupThreads * count;
  Values found = loops.loop(loops.index(0), loops.index(s.keys), step * together, {word(s.keys), word(0)},
                            [&](Value from, ValueRange before) {
                              Value first = before[0], end = before[1];
                              for (int64_t i = 0; i < together; ++i) {
                                // Threads beyond the last key read the last ones again.
                                Index key = (index(from) + own + i * step).atMost(s.keys - count);
                                Lane there = isShown(key);
                                first = least(first, there.select(lane(asWord(key)), lane(word(s.keys))));
                                end = most(end, there.select(lane(asWord(key + count)), lane(word(0))));
                              }
                              return Values{first, end};
                            });
  Value first = found[0], end = found[1];
  for (int64_t distance = 1; distance < kGroupThreads; distance *= 2) {
    first = least(first, ofPartner(lane(first), distance));
    end = most(end, ofPartner(lane(end), distance));
  }
  // If none is shown, weights are as the formula says.
  Value none = compare(arith::CmpIPredicate::eq, end, word(0));
  first = arith::SelectOp::create(b, loc, none, word(0), first);
  end = arith::SelectOp::create(b, loc, none, word(s.keys), end);
  auto asIndex = [&](Value i32) { return index(arith::ExtUIOp::create(b, loc, b.getI64Type(), i32).getResult()); };
  return {asIndex(first) / kGroup * kGroup, roundUp(asIndex(end), unit).atMost(s.keys)};
}

} // namespace tcc::train

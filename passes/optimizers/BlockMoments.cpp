//===- BlockMoments.cpp - optimizer state in 8 bits ------------------------===//
//
// The nearest of 256 numbers is found without a search. The upper bits of a float, its exponent and the first bits of
// its mantissa, number the intervals of a grid that is fine enough for each interval to hold one threshold at most. A
// table has for each interval that threshold and the code below it, so that a code takes two look-ups and a comparison.
//
//===----------------------------------------------------------------------===//
#include "passes/optimizers/BlockMoments.h"

#include "passes/Common.h"

#include <bit>
#include <limits>
#include <tuple>

using namespace mlir;

namespace tcc::train {

namespace {

using plan::DynamicKind;
using plan::kDynamicBlock;

constexpr uint32_t kMagnitudeBits = 0x7fffffff;

/// The intervals of one kind of code, and where its parts of the table begin.
struct Intervals {
  unsigned shift = 0; ///< bits of a float below its interval's number
  uint32_t first = 0; ///< number of the last interval below all thresholds, which begins at 0 here
  int64_t count = 0;  ///< on each side of 0
  int64_t numbers = 0, thresholds = 0, codes = 0;
};

/// Appends the intervals on one side of 0; false if one of them holds two thresholds.
bool addIntervals(const Intervals &intervals, DynamicKind kind, bool negative, std::vector<float> &thresholds,
                  std::vector<float> &codes) {
  constexpr float most = std::numeric_limits<float>::max();
  for (int64_t i = 0; i < intervals.count; ++i) {
    const uint32_t number = intervals.first + uint32_t(i);
    float low = i == 0 ? 0 : std::bit_cast<float>(number << intervals.shift);
    float high = i + 1 == intervals.count ? most : std::bit_cast<float>(((number + 1) << intervals.shift) - 1);
    if (negative)
      std::tie(low, high) = std::pair(-high, -low);
    const uint8_t below = plan::dynamicCode(kind, low), above = plan::dynamicCode(kind, high);
    if (above > below + 1)
      return false;
    thresholds.push_back(above > below ? plan::dynamicThresholds(kind)[below] : most);
    codes.push_back(below);
  }
  return true;
}

/// For both kinds, one after the other: numbers by code; the threshold in each interval, those of negative numbers
/// last; likewise the codes below. One tensor, since each is an operand of the kernel.
struct Table {
  Intervals intervals[2];
  std::vector<float> data;

  Table() {
    for (DynamicKind kind : {DynamicKind::Signed, DynamicKind::Unsigned})
      add(kind);
  }
  const Intervals &of(DynamicKind kind) const { return intervals[size_t(kind)]; }

private:
  void add(DynamicKind kind) {
    float smallest = 1;
    for (float threshold : plan::dynamicThresholds(kind))
      smallest = std::min(smallest, std::abs(threshold));
    Intervals &made = intervals[size_t(kind)];
    std::vector<float> thresholds, codes;
    made.shift = 23;
    do {
      --made.shift;
      auto numberOf = [&](float number) { return std::bit_cast<uint32_t>(number) >> made.shift; };
      made.first = numberOf(smallest) - 1;
      made.count = int64_t(numberOf(1)) - made.first + 1;
      thresholds.clear();
      codes.clear();
    } while (!addIntervals(made, kind, false, thresholds, codes) ||
             (kind == DynamicKind::Signed && !addIntervals(made, kind, true, thresholds, codes)));
    auto append = [&](const auto &part) {
      data.insert(data.end(), part.begin(), part.end());
      return int64_t(data.size() - part.size());
    };
    made.numbers = append(plan::dynamicNumbers(kind));
    made.thresholds = append(thresholds);
    made.codes = append(codes);
  }
};

const Table &table() {
  static const Table made;
  return made;
}

Expr constantOf(const Expr &like, int64_t value) {
  return like.with(splatInt(*like.builder, like.loc, like.value.getType(), value));
}

/// The table's elements at `begin` + `indices`.
Expr lookUp(int64_t begin, const Expr &indices) {
  OpBuilder &builder = *indices.builder;
  const std::vector<float> &data = table().data;
  auto type = RankedTensorType::get({int64_t(data.size())}, builder.getF32Type());
  Value all = ConstantOp::create(builder, indices.loc, DenseElementsAttr::get(type, llvm::ArrayRef(data)));
  auto result = RankedTensorType::get(shapeOf(indices), builder.getF32Type());
  const Expr at = begin ? indices + constantOf(indices, begin) : indices;
  return indices.with(GatherOp::create(builder, indices.loc, result, all, at, 0));
}

/// The number of the interval that holds each number.
Expr intervalOf(const Expr &numbers, DynamicKind kind) {
  const Intervals &intervals = table().of(kind);
  OpBuilder &builder = *numbers.builder;
  auto type = RankedTensorType::get(shapeOf(numbers), builder.getIntegerType(32));
  auto binary = [&]<typename Op>(const Expr &x, int64_t y) {
    return x.with(Op::create(builder, x.loc, x, constantOf(x, y)));
  };
  Expr bits = numbers.with(BitCastOp::create(builder, numbers.loc, type, numbers));
  Expr magnitudes = binary.template operator()<AndOp>(bits, kMagnitudeBits);
  Expr interval = binary.template operator()<ShiftRightOp>(magnitudes, intervals.shift);
  interval = binary.template operator()<MaxOp>(interval, intervals.first);
  interval = interval - constantOf(interval, intervals.first);
  interval = binary.template operator()<MinOp>(interval, intervals.count - 1);
  if (kind == DynamicKind::Unsigned)
    return interval;
  return numbers.compare(CompareKind::lt, 0).select(interval + constantOf(interval, intervals.count), interval);
}

} // namespace

int64_t blocksOf(int64_t elements) { return (elements + kDynamicBlock - 1) / kDynamicBlock; }

Expr inBlocks(const Expr &value) {
  const int64_t elements = tensorTypeOf(value).getNumElements(), blocks = blocksOf(elements);
  Expr all = value;
  if (elements != blocks * kDynamicBlock) {
    auto type = RankedTensorType::get({blocks * kDynamicBlock}, elementTypeOf(value));
    all = all.with(PadOp::create(*value.builder, value.loc, type, value.reshape({elements}), llvm::ArrayRef<int64_t>{0},
                                 llvm::ArrayRef<int64_t>{1}, llvm::APFloat(0.0)));
  }
  return all.reshape({blocks, kDynamicBlock});
}

Expr outOfBlocks(const Expr &blocks, llvm::ArrayRef<int64_t> shape) {
  const int64_t elements = ShapedType::getNumElements(shape), all = tensorTypeOf(blocks).getNumElements();
  if (elements == all)
    return blocks.reshape(shape);
  auto type = RankedTensorType::get({elements}, elementTypeOf(blocks));
  return blocks
      .with(SliceOp::create(*blocks.builder, blocks.loc, type, blocks.reshape({all}), llvm::ArrayRef<int64_t>{0},
                            llvm::ArrayRef<int64_t>{1}))
      .reshape(shape);
}

Expr decodeMoment(const BlockedMoment &moment, DynamicKind kind) {
  const int64_t blocks = tensorTypeOf(moment.magnitudes).getNumElements();
  Expr codes = moment.codes.reshape({blocks, kDynamicBlock});
  Expr numbers = lookUp(table().of(kind).numbers, codes.cast(codes.builder->getIntegerType(32)));
  return numbers * moment.magnitudes.reshape({blocks, 1});
}

BlockedMoment encodeMoment(const Expr &values, DynamicKind kind) {
  const Intervals &intervals = table().of(kind);
  OpBuilder &builder = *values.builder;
  Expr magnitude = values.apply<AbsOp>().max({1});
  Expr divisor =
      magnitude.with(MaxOp::create(builder, values.loc, magnitude, magnitude.like(plan::kLeastDynamicMagnitude)));
  Expr numbers = values * (1.0 / divisor);
  Expr interval = intervalOf(numbers, kind);
  Expr bound = lookUp(intervals.thresholds, interval);
  Expr below = lookUp(intervals.codes, interval);
  Expr code = below + numbers.compare(CompareKind::gt, bound).select(below.like(1), below.like(0));
  return {code.cast(builder.getIntegerType(8, /*isSigned=*/false)), magnitude};
}

} // namespace tcc::train

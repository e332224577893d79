//===- WarpAttention.h - attention by a warp's matrix unit ------*- C++ -*-===//
//
// The common part of attention kernels for warps. A warp owns 16 (or 32) rows of a head, queries or keys, and loops
// over the others in groups of 16, which the warps of its block read together (WarpStage.h). All products are of tiles
// with sums in f32 (PTX ISA, mma.m16n8k16 of bf16 and f16, mma.m16n8k8 of TF32). The assignment of rows, columns and
// steps of a tile to queries, keys and features is free, and is chosen so that
//   - each thread reads neighbouring features, up to 16 bytes at a time;
//   - the scores of one product are already in the registers of the next product's left operand.
// A thread is (g, t) = (number / 4, number % 4). Of a group's 16 rows, the right operand's column g of tile j is row
// 4·(g/2) + 2·j + g%2; so this thread's scores, columns 2t and 2t + 1 of two tiles, are those of rows 4t to 4t + 3, in
// order. The layout follows Dao, "FlashAttention-2" (arXiv:2307.08691), in that a warp shares its rows with no other.
//
// A number of f32 is the sum of two of TF32, with relative error 2⁻²². Three products of these, without the product of
// the two smaller parts, are within 3·2⁻²² of the product: as accurate as 12 roundings in f32 (the method of CUTLASS's
// OpMultiplyAddFastF32).
//
// f16 ranges from 2⁻²⁴ to 65504, but weights and score gradients have a larger range. So weights, whose maximum is
// known, are multiplied by a power of two that brings the maximum to 2¹⁵, and score gradients by one that follows the
// largest of their row so far, as the online softmax follows its largest score. Sums are divided by it in f32.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_WARPATTENTION_H
#define TCC_KERNELS_WARPATTENTION_H

#include "compiler/dialect/Attention.h"
#include "compiler/kernels/BlockProduct.h"
#include "compiler/kernels/ScoreFormula.h"
#include "compiler/kernels/WarpStage.h"

namespace tcc::train {

class WarpAttention {
protected:
  static constexpr int64_t kGroup = 16;     ///< rows that a step of a product sums over, or makes scores of
  static constexpr int64_t kThreadRows = 4; ///< of a group
  static constexpr int64_t kTileSums = 4;   ///< of a thread: two adjacent columns of row g, two of row g + 8
  using Values = llvm::SmallVector<mlir::Value>;

  WarpAttention(LoopBuilder &loops, const AttentionShape &shape, TileNumbers numbers);

  /// Makes the card's compiler limit registers so that this many blocks are resident on a multiprocessor (PTX ISA,
  /// .minnctapersm).
  void keepResident(int64_t blocks);

  using Rows = WarpRows;
  Rows operandRows(int number, mlir::Value batch, mlir::Value head, int64_t features) const;
  Rows resultRows(int number, mlir::Value batch, mlir::Value head, int64_t features) const;

  /// Words of one side of a product.
  struct Factors {
    Values words;
    Values rests; ///< of f32: the rounding error of each word; else empty
    size_t size() const { return words.size(); }
    Factors slice(size_t first, size_t count) const;
    void push_back(const Factors &other, size_t i);
  };
  /// Words from memory as factors.
  Factors factorsOf(mlir::ValueRange words);

  /// This thread's words of a row, from global memory, as one side of products over features: two for each step.
  /// Read word by word: a product needs four consecutive registers with words of two rows, so words loaded by fours
  /// would have to be moved first.
  Factors featuresOf(const Rows &rows, mlir::Value row);
  /// Words of rows g and g + 8, as the left side of products.
  struct Left {
    Factors lower, upper;
  };
  /// This thread's sums of the product of two tiles, added to `sums`.
  Values addTile(mlir::ValueRange sums, const Factors &left, const Factors &right);
  /// The sums over features of `left` and this thread's column of the right side.
  Values multiplyFeatures(const Left &left, const Factors &right);
  Factors stageFeatures(size_t side, mlir::Value buffer, mlir::Value row, int64_t j) {
    return factorsOf(stage.featuresOf(side, buffer, row, j));
  }
  Factors stageRows(size_t side, mlir::Value buffer, mlir::Value row, const FeatureRange &range) {
    return factorsOf(stage.acrossRows(side, buffer, row, range));
  }

  /// A row, clamped to the last one, and an i1 that the row exists (null: always).
  struct Row {
    mlir::Value row, inside;
  };
  /// A row of `count`, of which `unit` are processed together: always exists if `count` is a multiple of `unit`.
  Row existing(Index row, int64_t count, int64_t unit);
  /// sums += left·right; the sums are kTileSums for each 8 features.
  void addRows(Values &sums, const Factors &left, const Factors &right);
  /// A group's 8 numbers of two tiles, as the left side of products over the group's rows.
  Factors asLeft(llvm::ArrayRef<Lane> tiles);
  /// Stores the sums of row g, or g + 8 (`half` 1), for the features of the range.
  void storeFeatures(const Rows &rows, mlir::Value row, int64_t half, mlir::ValueRange sums, const FeatureRange &range);
  /// The value of another thread of the same row: number xor `distance` (1 or 2).
  Lane ofPartner(Lane value, int64_t distance);
  /// i1: the condition holds in some thread of the warp.
  mlir::Value anyHas(mlir::Value condition);

  static int64_t sumsOf(const FeatureRange &range) { return (range.end - range.first) / 8 * kTileSums; }
  FeatureRange allOf(int64_t features) const { return {0, form.padded(features)}; }
  /// Tiles of rows that a warp owns: two, which halve its reads, if they fit into its registers.
  static int64_t ownTiles(const AttentionShape &s, const TileForm &form) {
    constexpr int64_t kMostBytes = 128;
    return std::max(s.depth, s.width) * form.elementBytes() * form.planes() <= kMostBytes ? 2 : 1;
  }

  // Scaling for the range of f16.
  bool isShort() const { return form.numbers == TileNumbers::F16; }
  /// The factor of weights before they are rounded: 1 except for f16.
  double weightFactor() const;

  /// The element of a tensor with one f32 for each row of scores: [batch, heads, queries, 1].
  Lane rowNumber(int operand, mlir::Value index) { return lane(loops.load(unsigned(operand), index)); }

  /// The score of a query and a key that exist.
  Lane score(Lane product, mlir::Value query, mlir::Value key, std::optional<Lane> *slope = nullptr);
  /// i1: dropout keeps the weight.
  Lane kept(mlir::Value query, mlir::Value key);
  /// i1: the causal mask shows the key to the query.
  Lane sees(mlir::Value query, mlir::Value key);
  /// The keys of a sample that are not only padding: all groups before and behind them are. Null: all keys.
  struct ShownKeys {
    mlir::Value first; ///< a multiple of kGroup
    mlir::Value end;   ///< a multiple of the unit of findShown(), or the number of keys
  };
  /// Reads a bias and mask that can show padding (paddingRuleOf). All keys if none is shown.
  ShownKeys findShown(mlir::Value ofBatch, int64_t unit);
  /// i1: the query sees the first of the shown keys, by the causal mask.
  mlir::Value seesShown(mlir::Value query) {
    return compare(mlir::arith::CmpIPredicate::sge, index(query) + s.causalOffset,
                   index(shownKeys.first) + (kGroup - 1));
  }
  /// The first stage of keys for queries from `first` on: those before hold only padding that the queries do not need.
  mlir::Value firstStage(mlir::Value first);
  /// Keys that some query before `end` sees, and that are not only padding.
  mlir::Value keysSeenBefore(mlir::Value end);
  void setHead(mlir::Value newBatch, mlir::Value newHead);

  Lane lane(mlir::Value value) { return Lane(numbers, value); }
  Lane number(double value) const { return formula.number(value); }
  Index index(mlir::Value value) { return Index(loops, value); }
  Index index(int64_t value) { return Index(loops, value); }
  mlir::Value compare(mlir::arith::CmpIPredicate how, mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, loc, how, x, y);
  }
  mlir::Value least(mlir::Value x, mlir::Value y) { return mlir::arith::MinSIOp::create(b, loc, x, y); }
  mlir::Value most(mlir::Value x, mlir::Value y) { return mlir::arith::MaxSIOp::create(b, loc, x, y); }
  /// The larger of two numbers; if one is NaN, the other one.
  Lane larger(Lane x, Lane y) { return lane(mlir::arith::MaxNumFOp::create(b, loc, x, y)); }
  mlir::Value zeroSum() { return number(0); }
  /// `then` if `value` is below `bound`, else `otherwise`.
  mlir::Value whereBelow(mlir::Value value, int64_t bound, mlir::Value then, mlir::Value otherwise) {
    return mlir::arith::SelectOp::create(b, loc, index(value).isBelow(loops.index(bound)), then, otherwise);
  }
  Index roundUp(Index value, int64_t unit) { return (value + (unit - 1)) / unit * unit; }
  /// The i-th of this thread's four rows of a group.
  Index ofThread(mlir::Value groupFirst, int64_t i) { return index(groupFirst) + fourth * 4 + i; }
  /// The row that is this thread's column of tile `j`.
  Index ofColumn(mlir::Value groupFirst, int64_t j) { return index(groupFirst) + stage.columnRow + 2 * j; }

  LoopBuilder &loops;
  mlir::OpBuilder &b;
  mlir::Location loc;
  const AttentionShape &s;
  const TileForm form;
  LaneArithmetic numbers;
  ScoreFormula formula;
  WarpStage stage;
  Index warp, eighth, fourth; ///< of its block, g and t
  mlir::Value batch, head, keyHead;
  Index queryBase; ///< index of this head's first query among the queries of all heads
  ShownKeys shownKeys; ///< of the batch

private:
  Rows rowsOf(int number, const StridedLayout &layout, mlir::Value ofBatch, mlir::Value ofHead, int64_t features) const;
  /// Element (batch, head, query, key) of a bias or mask.
  mlir::Value termAt(llvm::ArrayRef<int64_t> shape, mlir::Value query, mlir::Value key);

  llvm::SmallVector<Lane> randomWords;
};

/// Warps of a block, which compute a tile together.
constexpr int64_t kAttentionWarps = WarpStage::kWarps;

/// Tiles of these ops if warps compute them; 0 if threads do (LoopKernel::getGroupTileCount).
int64_t warpTilesOf(AttentionOp op);
int64_t warpTilesOf(AttentionGradOp op);
void emitWarpAttention(AttentionOp op, LoopBuilder &loops, mlir::Value tile);
void emitWarpAttentionGrad(AttentionGradOp op, LoopBuilder &loops, mlir::Value tile);

} // namespace tcc::train

#endif // TCC_KERNELS_WARPATTENTION_H

//===- WinogradKernel.cpp - the loops of Winograd's convolutions -*- C++ -*-===//
//
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016): with d a tile of inputs, g the taps,
// y = Aᵀ[(G g Gᵀ) ∘ (Bᵀ d B)]A, where the products are summed over the channels before they are transformed back. For
// each of the 36 points the sums are a matrix product, tiles × channels by channels × features. A tile of the kernel (a
// task) transforms the weights of its features, then processes tiles of pixels block by block: transforms, products and
// results of a block stay in the task's scratch, in cache.
//
// The gradient of the weights is the transpose: Gᵀ[(Bᵀ d B) ∘ (A dy Aᵀ)]G, products summed over the tiles.
//
// Points are 0, ±3/4, ±3/2, ∞ instead of the usual 0, ±1, ±2, ∞: rounding errors are half as large (Barabasz et al.,
// "Error analysis and improving the accuracy of Winograd convolution for deep neural networks", TOMS 2020, on how
// points matter).
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Winograd.h"
#include "compiler/kernels/BlockProduct.h"
#include "compiler/kernels/Kernels.h"

using namespace mlir;

namespace tcc::train {

namespace {

//===----------------------------------------------------------------------===//
// Transforms of a line
//===----------------------------------------------------------------------===//
using Line = llvm::SmallVector<Lane, 6>;

/// The points a, −a, b, −b beside 0 and ∞. A polynomial's values at ±p are even(p²) ± p·odd(p²).
constexpr double kA = 0.75, kB = 1.5, kA2 = kA * kA, kB2 = kB * kB;
/// Factors of Lagrange's interpolation: 1 / the product of differences to the other points, at 0, ±a and ±b.
constexpr double kAt0 = 1 / (kA2 * kB2), kAtA = 1 / (2 * kA2 * (kA2 - kB2)), kAtB = 1 / (2 * kB2 * (kB2 - kA2));

/// x·factor + y
Lane scaled(Lane x, double factor, Lane y) { return x.fma(x.like(factor), y); }
Lane times(Lane x, double factor) { return x * x.like(factor); }

/// Bᵀ d
Line ofInputs(const Line &d) {
  auto pair = [&](double p, double other2) { // x(x ± p)(x² − other²)
    Lane even = scaled(d[2], -other2, d[4]), odd = scaled(d[1], -other2, d[3]);
    return std::pair(scaled(odd, p, even), scaled(odd, -p, even));
  };
  auto [plusA, minusA] = pair(kA, kB2);
  auto [plusB, minusB] = pair(kB, kA2);
  return {scaled(d[0], kA2 * kB2, scaled(d[2], -(kA2 + kB2), d[4])), plusA, minusA, plusB, minusB,
          scaled(d[1], kA2 * kB2, scaled(d[3], -(kA2 + kB2), d[5]))};
}

/// G g
Line ofTaps(const Line &g) {
  auto pair = [&](double p, double factor) {
    Lane even = times(scaled(g[2], p * p, g[0]), factor);
    return std::pair(scaled(g[1], p * factor, even), scaled(g[1], -p * factor, even));
  };
  auto [plusA, minusA] = pair(kA, kAtA);
  auto [plusB, minusB] = pair(kB, kAtB);
  return {times(g[0], kAt0), plusA, minusA, plusB, minusB, g[2]};
}

/// Aᵀ m
Line toOutputs(const Line &m) {
  Lane sumA = m[1] + m[2], sumB = m[3] + m[4], differenceA = m[1] - m[2], differenceB = m[3] - m[4];
  return {m[0] + sumA + sumB, scaled(differenceA, kA, times(differenceB, kB)), scaled(sumA, kA2, times(sumB, kB2)),
          scaled(differenceA, kA2 * kA, scaled(differenceB, kB2 * kB, m[5]))};
}

/// A y
Line ofOutputs(const Line &y) {
  auto pair = [&](double p) {
    Lane even = scaled(y[2], p * p, y[0]), odd = scaled(y[3], p * p, y[1]);
    return std::pair(scaled(odd, p, even), scaled(odd, -p, even));
  };
  auto [plusA, minusA] = pair(kA);
  auto [plusB, minusB] = pair(kB);
  return {y[0], plusA, minusA, plusB, minusB, y[3]};
}

/// Gᵀ m
Line toTaps(const Line &m) {
  Lane sumA = m[1] + m[2], sumB = m[3] + m[4], differenceA = m[1] - m[2], differenceB = m[3] - m[4];
  return {scaled(m[0], kAt0, scaled(sumA, kAtA, times(sumB, kAtB))),
          scaled(differenceA, kA * kAtA, times(differenceB, kB * kAtB)),
          scaled(sumA, kA2 * kAtA, scaled(sumB, kB2 * kAtB, m[5]))};
}

/// Applies a transform to the columns, then to the rows, of a square of `extent` rows, in row-major order.
llvm::SmallVector<Lane> bothWays(Line (*transform)(const Line &), llvm::ArrayRef<Lane> square, int64_t extent) {
  llvm::SmallVector<Line> columns;
  for (int64_t column = 0; column < extent; ++column) {
    Line line;
    for (int64_t row = 0; row < extent; ++row)
      line.push_back(square[row * extent + column]);
    columns.push_back(transform(line));
  }
  llvm::SmallVector<Lane> result;
  for (size_t row = 0; row < columns[0].size(); ++row) {
    Line line;
    for (const Line &column : columns)
      line.push_back(column[row]);
    llvm::append_range(result, transform(line));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// The common part of both kernels
//===----------------------------------------------------------------------===//

/// Offsets in the scratch, in elements of the sums' type.
class Regions {
public:
  explicit Regions(Type sumType) : elementBytes(sumType.isF64() ? 8 : 4) {}
  int64_t take(int64_t elements) {
    int64_t offset = used;
    used += (elements + 15) / 16 * 16;
    return offset;
  }
  int64_t bytes() const { return used * elementBytes; }

private:
  int64_t elementBytes, used = 0;
};

/// Stride of points in elements: padded by 64 bytes, since with a stride of a power of two the points of a channel
/// would all map to one set of the cache.
constexpr int64_t apart(int64_t elements) { return elements + 16; }

class BlockOfTiles {
protected:
  static constexpr int64_t kPoints = WinogradShape::kPoints;

  BlockOfTiles(LoopBuilder &loops, const WinogradShape &shape, Type stored, Type sumType)
      : s(shape), loops(loops), b(loops.builder), loc(loops.loc), e(loops, sumType), register_(e.lanes() / 2),
        storedBytes(elementBytes(stored)) {}

  MatrixView scratch(int64_t offset, int64_t rowStride) {
    return {MatrixView::kScratch, 0, e.index(offset), rowStride, 1};
  }

  /// Runs `body` for the channels [first, first + part) of `extent`, a register at a time; `first` is a multiple of
  /// `part`. `body` gets the channel's number within the part; the last register may be shorter.
  void registers(int64_t extent, int64_t part, Value first,
                 llvm::function_ref<void(Value channel, int64_t lanes, Value active)> body) {
    int64_t rest = extent % register_;
    Value count = extent % part == 0 ? e.index(part) : e.least(e.index(part), e.minus(e.index(extent), first));
    Value full = rest ? e.minus(count, e.remainder(count, register_)) : count;
    e.each(e.index(0), full, register_, [&](Value channel) { body(channel, register_, nullptr); });
    if (!rest)
      return;
    int64_t lanes = std::max<int64_t>(4, int64_t(llvm::PowerOf2Ceil(uint64_t(rest))));
    e.each(full, count, rest, // runs at most once
           [&](Value channel) { body(channel, lanes, lanes == rest ? Value() : e.index(rest)); });
  }

  struct Tile {
    Value sample, row, column; ///< row and column of its first output
  };
  Tile tileAt(Value number) {
    Value line = e.divide(number, s.tileColumns()), grid = e.divide(line, s.tileRows());
    Value row = e.times(e.remainder(line, s.tileRows()), WinogradShape::kOutputs * s.dilationRows),
          column = e.times(e.remainder(number, s.tileColumns()), WinogradShape::kOutputs * s.dilationColumns);
    if (s.grids() == 1)
      return {grid, row, column};
    Value inGrids = e.remainder(grid, s.grids());
    return {e.divide(grid, s.grids()), e.plus(row, e.divide(inGrids, s.dilationColumns)),
            e.plus(column, e.remainder(inGrids, s.dilationColumns))};
  }

  /// A square of `extent` × `extent` pixels of a channels-last tensor from (top, left) on, with steps of the dilation.
  /// Parts of it may be outside the tensor.
  struct Square {
    Value top, left, first; ///< first: element index of its first pixel's channel 0
    int64_t height, width, channels, extent;
  };
  Square squareAt(const Tile &tile, int64_t padTop, int64_t padLeft, int64_t height, int64_t width, int64_t channels,
                  int64_t extent) {
    Value top = e.plus(tile.row, -padTop), left = e.plus(tile.column, -padLeft);
    Value line = e.plus(e.times(tile.sample, height), top);
    return {top, left, e.times(e.plus(e.times(line, width), left), channels), height, width, channels, extent};
  }
  Square inputSquare(const Tile &tile) {
    return squareAt(tile, s.padTop, s.padLeft, s.height, s.width, s.channels, WinogradShape::kInputs);
  }
  Square outputSquare(const Tile &tile) {
    return squareAt(tile, 0, 0, s.rows, s.columns, s.features, WinogradShape::kOutputs);
  }

  Value both(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  /// i1: 0 ≤ x < extent
  Value within(Value x, int64_t extent) {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, e.index(extent));
  }

  /// Emits `body` twice: for a square inside the tensor, and for one partly outside, with an i1 for each pixel.
  void insideOrNot(const Square &q, bool always, llvm::function_ref<void(llvm::ArrayRef<Value> inside)> body) {
    if (always)
      return body({});
    auto whole = [&](Value from, int64_t dilation, int64_t extent) {
      return both(within(from, extent), within(e.plus(from, (q.extent - 1) * dilation), extent));
    };
    Value isInside = both(whole(q.top, s.dilationRows, q.height), whole(q.left, s.dilationColumns, q.width));
    e.when(isInside, [&] { body({}); });
    e.when(arith::XOrIOp::create(b, loc, isInside, arith::ConstantOp::create(b, loc, b.getBoolAttr(true))), [&] {
      llvm::SmallVector<Value> rows, columns, inside;
      for (int64_t i = 0; i < q.extent; ++i) {
        rows.push_back(within(e.plus(q.top, i * s.dilationRows), q.height));
        columns.push_back(within(e.plus(q.left, i * s.dilationColumns), q.width));
      }
      for (Value row : rows)
        for (Value column : columns)
          inside.push_back(both(row, column));
      body(inside);
    });
  }
  Value pixel(const Square &q, int64_t number, Value channel) {
    int64_t row = number / q.extent * s.dilationRows, column = number % q.extent * s.dilationColumns;
    return e.plus(e.plus(q.first, channel), (row * q.width + column) * q.channels);
  }
  Value activeIn(llvm::ArrayRef<Value> inside, int64_t number, int64_t lanes, Value active) {
    if (inside.empty())
      return active;
    return arith::SelectOp::create(b, loc, inside[number], active ? active : e.index(lanes), e.index(0));
  }

  /// Prefetches part `number` of the squares of `tiles` tiles, each in `parts` parts; does nothing beyond the last.
  void prefetchPart(Value number, int64_t parts, llvm::function_ref<Square(Value tile)> squareOf, Value firstTile,
                    int64_t tiles, Value firstChannel, int64_t channelPart,
                    llvm::function_ref<void(Value index)> prefetch) {
    constexpr int64_t kLineBytes = 64;
    e.when(within(number, tiles * parts), [&] {
      Square q = squareOf(e.plus(firstTile, e.divide(number, parts)));
      Value firstRow = e.times(e.remainder(number, parts), q.extent / parts);
      q.first = e.plus(q.first, e.times(firstRow, s.dilationRows * q.width * q.channels));
      // In an image of many tiles the left neighbour already prefetched the shared columns.
      int64_t firstColumn = s.tileColumns() < 4 ? 0 : q.extent - WinogradShape::kOutputs;
      for (int64_t row = 0; row < q.extent / parts; ++row)
        for (int64_t column = firstColumn; column < q.extent; ++column)
          for (int64_t channel = 0; channel < std::min(channelPart, q.channels); channel += kLineBytes / storedBytes)
            prefetch(e.plus(pixel(q, row * q.extent + column, firstChannel), channel));
    });
  }

  /// Reads the squares of the block's tiles, transforms them and puts point p of tile t at scratch
  /// offset + p·distance + t·stride.
  void transformSquares(unsigned operand, bool ofInput, Value firstTile, Value count, Value firstChannel, int64_t part,
                        int64_t distance, int64_t offset, int64_t stride) {
    e.each(e.index(0), count, 1, [&](Value number) {
      Tile tile = tileAt(e.plus(firstTile, number));
      Square q = ofInput ? inputSquare(tile) : outputSquare(tile);
      Value to = e.plus(e.times(number, stride), offset);
      bool always = !ofInput && s.tilesAreFull();
      insideOrNot(q, always, [&](llvm::ArrayRef<Value> inside) {
        registers(q.channels, part, firstChannel, [&](Value channel, int64_t lanes, Value active) {
          LaneArithmetic math(loops, lanes);
          llvm::SmallVector<Lane> values;
          for (int64_t i = 0; i < q.extent * q.extent; ++i)
            values.emplace_back(math, loops.load(operand, pixel(q, i, e.plus(firstChannel, channel)), lanes,
                                                 activeIn(inside, i, lanes, active)));
          values = bothWays(ofInput ? ofInputs : ofOutputs, values, q.extent);
          MatrixView target = scratch(0, 1);
          for (int64_t point = 0; point < kPoints; ++point)
            e.store(target, e.plus(e.plus(to, channel), point * distance), values[point], active);
        });
      });
    });
  }

  /// The 36 points of `lanes` channels, `distance` elements apart in the scratch.
  llvm::SmallVector<Lane> points(LaneArithmetic &math, Value from, int64_t distance, int64_t lanes) {
    llvm::SmallVector<Lane> values;
    for (int64_t point = 0; point < kPoints; ++point)
      values.emplace_back(math, e.load(scratch(0, 1), e.plus(from, point * distance), lanes));
    return values;
  }

  const WinogradShape &s;
  LoopBuilder &loops;
  OpBuilder &b;
  Location loc;
  BlockEmitter e;
  int64_t register_; ///< lanes of one register, since the points of a tile would spill if vectors were wider
  int64_t storedBytes; ///< of an input element
};

//===----------------------------------------------------------------------===//
// The convolution
//===----------------------------------------------------------------------===//
struct ConvRegions : Regions {
  /// Features of a panel of the transformed weights, which stays in the first-level cache during a product.
  static constexpr int64_t kPanel = 32;

  ConvRegions(const WinogradShape &s, Type sumType) : Regions(sumType) {
    const int64_t part = s.featurePart(), block = WinogradShape::kBlock, channels = s.channelBlock();
    weights = take(WinogradShape::kPoints * apart(channels * part));
    // Taps and inputs share memory: taps are dead before inputs are written.
    inputs = take(std::max(WinogradShape::kPoints * apart(block * channels), 9 * part * channels));
    taps = inputs;
    outputs = take(WinogradShape::kPoints * apart(s.sumTiles() * part));
  }
  int64_t weights; ///< [point][panel][channel][feature of the panel]
  int64_t taps;    ///< [channel][tap][feature]
  int64_t inputs;  ///< [point][tile][channel]
  int64_t outputs; ///< [point][tile][feature]: sums
};

class ConvEmitter : BlockOfTiles {
public:
  ConvEmitter(LoopBuilder &loops, const WinogradShape &s, const ConvRegions &at, bool transposed, Type stored,
              Type sumType)
      : BlockOfTiles(loops, s, stored, sumType), at(at), transposed(transposed), part(s.featurePart()),
        block(s.channelBlock()) {}

  void emit(Value task) {
    firstFeature = e.times(e.remainder(task, s.featureParts()), part);
    Value firstTile = e.times(e.divide(task, s.featureParts()), s.chunkTiles());
    Value end = e.least(e.plus(firstTile, s.chunkTiles()), e.index(s.tiles()));
    if (block == s.channels) {
      bringWeights(e.index(0));
      eachBlock(firstTile, end, [&](Value first, Value count) {
        addProducts(first, count, e.index(0), e.index(0));
        writeOutputs(first, count, e.index(0));
      });
      return;
    }
    e.zeroRows(scratch(at.outputs, part), e.index(kPoints * apart(s.sumTiles() * part) / part), part);
    e.each(e.index(0), e.index(s.channels), block, [&](Value firstChannel) {
      bringWeights(firstChannel);
      eachBlock(firstTile, end, [&](Value first, Value count) {
        addProducts(first, count, firstChannel, e.minus(first, firstTile));
      });
    });
    eachBlock(firstTile, end, [&](Value first, Value count) { writeOutputs(first, count, e.minus(first, firstTile)); });
  }

private:
  void eachBlock(Value firstTile, Value end, llvm::function_ref<void(Value first, Value count)> body) {
    e.each(firstTile, end, WinogradShape::kBlock, [&](Value first) {
      body(first, e.least(e.index(WinogradShape::kBlock), e.minus(end, first)));
    });
  }

  /// Transforms the weights of a block of channels.
  void bringWeights(Value firstChannel) {
    bringTaps(firstChannel);
    transformWeights();
  }

  /// Loads the taps with features in lanes; lanes beyond the last feature are 0.
  void bringTaps(Value firstChannel) {
    Value limit = s.features % part ? e.minus(e.index(s.features), firstFeature) : Value();
    if (!transposed) {
      Value first = e.times(e.plus(e.times(firstFeature, s.channels), firstChannel), 9);
      MatrixView from{MatrixView::kOperand, 1, first, s.channels * 9, 1};
      e.transposeIn(from, scratch(at.taps, part), part, limit, e.index(0), e.index(block * 9), block * 9);
      return;
    }
    e.each(e.index(0), e.index(block), 1, [&](Value channel) {
      Value first = e.times(e.plus(e.times(e.plus(firstChannel, channel), s.features), firstFeature), 9);
      MatrixView to = scratch(at.taps, part);
      to.base = e.plus(to.base, e.times(channel, 9 * part));
      e.transposeIn({MatrixView::kOperand, 1, first, 9, 1}, to, part, limit, e.index(0), e.index(9), 9);
    });
  }

  void transformWeights() {
    LaneArithmetic math(loops, register_);
    e.each(e.index(0), e.index(block), 1, [&](Value channel) {
      e.each(e.index(0), e.index(part), ConvRegions::kPanel, [&](Value panel) {
        e.each(e.index(0), e.index(ConvRegions::kPanel), register_, [&](Value lane) {
          Value from = e.plus(e.plus(e.times(channel, 9 * part), at.taps), e.plus(panel, lane));
          llvm::SmallVector<Lane> taps;
          for (int64_t tap = 0; tap < 9; ++tap)
            taps.emplace_back(math,
                              e.load(scratch(0, 1), e.plus(from, (transposed ? 8 - tap : tap) * part), register_));
          llvm::SmallVector<Lane> values = bothWays(ofTaps, taps, 3);
          Value row = e.plus(e.times(panel, block), e.times(channel, ConvRegions::kPanel));
          Value to = e.plus(e.plus(row, lane), at.weights);
          for (int64_t point = 0; point < kPoints; ++point)
            e.store(scratch(0, 1), e.plus(to, point * apart(block * part)), values[point]);
        });
      });
    });
  }

  /// Adds the products of a block of tiles and channels to the sums from tile `firstSum` on.
  void addProducts(Value firstTile, Value count, Value firstChannel, Value firstSum) {
    constexpr int64_t kBlock = WinogradShape::kBlock, kPanel = ConvRegions::kPanel;
    transformSquares(0, true, firstTile, count, firstChannel, block, apart(kBlock * block), at.inputs, block);
    // Rows beyond this block's tiles hold stale values; their sums are never read.
    Value rowEnd = e.roundUp(count, e.rows());
    auto wholeDepth = [&](Value) { return std::pair(e.index(0), e.index(block)); };
    e.each(e.index(0), e.index(kPoints), 1, [&](Value point) {
      // Memory is idle during the product: prefetch the next block's inputs and this block's outputs. The hardware
      // prefetcher does not follow the scattered pixels of a tile.
      prefetchPart(point, 2, [&](Value tile) { return inputSquare(tileAt(tile)); }, e.plus(firstTile, kBlock), kBlock,
                   firstChannel, block, [&](Value index) { loops.prefetch(0, index); });
      if (block == s.channels)
        prefetchPart(
            point, 2, [&](Value tile) { return outputSquare(tileAt(tile)); }, firstTile, kBlock, firstFeature, part,
            [&](Value index) { loops.prefetchResult(0, index); });
      e.each(e.index(0), e.index(part / kPanel), 1, [&](Value panel) {
        MatrixView a = scratch(at.inputs, block), w = scratch(at.weights, kPanel), c = scratch(at.outputs, part);
        a.base = e.plus(a.base, e.times(point, apart(kBlock * block)));
        w.base = e.plus(w.base, e.plus(e.times(point, apart(block * part)), e.times(panel, block * kPanel)));
        c.base =
            e.plus(e.plus(c.base, e.plus(e.times(point, sumPitch()), e.times(panel, kPanel))), e.times(firstSum, part));
        e.multiply({a, w, c, rowEnd, 0, kPanel, wholeDepth, /*accumulate=*/block < s.channels});
      });
    });
  }

  /// Stride of the sums of points.
  int64_t sumPitch() const { return apart(s.sumTiles() * part); }

  void writeOutputs(Value firstTile, Value count, Value firstSum) {
    bool always = s.tilesAreFull();
    e.each(e.index(0), count, 1, [&](Value number) {
      Square q = outputSquare(tileAt(e.plus(firstTile, number)));
      Value from = e.plus(e.times(e.plus(firstSum, number), part), at.outputs);
      insideOrNot(q, always, [&](llvm::ArrayRef<Value> inside) {
        registers(s.features, part, firstFeature, [&](Value feature, int64_t lanes, Value active) {
          LaneArithmetic math(loops, lanes);
          llvm::SmallVector<Lane> values =
              bothWays(toOutputs, points(math, e.plus(from, feature), sumPitch(), lanes), WinogradShape::kInputs);
          for (int64_t i = 0; i < q.extent * q.extent; ++i)
            loops.store(0, pixel(q, i, e.plus(firstFeature, feature)), values[i], activeIn(inside, i, lanes, active));
        });
      });
    });
  }

  const ConvRegions &at;
  bool transposed;
  int64_t part, block; ///< features, channels
  Value firstFeature;
};

//===----------------------------------------------------------------------===//
// The gradient of its weights
//===----------------------------------------------------------------------===//
struct GradRegions : Regions {
  GradRegions(const WinogradShape &s, Type sumType) : Regions(sumType) {
    sums = take(WinogradShape::kPoints * apart(s.gradChannels() * s.gradFeatures()));
    inputs = take(WinogradShape::kPoints * apart(WinogradShape::kGradBlock * s.gradChannels()));
    grads = take(WinogradShape::kPoints * apart(WinogradShape::kGradBlock * s.gradFeatures()));
    // Taps share the memory of inputs, dead once all tiles are added. Transposing may read a few rows beyond taps.
    taps = inputs;
    static_assert(WinogradShape::kPoints * WinogradShape::kGradBlock >= 9 * 64 + BlockEmitter::kMostLanes);
  }
  int64_t sums;          ///< [point][channel][feature]
  int64_t taps;          ///< [channel][tap][feature]
  int64_t inputs, grads; ///< [point][tile][channel or feature]
};

class WinogradGradEmitter : BlockOfTiles {
public:
  WinogradGradEmitter(LoopBuilder &loops, const WinogradShape &s, const GradRegions &at, Type stored, Type sumType)
      : BlockOfTiles(loops, s, stored, sumType), at(at), channelPart(s.gradChannels()), featurePart(s.gradFeatures()) {}

  void emit(Value task) {
    int64_t featureBlocks = llvm::divideCeil(s.features, featurePart);
    Value part = e.divide(task, s.gradBlocks()), blockNumber = e.remainder(task, s.gradBlocks());
    Value firstChannel = e.times(e.divide(blockNumber, featureBlocks), channelPart);
    Value firstFeature = e.times(e.remainder(blockNumber, featureBlocks), featurePart);
    Value firstTile = e.times(part, s.gradPartTiles());
    Value end = e.least(e.plus(firstTile, s.gradPartTiles()), e.index(s.tiles()));
    e.zeroRows(scratch(at.sums, 16), e.index(kPoints * apart(channelPart * featurePart) / 16), 16);
    e.each(firstTile, end, kBlock, [&](Value first) {
      Value count = e.least(e.index(kBlock), e.minus(end, first));
      transformSquares(0, true, first, count, firstChannel, channelPart, apart(kBlock * channelPart), at.inputs,
                       channelPart);
      transformSquares(1, false, first, count, firstFeature, featurePart, apart(kBlock * featurePart), at.grads,
                       featurePart);
      addProducts(first, count, firstChannel, firstFeature);
    });
    writeTaps(part, firstChannel, firstFeature);
  }

private:
  static constexpr int64_t kBlock = WinogradShape::kGradBlock;

  void addProducts(Value firstTile, Value count, Value firstChannel, Value firstFeature) {
    // Channels and features beyond the last ones hold stale values; their sums are not stored.
    auto tilesOfBlock = [&](Value) { return std::pair(e.index(0), count); };
    e.each(e.index(0), e.index(kPoints), 1, [&](Value point) {
      Value nextTile = e.plus(firstTile, kBlock);
      prefetchPart(
          point, 1, [&](Value tile) { return inputSquare(tileAt(tile)); }, nextTile, kBlock, firstChannel, channelPart,
          [&](Value index) { loops.prefetch(0, index); });
      prefetchPart(
          point, 1, [&](Value tile) { return outputSquare(tileAt(tile)); }, nextTile, kBlock, firstFeature, featurePart,
          [&](Value index) { loops.prefetch(1, index); });
      MatrixView x = scratch(at.inputs, 1), g = scratch(at.grads, featurePart), c = scratch(at.sums, featurePart);
      x.columnStride = channelPart;
      x.base = e.plus(x.base, e.times(point, apart(kBlock * channelPart)));
      g.base = e.plus(g.base, e.times(point, apart(kBlock * featurePart)));
      c.base = e.plus(c.base, e.times(point, apart(channelPart * featurePart)));
      e.multiply({x, g, c, e.index(channelPart), 0, featurePart, tilesOfBlock, true});
    });
  }

  /// Transposes taps from features in lanes to the weights' layout, with the taps of a channel contiguous.
  void writeTaps(Value part, Value firstChannel, Value firstFeature) {
    bool someChannels = s.channels % channelPart, someFeatures = s.features % featurePart;
    Value channelEnd = e.index(channelPart);
    if (someChannels)
      channelEnd = e.least(channelEnd, e.minus(e.index(s.channels), firstChannel));
    LaneArithmetic math(loops, register_);
    e.each(e.index(0), channelEnd, 1, [&](Value channel) {
      e.each(e.index(0), e.index(featurePart), register_, [&](Value feature) {
        Value from = e.plus(e.plus(e.times(channel, featurePart), at.sums), feature);
        llvm::SmallVector<Lane> taps =
            bothWays(toTaps, points(math, from, apart(channelPart * featurePart), register_), WinogradShape::kInputs);
        Value to = e.plus(e.plus(e.times(channel, 9 * featurePart), at.taps), feature);
        for (int64_t tap = 0; tap < 9; ++tap)
          e.store(scratch(0, 1), e.plus(to, tap * featurePart), taps[tap]);
      });
    });
    e.each(e.index(0), e.index(featurePart), e.lanes(), [&](Value feature) {
      MatrixView from = scratch(at.taps, featurePart);
      from.base = e.plus(from.base, feature);
      Value first = e.plus(firstFeature, feature), row = e.plus(e.times(part, s.features), first);
      Value to = e.times(e.plus(e.times(row, s.channels), firstChannel), 9);
      Value rowLimit = someChannels ? e.times(channelEnd, 9) : Value();
      Value columnLimit =
          someFeatures ? e.most(e.least(e.minus(e.index(s.features), first), e.index(e.lanes())), e.index(0)) : Value();
      e.transposeOut(from, {MatrixView::kResult, 0, to, s.channels * 9, 1}, channelPart * 9, rowLimit, columnLimit);
    });
  }

  const GradRegions &at;
  int64_t channelPart, featurePart;
};

struct WinogradConvLoops : LoopKernel::ExternalModel<WinogradConvLoops, WinogradConvOp> {
  int64_t getTileCount(Operation *op) const {
    WinogradShape s = winogradShapeOf(cast<WinogradConvOp>(op));
    return s.chunks() * s.featureParts();
  }
  int64_t getScratchBytes(Operation *op) const {
    return ConvRegions(winogradShapeOf(cast<WinogradConvOp>(op)), winogradSumType(elementTypeOf(op->getOperand(0))))
        .bytes();
  }
  int64_t getLeastScratchBytes(Operation *op) const { return lighter(op, 0).first; }
  void shrinkScratch(Operation *op, int64_t bytes) const {
    if (int64_t block = lighter(op, bytes).second)
      cast<WinogradConvOp>(op).setChannelBlock(block);
  }
  /// Scratch of at most `bytes`, or the least possible, and the block of channels that needs it (0: unchanged). Smaller
  /// blocks of channels need less memory for weights, but keep the sums of all outputs of a task.
  static std::pair<int64_t, int64_t> lighter(Operation *op, int64_t bytes) {
    constexpr int64_t kLeastBlock = 32; // below, products are too short to hide loading and storing sums
    WinogradShape s = winogradShapeOf(cast<WinogradConvOp>(op));
    auto needed = [&] { return ConvRegions(s, winogradSumType(elementTypeOf(op->getOperand(0)))).bytes(); };
    std::pair<int64_t, int64_t> found{needed(), 0};
    for (int64_t block = s.channelBlock(); found.first > bytes && block % 2 == 0 && block / 2 >= kLeastBlock;) {
      s.channelsAtATime = block /= 2;
      if (int64_t now = needed(); now < found.first)
        found = {now, block};
    }
    return found;
  }
  void emitTile(Operation *op, LoopBuilder &loops, Value tile) const {
    WinogradShape s = winogradShapeOf(cast<WinogradConvOp>(op));
    Type stored = elementTypeOf(op->getOperand(0)), sumType = winogradSumType(stored);
    ConvRegions at(s, sumType);
    ConvEmitter(loops, s, at, cast<WinogradConvOp>(op).getTransposed(), stored, sumType).emit(tile);
  }
};

struct WinogradWeightGradLoops : LoopKernel::ExternalModel<WinogradWeightGradLoops, WinogradWeightGradOp> {
  int64_t getTileCount(Operation *op) const {
    WinogradShape s = winogradShapeOf(cast<WinogradWeightGradOp>(op));
    return s.gradParts() * s.gradBlocks();
  }
  int64_t getScratchBytes(Operation *op) const {
    return GradRegions(winogradShapeOf(cast<WinogradWeightGradOp>(op)), elementTypeOf(op->getResult(0))).bytes();
  }
  void emitTile(Operation *op, LoopBuilder &loops, Value tile) const {
    WinogradShape s = winogradShapeOf(cast<WinogradWeightGradOp>(op));
    Type sumType = elementTypeOf(op->getResult(0));
    GradRegions at(s, sumType);
    WinogradGradEmitter(loops, s, at, elementTypeOf(op->getOperand(0)), sumType).emit(tile);
  }
};

} // namespace

void attachWinograd(MLIRContext &context) {
  WinogradConvOp::attachInterface<WinogradConvLoops>(context);
  WinogradWeightGradOp::attachInterface<WinogradWeightGradLoops>(context);
}

} // namespace tcc::train

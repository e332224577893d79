//===- PackedMatmul.cpp - products on packed panels, without the library -===//
//
// A tile processes K in blocks. Rows of A that run along K are read in place, others are packed into panels that stay
// in the core's second-level cache. A panel of B is multiplied with all rows (PackedProduct.cpp) while the next one is
// packed, or only prefetched if its words have to be shuffled. Sums of several blocks of K are accumulated in C; or, if
// C is narrow or holds the addend, in scratch, and then rounded or added once. A B in 4 or 8 bits is unpacked into its
// panels (UnpackedColumns.cpp), which nothing hides.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/PackedMatmul.h"
#include "runtime/cpu/UnpackedColumns.h"

namespace tcc::runtime {

using packed::Block, packed::Elements, packed::Source, packed::Store;

namespace {
using tiling::ceilDiv;

Source lanesFrom(const Source &source, int64_t lane) {
  Source rest = source;
  rest.data += lane * packed::bytesOf(source.elements) * (source.alongK ? source.stride : 1);
  return rest;
}

/// Results of at least this size are not in the core's second-level cache when a step writes them.
constexpr int64_t kColdBytes = 1 << 20;

class PackedMatmul final : public LibraryCall {
public:
  explicit PackedMatmul(const PackedDesign &chosen) : design(chosen) {}

  int stages() const override { return design.partial() ? 2 : 1; }
  int64_t tiles(int stage) const override {
    return stage == 0 ? design.tiles() : PartialSums::tiles(elements());
  }

  bool run(int stage, const CallContext &context, int64_t begin, int64_t end) const override {
    const MatmulShape &s = design.shape;
    if (stage == 1) {
      PartialSums sums{static_cast<const float *>(context.pointers[positionOfC() + 1]), design.tiling.chunks(s),
                       elements()};
      void *c = context.pointers[positionOfC()];
      if (s.narrowC)
        sums.round(static_cast<uint16_t *>(c), begin, end);
      else
        sums.add(static_cast<float *>(c), design.accumulate, begin, end);
      return true;
    }
    for (int64_t tile = begin; tile < end; ++tile)
      runTile(tile, context.pointers,
              context.scratch + slotOf(tile, design.tiles(), context.worker, context.workers) * design.slotBytes);
    return true;
  }

private:
  int64_t elements() const { return design.shape.batch * design.shape.m * design.shape.n; }

  /// Position of C (or of the partial sums) among the operands: the addend, which has the same memory, or the scales of
  /// B and what belongs to them precede it.
  int positionOfC() const { return design.hasRest() ? 4 : design.accumulate || design.codes ? 3 : 2; }

  void runTile(int64_t tile, void *const *pointers, char *slot) const {
    const MatmulShape &s = design.shape;
    const MatmulTiling &t = design.tiling;
    int64_t sizeC = s.narrowC && !design.partial() ? 2 : 4;
    auto [first, i0, j0, chunk] = t.placeOf(s, tile);
    auto *a = static_cast<const char *>(pointers[0]), *b = static_cast<const char *>(pointers[1]);
    auto *c = static_cast<char *>(pointers[positionOfC() + (design.partial() ? 1 : 0)]);
    for (int64_t batch = first; batch < std::min(first + t.tileBatch, s.batch); ++batch) {
      int64_t at = ((design.partial() ? chunk * s.batch : 0) + batch) * s.m * s.n + i0 * s.n + j0;
      multiplyTile({a + batch * s.m * s.k * packed::bytesOf(design.elements),
                    design.codes ? b : b + batch * s.k * s.n * packed::bytesOf(design.elementsOfB),
                    design.codes ? pointers[2] : nullptr, design.hasRest() ? pointers[3] : nullptr, c + at * sizeC,
                    sizeC, i0, j0, std::min(t.tileM, s.m - i0), std::min(t.tileN, s.n - j0), chunk * t.chunkK,
                    std::min((chunk + 1) * t.chunkK, s.k)},
                   slot);
    }
  }

  struct Tile {
    const char *a, *b;         ///< the operands of one product
    const void *scales, *rest; ///< of B, if it is stored in 4 or 8 bits (CodeSource)
    char *c;                   ///< the tile's first element
    int64_t sizeC;
    int64_t i0, j0, rows, columns, kBegin, kEnd;
  };

  /// The tile's columns of B, from index `k` of K on.
  Source sourceOfB(const Tile &tile, int64_t k) const {
    const MatmulShape &s = design.shape;
    return {tile.b + (s.transB ? tile.j0 * s.k + k : k * s.n + tile.j0) * packed::bytesOf(design.elementsOfB),
            s.transB ? s.k : s.n, s.transB, design.elementsOfB};
  }

  /// The columns and the range of K of a panel of B.
  struct Columns {
    Source source;
    int64_t count = 0, k = 0;   ///< 0: there is no such panel
    int64_t at = 0, column = 0; ///< the first index of K, and column of the tile
  };

  /// The panel that follows the one of `column` in the block of K at `at`.
  Columns columnsAfter(const Tile &tile, int64_t column, int64_t at, int64_t k) const {
    if (int64_t next = column + packed::kColumns; next < tile.columns)
      return {lanesFrom(sourceOfB(tile, at), next), std::min(packed::kColumns, tile.columns - next), k, at, next};
    if (int64_t next = at + k; next < tile.kEnd)
      return {sourceOfB(tile, next), std::min(packed::kColumns, tile.columns),
              std::min(design.tiling.blockK, tile.kEnd - next), next, 0};
    return {};
  }

  void unpack(uint32_t *panel, const Tile &tile, const Columns &columns) const {
    packed::unpackColumns(panel,
                          {reinterpret_cast<const uint8_t *>(tile.b), tile.scales, tile.rest, *design.codes,
                           columns.at, tile.j0 + columns.column},
                          design.elementsOfB, columns.count, columns.k);
  }

  void multiplyTile(const Tile &tile, char *slot) const {
    const MatmulShape &s = design.shape;
    const MatmulTiling &t = design.tiling;
    int64_t size = packed::bytesOf(design.elements), rowPanels = ceilDiv(tile.rows, packed::kRows);
    auto *panelsA = reinterpret_cast<uint32_t *>(slot), *panelB = reinterpret_cast<uint32_t *>(slot + design.offsetB),
         *nextPanelB = panelB + design.panelColumns() * packed::wordsOf(t.blockK, design.elements);
    float *sums = design.keepsSums()               ? reinterpret_cast<float *>(slot + design.offsetSums)
                  : s.narrowC && !design.partial() ? nullptr
                                                   : reinterpret_cast<float *>(tile.c);
    int64_t sumsStride = design.keepsSums() ? t.tileN : s.n;
    Store final = design.partial()    ? Store::Overwrite
                  : s.narrowC         ? Store::Round
                  : design.accumulate ? Store::Add
                                      : Store::Overwrite;
    // For a narrow result, which has half the bytes, prefetching does not pay off.
    bool isCold = tile.sizeC == 4 && elements() * tile.sizeC >= kColdBytes;
    for (int64_t at = tile.kBegin; at < tile.kEnd; at += t.blockK) {
      int64_t k = std::min(t.blockK, tile.kEnd - at), words = packed::wordsOf(k, design.elements);
      bool first = at == tile.kBegin, last = at + k == tile.kEnd;
      Source a{tile.a + (s.transA ? at * s.m + tile.i0 : tile.i0 * s.k + at) * size, s.transA ? s.m : s.k, !s.transA,
               design.elements};
      bool inPlace = packed::readsRowsInPlace(a, s.k);
      if (!inPlace)
        packed::packRows(panelsA, a, tile.rows, k);
      for (int64_t column = 0; column < tile.columns; column += packed::kColumns) {
        int64_t width = std::min(packed::kColumns, tile.columns - column);
        if (first && column == 0) {
          if (design.codes)
            unpack(panelB, tile, {{}, width, k, at, 0});
          else
            packed::packColumns(panelB, sourceOfB(tile, at), width, k);
        }
        Columns next = columnsAfter(tile, column, at, k);
        packed::Ahead ahead;
        if (next.count && !design.codes)
          ahead = packed::packedDuring(nextPanelB, next.source, next.count, next.k, rowPanels);
        for (int64_t row = 0; row < tile.rows; row += packed::kRows) {
          packed::RowPanel panelA{panelsA + row * words, 0};
          if (inPlace)
            panelA = {reinterpret_cast<const uint32_t *>(a.data + row * s.k * size), s.k * size / 4};
          float *sum = sums ? sums + row * sumsStride + column : nullptr;
          Block block{words, first ? nullptr : sum, sumsStride, sum, sumsStride, Store::Overwrite, isCold, &ahead};
          if (last) {
            block.result = tile.c + (row * s.n + column) * tile.sizeC;
            block.resultStride = s.n;
            block.store = final;
          }
          packed::multiply(packed::isDotted(design.elements), panelA, panelB, std::min(packed::kRows, tile.rows - row),
                           width, block);
        }
        if (next.count && design.codes)
          unpack(nextPanelB, tile, next);
        else if (next.count)
          packed::finish(ahead, nextPanelB, next.source, next.count, next.k);
        std::swap(panelB, nextPanelB);
      }
    }
  }

  PackedDesign design;
};
} // namespace

std::unique_ptr<LibraryCall> makePackedMatmul(const PackedDesign &design) {
  return std::make_unique<PackedMatmul>(design);
}

} // namespace tcc::runtime

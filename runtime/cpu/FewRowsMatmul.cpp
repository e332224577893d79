//===- FewRowsMatmul.cpp - products of few rows, without the library -----===//
//
// A product of few rows does little with each element of its second matrix, which is a weight: it takes the time that
// reading takes. So a tile is some columns, with all rows and all of K: each element is read once, as it lies, by one
// worker, and no sums meet in memory (FewRowsProduct.cpp).
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/FewRowsMatmul.h"

#include "runtime/cpu/FewRowsProduct.h"

#include <algorithm>

namespace tcc::runtime {

namespace {
using packed::Elements, packed::Store;
using tiling::ceilDiv, tiling::roundUp;

// Where the library, or packed panels, are as fast.
constexpr int64_t kMostPairRows = 47, kMostRowsOfLongSums = 32, kShortSum = 1024;
// What one core of Zen 4 does in a nanosecond.
constexpr double kFlopsPerNs = 100.0, kNarrowFlopsPerNs = 180.0, kBytesPerNs = 25.0;
constexpr double kTileNs = 1000.0; // a tile that is worth handing to a worker
constexpr int64_t kMostTiles = 64;
constexpr int64_t kUnit = 32;    // columns of a tile are a multiple of that,
constexpr int64_t kFewTiles = 8; // and of more beside few rows, where so many tiles remain: rows of B in long pieces

double nanoseconds(const MatmulShape &s) {
  double products = static_cast<double>(s.n) * static_cast<double>(s.k);
  return std::max(2 * static_cast<double>(s.m) * products / (s.elementBytes == 2 ? kNarrowFlopsPerNs : kFlopsPerNs),
                  products * static_cast<double>(s.roundsB ? 4 : s.elementBytes) / kBytesPerNs);
}

MatmulTiling fewRowsTiling(const MatmulShape &s) {
  int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(nanoseconds(s) / kTileNs), 1, kMostTiles);
  int64_t unit = s.transB || s.m > 6 ? kUnit : s.m > 2 ? 2 * kUnit : 4 * kUnit;
  while (unit > kUnit && ceilDiv(s.n, unit) < kFewTiles)
    unit /= 2;
  int64_t columns = wanted == 1 ? s.n : std::min(s.n, roundUp(ceilDiv(s.n, wanted), unit));
  return {1, s.m, columns, s.k, s.k};
}

class FewRowsMatmul final : public LibraryCall {
public:
  explicit FewRowsMatmul(const FewRowsDesign &chosen) : design(chosen) {}

  int stages() const override { return 1; }
  int64_t tiles(int) const override { return design.tiles(); }

  bool run(int, const CallContext &context, int64_t begin, int64_t end) const override {
    const MatmulShape &s = design.shape;
    int64_t first = begin * design.tiling.tileN, last = std::min(end * design.tiling.tileN, s.n);
    auto *a = static_cast<const char *>(context.pointers[0]), *b = static_cast<const char *>(context.pointers[1]);
    // What is added comes before C, in the same memory.
    auto *c = static_cast<char *>(context.pointers[design.accumulate ? 3 : 2]);
    fewrows::multiply({a,
                       s.k,
                       s.m,
                       {b + (s.transB ? first * s.k : first) * packed::bytesOf(design.elementsOfB),
                        s.transB ? s.k : s.n, s.transB, design.elementsOfB},
                       last - first,
                       s.n - last,
                       s.k,
                       c + first * (s.narrowC ? 2 : 4),
                       s.n,
                       s.narrowC           ? Store::Round
                       : design.accumulate ? Store::Add
                                           : Store::Overwrite});
    return true;
  }

private:
  FewRowsDesign design;
};
} // namespace

bool suitsFewRows(const MatmulShape &s) {
  // Measured on Zen 4, two cores, operands in the last cache.
  if (s.transA || s.batch > 1)
    return false;
  // What is widened or rounded is so again for each 8 rows: panels do it once. (One rule for a rounded operand and its
  // rounded copy, whose bits are the same.)
  if (s.elementBytes == 2 || s.widened)
    return s.m <= kMostPairRows;
  return s.m <= (s.transB && s.k > kShortSum ? kMostRowsOfLongSums : fewrows::kMostRows);
}

FewRowsDesign::FewRowsDesign(const MatmulShape &shape, bool accumulate)
    : shape(shape), tiling(fewRowsTiling(shape)), elements(elementsOfA(shape)),
      elementsOfB(runtime::elementsOfB(shape)), accumulate(accumulate) {}

const char *FewRowsDesign::name() const {
  return elements == Elements::Bf16       ? "few_rows:avx512_bf16"
         : elements == Elements::WideBf16 ? "few_rows:avx512_widened"
                                          : "few_rows:avx512";
}

std::unique_ptr<LibraryCall> makeFewRowsMatmul(const FewRowsDesign &design) {
  return std::make_unique<FewRowsMatmul>(design);
}

} // namespace tcc::runtime

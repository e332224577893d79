//===- FewRowsChoice.cpp - tiles of products of few rows -----------------===//
//
// Such a product is bound by reading its second matrix. A tile is a range of columns, wide enough that the pieces of
// rows of B stream.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/Choice.h"

#include <algorithm>

namespace tcc::target::cpu {

using namespace runtime::tiling;
using runtime::MatmulShape;

namespace {
double nanoseconds(const MatmulShape &s, const FewRowsModel &c) {
  double products = static_cast<double>(s.n) * static_cast<double>(s.k);
  return std::max(2 * static_cast<double>(s.m) * products / (s.elementBytes == 2 ? c.narrowFlopsPerNs : c.flopsPerNs),
                  products * static_cast<double>(s.roundsB ? 4 : s.elementBytes) / c.bytesPerNs);
}
} // namespace

runtime::MatmulTiling chooseFewRowsTiling(const MatmulShape &s, const CpuModel &model) {
  const FewRowsModel &c = model.fewRows;
  int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(nanoseconds(s, c) / c.tileNs), 1, c.mostTiles);
  int64_t unit = s.transB || s.m > 6 ? c.unit : s.m > 2 ? 2 * c.unit : 4 * c.unit;
  while (unit > c.unit && ceilDiv(s.n, unit) < c.fewTiles)
    unit /= 2;
  int64_t columns = wanted == 1 ? s.n : std::min(s.n, roundUp(ceilDiv(s.n, wanted), unit));
  return {1, s.m, columns, s.k, s.k};
}

bool suitsFewRows(const MatmulShape &s, const CpuModel &model) {
  // Measured on Zen 4, two cores, operands in the last cache.
  const FewRowsModel &c = model.fewRows;
  if (s.transA || s.batch > 1)
    return false;
  // This kernel widens or rounds operands again for each 8 rows; panels do it once. (The same rule holds for an operand
  // that is rounded and for its rounded copy, so that both give the same bits.)
  if (s.elementBytes == 2 || s.widened)
    return s.m <= c.mostPairRows;
  return s.m <= (s.transB && s.k > c.shortSum ? c.mostRowsOfLongSums : runtime::kMostFewRows);
}

} // namespace tcc::target::cpu

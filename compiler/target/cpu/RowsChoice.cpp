//===- RowsChoice.cpp - tiles of products whose rows go to a kernel ------===//
//
// Sums run through K in the same blocks as in a plain product, so that the bits are the same. The plain product's
// tiling therefore decides the blocks, and which products qualify.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/Choice.h"

#include <algorithm>

namespace tcc::target::cpu {

using namespace runtime::tiling;
using runtime::MatmulShape, runtime::MatmulTiling;
namespace packed = runtime::packed;

std::optional<MatmulTiling> chooseRowsTiling(const MatmulShape &shape, const MatmulTiling &plain, bool packed,
                                             const CpuModel &model) {
  const RowsModel &c = model.rows;
  int64_t blockK = packed ? plain.blockK : shape.k;
  bool sameSums = plain.chunks(shape) == 1 && (packed || plain.blockK == shape.k);
  if (shape.batch != 1 || shape.narrowC || !sameSums)
    return std::nullopt;
  // The shared panels must not take more memory than C, which is not stored.
  uint64_t sharedBytes = runtime::RowwiseDesign(shape, 1, blockK).sharedBytes;
  if (sharedBytes > static_cast<uint64_t>(shape.m * shape.n) * 4 || shape.m < packed::kRows)
    return std::nullopt;
  int64_t words = packed::wordsOf(blockK, elementsOfA(shape));
  auto rowsOf = [&](int64_t bytes) {
    return std::min(bytes / (shape.n * 4), c.panelBytes / (words * 4)) / packed::kRows * packed::kRows;
  };
  bool isNear = sharedBytes <= static_cast<uint64_t>(c.nearBytes) && rowsOf(c.nearRowsBytes) > 0;
  int64_t most = rowsOf(isNear ? c.nearRowsBytes : c.rowsBytes);
  if (most == 0)
    return std::nullopt;
  int64_t parts = std::max({int64_t(1), ceilDiv(shape.m, most), std::min(c.tiles, shape.m / c.leastRows)});
  int64_t tileM = std::min(most, roundUp(ceilDiv(shape.m, parts), packed::kRows));
  return MatmulTiling{1, tileM, shape.n, shape.k, blockK};
}

} // namespace tcc::target::cpu

//===- ProductLevels.cpp - kernels of products for this machine ----------===//
//
// Calls the kernels of the highest level that this program contains and this processor runs. A portable build
// (TCC_PORTABLE) contains the baseline alone.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/DepthwiseLoops.h"
#include "runtime/cpu/FewRowsProduct.h"
#include "runtime/cpu/PixelProduct.h"
#include "runtime/cpu/PlaneProduct.h"
#include "runtime/cpu/TapProduct.h"
#include "runtime/cpu/UnpackedColumns.h"
#include "runtime/cpu/calls/CpuLevel.h"

namespace tcc::runtime {

#ifdef TCC_PORTABLE
#define TCC_OF_THIS_MACHINE(KERNELS) baseline::KERNELS
#else
#define TCC_OF_THIS_MACHINE(KERNELS)                                                                                   \
  (cpuFeatures().avx512 ? avx512::KERNELS : cpuFeatures().avx2 ? avx2::KERNELS : baseline::KERNELS)
#endif

namespace packed {

void packRows(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart) {
  TCC_OF_THIS_MACHINE(kPacked).packRows(to, source, rows, k, apart);
}

void packColumns(uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  TCC_OF_THIS_MACHINE(kPacked).packColumns(to, source, columns, k);
}

void packColumnRuns(uint32_t *to, const Source &source, const ColumnRun *runs, int64_t runCount, int64_t columns,
                    int64_t k) {
  TCC_OF_THIS_MACHINE(kPacked).packColumnRuns(to, source, runs, runCount, columns, k);
}

void unpackColumns(uint32_t *to, const CodeSource &source, Elements elements, int64_t columns, int64_t k) {
  TCC_OF_THIS_MACHINE(kUnpack).unpackColumns(to, source, elements, columns, k);
}

Ahead packedDuring(uint32_t *to, const Source &source, int64_t columns, int64_t k, int64_t panels) {
  return TCC_OF_THIS_MACHINE(kPacked).packedDuring(to, source, columns, k, panels);
}

void finish(Ahead &ahead, uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  TCC_OF_THIS_MACHINE(kPacked).finish(ahead, to, source, columns, k);
}

void multiply(bool dots, const RowPanel &a, const uint32_t *b, int64_t rows, int64_t columns, const Block &block) {
  TCC_OF_THIS_MACHINE(kPacked).multiply(dots, a, b, rows, columns, block);
}

void multiplyPixels(int64_t rows, int64_t columns, const PixelBlock &block) {
  TCC_OF_THIS_MACHINE(kPixel).multiplyPixels(rows, columns, block);
}

void multiplyTaps(bool dots, int64_t rows, int64_t columns, const TapBlock &block) {
  TCC_OF_THIS_MACHINE(kTap).multiplyTaps(dots, rows, columns, block);
}

void multiplyPlanes(bool dots, int64_t channels, const PlaneBlock &block) {
  TCC_OF_THIS_MACHINE(kPlane).multiplyPlanes(dots, channels, block);
}

void multiplyPlaneGradient(bool dots, int64_t rows, int64_t columns, const PlaneGradient &block) {
  TCC_OF_THIS_MACHINE(kPlane).multiplyPlaneGradient(dots, rows, columns, block);
}

void storePixels(const float *sums, int64_t pitch, int64_t pixels, int64_t channels, char *to, int64_t strideBytes,
                 Store store) {
  TCC_OF_THIS_MACHINE(kPlane).storePixels(sums, pitch, pixels, channels, to, strideBytes, store);
}

void copyLines(const char *from, int64_t fromPitch, int64_t lines, int64_t bytes, char *to, int64_t toPitch) {
  TCC_OF_THIS_MACHINE(kPlane).copyLines(from, fromPitch, lines, bytes, to, toPitch);
}

} // namespace packed

namespace depthwise {

void correlate(const Line &line) { TCC_OF_THIS_MACHINE(kDepthwise).correlate(line); }
void addProducts(const GradientLine &line) { TCC_OF_THIS_MACHINE(kDepthwise).addProducts(line); }

} // namespace depthwise

#ifdef TCC_PORTABLE
// No level of a portable build has these products (hasFewRows), so no call of theirs is made.
void fewrows::multiply(const Tile &) { __builtin_unreachable(); }
#endif

} // namespace tcc::runtime

//===- MatmulDesigns.cpp - a product's scratch, by implementation --------===//
#include "runtime/cpu/calls/MatmulDesigns.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/DynamicMap.h"
#include "runtime/plan/FourBits.h"

#include <bit>

namespace tcc::runtime {

using tiling::ceilDiv, tiling::roundUp;

packed::CodeLayout codesOf(const plan::FourBits &layout) {
  const bool bytes = layout.code() == plan::FourBits::INT8;
  packed::CodeLayout codes{bytes ? nullptr : plan::numbersOf(layout.code()).data(), 0,
                           plan::bitOfCode(layout.code(), 0) != 0, layout.strides(0), layout.strides(1)};
  const plan::BlockGrid &grid = layout.grid();
  if (!layout.has_grid()) {
    codes.blockBits = std::countr_zero(static_cast<uint64_t>(layout.block()));
    if (layout.nested())
      codes.scaleNumbers = plan::dynamicNumbers(plan::DynamicKind::Signed).data();
    return codes;
  }
  using Zeros = packed::CodeGrid::Zeros;
  const bool zeros = grid.zeros() != plan::BlockGrid::NONE;
  codes.grid = {grid.blocks(0),
                grid.blocks(1),
                grid.scale_strides(0),
                grid.scale_strides(1),
                zeros ? grid.zero_strides(0) : 0,
                zeros ? grid.zero_strides(1) : 0,
                grid.zeros() == plan::BlockGrid::CODES ? Zeros::Codes
                : zeros                                ? Zeros::Numbers
                                                       : Zeros::None};
  // A block of bytes is one index or all of them.
  if (bytes && codes.grid->kBlock > 1)
    codes.grid->kScale = 0;
  if (bytes && codes.grid->columnBlock > 1)
    codes.grid->columnScale = 0;
  return codes;
}

PackedDesign::PackedDesign(const MatmulShape &shape, const MatmulTiling &tiling, bool accumulate)
    : shape(shape), tiling(tiling), elements(elementsOfA(shape)), elementsOfB(runtime::elementsOfB(shape)),
      accumulate(accumulate) {
  int64_t words = packed::wordsOf(tiling.blockK, elements);
  packed::Source a{nullptr, 0, !shape.transA, elements};
  int64_t rows = packed::readsRowsInPlace(a, shape.k) ? 0 : tiling.tileM;
  offsetB = alignScratch(static_cast<uint64_t>(packed::packedRowWords(rows, words)) * 4);
  offsetSums = offsetB + alignScratch(static_cast<uint64_t>(2 * panelColumns() * words) * 4);
  slotBytes = offsetSums + (keepsSums() ? alignScratch(static_cast<uint64_t>(tiling.tileM * tiling.tileN) * 4) : 0);
}

FewRowsDesign::FewRowsDesign(const MatmulShape &shape, const MatmulTiling &tiling, bool accumulate)
    : shape(shape), tiling(tiling), elements(elementsOfA(shape)), elementsOfB(runtime::elementsOfB(shape)),
      accumulate(accumulate) {}

RowwiseDesign::RowwiseDesign(const MatmulShape &shape, int64_t tileM, int64_t blockK)
    : shape(shape), tileM(tileM), blockK(blockK), elements(elementsOfA(shape)),
      elementsOfB(runtime::elementsOfB(shape)) {
  int64_t columns = roundUp(shape.n, packed::kVector), words = packed::wordsOf(blockK, elements);
  sharedBytes = alignScratch(static_cast<uint64_t>(columns * (packed::wordsOf(shape.k, elements) + 1)) * 4);
  offsetC = alignScratch(static_cast<uint64_t>(packed::packedRowWords(tileM, words)) * 4);
  slotBytes = offsetC + alignScratch(static_cast<uint64_t>(tileM * shape.n) * 4);
}

LibraryMatmulDesign::LibraryMatmulDesign(const MatmulShape &s, const MatmulTiling &t, bool accumulate,
                                         uint64_t libraryBytes)
    : shape(s), tiling(t), accumulate(accumulate) {
  auto bytes = [&](bool needed, int64_t rows, int64_t columns, uint64_t elementBytes) {
    return needed ? alignScratch(static_cast<uint64_t>(t.tileBatch * rows * columns) * elementBytes) : 0;
  };
  offsetA = alignScratch(libraryBytes);
  offsetB = offsetA + bytes(t.packA(s), t.tileM, t.blockK, s.elementBytes);
  offsetC = offsetB + bytes(t.packB(s), t.tileN, t.blockK, s.elementBytes);
  slotBytes = offsetC + bytes(packsC(), t.tileM, t.tileN, t.bytesOfC(s));
}

namespace {
using Call = plan::MatmulCall;

uint64_t partialBytesOf(const MatmulShape &s, const MatmulTiling &t) {
  return t.chunks(s) > 1 ? static_cast<uint64_t>(t.chunks(s) * s.batch * s.m * s.n) * 4 : 0;
}

Status checkImplementation(const Call &call, const MatmulShape &s, const MatmulTiling &t) {
  // Blocks and chunks of our own kernels are whole words of K, but for the last ones.
  int64_t word = call.implementation() == Call::LIBRARY ? 1 : packed::elementsOfWord(elementsOfA(s));
  if ((t.blockK < t.chunkK && t.blockK % word) || (t.chunkK < s.k && t.chunkK % word))
    return error("a matmul's block_k of {} or chunk_k of {} splits a pair of bf16", t.blockK, t.chunkK);
  if (call.has_four_bits()) {
    const plan::FourBits &b = call.four_bits();
    if (call.implementation() != Call::PANELS || s.batch != 1 || call.accumulate() || call.rounds_b() ||
        !plan::isWellFormed(b) || b.dims_size() != 2 || b.dims(0) != s.k || b.dims(1) != s.n ||
        (b.strides(0) != 1 && b.strides(1) != 1))
      return error("no matmul call reads a matrix in 4 or 8 bits of this layout");
  }
  bool whole = t.tileM == s.m && t.blockK == s.k;
  switch (call.implementation()) {
  case Call::LIBRARY:
    if (s.roundsB)
      return error("oneDNN does not round an operand of a product");
    return Status::success();
  case Call::PANELS:
    return Status::success();
  case Call::FEW_ROWS:
    if (s.batch == 1 && whole && !s.transA && s.m <= kMostFewRows)
      return Status::success();
    break;
  case Call::ROWS_TO_KERNEL:
    if (s.batch == 1 && t.tileN == s.n && t.chunkK == s.k && !s.narrowC && !call.accumulate() &&
        call.row_operands() >= 0 && call.row_operands() <= kMostRowOperands)
      return Status::success();
    break;
  default:
    return error("implementation {} of a matmul is unknown to this version",
                 static_cast<int>(call.implementation()));
  }
  return error("a matmul of {} x {} x {} x {} in tiles of {} x {} x {} is none for '{}'", s.batch, s.m, s.n, s.k,
               t.tileM, t.tileN, t.blockK, implementationName(call));
}
} // namespace

Expected<CallNeeds> needsOf(const Call &call) {
  auto shape = shapeOf(call);
  if (!shape)
    return shape.status();
  auto tiling = tilingOf(call, *shape);
  if (!tiling)
    return tiling.status();
  if (Status status = checkImplementation(call, *shape, *tiling); !status.ok())
    return status;
  if (call.has_row_kernel() != (call.implementation() == Call::ROWS_TO_KERNEL))
    return error("a matmul by '{}' {} a kernel behind it", implementationName(call),
                 call.has_row_kernel() ? "has no" : "needs");
  CallNeeds needs;
  needs.partialBytes = partialBytesOf(*shape, *tiling);
  needs.scratchSlots = static_cast<uint64_t>(tiling->tiles(*shape));
  switch (call.implementation()) {
  case Call::PANELS:
    needs.scratchSlotBytes = PackedDesign(*shape, *tiling, call.accumulate()).slotBytes;
    break;
  case Call::ROWS_TO_KERNEL: {
    RowwiseDesign design(*shape, tiling->tileM, tiling->blockK);
    needs.scratchSlotBytes = design.slotBytes;
    needs.scratchSharedBytes = design.sharedBytes;
    break;
  }
  case Call::LIBRARY:
    needs.scratchSlotBytes =
        LibraryMatmulDesign(*shape, *tiling, call.accumulate(), call.library_scratch_bytes()).slotBytes;
    break;
  default:
    break;
  }
  return needs;
}

uint64_t libraryScratchBound(const MatmulShape &s, const MatmulTiling &t, CpuLevel level) {
  using tiling::roundUp;
  constexpr int64_t columnsOfB = 64;
  auto size = static_cast<int64_t>(s.elementBytes);
  bool pairs = size == 2;
  if (level == CpuLevel::Amx && pairs) {
    // Whole copies of all three.
    int64_t m = roundUp(t.tileM, 64), n = roundUp(t.tileN, 64), k = roundUp(t.blockK, 64);
    return alignScratch(static_cast<uint64_t>((m + n) * k * size + m * n * 4 + (128 << 10)));
  }
  bool isLong = t.blockK > 512, wide = pairs && isLong && s.transA;
  int64_t k = roundUp(std::min<int64_t>(t.blockK, 1024), 32),
          rows = roundUp(std::min<int64_t>(t.tileM, wide ? 512 : 256), 16), bytes = 1024;
  if (s.transB || pairs || t.tileN > 256)
    bytes += columnsOfB * k * size + 512;
  if (s.transA)
    bytes += rows * k * size + (16 << 10);
  if (isLong)
    bytes += rows * (wide ? std::min<int64_t>(roundUp(t.tileN, columnsOfB), 1024) : columnsOfB) * 4;
  if (pairs)
    bytes += 4096;
  return alignScratch(static_cast<uint64_t>(bytes));
}

std::string implementationName(const Call &call) {
  const char *words = call.dtype() != plan::BF16 ? "" : call.widened() ? " of widened bf16" : " of bf16";
  switch (call.implementation()) {
  case Call::PANELS:
    return std::string("panels") + words;
  case Call::FEW_ROWS:
    return std::string("few rows") + words;
  case Call::ROWS_TO_KERNEL:
    return std::string("rows") + words + " to kernel";
  case Call::BLAS:
    return std::string("cuBLASLt") + words + (call.tf32() ? " in tf32" : "");
  default:
    return std::string("oneDNN") + words;
  }
}

uint32_t numericsOf(Call::Implementation implementation) {
  switch (implementation) {
  case Call::PANELS:
  case Call::FEW_ROWS:
  case Call::ROWS_TO_KERNEL:
  case Call::LIBRARY:
  default:
    return 1;
  }
}

static Status lacks(const std::string &what, CpuLevel level) {
  return error("{} needs instructions that {} does not have; recompile the model with tcc", what, levelName(level));
}

Status checkLevel(const Call &call, CpuLevel level) {
  bool pairs = call.dtype() == plan::BF16 && !call.widened();
  bool missing = call.implementation() == Call::FEW_ROWS && !hasFewRows(level, call.dtype());
  if (missing || (pairs && !multipliesBf16(level)))
    return lacks(fmt::format("a matmul by {}", implementationName(call)), level);
  return Status::success();
}

Status checkLevel(const plan::ConvolutionCall &call, CpuLevel level) {
  if (call.dtype() == plan::BF16 && !call.widened() && !multipliesBf16(level))
    return lacks("a convolution of bf16", level);
  return Status::success();
}

uint32_t numericsOf(plan::ConvolutionCall::Form form) { return form == plan::ConvolutionCall::CHANNELS ? 2 : 3; }

static Status checkVersion(const std::string &name, uint32_t planned, uint32_t here) {
  if (planned == here)
    return Status::success();
  return error("the plan was made for numerics {} of '{}', this program has {}: results would differ; recompile the "
               "model with tcc",
               planned, name, here);
}

Status checkNumerics(const Call &call) {
  return checkVersion(implementationName(call), call.numerics(), numericsOf(call.implementation()));
}

Status checkNumerics(const plan::ConvolutionCall &call) {
  return checkVersion("convolution", call.numerics(), numericsOf(call.form()));
}

} // namespace tcc::runtime

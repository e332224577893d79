//===- Matmul.cpp - batched products by one-thread oneDNN primitives -----===//
//
// This file also prepares calls of all implementations from their descriptors.
//
// oneDNN's brgemm kernels require dense operands; for others it uses a kernel that allocates megabytes. So a tile
// copies its part of A or B, if that is strided, to its worker's scratch, multiplies there, and copies C out: the
// packing that a library does internally, but in memory that the plan accounts for. A long K is processed in blocks
// that stay in cache; the later blocks add to C. An accumulating product is summed first, then added to C, as if by a
// separate instruction: by the library if K is one block, else when the tile is copied out or partial sums are added.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/FewRowsMatmul.h"
#include "runtime/cpu/PackedMatmul.h"
#include "runtime/cpu/RowwiseMatmul.h"

#include "runtime/plan/DType.h"

#include <algorithm>
#include <cstring>

namespace tcc::runtime {

namespace {
/// A library primitive that the tiles of one call use.
struct Variant {
  int64_t batch, m, n, k;
  bool accumulate;
  bool operator==(const Variant &) const = default;
};

using tiling::ceilDiv;

/// A call's layout and the primitives of its tiles.
struct Design : LibraryMatmulDesign {
  using LibraryMatmulDesign::LibraryMatmulDesign;

  dnnl_data_type_t type = dnnl_f32; ///< of A and B as they are multiplied
  std::vector<Variant> variants;
  std::vector<PrimitiveDesc> descs;
  std::vector<std::vector<Primitive::Argument>> arguments;
};

/// The distinct sizes of the pieces when `size` is cut by `step`: the step, and the rest.
std::vector<int64_t> pieces(int64_t size, int64_t step) {
  std::vector<int64_t> result;
  if (size >= step)
    result.push_back(step);
  if (size % step)
    result.push_back(size % step);
  return result;
}

void addVariant(std::vector<Variant> &variants, const Variant &variant) {
  for (const Variant &known : variants)
    if (known == variant)
      return;
  variants.push_back(variant);
}

std::vector<Variant> makeVariants(const MatmulShape &s, const MatmulTiling &t, bool addsFirst) {
  std::vector<Variant> variants;
  for (int64_t batch : pieces(s.batch, t.tileBatch))
    for (int64_t m : pieces(s.m, t.tileM))
      for (int64_t n : pieces(s.n, t.tileN))
        for (int64_t chunk : pieces(s.k, t.chunkK))
          for (int64_t at = 0; at < chunk; at += t.blockK)
            addVariant(variants, {batch, m, n, std::min(t.blockK, chunk - at), at > 0 || addsFirst});
  return variants;
}

Status makeDesc(Design &design, const Variant &v) {
  std::vector<int64_t> aDims = {v.m, v.k}, bDims = {v.k, v.n}, cDims = {v.m, v.n};
  // A single row or column has the same layout as its transpose. Always describe it in one way: oneDNN's cache treats
  // the two as equal, so the kernel would depend on which of them the process made first.
  bool transA = design.shape.transA && v.m > 1 && v.k > 1, transB = design.shape.transB && v.k > 1 && v.n > 1;
  std::vector<int64_t> aStrides = transA ? std::vector<int64_t>{1, v.m} : std::vector<int64_t>{v.k, 1};
  std::vector<int64_t> bStrides = transB ? std::vector<int64_t>{1, v.k} : std::vector<int64_t>{v.n, 1};
  std::vector<int64_t> cStrides = {v.n, 1};
  if (v.batch > 1) {
    for (auto *dims : {&aDims, &bDims, &cDims})
      dims->insert(dims->begin(), v.batch);
    aStrides.insert(aStrides.begin(), v.m * v.k);
    bStrides.insert(bStrides.begin(), v.k * v.n);
    cStrides.insert(cStrides.begin(), v.m * v.n);
  }
  auto a = stridedDesc(aDims, design.type, aStrides), b = stridedDesc(bDims, design.type, bStrides),
       c = stridedDesc(cDims, design.tiling.bytesOfC(design.shape) == 4 ? dnnl_f32 : design.type, cStrides);
  for (auto *desc : {&a, &b, &c})
    if (!*desc)
      return desc->status();
  dnnl_matmul_desc_t operation{};
  if (dnnl_status_t status = dnnl_matmul_desc_init(&operation, &*a, &*b, nullptr, &*c); status != dnnl_success)
    return error("oneDNN refuses a matmul of {} x {} x {}: {}", v.m, v.n, v.k, libraryError(status));
  auto desc = PrimitiveDesc::create(&operation, v.accumulate, nullptr);
  if (!desc)
    return desc.status();
  design.variants.push_back(v);
  design.descs.push_back(desc.take());
  design.arguments.push_back({{DNNL_ARG_SRC, *a}, {DNNL_ARG_WEIGHTS, *b}, {DNNL_ARG_DST, *c}});
  return Status::success();
}

/// Makes the primitives for the tiles of a call.
Expected<Design> makeDesign(const plan::MatmulCall &call) {
  auto shape = shapeOf(call);
  if (!shape)
    return shape.status();
  auto tiling = tilingOf(call, *shape);
  if (!tiling)
    return tiling.status();
  Design design(*shape, *tiling, call.accumulate(), call.library_scratch_bytes());
  design.type = shape->widened ? dnnl_f32 : libraryType(call.dtype());
  WorkerScope scope;
  for (const Variant &variant : makeVariants(*shape, *tiling, design.addsFirst()))
    if (Status status = makeDesc(design, variant); !status.ok())
      return status;
  return design;
}

/// The largest scratch of the call's primitives.
uint64_t ownScratch(const Design &design) {
  uint64_t most = 0;
  for (const PrimitiveDesc &desc : design.descs)
    most = std::max(most, desc.scratchBytes());
  return most;
}

/// Copies a block of rows between matrices of different widths (bytes).
void copyRows(char *to, int64_t toStride, const char *from, int64_t fromStride, int64_t rows, int64_t rowBytes) {
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * toStride, from + row * fromStride, static_cast<size_t>(rowBytes));
}

/// The same with bf16 widened to f32.
void widenRows(char *to, const char *from, int64_t fromStride, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    auto *wide = reinterpret_cast<uint32_t *>(to) + row * columns;
    auto *narrow = reinterpret_cast<const uint16_t *>(from + row * fromStride);
    for (int64_t column = 0; column < columns; ++column)
      wide[column] = static_cast<uint32_t>(narrow[column]) << 16;
  }
}

/// The same with f32 rounded to bf16.
void roundRows(char *to, int64_t toStride, const char *from, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    auto *narrow = reinterpret_cast<uint16_t *>(to + row * toStride);
    auto *wide = reinterpret_cast<const float *>(from) + row * columns;
    for (int64_t column = 0; column < columns; ++column)
      narrow[column] = roundToBf16(wide[column]);
  }
}

/// Adds a dense block of f32 rows to rows of a wider matrix; the stride in bytes.
void addRows(char *to, int64_t toStride, const char *from, int64_t fromStride, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    auto *sum = reinterpret_cast<float *>(to + row * toStride);
    auto *product = reinterpret_cast<const float *>(from + row * fromStride);
    for (int64_t column = 0; column < columns; ++column)
      sum[column] += product[column];
  }
}

class MatmulRunner final : public LibraryCall {
public:
  explicit MatmulRunner(Design made) : design(std::move(made)) {}

  static Expected<std::unique_ptr<LibraryCall>> create(Design design, unsigned workers) {
    auto runner = std::make_unique<MatmulRunner>(std::move(design));
    WorkerScope scope;
    const Design &made = runner->design;
    for (size_t i = 0; i < made.descs.size(); ++i) {
      auto primitive = Primitive::create(made.descs[i], made.arguments[i], workers);
      if (!primitive)
        return primitive.status();
      runner->primitives.push_back(primitive.take());
    }
    return std::unique_ptr<LibraryCall>(std::move(runner));
  }

  int stages() const override { return design.partial() ? 2 : 1; }
  int64_t tiles(int stage) const override { return stage == 0 ? design.tiles() : PartialSums::tiles(elements()); }

  bool run(int stage, const CallContext &context, int64_t begin, int64_t end) const override {
    if (stage == 1) {
      PartialSums sums{static_cast<const float *>(context.pointers[design.positionOfC() + 1]),
                       design.tiling.chunks(design.shape), elements()};
      void *c = context.pointers[design.positionOfC()];
      if (design.shape.narrowC)
        sums.round(static_cast<uint16_t *>(c), begin, end);
      else
        sums.add(static_cast<float *>(c), design.accumulate, begin, end);
      return true;
    }
    bool good = true;
    for (int64_t tile = begin; tile < end; ++tile)
      good &=
          runTile(context.worker, tile, context.pointers,
                  context.scratch + slotOf(tile, design.tiles(), context.worker, context.workers) * design.slotBytes);
    return good;
  }

private:
  int64_t elements() const { return design.shape.batch * design.shape.m * design.shape.n; }

  bool runTile(unsigned worker, int64_t tile, void *const *pointers, char *slot) const {
    const MatmulShape &s = design.shape;
    const MatmulTiling &t = design.tiling;
    auto size = static_cast<int64_t>(s.widened ? 2 : s.elementBytes); // of A and B in memory
    int64_t sizeC = s.narrowC && !design.partial() ? 2 : 4;
    auto [b0, i0, j0, chunk] = t.placeOf(s, tile);
    Variant v{std::min(t.tileBatch, s.batch - b0), std::min(t.tileM, s.m - i0), std::min(t.tileN, s.n - j0), 0, false};
    int64_t k0 = chunk * t.chunkK, kEnd = std::min(k0 + t.chunkK, s.k);

    const char *a = static_cast<const char *>(pointers[0]) + b0 * s.m * s.k * size;
    const char *b = static_cast<const char *>(pointers[1]) + b0 * s.k * s.n * size;
    auto *whole = static_cast<char *>(pointers[design.positionOfC() + (design.partial() ? 1 : 0)]);
    char *c = whole + ((design.partial() ? chunk * s.batch : 0) + b0) * s.m * s.n * sizeC;
    c += (i0 * s.n + j0) * sizeC;
    char *target = design.packsC() ? slot + design.offsetC : c;

    for (int64_t at = k0; at < kEnd; at += t.blockK) {
      v.k = std::min(t.blockK, kEnd - at);
      v.accumulate = at > k0 || design.addsFirst();
      const char *partA = a + (s.transA ? at * s.m + i0 : i0 * s.k + at) * size;
      const char *partB = b + (s.transB ? j0 * s.k + at : at * s.n + j0) * size;
      // If a tile has several products, they are whole ones, so their rows are contiguous.
      if (t.packA(s)) {
        copyIn(slot + design.offsetA, partA, s.transA ? s.m : s.k, v.batch * (s.transA ? v.k : v.m),
               s.transA ? v.m : v.k);
        partA = slot + design.offsetA;
      }
      if (t.packB(s)) {
        copyIn(slot + design.offsetB, partB, s.transB ? s.k : s.n, v.batch * (s.transB ? v.n : v.k),
               s.transB ? v.k : v.n);
        partB = slot + design.offsetB;
      }
      void *operands[3] = {const_cast<char *>(partA), const_cast<char *>(partB), target};
      if (!find(v).execute(worker, operands, slot))
        return false;
    }
    if (design.packsC() && design.accumulate && !design.partial())
      addRows(c, s.n * 4, target, v.n * 4, v.m, v.n);
    else if (t.roundsC(s))
      roundRows(c, s.n * 2, target, v.batch * v.m, v.n);
    else if (t.packC(s))
      copyRows(c, s.n * sizeC, target, v.n * sizeC, v.m, v.n * sizeC);
    return true;
  }

  /// Copies rows of a wider matrix densely, in the type in which they are multiplied; `stride` is in elements.
  void copyIn(char *to, const char *from, int64_t stride, int64_t rows, int64_t columns) const {
    if (design.shape.widened)
      return widenRows(to, from, stride * 2, rows, columns);
    auto size = static_cast<int64_t>(design.shape.elementBytes);
    copyRows(to, columns * size, from, stride * size, rows, columns * size);
  }

  const Primitive &find(const Variant &variant) const {
    size_t i = 0;
    while (!(design.variants[i] == variant))
      ++i;
    return primitives[i];
  }

  Design design;
  std::vector<Primitive> primitives;
};
} // namespace

static Expected<std::unique_ptr<LibraryCall>> prepareLibrary(const plan::MatmulCall &call, CpuLevel level,
                                                             unsigned workers) {
  if (Status status = selectLevel(levelName(level)); !status.ok())
    return status;
  auto design = makeDesign(call);
  if (!design)
    return design.status();
  if (uint64_t bytes = ownScratch(*design); bytes > call.library_scratch_bytes())
    return error("this library takes {} bytes of scratch for a matmul, the plan bounds it by {}; recompile the model "
                 "with tcc",
                 bytes, call.library_scratch_bytes());
  return MatmulRunner::create(design.take(), workers);
}

Expected<std::unique_ptr<LibraryCall>> prepare(const plan::MatmulCall &call, CpuLevel level, const Scratch &scratch,
                                               unsigned workers, plan::KernelFunction rowKernel) {
  if (Status status = checkCall(call, level, scratch, workers); !status.ok())
    return status;
  if (call.implementation() == plan::MatmulCall::LIBRARY)
    return prepareLibrary(call, level, workers);
  MatmulShape shape = *shapeOf(call);
  MatmulTiling tiling = *tilingOf(call, shape);
  switch (call.implementation()) {
  case plan::MatmulCall::PANELS: {
    PackedDesign design(shape, tiling, call.accumulate());
    if (call.has_four_bits())
      design.codes = codesOf(call.four_bits());
    return makePackedMatmul(design);
  }
  case plan::MatmulCall::FEW_ROWS:
    return makeFewRowsMatmul(FewRowsDesign(shape, tiling, call.accumulate()));
  default:
    return makeRowwiseMatmul(RowwiseDesign(shape, tiling.tileM, tiling.blockK), rowKernel, call.row_operands());
  }
}

} // namespace tcc::runtime

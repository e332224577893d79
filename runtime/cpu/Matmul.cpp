//===- Matmul.cpp - batched products by one-thread oneDNN primitives -----===//
//
// oneDNN's brgemm kernels take dense operands only; anything else goes to a kernel that allocates megabytes. So a tile
// copies the part of A or B that lies inside a wider matrix to its worker's scratch, multiplies there, and copies C
// out: the work that a library does inside, with memory that the plan knows. Long K is taken in blocks that stay in
// cache, the later ones adding to C.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/cpu/MatmulTiling.h"

#include "runtime/plan/DType.h"

#include <atomic>
#include <cstring>

namespace tcc::runtime {

namespace {
/// A library primitive that the tiles of one call use.
struct Variant {
  int64_t batch, m, n, k;
  bool accumulate;
  bool operator==(const Variant &) const = default;
};

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Everything decided about a call.
struct Design {
  MatmulShape shape;
  MatmulTiling tiling;
  dnnl_data_type_t type;
  std::vector<Variant> variants;
  std::vector<PrimitiveDesc> descs;
  std::vector<std::vector<Primitive::Argument>> arguments;
  // A worker's slot: the primitive's own scratch, then copies of A, B and C (bytes from its start).
  uint64_t offsetA = 0, offsetB = 0, offsetC = 0, slotBytes = 0;

  bool partial() const { return tiling.chunks(shape) > 1; }
  int64_t tiles() const {
    return ceilDiv(shape.batch, tiling.tileBatch) * ceilDiv(shape.m, tiling.tileM) * ceilDiv(shape.n, tiling.tileN) *
           tiling.chunks(shape);
  }
};

/// The sizes that pieces of `step` cut `size` into: the step, and the rest.
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

std::vector<Variant> makeVariants(const MatmulShape &s, const MatmulTiling &t) {
  std::vector<Variant> variants;
  for (int64_t batch : pieces(s.batch, t.tileBatch))
    for (int64_t m : pieces(s.m, t.tileM))
      for (int64_t n : pieces(s.n, t.tileN))
        for (int64_t chunk : pieces(s.k, t.chunkK))
          for (int64_t at = 0; at < chunk; at += t.blockK)
            addVariant(variants, {batch, m, n, std::min(t.blockK, chunk - at), at > 0});
  return variants;
}

plan::Status makeDesc(Design &design, const Variant &v) {
  std::vector<int64_t> aDims = {v.m, v.k}, bDims = {v.k, v.n}, cDims = {v.m, v.n};
  // A row or column lies in memory as its transpose does. It is described in one way: oneDNN takes the two for equal,
  // so that which of their kernels a process gets would depend on what it made before.
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
       c = stridedDesc(cDims, design.type, cStrides);
  for (auto *desc : {&a, &b, &c})
    if (!*desc)
      return desc->status();
  dnnl_matmul_desc_t operation{};
  if (dnnl_status_t status = dnnl_matmul_desc_init(&operation, &*a, &*b, nullptr, &*c); status != dnnl_success)
    return plan::error("oneDNN refuses a matmul of {} x {} x {}: {}", v.m, v.n, v.k, libraryError(status));
  auto desc = PrimitiveDesc::create(&operation, v.accumulate, nullptr);
  if (!desc)
    return desc.status();
  design.variants.push_back(v);
  design.descs.push_back(desc.take());
  design.arguments.push_back({{DNNL_ARG_SRC, *a}, {DNNL_ARG_WEIGHTS, *b}, {DNNL_ARG_DST, *c}});
  return plan::Status::success();
}

plan::Expected<Design> makeDesign(const plan::MatmulCall &call) {
  if (!librarySupports(call.dtype()))
    return plan::error("oneDNN has no {} matmul on this level: the call must be compiled",
                       plan::dtypeName(call.dtype()));
  constexpr int64_t limit = int64_t(1) << 31;
  for (auto [name, value] : {std::pair{"batch", call.batch()}, {"m", call.m()}, {"n", call.n()}, {"k", call.k()}})
    if (value < 1 || value >= limit)
      return plan::error("a matmul with {} = {} is not supported", name, value);
  Design design;
  design.shape = {
      call.batch(), call.m(), call.n(), call.k(), call.trans_a(), call.trans_b(), plan::dtypeBytes(call.dtype())};
  design.tiling = chooseTiling(design.shape);
  design.type = libraryType(call.dtype());
  const MatmulShape &s = design.shape;
  const MatmulTiling &t = design.tiling;
  WorkerScope scope;
  uint64_t own = 0;
  for (const Variant &variant : makeVariants(s, t)) {
    if (plan::Status status = makeDesc(design, variant); !status.ok())
      return status;
    own = std::max(own, design.descs.back().scratchBytes());
  }
  auto bytes = [&](bool needed, int64_t rows, int64_t columns) {
    return needed ? alignScratch(static_cast<uint64_t>(rows * columns) * s.elementBytes) : 0;
  };
  design.offsetA = alignScratch(own);
  design.offsetB = design.offsetA + bytes(t.packA(s), t.tileM, t.blockK);
  design.offsetC = design.offsetB + bytes(t.packB(s), t.tileN, t.blockK);
  design.slotBytes = design.offsetC + bytes(t.packC(s), t.tileM, t.tileN);
  return design;
}

void describe(const Design &design, plan::MatmulCall &call) {
  call.set_tile_batch(design.tiling.tileBatch);
  call.set_tile_m(design.tiling.tileM);
  call.set_tile_n(design.tiling.tileN);
  call.set_chunk_k(design.tiling.chunkK);
  call.clear_kernels();
  for (const PrimitiveDesc &desc : design.descs) {
    plan::LibraryKernel *kernel = call.add_kernels();
    kernel->set_implementation(desc.implementation());
    kernel->set_scratch_bytes(desc.scratchBytes());
  }
}

/// Copies a block of rows between matrices of different widths (bytes).
void copyRows(char *to, int64_t toStride, const char *from, int64_t fromStride, int64_t rows, int64_t rowBytes) {
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * toStride, from + row * fromStride, static_cast<size_t>(rowBytes));
}

class MatmulRunner final : public LibraryCall {
public:
  static plan::Expected<std::unique_ptr<LibraryCall>> create(Design design, unsigned workers) {
    auto runner = std::make_unique<MatmulRunner>();
    WorkerScope scope;
    for (size_t i = 0; i < design.descs.size(); ++i) {
      auto primitive = Primitive::create(design.descs[i], design.arguments[i], workers);
      if (!primitive)
        return primitive.status();
      runner->primitives.push_back(primitive.take());
    }
    const MatmulShape &s = design.shape;
    const MatmulTiling &t = design.tiling;
    runner->tilesM = ceilDiv(s.m, t.tileM);
    runner->tilesN = ceilDiv(s.n, t.tileN);
    runner->tilesBatch = ceilDiv(s.batch, t.tileBatch);
    runner->design = std::move(design);
    return std::unique_ptr<LibraryCall>(std::move(runner));
  }

  bool run(ThreadPool &pool, void *const *pointers, char *scratch) const override {
    const MatmulShape &s = design.shape;
    int64_t chunks = design.tiling.chunks(s), tiles = design.tiles();
    std::atomic<bool> good{true};
    pool.run(tiles, [&](unsigned worker, int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile)
        if (!runTile(worker, tile, pointers, scratch + slotOf(tile, tiles, worker, pool) * design.slotBytes))
          good.store(false, std::memory_order_relaxed);
    });
    if (design.partial())
      addPartials(pool, static_cast<const float *>(pointers[3]), chunks, s.batch * s.m * s.n,
                  static_cast<float *>(pointers[2]));
    return good.load();
  }

private:
  /// Tiles of one column panel follow each other, so that its part of B stays in cache.
  bool runTile(unsigned worker, int64_t tile, void *const *pointers, char *slot) const {
    const MatmulShape &s = design.shape;
    const MatmulTiling &t = design.tiling;
    auto size = static_cast<int64_t>(s.elementBytes);
    int64_t i0 = tile % tilesM * t.tileM, j0 = tile / tilesM % tilesN * t.tileN;
    int64_t outer = tile / tilesM / tilesN;
    int64_t b0 = outer % tilesBatch * t.tileBatch, chunk = outer / tilesBatch;
    Variant v{std::min(t.tileBatch, s.batch - b0), std::min(t.tileM, s.m - i0), std::min(t.tileN, s.n - j0), 0, false};
    int64_t k0 = chunk * t.chunkK, kEnd = std::min(k0 + t.chunkK, s.k);

    const char *a = static_cast<const char *>(pointers[0]) + b0 * s.m * s.k * size;
    const char *b = static_cast<const char *>(pointers[1]) + b0 * s.k * s.n * size;
    char *c = design.partial() ? static_cast<char *>(pointers[3]) + (chunk * s.batch + b0) * s.m * s.n * size
                               : static_cast<char *>(pointers[2]) + b0 * s.m * s.n * size;
    c += (i0 * s.n + j0) * size;
    char *target = t.packC(s) ? slot + design.offsetC : c;

    for (int64_t at = k0; at < kEnd; at += t.blockK) {
      v.k = std::min(t.blockK, kEnd - at);
      v.accumulate = at > k0;
      const char *partA = a + (s.transA ? at * s.m + i0 : i0 * s.k + at) * size;
      const char *partB = b + (s.transB ? j0 * s.k + at : at * s.n + j0) * size;
      if (t.packA(s)) {
        if (s.transA)
          copyRows(slot + design.offsetA, v.m * size, partA, s.m * size, v.k, v.m * size);
        else
          copyRows(slot + design.offsetA, v.k * size, partA, s.k * size, v.m, v.k * size);
        partA = slot + design.offsetA;
      }
      if (t.packB(s)) {
        if (s.transB)
          copyRows(slot + design.offsetB, v.k * size, partB, s.k * size, v.n, v.k * size);
        else
          copyRows(slot + design.offsetB, v.n * size, partB, s.n * size, v.k, v.n * size);
        partB = slot + design.offsetB;
      }
      void *operands[3] = {const_cast<char *>(partA), const_cast<char *>(partB), target};
      if (!find(v).execute(worker, operands, slot))
        return false;
    }
    if (t.packC(s))
      copyRows(c, s.n * size, target, v.n * size, v.m, v.n * size);
    return true;
  }

  const Primitive &find(const Variant &variant) const {
    size_t i = 0;
    while (!(design.variants[i] == variant))
      ++i;
    return primitives[i];
  }

  Design design;
  std::vector<Primitive> primitives;
  int64_t tilesM = 0, tilesN = 0, tilesBatch = 0;
};
} // namespace

namespace {
LibraryNeeds needsOf(const Design &design) {
  const MatmulShape &s = design.shape;
  LibraryNeeds needs;
  needs.scratchSlotBytes = design.slotBytes;
  needs.scratchSlots = static_cast<uint64_t>(design.tiles());
  if (design.partial())
    needs.partialBytes = static_cast<uint64_t>(design.tiling.chunks(s) * s.batch * s.m * s.n) * 4;
  return needs;
}
} // namespace

plan::Expected<LibraryNeeds> query(plan::MatmulCall &call) {
  auto design = makeDesign(call);
  if (!design)
    return design.status();
  describe(*design, call);
  return needsOf(*design);
}

plan::Expected<std::unique_ptr<LibraryCall>> prepare(const plan::MatmulCall &call, const Scratch &scratch,
                                                     unsigned workers) {
  auto design = makeDesign(call);
  if (!design)
    return design.status();
  plan::MatmulCall chosen = call;
  describe(*design, chosen);
  if (std::string reason = kernelMismatch(call, chosen); !reason.empty())
    return plan::error("{}; recompile the model with tcc", reason);
  if (std::string reason = scratchMismatch(scratch, needsOf(*design), workers); !reason.empty())
    return plan::error("{}; recompile the model with tcc", reason);
  return MatmulRunner::create(design.take(), workers);
}

} // namespace tcc::runtime

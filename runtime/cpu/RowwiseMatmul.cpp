//===- RowwiseMatmul.cpp - a product whose rows go to a kernel -----------===//
//
// First all of B is packed into panels, which all workers share. Then a tile multiplies some rows of A with every
// panel. Its rows of C are in the worker's scratch, small enough for the core's second-level cache, and the kernel
// reads them there. So a gradient reaches the update of its parameter without a round trip through memory, and while
// one worker's kernel waits for the parameter, another worker multiplies.
//
// A sum runs through K in the same blocks as in a separate product, so the bits are the same.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/RowwiseMatmul.h"

#include <algorithm>
#include <array>

namespace tcc::runtime {

using packed::Block, packed::Elements, packed::Source, packed::Store;

namespace {
using tiling::ceilDiv;

constexpr int64_t kPackedBytes = 32 << 10; // bytes of B that a worker packs at a time

class RowwiseMatmul final : public LibraryCall {
public:
  RowwiseMatmul(const RowwiseDesign &chosen, plan::KernelFunction kernel, int operands)
      : design(chosen), kernel(kernel), operands(operands), panels(ceilDiv(design.shape.n, packed::kColumns)),
        vectors(ceilDiv(design.shape.n, packed::kVector)) {
    int64_t bytes = packed::kColumns * 4 * packed::wordsOf(design.shape.k, design.elements);
    panelsATime = std::max<int64_t>(1, kPackedBytes / bytes);
  }

  int stages() const override { return 2; }
  int longestStage() const override { return 1; }
  int64_t tiles(int stage) const override { return stage == 0 ? ceilDiv(panels, panelsATime) : design.tiles(); }

  bool run(int stage, const CallContext &context, int64_t begin, int64_t end) const override {
    auto *shared = reinterpret_cast<uint32_t *>(context.scratch);
    if (stage == 0) {
      for (int64_t panel = begin * panelsATime; panel < std::min(panels, end * panelsATime); ++panel)
        pack(static_cast<const char *>(context.pointers[1]), panel, shared);
      return true;
    }
    for (int64_t tile = begin; tile < end; ++tile) {
      char *slot = context.scratch + design.sharedBytes +
                   slotOf(tile, design.tiles(), context.worker, context.workers) * design.slotBytes;
      multiplyRows(tile, static_cast<const char *>(context.pointers[0]), shared, slot);
      runKernel(tile, context.pointers, slot);
    }
    return true;
  }

private:
  int64_t columnsOf(int64_t panel) const {
    return std::min(packed::kColumns, design.shape.n - panel * packed::kColumns);
  }

  /// Offset in the shared scratch of a panel for the block of K from `k` on, of `words` words.
  int64_t wordsBefore(int64_t panel, int64_t k, int64_t words) const {
    int64_t before = packed::wordsOf(k, design.elements);
    return (before * vectors + words * panel * packed::kVectors) * packed::kVector;
  }

  void pack(const char *b, int64_t panel, uint32_t *shared) const {
    const MatmulShape &s = design.shape;
    int64_t size = packed::bytesOf(design.elementsOfB), j = panel * packed::kColumns;
    for (int64_t at = 0; at < s.k; at += design.blockK) {
      int64_t k = std::min(design.blockK, s.k - at);
      Source source{b + (s.transB ? j * s.k + at : at * s.n + j) * size, s.transB ? s.k : s.n, s.transB,
                    design.elementsOfB};
      packed::packColumns(shared + wordsBefore(panel, at, packed::wordsOf(k, design.elements)), source,
                          columnsOf(panel), k);
    }
  }

  void multiplyRows(int64_t tile, const char *a, const uint32_t *shared, char *slot) const {
    const MatmulShape &s = design.shape;
    int64_t size = packed::bytesOf(design.elements), i0 = tile * design.tileM, rows = std::min(design.tileM, s.m - i0);
    auto *panelsA = reinterpret_cast<uint32_t *>(slot);
    auto *c = reinterpret_cast<float *>(slot + design.offsetC);
    packed::Ahead nothing; // panels are contiguous, so the hardware prefetcher suffices
    for (int64_t at = 0; at < s.k; at += design.blockK) {
      int64_t k = std::min(design.blockK, s.k - at), words = packed::wordsOf(k, design.elements);
      Source source{a + (s.transA ? at * s.m + i0 : i0 * s.k + at) * size, s.transA ? s.m : s.k, !s.transA,
                    design.elements};
      bool inPlace = packed::readsRowsInPlace(source, s.k);
      if (!inPlace)
        packed::packRows(panelsA, source, rows, k);
      for (int64_t panel = 0; panel < panels; ++panel) {
        const uint32_t *b = shared + wordsBefore(panel, at, words);
        for (int64_t row = 0; row < rows; row += packed::kRows) {
          packed::RowPanel panelA{panelsA + row * words, 0};
          if (inPlace)
            panelA = {reinterpret_cast<const uint32_t *>(source.data + row * s.k * size), s.k * size / 4};
          float *sum = c + row * s.n + panel * packed::kColumns;
          packed::multiply(
              packed::isDotted(design.elements), panelA, b, std::min(packed::kRows, rows - row), columnsOf(panel),
              {words, at == 0 ? nullptr : sum, s.n, sum, s.n, Store::Overwrite, /*isCold=*/false, &nothing});
        }
      }
    }
  }

  /// Passes the address that C would have if all of its rows were stored.
  void runKernel(int64_t tile, void *const *pointers, char *slot) const {
    std::array<void *, kMostRowOperands + 1> rest;
    auto rows = reinterpret_cast<uintptr_t>(slot + design.offsetC);
    rest[0] = reinterpret_cast<void *>(rows - static_cast<uintptr_t>(tile * design.tileM * design.shape.n) * 4);
    std::copy_n(pointers + 2, operands, rest.begin() + 1);
    kernel(rest.data(), tile, tile + 1, nullptr);
  }

  RowwiseDesign design;
  plan::KernelFunction kernel;
  int operands;
  int64_t panels, vectors, panelsATime;
};
} // namespace

std::unique_ptr<LibraryCall> makeRowwiseMatmul(const RowwiseDesign &design, plan::KernelFunction kernel, int operands) {
  return std::make_unique<RowwiseMatmul>(design, kernel, operands);
}

} // namespace tcc::runtime

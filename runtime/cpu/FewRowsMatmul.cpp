//===- FewRowsMatmul.cpp - products of few rows, without the library -----===//
//
// A product of few rows is memory-bound: it does little with each element of its second matrix, a weight. So a tile is
// some columns, with all rows and all of K: each element is read once, in place, by one worker, and no partial sums are
// stored (FewRowsProduct.cpp).
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/FewRowsMatmul.h"

#include "runtime/cpu/FewRowsProduct.h"

#include <algorithm>

namespace tcc::runtime {

namespace {
using packed::Elements, packed::Store;

class FewRowsMatmul final : public LibraryCall {
public:
  explicit FewRowsMatmul(const FewRowsDesign &chosen) : design(chosen) {}

  int stages() const override { return 1; }
  int64_t tiles(int) const override { return design.tiles(); }

  bool run(int, const CallContext &context, int64_t begin, int64_t end) const override {
    const MatmulShape &s = design.shape;
    int64_t first = begin * design.tiling.tileN, last = std::min(end * design.tiling.tileN, s.n);
    auto *a = static_cast<const char *>(context.pointers[0]), *b = static_cast<const char *>(context.pointers[1]);
    // The addend precedes C among the operands and has the same memory.
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

std::unique_ptr<LibraryCall> makeFewRowsMatmul(const FewRowsDesign &design) {
  return std::make_unique<FewRowsMatmul>(design);
}

} // namespace tcc::runtime

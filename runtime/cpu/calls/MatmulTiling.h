//===- MatmulTiling.h - how a product is cut into tiles ---------*- C++ -*-===//
//
// Shape and tiles of a MatmulCall. The compiler chooses the tiles, the plan carries them, the device follows them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CALLS_MATMULTILING_H
#define TCC_RUNTIME_CPU_CALLS_MATMULTILING_H

#include "runtime/cpu/calls/PanelWords.h"
#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include <cstdint>

namespace tcc::runtime {

struct MatmulShape {
  int64_t batch, m, n, k;
  bool transA, transB;
  uint64_t elementBytes; ///< of A and B as they are multiplied
  bool widened = false;  ///< A and B are stored in 16 bits and multiplied in f32
  bool narrowC = false;  ///< C is stored in 16 bits
  bool roundsB = false;  ///< B is stored in f32, rounded to bf16 and multiplied in bf16: never by the library
};

/// The first element of a tile in each axis, and its chunk of K.
struct MatmulPlace {
  int64_t batch, i, j, chunk;
};

/// A tile is tileBatch products, or tileM × tileN of one product for one chunk of K, computed in blocks of blockK.
struct MatmulTiling {
  int64_t tileBatch, tileM, tileN;
  int64_t chunkK; ///< K of one chunk; several chunks: partial sums
  int64_t blockK; ///< K of one library call, at most chunkK

  int64_t chunks(const MatmulShape &shape) const { return (shape.k + chunkK - 1) / chunkK; }

  int64_t tiles(const MatmulShape &shape) const;
  /// Tiles of one column panel are consecutive, so that its part of B stays in cache.
  MatmulPlace placeOf(const MatmulShape &shape, int64_t tile) const;

  /// oneDNN's fast kernels require dense operands: parts of a wider matrix are copied to scratch first.
  bool packA(const MatmulShape &s) const { return s.widened || (s.transA ? tileM != s.m : blockK != s.k); }
  bool packB(const MatmulShape &s) const { return s.widened || (s.transB ? blockK != s.k : tileN != s.n); }
  bool packC(const MatmulShape &s) const { return tileN != s.n || roundsC(s); }
  /// Sums of 16-bit results are kept in f32 until the last block of K is in; partial sums are f32 anyway.
  bool roundsC(const MatmulShape &s) const { return s.narrowC && chunks(s) == 1 && (s.widened || blockK != s.k); }
  uint64_t bytesOfC(const MatmulShape &s) const { return s.narrowC && chunks(s) == 1 && !roundsC(s) ? 2 : 4; }
};

/// The elements of A and B as our own kernels read and multiply them.
packed::Elements elementsOfA(const MatmulShape &shape);
packed::Elements elementsOfB(const MatmulShape &shape);

namespace tiling {
inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t roundUp(int64_t value, int64_t unit) { return ceilDiv(value, unit) * unit; }
} // namespace tiling

/// Shape and tiles of a call. Error: sizes below 1 or too large, tiles that do not fit the shape, an invalid type or
/// flag.
Expected<MatmulShape> shapeOf(const plan::MatmulCall &call);
Expected<MatmulTiling> tilingOf(const plan::MatmulCall &call, const MatmulShape &shape);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLS_MATMULTILING_H

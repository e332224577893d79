//===- Roofline.h - measure this machine's peak rates -----------*- C++ -*-===//
//
// The two ceilings of the roofline model (Williams, Waterman, Patterson, Roofline: an insightful visual performance
// model, 2009): arithmetic, measured by matrix products of good shapes through the library path that plans use, and
// memory bandwidth, measured by copying a buffer larger than all caches. The best of several repetitions counts,
// because other load on the machine can only slow a measurement down.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_ROOFLINE_H
#define TCC_RUNTIME_CPU_ROOFLINE_H

#include "support/Status.h"
#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tcc::runtime {

/// The fastest product of an element type: C [m, n] = A [m, k] · B, with B stored as [k, n], or as [n, k] if `transB`.
struct MatmulPeak {
  plan::DType dtype = plan::F32;
  int64_t m = 0, n = 0, k = 0;
  bool transB = false;
  double flopsPerSecond = 0;
};

struct Roofline {
  unsigned threads = 1;
  std::vector<MatmulPeak> matmul; ///< one for each requested type that the library multiplies, f32 first
  double bytesPerSecond = 0;      ///< read and written by a copy
  uint64_t copiedBytes = 0;       ///< size of the copied buffer

  /// The rate of a type; that of f32 if the type was not measured; 0 if nothing was.
  double flopsPerSecond(plan::DType dtype) const;
};

/// Measures with `threads` threads, in about a second, with the instructions of a machine level; always f32, other
/// types if the level has them. Error: a level that this machine lacks; too little memory.
Expected<Roofline> measureRoofline(unsigned threads, const std::string &target, const std::vector<plan::DType> &types);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_ROOFLINE_H

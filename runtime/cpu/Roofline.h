//===- Roofline.h - what this machine can do at most ------------*- C++ -*-===//
//
// The two ceilings of the roofline model (Williams, Waterman, Patterson, Roofline: an insightful visual performance
// model, 2009): arithmetic, measured by matrix products of good shapes through the library path that plans use, and
// memory bandwidth, measured by copying what no cache holds. The best of several repetitions counts: others on the
// machine only ever slow one down.
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

/// The fastest product of an element type: C [m, n] = A [m, k] · B, B lying as [k, n], or [n, k] where `transB`.
struct MatmulPeak {
  plan::DType dtype = plan::F32;
  int64_t m = 0, n = 0, k = 0;
  bool transB = false;
  double flopsPerSecond = 0;
};

struct Roofline {
  unsigned threads = 1;
  std::vector<MatmulPeak> matmul; ///< one for each type asked for that the library multiplies, f32 first
  double bytesPerSecond = 0;      ///< read and written by a copy
  uint64_t copiedBytes = 0;       ///< size of the copied buffer

  /// The rate of a type; f32's where that type was not measured; 0 where nothing was.
  double flopsPerSecond(plan::DType dtype) const;
};

/// Measures on so many threads, in about a second, with the instructions of a machine level; f32 always, further types
/// where the level has them. Error: a level that this machine lacks; too little memory.
Expected<Roofline> measureRoofline(unsigned threads, const std::string &target, const std::vector<plan::DType> &types);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_ROOFLINE_H

//===- Vectors.h - the registers of one machine level -----------*- C++ -*-===//
//
// The kernels of products are one text, which CMakeLists.txt compiles once for each level: without instructions of its
// own (VectorsBaseline.h), for AVX2 (VectorsAvx2.h) and for AVX-512 (VectorsAvx512.h). Each of these headers gives the
// same names to the registers of its level and to what the kernels do with them. The sums of all levels run in one
// order by fused multiply-adds, so their bits are equal.
//
// A text includes this header last and closes with TCC_LEVEL_END. Between the two the compiler may use the level's
// instructions, so all that stands there is in an anonymous namespace or in the level's own (TCC_LEVEL): the linker
// would take one copy of an inline function that two levels share, perhaps with instructions that the machine lacks.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_VECTORS_H
#define TCC_RUNTIME_CPU_VECTORS_H

/// For the functions that kernels consist of: their sums stay in registers only where all of a loop is one function.
#define TCC_INLINE inline __attribute__((always_inline))

#include TCC_VECTORS

namespace tcc::runtime::packed {
namespace {

/// Stores sums of a row of C.
TCC_INLINE void storeSums(void *to, Lanes lanes, Floats sum, Store how) {
  if (how == Store::Round)
    return storeRounded(to, lanes, sum);
  if (how == Store::Add)
    sum = add(asFloats(load(to, lanes)), sum);
  store(to, lanes, sum);
}

/// True if a block of sums takes all columns of a panel, whose words are then a constant number of registers apart.
constexpr bool kBlockIsPanel = kBlockVectors * kLanes >= kColumns;

/// Size of the first part when `whole` is cut into as few parts of at most `most` as possible, whose sizes differ by at
/// most one.
TCC_INLINE int64_t firstPart(int64_t whole, int64_t most) {
  if (whole <= most)
    return whole;
  int64_t parts = (whole + most - 1) / most;
  return (whole + parts - 1) / parts;
}

} // namespace
} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_VECTORS_H

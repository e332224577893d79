//===- Dimensions.h - sizes from lists of dimensions ------------*- C++ -*-===//
#ifndef TCC_RUNTIME_CPU_CALLS_DIMENSIONS_H
#define TCC_RUNTIME_CPU_CALLS_DIMENSIONS_H

#include <cstdint>

namespace tcc::runtime {

/// The product of the dimensions from `from` on.
template <typename Dims> int64_t product(const Dims &dims, int from) {
  int64_t value = 1;
  for (int i = from; i < dims.size(); ++i)
    value *= dims[i];
  return value;
}

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLS_DIMENSIONS_H

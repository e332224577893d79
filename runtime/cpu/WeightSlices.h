//===- WeightSlices.h - weights into the library's layout, by all workers -===//
//
// A convolution's weights are copied between the plan's layout and the one that its primitive asks for. Slices along
// the axis that is outermost there lie apart in both layouts, so that workers copy them side by side. How many there
// are follows from the shape; no bit depends on it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_WEIGHTSLICES_H
#define TCC_RUNTIME_CPU_WEIGHTSLICES_H

#include "runtime/cpu/LibraryPrimitive.h"

#include <array>

namespace tcc::runtime {

struct WeightSlices {
  int64_t count = 1;
  uint64_t plainStep = 0, askedStep = 0; ///< bytes from one slice to the next
  /// Of all slices but the last, and of the last.
  std::array<dnnl_memory_desc_t, 2> plain, asked;
  std::array<PrimitiveDesc, 2> reorder;

  /// `back`: from what the primitive asks for to the plan's layout.
  static Expected<WeightSlices> create(const dnnl_memory_desc_t &plain, const dnnl_memory_desc_t &asked,
                                             bool back);

  size_t kindOf(int64_t slice) const { return slice + 1 < count ? 0 : 1; }
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_WEIGHTSLICES_H

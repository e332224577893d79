//===- Nvtx.h - ranges for NVIDIA's profilers ------------------------------===//
//
// A profiler such as Nsight Systems names a library in NVTX_INJECTION64_PATH. The library is opened once and provides
// the functions to call; without it nothing is called. The tables and their numbers are those of NVTX 3
// (github.com/NVIDIA/NVTX, nvtxDetail/nvtxTypes.h), a header-only library.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_NVTX_H
#define TCC_SUPPORT_NVTX_H

#include <cstdint>

namespace tcc::nvtx {

/// True if a profiler records ranges.
bool isAttached();

/// Begins a range of this thread inside its open ranges: `name`, then label and number if there is a label. Requires an
/// attached profiler.
void push(const char *name, const char *label, uint64_t number);

/// Ends this thread's innermost range.
void pop();

} // namespace tcc::nvtx

#endif // TCC_SUPPORT_NVTX_H

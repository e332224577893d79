//===- Nvtx.h - ranges for NVIDIA's profilers ------------------------------===//
//
// A profiler such as Nsight Systems names a library in NVTX_INJECTION64_PATH. It is opened once and gives functions to
// call; without it nothing is called. The tables and their numbers are those of NVTX 3 (github.com/NVIDIA/NVTX,
// nvtxDetail/nvtxTypes.h), which is headers alone.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_NVTX_H
#define TCC_SUPPORT_NVTX_H

#include <cstdint>

namespace tcc::nvtx {

/// A profiler takes ranges.
bool isAttached();

/// Begins a range of this thread inside those that are open: `name`, then label and number where there is a label. Only
/// where a profiler is attached.
void push(const char *name, const char *label, uint64_t number);

/// Ends this thread's innermost range.
void pop();

} // namespace tcc::nvtx

#endif // TCC_SUPPORT_NVTX_H

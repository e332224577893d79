//===- Entry.h - what every entry point begins with ----------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_ENTRY_H
#define TCC_TEST_EMULATION_DRIVER_ENTRY_H

#include "test/emulation/driver/StandIn.h"

#include <fmt/format.h>

// Declares all entry points, so that a definition with other types does not compile.
namespace tcc::cuda::api {
#define TCC_DECLARE(member, symbol, parameters) extern "C" CUresult symbol parameters;
TCC_CUDA_ENTRY_POINTS(TCC_DECLARE)
#undef TCC_DECLARE
#define TCC_DECLARE(member, symbol, parameters) extern "C" cublasStatus_t symbol parameters;
TCC_BLASLT_ENTRY_POINTS(TCC_DECLARE)
#undef TCC_DECLARE
#define TCC_DECLARE(member, symbol, parameters) extern "C" cudnnStatus_t symbol parameters;
TCC_CUDNN_ENTRY_POINTS(TCC_DECLARE)
#undef TCC_DECLARE
#define TCC_DECLARE(member, symbol, parameters) extern "C" ncclResult_t symbol parameters;
TCC_NCCL_ENTRY_POINTS(TCC_DECLARE)
#undef TCC_DECLARE
} // namespace tcc::cuda::api

#define TCC_ENTRY extern "C" __attribute__((visibility("default"))) CUresult

/// Locks the driver and names it `d`; returns from the entry point if the driver's state forbids the call.
#define TCC_BEGIN_WITH(context)                                                                                        \
  StandIn &d = standIn();                                                                                              \
  std::lock_guard lock(d.mutex);                                                                                       \
  if (CUresult refused = d.enter(context))                                                                             \
  return refused
#define TCC_BEGIN TCC_BEGIN_WITH(true)
#define TCC_BEGIN_WITHOUT_CONTEXT TCC_BEGIN_WITH(false)

namespace tcc::emulation {

/// Error codes that the runtime has no names for and handles like any other error.
inline constexpr auto kIllegalState = static_cast<cuda::api::CUresult>(401);
inline constexpr auto kCaptureMerge = static_cast<cuda::api::CUresult>(902);
inline constexpr auto kCaptureUnmatched = static_cast<cuda::api::CUresult>(903);
inline constexpr auto kCaptureWrongThread = static_cast<cuda::api::CUresult>(908);

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_ENTRY_H

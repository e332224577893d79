//===- Driver.h - the part of CUDA's driver interface that we call -------===//
//
// Types, constants and entry points of libcuda.so.1, declared from the documentation (CUDA Driver API, CUDA 12.0 and
// later), so that the runtime is built on machines without CUDA. Names are those of the documentation, in a namespace
// of their own; a symbol is the versioned name that `cuda.h` maps the documented one to. DriverDeclarationsTest.cpp
// compares every declaration with the real header where the machine has it.
//
// TCC_CUDA_ENTRY_POINTS is the list: X(member, symbol, parameters). Every entry point returns a CUresult. A library
// that offers these symbols with these types can stand in for the driver.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_API_DRIVER_H
#define TCC_RUNTIME_CUDA_API_DRIVER_H

#include <cstddef>
#include <cstdint>

namespace tcc::cuda::api {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st *;
using CUmodule = struct CUmod_st *;
using CUfunction = struct CUfunc_st *;
using CUstream = struct CUstream_st *;
using CUevent = struct CUevent_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphExec = struct CUgraphExec_st *;
using CUhostFn = void (*)(void *data);

struct CUuuid {
  char bytes[16];
};

/// Section "Data types used by CUDA driver", cudaError_enum. Other values may be returned, too.
enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, ///< kHz
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,       ///< kHz
  CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37, ///< bits
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
};

enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3, ///< of one thread: spills and arrays
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
};

/// Options of cuModuleLoadDataEx. A value is passed in the bits of a pointer, a size as itself.
enum CUjit_option : int {
  CU_JIT_INFO_LOG_BUFFER = 3,
  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4, ///< in: the buffer's bytes; out: the bytes written
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6, ///< as above
};

enum CUstream_flags : unsigned {
  CU_STREAM_DEFAULT = 0,
  CU_STREAM_NON_BLOCKING = 1, ///< not ordered with the legacy default stream
};

enum CUevent_flags : unsigned {
  CU_EVENT_DEFAULT = 0,
  CU_EVENT_BLOCKING_SYNC = 1,
  CU_EVENT_DISABLE_TIMING = 2,
};

enum CUstreamCaptureMode : int {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

/// Flags of cuMemHostAlloc.
inline constexpr unsigned kMemHostAllocPortable = 1;

// clang-format off
#define TCC_CUDA_ENTRY_POINTS(X)                                                                                       \
  /* Error handling, initialisation, version */                                                                        \
  X(getErrorName, cuGetErrorName, (CUresult error, const char **name))                                                 \
  X(getErrorString, cuGetErrorString, (CUresult error, const char **text))                                             \
  X(init, cuInit, (unsigned flags))                                                                                    \
  X(driverGetVersion, cuDriverGetVersion, (int *version)) /* 1000 * major + 10 * minor */                              \
  /* Devices */                                                                                                        \
  X(deviceGet, cuDeviceGet, (CUdevice *device, int ordinal))                                                           \
  X(deviceGetCount, cuDeviceGetCount, (int *count))                                                                    \
  X(deviceGetName, cuDeviceGetName, (char *name, int bytes, CUdevice device))                                          \
  X(deviceGetUuid, cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device))                                                \
  X(deviceGetAttribute, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))             \
  X(deviceTotalMem, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                                             \
  /* The primary context */                                                                                            \
  X(devicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                           \
  X(devicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                          \
  X(ctxSetCurrent, cuCtxSetCurrent, (CUcontext context))                                                               \
  X(ctxSynchronize, cuCtxSynchronize, ())                                                                              \
  /* Memory */                                                                                                         \
  X(memGetInfo, cuMemGetInfo_v2, (size_t *freeBytes, size_t *totalBytes))                                              \
  X(memAlloc, cuMemAlloc_v2, (CUdeviceptr *address, size_t bytes))                                                     \
  X(memFree, cuMemFree_v2, (CUdeviceptr address))                                                                      \
  X(memHostAlloc, cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                                      \
  X(memFreeHost, cuMemFreeHost, (void *address))                                                                       \
  X(memcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))          \
  X(memcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                \
  X(memcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))          \
  X(memsetD8Async, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))              \
  X(memsetD16Async, cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))           \
  X(memsetD32Async, cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                 \
  /* `height` rows of `width` words, `pitch` bytes apart */                                                            \
  X(memsetD2D32Async, cuMemsetD2D32Async,                                                                              \
    (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream))                      \
  /* Streams and events */                                                                                             \
  X(streamCreate, cuStreamCreate, (CUstream *stream, unsigned flags))                                                  \
  X(streamDestroy, cuStreamDestroy_v2, (CUstream stream))                                                              \
  X(streamSynchronize, cuStreamSynchronize, (CUstream stream))                                                         \
  X(streamQuery, cuStreamQuery, (CUstream stream))                                                                     \
  /* `function` must not call the driver */                                                                            \
  X(launchHostFunc, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data))                                \
  X(streamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                              \
  X(eventCreate, cuEventCreate, (CUevent *event, unsigned flags))                                                      \
  X(eventDestroy, cuEventDestroy_v2, (CUevent event))                                                                  \
  X(eventRecord, cuEventRecord, (CUevent event, CUstream stream))                                                      \
  X(eventSynchronize, cuEventSynchronize, (CUevent event))                                                             \
  X(eventQuery, cuEventQuery, (CUevent event))                                                                         \
  X(eventElapsedTime, cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))                           \
  /* Graphs */                                                                                                         \
  X(streamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                          \
  X(streamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph *graph))                                           \
  X(graphInstantiate, cuGraphInstantiateWithFlags, (CUgraphExec *executable, CUgraph graph, unsigned long long flags)) \
  X(graphLaunch, cuGraphLaunch, (CUgraphExec executable, CUstream stream))                                             \
  X(graphExecDestroy, cuGraphExecDestroy, (CUgraphExec executable))                                                    \
  X(graphDestroy, cuGraphDestroy, (CUgraph graph))                                                                     \
  /* Modules and kernels */                                                                                            \
  X(moduleLoadDataEx, cuModuleLoadDataEx,                                                                              \
    (CUmodule *module, const void *image, unsigned optionCount, CUjit_option *options, void **optionValues))           \
  X(moduleUnload, cuModuleUnload, (CUmodule module))                                                                   \
  X(moduleGetFunction, cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name))                 \
  X(funcGetAttribute, cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction function))           \
  X(launchKernel, cuLaunchKernel,                                                                                      \
    (CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,            \
     unsigned blockZ, unsigned sharedBytes, CUstream stream, void **parameters, void **extra))
// clang-format on

/// The entry points as pointers, which DriverLibrary looks up in the library.
struct Driver {
#define TCC_CUDA_MEMBER(member, symbol, parameters) CUresult(*member) parameters = nullptr;
  TCC_CUDA_ENTRY_POINTS(TCC_CUDA_MEMBER)
#undef TCC_CUDA_MEMBER
};

} // namespace tcc::cuda::api

#endif // TCC_RUNTIME_CUDA_API_DRIVER_H

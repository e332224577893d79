//===- EntryDevice.cpp - entry points: errors, device, context, memory ---===//
#include "test/emulation/driver/Entry.h"

#include <cstring>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

// CUDA Driver API, "Error Handling".
TCC_ENTRY cuGetErrorName(CUresult error, const char **name) {
  static const std::map<int, const char *> names = {
#define TCC_NAME(code) {code, #code}
      TCC_NAME(CUDA_SUCCESS),
      TCC_NAME(CUDA_ERROR_INVALID_VALUE),
      TCC_NAME(CUDA_ERROR_OUT_OF_MEMORY),
      TCC_NAME(CUDA_ERROR_NOT_INITIALIZED),
      TCC_NAME(CUDA_ERROR_NO_DEVICE),
      TCC_NAME(CUDA_ERROR_INVALID_DEVICE),
      TCC_NAME(CUDA_ERROR_INVALID_IMAGE),
      TCC_NAME(CUDA_ERROR_INVALID_CONTEXT),
      TCC_NAME(CUDA_ERROR_NO_BINARY_FOR_GPU),
      TCC_NAME(CUDA_ERROR_INVALID_PTX),
      TCC_NAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
      TCC_NAME(CUDA_ERROR_INVALID_HANDLE),
      TCC_NAME(CUDA_ERROR_NOT_FOUND),
      TCC_NAME(CUDA_ERROR_NOT_READY),
      TCC_NAME(CUDA_ERROR_ILLEGAL_ADDRESS),
      TCC_NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
      TCC_NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED),
      TCC_NAME(CUDA_ERROR_MISALIGNED_ADDRESS),
      TCC_NAME(CUDA_ERROR_LAUNCH_FAILED),
      TCC_NAME(CUDA_ERROR_NOT_SUPPORTED),
      TCC_NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
      TCC_NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
      TCC_NAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
      TCC_NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
      TCC_NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
      TCC_NAME(CUDA_ERROR_CAPTURED_EVENT),
      TCC_NAME(CUDA_ERROR_UNKNOWN),
#undef TCC_NAME
      {kCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
      {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
      {kCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
      {kIllegalState, "CUDA_ERROR_ILLEGAL_STATE"}};
  if (!name)
    return CUDA_ERROR_INVALID_VALUE;
  auto found = names.find(error);
  *name = found == names.end() ? nullptr : found->second;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

TCC_ENTRY cuGetErrorString(CUresult error, const char **text) {
  if (cuGetErrorName(error, text) != CUDA_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  // The driver's wording differs; nothing may depend on it.
  *text = error == CUDA_SUCCESS ? "no error" : "reported by the stand-in of the driver";
  return CUDA_SUCCESS;
}

// "Initialization", "Version Management", "Device Management".
TCC_ENTRY cuInit(unsigned flags) {
  StandIn &d = standIn();
  std::lock_guard lock(d.mutex);
  if (flags)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, "cuInit: its flags must be 0");
  if (!d.options.devices)
    return CUDA_ERROR_NO_DEVICE;
  d.initialised = true;
  return CUDA_SUCCESS;
}

TCC_ENTRY cuDriverGetVersion(int *version) {
  if (!version)
    return CUDA_ERROR_INVALID_VALUE;
  *version = standIn().options.version;
  return CUDA_SUCCESS;
}

TCC_ENTRY cuDeviceGetCount(int *count) {
  TCC_BEGIN_WITHOUT_CONTEXT;
  *count = d.options.devices;
  return CUDA_SUCCESS;
}

TCC_ENTRY cuDeviceGet(CUdevice *device, int ordinal) {
  TCC_BEGIN_WITHOUT_CONTEXT;
  if (ordinal < 0 || ordinal >= d.options.devices)
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

namespace {
bool isDevice(CUdevice device) { return device >= 0 && device < standIn().options.devices; }
} // namespace

TCC_ENTRY cuDeviceGetName(char *name, int bytes, CUdevice device) {
  TCC_BEGIN_WITHOUT_CONTEXT;
  if (!isDevice(device))
    return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(bytes), "Emulated sm_%u", d.options.architecture);
  return CUDA_SUCCESS;
}

/// Each device of a machine has its own, whichever process asks.
TCC_ENTRY cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  TCC_BEGIN_WITHOUT_CONTEXT;
  if (!isDevice(device))
    return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, "emulated device", sizeof uuid->bytes);
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

TCC_ENTRY cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  TCC_BEGIN_WITHOUT_CONTEXT;
  if (!isDevice(device))
    return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *value = 1024;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
    *value = 32;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    *value = 1000000;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *value = 4;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
    *value = 1000000;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
    *value = 1024;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
    *value = d.options.architecture % 10 ? 1536 : 2048;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *value = static_cast<int>(d.options.architecture / 10);
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = static_cast<int>(d.options.architecture % 10);
    return CUDA_SUCCESS;
  }
  return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
                  fmt::format("cuDeviceGetAttribute: attribute {} is not known to the stand-in", int(attribute)));
}

TCC_ENTRY cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  TCC_BEGIN_WITHOUT_CONTEXT;
  if (!isDevice(device))
    return CUDA_ERROR_INVALID_DEVICE;
  *bytes = d.options.memoryBytes;
  return CUDA_SUCCESS;
}

// "Primary Context Management", "Context Management".
TCC_ENTRY cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  TCC_BEGIN_WITHOUT_CONTEXT;
  if (!isDevice(device))
    return CUDA_ERROR_INVALID_DEVICE;
  if (d.retained && device != d.device)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_DEVICE,
                    "cuDevicePrimaryCtxRetain: a process with several devices is not emulated");
  d.device = device;
  ++d.retained;
  *context = reinterpret_cast<CUcontext>(&d);
  return CUDA_SUCCESS;
}

TCC_ENTRY cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  TCC_BEGIN_WITHOUT_CONTEXT;
  if (!isDevice(device))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!d.retained)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_CONTEXT,
                    "cuDevicePrimaryCtxRelease: the context is released more often than retained");
  if (--d.retained == 0)
    d.releaseContext();
  return CUDA_SUCCESS;
}

TCC_ENTRY cuCtxSetCurrent(CUcontext context) {
  TCC_BEGIN_WITHOUT_CONTEXT;
  if (context && (context != reinterpret_cast<CUcontext>(&d) || !d.retained))
    return d.misuse(FaultKind::NotAHandle, CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent: this context does not exist");
  contextIsCurrent() = context != nullptr;
  return CUDA_SUCCESS;
}

TCC_ENTRY cuCtxSynchronize() {
  TCC_BEGIN;
  if (CUresult forbidden = d.forbiddenInCapture("cuCtxSynchronize"))
    return forbidden;
  return d.fail(d.queue.finishAll());
}

// "Memory Management".
TCC_ENTRY cuMemGetInfo_v2(size_t *freeBytes, size_t *totalBytes) {
  TCC_BEGIN;
  *freeBytes = d.options.memoryBytes - d.deviceBytes;
  *totalBytes = d.options.memoryBytes;
  return CUDA_SUCCESS;
}

TCC_ENTRY cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  TCC_BEGIN;
  if (CUresult forbidden = d.forbiddenInCapture("cuMemAlloc"))
    return forbidden;
  if (!bytes)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, "cuMemAlloc: 0 bytes");
  if (bytes > d.options.memoryBytes - d.deviceBytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation &made =
      d.machine.memory().allocate(bytes, Home::Device, fmt::format("device allocation {}", ++d.allocationsMade));
  d.noteAllocation(Home::Device, bytes);
  *address = reinterpret_cast<CUdeviceptr>(made.base);
  return CUDA_SUCCESS;
}

namespace {
/// Frees an allocation that begins at this address.
CUresult release(StandIn &d, const void *address, Home home, const char *call) {
  if (!address)
    return CUDA_SUCCESS;
  Allocation *found = d.machine.memory().find(address);
  if (!found || found->base != address || found->home != home)
    return d.misuse(found ? FaultKind::Misuse : FaultKind::UseAfterFree, CUDA_ERROR_INVALID_VALUE,
                    fmt::format("{}: no allocation begins there: {}", call, d.machine.memory().describe(address)));
  auto uses = [&](const void *at) { return at && found->holds(static_cast<const std::byte *>(at), 1); };
  if (d.queue.isPending([&](const Task &task) { return uses(task.pinnedFrom) || uses(task.pinnedTo); }))
    d.report({FaultKind::UseAfterFree, fmt::format("{}: a queued copy still uses {}", call, found->name)},
             CUDA_SUCCESS);
  // The driver waits for all work before it frees device memory, so that relying on this wait is not a fault.
  if (CUresult failed = d.fail(d.queue.finishAll()))
    return failed;
  (home == Home::Device ? d.deviceBytes : d.pinnedBytes) -= found->bytes;
  d.machine.memory().release(found->base);
  return CUDA_SUCCESS;
}
} // namespace

TCC_ENTRY cuMemFree_v2(CUdeviceptr address) {
  TCC_BEGIN;
  if (CUresult forbidden = d.forbiddenInCapture("cuMemFree"))
    return forbidden;
  return release(d, reinterpret_cast<const void *>(address), Home::Device, "cuMemFree");
}

TCC_ENTRY cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  TCC_BEGIN;
  if (CUresult forbidden = d.forbiddenInCapture("cuMemHostAlloc"))
    return forbidden;
  if (!bytes || flags & ~7u)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
                    fmt::format("cuMemHostAlloc: {} bytes, flags {}", bytes, flags));
  *address = d.machine.memory()
                 .allocate(bytes, Home::Pinned, fmt::format("pinned allocation {}", ++d.allocationsMade), true)
                 .base;
  d.noteAllocation(Home::Pinned, bytes);
  return CUDA_SUCCESS;
}

TCC_ENTRY cuMemFreeHost(void *address) {
  TCC_BEGIN;
  if (CUresult forbidden = d.forbiddenInCapture("cuMemFreeHost"))
    return forbidden;
  return release(d, address, Home::Pinned, "cuMemFreeHost");
}

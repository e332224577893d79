//===- EntryCopies.cpp - entry points: copies and fills ------------------===//
//
// CUDA Driver API, "Memory Management" and "API synchronization behavior": a copy from pageable memory reads it during
// the call, a copy to pageable memory is done when the call returns, and only copies of pinned memory happen later.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/Entry.h"

#include <algorithm>
#include <cstring>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

namespace {
/// Whether the bytes belong to one allocation of the device; if not, the caller's mistake is reported.
bool onDevice(StandIn &d, CUdeviceptr address, size_t bytes, const char *call) {
  auto *at = reinterpret_cast<const void *>(address);
  Allocation *found = d.machine.memory().find(at, bytes);
  if (found && found->home == Home::Device)
    return true;
  d.report(
      {FaultKind::OutOfBounds, fmt::format("{}: {} bytes at {}: {}", call, bytes, at, d.machine.memory().describe(at))},
      CUDA_SUCCESS);
  return false;
}

Allocation *pinned(StandIn &d, const void *address, size_t bytes) {
  Allocation *found = d.machine.memory().find(address, bytes);
  return found && found->home == Home::Pinned ? found : nullptr;
}

/// Memory of the host must be the process's own: an address on the device is a mistake.
bool onHost(StandIn &d, const void *address, const char *call) {
  Allocation *found = d.machine.memory().find(address);
  if (address && (!found || found->home == Home::Pinned))
    return true;
  d.report({FaultKind::Misuse, fmt::format("{}: {} is no memory of the host", call, fmt::ptr(address))}, CUDA_SUCCESS);
  return false;
}

std::optional<Fault> move(void *to, const void *from, size_t bytes, uint32_t work, const char *what) {
  Memory &memory = standIn().machine.memory();
  if (auto fault = memory.touchByWork(const_cast<void *>(from), bytes, kRead, work, what))
    return fault;
  if (auto fault = memory.touchByWork(to, bytes, kWrite, work, what))
    return fault;
  std::memcpy(to, from, bytes);
  return std::nullopt;
}

std::optional<Fault> fill(void *to, size_t bytes, const void *pattern, size_t width, uint32_t work, const char *what) {
  if (auto fault = standIn().machine.memory().touchByWork(to, bytes, kWrite, work, what))
    return fault;
  if (width == 1)
    std::memset(to, *static_cast<const unsigned char *>(pattern), bytes);
  else
    for (size_t at = 0; at < bytes; at += width)
      std::memcpy(static_cast<char *>(to) + at, pattern, width);
  Allocation *whole = standIn().machine.memory().find(to);
  if (uint64_t cleared = standIn().options.clearedBytes;
      whole->cells && whole->base == to && whole->bytes == bytes && cleared < bytes)
    std::fill(whole->cells + cleared, whole->cells + bytes, Cell());
  return std::nullopt;
}

template <typename T> CUresult enqueueFill(CUdeviceptr to, T value, size_t count, CUstream stream, const char *call) {
  TCC_BEGIN;
  if (to % sizeof(T))
    return d.misuse(FaultKind::Misaligned, CUDA_ERROR_INVALID_VALUE,
                    fmt::format("{}: the address is no multiple of {}", call, sizeof(T)));
  if (!onDevice(d, to, count * sizeof(T), call))
    return CUDA_ERROR_INVALID_VALUE;
  Task task;
  task.what = call;
  task.run = [=](uint32_t work) {
    return fill(reinterpret_cast<void *>(to), count * sizeof(T), &value, sizeof(T), work, call);
  };
  return d.enqueue(stream, std::move(task), call);
}
} // namespace

TCC_ENTRY cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  TCC_BEGIN;
  const char *call = "cuMemcpyHtoDAsync";
  if (!onDevice(d, to, bytes, call) || !onHost(d, from, call))
    return CUDA_ERROR_INVALID_VALUE;
  Stream *in = d.stream(stream);
  if (!in)
    return CUDA_ERROR_INVALID_HANDLE;
  auto *target = reinterpret_cast<void *>(to);
  Task task;
  task.what = call;
  if (pinned(d, from, bytes)) {
    task.pinnedFrom = from;
    task.pinnedBytes = bytes;
    task.run = [=](uint32_t work) {
      standIn().machine.memory().markWritten(const_cast<void *>(from), bytes); // the host writes it at any time
      return move(target, from, bytes, work, call);
    };
    return d.enqueue(stream, std::move(task), call);
  }
  if (d.machine.memory().find(from))
    return d.misuse(FaultKind::OutOfBounds, CUDA_ERROR_INVALID_VALUE,
                    fmt::format("{}: {} bytes from {}", call, bytes, d.machine.memory().describe(from)));
  if (in->capture)
    return d.invalidate(*in->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                        "cuMemcpyHtoDAsync from pageable memory in a capture: each launch would read the page anew");
  auto taken =
      std::make_shared<std::vector<char>>(static_cast<const char *>(from), static_cast<const char *>(from) + bytes);
  task.run = [=](uint32_t work) -> std::optional<Fault> {
    if (auto fault = standIn().machine.memory().touchByWork(target, bytes, kWrite, work, call))
      return fault;
    std::memcpy(target, taken->data(), bytes);
    return std::nullopt;
  };
  return d.enqueue(stream, std::move(task), call);
}

TCC_ENTRY cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  TCC_BEGIN;
  const char *call = "cuMemcpyDtoHAsync";
  if (!onDevice(d, from, bytes, call) || !onHost(d, to, call))
    return CUDA_ERROR_INVALID_VALUE;
  Stream *in = d.stream(stream);
  if (!in)
    return CUDA_ERROR_INVALID_HANDLE;
  auto *source = reinterpret_cast<const void *>(from);
  Task task;
  task.what = call;
  if (pinned(d, to, bytes)) {
    task.pinnedTo = to;
    task.pinnedBytes = bytes;
    task.run = [=](uint32_t work) { return move(to, source, bytes, work, call); };
    return d.enqueue(stream, std::move(task), call);
  }
  if (d.machine.memory().find(to))
    return d.misuse(FaultKind::OutOfBounds, CUDA_ERROR_INVALID_VALUE,
                    fmt::format("{}: {} bytes to {}", call, bytes, d.machine.memory().describe(to)));
  if (in->capture)
    return d.invalidate(*in->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                        "cuMemcpyDtoHAsync to pageable memory in a capture");
  task.run = [=](uint32_t work) -> std::optional<Fault> {
    if (auto fault = standIn().machine.memory().touchByWork(const_cast<void *>(source), bytes, kRead, work, call))
      return fault;
    std::memcpy(to, source, bytes);
    return std::nullopt;
  };
  if (CUresult failed = d.enqueue(stream, std::move(task), call))
    return failed;
  return d.fail(d.queue.finish(in->tail));
}

TCC_ENTRY cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  TCC_BEGIN;
  const char *call = "cuMemcpyDtoDAsync";
  if (!onDevice(d, to, bytes, call) || !onDevice(d, from, bytes, call))
    return CUDA_ERROR_INVALID_VALUE;
  if (to < from + bytes && from < to + bytes)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, "cuMemcpyDtoDAsync: source and destination overlap");
  Task task;
  task.what = call;
  task.run = [=](uint32_t work) {
    return move(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes, work, call);
  };
  return d.enqueue(stream, std::move(task), call);
}

TCC_ENTRY cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return enqueueFill(to, value, bytes, stream, "cuMemsetD8Async");
}
TCC_ENTRY cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return enqueueFill(to, value, count, stream, "cuMemsetD16Async");
}
TCC_ENTRY cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return enqueueFill(to, value, count, stream, "cuMemsetD32Async");
}

TCC_ENTRY cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                             CUstream stream) {
  TCC_BEGIN;
  const char *call = "cuMemsetD2D32Async";
  if (to % 4 || pitch % 4)
    return d.misuse(FaultKind::Misaligned, CUDA_ERROR_INVALID_VALUE,
                    fmt::format("{}: address and pitch must be multiples of 4", call));
  if (width * 4 > pitch && height > 1)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
                    fmt::format("{}: rows of {} bytes, {} apart", call, width * 4, pitch));
  if (width && height && !onDevice(d, to, pitch * (height - 1) + width * 4, call))
    return CUDA_ERROR_INVALID_VALUE;
  Task task;
  task.what = call;
  task.run = [=](uint32_t work) -> std::optional<Fault> {
    for (size_t row = 0; row < height; ++row)
      if (auto fault = fill(reinterpret_cast<void *>(to + row * pitch), width * 4, &value, 4, work, call))
        return fault;
    return std::nullopt;
  };
  return d.enqueue(stream, std::move(task), call);
}

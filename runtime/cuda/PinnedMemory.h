//===- PinnedMemory.h - host memory that the card copies from and to ----===//
#ifndef TCC_RUNTIME_CUDA_PINNEDMEMORY_H
#define TCC_RUNTIME_CUDA_PINNEDMEMORY_H

#include "runtime/cuda/DriverLibrary.h"

#include <cstddef>
#include <span>

namespace tcc::cuda {

/// Page-locked memory of the host, and an event after the last copy that used it. It must be freed before the context.
class PinnedMemory {
public:
  static Expected<PinnedMemory> allocate(const DriverLibrary &library, size_t bytes);
  PinnedMemory(PinnedMemory &&) noexcept;
  PinnedMemory(const PinnedMemory &) = delete;
  PinnedMemory &operator=(const PinnedMemory &) = delete;
  ~PinnedMemory();

  std::byte *data() const { return memory; }
  size_t size() const { return bytes; }

  /// Records that the work submitted to `stream` so far uses the memory.
  Status used(api::CUstream stream);
  /// Returns when that work is done.
  Status waitUntilFree() const;

private:
  explicit PinnedMemory(const DriverLibrary &library) : library(&library) {}

  const DriverLibrary *library;
  std::byte *memory = nullptr;
  size_t bytes = 0;
  api::CUevent done = nullptr;
  bool inUse = false;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_PINNEDMEMORY_H

//===- PinnedMemory.cpp - host memory that the card copies from and to --===//
#include "runtime/cuda/PinnedMemory.h"

#include <utility>

namespace tcc::cuda {

Expected<PinnedMemory> PinnedMemory::allocate(const DriverLibrary &library, size_t bytes) {
  PinnedMemory pinned(library);
  void *address = nullptr;
  const api::CUresult result = library->memHostAlloc(&address, bytes, 0);
  if (Status status = library.check(result, "allocating page-locked memory"); !status.ok())
    return result == api::CUDA_ERROR_OUT_OF_MEMORY
               ? Status(fmt::format("{} of {} bytes; raise the limit of locked memory (ulimit -l), or free host memory",
                                    status.message(), bytes))
               : status;
  pinned.memory = static_cast<std::byte *>(address);
  pinned.bytes = bytes;
  if (Status status = library.makeEvent(pinned.done); !status.ok())
    return status;
  return pinned;
}

PinnedMemory::PinnedMemory(PinnedMemory &&other) noexcept
    : library(other.library), memory(std::exchange(other.memory, nullptr)), bytes(other.bytes),
      done(std::exchange(other.done, nullptr)), inUse(other.inUse) {}

PinnedMemory::~PinnedMemory() {
  if (memory && inUse)
    (void)waitUntilFree();
  if (done)
    (void)(*library)->eventDestroy(done);
  if (memory)
    (void)(*library)->memFreeHost(memory);
}

Status PinnedMemory::used(api::CUstream stream) {
  inUse = true;
  return library->check((*library)->eventRecord(done, stream), "recording an event");
}

Status PinnedMemory::waitUntilFree() const {
  return inUse ? library->wait(done, "waiting for a copy") : Status();
}

} // namespace tcc::cuda

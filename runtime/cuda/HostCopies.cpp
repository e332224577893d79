//===- HostCopies.cpp - copies between the host and a card ---------------===//
#include "runtime/cuda/HostCopies.h"

#include <algorithm>
#include <cstring>

namespace tcc::cuda {

Expected<std::unique_ptr<HostCopies>> HostCopies::open(const DriverLibrary &driver, api::CUstream stream) {
  std::unique_ptr<HostCopies> copies(new HostCopies(driver, stream));
  for (int i = 0; i < 2; ++i) {
    Expected<PinnedMemory> piece = PinnedMemory::allocate(driver, kPieceBytes);
    if (!piece)
      return piece.status();
    copies->pieces.push_back(piece.take());
  }
  return copies;
}

Expected<PinnedMemory *> HostCopies::freePiece() {
  PinnedMemory &piece = pieces[nextPiece++ % pieces.size()];
  Status status = piece.waitUntilFree();
  return status.ok() ? Expected<PinnedMemory *>(&piece) : status;
}

Status HostCopies::copyIn(api::CUdeviceptr to, PinnedMemory &from, uint64_t bytes) const {
  Status status = driver.check(driver->memcpyHtoDAsync(to, from.data(), bytes, stream), "copying to the card");
  return status.ok() ? from.used(stream) : status;
}

Status HostCopies::write(api::CUdeviceptr to, std::span<const std::byte> from) {
  for (uint64_t done = 0; done < from.size();) {
    const size_t count = std::min<uint64_t>(kPieceBytes, from.size() - done);
    Expected<PinnedMemory *> piece = freePiece();
    if (!piece)
      return piece.status();
    std::memcpy((*piece)->data(), from.data() + done, count);
    if (Status status = copyIn(to + done, **piece, count); !status.ok())
      return status;
    done += count;
  }
  return Status();
}

Status HostCopies::read(api::CUdeviceptr from, uint64_t bytes, const ByteSink &sink, const Judge &judge) {
  PinnedMemory *waiting = nullptr;
  uint64_t waitingBytes = 0;
  auto handOver = [&]() -> Status {
    if (!waiting)
      return Status();
    Status status = judge(waiting->waitUntilFree());
    return status.ok() ? sink(std::span<const std::byte>(waiting->data(), waitingBytes)) : status;
  };
  for (uint64_t done = 0; done < bytes;) {
    const size_t count = std::min<uint64_t>(kPieceBytes, bytes - done);
    Expected<PinnedMemory *> piece = freePiece();
    if (!piece)
      return piece.status();
    Status status =
        driver.check(driver->memcpyDtoHAsync((*piece)->data(), from + done, count, stream), "copying from the card");
    if (status.ok())
      status = (*piece)->used(stream);
    if (status.ok())
      status = handOver();
    if (!status.ok())
      return status;
    waiting = *piece;
    waitingBytes = count;
    done += count;
  }
  return handOver();
}

Expected<std::span<std::byte>> HostCopies::stage(Key key, uint64_t bytes) {
  StagingPair &pair = stagings[key];
  const size_t most = key.first >= 0 ? 2 : 1;
  pair.current = pair.memory[0] ? (pair.current + 1) % most : 0;
  std::optional<PinnedMemory> &memory = pair.memory[pair.current];
  if (memory && memory->size() < bytes)
    memory.reset(); // waits for its copy
  if (!memory) {
    Expected<PinnedMemory> made = PinnedMemory::allocate(driver, bytes);
    if (!made)
      return made.status();
    memory.emplace(made.take());
  }
  Status status = memory->waitUntilFree();
  return status.ok() ? Expected<std::span<std::byte>>(std::span(memory->data(), bytes)) : status;
}

Status HostCopies::commit(Key key, std::span<std::byte> staged, api::CUdeviceptr to) {
  auto found = stagings.find(key);
  std::optional<PinnedMemory> *memory =
      found == stagings.end() ? nullptr : &found->second.memory[found->second.current];
  if (!memory || !*memory || (*memory)->data() != staged.data())
    return error("internal error: a commit without its stage");
  Status status = copyIn(to, **memory, staged.size());
  if (key.first < 0)
    stagings.erase(found); // waits for the copy
  return status;
}

} // namespace tcc::cuda

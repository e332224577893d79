//===- HostCopies.h - copies between the host and a card -----------------===//
//
// The host accesses the card's memory by copies through page-locked memory. Reads and small writes alternate between
// two shared pieces; each input has two staging buffers, so that one is filled while the card copies from the other.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_HOSTCOPIES_H
#define TCC_RUNTIME_CUDA_HOSTCOPIES_H

#include "runtime/cuda/PinnedMemory.h"
#include "support/ByteSink.h"

#include <cstdint>
#include <functional>
#include <array>
#include <map>
#include <optional>
#include <memory>
#include <span>
#include <vector>

namespace tcc::cuda {

/// Copies for one card, whose context is current. All are in the order of `stream`.
class HostCopies {
public:
  static constexpr uint64_t kPieceBytes = uint64_t(4) << 20;
  /// The owner of a staging buffer: an entry and an input, or -1 and a variable.
  using Key = std::pair<int64_t, uint32_t>;
  /// Maps the result of a wait for the card to the status to return.
  using Judge = std::function<Status(const Status &waited)>;

  /// References outlive the object.
  static Expected<std::unique_ptr<HostCopies>> open(const DriverLibrary &driver, api::CUstream stream);

  /// Returns when the bytes may change.
  Status write(api::CUdeviceptr to, std::span<const std::byte> from);
  /// Passes pieces to `sink` in order; the next is copied meanwhile.
  Status read(api::CUdeviceptr from, uint64_t bytes, const ByteSink &sink, const Judge &judge);

  /// A staging buffer that the card no longer reads. Calls for an entry's input alternate between two.
  Expected<std::span<std::byte>> stage(Key key, uint64_t bytes);
  Status commit(Key key, std::span<std::byte> staged, api::CUdeviceptr to);
  /// Frees a variable's staging buffer.
  void forget(Key key) { stagings.erase(key); }

  /// Alternates between the two pieces; returns when the copy that used the piece is done.
  Expected<PinnedMemory *> freePiece();
  /// Submits a copy of page-locked memory to the card.
  Status copyIn(api::CUdeviceptr to, PinnedMemory &from, uint64_t bytes) const;

private:
  HostCopies(const DriverLibrary &driver, api::CUstream stream) : driver(driver), stream(stream) {}

  struct StagingPair {
    std::array<std::optional<PinnedMemory>, 2> memory;
    size_t current = 0;
  };

  const DriverLibrary &driver;
  const api::CUstream stream;
  std::vector<PinnedMemory> pieces;
  size_t nextPiece = 0;
  std::map<Key, StagingPair> stagings;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_HOSTCOPIES_H

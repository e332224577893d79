//===- SharedMemory.h - messages between ranks of one machine ------------===//
//
// Each rank offers memory with a ring buffer for every other rank, which writes to it. A ring is mapped twice in a row,
// so that any range of it is contiguous and a receiver can add from it without a copy. A rank opens the memory of
// another through /proc, checked by a number that only the two know; if that fails they use TCP.
//
// Nothing is left behind: the memory has no name and is freed with the processes. Its size is sealed, so no rank can
// shrink memory that another has mapped. If a peer damages the positions of a ring, the bytes are wrong, but no access
// leaves the ring.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_SHAREDMEMORY_H
#define TCC_RUNTIME_PARALLEL_SHAREDMEMORY_H

#include "runtime/parallel/Socket.h"
#include "runtime/parallel/Wire.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace tcc::runtime {

/// Where a rank's memory is, for the ranks of its machine.
struct SharedOffer {
  uint64_t nonce[2] = {0, 0}; ///< at the beginning of the memory; zeros: none is offered
  int32_t descriptor = -1;    ///< of the process
  uint32_t unused = 0;
};

/// Bytes of this process's address space; unmapped with the object.
class Mapping {
public:
  Mapping() = default;
  Mapping(std::byte *data, uint64_t bytes) : address(data), size(bytes) {}
  ~Mapping();
  Mapping(Mapping &&other) noexcept
      : address(std::exchange(other.address, nullptr)), size(std::exchange(other.size, 0)) {}
  Mapping &operator=(Mapping &&other) noexcept {
    std::swap(address, other.address);
    std::swap(size, other.size);
    return *this;
  }
  std::byte *data() const { return address; }
  explicit operator bool() const { return address != nullptr; }

private:
  std::byte *address = nullptr;
  uint64_t size = 0;
};

class SharedMemory final : public Wire {
public:
  /// The memory of rank `rank` of `size`, of which `localSize` are on this machine. Null: the system gives none.
  static std::unique_ptr<SharedMemory> make(uint32_t rank, uint32_t size, uint32_t localSize);

  SharedOffer offer() const;
  /// Maps the memory of `peer`. False: it is not on this machine, or this process lacks permission. Two ranks use this
  /// wire if both have opened the other's memory.
  bool open(uint32_t peer, uint32_t process, const SharedOffer &offer);

  void prepare() override;
  Moved move(Progress &progress) override;
  void wait(std::span<const Progress> open, int wakes, int milliseconds) override;
  uint64_t mostLent() const override { return ringBytes / 4; }
  void release() override;

private:
  struct Ring;
  struct Head;
  struct Peer {
    Mapping head;          ///< of the peer's memory
    Mapping out, in;       ///< rings, mapped twice
    uint64_t sent = 0;     ///< position in the ring that this rank writes
    uint64_t received = 0; ///< position in the ring that this rank reads
    bool lent = false;     ///< bytes before `received` are still being read
  };

  SharedMemory() = default;
  Moved send(Peer &peer, Ring &ring, Progress &progress);
  Moved receive(Peer &peer, Ring &ring, Progress &progress);
  Mapping mapRing(const Descriptor &file, uint32_t from) const;
  uint64_t headBytes() const;
  static Ring &ringOf(const Mapping &head, uint32_t from);
  static void wake(const Mapping &head);

  uint32_t rank = 0, size = 0;
  uint64_t ringBytes = 0;
  bool crowded = false; ///< fewer processors than ranks here
  Descriptor memory;
  Mapping head; ///< of this rank's memory
  uint32_t seen = 0;
  std::vector<Peer> peers; ///< by rank
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_SHAREDMEMORY_H

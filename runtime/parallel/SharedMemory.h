//===- SharedMemory.h - messages between ranks of one machine ------------===//
//
// Each rank offers memory with a ring of bytes for every other rank, which writes there. A ring is mapped twice, one
// behind the other, so that any bytes in it are contiguous and a receiver can add from it without a copy. A rank finds
// the memory of another through /proc and a number that only the two know; where that fails they use TCP.
//
// Nothing is left behind: the memory has no name and goes with the processes. Its size is sealed, so no rank can take
// away what another has mapped; positions in a ring that its peer has damaged give wrong bytes, never an access beyond
// it.
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
  /// Maps the memory of `peer`. False: it is not on this machine, or this process may not. They use this wire where
  /// both have opened the other's.
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
    uint64_t received = 0; ///< and in the one that it reads
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

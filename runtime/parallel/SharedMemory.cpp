//===- SharedMemory.cpp - messages between ranks of one machine ----------===//
#include "runtime/parallel/SharedMemory.h"
#include "support/Pause.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <new>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

/// Positions count bytes from the job's beginning; the ring holds [tail, head).
struct SharedMemory::Ring {
  alignas(64) std::atomic<uint64_t> head; ///< the writer's
  alignas(64) std::atomic<uint64_t> tail; ///< the reader's
};

/// Begins a rank's memory. Its rings follow, one for each rank, then their bytes.
struct SharedMemory::Head {
  uint64_t nonce[2];
  uint64_t ringBytes;
  alignas(64) std::atomic<uint32_t> bell; ///< counts the changes that other ranks made
  std::atomic<uint32_t> sleeping;         ///< this rank waits for the bell in the kernel (futex)
};

namespace {
constexpr const char *kName = "trun-rank";
constexpr std::string_view kLink = "/memfd:trun-rank";
/// Seals the memory's size: if its owner could shrink it, processes that have mapped it would end by SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr uint64_t kPage = 4096, kAlignment = 64;
/// A rank's memory for messages, divided between its rings, each within these bounds.
constexpr uint64_t kMemory = uint64_t(4) << 20, kMostRing = uint64_t(2) << 20, kLeastRing = uint64_t(64) << 10;
/// The writer publishes its position after at most this many bytes.
constexpr uint64_t kStride = uint64_t(128) << 10;

uint64_t roundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }
} // namespace

Mapping::~Mapping() {
  if (address)
    (void)::munmap(address, size);
}

uint64_t SharedMemory::headBytes() const { return roundUp(sizeof(Head) + size * sizeof(Ring), kPage); }

SharedMemory::Ring &SharedMemory::ringOf(const Mapping &head, uint32_t from) {
  return *reinterpret_cast<Ring *>(head.data() + sizeof(Head) + from * sizeof(Ring));
}

std::unique_ptr<SharedMemory> SharedMemory::make(uint32_t rank, uint32_t size, uint32_t localSize) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
  std::unique_ptr<SharedMemory> made(new SharedMemory);
  made->rank = rank;
  made->size = size;
  made->ringBytes = std::clamp(std::bit_floor(kMemory / std::max(localSize - 1, 1u)), kLeastRing, kMostRing);
  cpu_set_t set;
  made->crowded = ::sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < 2;
  made->peers.resize(size);
  made->memory = Descriptor(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Untouched pages take no memory, so the rings of ranks on other machines cost nothing.
  const uint64_t bytes = made->headBytes() + size * made->ringBytes;
  if (!made->memory || ::ftruncate(made->memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(made->memory.get(), F_ADD_SEALS, kSeals) != 0)
    return nullptr;
  void *head = ::mmap(nullptr, made->headBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, made->memory.get(), 0);
  if (head == MAP_FAILED)
    return nullptr;
  made->head = Mapping(static_cast<std::byte *>(head), made->headBytes());
  auto *own = new (head) Head{};
  own->ringBytes = made->ringBytes;
  for (uint32_t r = 0; r < size; ++r)
    new (&ringOf(made->head, r)) Ring{};
  if (::getrandom(own->nonce, sizeof(own->nonce), 0) != sizeof(own->nonce))
    return nullptr;
  return made;
}

SharedOffer SharedMemory::offer() const {
  const auto *own = reinterpret_cast<const Head *>(head.data());
  return {{own->nonce[0], own->nonce[1]}, memory.get(), 0};
}

bool SharedMemory::open(uint32_t peer, uint32_t process, const SharedOffer &offer) {
  if (offer.descriptor < 0)
    return false;
  const std::string path = fmt::format("/proc/{}/fd/{}", process, offer.descriptor);
  // If the peer runs in another container, its process id may name another process here, whose files must not be
  // opened.
  char link[64] = "";
  if (::readlink(path.c_str(), link, sizeof(link) - 1) < 0 || !std::string_view(link).starts_with(kLink))
    return false;
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  const uint64_t bytes = headBytes();
  struct stat status {};
  if (!file || (::fcntl(file.get(), F_GET_SEALS) & kSeals) != kSeals || ::fstat(file.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(bytes + size * ringBytes))
    return false;
  void *found = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (found == MAP_FAILED)
    return false;
  Mapping mapping(static_cast<std::byte *>(found), bytes);
  const auto *theirs = reinterpret_cast<const Head *>(found);
  if (std::memcmp(theirs->nonce, offer.nonce, sizeof(offer.nonce)) != 0 || theirs->ringBytes != ringBytes)
    return false;
  Mapping out = mapRing(file, rank), in = mapRing(memory, peer);
  if (!out || !in)
    return false;
  peers[peer].head = std::move(mapping);
  peers[peer].out = std::move(out);
  peers[peer].in = std::move(in);
  return true;
}

Mapping SharedMemory::mapRing(const Descriptor &file, uint32_t from) const {
  void *space = ::mmap(nullptr, 2 * ringBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (space == MAP_FAILED)
    return Mapping();
  Mapping mapping(static_cast<std::byte *>(space), 2 * ringBytes);
  for (uint64_t half = 0; half < 2; ++half)
    if (::mmap(mapping.data() + half * ringBytes, ringBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(),
               static_cast<off_t>(headBytes() + from * ringBytes)) == MAP_FAILED)
      return Mapping();
  return mapping;
}

void SharedMemory::wake(const Mapping &mapping) {
  auto &theirs = *reinterpret_cast<Head *>(mapping.data());
  theirs.bell.fetch_add(1);
  if (theirs.sleeping.load() != 0)
    (void)::syscall(SYS_futex, &theirs.bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void SharedMemory::prepare() { seen = reinterpret_cast<Head *>(head.data())->bell.load(); }

Moved SharedMemory::move(Progress &progress) {
  const uint32_t other = progress.transfer->peer;
  Peer &peer = peers[other];
  const bool first = !std::exchange(progress.begun, true);
  if (progress.transfer->send) {
    if (first)
      peer.sent = roundUp(peer.sent, kAlignment);
    return send(peer, ringOf(peer.head, rank), progress);
  }
  if (first)
    peer.received = roundUp(peer.received, kAlignment);
  return receive(peer, ringOf(head, other), progress);
}

Moved SharedMemory::send(Peer &peer, Ring &ring, Progress &progress) {
  Moved moved = Moved::Nothing;
  const uint64_t tail = ring.tail.load(std::memory_order_acquire);
  uint64_t quiet = 0;
  auto publish = [&] {
    ring.head.store(peer.sent, std::memory_order_release);
    wake(peer.head);
    quiet = 0;
  };
  while (!progress.done()) {
    const Piece &part = progress.transfer->parts[progress.part];
    const uint64_t used = peer.sent - tail, room = used < ringBytes ? ringBytes - used : 0;
    const uint64_t bytes = std::min({part.bytes - progress.offset, room, kStride});
    if (bytes == 0 && part.bytes != progress.offset)
      break;
    std::memcpy(peer.out.data() + peer.sent % ringBytes, part.data + progress.offset, bytes);
    peer.sent += bytes;
    quiet += bytes;
    progress.advance(bytes);
    moved = Moved::Some;
    if (quiet >= kStride)
      publish();
  }
  if (quiet > 0)
    publish();
  return moved;
}

Moved SharedMemory::receive(Peer &peer, Ring &ring, Progress &progress) {
  Moved moved = Moved::Nothing;
  bool read = std::exchange(peer.lent, false);
  const uint64_t there = ring.head.load(std::memory_order_acquire);
  while (!progress.done()) {
    Piece &part = progress.transfer->parts[progress.part];
    // `there` may precede the aligned start of this transfer: then the writer has not reached it yet.
    const uint64_t ready = there > peer.received ? std::min(there - peer.received, ringBytes) : 0;
    const std::byte *source = peer.in.data() + peer.received % ringBytes;
    if (!part.data && part.bytes > 0) {
      if (ready < part.bytes)
        break;
      part.data = const_cast<std::byte *>(source);
      peer.received += part.bytes;
      progress.advance(part.bytes);
      peer.lent = true;
      moved = Moved::Some;
      continue;
    }
    const uint64_t bytes = std::min(part.bytes - progress.offset, ready);
    if (bytes == 0 && part.bytes != progress.offset)
      break;
    std::memcpy(part.data + progress.offset, source, bytes);
    peer.received += bytes;
    progress.advance(bytes);
    read = read || bytes > 0;
    moved = Moved::Some;
  }
  if (read && !peer.lent) {
    ring.tail.store(peer.received, std::memory_order_release);
    wake(peer.head);
  }
  return moved;
}

void SharedMemory::release() {
  for (uint32_t other = 0; other < size; ++other)
    if (std::exchange(peers[other].lent, false)) {
      ringOf(head, other).tail.store(peers[other].received, std::memory_order_release);
      wake(peers[other].head);
    }
}

void SharedMemory::wait(std::span<const Progress>, int, int milliseconds) {
  auto &own = *reinterpret_cast<Head *>(head.data());
  auto rung = [&] { return own.bell.load(std::memory_order_acquire) != seen; };
  // A peer at the same point answers within microseconds, faster than a sleep and a wake-up, so poll first; yielding
  // lets others have the processor meanwhile.
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(crowded ? 20 : 60);
  do {
    for (int i = 0; i < 32; ++i) {
      if (rung())
        return;
      pauseInSpin();
    }
    (void)::sched_yield();
  } while (std::chrono::steady_clock::now() < until);
  own.sleeping.store(1);
  const int most = std::clamp(milliseconds, 0, 20); // short, because a failure of the job rings no bell
  const timespec time{0, most * 1'000'000L};
  if (!rung())
    (void)::syscall(SYS_futex, &own.bell, FUTEX_WAIT, seen, &time, nullptr, 0);
  own.sleeping.store(0);
}

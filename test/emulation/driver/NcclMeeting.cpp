//===- NcclMeeting.cpp - where the ranks of a communicator meet ----------===//
#include "test/emulation/driver/NcclMeeting.h"

#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tcc::emulation {

/// In memory that is zero at first.
struct NcclMeeting::Shared {
  uint64_t mark;
  std::atomic<uint32_t> ranks; ///< number of ranks, as the first one to arrive says
  struct Slot {
    std::atomic<uint32_t> present;
    int device;
    alignas(64) std::atomic<uint64_t> meetings;
    char said[256];
  } slots[kMostRanks];
  alignas(64) std::byte pieces[kMostRanks][kPieceBytes];
};

namespace {
/// The content of a ncclUniqueId.
struct Id {
  char name[24];
  int process, file;
  uint64_t mark;
};
constexpr char kName[] = "emulated NCCL";
} // namespace

cuda::api::ncclUniqueId NcclMeeting::makeId() {
  Id id{};
  std::memcpy(id.name, kName, sizeof kName);
  id.process = ::getpid();
  id.file = ::memfd_create("nccl", MFD_CLOEXEC);
  id.mark = (uint64_t{std::random_device()()} << 32 | std::random_device()()) | 1;
  cuda::api::ncclUniqueId made{};
  if (id.file >= 0 && ::ftruncate(id.file, sizeof(Shared)) == 0)
    (void)!::pwrite(id.file, &id.mark, sizeof id.mark, 0);
  std::memcpy(made.internal, &id, sizeof id);
  return made;
}

Expected<std::shared_ptr<NcclMeeting>> NcclMeeting::open(const cuda::api::ncclUniqueId &given, uint32_t ranks,
                                                         uint32_t rank, int device) {
  Id id;
  std::memcpy(&id, given.internal, sizeof id);
  if (std::memcmp(id.name, kName, sizeof kName) != 0)
    return error("this is no id of ncclGetUniqueId");
  const std::string path = fmt::format("/proc/{}/fd/{}", id.process, id.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0)
    return error("the process that made the id has ended, or is on another machine");
  void *memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED || static_cast<Shared *>(memory)->mark != id.mark)
    return error("this is no id of ncclGetUniqueId");
  auto *shared = static_cast<Shared *>(memory);
  std::shared_ptr<NcclMeeting> made(new NcclMeeting(shared, ranks, rank));
  uint32_t said = 0;
  if (!shared->ranks.compare_exchange_strong(said, ranks) && said != ranks)
    return error("rank {} says that there are {} ranks, another one {}", rank, ranks, said);
  if (shared->slots[rank].present.exchange(1) != 0)
    return error("there is a rank {} already", rank);
  shared->slots[rank].device = device;
  return made;
}

NcclMeeting::~NcclMeeting() { ::munmap(shared, sizeof(Shared)); }

int NcclMeeting::deviceOf(uint32_t rank) const { return shared->slots[rank].device; }

NcclMeeting::Outcome NcclMeeting::meet(const std::function<bool()> &stop, double seconds) {
  const uint64_t wanted = shared->slots[own].meetings.fetch_add(1, std::memory_order_acq_rel) + 1;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (uint32_t rank = 0, turns = 0; rank < ranks;) {
    if (shared->slots[rank].meetings.load(std::memory_order_acquire) >= wanted) {
      ++rank;
      continue;
    }
    if (++turns < 100)
      ::sched_yield();
    else
      ::usleep(50);
    if (turns % 16 == 0 && stop())
      return Outcome::Stopped;
    if (turns % 256 == 0 && std::chrono::steady_clock::now() > until)
      return Outcome::Late;
  }
  return Outcome::Met;
}

bool NcclMeeting::isAwaited() const {
  const uint64_t came = shared->slots[own].meetings.load();
  for (uint32_t rank = 0; rank < ranks; ++rank)
    if (shared->slots[rank].meetings.load() > came)
      return true;
  return false;
}

uint32_t NcclMeeting::missing() const {
  const uint64_t wanted = shared->slots[own].meetings.load();
  for (uint32_t rank = 0; rank < ranks; ++rank)
    if (shared->slots[rank].meetings.load() < wanted)
      return rank;
  return own;
}

void NcclMeeting::say(const std::string &text) {
  std::snprintf(shared->slots[own].said, sizeof shared->slots[own].said, "%s", text.c_str());
}
std::string NcclMeeting::saidBy(uint32_t rank) const { return shared->slots[rank].said; }
std::byte *NcclMeeting::piece(uint32_t rank) const { return shared->pieces[rank]; }

} // namespace tcc::emulation

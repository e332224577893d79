//===- NcclOperation.cpp - collectives of NCCL's stand-in ----------------===//
//
// NCCL, "Collective Operations", "In-place Operations". Sums begin at a rank that depends on the element, and are
// rounded to the type after each addition: NCCL's own order is not documented, and callers may only rely on all ranks
// getting the same bits.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/NcclOperation.h"
#include "test/emulation/driver/BlasArithmetic.h"

#include <algorithm>
#include <cstring>

namespace tcc::emulation {

using namespace cuda::api;

uint64_t bytesOf(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32:
    return 4;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64:
    return 8;
  }
  return 0;
}

const char *NcclOperation::call() const {
  static constexpr const char *kNames[] = {"ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclReduceScatter",
                                           "ncclAllGather"};
  return kNames[kind];
}

std::string NcclOperation::text() const {
  return fmt::format("{} of {} elements of type {}, root {}, {}", call(), count, static_cast<int>(type), root, place);
}

uint64_t NcclOperation::elementBytes() const { return bytesOf(type); }

uint64_t NcclOperation::readBytes(const NcclMeeting &ranks) const {
  if (kind == Broadcast && ranks.rank() != static_cast<uint32_t>(root))
    return 0;
  return count * elementBytes() * (kind == ReduceScatter ? ranks.size() : 1);
}

uint64_t NcclOperation::writtenBytes(const NcclMeeting &ranks) const {
  if (kind == Reduce && ranks.rank() != static_cast<uint32_t>(root))
    return 0;
  return count * elementBytes() * (kind == AllGather ? ranks.size() : 1);
}

bool NcclOperation::inPlace(const NcclMeeting &ranks) const {
  const auto *source = static_cast<const std::byte *>(from), *target = static_cast<const std::byte *>(to);
  const uint64_t part = count * elementBytes() * ranks.rank();
  return kind == ReduceScatter ? target == source + part
         : kind == AllGather   ? source == target + part
                               : source == target;
}

/// Adds elements [begin, begin + elements), which all ranks have copied to their pieces of the shared memory.
void NcclOperation::add(NcclMeeting &ranks, uint64_t begin, uint64_t elements, uint32_t start, std::byte *to) const {
  const cudaDataType as = type == ncclFloat64   ? CUDA_R_64F
                          : type == ncclFloat32 ? CUDA_R_32F
                          : type == ncclFloat16 ? CUDA_R_16F
                                                : CUDA_R_16BF;
  for (uint64_t i = 0; i < elements; ++i) {
    uint32_t rank = kind == AllReduce ? static_cast<uint32_t>((begin + i) / 16 % ranks.size()) : start % ranks.size();
    std::memcpy(to + i * elementBytes(), ranks.piece(rank) + i * elementBytes(), elementBytes());
    for (uint32_t n = 1; n < ranks.size(); ++n) {
      rank = (rank + 1) % ranks.size();
      storeElement(to, i, loadElement(to, i, as) + loadElement(ranks.piece(rank), i, as), as);
    }
  }
}

std::optional<Fault> NcclOperation::run(NcclMeeting &ranks, const NcclState &state, double seconds) const {
  auto *target = static_cast<std::byte *>(to);
  bool aborted = state.aborted;
  std::optional<Fault> fault;
  auto meet = [&] {
    if (aborted)
      return false;
    switch (ranks.meet([&] { return state.aborted.load(); }, seconds)) {
    case NcclMeeting::Outcome::Met:
      return true;
    case NcclMeeting::Outcome::Stopped:
      aborted = true;
      return false;
    case NcclMeeting::Outcome::Late:
      fault = Fault{FaultKind::Deadlock, fmt::format("rank {} waits in {}, rank {} does not come within {} s",
                                                     ranks.rank(), text(), ranks.missing(), seconds)};
    }
    return false;
  };
  auto end = [&]() -> std::optional<Fault> {
    if (aborted)
      std::memset(target, 0xff, writtenBytes(ranks));
    return fault;
  };
  // All ranks have met since the previous operation, so that its text is read by none of them any more.
  ranks.say(text());
  if (!meet())
    return end();
  for (uint32_t rank = 0; rank < ranks.size(); ++rank)
    if (const std::string other = ranks.saidBy(rank); other != text().substr(0, 255))
      fault = Fault{FaultKind::Misuse,
                    fmt::format("the ranks of a communicator do different things: rank {} {}, rank {} {}", ranks.rank(),
                                text(), rank, other)};
  if (!meet() || fault)
    return end();
  // A rank sends all its parts, one piece at a time.
  const uint64_t width = elementBytes(), step = NcclMeeting::kPieceBytes / width;
  const uint32_t own = ranks.rank();
  const uint64_t parts = kind == ReduceScatter ? ranks.size() : 1;
  for (uint64_t part = 0; part < parts; ++part)
    for (uint64_t begin = 0; begin < count; begin += step) {
      const uint64_t elements = std::min(step, count - begin);
      const auto *source = static_cast<const std::byte *>(from) + (part * count + begin) * width;
      if (kind != Broadcast || own == static_cast<uint32_t>(root))
        std::memcpy(ranks.piece(own), source, elements * width);
      if (!meet())
        return end();
      std::byte *result = target + begin * width;
      switch (kind) {
      case AllReduce:
        add(ranks, begin, elements, 0, result);
        break;
      case Reduce:
        if (own == static_cast<uint32_t>(root))
          add(ranks, begin, elements, own + 1, result);
        break;
      case ReduceScatter:
        if (own == part)
          add(ranks, begin, elements, own + 1, result);
        break;
      case Broadcast:
        std::memcpy(result, ranks.piece(static_cast<uint32_t>(root)), elements * width);
        break;
      case AllGather:
        for (uint32_t rank = 0; rank < ranks.size(); ++rank)
          std::memcpy(result + rank * count * width, ranks.piece(rank), elements * width);
        break;
      }
      if (!meet())
        return end();
    }
  return std::nullopt;
}

} // namespace tcc::emulation

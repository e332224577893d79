//===- EnvironmentPlace.cpp - the rank that torchrun started ----------------===//
#include "runtime/parallel/EnvironmentPlace.h"
#include "support/Advice.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

static Status readNumber(const char *name, uint64_t most, uint64_t &value) {
  const char *text = std::getenv(name);
  if (!text)
    return error(
        "{} is not set, but RANK and WORLD_SIZE are; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or start "
        "with {}",
        name, advice::option("nproc"));
  const char *end = text + std::strlen(text);
  auto [last, problem] = std::from_chars(text, end, value);
  if (problem != std::errc() || last != end || value > most)
    return error("{}={}: expected a number up to {}", name, text, most);
  return Status();
}

Expected<std::optional<RankPlace>> tcc::runtime::placeFromEnvironment() {
  if (!std::getenv("RANK") || !std::getenv("WORLD_SIZE"))
    return std::optional<RankPlace>();
  constexpr uint64_t kMostRanks = 1 << 16;
  uint64_t size = 0, rank = 0, port = 0, localRank = 0, localSize = 1;
  Status status = readNumber("WORLD_SIZE", kMostRanks, size);
  if (status.ok())
    status = readNumber("RANK", kMostRanks, rank);
  if (status.ok() && (size == 0 || rank >= size))
    status = error("RANK={} of WORLD_SIZE={}: ranks count from 0", rank, size);
  if (status.ok() && size > 1)
    status = readNumber("MASTER_PORT", 65535, port);
  if (status.ok() && std::getenv("LOCAL_RANK"))
    status = readNumber("LOCAL_RANK", kMostRanks, localRank);
  if (status.ok() && std::getenv("LOCAL_WORLD_SIZE"))
    status = readNumber("LOCAL_WORLD_SIZE", kMostRanks, localSize);
  const char *address = std::getenv("MASTER_ADDR");
  if (status.ok() && size > 1 && (!address || !*address))
    status = error("MASTER_ADDR is {}: set it to the address of the machine of rank 0", address ? "empty" : "not set");
  if (status.ok() && size > 1 && port == 0)
    status = error("MASTER_PORT=0: all ranks need to know the port of rank 0; set it to a free one");
  // Some launchers set LOCAL_RANK without the number of local ranks, so LOCAL_WORLD_SIZE = 1 is no contradiction.
  if (status.ok() && (localSize == 0 || (localSize > 1 && localRank >= localSize)))
    status = error("LOCAL_RANK={} of LOCAL_WORLD_SIZE={}: the ranks of a machine count from 0", localRank, localSize);
  if (!status.ok())
    return status;
  RankPlace place;
  // torchrun itself uses this port for its store.
  const char *store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (store && std::string_view(store) == "True") {
    place.portName = fmt::format("beside MASTER_PORT={}, which torchrun has itself", port);
    port = port < 65535 ? port + 1 : port - 1;
  }
  auto secret = size > 1 ? secretFromEnvironment() : Expected<std::string>(std::string());
  if (!secret)
    return secret.status();
  place.trust.secret = secret.take();
  place.rank = static_cast<uint32_t>(rank);
  place.size = static_cast<uint32_t>(size);
  place.localRank = static_cast<uint32_t>(localRank);
  place.localSize = static_cast<uint32_t>(std::min(localSize, size));
  place.address = address ? address : "";
  place.port = static_cast<uint16_t>(port);
  if (const char *job = std::getenv("TORCHELASTIC_RUN_ID"))
    place.job = fmt::format("TORCHELASTIC_RUN_ID={}", job);
  return std::optional(place);
}

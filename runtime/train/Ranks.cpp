//===- Ranks.cpp - a run of several ranks --------------------------------===//
#include "runtime/train/Ranks.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Shards.h"
#include "runtime/train/DataChecksum.h"
#include "support/Advice.h"

#include <algorithm>
#include <sstream>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

std::string tcc::runtime::rankLog(const std::string &run, uint32_t rank) {
  return fmt::format("{}/ranks/rank-{}.log", run, rank);
}

std::string tcc::runtime::differencesOf(const std::vector<std::string> &texts,
                                        const std::function<std::string(uint32_t)> &nameOf) {
  auto linesOf = [](const std::string &text) {
    std::map<std::string, std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      lines[line.substr(0, line.find('='))] = line.substr(std::min(line.size(), line.find('=') + 1));
    return lines;
  };
  const std::map<std::string, std::string> first = linesOf(texts.front());
  constexpr size_t kMostTold = 4;
  std::string told;
  size_t count = 0;
  for (uint32_t rank = 1; rank < texts.size(); ++rank) {
    std::map<std::string, std::string> own = linesOf(texts[rank]);
    for (const auto &[key, value] : first)
      own.try_emplace(key, "nothing");
    for (const auto &[key, value] : own) {
      auto found = first.find(key);
      const std::string other = found == first.end() ? "nothing" : found->second;
      if (value != other && count++ < kMostTold)
        told += fmt::format("{}{} has {} {}, {} has {}", told.empty() ? "" : "; ", nameOf(rank), key, value,
                            nameOf(0).substr(0, nameOf(0).find(" (")), other);
    }
  }
  return count > kMostTold ? told + fmt::format("; and {} differences more", count - kMostTold) : told;
}

Status tcc::runtime::compareLines(Communicator &ranks, const std::string &text) {
  auto texts = ranks.gatherTexts(text);
  if (!texts)
    return texts.status();
  std::string differences = differencesOf(*texts, [&](uint32_t rank) { return ranks.describe(rank); });
  if (!differences.empty()) // wait until all know it, so that no rank reports the end of another as a failure
    (void)ranks.barrier();
  return differences.empty() ? Status()
                             : error("the ranks of the job differ: {}; start all with the same command", differences);
}

Status tcc::runtime::compareRanks(const Session &session, const TrainOptions &options, const PreparedRun &run) {
  std::string text;
  auto add = [&](const std::string &key, const auto &value) { text += fmt::format("{}={}\n", key, value); };
  for (const auto &[key, value] : run.record.training)
    add(key, value);
  if (run.record.data) {
    add("samples of the data", run.record.data->samples);
    add("batches of an epoch", run.record.data->epochBatches);
    add("checksum of the data", fmt::format("{:016x}", dataChecksum(run.batches->reader().columns())));
  }
  if (run.evaluation) {
    add("samples of the evaluation data", run.evaluation->data.reader().samples());
    add("checksum of the evaluation data",
        fmt::format("{:016x}", dataChecksum(run.evaluation->data.reader().columns())));
    add(advice::option("eval-every"), options.evalEvery.value_or(0).text());
  }
  add("seed", run.position.seed);
  add(advice::flag("shuffle"), run.position.shuffle);
  add("step", run.position.step);
  add("steps in all", run.totalSteps);
  add(advice::option("init"), options.init);
  return compareLines(*session.ranks, text);
}

std::string tcc::runtime::dividedNode(const std::vector<std::string> &hosts, uint32_t node) {
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    if (const size_t first = rank - rank % node; hosts[rank] != hosts[first])
      return fmt::format("parallel.shard_within_node is {}, and of such a node rank {} is on {}, rank {} on {}: each "
                         "gather of parameters goes over the network; start a multiple of {} ranks on each machine",
                         node, first, hosts[first], rank, hosts[rank], node);
  return "";
}

Expected<std::string> tcc::runtime::warningOfPlaces(const Session &session) {
  const plan::Parallel &parallel = session.plan().training().parallel();
  if (!plan::replicatesShards(parallel))
    return std::string();
  char host[256] = "";
  (void)::gethostname(host, sizeof(host) - 1);
  auto hosts = session.ranks->gatherTexts(host);
  return hosts ? Expected<std::string>(dividedNode(*hosts, parallel.ranks())) : hosts.status();
}

namespace {
/// Checksums of state that must be equal on several ranks.
struct Checksums {
  std::string lines; ///< by variable
  uint64_t all = 0;
};

/// Checksums of the variables that every rank holds as a whole, or (`shards`) of the sharded ones.
Expected<Checksums> checksumsOf(const Session &session, bool shards, VariableSums &each) {
  Checksums sums;
  const uint64_t ranks = session.plan().training().parallel().ranks();
  for (int i = 0; i < session.plan().variables_size(); ++i) {
    const plan::Variable &variable = session.plan().variables(i);
    if (variable.role() == plan::ACCUMULATOR || variable.has_shard() != shards) // accumulators differ by rank
      continue;
    plan::ByteHash hash;
    uint64_t left = plan::tensorBytes(variable.type()).value_or(0);
    if (shards) // without the padding, as in checkpoints
      left = plan::shardOf(plan::elementCount(plan::wholeType(variable)).value_or(0), ranks, session.rank() % ranks)
                 .count *
             plan::dtypeBytes(variable.type().dtype());
    Status read =
        session.device->readPieces(Place::variable(static_cast<uint32_t>(i)), [&](std::span<const std::byte> piece) {
          piece = piece.first(std::min<uint64_t>(piece.size(), left));
          left -= piece.size();
          hash.add(piece.data(), piece.size());
          return Status();
        });
    if (!read.ok())
      return read;
    const uint64_t sum = *(each[static_cast<size_t>(i)] = hash.value());
    sums.lines += fmt::format("'{}'={:016x}\n", variable.name(), sum);
    sums.all = mixedChecksum(sums.all, sum);
  }
  return sums;
}

/// Describes how ranks differ that should hold the same state; empty if they do not.
Expected<std::string> differencesAmong(Communicator &ranks, const Expected<Checksums> &own) {
  if (!own)
    return own.status();
  auto sums = ranks.gatherTexts(fmt::format("{:016x}", own->all));
  if (!sums)
    return sums.status();
  if (std::all_of(sums->begin(), sums->end(), [&](const std::string &sum) { return sum == sums->front(); }))
    return std::string();
  auto texts = ranks.gatherTexts(own->lines);
  if (!texts)
    return texts.status();
  return differencesOf(*texts, [&](uint32_t rank) { return ranks.describe(rank); });
}
} // namespace

Expected<std::string> tcc::runtime::differencesOfReplicas(const Session &session, uint64_t step, bool begins,
                                                          VariableSums &sums) {
  sums.assign(static_cast<size_t>(session.plan().variables_size()), std::nullopt);
  auto differences = differencesAmong(*session.ranks, checksumsOf(session, /*shards=*/false, sums));
  const plan::Parallel &parallel = session.plan().training().parallel();
  // Ranks at the same position in their nodes hold the same shards.
  if (differences && differences->empty() && plan::replicatesShards(parallel)) {
    const uint32_t node = parallel.ranks(), size = session.worldSize();
    const RankGroup group{session.rank() % node, node, size / node};
    differences = differencesAmong(session.ranks->group(group), checksumsOf(session, /*shards=*/true, sums));
  }
  if (!differences || differences->empty())
    return differences;
  if (begins)
    return fmt::format("the ranks begin with different state: {}; give all of them the same plan, weights ({}) and run "
                       "folder ({})",
                       *differences, advice::option("init"), advice::option("resume"));
  return fmt::format("the ranks' state differs after update {}: {}; a rank's memory or arithmetic is at fault", step,
                     *differences);
}

Status tcc::runtime::shareParameters(const Session &session) {
  constexpr uint64_t kPiece = uint64_t(1) << 20;
  std::vector<std::byte> memory(kPiece);
  for (int i = 0; i < session.plan().variables_size(); ++i) {
    const plan::Variable &variable = session.plan().variables(i);
    if (variable.role() != plan::PARAMETER)
      continue;
    const Place place = Place::variable(static_cast<uint32_t>(i));
    const uint64_t bytes = plan::tensorBytes(variable.type()).value_or(0);
    for (uint64_t at = 0; at < bytes; at += kPiece) {
      const std::span<std::byte> part = std::span(memory).first(std::min(kPiece, bytes - at));
      Status status = session.leads() ? session.device->read(place, at, part) : Status();
      const Piece piece{part.data(), part.size()};
      if (status.ok())
        status = session.ranks->broadcast(std::span(&piece, 1), 0);
      if (status.ok() && !session.leads())
        status = session.device->write(place, at, part);
      if (!status.ok())
        return status;
    }
  }
  return Status();
}

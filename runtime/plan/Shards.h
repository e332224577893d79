//===- Shards.h - the part of a tensor that a rank owns ------------------===//
//
// Of E elements in row-major order, rank r of N owns [r·S, min((r + 1)·S, E)) with S = ceil(E / N). It stores them in S
// elements, the last of which may be padding. If a job has more than N ranks (hybrid), each N consecutive ranks are a
// node, and each node holds all elements.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_SHARDS_H
#define TCC_RUNTIME_PLAN_SHARDS_H

#include "runtime/plan/DType.h"
#include "runtime/plan/DynamicMap.h"

#include <algorithm>

namespace tcc::plan {

/// S: elements of a rank's shard, padding included; `ranks` is not 0.
inline uint64_t shardElements(uint64_t elements, uint64_t ranks) { return elements / ranks + (elements % ranks != 0); }

/// True if a shard does not hold whole blocks of moments in 8 bits.
inline bool shardsCutBlocks(uint64_t elements, uint64_t ranks) {
  return elements % kDynamicBlock != 0 || shardElements(elements, ranks) % kDynamicBlock != 0;
}

/// The elements that a rank owns, without padding; none if the ranks before it own all.
struct ShardRange {
  uint64_t begin = 0, count = 0;
};
inline ShardRange shardOf(uint64_t elements, uint64_t ranks, uint64_t rank) {
  const uint64_t shard = shardElements(elements, ranks), begin = std::min(rank % ranks * shard, elements);
  return {begin, std::min(shard, elements - begin)};
}

/// A rank's link in nominal times, in each direction: 80 Gbit/s.
inline constexpr double kNominalLinkBytesPerNs = 10;

/// True if parameters are sharded, too: an entry that reads them gathers them first.
inline bool shardsParameters(const Parallel &parallel) {
  return parallel.mode() == "full" || parallel.mode() == "hybrid";
}
/// True if each node of Parallel.ranks ranks holds all of the state.
inline bool replicatesShards(const Parallel &parallel) { return parallel.mode() == "hybrid"; }

/// The type of the whole variable, all ranks' shards together.
inline TensorType wholeType(const Variable &variable) {
  TensorType type = variable.type();
  if (variable.has_shard())
    *type.mutable_dims() = variable.shard().dims();
  return type;
}

inline bool hasShards(const Plan &plan) {
  return std::any_of(plan.variables().begin(), plan.variables().end(),
                     [](const Variable &one) { return one.has_shard(); });
}
/// The plan with the whole variable in place of each shard, as exports and weights files hold it. Its entries must not
/// be run.
Plan withoutShards(const Plan &plan);

/// "all-reduce", for people.
inline std::string_view collectiveName(CollectiveCall::Kind kind) {
  switch (kind) {
  case CollectiveCall::ALL_REDUCE:
    return "all-reduce";
  case CollectiveCall::BROADCAST:
    return "broadcast";
  case CollectiveCall::REDUCE_SCATTER:
    return "reduce-scatter";
  case CollectiveCall::ALL_GATHER:
    return "all-gather";
  case CollectiveCall::OWN_SHARD:
    return "own shard";
  default:
    return "unknown collective";
  }
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_SHARDS_H

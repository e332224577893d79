//===- Shards.h - the part of a tensor that a rank owns ------------------===//
//
// Of E elements in row-major order, rank r of N owns [r·S, min((r + 1)·S, E)) with S = ceil(E / N), in S elements of
// its own, of which the last ones may be padding. Of more than N ranks (hybrid) each N that follow one another, a node,
// own all.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_SHARDS_H
#define TCC_RUNTIME_PLAN_SHARDS_H

#include "runtime/plan/DType.h"

#include <algorithm>

namespace tcc::plan {

/// S: elements of a rank's part of `elements`; `ranks` is not 0.
inline uint64_t shardElements(uint64_t elements, uint64_t ranks) { return elements / ranks + (elements % ranks != 0); }

/// The elements that a rank owns, padding left out; none where those before it have all.
struct ShardRange {
  uint64_t begin = 0, count = 0;
};
inline ShardRange shardOf(uint64_t elements, uint64_t ranks, uint64_t rank) {
  const uint64_t shard = shardElements(elements, ranks), begin = std::min(rank % ranks * shard, elements);
  return {begin, std::min(shard, elements - begin)};
}

/// Each rank has parameters in part only: an entry that reads them gathers them first.
inline bool shardsParameters(const Parallel &parallel) {
  return parallel.mode() == "full" || parallel.mode() == "hybrid";
}
/// Each node of Parallel.ranks ranks has all of the state.
inline bool replicatesShards(const Parallel &parallel) { return parallel.mode() == "hybrid"; }

/// The type of the values that a variable's name stands for: those of all ranks' parts together.
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
/// The plan with the values of all ranks in place of each shard: what exports and weights files hold. Its entries are
/// not to be run.
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

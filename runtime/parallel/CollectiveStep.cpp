//===- CollectiveStep.cpp - a plan's collective on host memory -----------===//
#include "runtime/parallel/CollectiveStep.h"
#include "runtime/plan/Shards.h"

#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

RankGroup tcc::runtime::groupOf(const plan::CollectiveCall &call, const plan::Parallel &parallel, uint32_t rank,
                                uint32_t size) {
  const uint32_t node = parallel.ranks();
  if (!plan::replicatesShards(parallel) || node == 0)
    return {0, 1, size};
  if (call.kind() == plan::CollectiveCall::REDUCE_SCATTER || call.kind() == plan::CollectiveCall::ALL_GATHER ||
      call.reach() == plan::CollectiveCall::WITHIN_NODE)
    return {rank - rank % node, 1, node};
  if (call.reach() == plan::CollectiveCall::ACROSS_NODES)
    return {rank % node, node, size / node};
  return {0, 1, size};
}

CollectiveStep::CollectiveStep(const plan::Entry &entry, const plan::Instruction &instruction,
                               std::span<void *const> pointers, const plan::Parallel &parallel)
    : call(&instruction.collective()), parallel(&parallel), shards(std::max<uint32_t>(parallel.ranks(), 1)) {
  const int half = instruction.operands_size() / 2;
  const bool gathers = call->kind() == plan::CollectiveCall::ALL_GATHER;
  for (int i = 0; i < 2 * half; ++i) {
    const plan::TensorType &type = entry.buffers(static_cast<int>(instruction.operands(i).buffer())).type();
    const Piece piece{static_cast<std::byte *>(pointers[static_cast<size_t>(i)]), plan::tensorBytes(type).value_or(0)};
    (i < half ? sources : destinations).push_back(piece);
    if ((i < half) != gathers)
      wholes.push_back(
          {piece, plan::shardElements(plan::elementCount(type).value_or(0), shards) * plan::dtypeBytes(type.dtype())});
  }
}

void CollectiveStep::begin(uint32_t rank) const {
  for (size_t i = 0; i < sources.size(); ++i) {
    const Piece part = wholes[i].part(rank % shards);
    switch (call->kind()) {
    case plan::CollectiveCall::ALL_GATHER:
      if (part.bytes)
        std::memmove(part.data, sources[i].data, part.bytes);
      break;
    case plan::CollectiveCall::REDUCE_SCATTER: // a single rank has the sum already
    case plan::CollectiveCall::OWN_SHARD:
      if (part.bytes)
        std::memmove(destinations[i].data, part.data, part.bytes);
      std::memset(destinations[i].data + part.bytes, 0, destinations[i].bytes - part.bytes);
      break;
    default:
      if (sources[i].data != destinations[i].data)
        std::memmove(destinations[i].data, sources[i].data, destinations[i].bytes);
    }
  }
}

Status CollectiveStep::finish(Communicator &all) const {
  if (plan::replicatesShards(*parallel) && all.size() % shards != 0)
    return error("a plan for nodes of {} ranks on {} ranks", shards, all.size());
  Communicator &communicator = all.group(groupOf(*call, *parallel, all.rank(), all.size()));
  switch (call->kind()) {
  case plan::CollectiveCall::ALL_REDUCE:
    return communicator.allReduce(destinations, call->dtype());
  case plan::CollectiveCall::BROADCAST:
    return communicator.broadcast(destinations, call->root());
  case plan::CollectiveCall::REDUCE_SCATTER:
    return communicator.reduceScatter(wholes, destinations, call->dtype());
  case plan::CollectiveCall::ALL_GATHER:
    return communicator.allGather(wholes);
  default:
    return Status();
  }
}

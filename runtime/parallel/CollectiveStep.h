//===- CollectiveStep.h - a plan's collective on host memory -------------===//
#ifndef TCC_RUNTIME_PARALLEL_COLLECTIVESTEP_H
#define TCC_RUNTIME_PARALLEL_COLLECTIVESTEP_H

#include "runtime/parallel/Communicator.h"

namespace tcc::runtime {

/// The ranks that compute a collective together, of a job of `size`.
RankGroup groupOf(const plan::CollectiveCall &call, const plan::Parallel &parallel, uint32_t rank, uint32_t size);

/// One collective of a plan, with the addresses of its operands. Its instruction has passed the verifier.
class CollectiveStep {
public:
  /// `pointers`: of the operands; the step holds no more than them.
  CollectiveStep(const plan::Entry &entry, const plan::Instruction &instruction, std::span<void *const> pointers,
                 const plan::Parallel &parallel);

  /// Copies what belongs to `rank` from sources to destinations. Then sources are free, but those of a reduce-scatter.
  void begin(uint32_t rank) const;
  /// True if there is nothing more to do: no rank needs another.
  bool isLocal() const { return call->kind() == plan::CollectiveCall::OWN_SHARD; }
  /// The rest, with the other ranks.
  Status finish(Communicator &communicator) const;

private:
  const plan::CollectiveCall *call;
  const plan::Parallel *parallel;
  uint32_t shards;
  std::vector<Piece> sources, destinations;
  std::vector<ShardedPiece> wholes; ///< of the kinds with shards: operands on the side of whole tensors
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_COLLECTIVESTEP_H

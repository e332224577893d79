//===- CollectiveStep.h - a plan's collective on host memory -------------===//
#ifndef TCC_RUNTIME_PARALLEL_COLLECTIVESTEP_H
#define TCC_RUNTIME_PARALLEL_COLLECTIVESTEP_H

#include "runtime/parallel/Communicator.h"

namespace tcc::runtime {

/// The ranks, of a job of `size`, among which a collective runs.
RankGroup groupOf(const plan::CollectiveCall &call, const plan::Parallel &parallel, uint32_t rank, uint32_t size);

/// One collective of a plan, with the addresses of its operands. Its instruction has passed the verifier.
class CollectiveStep {
public:
  /// `pointers`: addresses of the operands, which the step does not own.
  CollectiveStep(const plan::Entry &entry, const plan::Instruction &instruction, std::span<void *const> pointers,
                 const plan::Parallel &parallel);

  /// Copies the part of `rank` from sources to destinations. Afterwards only a reduce-scatter still reads its sources.
  void begin(uint32_t rank) const;
  /// True if begin completes the collective, without other ranks.
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

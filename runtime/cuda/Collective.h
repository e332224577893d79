//===- Collective.h - a plan's collective as NCCL's operations -----------===//
//
// The memory that ranks keep is that of runtime/parallel/CollectiveStep.h: first a rank copies its own part to where
// the result will be, then all operations are in place. Tensors that the ranks divide into equal parts are gathered and
// reduced as a whole; NCCL has no operation for unequal ones, so they become one broadcast or one reduction for each
// rank. All operations of a bucket are one group, which NCCL launches together.
//
// NCCL documents no order of sums. Where their bits must not depend on the number of ranks (virtual ranks, which are
// powers of two), two ranks add up, then two such pairs, and so on: a sum of two has no order. That is the tree of
// runtime/parallel/Communicator.h.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_COLLECTIVE_H
#define TCC_RUNTIME_CUDA_COLLECTIVE_H

#include "runtime/cuda/CardRanks.h"
#include "runtime/plan/DType.h"

#include <span>
#include <vector>

namespace tcc::cuda {

class Collective {
public:
  /// `pointers`: of the operands. The instruction has passed the verifier; it and `parallel` outlive the object.
  Collective(const plan::Entry &entry, const plan::Instruction &instruction, std::span<const api::CUdeviceptr> pointers,
             const plan::Parallel &parallel);

  /// The groups of ranks, beside that of all, that a plan's collectives need: as CardRanks::join wants them.
  static std::vector<runtime::RankGroup> groupsOf(const plan::Parallel &parallel, uint32_t rank, uint32_t size);

  /// Submits the copies that need no other rank: of the part of `rank`, or of whole tensors, from sources to
  /// destinations. Afterwards a source may be overwritten, except that of a reduce-scatter.
  Status begin(const DriverLibrary &driver, api::CUstream stream, uint32_t rank) const;
  /// True if there is nothing more to do: no rank needs another.
  bool isLocal() const { return call->kind() == plan::CollectiveCall::OWN_SHARD; }
  /// Submits the rest, with the other ranks.
  Status submit(const CardRanks &ranks, api::CUstream stream) const;

private:
  struct Tensor {
    api::CUdeviceptr source, destination;
    uint64_t elements;      ///< of the whole tensor
    uint64_t shardElements; ///< of the kinds with shards: of a rank's part
    uint64_t elementBytes;
  };
  class Group;

  Status submitTo(const CardRanks &ranks, const runtime::RankGroup &members, api::CUstream stream) const;

  const plan::CollectiveCall *call;
  const plan::Parallel *parallel;
  std::vector<Tensor> tensors;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_COLLECTIVE_H

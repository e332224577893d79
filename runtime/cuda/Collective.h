//===- Collective.h - a plan's collective as NCCL's operations -----------===//
//
// As in runtime/parallel/CollectiveStep.h, a rank first copies its own part to its place in the result; then all
// operations are in place. Tensors that divide into equal parts are gathered and reduced as a whole. NCCL has no
// operation for unequal parts, so there is one broadcast or reduction for each rank. All operations of a bucket are one
// NCCL group, which is launched together.
//
// NCCL documents no order of sums. If bits must not depend on the number of ranks (virtual ranks, a power of two),
// pairs of ranks add, then pairs of pairs, and so on: a sum of two terms has only one order. That is the tree of
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

  /// The groups of ranks, in addition to that of all, that a plan's collectives need: the argument of CardRanks::join.
  static std::vector<runtime::RankGroup> groupsOf(const plan::Parallel &parallel, uint32_t rank, uint32_t size);

  /// Submits the copies that need no other rank: of the part of `rank`, or of whole tensors, from sources to
  /// destinations. Afterwards a source may be overwritten, except that of a reduce-scatter.
  Status begin(const DriverLibrary &driver, api::CUstream stream, uint32_t rank) const;
  /// True if begin completes the collective, without other ranks.
  bool isLocal() const { return call->kind() == plan::CollectiveCall::OWN_SHARD; }
  /// Submits the rest, which involves the other ranks.
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

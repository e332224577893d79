//===- CardRanks.h - the cards of a job's ranks --------------------------===//
//
// NCCL connects the cards. The communicator that started the job (runtime/parallel/) is still used: it sends NCCL's id
// to all ranks, and knows which ranks are alive. If a rank ends, NCCL kernels of the others would wait forever; so a
// thread watches for failures of the job and errors of NCCL, and ends these kernels by ncclCommAbort. Groups of ranks
// (a node, a pair that adds) have NCCL communicators of their own. All of a rank's collectives are in one stream, so
// they cannot wait for each other.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_CARDRANKS_H
#define TCC_RUNTIME_CUDA_CARDRANKS_H

#include "runtime/Algorithms.h"
#include "runtime/cuda/Card.h"
#include "runtime/cuda/NcclLibrary.h"
#include "runtime/parallel/Communicator.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tcc::cuda {

/// A group of ranks, including this one, with its NCCL communicator.
struct CardGroup {
  runtime::RankGroup members;
  api::ncclComm_t communicator = nullptr;
  /// The number of a rank within the group.
  uint32_t numberOf(uint32_t rank) const { return (rank - members.first) / members.stride; }
};

class CardRanks {
public:
  /// Every rank of the job calls it, with its card's context current; `plan` identifies its plan. `groups`: groups with
  /// this rank in addition to that of all ranks: the same number on every rank, and equal on all members of a group.
  /// References outlive the object. Error, on every rank: a rank has no NCCL, another version, or another plan; two
  /// ranks have the same card; a rank has ended.
  static Expected<std::unique_ptr<CardRanks>> join(const Card &card, runtime::Communicator &ranks,
                                                   const std::string &plan,
                                                   const std::vector<runtime::RankGroup> &groups = {});
  /// All graphs with captured collectives must have been destroyed, because NCCL waits for that. Waits for no other
  /// rank, and only briefly if a fault keeps the card from finishing its work.
  ~CardRanks();
  CardRanks(const CardRanks &) = delete;
  CardRanks &operator=(const CardRanks &) = delete;

  uint32_t rank() const { return ranks.rank(); }
  uint32_t size() const { return ranks.size(); }
  const NcclLibrary &library() const { return nccl; }
  /// Null if the group was not passed to join.
  const CardGroup *group(const runtime::RankGroup &members) const;

  /// Sends rank 0's algorithms to every rank, so that all compute the same bits. The others' own are ignored.
  Expected<runtime::Algorithms> share(const runtime::Algorithms &own);

  /// Collectives are submitted after begin, and all are done before settle. Failures count only in between: after its
  /// work is done, a rank may find that others have left.
  void begin() { working = true; }
  void settle() { working = false; }

  /// Error: a rank or NCCL has failed, so the results of collectives are invalid, even if their work is done.
  Status failure() const;

private:
  CardRanks(NcclLibrary nccl, runtime::Communicator &ranks) : nccl(nccl), ranks(ranks) {}
  Status connect(const Card &card, const std::vector<api::ncclUniqueId> &ids);
  /// State of the thread that waits for a failure or for the end, and ends the communicators.
  struct Ending;
  void watch(std::shared_ptr<Ending> ending);
  void waitForFailure();
  std::string failureOfJob();
  api::ncclResult_t errorOfNccl() const;

  const NcclLibrary nccl;
  runtime::Communicator &ranks;
  std::vector<CardGroup> groups; ///< first that of all ranks
  std::atomic<bool> working{false};
  mutable std::mutex mutex;
  std::condition_variable ends;
  bool stopping = false;
  std::string problem; ///< of the job
  std::shared_ptr<Ending> ending;
  std::thread thread; ///< last: it uses the members above
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_CARDRANKS_H

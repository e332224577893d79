//===- CardRanks.h - the cards of a job's ranks --------------------------===//
//
// NCCL joins the cards; the communicator that started the job (runtime/parallel/) stays beside it: it carries NCCL's id
// to all ranks, and knows who is alive. A rank that has ended leaves kernels of the others waiting for good, so a
// thread hears of every failure of the job, of NCCL's own errors too, and ends these kernels by ncclCommAbort.
// Some ranks of a job (a node's, two that add up) have a communicator of their own. All of a rank's collectives are in
// one stream, so no two of them wait for each other.
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

/// Some of a job's ranks, this one among them, as NCCL knows them.
struct CardGroup {
  runtime::RankGroup members;
  api::ncclComm_t communicator = nullptr;
  /// The number of a rank in it.
  uint32_t numberOf(uint32_t rank) const { return (rank - members.first) / members.stride; }
};

class CardRanks {
public:
  /// Every rank of the job calls it, with its card's context current; `plan` names what it runs. `groups`: more groups
  /// than that of all ranks, which this rank is in: as many on every rank, and the same on all of a group. References
  /// outlive the object. Error, on every rank: a rank has no NCCL, or another version; another plan; two ranks have one
  /// card; a rank has ended.
  static Expected<std::unique_ptr<CardRanks>> join(const Card &card, runtime::Communicator &ranks,
                                                   const std::string &plan,
                                                   const std::vector<runtime::RankGroup> &groups = {});
  /// All graphs with captured collectives are destroyed: NCCL waits for that. Waits for no other rank, and not for long
  /// if a fault keeps the card from ending its work.
  ~CardRanks();
  CardRanks(const CardRanks &) = delete;
  CardRanks &operator=(const CardRanks &) = delete;

  uint32_t rank() const { return ranks.rank(); }
  uint32_t size() const { return ranks.size(); }
  const NcclLibrary &library() const { return nccl; }
  /// Null: no group that it was joined with.
  const CardGroup *group(const runtime::RankGroup &members) const;

  /// Rank 0's algorithms come to every rank, so that all compute alike. The others' own are ignored.
  Expected<runtime::Algorithms> share(const runtime::Algorithms &own);

  /// Collectives are submitted from here on, and all that were are done. A failure counts in between: when its work is
  /// done, a rank may find that others have left.
  void begin() { working = true; }
  void settle() { working = false; }

  /// Why the results of collectives are void: a rank or NCCL has failed. Work that waited for others may be done then.
  Status failure() const;

private:
  CardRanks(NcclLibrary nccl, runtime::Communicator &ranks) : nccl(nccl), ranks(ranks) {}
  Status connect(const Card &card, const std::vector<api::ncclUniqueId> &ids);
  /// The thread's: waits for a failure or for the end, and ends the communicator.
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

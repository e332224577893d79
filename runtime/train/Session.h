//===- Session.h - an open plan, its settings and its device -------------===//
#ifndef TCC_RUNTIME_TRAIN_SESSION_H
#define TCC_RUNTIME_TRAIN_SESSION_H

#include "runtime/Device.h"
#include "runtime/data/BatchReader.h"
#include "runtime/plan/VirtualRanks.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

struct SessionOptions {
  std::string planPath;
  std::string device;                ///< a registered name; empty: the one of the plan's target
  unsigned threads = 0;              ///< 0: as many as the process may use and the budget has room for
  std::vector<std::string> settings; ///< --set KEY=VALUE
  std::string planFolder; ///< of external weights; empty: the plan's
  uint64_t budgetBytes = 0; ///< --memory-budget: limit on the arenas; 0: the plan's own, if it has one
  std::string target;       ///< --target: one of the plan's; empty: the best that runs here
  Algorithms recorded = {}; ///< of the run that goes on
  bool tune = false;        ///< --tune
  Communicator *ranks = nullptr; ///< of the job that this process belongs to; null: it is alone
  uint32_t localRank = 0;        ///< among the ranks of this machine
  uint32_t sharers = 1;          ///< ranks that may use the same processors, this one among them
};

/// The plan and the device of a command. The plan stays as it was compiled; `training` and `data` carry the settings.
struct Session {
  plan::PlanReader reader;
  plan::Training training;
  plan::DataSettings data;
  std::unique_ptr<Device> device;
  std::vector<int> replaced = {}; ///< frozen variables that --init or a checkpoint gave another value than the plan's
  std::vector<std::string> notes =
      {}; ///< which target and variant of the plan were taken, where it has several; why fewer workers run than might

  Communicator *ranks = nullptr; ///< null: one rank alone

  const plan::Plan &plan() const { return reader.plan(); }
  uint32_t rank() const { return ranks ? ranks->rank() : 0; }
  uint32_t worldSize() const { return ranks ? ranks->size() : 1; }
  /// What this rank computes of an update. With train.virtual_ranks: checkVirtualRanks holds.
  plan::VirtualRanks virtualRanks() const { return plan::virtualRanksOf(training, rank(), worldSize()); }
  /// This rank writes the run's folder, evaluates and speaks to people.
  bool leads() const { return rank() == 0; }
  /// Each rank has a part of the state that no other has.
  bool isSharded() const { return worldSize() > 1 && plan().training().parallel().ranks() != 0; }
  /// No rank has all parameters: entries that read them run on all ranks at once.
  bool shardsParameters() const;
  /// False: the device checks entries without running them, so that no number means anything.
  bool computes() const { return device->capabilities().executes; }
};

/// Error: the plan's shards are for another number of ranks than the job has.
Status requireRanks(const Session &session);

/// Opens and checks the plan, applies settings, makes the device with the initial weights.
Expected<Session> openSession(const SessionOptions &options);

/// Error: the plan's virtual ranks cannot be shared by as many ranks as the job has, or these have no memory for it.
Status checkVirtualRanks(const Session &session);

/// A data set as one entry reads it.
struct EntryData {
  std::unique_ptr<Dataset> dataset;
  std::unique_ptr<BatchReader> reader;
};

struct EntryDataOptions {
  DatasetOptions::Part part = DatasetOptions::Part::All;
  bool training = false; ///< random windows are drawn only for training
  std::optional<std::vector<uint32_t>> vocabulary;
  std::function<void(uint64_t, uint64_t, uint64_t)> scanning; ///< as DatasetOptions::scanning
  std::function<void(const std::string &)> note;              ///< as DatasetOptions::note
  ColumnFacts facts;         ///< that are known
  bool learnsFacts = false; ///< as DatasetOptions::learnsFacts
};

/// Opens `path` with the settings of the session and binds its columns to the entry's inputs.
Expected<EntryData> openEntryData(const Session &session, const plan::Entry &entry, const std::string &path,
                                        const EntryDataOptions &options);

/// Damaged samples that data.max_bad allows; 0: none.
uint64_t maxBadOf(const Session &session);

/// Threads that read batches of `data` ahead: data.workers, else as many as the process may use where samples are decoded
/// or transformed.
unsigned workersOf(const Session &session, const EntryData &data);

/// The share of the data that data.eval_split keeps for evaluation; 0: none.
double evalSplitOf(const Session &session);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SESSION_H

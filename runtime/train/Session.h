//===- Session.h - an open plan, its settings and its device -------------===//
#ifndef TCC_RUNTIME_TRAIN_SESSION_H
#define TCC_RUNTIME_TRAIN_SESSION_H

#include "runtime/Device.h"
#include "runtime/data/Sampler.h"
#include "runtime/data/ShapeChoice.h"
#include "runtime/plan/VirtualRanks.h"
#include "runtime/state/ModelValues.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Opens a data set that is no file: rows in memory.
using DatasetSource = std::function<Expected<Dataset>(const DatasetOptions &)>;

class DeviceRegistry;

struct SessionOptions {
  std::string planPath;
  std::string device;                ///< a registered name; empty: the one of the plan's target
  unsigned threads = 0;              ///< 0: as many as the process may use and the budget has room for
  std::vector<std::string> settings; ///< KEY=VALUE, of keys that need no compilation
  std::string planFolder = {}; ///< folder of external weights; empty: the plan's
  uint64_t budgetBytes = 0; ///< limit on the arenas, in bytes; 0: the plan's own, if it has one
  std::string target = {}; ///< one of the plan's; empty: the best that runs here
  Algorithms recorded = {}; ///< of the resumed run
  bool tune = false;        ///< time the algorithms of libraries and take the fastest
  bool stepByStep = false;  ///< DeviceOptions::stepByStep
  Communicator *ranks = nullptr; ///< of the job that this process belongs to; null: it is alone
  uint32_t localRank = 0;        ///< among the ranks of this machine
  uint32_t sharers = 1;          ///< ranks that may use the same processors, this one among them
  std::shared_ptr<const std::string> planBytes = nullptr; ///< the plan itself, which planPath then only names
  const DeviceRegistry *devices = nullptr; ///< null: standardDevices()
};

/// The plan and the device of a command. The plan stays as compiled; `training` and `data` include the settings.
struct Session {
  plan::PlanReader reader;
  plan::Training training;
  plan::DataSettings data;
  std::unique_ptr<Device> device;
  std::vector<int> replaced = {}; ///< frozen variables whose value --init or a checkpoint replaced
  std::vector<Message> notes =
      {}; ///< the target and variant that were selected, if there are several; why fewer workers run than could

  Communicator *ranks = nullptr; ///< null: a single rank

  const plan::Plan &plan() const { return reader.plan(); }
  uint32_t rank() const { return ranks ? ranks->rank() : 0; }
  uint32_t worldSize() const { return ranks ? ranks->size() : 1; }
  /// The virtual ranks that this rank computes. Requires checkVirtualRanks.
  plan::VirtualRanks virtualRanks() const { return plan::virtualRanksOf(training, rank(), worldSize()); }
  /// True for the rank that writes the run's folder and reports events.
  bool leads() const { return rank() == 0; }
  /// True if the state is sharded over several ranks.
  bool isSharded() const { return worldSize() > 1 && plan().training().parallel().ranks() != 0; }
  /// True if the parameters are sharded: entries that read them must run on all ranks together.
  bool shardsParameters() const;
  /// False: the device checks entries without running them, so all numbers are meaningless.
  bool computes() const { return device->capabilities().executes; }
};

/// Error: the plan's shards are for another number of ranks than the job has.
Status requireRanks(const Session &session);

/// Opens and checks the plan, applies settings, makes the device with the initial weights.
Expected<Session> openSession(const SessionOptions &options);

/// Error: the job's number of ranks cannot share the plan's virtual ranks, or is too small for the planned memory.
Status checkVirtualRanks(const Session &session);

/// The values of the session's device for exports: those that training has changed. The session outlives them.
TrainedValues trainedValuesOf(const Session &session);

/// A data set as the shapes of an entry read it.
struct EntryData {
  std::unique_ptr<Dataset> dataset;
  std::vector<std::unique_ptr<BatchReader>> readers; ///< by shape; they share the damaged samples

  /// That of the first shape.
  BatchReader &reader() const { return *readers.front(); }
  std::vector<BatchReader *> allReaders() const;
  /// The shape whose samples take the most memory.
  size_t largest() const { return shapesBySize(readers).back(); }
  /// The smallest shape that holds all samples, else the largest.
  size_t shapeOfAll() const;
};

struct EntryDataOptions {
  DatasetOptions::Part part = DatasetOptions::Part::All;
  bool training = false; ///< random windows are drawn only for training
  std::optional<std::vector<uint32_t>> vocabulary = {};
  std::function<void(uint64_t, uint64_t, uint64_t)> scanning = {}; ///< as DatasetOptions::scanning
  MessageSink note = {};                                           ///< as DatasetOptions::note
  ColumnFacts facts = {};                                          ///< facts that are already known
  bool learnsFacts = false;                                        ///< as DatasetOptions::learnsFacts
  DatasetSource source = {};                                       ///< opens the data set; null: that of the path
  bool cutsLong = false;                                           ///< as data.too_long = "cut"
};

/// How inputs of the session's entries are bound to columns. `trains`: for an entry that trains.
BindOptions bindOptionsOf(const Session &session, bool trains);

/// Opens `path` with the settings of the session and binds its columns to the inputs of the entry's shapes. Error also:
/// a sample is too large for all of them, and data.too_long does not cut it.
Expected<EntryData> openEntryData(const Session &session, const std::vector<const plan::Entry *> &shapes,
                                  const std::string &path, const EntryDataOptions &options);
/// The same for an entry in one shape.
Expected<EntryData> openEntryData(const Session &session, const plan::Entry &entry, const std::string &path,
                                  const EntryDataOptions &options);

/// Makes the sampler gather samples by the shapes that hold them. Error: its samples are drawn at random, and differ in
/// shape.
Status gatherByShape(const EntryData &data, bool drawsAtRandom, Sampler &sampler);

/// Damaged samples that data.max_bad allows; 0: none.
uint64_t maxBadOf(const Session &session);

/// Threads that read batches of `data` ahead: data.workers; else, if samples are decoded or transformed, as many as the
/// process may use.
unsigned workersOf(const Session &session, const EntryData &data);

/// The share of the data that data.eval_split keeps for evaluation; 0: none.
double evalSplitOf(const Session &session);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SESSION_H

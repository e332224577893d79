//===- Session.h - an open plan, its settings and its device -------------===//
#ifndef TCC_RUNTIME_TRAIN_SESSION_H
#define TCC_RUNTIME_TRAIN_SESSION_H

#include "runtime/Device.h"
#include "runtime/data/BatchReader.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

struct SessionOptions {
  std::string planPath;
  std::string device;                ///< "cpu", "null"; empty: cpu
  unsigned threads = 0;              ///< 0: as many as the process may use
  std::vector<std::string> settings; ///< --set KEY=VALUE
  uint64_t budgetBytes = 0; ///< --memory-budget: what the arenas may take; 0: what is free on the machine
};

/// What a command works with. The plan stays as it was compiled; `training` and `data` carry the settings.
struct Session {
  plan::PlanReader reader;
  plan::Training training;
  plan::DataSettings data;
  std::unique_ptr<Device> device;
  std::string note; ///< which variant of a fat plan was taken, and why; empty for others

  const plan::Plan &plan() const { return reader.plan(); }
  /// Memory that has no device: the null device reads and writes nothing.
  bool hasMemory() const;
};

/// Opens and checks the plan, applies settings, makes the device with the initial weights.
plan::Expected<Session> openSession(const SessionOptions &options);

/// A data set as one entry reads it.
struct EntryData {
  std::unique_ptr<Dataset> dataset;
  std::unique_ptr<BatchReader> reader;
};

struct EntryDataOptions {
  DatasetOptions::Part part = DatasetOptions::Part::All;
  bool training = false; ///< random windows are drawn only for training
  std::optional<std::vector<uint32_t>> vocabulary;
};

/// Opens `path` with the settings of the session and binds its columns to the entry's inputs.
plan::Expected<EntryData> openEntryData(const Session &session, const plan::Entry &entry, const std::string &path,
                                        const EntryDataOptions &options);

/// Damaged samples that data.max_bad allows; 0: none.
uint64_t maxBadOf(const Session &session);

/// The share of the data that data.eval_split keeps for evaluation; 0: none.
double evalSplitOf(const Session &session);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SESSION_H

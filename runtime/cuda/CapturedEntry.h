//===- CapturedEntry.h - an entry as captured graphs ----------------------===//
#ifndef TCC_RUNTIME_CUDA_CAPTUREDENTRY_H
#define TCC_RUNTIME_CUDA_CAPTUREDENTRY_H

#include "runtime/Device.h"
#include "runtime/cuda/EntryNumbers.h"
#include "runtime/cuda/StateCopyStream.h"
#include "runtime/cuda/Step.h"

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tcc::cuda {

/// Streams of a card.
struct EntryStreams {
  api::CUstream main = nullptr;
  api::CUstream communication = nullptr; ///< for collectives with other ranks, or null
  api::CUstream numbers = nullptr;       ///< for copies of numbers to the host
  /// For transfers to the host and from it, which have copy engines of their own; null if the plan has none.
  api::CUstream stores = nullptr, fetches = nullptr;

  std::array<api::CUstream, 5> all() const { return {main, communication, numbers, stores, fetches}; }
};

/// Captures steps [begin, end) as a graph. All steps are on the main stream, in order, except collectives with other
/// ranks and transfers. Those are on streams of their own, in order, concurrent with the instructions that the plan
/// allows (Instruction.beside): each begins after the steps before it, and the first instruction that may not run
/// concurrently, or the graph's end, waits for it. `ranks`: null for a single rank. `where` names a step for messages.
/// Null if there are no steps.
Expected<api::CUgraphExec> captureSteps(const std::vector<Step> &steps, size_t begin, size_t end,
                                        const DriverLibrary &driver, const EntryStreams &streams,
                                        const CardRanks *ranks, const std::function<std::string(size_t)> &where);

/// Submits each collective of an entry once, on zeros instead of its operands, because NCCL makes connections when an
/// operation of a kind and size runs for the first time.
Status runCollectives(const plan::Entry &entry, const std::vector<Step> &steps, const DriverLibrary &driver,
                      api::CUstream stream, const CardRanks &ranks);

/// The steps of an entry, captured as graphs: one, or two with the early numbers between them.
class CapturedEntry {
public:
  explicit CapturedEntry(const plan::Entry &entry) : entry(&entry) {}
  CapturedEntry(CapturedEntry &&) = default;

  const plan::Entry *entry;
  std::vector<Step> steps;
  bool collectives = false;
  std::vector<runtime::CollectiveTimes> times; ///< by instruction, of timed runs with other ranks

  /// Captures the graphs of all steps, and prepares the copies of the entry's numbers to the host.
  Status capture(const DriverLibrary &driver, const plan::Plan &plan, const EntryStreams &streams,
                 const CardRanks *ranks, const EntryNumbers::AddressOf &addressOf);
  /// Submits one run. Changes of variables wait for pending copies of the state.
  Status launch(const DriverLibrary &driver, const EntryStreams &streams, StateCopyStream *copies);
  void destroyGraphs(const DriverLibrary &driver);

  /// The numbers of the latest runs; null if the entry has none, or its latest run was not by launch().
  EntryNumbers *latestNumbers() const { return launched ? numbers.get() : nullptr; }
  /// Records that the steps are run one by one, not by launch().
  void runsBySteps() { launched = false; }

  /// Names a step for messages.
  std::string where(size_t step) const;

private:
  struct Part {
    api::CUgraphExec graph = nullptr;
    std::vector<uint32_t> changes; ///< variables, each once
  };
  std::vector<Part> parts;
  std::unique_ptr<EntryNumbers> numbers;
  bool launched = false;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_CAPTUREDENTRY_H

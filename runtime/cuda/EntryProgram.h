//===- EntryProgram.h - the captured graphs of an entry ------------------===//
#ifndef TCC_RUNTIME_CUDA_ENTRYPROGRAM_H
#define TCC_RUNTIME_CUDA_ENTRYPROGRAM_H

#include "runtime/Device.h"
#include "runtime/cuda/EntryGraph.h"
#include "runtime/cuda/EntryNumbers.h"
#include "runtime/cuda/StateCopyStream.h"

#include <memory>
#include <string>
#include <vector>

namespace tcc::cuda {

/// Streams of a card.
struct EntryStreams {
  api::CUstream main = nullptr;
  api::CUstream communication = nullptr; ///< for collectives with other ranks, or null
  api::CUstream numbers = nullptr;       ///< for copies to the host
};

/// The steps of an entry, captured as graphs: one, or two with the early numbers between them.
class EntryProgram {
public:
  explicit EntryProgram(const plan::Entry &entry) : entry(&entry) {}
  EntryProgram(EntryProgram &&) = default;

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

#endif // TCC_RUNTIME_CUDA_ENTRYPROGRAM_H

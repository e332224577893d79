//===- EntryProgram.cpp - the captured graphs of an entry ----------------===//
#include "runtime/cuda/EntryProgram.h"
#include "runtime/plan/StateWrites.h"

#include <set>

namespace tcc::cuda {

std::string EntryProgram::where(size_t step) const {
  return fmt::format("entry '{}', instruction {} (node '{}')", entry->name(), step, steps[step].source->node());
}

Status EntryProgram::capture(const DriverLibrary &driver, const plan::Plan &plan, const EntryStreams &streams,
                             const CardRanks *ranks, const EntryNumbers::AddressOf &addressOf) {
  if (steps.empty())
    return Status();
  Expected<std::unique_ptr<EntryNumbers>> opened = EntryNumbers::open(driver, plan, *entry, addressOf);
  if (!opened)
    return opened.status();
  numbers = opened.take();
  const size_t early = numbers ? numbers->earlyEnd() : 0;
  std::vector<std::pair<size_t, size_t>> ranges;
  if (early != 0)
    ranges.emplace_back(0, early);
  ranges.emplace_back(early, steps.size());
  for (auto [begin, end] : ranges) {
    Part &part = parts.emplace_back();
    Expected<api::CUgraphExec> made = captureSteps(steps, begin, end, driver, streams.main, streams.communication,
                                                   ranks, [this](size_t step) { return where(step); });
    if (!made)
      return made.status();
    part.graph = *made;
    std::set<uint32_t> changed;
    for (size_t i = begin; i < end; ++i)
      for (uint32_t variable : plan::changedVariables(*entry, entry->instructions(static_cast<int>(i))))
        changed.insert(variable);
    part.changes.assign(changed.begin(), changed.end());
  }
  return Status();
}

Status EntryProgram::launch(const DriverLibrary &driver, const EntryStreams &streams, StateCopyStream *copies) {
  Status status;
  launched = true;
  if (numbers)
    numbers->begin();
  for (size_t i = 0; i < parts.size() && status.ok(); ++i) {
    if (copies)
      status = copies->orderBefore(streams.main, parts[i].changes);
    if (status.ok())
      status = driver.check(driver->graphLaunch(parts[i].graph, streams.main), "launching a graph");
    if (status.ok() && i + 1 < parts.size())
      status = numbers->copyEarly(streams.main, streams.numbers);
  }
  return status.ok() && numbers ? numbers->copyOthers(streams.main) : status;
}

void EntryProgram::destroyGraphs(const DriverLibrary &driver) {
  for (Part &part : parts)
    if (part.graph)
      (void)driver->graphExecDestroy(part.graph);
  parts.clear();
  numbers.reset();
}

} // namespace tcc::cuda

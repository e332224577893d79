//===- CapturedEntry.cpp - an entry as captured graphs --------------------===//
#include "runtime/cuda/CapturedEntry.h"
#include "runtime/plan/StateWrites.h"

#include <set>

namespace tcc::cuda {

namespace {
class Capturing {
public:
  Capturing(const DriverLibrary &driver, const EntryStreams &streams, const CardRanks *ranks)
      : driver(driver), main(streams.main),
        ranks(ranks), communication{streams.communication}, stores{streams.stores}, fetches{streams.fetches} {}
  /// The capture must have ended.
  ~Capturing() {
    for (api::CUevent event : events)
      (void)driver->eventDestroy(event);
  }

  Status add(const Step &step, size_t index) {
    if (Status status = join(index); !status.ok())
      return status;
    if (step.source->has_transfer())
      return beside(step.store ? stores : fetches, step, index,
                    [&](api::CUstream stream) { return submit(step, driver, stream, nullptr); });
    if (!step.collective || !ranks)
      return submit(step, driver, main, nullptr);
    Status status = step.collective->begin(driver, main, ranks->rank());
    if (!status.ok() || step.collective->isLocal())
      return status;
    return beside(communication, step, index,
                  [&](api::CUstream stream) { return step.collective->submit(*ranks, stream); });
  }

  /// Makes the main stream wait for work of the others that may not run concurrently with instruction `index`.
  Status join(size_t index) {
    Status status;
    for (Side *side : {&communication, &stores, &fetches})
      if (status.ok())
        status = join(*side, index);
    return status;
  }

private:
  struct Open {
    size_t until; ///< the last instruction that may run concurrently
    api::CUevent event;
  };
  /// A stream beside the main one.
  struct Side {
    api::CUstream stream;
    std::vector<Open> open{}; ///< work that the main stream has not waited for, in order
  };

  /// Submits a step to a stream beside the main one, after the main one's present work.
  Status beside(Side &side, const Step &step, size_t index, const std::function<Status(api::CUstream)> &submitTo) {
    Status status = order(main, side.stream);
    if (status.ok())
      status = submitTo(side.stream);
    if (status.ok())
      status = record(side.stream);
    if (status.ok())
      side.open.push_back({index + static_cast<size_t>(step.source->beside()), events.back()});
    return status;
  }

  Status join(Side &side, size_t index) {
    // A stream's work is done in order, so waiting for a step includes those before it.
    size_t done = side.open.size();
    while (done > 0 && side.open[done - 1].until >= index)
      --done;
    if (done == 0)
      return Status();
    const api::CUevent event = side.open[done - 1].event;
    side.open.erase(side.open.begin(), side.open.begin() + static_cast<std::ptrdiff_t>(done));
    return driver.check(driver->streamWaitEvent(main, event, 0), "waiting for another stream");
  }

  Status record(api::CUstream on) {
    api::CUevent event = nullptr;
    if (Status status = driver.check(driver->eventCreate(&event, api::CU_EVENT_DISABLE_TIMING), "making an event");
        !status.ok())
      return status;
    events.push_back(event);
    return driver.check(driver->eventRecord(event, on), "recording an event");
  }
  /// Makes future work of `later` wait for the present work of `earlier`.
  Status order(api::CUstream earlier, api::CUstream later) {
    Status status = record(earlier);
    return status.ok() ? driver.check(driver->streamWaitEvent(later, events.back(), 0), "ordering two streams")
                       : status;
  }

  const DriverLibrary &driver;
  const api::CUstream main;
  const CardRanks *const ranks;
  Side communication, stores, fetches;
  std::vector<api::CUevent> events;
};
} // namespace

Expected<api::CUgraphExec> captureSteps(const std::vector<Step> &steps, size_t begin, size_t end,
                                        const DriverLibrary &driver, const EntryStreams &streams,
                                        const CardRanks *ranks, const std::function<std::string(size_t)> &where) {
  api::CUgraphExec made = nullptr;
  if (begin == end)
    return made;
  Capturing capturing(driver, streams, ranks);
  if (Status status = driver.check(driver->streamBeginCapture(streams.main, api::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                                   "beginning to capture a graph");
      !status.ok())
    return status;
  Status submitted;
  for (size_t i = begin; i < end && submitted.ok(); ++i)
    submitted = capturing.add(steps[i], i).withContext(where(i));
  if (submitted.ok())
    submitted = capturing.join(SIZE_MAX);
  api::CUgraph graph = nullptr;
  Status ended = driver.check(driver->streamEndCapture(streams.main, &graph), "capturing a graph");
  if (submitted.ok() && ended.ok())
    ended = driver.check(driver->graphInstantiate(&made, graph, 0), "making a graph");
  if (graph)
    (void)driver->graphDestroy(graph);
  if (Status &status = submitted.ok() ? ended : submitted; !status.ok())
    return status;
  return made;
}

Status runCollectives(const plan::Entry &entry, const std::vector<Step> &steps, const DriverLibrary &driver,
                      api::CUstream stream, const CardRanks &ranks) {
  for (const Step &step : steps) {
    if (!step.collective || step.collective->isLocal())
      continue;
    for (size_t i = 0; i < step.pointers.size(); ++i) {
      const plan::Buffer &buffer = entry.buffers(static_cast<int>(step.source->operands(static_cast<int>(i)).buffer()));
      if (Status status =
              driver.check(driver->memsetD8Async(step.pointers[i], 0, buffer.bytes(), stream), "clearing memory");
          !status.ok())
        return status;
    }
    if (Status status = submit(step, driver, stream, &ranks); !status.ok())
      return status;
  }
  return Status();
}

std::string CapturedEntry::where(size_t step) const {
  return fmt::format("entry '{}', instruction {} (node '{}')", entry->name(), step, steps[step].source->node());
}

Status CapturedEntry::capture(const DriverLibrary &driver, const plan::Plan &plan, const EntryStreams &streams,
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
    Expected<api::CUgraphExec> made =
        captureSteps(steps, begin, end, driver, streams, ranks, [this](size_t step) { return where(step); });
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

Status CapturedEntry::launch(const DriverLibrary &driver, const EntryStreams &streams, StateCopyStream *copies) {
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

void CapturedEntry::destroyGraphs(const DriverLibrary &driver) {
  for (Part &part : parts)
    if (part.graph)
      (void)driver->graphExecDestroy(part.graph);
  parts.clear();
  numbers.reset();
}

} // namespace tcc::cuda

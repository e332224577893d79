//===- AlgorithmChoice.cpp - choose a library's algorithm for each call ---===//
#include "runtime/cuda/AlgorithmChoice.h"
#include "support/Advice.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tcc::cuda {

namespace {
/// The most algorithms that are timed for a call.
constexpr int kTimed = 32;
/// Runs of a timed algorithm, after one that loads its code.
constexpr int kRuns = 5;
/// Content of operands while algorithms are timed: 1 in bf16, 1.875 in f16, and values of ordinary size in f32 and f64.
constexpr unsigned short kFiller = 0x3f80;

/// Advice if recorded algorithms do not run.
std::string wayOut(const runtime::Algorithms &recorded) {
  if (recorded.source == runtime::Algorithms::kFirstRank)
    return "give all ranks the same libraries and cards";
  return fmt::format("go on with {}, which times the algorithms of this library on this card and records the fastest "
                     "(results may differ in their last bits)",
                     advice::flag("tune"));
}

/// A pair of events that measures time.
struct Clock {
  const DriverLibrary &driver;
  std::array<api::CUevent, 2> events{};

  explicit Clock(const DriverLibrary &driver) : driver(driver) {}
  Clock(const Clock &) = delete;
  Clock &operator=(const Clock &) = delete;
  ~Clock() {
    for (api::CUevent event : events)
      if (event)
        (void)driver->eventDestroy(event);
  }
  Status create() {
    for (api::CUevent &event : events)
      if (Status status = driver.check(driver->eventCreate(&event, api::CU_EVENT_DEFAULT), "making an event");
          !status.ok())
        return status;
    return Status();
  }
};
} // namespace

template <LibraryCall Call>
AlgorithmChoice<Call>::AlgorithmChoice(const char *noun, std::string version, const DriverLibrary &driver,
                                       api::CUstream stream, std::string machine, const runtime::Algorithms &recorded,
                                       bool tune)
    : noun(noun), version(std::move(version)), driver(driver), stream(stream), machine(std::move(machine)),
      recorded(recorded), tune(tune) {}

template <LibraryCall Call> Status AlgorithmChoice<Call>::compareLibrary() const {
  const std::string before = recorded.libraryNamed(Call::kLibrary);
  if (tune || before.empty() || before == libraryName())
    return Status();
  return error(
      "{}: the run's {}s were computed by {}, this machine has {}, which may give other bits: install {}, or {}",
      recorded.source, noun, before, libraryName(), before, wayOut(recorded));
}

template <LibraryCall Call> Status AlgorithmChoice<Call>::find(Call &call) {
  const std::string text = call.text();
  if (byText.contains(text))
    return Status();
  const auto before = recorded.calls.find(text);
  const bool fromRun = !tune && before != recorded.calls.end();
  double seconds = fromRun ? before->second.seconds : 0;
  Expected<Algorithm> found = [&]() -> Expected<Algorithm> {
    if (fromRun)
      return fromRecord(call, before->second);
    if (tune)
      return fastest(call, seconds);
    auto candidates = call.candidates(Call::kAsked);
    return candidates ? Expected<Algorithm>(candidates->front()) : candidates.status();
  }();
  if (!found)
    return found.status();
  chosen[text] = {call.codeOf(*found), call.aboutOf(*found), seconds};
  byText.emplace(text, Known{found.take(), tune});
  return Status();
}

template <LibraryCall Call> Status AlgorithmChoice<Call>::choose(Call &call) {
  if (Status status = find(call); !status.ok())
    return status;
  Known &known = byText.find(call.text())->second;
  if (Status status = call.use(known.algorithm); !status.ok() || std::exchange(known.ran, true) || !Call::kLoadsWhenRun)
    return status;
  // The first run loads the algorithm's code, which may not be allowed during a capture.
  Status status = fillOperands(call);
  if (status.ok())
    status = call.submit(stream);
  return status.ok() ? driver.check(driver->streamSynchronize(stream), "waiting for the card") : status;
}

template <LibraryCall Call>
Expected<typename Call::Algorithm> AlgorithmChoice<Call>::fromRecord(const Call &call,
                                                                     const runtime::Algorithm &algorithm) const {
  Expected<Algorithm> checked = call.fromCode(algorithm.code);
  if (checked)
    return checked;
  return error("{}: {} on {} does not run the algorithm that the run recorded for this {} ({}): {}; {}",
               recorded.source, libraryName(), machine, noun, algorithm.about, checked.message(), wayOut(recorded));
}

template <LibraryCall Call> Status AlgorithmChoice<Call>::fillOperands(const Call &call) const {
  for (const MemoryRange &range : call.operandRanges())
    if (Status status = driver.check(
            driver->memsetD16Async(range.address, kFiller, range.bytes / sizeof kFiller, stream), "filling memory");
        !status.ok())
      return status;
  return Status();
}

template <LibraryCall Call>
Expected<typename Call::Algorithm> AlgorithmChoice<Call>::fastest(Call &call, double &seconds) const {
  auto candidates = call.candidates(kTimed);
  if (!candidates)
    return candidates.status();
  Clock clock(driver);
  if (Status status = clock.create(); !status.ok())
    return status;
  if (Status status = fillOperands(call); !status.ok())
    return status;
  const Algorithm *best = nullptr;
  for (const Algorithm &candidate : *candidates) {
    Status status = call.use(candidate);
    Expected<double> time = status.ok() ? secondsOf(call, clock.events[0], clock.events[1]) : status;
    if (!time)
      return time.status().withContext("timing " + call.aboutOf(candidate));
    if (best && *time >= seconds)
      continue;
    best = &candidate;
    seconds = *time;
  }
  return *best;
}

template <LibraryCall Call>
Expected<double> AlgorithmChoice<Call>::secondsOf(const Call &call, api::CUevent begin, api::CUevent end) const {
  float least = 0;
  for (int run = -1; run < kRuns; ++run) {
    Status status = driver.check(driver->eventRecord(begin, stream), "recording an event");
    if (status.ok())
      status = call.submit(stream);
    if (status.ok())
      status = driver.check(driver->eventRecord(end, stream), "recording an event");
    if (status.ok())
      status = driver.check(driver->eventSynchronize(end), "waiting for the card");
    float milliseconds = 0;
    if (status.ok())
      status = driver.check(driver->eventElapsedTime(&milliseconds, begin, end), "measuring time");
    if (!status.ok())
      return status;
    if (run >= 0)
      least = run == 0 ? milliseconds : std::min(least, milliseconds);
  }
  return double(least) / 1000;
}

template class AlgorithmChoice<BlasProduct>;
template class AlgorithmChoice<DnnCall>;

} // namespace tcc::cuda

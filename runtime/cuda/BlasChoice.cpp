//===- BlasChoice.cpp - which of cuBLASLt's algorithms a product takes ---===//
#include "runtime/cuda/BlasChoice.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tcc::cuda {

namespace {
/// Algorithms that the library is asked for: of one product without tuning, and at most with it.
constexpr int kAsked = 8, kTimed = 32;
/// Runs of a timed algorithm, after one that loads its code.
constexpr int kRuns = 5;
/// 1 in bf16, 1.875 in f16, and numbers of ordinary size in f32 and f64: what operands hold while algorithms are timed.
constexpr unsigned short kFiller = 0x3f80;

constexpr const char *kWayOut =
    "go on with --tune, which times the algorithms of this library on this card and records "
    "the fastest (results may differ in their last bits)";

/// The algorithm's bytes, 16 digits a word.
std::string codeOf(const api::cublasLtMatmulAlgo_t &algo) {
  std::string code;
  for (uint64_t word : algo.data)
    code += fmt::format("{:016x}", word);
  return code;
}

std::optional<api::cublasLtMatmulAlgo_t> algoOf(std::string_view code) {
  api::cublasLtMatmulAlgo_t algo{};
  if (code.size() != std::size(algo.data) * 16)
    return std::nullopt;
  for (size_t i = 0; i < std::size(algo.data); ++i) {
    const char *begin = code.data() + 16 * i, *end = begin + 16;
    if (auto [last, failure] = std::from_chars(begin, end, algo.data[i], 16); failure != std::errc() || last != end)
      return std::nullopt;
  }
  return algo;
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

BlasChoice::BlasChoice(const BlasLibrary &library, const DriverLibrary &driver, api::CUstream stream,
                       std::string machine, const runtime::Algorithms &recorded, bool tune)
    : library(library), driver(driver), stream(stream), recorded(recorded), tune(tune) {
  chosen.library = libraryName();
  chosen.machine = std::move(machine);
}

Status BlasChoice::compareLibrary() const {
  if (tune || recorded.empty() || recorded.library == libraryName())
    return Status();
  return error(
      "{}: the run's products were computed by {}, this machine has {}, which may give other bits: install {}, or "
      "{}",
      recorded.source, recorded.library, libraryName(), recorded.library, kWayOut);
}

Status BlasChoice::choose(BlasProduct &product) {
  const std::string text = product.text();
  if (auto known = byText.find(text); known != byText.end()) {
    product.use(known->second);
    return Status();
  }
  const auto before = recorded.calls.find(text);
  const bool fromRun = !tune && before != recorded.calls.end();
  double seconds = fromRun ? before->second.seconds : 0;
  Expected<BlasAlgorithm> found = [&]() -> Expected<BlasAlgorithm> {
    if (fromRun)
      return fromRecord(product, before->second);
    if (tune)
      return fastest(product, seconds);
    auto candidates = product.candidates(kAsked);
    return candidates ? Expected<BlasAlgorithm>(candidates->front()) : candidates.status();
  }();
  if (!found)
    return found.status();
  byText.emplace(text, *found);
  chosen.calls[text] = {codeOf(found->algo), aboutOf(found->algo), seconds};
  product.use(*found);
  return Status();
}

Expected<BlasAlgorithm> BlasChoice::fromRecord(const BlasProduct &product, const runtime::Algorithm &algorithm) const {
  std::optional<api::cublasLtMatmulAlgo_t> algo = algoOf(algorithm.code);
  Expected<BlasAlgorithm> checked = algo ? product.check(*algo) : error("its code is damaged");
  if (checked)
    return checked;
  return error("{}: {} on {} does not run the algorithm that the run recorded for this product ({}): {}; {}",
               recorded.source, libraryName(), chosen.machine, algorithm.about, checked.message(), kWayOut);
}

Expected<BlasAlgorithm> BlasChoice::fastest(BlasProduct &product, double &seconds) const {
  auto candidates = product.candidates(kTimed);
  if (!candidates)
    return candidates.status();
  Clock clock(driver);
  if (Status status = clock.create(); !status.ok())
    return status;
  for (const BlasProduct::Range &range : product.operandRanges())
    if (Status status = driver.check(
            driver->memsetD16Async(range.address, kFiller, range.bytes / sizeof kFiller, stream), "filling memory");
        !status.ok())
      return status;
  const BlasAlgorithm *best = nullptr;
  for (const BlasAlgorithm &candidate : *candidates) {
    product.use(candidate);
    Expected<double> time = secondsOf(product, clock.events[0], clock.events[1]);
    if (!time)
      return time.status().withContext("timing " + aboutOf(candidate.algo));
    if (best && *time >= seconds)
      continue;
    best = &candidate;
    seconds = *time;
  }
  return *best;
}

Expected<double> BlasChoice::secondsOf(const BlasProduct &product, api::CUevent begin, api::CUevent end) const {
  float least = 0;
  for (int run = -1; run < kRuns; ++run) {
    Status status = driver.check(driver->eventRecord(begin, stream), "recording an event");
    if (status.ok())
      status = product.submit(stream);
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

std::string BlasChoice::aboutOf(const api::cublasLtMatmulAlgo_t &algo) const {
  auto number = [&](api::cublasLtMatmulAlgoConfigAttributes_t attribute) {
    int32_t value = 0;
    size_t written = 0;
    (void)library->algoConfigGetAttribute(&algo, attribute, &value, sizeof value, &written);
    return value;
  };
  const int32_t parts = std::max(1, number(api::CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
  return fmt::format("algorithm {}, tile {}, K in {} part{}", number(api::CUBLASLT_ALGO_CONFIG_ID),
                     number(api::CUBLASLT_ALGO_CONFIG_TILE_ID), parts, parts == 1 ? "" : "s");
}

} // namespace tcc::cuda

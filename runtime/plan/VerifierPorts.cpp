//===- VerifierPorts.cpp - checks inputs, outputs, scalars and counters ---===//
#include "runtime/plan/VerifierImpl.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <array>
#include <set>

namespace tcc::plan::verifier {

namespace {
/// Outputs of which the runtime reads the first element (docs/design/plan-format.md).
constexpr std::array<std::string_view, 5> kNumbers = {outputs::kLossSum, outputs::kLossWeight, outputs::kGradNorm,
                                                      outputs::kCorrect, outputs::kCounted};

bool isNumberOfTraining(const Entry &entry, const std::string &output) {
  return entry.name() != entries::kPredict && entry.name() != entries::kPredictInference &&
         entry.name() != entries::kGradients &&
         (outputs::isTerm(output) || std::find(kNumbers.begin(), kNumbers.end(), output) != kNumbers.end());
}

class PortVerifier {
public:
  PortVerifier(const Context &context, const Entry &entry, const std::function<bool(uint32_t)> &isDefined)
      : plan(context.plan), entry(entry), report(context.report), isDefined(isDefined) {}

  void run() {
    for (const Port &port : entry.inputs())
      verifyInput(port);
    for (const Port &port : entry.outputs())
      verifyOutput(port);
    verifyBatch();
    if (entry.scalars() >= 0)
      verifyScalars(static_cast<uint32_t>(entry.scalars()));
    if (entry.has_counters())
      verifyCounters(entry.counters());
    // Every buffer of a kind that the runtime fills must be one that it does fill.
    for (uint32_t index = 0; exists(index); ++index) {
      Buffer::Kind kind = buffer(index).kind();
      bool filled = kind == Buffer::INPUT      ? filledInputs.contains(index)
                    : kind == Buffer::SCALARS  ? entry.scalars() == static_cast<int64_t>(index)
                    : kind == Buffer::COUNTERS ? entry.has_counters() && entry.counters() == static_cast<int64_t>(index)
                                               : true;
      if (!filled)
        report("entry '{}': nothing fills {}", entry.name(), describe(entry, index));
    }
  }

private:
  const Buffer &buffer(uint32_t index) const { return entry.buffers(static_cast<int>(index)); }
  bool exists(uint32_t index) const { return index < static_cast<uint32_t>(entry.buffers_size()); }

  bool verifyPort(const Port &port, const char *what, std::set<std::string> &names) {
    if (!names.insert(port.name()).second)
      report("entry '{}': {} '{}' is named twice", entry.name(), what, port.name());
    if (!exists(port.buffer())) {
      report("entry '{}', {} '{}': buffer {} does not exist, the entry has {}", entry.name(), what, port.name(),
             port.buffer(), entry.buffers_size());
      return false;
    }
    int rank = buffer(port.buffer()).type().dims_size();
    if (port.sample_axis() < -1 || port.sample_axis() >= std::max(rank, 1))
      report("entry '{}', {} '{}': sample axis {} of a value of rank {}", entry.name(), what, port.name(),
             port.sample_axis(), rank);
    for (const IndexRange &range : port.index_ranges()) {
      bool good = range.begin_size() == range.end_size() && (range.begin_size() == 0 || range.begin_size() == rank);
      for (int d = 0; good && d < range.begin_size(); ++d)
        good = range.begin(d) >= 0 && range.begin(d) <= range.end(d) &&
               range.end(d) <= buffer(port.buffer()).type().dims(d);
      if (!good)
        report("entry '{}', {} '{}': the range of its indices is not of its shape", entry.name(), what, port.name());
    }
    return true;
  }

  void verifyInput(const Port &port) {
    if (!verifyPort(port, "input", inputs))
      return;
    if (buffer(port.buffer()).kind() != Buffer::INPUT)
      report("entry '{}', input '{}': {} is not of kind INPUT", entry.name(), port.name(),
             describe(entry, port.buffer()));
    if (!filledInputs.insert(port.buffer()).second)
      report("entry '{}', input '{}': {} is another input already", entry.name(), port.name(),
             describe(entry, port.buffer()));
  }

  void verifyOutput(const Port &port) {
    if (!verifyPort(port, "output", outputs))
      return;
    const Buffer &b = buffer(port.buffer());
    if (b.last() != entry.instructions_size())
      report("entry '{}', output '{}': {} dies at instruction {}, before the end", entry.name(), port.name(),
             describe(entry, port.buffer()), b.last());
    if (!isDefined(port.buffer()))
      report("entry '{}', output '{}': nothing is ever written to {}", entry.name(), port.name(),
             describe(entry, port.buffer()));
    if (isNumberOfTraining(entry, port.name()) && elementCount(b.type()).value_or(0) != 1)
      report("entry '{}', output '{}': {} is {}, not one number", entry.name(), port.name(),
             describe(entry, port.buffer()), typeName(b.type()));
  }

  /// The batch size must be the length of some input's sample axis.
  void verifyBatch() {
    bool isLength = entry.batch() == 1;
    for (const Port &port : entry.inputs())
      if (exists(port.buffer()) && port.sample_axis() >= 0 &&
          port.sample_axis() < buffer(port.buffer()).type().dims_size())
        isLength |= buffer(port.buffer()).type().dims(port.sample_axis()) == entry.batch();
    if (!isLength || entry.batch() < 1)
      report("entry '{}': a batch of {} samples is that of no input", entry.name(), entry.batch());
  }

  /// The run-time scalars that an entry is given.
  uint64_t scalarsOf(const Entry &one) const {
    const std::string_view name = one.name(), base = entries::baseOf(name);
    for (const Phase &phase : plan.training().phases())
      if (name.size() > base.size() && name.substr(base.size() + 1) == phase.name())
        return static_cast<uint64_t>(phase.training().scalars_size());
    for (const Stage &stage : plan.training().stages())
      if (name.size() > base.size() && name.substr(base.size() + 1) == stage.name())
        return static_cast<uint64_t>(stage.training().scalars_size());
    return static_cast<uint64_t>(plan.training().scalars_size());
  }

  void verifyScalars(uint32_t index) {
    if (!exists(index))
      report("entry '{}': its scalars are buffer {}, it has {}", entry.name(), index, entry.buffers_size());
    else if (const Buffer &b = buffer(index); b.kind() != Buffer::SCALARS || b.type().dtype() != F32 ||
                                              elementCount(b.type()).value_or(0) < scalarsOf(entry))
      report("entry '{}': {} cannot hold the {} run-time scalars", entry.name(), describe(entry, index),
             scalarsOf(entry));
  }

  void verifyCounters(int32_t number) {
    auto index = static_cast<uint32_t>(number);
    if (!exists(index))
      report("entry '{}': its counters are buffer {}, it has {}", entry.name(), index, entry.buffers_size());
    else if (const Buffer &b = buffer(index);
             b.kind() != Buffer::COUNTERS || b.type().dtype() != U32 || elementCount(b.type()).value_or(0) != 4)
      report("entry '{}': {} cannot hold the counters of random numbers, 4 words", entry.name(),
             describe(entry, index));
  }

  const Plan &plan;
  const Entry &entry;
  Reporter &report;
  const std::function<bool(uint32_t)> &isDefined;
  std::set<std::string> inputs, outputs;
  std::set<uint32_t> filledInputs;
};
} // namespace

void verifyPorts(const Context &context, const Entry &entry, const std::function<bool(uint32_t)> &isDefined) {
  PortVerifier(context, entry, isDefined).run();
}

} // namespace tcc::plan::verifier

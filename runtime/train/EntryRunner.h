//===- EntryRunner.h - one entry of a plan on a device -------------------===//
//
// Gives an entry its inputs, scalars and counters, runs it, and reads its outputs. All places are looked up once, so a
// run needs no look-up and allocates nothing. The entry's memory is populated in advance, so the first run is as fast
// as the others.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_ENTRYRUNNER_H
#define TCC_RUNTIME_TRAIN_ENTRYRUNNER_H

#include "runtime/Device.h"
#include "runtime/train/Scalars.h"

#include <span>
#include <string>
#include <vector>

namespace tcc::runtime {

/// The entry of that name, or null.
const plan::Entry *findEntry(const plan::Plan &plan, const std::string &name);

class EntryRunner {
public:
  /// `entry` is one of the device's plan.
  EntryRunner(Device &device, const plan::Entry &entry);

  const plan::Entry &entry() const { return *program; }

  /// Calls `fill(inputs)`, which returns a Status, to write the inputs of the next run: `inputs` has the host memory of
  /// each, in the order of entry().inputs(); empty if the device computes nothing. Error: fill's, or the device's.
  template <typename Fill> Status giveInputs(Fill &&fill) {
    Status status = stageInputs();
    if (status.ok())
      status = fill(std::span<const std::span<std::byte>>(inputBytes));
    return status.ok() ? commitInputs() : status;
  }

  /// Computes the entry's scalars (ScalarBlock::compute) for the next run, if it reads any.
  Status giveScalars(const ScalarBlock &block, uint64_t updateNumber, SchedulePoint at,
                     std::optional<double> lossScale = {});

  /// Sets seed and counters of the random numbers from the next run on; update and micro-batch count from 0.
  void setSeed(uint64_t value) { seed = value; }
  void setCounters(uint64_t updateNumber, uint64_t microBatchNumber) {
    update = updateNumber;
    microBatch = microBatchNumber;
  }

  Status run();
  /// The same, with a call after each launch.
  Status runTimed(const LaunchObserver &after);

  bool hasOutput(const std::string &output) const { return outputIndex(output) >= 0; }
  /// Index of an output, or -1.
  int outputIndex(const std::string &output) const;
  /// The first element of an output as a double, from the latest run, or from an earlier one whose numbers the device
  /// still has (Device::readNumber). NaN if the device computes nothing, 0 for index -1.
  Expected<double> scalarOutput(int index) const { return scalarOutput(index, submitted); }
  Expected<double> scalarOutput(int index, uint64_t run) const;
  /// The number of the latest run, from 1.
  uint64_t latestRun() const { return submitted; }
  /// Adds the output's first element to `sum`.
  Status addScalar(int index, double &sum) const;
  /// Copies bytes of an output; valid until another entry runs.
  Status readOutput(int index, uint64_t offset, std::span<std::byte> to) const;
  /// Passes an output's bytes to `sink`; valid until another entry runs.
  Status streamOutput(int index, const ByteSink &sink) const;
  const plan::TensorType &outputType(int index) const;

  /// The first instruction that writes a NaN, or else an infinity.
  struct NonFinite {
    std::string node; ///< the ONNX node; empty: no instruction writes one
    uint32_t instruction = 0;
  };
  /// Runs the whole entry again to find that instruction. For diagnosis: it allocates and is slow.
  NonFinite findNonFinite();

private:
  Status stageInputs();
  Status commitInputs();
  Status writeCounters();
  Place outputPlace(int index) const;

  Device *device;
  const plan::Entry *program;
  uint32_t number = 0; ///< of the entry in the plan
  std::vector<Staging> staged;
  std::vector<std::span<std::byte>> inputBytes; ///< of `staged`
  uint64_t seed = 0, update = 0, microBatch = 0, submitted = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_ENTRYRUNNER_H

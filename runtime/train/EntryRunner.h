//===- EntryRunner.h - one entry of a plan on a device -------------------===//
//
// Keeps the addresses of an entry's inputs, scalars, counters and outputs, found once, so that a call costs no look-up.
// The memory that the entry uses is made present at once: the first run is as fast as the others.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_ENTRYRUNNER_H
#define TCC_RUNTIME_TRAIN_ENTRYRUNNER_H

#include "runtime/Device.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tcc::runtime {

/// The entry of that name, or null.
const plan::Entry *findEntry(const plan::Plan &plan, const std::string &name);

class EntryRunner {
public:
  EntryRunner(Device &device, const plan::Entry &entry);

  const plan::Entry &entry() const { return *program; }
  /// Addresses of the inputs, in the order of entry().inputs(); null where the device has no memory.
  std::span<void *const> inputs() const { return inputBuffers; }
  /// The scalar block; empty where the entry has none.
  std::span<float> scalars() const { return scalarBlock; }

  /// What random numbers are drawn with from the next run on; update and micro-batch of the update count from 0.
  void setSeed(uint64_t value) { seed = value; }
  void setCounters(uint64_t updateNumber, uint64_t microBatchNumber) {
    update = updateNumber;
    microBatch = microBatchNumber;
  }

  plan::Status run() {
    fillCounters();
    return device->run(name);
  }
  /// The same with a call after each launch.
  plan::Status runTimed(const LaunchObserver &after) {
    fillCounters();
    return device->runTimed(name, after);
  }

  bool hasOutput(const std::string &output) const { return outputIndex(output) >= 0; }
  /// Index of an output, or -1.
  int outputIndex(const std::string &output) const;
  /// The first element of an output as a double; NaN where the device has no memory, 0 for index -1.
  double scalarOutput(int index) const;
  /// An output's bytes, valid until another entry runs.
  std::span<const std::byte> outputBytes(int index) const;

  /// Runs again, and names the ONNX node of the first instruction that writes a NaN, or else an infinity; empty where
  /// none does. For diagnosis: it allocates and is slow.
  std::string findNonFinite();

private:
  void fillCounters();

  Device *device;
  const plan::Entry *program;
  std::string name;
  std::vector<void *> inputBuffers;
  std::vector<const void *> outputBuffers;
  std::span<float> scalarBlock;
  uint32_t *counters = nullptr; ///< null where the entry has none, or the device has no memory
  uint64_t seed = 0, update = 0, microBatch = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_ENTRYRUNNER_H

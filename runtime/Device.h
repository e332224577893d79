//===- Device.h - a machine that runs plans ------------------------------===//
//
// A device owns the two arenas of a plan, its code and its library primitives. All is made once, when the device is
// created: running an entry allocates nothing and takes no lock.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DEVICE_H
#define TCC_RUNTIME_DEVICE_H

#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Status.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tcc::runtime {

/// Called after each instruction of an observed run, with its index in the entry.
using InstructionObserver = std::function<void(uint32_t instruction)>;

/// An instruction's part of a launch: what workers spent on it, in the unit of the launch's other parts.
struct LaunchPart {
  uint32_t instruction;
  double workerSeconds;
};

/// Called after each launch of a timed run. Instructions may share a launch, and take part in several.
using LaunchObserver = std::function<void(std::span<const LaunchPart>)>;

class Device {
public:
  virtual ~Device() = default;

  /// Bytes of the two arenas: what the plan says and what was allocated.
  virtual uint64_t residentBytes() const = 0;
  virtual uint64_t transientBytes() const = 0;

  /// Address of a variable in the resident arena; null for an index out of range, or where there is no memory (null
  /// device).
  virtual void *variableData(uint32_t variable) = 0;

  /// Address of a buffer of an entry, for inputs before a run and outputs after it: valid until another entry runs,
  /// since entries share the transient arena. Null as variableData.
  virtual void *bufferData(const std::string &entry, uint32_t buffer) = 0;

  /// Has the system supply the memory that an entry uses, on all workers at once, so that its first run is as fast as
  /// the later ones. Memory that other entries alone use stays untouched. Changes no byte.
  virtual void touch(const std::string &entry) {}

  /// Runs an entry to its end. Error: no such entry; a library call failed (named by node).
  virtual plan::Status run(const std::string &entry) = 0;

  /// The same one instruction after the other, with a call after each: to find the node where a number went bad.
  virtual plan::Status runObserved(const std::string &entry, const InstructionObserver &after) = 0;

  /// The same as `run` runs it, with a call after each launch: for profiles.
  virtual plan::Status runTimed(const std::string &entry, const LaunchObserver &after) {
    return runObserved(entry, [&](uint32_t instruction) {
      LaunchPart whole{instruction, 1};
      after({&whole, 1});
    });
  }

  /// Workers that run the kernels.
  virtual unsigned threads() const { return 1; }

  /// What the library took for itself when the device was made (primitives, their code, its own pages), measured.
  virtual uint64_t libraryBytes() const { return 0; }
};

/// A CPU device with `threads` workers (0: as many as this process may use; never more than the plan's max_workers; the
/// count changes no result). Verifies the plan, checks target, kernel ABI and library kernels, allocates, and loads the
/// variables' initial values: payload, external file, fill. Every fault is an error that says where it is.
plan::Expected<std::unique_ptr<Device>> createCpuDevice(const plan::PlanReader &reader, unsigned threads);

/// The same without initial values: to measure what a device takes beside its arenas, whose pages stay untouched.
plan::Expected<std::unique_ptr<Device>> createEmptyCpuDevice(const plan::PlanReader &reader, unsigned threads);

/// A device that executes nothing and checks everything: verifies the plan, then walks each entry that is run.
plan::Expected<std::unique_ptr<Device>> createNullDevice(const plan::PlanReader &reader);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DEVICE_H

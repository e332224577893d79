//===- Device.h - a machine that runs plans ------------------------------===//
//
// A device owns the memory of one plan's variables and buffers, its code and its library primitives. It allocates all
// of them when it is created: running an entry allocates nothing and takes no lock.
//
// Order. A device executes what is submitted to it in the order of submission: run, write, fill, copy and commit submit
// work, and may return before that work is done (DeviceCapabilities::asynchronous). read and readPieces return when
// everything submitted before them is done, wait when everything submitted before the event is done. An error of work
// that completes later is returned by the first of these calls that waits for it. One thread at a time calls a device.
//
// Host memory. No address of the device's memory is visible outside, except between stage and commit, and during a call
// of a ByteSink. The caller may reuse the bytes given to write when write returns.
//
// Guarded state. While a StateGuard is set, a device that guards state (DeviceCapabilities::guardsState) announces
// every variable before its bytes change, and readPieces of a variable that was not announced yet may run on any
// thread, concurrently with all other calls. So the state can be copied while the next update computes. A device with
// memory of its own makes such copies itself (copyOut, DeviceCapabilities::copiesState).
//
// Arguments are checked here, once for all devices, against the plan. A device implements the protected functions,
// whose arguments are valid. test/unit/runtime/DeviceConformanceTest.cpp holds every registered device to this
// contract.
//
// Ranks. In a job of several ranks, the devices run the plan's collectives together: an entry returns an error if
// another rank has failed.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DEVICE_H
#define TCC_RUNTIME_DEVICE_H

#include "runtime/Algorithms.h"
#include "runtime/parallel/Communicator.h"
#include "runtime/plan/PlanFile.h"
#include "support/ByteSink.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Called after each instruction of an observed run, with its index in the entry. It may read from the device.
using InstructionObserver = std::function<void(uint32_t instruction)>;

/// An instruction's part of a launch: the workers' time for it. Only the ratio to the launch's other parts is defined.
struct LaunchPart {
  uint32_t instruction;
  double workerSeconds;
};

/// Called after each launch of a timed run. Several instructions may share a launch, and one may be part of several.
using LaunchObserver = std::function<void(std::span<const LaunchPart>)>;

enum class DeviceMemory {
  None,     ///< reads give zeros, writes are checked and dropped
  Host,     ///< the host can address it: staging is the place itself, readPieces gives one piece without a copy
  Separate, ///< the host accesses it by copies
};

struct DeviceCapabilities {
  std::string name; ///< as registered (runtime/registry/DeviceRegistry.h)
  DeviceMemory memory = DeviceMemory::Host;
  bool executes = true;           ///< false: run checks the entry and computes nothing
  bool asynchronous = false;      ///< submitted work may still be in flight when the call returns
  bool choosesAlgorithms = false; ///< of a library, within the plan's bounds: see algorithms()
  bool guardsState = false;       ///< setGuard has an effect
  bool copiesState = false;       ///< copyOut is implemented
  bool keepsNumbers = false;      ///< readNumber also has the numbers of the run before the latest
  unsigned threads = 1;           ///< workers of the host that run kernels
  std::string machine;            ///< the driver's name for it, "NVIDIA H200"; empty if it is the host
};

/// Runs of a collective since the device was made: the time that they took, and the time for which instructions of this
/// rank waited for their results.
struct CollectiveTimes {
  uint64_t calls = 0;
  double seconds = 0, exposedSeconds = 0;
};

/// The tensor of a variable or of an entry's buffer, row-major and dense: indices into Plan.variables, Plan.entries and
/// Entry.buffers. Entries share memory, so the content of a transient buffer is defined only until another entry runs.
struct Place {
  std::optional<uint32_t> entry;
  uint32_t index = 0;

  static Place variable(uint32_t index) { return {std::nullopt, index}; }
  static Place buffer(uint32_t entry, uint32_t index) { return {entry, index}; }
};

/// Host memory whose bytes become the content of a place.
struct Staging {
  Place place;
  std::span<std::byte> bytes; ///< all of the place; empty on a device without memory
};

/// Is notified of variables whose bytes are about to change, on the thread that calls the device.
class StateGuard {
public:
  virtual ~StateGuard() = default;
  /// The bytes may change once this returns. A variable may be announced several times, also without a change.
  virtual void beforeWrite(uint32_t variable) = 0;
};

/// A copy of a variable's first `to.size()` bytes to memory from Device::hostMemory().
struct StateCopy {
  uint32_t variable = 0;
  std::span<std::byte> to;
};

/// A point in the order of submission.
struct Event {
  uint64_t number = 0; ///< counted from 1
};

class Device {
public:
  virtual ~Device() = default;
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  const plan::Plan &plan() const { return *shared; }
  virtual const DeviceCapabilities &capabilities() const = 0;

  /// Bytes that were allocated for variables, and for the values of entries with the device's number of workers.
  virtual uint64_t residentBytes() const = 0;
  virtual uint64_t transientBytes() const = 0;

  /// Bytes of the host that were allocated for what the plan keeps there.
  virtual uint64_t hostBytes() const { return 0; }

  /// Measured bytes that the library allocated when the device was made (primitives, their code, its own pages).
  virtual uint64_t libraryBytes() const { return 0; }

  /// The algorithms that the library chose for the plan's calls when the device was made.
  virtual Algorithms algorithms() const { return {}; }
  /// True if the plan's kernels compute or finish this call, since the library has no algorithm for it (CallKernels.h).
  virtual bool usesKernels(const plan::Instruction &) const { return false; }

  /// The index of the entry of that name. Error: the plan has none.
  Expected<uint32_t> findEntry(const std::string &name) const;

  /// The bytes of a place. Error, here and below: the plan has no such place.
  Expected<uint64_t> bytesOf(Place place) const;

  /// Copies `to.size()` bytes at `offset` of a place to the host. Error, here and in write: the range ends outside.
  Status read(Place place, uint64_t offset, std::span<std::byte> to);

  /// Passes all bytes of a place to `sink` in pieces, in order: for places too large to copy as a whole. Error: the
  /// sink's.
  Status readPieces(Place place, const ByteSink &sink);

  /// Submits a copy of `from` to the bytes at `offset` of a place.
  Status write(Place place, uint64_t offset, std::span<const std::byte> from);

  /// Host memory for the next content of a place, which the caller writes as a whole and then commits; without a commit
  /// the content of the place is undefined. stage waits until earlier work no longer reads that memory. A device with
  /// separate memory keeps the staging memory of a buffer for its next stage, so that steps allocate nothing, and frees
  /// that of a variable with its commit.
  Expected<Staging> stage(Place place);
  /// Submits the copy from the staging to its place. The staging is no longer valid.
  Status commit(const Staging &staging);

  /// Submits a fill that sets every byte of a place to `value`.
  Status fill(Place place, std::byte value);

  /// Submits a copy of one place to another of the same size.
  Status copy(Place from, Place to);

  /// The value of a one-element output after the latest run of its entry, or with `ago` = 1 after the run before that.
  /// Returns as soon as the value is final: a device that keeps numbers does not wait for the end of the run. Error:
  /// the device does not keep the numbers of so old a run, or the entry has not run as often.
  Status readNumber(uint32_t entry, uint32_t buffer, unsigned ago, std::span<std::byte> to);

  /// Page-aligned host memory for copyOut, which must be freed before the device is. Error: not enough memory.
  virtual Expected<std::shared_ptr<std::byte>> hostMemory(uint64_t bytes);
  /// Submits copies of variables, in this order. They run concurrently with later work; work that changes a variable
  /// waits for its copy. All copies of the previous call must be complete. Only if copiesState.
  Status copyOut(std::span<const StateCopy> copies);
  /// Returns when the copy of that index in the latest copyOut is complete. May run on any thread, concurrently with
  /// all other calls.
  virtual Status waitForCopy(size_t index);

  /// The current end of the order of submission.
  Event record();
  /// Returns when everything that was submitted before the event is done. Error: the device never recorded the event.
  Status wait(Event event);

  /// Populates the pages that an entry uses, with all workers, so that its first run is as fast as the later ones.
  /// Pages that only other entries use stay untouched. Changes no byte.
  Status touch(uint32_t entry);

  /// Submits one run of an entry. Error, here and below: no such entry; a library call failed (named by node).
  Status run(uint32_t entry);

  /// Sets the ranks with which the plan's collectives run from now on: those of DeviceOptions, or null: this rank
  /// alone, whose collectives copy their sources. `ranks` outlives the device, or the next call.
  void setRanks(Communicator *ranks) { communicator = ranks; }

  /// Sets the guard that is notified before a variable changes; null: none.
  void setGuard(StateGuard *next) { guard = next; }

  /// The times of one collective of the plan, or of all, with other ranks.
  virtual CollectiveTimes collectiveTimes(uint32_t /*entry*/, uint32_t /*instruction*/) const { return {}; }
  virtual CollectiveTimes collectiveTimes() const { return {}; }

  /// Runs an entry one instruction after the other, with a call after each: to find the node that first computes a NaN
  /// or an infinity.
  Status runObserved(uint32_t entry, const InstructionObserver &after);

  /// Runs an entry as `run` does, with a call after each launch: for profiles.
  Status runTimed(uint32_t entry, const LaunchObserver &after);

protected:
  explicit Device(std::shared_ptr<const plan::Plan> plan);

  virtual Status readBytes(Place place, uint64_t offset, std::span<std::byte> to) = 0;
  /// By default in pieces of 1 MiB, which readBytes copies.
  virtual Status readAll(Place place, uint64_t bytes, const ByteSink &sink);
  virtual Status writeBytes(Place place, uint64_t offset, std::span<const std::byte> from) = 0;
  virtual Expected<std::span<std::byte>> stageBytes(Place place, uint64_t bytes) = 0;
  virtual Status commitBytes(const Staging &staging) = 0;
  virtual Status fillBytes(Place place, uint64_t bytes, std::byte value) = 0;
  virtual Status copyBytes(Place from, Place to, uint64_t bytes) = 0;
  /// By default as readBytes: the numbers of the latest run alone.
  virtual Status numberBytes(uint32_t entry, uint32_t buffer, unsigned ago, std::span<std::byte> to);
  virtual Status copyOutBytes(std::span<const StateCopy> copies);
  /// By default nothing, for a device whose work is done when a call returns.
  virtual void recordEvent(uint64_t) {}
  virtual Status waitForEvent(uint64_t) { return Status(); }
  virtual void touchEntry(uint32_t) {}
  virtual Status runEntry(uint32_t entry) = 0;
  virtual Status observeEntry(uint32_t entry, const InstructionObserver &after) = 0;
  /// By default each instruction is a launch of its own.
  virtual Status timeEntry(uint32_t entry, const LaunchObserver &after);

  /// Null: this rank alone.
  Communicator *ranks() const { return communicator; }

  /// Null: no guard is set.
  StateGuard *stateGuard() const { return guard; }

  const plan::Buffer &bufferAt(Place place) const {
    return shared->entries(static_cast<int>(*place.entry)).buffers(static_cast<int>(place.index));
  }

private:
  Status checkEntry(uint32_t entry) const;
  /// The bytes of a place; null if the plan has no such place.
  const uint64_t *sizeOf(Place place) const;
  Status unknown(Place place) const;
  void announce(Place place) const;
  Status checkRange(Place place, uint64_t offset, uint64_t bytes, const char *what) const;
  std::string textOf(Place place) const;

  std::shared_ptr<const plan::Plan> shared;
  Communicator *communicator = nullptr;
  StateGuard *guard = nullptr;
  std::vector<uint64_t> variableBytes;
  std::vector<std::vector<uint64_t>> bufferBytes; ///< by entry
  uint64_t recorded = 0;
};

/// Error: no variant of the plan is selected, the verifier finds it unsafe to run, or it keeps memory on the host and
/// the device has none of its own (`keepsOnHost`: it has).
Status checkPlan(const plan::PlanReader &reader, bool keepsOnHost = false);

/// Options of createDevice.
struct DeviceOptions {
  std::string name;       ///< a registered name, "cpu"; empty: the one of the plan's target
  unsigned threads = 0;   ///< 0: as many as this process may use; the count changes the transient arena, no result
  uint32_t rank = 0;      ///< the rank whose shards the variables hold
  uint32_t localRank = 0; ///< number among the ranks of this machine, which selects the card
  Communicator *ranks = nullptr; ///< the argument of a later setRanks; null: this process is the only rank
  bool initialValues = true; ///< false: leave the plan's memory untouched, to measure what the device needs besides it
  Algorithms recorded = {};  ///< of the resumed run, for a device that chooses algorithms to reuse; empty: none
  bool tune = false;         ///< time the algorithms of each call and choose the fastest, instead of recorded ones
  bool stepByStep = false;   ///< await each instruction, so that a fault is placed at its node; slow
};

/// Makes a device for a plan: verifies the plan, checks that the device has what the plan asks for (target, kernel ABI,
/// library), allocates, and loads the variables' initial values. Every fault is an error that names its place.
using DeviceFactory = std::function<Expected<std::unique_ptr<Device>>(const plan::PlanReader &, const DeviceOptions &)>;

/// Ranks a target among those of its device on this machine: greater is better. Error: why the target cannot run here.
using TargetRank = std::function<Expected<uint32_t>(const std::string &target)>;

/// A device as the registry lists it.
struct DeviceKind {
  std::string name; ///< the part before ':' of the targets that it runs ("cpu" of "cpu:v3"), or another word for
                    ///< a device that is only chosen by name
  DeviceFactory create;
  TargetRank rank = nullptr;  ///< null: every target of that name runs
  uint32_t preference = 0;    ///< greater: its targets are taken before those of other devices
  bool runsAnyTarget = false; ///< it runs plans of every target; no plan names it
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DEVICE_H

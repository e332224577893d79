//===- IsolatedPlan.h - a plan's instructions, each alone with its operands -===//
//
// Runs a plan as the CPU device does, but gives each instruction copies of its operands in mappings of their own, which
// end at an inaccessible page, or start after one. Operands that an instruction may only read are mapped read-only;
// those that it writes are copied back. So an access outside an operand is a fault that names the instruction; in the
// device's arenas it would silently reach a neighbour. Uninitialised memory is filled with one byte: runs with two
// different bytes give the same results, unless an instruction reads uninitialised memory.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_SUPPORT_ISOLATE_ISOLATEDPLAN_H
#define TCC_TEST_SUPPORT_ISOLATE_ISOLATEDPLAN_H

#include "runtime/plan/PlanFile.h"

#include <memory>
#include <random>
#include <span>
#include <string>

namespace tcc::test {

struct IsolatedRun {
  /// The byte that fills uninitialised memory; 0xff makes a NaN of every floating-point type.
  char unset = '\xa5';
  /// True: operands begin after a guard page; false: they end before one.
  bool atStart = false;
  /// True: inputs are numbers in [-1, 1] and legal indices; false: random bits.
  bool legalInputs = false;
};

class IsolatedPlan {
public:
  /// Loads a plan that the verifier accepted, with `threads` workers for library calls. Errors are those of
  /// createCpuDevice, and an arena of more than `mostBytes`.
  static Expected<IsolatedPlan> load(const plan::PlanReader &reader, unsigned threads,
                                     uint64_t mostBytes = uint64_t(1) << 30);

  IsolatedPlan(IsolatedPlan &&);
  ~IsolatedPlan();

  /// Runs an entry once, with newly drawn inputs, scalars and counters, and uninitialised transient memory. Error: a
  /// library call failed.
  Status run(const plan::Entry &entry, std::mt19937_64 &random, const IsolatedRun &options = {});
  /// The bytes of a buffer, as the last run left them.
  std::span<const char> bytesOf(const plan::Buffer &buffer) const;

private:
  struct State;
  explicit IsolatedPlan(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

/// Prints the running instruction to standard error when the process faults, then lets it die of the signal.
void nameFaults();

/// Describes the first two buffers of an entry that share memory while both live, other than by a declared in-place
/// pair; empty if there are none. Compares every pair at every instruction: slow, but independent of the verifier's
/// sweep.
std::string findOverlap(const plan::Entry &entry);

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_ISOLATE_ISOLATEDPLAN_H

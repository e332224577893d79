//===- IsolatedPlan.h - a plan's instructions, each alone with its operands -===//
//
// Runs a plan as the CPU device does, but gives each instruction copies of its operands in mappings of their own, which
// end at a page that cannot be touched, or start behind one. What an instruction may only read is mapped read-only;
// what it writes is copied back. So a read or write outside an operand is a fault, which names the instruction, where
// the device's arenas would hide it in a neighbour. Memory that nothing has written yet holds one byte everywhere: runs
// with two such bytes give the same results, unless an instruction reads what nothing wrote.
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
  /// What memory is full of before an instruction writes it: 0xff makes NaN of every floating-point type.
  char unset = '\xa5';
  /// Operands begin behind the guard page; else they end before it.
  bool atStart = false;
  /// Inputs are numbers in [-1, 1] and legal indices; else bits of any kind.
  bool legalInputs = false;
};

class IsolatedPlan {
public:
  /// Loads a plan that the verifier accepted, with `threads` workers for library calls. Errors as createCpuDevice's;
  /// arenas of more than `mostBytes` each.
  static Expected<IsolatedPlan> load(const plan::PlanReader &reader, unsigned threads,
                                     uint64_t mostBytes = uint64_t(1) << 30);

  IsolatedPlan(IsolatedPlan &&);
  ~IsolatedPlan();

  /// Runs an entry once. Its inputs, scalars and counters are drawn anew; transient memory is full of what no value is.
  /// Error: the library failed.
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

/// The first two buffers of an entry that share memory while both live, other than by a declared in-place pair, in
/// words; empty where there are none. Looks at every pair at every instruction: slow, and unlike the verifier's sweep.
std::string findOverlap(const plan::Entry &entry);

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_ISOLATE_ISOLATEDPLAN_H

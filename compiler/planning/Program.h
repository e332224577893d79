//===- Program.h - instructions with the memory that they use ---*- C++ -*-===//
//
// An entry as scheduling, rematerialisation and packing see it: the values that each instruction reads and writes, their
// bytes, and the results that may take over an operand's memory. A sequence is an order of execution; an instruction
// that occurs in it again is recomputed. `blocksOf` alone defines live ranges.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_PROGRAM_H
#define TCC_PLANNING_PROGRAM_H

#include "compiler/planning/Packing.h"
#include "compiler/planning/Rematerialization.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tcc::planning {

/// A piece of transient memory. State (parameters, moments) is not one: its memory is always there.
struct ProgramValue {
  std::string name;
  Bytes bytes = 0;
  int producer = -1;   ///< instruction that writes it; −1: an input, there at entry
  bool atExit = false; ///< lives to the end
};

/// The cost and the memory accesses of one execution. Its fields are those of ProgramInstruction.
struct Execution {
  Cost cost = 0;
  std::vector<int> reads;
  std::vector<int> writes;
  Bytes workspace = 0;
  std::vector<std::pair<int, int>> inPlace;
  Bytes scratch = 0;
};

/// The executions of an instruction that make only some of its results: they read less, cost less, and may write over
/// other operands. Costs have to be subadditive: two executions cost no less than one that makes the results of both. An
/// operand that a result needs, and that it may be written over in some execution, it may also be written over alone.
class PartialExecutions {
public:
  virtual ~PartialExecutions() = default;

  /// The execution for those results `writes[i]` with `wanted[i]`; the last element says whether state is written, too.
  const Execution &of(const std::vector<bool> &wanted) const;

  /// One number for each result, for lower bounds: whatever executions together make every result, they cost more than
  /// one execution of everything by at least the sum of these over the results that are made again.
  virtual std::vector<Cost> shares() const = 0;

protected:
  virtual Execution make(const std::vector<bool> &wanted) const = 0;

private:
  mutable std::mutex mutex;
  mutable std::map<std::vector<bool>, Execution> made;
};

struct ProgramInstruction {
  std::string name;
  Cost cost = 0;           ///< of one execution
  std::vector<int> reads;  ///< values, ascending, each once
  std::vector<int> writes; ///< values, ascending
  Bytes workspace = 0;     ///< live during its executions alone, scratch included
  /// (read, written) of equal size: the written value may take over the memory of the read one where that one dies
  /// here. In order of preference; each value occurs once.
  std::vector<std::pair<int, int>> inPlace;
  /// Instructions all of whose executions come before this one's: they read state that it overwrites. Ascending.
  std::vector<int> after;
  bool repeatable = false;  ///< may be executed again: pure, writes no state
  bool writesState = false; ///< its first execution has an effect beyond its results
  bool omits = false;       ///< results that nobody reads are left out, and take no memory
  /// The executions that leave results out; null: they cost as much as one that computes all results.
  std::shared_ptr<const PartialExecutions> partial = nullptr;
  Bytes scratch = 0; ///< the part of the workspace that lies above all values that live then
};

struct Program {
  std::vector<ProgramValue> values;
  std::vector<ProgramInstruction> instructions; ///< in a valid order
};

/// Instructions in order of execution.
using Sequence = std::vector<int>;

/// The execution of an instruction after which those of its results are read that are `needed` (by value); `isFirst`
/// says whether it is the one that writes state.
Execution executionOf(const ProgramInstruction &instruction, const std::vector<bool> &needed, bool isFirst);

/// What each execution of a sequence reads, makes and costs: those results that are read before they are made again or
/// leave, and no others where the instruction can omit them.
std::vector<Execution> executionsOf(const Program &program, const Sequence &sequence);

/// Memory during part of a sequence: a value made by one execution (and those that take over its memory), or the
/// workspace of one.
struct Block {
  int value = -1;     ///< −1: workspace or scratch
  int execution = -1; ///< position in the sequence at which it is made; −1: at entry
  Bytes bytes = 0;
  Time first = 0, last = 0; ///< positions, both included; −1: at entry, the sequence's length: at exit
  int inPlaceOf = -1;       ///< block whose memory it takes over, where that one dies
  bool isScratch = false;
};

/// All blocks in order of position; those of values at entry come first. The sequence has to be valid.
std::vector<Block> blocksOf(const Program &program, const Sequence &sequence);

/// The packing problem of blocks: those that take over one another's memory are one buffer. `bufferOf[block]` is its
/// index; −1 for scratch, whose blocks are those of the problem, in order.
PackingProblem packingOf(const std::vector<Block> &blocks, std::vector<int> &bufferOf);

/// Bytes that live at entry, during each execution, and at exit, sizes rounded up to the alignment of packing.
std::vector<Bytes> liveBytes(const Program &program, const Sequence &sequence);

/// Most bytes live at once, sizes rounded up to the alignment of packing: a lower bound of every packing.
Bytes peakOf(const Program &program, const Sequence &sequence);

/// Sum of the costs of all executions: the measure that ladders, plans and reports share.
Cost costOf(const Program &program, const Sequence &sequence);

/// Checks a sequence naively: every instruction executed, every read value at hand, order against state heeded,
/// repetitions allowed. Empty if valid, else what is wrong, by name.
std::string validate(const Program &program, const Sequence &sequence);

} // namespace tcc::planning

#endif // TCC_PLANNING_PROGRAM_H

//===- Program.h - instructions with the memory that they use ---*- C++ -*-===//
//
// The input of scheduling, rematerialisation and packing: the values that each instruction of an entry reads and
// writes, their bytes, and the results that may take over an operand's memory. A sequence is an order of execution; an
// instruction that occurs more than once is recomputed. `blocksOf` alone defines live ranges.
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
  Bytes bytes = 0;     ///< of the device's memory, or of the host's
  int producer = -1;   ///< instruction that writes it; −1: an input, there at entry
  bool atExit = false; ///< lives to the end
  bool onHost = false; ///< in the memory of the host; only transfers read and write it
};

/// The cost and the memory accesses of one execution. Its fields are those of ProgramInstruction.
struct Execution {
  Cost cost = 0;
  std::vector<int> reads;
  std::vector<int> writes;
  Bytes workspace = 0;
  std::vector<std::pair<int, int>> inPlace = {};
  Bytes scratch = 0;
};

/// The executions of an instruction that make only some of its results: they read less, cost less, and may write over
/// other operands. Costs have to be subadditive: two executions cost no less than one that makes the results of both.
/// If some execution may write a result over an operand that this result reads, the execution for this result alone
/// may, too.
class PartialExecutions {
public:
  virtual ~PartialExecutions() = default;

  /// The execution that makes the results `writes[i]` with `wanted[i]`; the last element of `wanted` says whether it
  /// also writes state.
  const Execution &of(const std::vector<bool> &wanted) const;

  /// One share for each result, for lower bounds: executions that together make every result cost at least one
  /// execution of everything plus the shares of the results that are made again.
  virtual std::vector<Cost> shares() const = 0;

protected:
  virtual Execution make(const std::vector<bool> &wanted) const = 0;

private:
  mutable std::mutex mutex;
  mutable std::map<std::vector<bool>, Execution> made;
};

/// Transfers move a value, or state, between the device and the host, beside other instructions. A fetch begins where
/// it stands in a sequence, and what reads its result waits for it. A store begins as soon as its source is made, and
/// is done where it stands: until then its source stays live.
enum class Transfer { None, Store, Fetch };

struct ProgramInstruction {
  std::string name;
  Cost cost = 0;           ///< of one execution
  std::vector<int> reads;  ///< values, ascending, each once
  std::vector<int> writes; ///< values, ascending
  Bytes workspace = 0;     ///< live during its executions alone, scratch included
  /// (read, written) of equal size: the written value may take over the memory of the read one where that one dies
  /// here. In order of preference; each value occurs once.
  std::vector<std::pair<int, int>> inPlace = {};
  /// Instructions whose executions must all precede this instruction's, since they read state that it overwrites.
  /// Ascending.
  std::vector<int> after = {};
  bool repeatable = false;  ///< may be executed again: pure, writes no state
  bool writesState = false; ///< its first execution has an effect beyond its results
  bool omits = false;       ///< leaves out results without readers; they take no memory
  /// The executions that leave results out; null: they cost as much as one that computes all results.
  std::shared_ptr<const PartialExecutions> partial = nullptr;
  Bytes scratch = 0; ///< the part of the workspace that is placed above all live values
  Transfer transfer = Transfer::None;
  bool optional = false; ///< a sequence may leave it out
};

struct Program {
  std::vector<ProgramValue> values;
  std::vector<ProgramInstruction> instructions; ///< in a valid order
};

/// Instructions in order of execution.
using Sequence = std::vector<int>;

/// The execution of an instruction that makes the `needed` results (indexed by value); `isFirst` says whether it is the
/// one that writes state.
Execution executionOf(const ProgramInstruction &instruction, const std::vector<bool> &needed, bool isFirst);

/// What each execution of a sequence reads, makes and costs. An instruction that can omit results makes only those that
/// are read before they are made again, or that live at exit.
std::vector<Execution> executionsOf(const Program &program, const Sequence &sequence);

/// Memory that is live during part of a sequence: a value made by one execution, or the workspace of one.
struct Block {
  int value = -1;     ///< −1: workspace or scratch
  int execution = -1; ///< position in the sequence at which it is made; −1: at entry
  Bytes bytes = 0;
  Time first = 0, last = 0; ///< positions, both included; −1: at entry, the sequence's length: at exit
  int inPlaceOf = -1;       ///< block whose memory it takes over when that one dies
  bool isScratch = false;
  bool onHost = false; ///< memory of the host
};

/// All blocks in order of position; those of values at entry come first. The sequence has to be valid.
std::vector<Block> blocksOf(const Program &program, const Sequence &sequence);

/// The packing problem of the device's blocks: those that take over one another's memory are one buffer.
/// `bufferOf[block]` is its index; −1 for scratch, whose blocks are those of the problem, in order, and for blocks of
/// the host.
PackingProblem packingOf(const std::vector<Block> &blocks, std::vector<int> &bufferOf);

/// The same of the host's blocks, which are packed apart; −1 for all others.
PackingProblem hostPackingOf(const std::vector<Block> &blocks, std::vector<int> &bufferOf);

/// Bytes that live at entry, during each execution, and at exit, sizes rounded up to the alignment of packing.
std::vector<Bytes> liveBytes(const Program &program, const Sequence &sequence);

/// Most bytes live at once, sizes rounded up to the alignment of packing: a lower bound of every packing.
Bytes peakOf(const Program &program, const Sequence &sequence);

/// The time of a sequence, in the unit of costs: the measure that ladders, plans and reports share. Without transfers
/// it is the sum of the costs of all executions. Transfers take time of two channels, one to the host and one from it,
/// and add to the sequence's time only where something waits for them.
Cost costOf(const Program &program, const Sequence &sequence);

/// Checks a sequence naively: every instruction executed, every operand available, state read before it is overwritten,
/// only repeatable instructions repeated. Returns an empty string if it is valid, else the violation with the
/// instruction's name.
std::string validate(const Program &program, const Sequence &sequence);

} // namespace tcc::planning

#endif // TCC_PLANNING_PROGRAM_H

//===- FindLoops.cpp - unrolled steps become loops ------------------------===//
//
// Exporters unroll a recurrence step by step: the same sequence of ops repeats, and each copy reads results of the copy
// before it. Repetitions are found by the distances between equal ops; whether one is a loop follows from its operands
// (Repetition.h).
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/loops/MakeLoop.h"

#include "llvm/Support/FormatVariadic.h"

#include <numeric>
#include <unordered_map>

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_FINDLOOPSPASS
#include "passes/Passes.h.inc"

namespace {

/// Fewer steps stay unrolled.
constexpr int64_t kLeastSteps = 16;
/// A step of more ops stays unrolled: LLVM would take long to compile it as one kernel.
constexpr unsigned kMostStepOps = 128;
/// Most occurrences of equal ops in a step.
constexpr size_t kMostOccurrences = 8;
/// Number of ops that are tried as the first op of a step.
constexpr size_t kMostRotations = 4;

/// Looks for repetitions in a block.
class Finder {
public:
  explicit Finder(Block &block) {
    for (Operation &op : block.without_terminator())
      if (!isQuiet(&op)) {
        numbers[&op] = unsigned(ops.size());
        ops.push_back(&op);
      }
    name();
  }

  /// Makes all loops. Returns the first node of each, and a description of its steps.
  std::vector<std::pair<std::string, std::string>> run() {
    for (unsigned i = 0; i < ops.size();)
      i = std::max(loopFrom(i), i + 1);
    return std::move(notes);
  }

private:
  /// Gives ops that differ only in their operands the same kind; an op that cannot repeat has a kind of its own.
  void name() {
    std::unordered_multimap<size_t, unsigned> known;
    std::vector<std::vector<unsigned>> occurrences;
    for (auto [number, op] : llvm::enumerate(ops)) {
      unsigned kind = unsigned(occurrences.size());
      if (mayRepeat(op)) {
        const size_t hash = hashOf(op);
        auto [from, to] = known.equal_range(hash);
        for (; from != to; ++from)
          if (isAlike(ops[occurrences[from->second].front()], op)) {
            kind = from->second;
            break;
          }
        if (kind == occurrences.size())
          known.emplace(hash, kind);
      }
      if (kind == occurrences.size())
        occurrences.emplace_back();
      occurrences[kind].push_back(unsigned(number));
      kinds.push_back(kind);
      place.push_back(unsigned(occurrences[kind].size() - 1));
    }
    ofKind = std::move(occurrences);
  }

  static size_t hashOf(Operation *op) {
    size_t hash =
        OperationEquivalence::computeHash(op, OperationEquivalence::ignoreHashValue,
                                          OperationEquivalence::ignoreHashValue, OperationEquivalence::IgnoreLocations);
    for (Type type : op->getOperandTypes())
      hash = llvm::hash_combine(hash, type);
    return hash;
  }
  static bool isAlike(Operation *a, Operation *b) {
    return a->getOperandTypes() == b->getOperandTypes() &&
           OperationEquivalence::isEquivalentTo(a, b, OperationEquivalence::ignoreValueEquivalence, nullptr,
                                                OperationEquivalence::IgnoreLocations);
  }

  /// Makes a loop of steps that begin at op `i`. Returns the number of the op behind the loop, or `i` if there is none.
  unsigned loopFrom(unsigned i) {
    const std::vector<unsigned> &same = ofKind[kinds[i]];
    for (size_t k = 1; k <= kMostOccurrences && place[i] + k < same.size(); ++k) {
      const unsigned period = same[place[i] + k] - i;
      if (period > kMostStepOps)
        break;
      if (auto seen = examined.find(period); seen != examined.end() && i < seen->second)
        continue;
      unsigned end = i + period;
      while (end < ops.size() && kinds[end] == kinds[end - period])
        ++end;
      examined[period] = end - period;
      if ((end - i) / period < kLeastSteps)
        continue;
      for (unsigned rotation : rotations(i, period, (end - i) / period)) {
        const unsigned steps = (end - i - rotation) / period;
        if (steps < kLeastSteps)
          continue;
        Repetition repetition(ops, numbers, i + rotation, period, steps);
        if (!makeLoop(repetition))
          continue;
        notes.push_back({nodeName(repetition.at(0, 0)->getLoc()).str(),
                         llvm::formatv("the first of {0} steps of {1} ops that are one loop", steps, period).str()});
        return i + rotation + period * steps;
      }
    }
    return i;
  }

  /// Offsets at which a step may begin, those with the fewest bytes carried from step to step first.
  std::vector<unsigned> rotations(unsigned first, unsigned period, unsigned steps) const {
    std::vector<int64_t> bytes(period, 0);
    const unsigned begin = first + steps / 2 * period;
    for (unsigned i = begin; i < begin + period; ++i)
      for (Value result : ops[i]->getResults()) {
        const unsigned last = lastReader(result, i); // readers behind all steps count equally for every beginning
        for (unsigned at = i + 1; at <= std::min(last, i + 2 * period); ++at)
          bytes[(at - first) % period] += tensorBytes(result.getType());
      }
    std::vector<unsigned> order(period);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return bytes[a] < bytes[b]; });
    order.resize(std::min<size_t>(order.size(), kMostRotations));
    return order;
  }

  unsigned lastReader(Value value, unsigned atLeast, unsigned moves = 0) const {
    unsigned last = atLeast;
    if (moves > kMostMoves)
      return last;
    for (Operation *user : value.getUsers()) {
      if (auto number = numbers.find(user); number != numbers.end())
        last = std::max(last, number->second);
      else if (isQuiet(user))
        for (Value result : user->getResults())
          last = std::max(last, lastReader(result, atLeast, moves + 1));
    }
    return last;
  }

  std::vector<Operation *> ops; ///< the block's ops, without quiet ones
  llvm::DenseMap<Operation *, unsigned> numbers;
  std::vector<unsigned> kinds, place;          ///< of each op; its place among those of its kind
  std::vector<std::vector<unsigned>> ofKind;   ///< the ops of each kind
  llvm::DenseMap<unsigned, unsigned> examined; ///< by period: end of the ops already searched
  std::vector<std::pair<std::string, std::string>> notes;
};

struct FindLoopsPass : impl::FindLoopsPassBase<FindLoopsPass> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      if (function.isDeclaration())
        continue;
      auto notes = Finder(function.getBody().front()).run();
      if (notes.empty())
        continue;
      eraseDeadOps(function);
      addNotes(getOperation(), "loop", notes);
    }
  }
};

} // namespace
} // namespace tcc::train

//===- CollectiveOrder.cpp - overlap collectives with computation ----------===//
#include "passes/memory/CollectiveOrder.h"

#include "passes/Common.h"
#include "passes/Lowering.h"

#include "llvm/ADT/SmallSet.h"

using namespace mlir;

namespace tcc::train {

namespace {

class Mover {
public:
  Mover(const EntryProblem &entry, planning::Sequence order) : entry(entry), order(std::move(order)) {
    for (int id : this->order)
      if (isCollective(id))
        collectives.push_back(id);
  }

  planning::Sequence run(int64_t prefetch) {
    beginSums();
    sumAcrossNodesLater();
    gatherAhead(prefetch);
    moveReaders();
    return std::move(order);
  }

private:
  bool isCollective(int id) const { return isa<Collective>(entry.instructions[size_t(id)]); }

  template <typename Precedes> bool follows(int id, Precedes &&precedes) const {
    const planning::ProgramInstruction &own = entry.program.instructions[size_t(id)];
    return llvm::any_of(own.after, precedes) || llvm::any_of(own.reads, [&](int value) {
             int producer = entry.program.values[size_t(value)].producer;
             return producer >= 0 && precedes(producer);
           });
  }

  /// Moves every collective but gathers up to its last operand; they keep their order.
  void beginSums() {
    for (size_t i = 0; i < collectives.size(); ++i) {
      if (isGather(collectives[i]))
        continue;
      auto own = llvm::find(order, collectives[i]), place = own;
      auto mustStay = [&](int before) {
        return (i > 0 && before == collectives[i - 1]) ||
               follows(collectives[i], [&](int other) { return other == before; });
      };
      while (place != order.begin() && !mustStay(*std::prev(place)))
        --place;
      std::rotate(place, own, std::next(own));
    }
  }

  bool isGather(int id) const { return isa<AllGatherOp>(entry.instructions[size_t(id)]); }

  /// Moves the instruction at `begin` and its dependents to the end of the range, unless the instruction at `end`
  /// depends on it.
  void moveDependents(planning::Sequence::iterator begin, planning::Sequence::iterator end) {
    llvm::DenseSet<int> dependent{*begin};
    auto depends = [&](int id) { return follows(id, [&](int other) { return dependent.contains(other); }); };
    for (auto it = std::next(begin); it != end; ++it)
      if (depends(*it))
        dependent.insert(*it);
    if (!depends(*end))
      std::stable_partition(begin, end, [&](int id) { return !dependent.contains(id); });
  }

  /// A sum of shards across nodes needs the shard: it begins just before the next bucket, so that the scatter in the
  /// node runs beside that bucket's gradients.
  void sumAcrossNodesLater() {
    for (size_t i = 1; i + 1 < collectives.size(); ++i) {
      auto sum = dyn_cast<AllReduceOp>(entry.instructions[size_t(collectives[i])]);
      if (!sum || sum.getAcross() == 0)
        continue;
      size_t next = i + 1;
      while (next < collectives.size() && isGather(collectives[next]))
        ++next;
      if (next < collectives.size())
        moveDependents(llvm::find(order, collectives[i]), llvm::find(order, collectives[next]));
    }
  }

  using Needed = llvm::SmallSet<int, 8>;

  /// The instructions from `first` on that the one at `own` depends on, itself included; nullopt if one of them is a
  /// collective.
  std::optional<Needed> neededSince(planning::Sequence::iterator first, planning::Sequence::iterator own) const {
    Needed needed;
    needed.insert(*own);
    for (auto it = own; it != first;) {
      --it;
      if (!llvm::any_of(needed, [&](int id) { return follows(id, [&](int other) { return other == *it; }); }))
        continue;
      if (isCollective(*it))
        return std::nullopt;
      needed.insert(*it);
    }
    return needed;
  }

  /// True for a gather of a parameter: it depends on no collective.
  bool isGatherOfState(int id) { return isGather(id) && neededSince(order.begin(), llvm::find(order, id)).has_value(); }

  void gatherAhead(int64_t prefetch) {
    for (int id : collectives)
      if (isGatherOfState(id))
        gathers.push_back(id);
    if (prefetch <= 0)
      return;
    for (size_t i = 1; i < gathers.size(); ++i) {
      auto own = llvm::find(order, gathers[i]);
      const size_t ahead = std::min(size_t(prefetch), i);
      // The first `prefetch` gathers have no earlier gather to wait for: each begins right behind its predecessor.
      auto place = std::next(llvm::find(order, gathers[i - 1]));
      if (size_t(prefetch) <= i) {
        const int before = gathers[i - ahead];
        place = std::find_if(order.begin(), own,
                             [&](int id) { return follows(id, [&](int other) { return other == before; }); });
      }
      if (place >= own)
        continue;
      if (const std::optional<Needed> needed = neededSince(place, own))
        std::stable_partition(place, std::next(own), [&](int id) { return needed->contains(id); });
    }
  }

  /// Moves dependents of each collective, other than gathers of parameters, behind the next collective.
  void moveReaders() {
    for (size_t i = 0; i + 1 < collectives.size(); ++i) {
      if (llvm::is_contained(gathers, collectives[i]))
        continue;
      auto begin = std::next(llvm::find(order, collectives[i])), next = llvm::find(order, collectives[i + 1]);
      if (next < begin) // its gather was moved ahead
        continue;
      llvm::DenseSet<int> dependent{collectives[i]};
      auto depends = [&](int id) { return follows(id, [&](int other) { return dependent.contains(other); }); };
      for (auto it = begin; it != next; ++it)
        if (depends(*it))
          dependent.insert(*it);
      if (depends(*next))
        continue;
      std::stable_partition(begin, std::next(next), [&](int id) { return !dependent.contains(id); });
    }
  }

  const EntryProblem &entry;
  planning::Sequence order;
  std::vector<int> collectives, gathers; ///< in the order of least memory
};

/// True if an op behind `op` reads the value or a view of it.
bool isReadLater(Value value, Operation *op) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    if (user->hasTrait<View>())
      return isReadLater(user->getResult(0), op);
    return user != op && op->isBeforeInBlock(user);
  });
}

} // namespace

planning::Sequence beginCollectivesEarly(const EntryProblem &entry, planning::Sequence order, int64_t prefetch) {
  return Mover(entry, std::move(order)).run(prefetch);
}

void keepScatteredSources(func::FuncOp function) {
  SmallVector<Operation *> instructions;
  for (Operation &op : function.getBody().front())
    if (isInstruction(&op))
      instructions.push_back(&op);
  Builder builder(function.getContext());
  for (size_t at = 0; at < instructions.size(); ++at) {
    Operation *scatter = instructions[at];
    if (!isa<ReduceScatterOp>(scatter) ||
        llvm::any_of(scatter->getOperands(), [&](Value source) { return isReadLater(rootOf(source), scatter); }))
      continue;
    size_t end = at + 1;
    auto waits = [&](Operation *op) {
      return isa<ReduceScatterOp>(op) ||
             llvm::any_of(op->getOperands(), [&](Value operand) { return rootOf(operand).getDefiningOp() == scatter; });
    };
    while (end < instructions.size() && !waits(instructions[end]))
      ++end;
    if (end - at > 1)
      scatter->setAttr(names::kBeside, builder.getI64IntegerAttr(int64_t(end - at - 1)));
  }
}

} // namespace tcc::train

//===- FindLoops.cpp - unrolled steps become loops ------------------------===//
//
// Exporters unroll a recurrence step by step: the same sequence of ops repeats, and each copy reads results of the copy
// before it. Repetitions are found by the distances between equal ops; whether one is a loop follows from its operands
// (Repetition.h).
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Loop.h"
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/loops/Repetition.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"

#include <deque>
#include <numeric>
#include <unordered_map>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_FINDLOOPSPASS
#include "passes/Passes.h.inc"

namespace {

/// Most floating-point operations of a step in one tile; a larger step stays unrolled.
constexpr double kMostTileFlops = 512e3;
/// Most floating-point operations of a step's products with one matrix for all rows, in all tiles together; a larger
/// product is worth a library call, which uses the whole machine.
constexpr double kMostProductFlops = 64e3;
/// A step of the gradient computes the step's values again and two gradients.
constexpr double kGradientFactor = 3;

/// True if a loop's body may contain the op after composites are decomposed.
bool isCore(Operation *op) {
  return !op->getNumRegions() && isPure(op) && !isa<LoopKernel, ModeDependent, Collective, RandomOp>(op) &&
         (isa<MatMulOp>(op) || !isa<LibraryCall>(op)) && (isa<Fusible>(op) || op->hasTrait<View>());
}

/// Builds the loop of one repetition.
class LoopMaker {
public:
  explicit LoopMaker(Repetition &repetition)
      : repetition(repetition), period(repetition.period), steps(repetition.steps), b(at(0, 0)),
        loc(b.getUnknownLoc()) {
    llvm::SmallVector<Location> places;
    for (unsigned op = 0; op < period; ++op)
      places.push_back(at(0, op)->getLoc());
    loc = FusedLoc::get(b.getContext(), places);
  }

  bool run() {
    if (!classifyOperands())
      return false;
    findStacks();
    findReaders();
    for (const Family &family : operands)
      collect(family);
    if (states.empty())
      return false; // the steps are independent
    collectResults();
    LoopOp loop = makeLoop();
    if (!isKernel(loop, 1) || !isGradientKernel(loop)) {
      loop.erase();
      return false;
    }
    b.setInsertionPointAfter(loop);
    for (const Last &last : lasts)
      at(steps - 1, last.op)->getResult(last.result).replaceAllUsesWith(loop.getLast()[last.state]);
    for (auto [number, part] : llvm::enumerate(parts)) {
      Value all = loop.getParts()[unsigned(number)];
      if (part.concat)
        replaceStack(part, all);
      else
        replaceEach(part.next, all);
    }
    return true;
  }

private:
  struct Part {
    Family next;
    ConcatOp concat = nullptr; ///< the concatenation that stacks it, from operand `begin` on
    unsigned begin = 0;
    bool backwards = false;
  };
  struct Last {
    unsigned op, result, state = 0;
  };

  Operation *at(unsigned step, unsigned op) const { return repetition.at(step, op); }

  bool classifyOperands() {
    for (unsigned op = 0; op < period; ++op)
      for (unsigned operand = 0; operand < at(0, op)->getNumOperands(); ++operand) {
        std::vector<Value> family;
        for (unsigned step = 0; step < steps; ++step)
          family.push_back(at(step, op)->getOperand(operand));
        std::optional<Family> found = repetition.classify(family);
        if (!found)
          return false;
        operands.push_back(std::move(*found));
      }
    return true;
  }

  //===-- Who reads the steps ----------------------------------------------===//

  /// Finds the concatenations that join one value of every step, in the order of the steps or in reverse.
  void findStacks() {
    llvm::SetVector<Operation *> concats;
    for (unsigned op = 0; op < period; ++op)
      for (Value result : at(0, op)->getResults())
        collectConcats(result, concats);
    for (Operation *op : concats) {
      auto concat = cast<ConcatOp>(op);
      for (unsigned begin = 0; begin + steps <= concat.getInputs().size(); ++begin) {
        for (bool backwards : {false, true}) {
          std::vector<Value> family(concat.getInputs().begin() + begin, concat.getInputs().begin() + begin + steps);
          auto root = [&](Value value) {
            while (value.getDefiningOp() && isQuiet(value.getDefiningOp()) &&
                   value.getDefiningOp()->getNumOperands() == 1)
              value = value.getDefiningOp()->getOperand(0);
            return repetition.placeOf(value.getDefiningOp());
          };
          if (backwards)
            std::reverse(family.begin(), family.end());
          auto from = root(family.front()), to = root(family.back());
          if (!from || from->first != 0 || !to || to->first != steps - 1)
            continue;
          auto shape = shapeOf(family[0]);
          if (llvm::any_of(family, [&](Value value) { return shapeOf(value) != shape; }))
            continue;
          if (std::optional<Family> found = repetition.classify(family); found && found->kind != Family::Carried) {
            parts.push_back({std::move(*found), concat, begin, backwards});
            stacked[concat] = {begin, begin + steps};
            begin += steps - 1;
            break;
          }
        }
        if (stacked.contains(concat))
          break; // at most one window of each concatenation
      }
    }
  }

  void collectConcats(Value value, llvm::SetVector<Operation *> &concats, unsigned moves = 0) {
    if (moves > kMostMoves)
      return;
    for (Operation *user : value.getUsers()) {
      if (auto concat = dyn_cast<ConcatOp>(user)) {
        if (concat.getInputs().size() >= steps && !repetition.placeOf(concat))
          concats.insert(concat);
      } else if (isQuiet(user)) {
        for (Value result : user->getResults())
          collectConcats(result, concats, moves + 1);
      }
    }
  }

  bool isReadOutside(Value value, unsigned moves = 0) {
    if (moves > kMostMoves)
      return true;
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (repetition.placeOf(user))
        continue;
      if (auto stack = stacked.find(user); stack != stacked.end() && use.getOperandNumber() >= stack->second.first &&
                                           use.getOperandNumber() < stack->second.second)
        continue;
      if (!isQuiet(user) ||
          llvm::any_of(user->getResults(), [&](Value result) { return isReadOutside(result, moves + 1); }))
        return true;
    }
    return false;
  }

  void findReaders() {
    for (unsigned op = 0; op < period; ++op)
      for (unsigned result = 0; result < at(0, op)->getNumResults(); ++result) {
        bool last = false, others = false;
        for (unsigned step = 0; step < steps; ++step)
          if (isReadOutside(at(step, op)->getResult(result)))
            (step + 1 == steps ? last : others) = true;
        if (others)
          parts.push_back({Family{Family::Inner, nullptr, op, result}});
        else if (last)
          lasts.push_back({op, result});
      }
  }

  //===-- The loop ---------------------------------------------------------===//

  /// Moves the movements that compute a value in front of the loop.
  Value hoisted(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || !isQuiet(op) || op->isBeforeInBlock(at(0, 0)))
      return value;
    for (Value operand : op->getOperands())
      hoisted(operand);
    op->moveBefore(at(0, 0));
    return value;
  }

  void collect(const Family &family) {
    switch (family.kind) {
    case Family::Fixed:
      fixed.insert(family.value);
      break;
    case Family::Inner:
      break;
    case Family::Carried:
      if (isNew(family, states))
        collect(family.operands[0]);
      break;
    case Family::Sliced:
      isNew(family, slices);
      break;
    case Family::Moved:
      for (const Family &operand : family.operands)
        collect(operand);
      break;
    }
  }

  /// Adds the family to the list, unless it contains an equal one, which then represents it.
  bool isNew(const Family &family, llvm::SmallVector<const Family *> &list) {
    for (const Family *known : list)
      if (*known == family) {
        standsFor[&family] = known;
        return false;
      }
    list.push_back(&family);
    standsFor[&family] = &family;
    return true;
  }

  void collectResults() {
    for (const Part &part : parts)
      collect(part.next);
    for (Last &last : lasts) {
      bool found = false;
      for (auto [number, state] : llvm::enumerate(states)) {
        const Family &next = state->operands[0];
        if (next.kind == Family::Inner && next.op == last.op && next.result == last.result) {
          last.state = unsigned(number);
          found = true;
          break;
        }
      }
      if (!found) {
        // A state that no step reads.
        Value first = splatInt(b, at(0, 0)->getLoc(), at(0, last.op)->getResult(last.result).getType(), 0);
        unread.push_back(Family{Family::Carried, first});
        unread.back().operands.push_back(Family{Family::Inner, nullptr, last.op, last.result});
        last.state = unsigned(states.size() + unread.size() - 1);
      }
    }
    for (const Family &family : unread)
      states.push_back(&family);
  }

  /// The slices of all steps, one after another along a new dimension in front.
  Value stackOf(const Family &family) {
    auto slice = cast<SliceOp>(family.like);
    auto type = cast<RankedTensorType>(slice.getResult().getType());
    const size_t dim = size_t(family.dim);
    const int64_t extent = type.getDimSize(unsigned(dim)), count = steps, apart = std::abs(family.stride);
    llvm::SmallVector<int64_t> starts(slice.getStarts()), steps(slice.getSteps()), shape(type.getShape());
    starts[dim] = family.stride > 0 ? family.start : family.start + (count - 1) * family.stride;
    steps[dim] = extent == 1 ? apart : 1;
    shape[dim] = count * extent;
    Value rows = SliceOp::create(b, loc, RankedTensorType::get(shape, type.getElementType()), hoisted(family.value),
                                 starts, steps);
    shape[dim] = extent;
    shape.insert(shape.begin() + dim, count);
    rows = reshape(b, loc, rows, shape);
    llvm::SmallVector<int64_t> order{int64_t(dim)};
    for (size_t i = 0; i < shape.size(); ++i)
      if (i != dim)
        order.push_back(int64_t(i));
    rows = transpose(b, loc, rows, order);
    if (family.stride < 0)
      rows = ReverseOp::create(b, loc, rows.getType(), rows, llvm::SmallVector<int64_t>{0});
    return rows;
  }

  LoopOp makeLoop() {
    llvm::SmallVector<Value> initial, stacks, constants;
    for (const Family *state : states)
      initial.push_back(hoisted(state->value));
    for (const Family *slice : slices)
      stacks.push_back(stackOf(*slice));
    for (Value value : fixed)
      constants.push_back(hoisted(value));
    Block body;
    auto add = [&](Type type) { return body.addArgument(type, loc); };
    for (const Family *state : states)
      arguments[state] = add(state->value.getType());
    for (const Family *slice : slices)
      arguments[slice] = add(slice->like->getResult(0).getType());
    for (Value value : fixed)
      fixedArguments[value] = add(value.getType());
    OpBuilder inner(b.getContext());
    inner.setInsertionPointToEnd(&body);
    for (unsigned op = 0, operand = 0; op < period; ++op) {
      llvm::SmallVector<Value> values;
      for (unsigned i = 0; i < at(0, op)->getNumOperands(); ++i)
        values.push_back(emit(inner, operands[operand++]));
      Operation *copy = inner.clone(*at(0, op));
      copy->setOperands(values);
      copies.push_back(copy);
    }
    llvm::SmallVector<Value> nextStates, nextParts;
    for (const Family *state : states)
      nextStates.push_back(emit(inner, state->operands[0]));
    for (const Part &part : parts)
      nextParts.push_back(emit(inner, part.next));
    NextOp::create(inner, loc, nextStates, nextParts);
    llvm::SmallVector<Type> types(ValueRange(initial).getTypes());
    for (Value part : nextParts)
      types.push_back(stackedType(int64_t(steps), part.getType()));
    auto loop = LoopOp::create(b, loc, types, initial, stacks, constants, uint64_t(steps), false);
    loop.getBody().push_back(new Block);
    loop.getBlock().getOperations().splice(loop.getBlock().end(), body.getOperations());
    for (BlockArgument argument : body.getArguments())
      argument.replaceAllUsesWith(loop.getBlock().addArgument(argument.getType(), loc));
    return loop;
  }

  Value emit(OpBuilder &inner, const Family &family) {
    switch (family.kind) {
    case Family::Fixed:
      return fixedArguments.lookup(family.value);
    case Family::Inner:
      return copies[family.op]->getResult(family.result);
    case Family::Carried:
    case Family::Sliced:
      return arguments.lookup(standsFor.lookup(&family));
    case Family::Moved:
      break;
    }
    llvm::SmallVector<Value> values;
    for (const Family &operand : family.operands)
      values.push_back(emit(inner, operand));
    Operation *copy = inner.clone(*family.like);
    copy->setOperands(values);
    return copy->getResult(0);
  }

  //===-- Is it a kernel? ----------------------------------------------------===//

  /// True if a copy of the body, with composites decomposed, has only core ops and little arithmetic for each tile.
  bool isKernel(LoopOp loop, double factor) {
    auto copy = cast<LoopOp>(loop->clone());
    bool all = true;
    for (bool again = true; again && all;) {
      again = false;
      for (Operation &op : llvm::make_early_inc_range(copy.getBlock().without_terminator())) {
        if (auto composite = dyn_cast<Decomposable>(&op)) {
          OpBuilder builder(&op);
          op.replaceAllUsesWith(composite.decompose(builder));
          op.erase();
          again = true;
        } else if (!isCore(&op)) {
          all = false;
          break;
        }
      }
    }
    double products = 0;
    for (auto product : copy.getBlock().getOps<MatMulOp>())
      if (shapeOf(product.getResult())[0] == 1)
        products += product.getFlops();
    all = all && products <= factor * kMostProductFlops;
    // A tile runs from the first step to the last without synchronising with other tiles.
    if (all)
      all = copy.getFlops() / double(steps * cast<LoopKernel>(copy.getOperation()).getTileCount()) <=
            factor * kMostTileFlops;
    copy->destroy();
    return all;
  }

  /// The same for the loop's gradient, which is derived in a copy.
  bool isGradientKernel(LoopOp loop) {
    OpBuilder builder(loop->getContext());
    auto function =
        func::FuncOp::create(loop.getLoc(), "gradient", builder.getFunctionType(loop.getOperandTypes(), {}));
    Block *block = function.addEntryBlock();
    builder.setInsertionPointToEnd(block);
    IRMapping mapping;
    for (auto [operand, argument] : llvm::zip_equal(loop.getOperands(), block->getArguments()))
      mapping.map(operand, argument);
    auto copy = cast<LoopOp>(builder.clone(*loop, mapping));
    llvm::SmallVector<Value> gradients, ofOperands;
    for (Value result : copy.getResults())
      gradients.push_back(isFloatTensor(result) ? splat(builder, loop.getLoc(), result.getType(), 1) : Value());
    copy.buildGradient(builder, gradients, ofOperands);
    bool all = true;
    for (auto made : llvm::make_early_inc_range(block->getOps<LoopOp>()))
      all &= isKernel(made, kGradientFactor);
    function->destroy();
    return all;
  }

  //===-- Readers ------------------------------------------------------------===//

  void replaceStack(const Part &part, Value all) {
    ConcatOp concat = part.concat;
    const auto dim = size_t(concat.getDim());
    Value rows = all;
    if (part.backwards)
      rows = ReverseOp::create(b, loc, rows.getType(), rows, llvm::SmallVector<int64_t>{0});
    llvm::SmallVector<int64_t> order, shape(shapeOf(rows).drop_front());
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i == dim)
        order.push_back(0);
      order.push_back(int64_t(i) + 1);
    }
    rows = transpose(b, loc, rows, order);
    shape[dim] *= steps;
    rows = reshape(b, loc, rows, shape);
    llvm::SmallVector<Value> inputs(concat.getInputs().take_front(part.begin));
    inputs.push_back(rows);
    llvm::append_range(inputs, concat.getInputs().drop_front(part.begin + steps));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(concat);
    Value whole = inputs.size() == 1
                      ? rows
                      : ConcatOp::create(b, concat.getLoc(), concat.getResult().getType(), inputs, concat.getDim());
    concat.getResult().replaceAllUsesWith(whole);
  }

  void replaceEach(const Family &family, Value all) {
    llvm::SmallVector<int64_t> shape(shapeOf(all)), starts(shape.size(), 0), ones(shape.size(), 1);
    shape[0] = 1;
    for (unsigned step = 0; step < steps; ++step) {
      Value value = at(step, family.op)->getResult(family.result);
      if (!isReadOutside(value))
        continue;
      starts[0] = step;
      Value part = SliceOp::create(b, loc, RankedTensorType::get(shape, elementTypeOf(all)), all, starts, ones);
      value.replaceAllUsesWith(reshape(b, loc, part, shapeOf(value)));
    }
  }

  Repetition &repetition;
  const unsigned period, steps;
  std::vector<Family> operands;                                       ///< of all ops of a step
  llvm::DenseMap<Operation *, std::pair<unsigned, unsigned>> stacked; ///< operands of a concatenation
  std::vector<Part> parts;
  llvm::SmallVector<Last> lasts;
  std::deque<Family> unread; ///< states that no step reads
  llvm::SmallVector<const Family *> states, slices;
  llvm::SetVector<Value> fixed;
  llvm::DenseMap<const Family *, const Family *> standsFor;
  llvm::DenseMap<const Family *, Value> arguments;
  llvm::DenseMap<Value, Value> fixedArguments;
  llvm::SmallVector<Operation *> copies; ///< the body's ops
  OpBuilder b;
  Location loc;
};

/// True if the op can be in the body of a loop, which becomes one kernel, possibly after composites are decomposed.
bool mayRepeat(Operation *op) {
  if (isa<StopGradientOp, ModeDependent, RandomOp>(op))
    return false;
  return isCore(op) || (isa<Decomposable>(op) && isPure(op) && !op->getNumRegions() && !isa<LoopKernel>(op));
}

/// Replaces the results of the repetition by those of a loop; the repetition's ops remain as dead code. Returns false
/// and changes nothing if an operand is no family, or if the loop or its gradient cannot be one kernel.
bool makeLoop(Repetition &repetition) { return LoopMaker(repetition).run(); }


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
        const unsigned last = lastReader(result, i); // readers after all steps cost the same for every first op
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

  std::vector<Operation *> ops; ///< the block's ops except quiet ones
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

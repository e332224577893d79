//===- EntryProblem.cpp - an entry as a planning problem ------------------===//
#include "passes/memory/EntryProblem.h"

#include "compiler/dialect/Joined.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/planning/Program.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SetVector.h"

#include <memory>
#include <utility>
#include <vector>

using namespace mlir;

namespace tcc::train {

namespace {

// A recomputed fused kernel only computes the results that are read later: it reads fewer operands, costs less, and may
// overwrite operands that the whole kernel cannot. Planning and EntryProblem::apply cut the region by the same
// function, so a plan has the memory and the cost of its rung on the ladder.

/// An instruction's operands and results as values of a program; −1 for state.
struct InstructionValues {
  std::vector<int> operands, results;
  std::vector<bool> isMade; ///< of each operand: an instruction produces it; false for arguments of the entry
};

/// The pairs (operand, result) that may share memory, as values: transient, of equal size, and read nowhere else by the
/// instruction. `present`: the operands that it reads.
std::vector<std::pair<int, int>> inPlaceValues(Operation *op, ArrayRef<std::pair<unsigned, unsigned>> pairs,
                                               const InstructionValues &values, ArrayRef<unsigned> present) {
  std::vector<std::pair<int, int>> found;
  for (auto [operand, result] : pairs) {
    const int from = values.operands[operand], to = values.results[result];
    if (from < 0 || to < 0 || !values.isMade[operand] ||
        tensorBytes(op->getOperand(operand).getType()) != tensorBytes(op->getResult(result).getType()))
      continue;
    // Another operand may view the same memory and be read at other elements than the result writes.
    bool everyReadInPlace = llvm::all_of(present, [&, result = result](unsigned read) {
      return values.operands[read] != from || llvm::is_contained(pairs, std::pair(read, result));
    });
    if (everyReadInPlace)
      found.push_back({from, to});
  }
  return found;
}

/// Reduces a region to the given results and the ops that they need. Returns the numbers of the operands still read.
SmallVector<unsigned> keepResults(Block &body, ArrayRef<unsigned> results) {
  auto yield = cast<YieldOp>(body.getTerminator());
  SmallVector<Value> yielded;
  for (unsigned result : results)
    yielded.push_back(yield.getValues()[result]);
  yield.getValuesMutable().assign(yielded);
  SmallVector<Operation *> inner(llvm::make_pointer_range(body.without_terminator()));
  for (Operation *op : llvm::reverse(inner))
    if (op->use_empty())
      op->erase();
  SmallVector<unsigned> operands;
  for (unsigned i = 0, erased = 0, count = body.getNumArguments(); i < count; ++i) {
    if (body.getArgument(i - erased).use_empty())
      body.eraseArgument(i - erased++);
    else
      operands.push_back(i);
  }
  return operands;
}

class PartialKernel : public planning::PartialExecutions {
public:
  PartialKernel(FusedOp fused, InstructionValues values) : fused(fused), values(std::move(values)) {}

  std::vector<planning::Cost> shares() const override;

protected:
  planning::Execution make(const std::vector<bool> &wanted) const override;

private:
  /// A detached kernel without operands, and the operand numbers that the arguments of its region stand for.
  struct Part {
    OwningOpRef<FusedOp> kernel;
    SmallVector<unsigned> operands;
  };
  Part partOf(ArrayRef<unsigned> results) const;

  mutable FusedOp fused; // mutable, since its accessors are not const; it is not changed
  InstructionValues values;
};

PartialKernel::Part PartialKernel::partOf(ArrayRef<unsigned> results) const {
  SmallVector<Type> types;
  for (unsigned result : results)
    types.push_back(fused->getResult(result).getType());
  OpBuilder builder(fused->getContext());
  Part part{FusedOp::create(builder, fused->getLoc(), types, ValueRange()), {}};
  Region &region = part.kernel->getBody();
  IRMapping mapping;
  fused.getBody().cloneInto(&region, mapping);
  part.operands = keepResults(region.front(), results);
  return part;
}

planning::Execution PartialKernel::make(const std::vector<bool> &wanted) const {
  planning::Execution execution;
  SmallVector<unsigned> results;
  SmallVector<Type> types;
  size_t write = 0;
  for (auto [number, value] : llvm::enumerate(values.results)) {
    bool isKept = value < 0 ? wanted.back() : wanted[write++];
    if (!isKept)
      continue;
    results.push_back(unsigned(number));
    types.push_back(fused->getResult(unsigned(number)).getType());
    if (value >= 0)
      execution.writes.push_back(value);
  }
  Part part = partOf(results);
  double bytes = 0;
  for (auto [operand, read] : llvm::zip_equal(part.operands, bytesRead(*part.kernel))) {
    bytes += read;
    if (values.operands[operand] >= 0)
      execution.reads.push_back(values.operands[operand]);
  }
  for (Type type : types)
    bytes += double(tensorBytes(type));
  llvm::sort(execution.reads);
  execution.reads.erase(llvm::unique(execution.reads), execution.reads.end());
  execution.cost = nominalCost(fused, flopsOf(part.kernel->getOperation()), bytes);
  SmallVector<std::pair<unsigned, unsigned>> pairs;
  for (auto [operand, result] : part.kernel->getInPlacePairs())
    pairs.push_back({part.operands[operand], results[result]});
  execution.inPlace = inPlaceValues(fused, pairs, values, part.operands);
  return execution;
}

/// The cost of each op and operand is divided equally among the results that need it, counted in arithmetic or in
/// traffic, whichever determines the whole kernel's time. This is a lower bound: an op runs at least as often as each
/// of these results is computed, and so at least as often as they are on average. Of an operand, each result counts the
/// bytes that it reads when computed alone; an execution for several results reads no fewer. The overhead is divided
/// equally among all results.
std::vector<planning::Cost> PartialKernel::shares() const {
  Block &body = fused.getBody().front();
  auto yield = cast<YieldOp>(body.getTerminator());
  llvm::DenseMap<Operation *, unsigned> opNeeded;
  llvm::DenseMap<Value, unsigned> argumentNeeded;
  std::vector<llvm::SetVector<Value>> needs; // of each written result: the region's values that it depends on
  for (auto [number, value] : llvm::enumerate(values.results)) {
    if (value < 0)
      continue;
    llvm::SetVector<Value> work;
    work.insert(yield.getValues()[number]);
    llvm::SmallPtrSet<Operation *, 16> ops;
    for (size_t i = 0; i < work.size(); ++i) {
      if (Operation *op = work[i].getDefiningOp()) {
        work.insert_range(op->getOperands());
        if (ops.insert(op).second)
          ++opNeeded[op];
      } else {
        ++argumentNeeded[work[i]];
      }
    }
    needs.push_back(std::move(work));
  }
  std::vector<double> flops(needs.size(), 0), bytes(needs.size(), 0);
  size_t write = 0;
  for (auto [number, value] : llvm::enumerate(values.results)) {
    if (value < 0)
      continue;
    bytes[write] += double(tensorBytes(fused->getResult(unsigned(number)).getType()));
    Part alone = partOf(unsigned(number));
    for (auto [operand, read] : llvm::zip_equal(alone.operands, bytesRead(*alone.kernel)))
      bytes[write] += read / double(argumentNeeded.lookup(body.getArgument(operand)));
    llvm::SmallPtrSet<Operation *, 16> ops;
    for (Value need : needs[write])
      if (Operation *op = need.getDefiningOp(); op && ops.insert(op).second)
        flops[write] += flopsOf(op) / double(opNeeded.lookup(op));
    ++write;
  }
  auto cost = [&](double flops, double bytes) { return nominalCost(fused, flops, bytes); };
  const bool byFlops = cost(flopsOf(fused), 0) > cost(0, bytesOf(fused));
  const planning::Cost overhead = cost(0, 0);
  std::vector<planning::Cost> result;
  for (size_t w = 0; w < needs.size(); ++w)
    result.push_back(overhead / needs.size() + (byFlops ? cost(flops[w], 0) : cost(0, bytes[w])) - overhead);
  return result;
}

/// The executions of a kernel that omit results; null if it has a single result or emits its own loops. The kernel has
/// to outlive it.
std::shared_ptr<const planning::PartialExecutions> partialExecutionsOf(FusedOp fused, InstructionValues values) {
  if (fused.getLoopKernel() || fused->getNumResults() < 2)
    return nullptr;
  return std::make_shared<PartialKernel>(fused, std::move(values));
}

/// Removes from a fused region the unread results, the ops that only they need, and views that then have no reader.
void dropUnreadResults(FusedOp fused) {
  if (fused.getLoopKernel() || llvm::none_of(fused->getResults(), [](Value result) { return result.use_empty(); }))
    return;
  SmallVector<unsigned> results;
  SmallVector<Type> types;
  for (OpResult result : fused->getResults())
    if (!result.use_empty()) {
      results.push_back(result.getResultNumber());
      types.push_back(result.getType());
    }
  SmallVector<Value> before(fused->getOperands()), operands;
  for (unsigned operand : keepResults(fused.getBody().front(), results))
    operands.push_back(before[operand]);
  OpBuilder builder(fused);
  auto smaller = FusedOp::create(builder, fused.getLoc(), types, operands);
  smaller->setDiscardableAttrs(fused->getDiscardableAttrDictionary());
  smaller.getBody().takeBody(fused.getBody());
  for (auto [old, now] : llvm::zip_equal(results, smaller->getResults()))
    fused->getResult(old).replaceAllUsesWith(now);
  fused->erase();
  llvm::SetVector<Operation *> views;
  auto addView = [&](Value value) {
    if (Operation *op = value.getDefiningOp(); op && op->hasTrait<View>())
      views.insert(op);
  };
  llvm::for_each(before, addView);
  for (size_t i = 0; i < views.size();) {
    Operation *view = views[i++];
    if (!view->use_empty())
      continue;
    Value source = view->getOperand(0);
    views.remove(view);
    view->erase();
    addView(source);
    i = 0; // the view's source may be an unread view now
  }
}

} // namespace

bool isInstruction(Operation *op) { return !op->hasTrait<View>() && !op->hasTrait<OpTrait::IsTerminator>(); }

int requiredInPlaceOperand(Operation *op) {
  if (auto fused = dyn_cast<FusedOp>(op))
    return fused.getRequiredInPlaceOperand();
  auto call = dyn_cast<LibraryCall>(op);
  return call && op->hasAttr(names::kCall) ? call.getInPlaceOperand() : -1;
}

SmallVector<std::pair<unsigned, unsigned>> inPlacePairs(Operation *op) {
  if (auto fused = dyn_cast<FusedOp>(op))
    return fused.getInPlacePairs();
  if (auto rowwise = dyn_cast<RowwiseOp>(op))
    return rowwise.getInPlacePairs();
  if (auto joined = dyn_cast<JoinedOp>(op))
    return joined.getInPlacePairs();
  if (auto collective = dyn_cast<Collective>(op)) {
    SmallVector<std::pair<unsigned, unsigned>> pairs;
    if (!collective.isInPlace())
      return pairs;
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      pairs.push_back({i, i});
    return pairs;
  }
  int operand = requiredInPlaceOperand(op);
  return operand < 0 ? SmallVector<std::pair<unsigned, unsigned>>()
                     : SmallVector<std::pair<unsigned, unsigned>>{{unsigned(operand), 0}};
}

StringAttr variableOf(func::FuncOp function, BlockArgument argument) {
  return function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), names::kVariable);
}

StateArguments::StateArguments(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (StringAttr variable = variableOf(function, argument))
      arguments.try_emplace(variable.getValue(), argument);
}

bool canWriteOver(Value value, BlockArgument argument) {
  auto result = dyn_cast<OpResult>(rootOf(value));
  if (!result)
    return false;
  Operation *producer = result.getOwner();
  for (OpOperand &operand : producer->getOpOperands()) {
    if (rootOf(operand.get()) != argument)
      continue;
    if (!llvm::is_contained(inPlacePairs(producer),
                            std::pair<unsigned, unsigned>(operand.getOperandNumber(), result.getResultNumber())))
      return false;
  }
  return true;
}

Value updatedInPlace(Value result) {
  Operation *producer = result.getDefiningOp();
  int operand = producer && result == producer->getResult(0) ? requiredInPlaceOperand(producer) : -1;
  return operand >= 0 ? producer->getOperand(unsigned(operand)) : Value();
}

llvm::DenseMap<Value, StringRef> newStateOf(func::FuncOp function) {
  llvm::DenseMap<Value, StringRef> found;
  for (OpOperand &operand : function.getBody().front().getTerminator()->getOpOperands())
    if (auto variable = function.getResultAttrOfType<StringAttr>(operand.getOperandNumber(), names::kVariable))
      for (Value value = operand.get(); value; value = updatedInPlace(rootOf(value)))
        found[rootOf(value)] = variable.getValue();
  return found;
}

double flopsOf(Operation *op) {
  if (isa<FusedOp, RowwiseOp, JoinedOp>(op)) {
    double flops = 0;
    for (Operation &inner : op->getRegion(0).front())
      flops += flopsOf(&inner);
    return flops;
  }
  auto cost = dyn_cast<Cost>(op);
  return cost ? cost.getFlops() : 0;
}

planning::Bytes scratchBytes(Operation *op) {
  auto scratch = op->getAttrOfType<ScratchAttr>(names::kScratch);
  auto slots = op->getParentOfType<ModuleOp>()->getAttrOfType<IntegerAttr>(names::kSlots);
  return planning::Bytes(scratch ? scratch.getBytes(slots ? slots.getInt() : 1) : 0);
}

planning::Bytes partialBytes(Operation *op) {
  auto scratch = op->getAttrOfType<ScratchAttr>(names::kScratch);
  return planning::Bytes(scratch ? scratch.getPartialBytes() : 0);
}

static NominalTime nominalTime(Operation *op, double flops, double bytes) {
  return {flops / target::flopsPerNsOf(op, op->hasAttr(names::kCall)), bytes / target::costsOf(op).bytesPerNs};
}

NominalTime nominalTime(Operation *op) { return nominalTime(op, flopsOf(op), bytesOf(op)); }

planning::Cost nominalCost(Operation *op, double flops, double bytes) {
  NominalTime time = nominalTime(op, flops, bytes);
  return planning::Cost(target::costsOf(op).launchNs + std::max(time.arithmeticNs, time.memoryNs));
}

planning::Cost nominalCost(Operation *op) {
  if (isa<StoreOp, FetchOp>(op))
    return planning::transferCost(planning::Bytes(tensorBytes(op->getResult(0).getType())), linkBytesPerCost(op));
  return nominalCost(op, flopsOf(op), bytesOf(op));
}

planning::Bytes linkBytesPerCost(Operation *op) {
  auto module = isa<ModuleOp>(op) ? cast<ModuleOp>(op) : op->getParentOfType<ModuleOp>();
  auto given = module->getAttrOfType<FloatAttr>(target::kHostBytesAttribute);
  const double rate = given ? given.getValueAsDouble() : target::costsOf(op).hostBytesPerNs;
  return planning::Bytes(std::max(rate, 1.0));
}

/// Bytes read of each argument: a backward walk through the region sums the elements that a value's readers need, at
/// most its size.
static SmallVector<double> bytesReadByFused(FusedOp fused) {
  Block &body = fused.getBody().front();
  const bool whole = bool(fused.getLoopKernel());
  llvm::DenseMap<Value, double> asked;
  auto ask = [&](Value value, double elements) {
    double &sum = asked[value];
    sum = std::min(sum + elements, double(tensorTypeOf(value).getNumElements()));
  };
  for (Operation &op : llvm::reverse(body)) {
    auto fusible = dyn_cast<Fusible>(&op);
    for (OpOperand &operand : op.getOpOperands()) {
      const bool one = fusible && op.getNumResults() == 1 && fusible.readsOneElement(operand.getOperandNumber());
      ask(operand.get(),
          one && !whole ? asked.lookup(op.getResult(0)) : double(tensorTypeOf(operand.get()).getNumElements()));
    }
  }
  SmallVector<double> bytes;
  for (BlockArgument argument : body.getArguments())
    bytes.push_back(asked.lookup(argument) * double(elementBytes(elementTypeOf(argument))));
  return bytes;
}

SmallVector<double> bytesRead(Operation *op) {
  if (auto fused = dyn_cast<FusedOp>(op))
    return bytesReadByFused(fused);
  SmallVector<double> bytes;
  if (auto joined = dyn_cast<JoinedOp>(op)) {
    for (FusedOp member : joined.getMembers())
      llvm::append_range(bytes, bytesReadByFused(member));
    return bytes;
  }
  for (Value operand : op->getOperands())
    bytes.push_back(double(tensorBytes(operand.getType())));
  return bytes;
}

double bytesOf(Operation *op) {
  double bytes = 0;
  for (double read : bytesRead(op))
    bytes += read;
  for (Value result : op->getResults())
    bytes += double(tensorBytes(result.getType()));
  return bytes;
}

namespace {

/// True if the region's results other than state do not depend on the state that the region overwrites.
bool isFreeOfItsState(FusedOp fused, const llvm::DenseMap<Value, StringRef> &newState, const StateArguments &state) {
  llvm::SmallPtrSet<Value, 4> overwritten;
  auto yield = cast<YieldOp>(fused.getBody().front().getTerminator());
  llvm::SetVector<Value> work;
  for (OpResult result : fused->getResults()) {
    auto found = newState.find(result);
    if (found == newState.end())
      work.insert(yield.getValues()[result.getResultNumber()]);
    else if (BlockArgument argument = state.lookup(found->second))
      overwritten.insert(argument);
  }
  for (size_t i = 0; i < work.size(); ++i) {
    if (auto argument = dyn_cast<BlockArgument>(work[i])) {
      if (overwritten.contains(rootOf(fused->getOperand(argument.getArgNumber()))))
        return false;
      continue;
    }
    work.insert_range(work[i].getDefiningOp()->getOperands());
  }
  return true;
}

} // namespace

/// The offset of a value, or of the value that it is a view of, once memory is planned; −1 for state.
static int64_t plannedOffset(func::FuncOp function, Value value) {
  Value root = rootOf(value);
  if (auto argument = dyn_cast<BlockArgument>(root)) {
    auto offset = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), names::kOffset);
    return offset ? offset.getInt() : -1;
  }
  auto result = cast<OpResult>(root);
  auto offsets = result.getOwner()->getAttrOfType<DenseI64ArrayAttr>(names::kOffsets);
  return offsets && result.getResultNumber() < offsets.size() ? offsets[result.getResultNumber()] : -1;
}

EntryProblem::EntryProblem(func::FuncOp function) : function(function) {
  Block &block = function.getBody().front();
  Operation *terminator = block.getTerminator();
  llvm::DenseMap<Value, StringRef> newState = newStateOf(function);
  const StateArguments arguments(function);
  auto addValue = [&](Value value, int producer) {
    index[value] = int(values.size());
    values.push_back(value);
    program.values.push_back({nodeName(value.getLoc()).str(), planning::Bytes(tensorBytes(value.getType())), producer,
                              false, isa_and_present<StoreOp>(value.getDefiningOp())});
  };
  llvm::DenseMap<Value, SmallVector<int>> stateReaders;
  llvm::DenseMap<Operation *, int> position;
  for (BlockArgument argument : block.getArguments()) {
    if (variableOf(function, argument))
      state.push_back(argument);
    else
      addValue(argument, -1);
  }
  for (Operation &op : block) {
    if (!isInstruction(&op))
      continue;
    int id = int(instructions.size());
    position[&op] = id;
    instructions.push_back(&op);
    planning::ProgramInstruction instruction;
    instruction.name = nodeName(op.getLoc()).str();
    instruction.cost = nominalCost(&op);
    InstructionValues own;
    for (Value operand : op.getOperands()) {
      Value root = rootOf(operand);
      auto found = index.find(root);
      own.operands.push_back(found == index.end() ? -1 : found->second);
      own.isMade.push_back(found != index.end() && program.values[size_t(found->second)].producer >= 0);
      if (found != index.end())
        instruction.reads.push_back(found->second);
      else if (isa<BlockArgument>(root))
        stateReaders[root].push_back(id);
      else // new state, stored in its variable
        instruction.after.push_back(position.lookup(root.getDefiningOp()));
    }
    llvm::sort(instruction.reads);
    instruction.reads.erase(llvm::unique(instruction.reads), instruction.reads.end());
    bool writesState = false;
    for (OpResult result : op.getResults()) {
      if (newState.contains(result)) {
        writesState = true;
        own.results.push_back(-1);
        continue;
      }
      own.results.push_back(int(values.size()));
      instruction.writes.push_back(int(values.size()));
      addValue(result, id);
    }
    instruction.scratch = llvm::alignTo(scratchBytes(&op), planning::PackingProblem().alignment);
    instruction.workspace = instruction.scratch + partialBytes(&op);
    instruction.writesState = writesState;
    instruction.transfer = isa<StoreOp>(op)   ? planning::Transfer::Store
                           : isa<FetchOp>(op) ? planning::Transfer::Fetch
                                              : planning::Transfer::None;
    auto fused = dyn_cast<FusedOp>(&op);
    int required = requiredInPlaceOperand(&op);
    instruction.omits = fused && !fused.getLoopKernel();
    instruction.repeatable = required < 0 && !isa<Collective, StoreOp>(op) &&
                             (!writesState || (instruction.omits && !instruction.writes.empty() &&
                                               isFreeOfItsState(fused, newState, arguments)));
    SmallVector<std::pair<unsigned, unsigned>> pairs = inPlacePairs(&op);
    // Once memory is planned, only pairs that share an offset count, even if the order of instructions allows others.
    if (op.hasAttr(names::kOffsets))
      llvm::erase_if(pairs, [&](const std::pair<unsigned, unsigned> &pair) {
        return plannedOffset(function, op.getOperand(pair.first)) != plannedOffset(function, op.getResult(pair.second));
      });
    instruction.inPlace = inPlaceValues(&op, pairs, own, llvm::to_vector(llvm::seq(op.getNumOperands())));
    if (instruction.omits && instruction.repeatable)
      instruction.partial = partialExecutionsOf(fused, std::move(own));
    program.instructions.push_back(std::move(instruction));
  }
  // Readers of a variable's old value come before its new one.
  for (auto [value, variable] : newState) {
    BlockArgument argument = arguments.lookup(variable);
    Operation *producer = value.getDefiningOp();
    if (!argument || !producer)
      continue;
    std::vector<int> &after = program.instructions[size_t(position.lookup(producer))].after;
    for (int reader : stateReaders.lookup(argument)) {
      if (reader != position.lookup(producer))
        after.push_back(reader);
      // A fetch may run until something reads what it brings.
      if (auto fetch = dyn_cast<FetchOp>(instructions[size_t(reader)]))
        for (OpOperand *use : usesAcrossViews(fetch.getResult()))
          if (isInstruction(use->getOwner()))
            after.push_back(position.lookup(use->getOwner()));
    }
  }
  for (planning::ProgramInstruction &instruction : program.instructions) {
    llvm::sort(instruction.after);
    instruction.after.erase(llvm::unique(instruction.after), instruction.after.end());
  }
  for (Value operand : terminator->getOperands())
    if (auto found = index.find(rootOf(operand)); found != index.end() && program.values[found->second].producer >= 0)
      program.values[found->second].atExit = true;
}

void EntryProblem::offerTransfers() {
  offer = planning::offerTransfers(program, linkBytesPerCost(function));
  program = std::move(offer.program);
}

void EntryProblem::apply(const planning::Sequence &sequence) {
  Block &block = function.getBody().front();
  Operation *terminator = block.getTerminator();
  auto append = [&](Operation *op) { block.getOperations().insert(terminator->getIterator(), op); };
  SmallVector<Operation *> viewOps;
  for (Operation &op : block)
    if (op.hasTrait<View>())
      viewOps.push_back(&op);
  std::vector<SmallVector<Value>> operands;
  for (Operation *op : instructions)
    operands.emplace_back(op->getOperands());
  llvm::DenseMap<Value, Value> current; // the newest copy of a recomputed value
  llvm::DenseMap<std::pair<Operation *, Value>, Value> views;
  auto remap = [&](auto &&self, Value value) -> Value {
    Operation *op = value.getDefiningOp();
    if (!op || !op->hasTrait<View>()) {
      auto found = current.find(value);
      return found == current.end() ? value : found->second;
    }
    Value source = self(self, op->getOperand(0));
    if (auto found = views.find({op, source}); found != views.end())
      return found->second;
    Operation *made = op;
    if (source == op->getOperand(0)) {
      op->moveBefore(terminator);
    } else {
      made = op->clone();
      made->setOperand(0, source);
      append(made);
    }
    return views[{op, source}] = made->getResult(0);
  };
  std::vector<bool> executed(instructions.size(), false);
  SmallVector<FusedOp> kernels;
  llvm::DenseMap<Value, Value> stored; // on the host
  const std::vector<planning::Execution> executions = planning::executionsOf(program, sequence);
  for (auto [at, id] : llvm::enumerate(sequence)) {
    if (size_t(id) >= instructions.size()) {
      Value value = values[size_t(offer.movedBy(id))];
      OpBuilder builder(terminator);
      if (offer.isStore(id))
        stored[value] = StoreOp::create(builder, value.getLoc(), value.getType(), remap(remap, value));
      else
        current[value] = FetchOp::create(builder, value.getLoc(), value.getType(), stored.lookup(value));
      continue;
    }
    Operation *original = instructions[size_t(id)], *op = original;
    bool again = executed[size_t(id)];
    executed[size_t(id)] = true;
    if (again) {
      op = original->clone();
      if (!isa<FetchOp>(op))
        op->setAttr(names::kRecompute, UnitAttr::get(op->getContext()));
    }
    for (auto [i, operand] : llvm::enumerate(operands[size_t(id)])) {
      // An operand that this partial execution does not read may not have been computed yet.
      auto value = index.find(rootOf(operand));
      bool isRead = value == index.end() || llvm::is_contained(executions[at].reads, value->second);
      op->setOperand(unsigned(i), isRead ? remap(remap, operand) : operand);
    }
    if (again)
      append(op);
    else
      op->moveBefore(terminator);
    if (again)
      for (int v : program.instructions[size_t(id)].writes)
        current[values[size_t(v)]] = op->getResult(cast<OpResult>(values[size_t(v)]).getResultNumber());
    if (auto fused = dyn_cast<FusedOp>(op))
      kernels.push_back(fused);
  }
  for (OpOperand &operand : terminator->getOpOperands())
    operand.set(remap(remap, operand.get()));
  for (Operation *op : llvm::reverse(viewOps))
    if (op->use_empty())
      op->erase();
  // Last to first: ops dropped from a later kernel may be the only readers of an earlier kernel's result.
  for (FusedOp fused : llvm::reverse(kernels))
    dropUnreadResults(fused);
}

} // namespace tcc::train

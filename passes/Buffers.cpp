//===- Buffers.cpp --------------------------------------------------------===//
#include "passes/Buffers.h"

#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

bool isInstruction(Operation *op) { return !op->hasTrait<View>() && !op->hasTrait<OpTrait::IsTerminator>(); }

Value EntryBuffers::root(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!op->hasTrait<View>())
      break;
    value = op->getOperand(0);
  }
  return value;
}

BlockArgument stateArgument(func::FuncOp function, StringRef variable) {
  for (BlockArgument argument : function.getArguments()) {
    auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), names::kVariable);
    if (name && name.getValue() == variable)
      return argument;
  }
  return nullptr;
}

bool canWriteOver(Value value, BlockArgument argument) {
  auto result = dyn_cast<OpResult>(EntryBuffers::root(value));
  if (!result)
    return false;
  Operation *producer = result.getOwner();
  for (OpOperand &operand : producer->getOpOperands()) {
    if (EntryBuffers::root(operand.get()) != argument)
      continue;
    auto fused = dyn_cast<FusedOp>(producer);
    if (!fused || !llvm::is_contained(fused.getInPlacePairs(), std::pair<unsigned, unsigned>(operand.getOperandNumber(),
                                                                                             result.getResultNumber())))
      return false;
  }
  return true;
}

Value updatedInPlace(Value result) {
  auto fused = result.getDefiningOp<FusedOp>();
  int operand = fused && result == fused->getResult(0) ? fused.getRequiredInPlaceOperand() : -1;
  return operand >= 0 ? fused->getOperand(operand) : Value();
}

EntryBuffers::EntryBuffers(func::FuncOp function) {
  Block &block = function.getBody().front();
  llvm::DenseMap<Operation *, int64_t> position;
  for (Operation &op : block)
    if (isInstruction(&op)) {
      position[&op] = instructions.size();
      instructions.push_back(&op);
    }
  int64_t count = instructions.size();
  Operation *terminator = block.getTerminator();

  auto add = [&](EntryBuffer buffer) {
    buffers.push_back(std::move(buffer));
    return unsigned(buffers.size() - 1);
  };
  llvm::StringMap<unsigned> state;
  for (BlockArgument argument : block.getArguments()) {
    EntryBuffer buffer;
    buffer.value = argument;
    buffer.bytes = tensorBytes(argument.getType());
    buffer.first = -1;
    auto variable = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), names::kVariable);
    if (variable) {
      buffer.kind = EntryBuffer::kState;
      buffer.variable = variable.str();
      buffer.last = count;
    } else {
      unsigned number = argument.getArgNumber();
      buffer.kind = function.getArgAttr(number, names::kScalars)    ? EntryBuffer::kScalars
                    : function.getArgAttr(number, names::kCounters) ? EntryBuffer::kCounters
                                                                    : EntryBuffer::kInput;
      buffer.last = 0;
    }
    unsigned id = add(buffer);
    index[argument] = id;
    if (variable)
      state[variable.getValue()] = id;
  }
  // New values of state lie where the state lies, and so does what a kernel updates in place to make them.
  llvm::DenseMap<Value, std::string> newState;
  for (OpOperand &operand : terminator->getOpOperands())
    if (auto variable = function.getResultAttrOfType<StringAttr>(operand.getOperandNumber(), names::kVariable))
      for (Value value = operand.get(); value; value = updatedInPlace(root(value)))
        newState[root(value)] = variable.str();

  for (Operation *op : instructions) {
    for (OpResult result : op->getResults()) {
      if (auto found = newState.find(result); found != newState.end()) {
        auto [entry, added] = state.try_emplace(found->second, 0);
        if (added) {
          EntryBuffer buffer;
          buffer.kind = EntryBuffer::kState;
          buffer.variable = found->second;
          buffer.owner = op;
          buffer.bytes = tensorBytes(result.getType());
          buffer.first = -1;
          buffer.last = count;
          entry->second = add(buffer);
        }
        index[result] = entry->second;
        continue;
      }
      EntryBuffer buffer;
      buffer.value = result;
      buffer.owner = op;
      buffer.bytes = tensorBytes(result.getType());
      buffer.first = buffer.last = position[op];
      index[result] = add(buffer);
    }
    auto extra = [&](EntryBuffer::Kind kind, StringRef attribute, int64_t times) {
      auto bytes = op->getAttrOfType<IntegerAttr>(attribute);
      if (!bytes || bytes.getInt() == 0)
        return;
      EntryBuffer buffer;
      buffer.kind = kind;
      buffer.owner = op;
      buffer.bytes = bytes.getInt() * times;
      buffer.first = buffer.last = position[op];
      add(buffer);
    };
    auto workers = function->getParentOfType<ModuleOp>()->getAttrOfType<IntegerAttr>(names::kMaxWorkers);
    extra(EntryBuffer::kScratch, names::kScratchSlotBytes, workers ? workers.getInt() : 1);
    extra(EntryBuffer::kPartial, names::kPartialBytes, 1);
  }
  // Last uses.
  for (Operation &op : block)
    for (Value operand : op.getOperands()) {
      if (op.hasTrait<View>())
        continue;
      EntryBuffer &buffer = buffers[bufferOf(operand)];
      int64_t at = &op == terminator ? count : position[&op];
      if (&op == terminator && buffer.kind == EntryBuffer::kValue)
        buffer.kind = EntryBuffer::kOutput;
      if (at >= buffer.last) {
        buffer.last = std::max(buffer.last, at);
        if (&op != terminator)
          buffer.lastReader = &op;
      }
    }
  // In place: a result over an operand that dies there.
  std::vector<bool> taken(buffers.size(), false);
  for (Operation *op : instructions) {
    auto fused = dyn_cast<FusedOp>(op);
    if (!fused)
      continue;
    int required = fused.getRequiredInPlaceOperand();
    SmallVector<std::pair<unsigned, unsigned>> pairs = fused.getInPlacePairs();
    for (auto [operand, result] : pairs) {
      unsigned from = bufferOf(op->getOperand(operand)), to = bufferOf(op->getResult(result));
      EntryBuffer &source = buffers[from], &target = buffers[to];
      bool transient = source.kind == EntryBuffer::kValue &&
                       (target.kind == EntryBuffer::kValue || target.kind == EntryBuffer::kOutput);
      if (from == to || !transient || taken[from] || target.inPlaceOf >= 0 || source.last != position[op] ||
          source.bytes != target.bytes)
        continue;
      if (required >= 0 && int(operand) != required)
        continue;
      // A view of the same memory may be read elsewhere than where the result is written.
      bool everyReadInPlace = llvm::all_of(op->getOpOperands(), [&, target = result](OpOperand &read) {
        return bufferOf(read.get()) != from ||
               llvm::is_contained(pairs, std::pair<unsigned, unsigned>(read.getOperandNumber(), target));
      });
      if (!everyReadInPlace)
        continue;
      target.inPlaceOf = from;
      taken[from] = true;
    }
  }
}

std::vector<unsigned> EntryBuffers::definedBy(Operation *op) const {
  std::vector<unsigned> ids;
  for (OpResult result : op->getResults())
    ids.push_back(bufferOf(result));
  for (unsigned id = 0; id < buffers.size(); ++id)
    if (buffers[id].owner == op &&
        (buffers[id].kind == EntryBuffer::kScratch || buffers[id].kind == EntryBuffer::kPartial))
      ids.push_back(id);
  return ids;
}

} // namespace tcc::train

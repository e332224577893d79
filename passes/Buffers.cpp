//===- Buffers.cpp --------------------------------------------------------===//
#include "passes/Buffers.h"

#include "passes/Common.h"
#include "passes/Lowering.h"

#include <numeric>

using namespace mlir;

namespace tcc::train {

EntryBuffers::EntryBuffers(func::FuncOp function) {
  EntryProgram entry(function);
  // The IR is what it is: a result that nobody reads is written all the same.
  for (planning::ProgramInstruction &instruction : entry.program.instructions)
    instruction.omits = false;
  planning::Sequence sequence(entry.instructions.size());
  std::iota(sequence.begin(), sequence.end(), 0);
  instructions = entry.instructions;
  blocks = planning::blocksOf(entry.program, sequence);
  const int64_t count = int64_t(instructions.size());

  auto add = [&](EntryBuffer buffer) {
    buffers.push_back(std::move(buffer));
    return unsigned(buffers.size() - 1);
  };
  llvm::StringMap<unsigned> state;
  auto stateBuffer = [&](StringRef variable, Value value, Operation *owner) {
    auto [found, fresh] = state.try_emplace(variable, 0);
    if (fresh) {
      EntryBuffer buffer;
      buffer.kind = EntryBuffer::kState;
      buffer.variable = variable.str();
      buffer.value = owner ? Value() : value;
      buffer.owner = owner;
      buffer.bytes = tensorBytes(value.getType());
      buffer.first = -1;
      buffer.last = count;
      found->second = add(buffer);
    }
    return index[value] = found->second;
  };
  for (BlockArgument argument : entry.state)
    stateBuffer(function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), names::kVariable), argument, nullptr);

  llvm::DenseMap<Value, StringRef> newState = newStateOf(function);
  std::vector<unsigned> bufferOfBlock(blocks.size());
  auto addBlock = [&](unsigned id) {
    const planning::Block &block = blocks[id];
    EntryBuffer buffer;
    buffer.block = int(id);
    buffer.first = block.first;
    buffer.last = block.last;
    buffer.owner = block.execution >= 0 ? instructions[size_t(block.execution)] : nullptr;
    if (block.value >= 0) {
      buffer.value = entry.values[size_t(block.value)];
      buffer.bytes = int64_t(block.bytes);
      if (block.inPlaceOf >= 0)
        buffer.inPlaceOf = int(bufferOfBlock[size_t(block.inPlaceOf)]);
      if (auto argument = dyn_cast<BlockArgument>(buffer.value)) {
        unsigned number = argument.getArgNumber();
        buffer.kind = function.getArgAttr(number, names::kScalars)    ? EntryBuffer::kScalars
                      : function.getArgAttr(number, names::kCounters) ? EntryBuffer::kCounters
                                                                      : EntryBuffer::kInput;
      } else if (entry.program.values[size_t(block.value)].atExit) {
        buffer.kind = EntryBuffer::kOutput;
      }
      index[buffer.value] = bufferOfBlock[id] = add(buffer);
      return;
    }
    auto partial = buffer.owner->getAttrOfType<IntegerAttr>(names::kPartialBytes);
    int64_t partialBytes = partial ? partial.getInt() : 0;
    int64_t scratchBytes = int64_t(block.bytes) - partialBytes;
    for (auto [kind, bytes, offset] : {std::tuple(EntryBuffer::kScratch, scratchBytes, int64_t(0)),
                                       std::tuple(EntryBuffer::kPartial, partialBytes, scratchBytes)}) {
      if (!bytes)
        continue;
      buffer.kind = kind;
      buffer.bytes = bytes;
      buffer.offsetInBlock = offset;
      bufferOfBlock[id] = add(buffer);
    }
  };
  unsigned next = 0;
  for (; next < blocks.size() && blocks[next].execution < 0; ++next)
    addBlock(next);
  for (auto [position, op] : llvm::enumerate(instructions)) {
    for (OpResult result : op->getResults())
      if (auto found = newState.find(result); found != newState.end())
        stateBuffer(found->second, result, op);
    for (; next < blocks.size() && blocks[next].execution == int(position); ++next)
      addBlock(next);
    for (Value operand : op->getOperands())
      if (EntryBuffer &buffer = buffers[bufferOf(operand)]; buffer.kind != EntryBuffer::kState)
        buffer.lastReader = op;
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

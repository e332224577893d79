//===- Buffers.cpp - buffers and live ranges of an entry ------------------===//
#include "passes/memory/Buffers.h"

#include "passes/Common.h"
#include "passes/Lowering.h"

#include <numeric>

using namespace mlir;

namespace tcc::train {

EntryBuffers::EntryBuffers(func::FuncOp function) {
  EntryProblem entry(function);
  // The IR is final here: unread results are written, too.
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
    buffer.onHost = block.onHost;
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
    if (block.isScratch)
      return;
    buffer.kind = EntryBuffer::kPartial;
    buffer.bytes = int64_t(block.bytes);
    partialOf[buffer.owner] = bufferOfBlock[id] = add(buffer);
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
  lengthenLives();
}

void EntryBuffers::lengthenLives() {
  std::vector<int64_t> takenOver(buffers.size(), -1); // the instruction whose result takes over its memory
  for (const EntryBuffer &buffer : buffers)
    if (buffer.inPlaceOf >= 0)
      takenOver[size_t(buffer.inPlaceOf)] = buffer.first;
  for (auto [position, op] : llvm::enumerate(instructions)) {
    auto beside = op->getAttrOfType<IntegerAttr>(names::kBeside);
    if (!beside)
      continue;
    for (unsigned id : touchedBy(op)) {
      EntryBuffer &buffer = buffers[id];
      if (buffer.block < 0 || takenOver[id] == int64_t(position))
        continue;
      buffer.last = std::max(buffer.last, int64_t(position) + beside.getInt());
      blocks[size_t(buffer.block)].last = buffer.last;
    }
  }
}

std::vector<unsigned> EntryBuffers::touchedBy(Operation *op) const {
  std::vector<unsigned> ids = definedBy(op);
  for (Value operand : op->getOperands())
    ids.push_back(bufferOf(operand));
  llvm::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void EntryBuffers::place(func::FuncOp function, const planning::PackingProblem &problem, ArrayRef<int> bufferOfBlock,
                         const planning::PackingSolution &solution) const {
  Builder builder(function.getContext());
  auto offsetOf = [&](unsigned id) {
    const EntryBuffer &buffer = buffers[id];
    return buffer.block < 0 || buffer.onHost ? int64_t(-1)
                                             : int64_t(solution.offsets[size_t(bufferOfBlock[size_t(buffer.block)])]);
  };
  // Set all attributes at once, since each change rebuilds the whole list.
  SmallVector<Attribute> attributes;
  for (BlockArgument argument : function.getArguments()) {
    NamedAttrList list(function.getArgAttrDict(argument.getArgNumber()));
    if (unsigned id = bufferOf(argument); buffers[id].block >= 0)
      list.set(names::kOffset, builder.getI64IntegerAttr(offsetOf(id)));
    attributes.push_back(list.getDictionary(function.getContext()));
  }
  if (!attributes.empty())
    function.setArgAttrsAttr(builder.getArrayAttr(attributes));
  for (Operation *op : instructions) {
    SmallVector<int64_t> offsets;
    for (unsigned id : definedBy(op))
      offsets.push_back(offsetOf(id));
    op->setAttr(names::kOffsets, builder.getDenseI64ArrayAttr(offsets));
  }
  const std::vector<planning::Bytes> scratchOffsets = planning::scratchOffsets(problem, solution.offsets);
  auto next = scratchOffsets.begin();
  for (const planning::Block &block : blocks)
    if (block.isScratch)
      instructions[size_t(block.execution)]->setAttr(names::kScratchOffset,
                                                     builder.getI64IntegerAttr(int64_t(*next++)));
  function->setAttr(names::kTransientBytes, builder.getI64IntegerAttr(int64_t(solution.bytes)));
  function->setAttr(names::kLowerBoundBytes, builder.getI64IntegerAttr(int64_t(solution.lowerBound)));
}

void EntryBuffers::placeOnHost(func::FuncOp function, ArrayRef<int> bufferOfBlock,
                               const planning::PackingSolution &solution) const {
  Builder builder(function.getContext());
  for (const EntryBuffer &buffer : buffers)
    if (buffer.onHost)
      buffer.owner->setAttr(names::kOffsets, builder.getDenseI64ArrayAttr(int64_t(
                                                 solution.offsets[size_t(bufferOfBlock[size_t(buffer.block)])])));
  if (solution.bytes)
    function->setAttr(names::kHostTransientBytes, builder.getI64IntegerAttr(int64_t(solution.bytes)));
}

std::vector<planning::Bytes> EntryBuffers::offsets(func::FuncOp function, ArrayRef<int> bufferOfBlock,
                                                   size_t count) const {
  std::vector<planning::Bytes> result(count, 0);
  auto note = [&](unsigned id, int64_t offset) {
    if (int block = buffers[id].block; block >= 0 && !buffers[id].onHost)
      result[size_t(bufferOfBlock[size_t(block)])] = planning::Bytes(offset);
  };
  for (BlockArgument argument : function.getArguments())
    if (auto offset = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), names::kOffset))
      note(bufferOf(argument), offset.getInt());
  for (Operation *op : instructions)
    for (auto [id, offset] :
         llvm::zip(definedBy(op), op->getAttrOfType<DenseI64ArrayAttr>(names::kOffsets).asArrayRef()))
      note(id, offset);
  return result;
}

std::vector<unsigned> EntryBuffers::definedBy(Operation *op) const {
  std::vector<unsigned> ids;
  for (OpResult result : op->getResults())
    ids.push_back(bufferOf(result));
  if (auto found = partialOf.find(op); found != partialOf.end())
    ids.push_back(found->second);
  return ids;
}

} // namespace tcc::train

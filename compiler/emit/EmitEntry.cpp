//===- EmitEntry.cpp - buffers, instructions and ports of an entry ---------===//
#include "compiler/emit/EmitEntry.h"

#include "compiler/codegen/KernelSet.h"
#include "compiler/dialect/Joined.h"
#include "compiler/dialect/PlanTypes.h"
#include "compiler/emit/Lives.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/Buffers.h"
#include "runtime/plan/CallKernels.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/plan.pb.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::emit {

namespace {

/// Reorders the operands of an instruction, which lists all reads before all writes, into the order of JoinedKernels.h:
/// kernel by kernel.
void orderByMember(train::JoinedOp joined, plan::Instruction &instruction) {
  std::vector<int> order;
  int reads = 0, writes = int(joined->getNumOperands());
  for (train::FusedOp member : joined.getMembers()) {
    for (unsigned i = 0; i < member->getNumOperands(); ++i)
      order.push_back(reads++);
    for (unsigned i = 0; i < member->getNumResults(); ++i)
      order.push_back(writes++);
  }
  std::vector<uint32_t> place(order.size());
  const plan::Instruction before = instruction;
  for (auto [now, then] : llvm::enumerate(order)) {
    place[size_t(then)] = uint32_t(now);
    *instruction.mutable_operands(int(now)) = before.operands(then);
  }
  for (plan::InPlace &pair : *instruction.mutable_in_place()) {
    pair.set_source(place[pair.source()]);
    pair.set_destination(place[pair.destination()]);
  }
}

using train::EntryBuffer, train::EntryBuffers;
namespace names = train::names;

/// ONNX nodes that an op came from, in order, each once.
std::vector<std::string> nodesOf(Operation *op) {
  llvm::SetVector<StringAttr> found;
  auto visit = [&](auto &&self, Location loc) -> void {
    if (auto name = dyn_cast<NameLoc>(loc))
      found.insert(name.getName());
    else if (auto fused = dyn_cast<FusedLoc>(loc))
      for (Location part : fused.getLocations())
        self(self, part);
  };
  visit(visit, op->getLoc());
  std::vector<std::string> nodes;
  for (StringAttr name : found)
    nodes.push_back(name.str());
  return nodes;
}

class EntryEmitter {
public:
  EntryEmitter(func::FuncOp function, codegen::KernelSet &kernels, const target::Target &target,
               const std::map<std::string, uint32_t> &variables, const plan::Plan &plan, plan::Entry &entry,
               bool sizesOnly)
      : function(function), kernels(kernels), target(target), variables(variables), plan(plan), entry(entry),
        sizesOnly(sizesOnly), buffers(function) {}

  Status run() {
    entry.set_name(function->getAttrOfType<StringAttr>(names::kEntry).str());
    // Of several shapes each entry has its own; with one, the module has them.
    auto dims = function->getAttrOfType<DictionaryAttr>(names::kDims);
    if (!dims && !entries::readsStateAlone(entry.name()))
      dims = function->getParentOfType<ModuleOp>()->getAttrOfType<DictionaryAttr>(names::kDims);
    if (dims)
      for (NamedAttribute dim : dims) {
        plan::Dim &out = *entry.add_dims();
        out.set_name(dim.getName().str());
        out.set_value(cast<IntegerAttr>(dim.getValue()).getInt());
      }
    entry.set_transient_bytes(integer(function->getAttr(names::kTransientBytes)));
    entry.set_lower_bound_bytes(integer(function->getAttr(names::kLowerBoundBytes)) +
                                plan::spaceBytes(plan, plan::RESIDENT));
    emitFrontier();
    entry.set_scalars(-1);
    if (sizesOnly)
      return Status::success();
    emitBuffers();
    for (Operation *op : buffers.instructions)
      if (Status status = emitInstruction(op); !status.ok())
        return status;
    // The bytes that this order of instructions uses. The arena may be larger, if it was packed for another order.
    entry.set_transient_bytes(plan::transientBytes(entry, plan.max_workers()));
    entry.set_host_transient_bytes(plan::hostTransientBytes(entry));
    measureCost();
    emitPorts();
    EntryLives lives = analyzeLives(plan, entry);
    for (int id = 0; id < entry.buffers_size(); ++id)
      entry.mutable_buffers(id)->set_why_alive(whyAlive(plan, entry, lives, id));
    measurePeak();
    return Status::success();
  }

private:
  static int64_t integer(Attribute attribute) { return attribute ? cast<IntegerAttr>(attribute).getInt() : 0; }

  void emitFrontier() {
    entry.set_variant(uint32_t(integer(function->getAttr(names::kVariant))));
    entry.set_without_recompute_bytes(function->hasAttr(names::kWithoutRecomputeBytes)
                                          ? uint64_t(integer(function->getAttr(names::kWithoutRecomputeBytes)))
                                          : entry.transient_bytes());
    entry.set_lower_bound_cost(uint64_t(integer(function->getAttr(names::kBoundCost))));
    auto frontier = function->getAttrOfType<ArrayAttr>(names::kFrontier);
    for (Attribute attribute : frontier ? frontier.getValue() : ArrayRef<Attribute>()) {
      auto row = cast<DictionaryAttr>(attribute);
      plan::FrontierPoint &point = *entry.add_frontier();
      point.set_transient_bytes(uint64_t(integer(row.get("bytes"))));
      point.set_cost(uint64_t(integer(row.get("cost"))));
      point.set_lower_bound_cost(uint64_t(integer(row.get("lower_bound_cost"))));
      point.set_chosen(row.getAs<BoolAttr>("chosen").getValue());
      point.set_host_bytes(uint64_t(integer(row.get("host_bytes"))));
      point.set_moved_state_bytes(uint64_t(integer(row.get("moved_state_bytes"))));
    }
  }

  void emitBuffers() {
    std::vector<int64_t> offsets(buffers.buffers.size(), -1);
    for (BlockArgument argument : function.getArguments())
      if (Attribute offset = function.getArgAttr(argument.getArgNumber(), names::kOffset))
        offsets[buffers.bufferOf(argument)] = integer(offset);
    for (Operation *op : buffers.instructions)
      for (auto [id, offset] :
           llvm::zip(buffers.definedBy(op), op->getAttrOfType<DenseI64ArrayAttr>(names::kOffsets).asArrayRef()))
        offsets[id] = offset;
    for (unsigned id = 0; id < buffers.buffers.size(); ++id) {
      const EntryBuffer &source = buffers.buffers[id];
      plan::Buffer &buffer = *entry.add_buffers();
      buffer.set_bytes(source.bytes);
      buffer.set_first(source.first);
      buffer.set_last(source.last);
      buffer.set_variable(-1);
      Type type = source.value ? source.value.getType() : Type();
      if (source.owner) {
        std::vector<std::string> nodes = nodesOf(source.owner);
        buffer.set_node(nodes.empty() ? "" : nodes.back());
      }
      if (source.kind == EntryBuffer::kState) {
        uint32_t variable = variables.at(source.variable);
        buffer.set_kind(plan::Buffer::STATE);
        buffer.set_arena(plan.variables(variable).arena());
        buffer.set_variable(variable);
        buffer.set_name(source.variable);
        buffer.set_offset(plan.variables(variable).offset());
        *buffer.mutable_type() = plan.variables(variable).type();
        continue;
      }
      buffer.set_arena(source.onHost ? plan::HOST_TRANSIENT : plan::TRANSIENT);
      buffer.set_offset(offsets[id]);
      if (type) {
        auto tensor = cast<RankedTensorType>(type);
        buffer.mutable_type()->set_dtype(train::toPlan(tensor.getElementType()));
        for (int64_t extent : tensor.getShape())
          buffer.mutable_type()->add_dims(extent);
      } else {
        buffer.mutable_type()->set_dtype(plan::U8);
        buffer.mutable_type()->add_dims(source.bytes);
      }
      static constexpr plan::Buffer::Kind kinds[] = {
          plan::Buffer::VALUE,        plan::Buffer::STATE,   plan::Buffer::INPUT,   plan::Buffer::OUTPUT,
          plan::Buffer::PARTIAL_SUMS, plan::Buffer::SCALARS, plan::Buffer::COUNTERS};
      buffer.set_kind(kinds[source.kind]);
      buffer.set_name(bufferName(source, id));
    }
  }

  std::string bufferName(const EntryBuffer &buffer, unsigned id) {
    if (auto argument = dyn_cast_or_null<BlockArgument>(buffer.value)) {
      auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), names::kName);
      return name ? name.str() : buffer.kind == EntryBuffer::kCounters ? "counters" : "scalars";
    }
    std::vector<std::string> nodes = nodesOf(buffer.owner);
    std::string base = nodes.empty() ? "value" : nodes.back();
    const char *suffix = buffer.kind == EntryBuffer::kPartial ? " partial sums" : "";
    return base + suffix + " #" + std::to_string(id);
  }

  Status emitInstruction(Operation *op) {
    plan::Instruction instruction;
    SmallVector<Value> reads(op->getOperands());
    auto joined = dyn_cast<train::JoinedOp>(op);
    if (auto fused = dyn_cast<train::FusedOp>(op); (fused && !op->hasAttr(names::kCall)) || joined) {
      codegen::KernelSet::Kernel kernel = joined ? kernels.add(joined) : kernels.add(fused);
      instruction.mutable_kernel()->set_code(0);
      instruction.mutable_kernel()->set_symbol(kernel.symbol);
      instruction.mutable_kernel()->set_tiles(kernel.work.tiles);
      setGrid(*instruction.mutable_kernel(), kernel.work);
      if (train::LoopKernel loops = fused ? fused.getLoopKernel() : train::LoopKernel()) {
        instruction.mutable_kernel()->set_loops(loops->getName().stripDialect().str());
        Type products = loops.getProductType(target.capabilities().multipliesBf16 &&
                                             (!target.code().threaded() || loops.getGroupTileCount()));
        instruction.mutable_kernel()->set_dtype(train::toPlan(products));
      } else if (fused && target.code().threaded()) {
        // For the report: generated code of an op that the target's library could not compute.
        fused->walk([&](train::LibraryCall generated) {
          if (!isa<train::MatMulOp>(generated.getOperation()))
            instruction.mutable_kernel()->set_loops(generated->getName().stripDialect().str());
        });
      }
    } else if (auto call = op->getAttrOfType<train::CallAttr>(names::kCall)) {
      Expected<plan::Instruction> descriptor = target::parseCall(call.getDescriptor().str());
      if (!descriptor)
        return descriptor.status();
      instruction = descriptor.take();
      if (auto rowwise = dyn_cast<train::RowwiseOp>(op)) {
        codegen::KernelSet::Kernel kernel = kernels.add(rowwise.getKernel());
        plan::KernelCall &rows = *instruction.mutable_matmul()->mutable_row_kernel();
        rows.set_symbol(kernel.symbol);
        rows.set_tiles(kernel.work.tiles);
        setGrid(rows, kernel.work);
      }
      if (plan::mayHaveKernels(instruction))
        for (const codegen::KernelSet::Kernel &kernel : kernels.addKernelsOf(op)) {
          plan::KernelCall &one = *plan::mutableKernelsOf(instruction).Add();
          one.set_symbol(kernel.symbol);
          one.set_tiles(kernel.work.tiles);
          setGrid(one, kernel.work);
        }
    } else if (auto fill = dyn_cast<train::FillOp>(op)) {
      instruction.mutable_fill()->set_value(fill.getValue().convertToDouble());
    } else if (isa<train::CopyOp>(op)) {
      instruction.mutable_copy();
    } else if (isa<train::StoreOp, train::FetchOp>(op)) {
      instruction.mutable_transfer();
    } else if (auto collective = dyn_cast<train::Collective>(op)) {
      collective.buildCollective(instruction);
    } else {
      return error("internal error: {} reached emit", op->getName().getStringRef().str());
    }
    for (auto [operand, result] : train::inPlacePairs(op))
      if (shareMemory(op->getOperand(operand), op->getResult(result))) {
        plan::InPlace &pair = *instruction.add_in_place();
        pair.set_source(operand);
        pair.set_destination(reads.size() + result);
      }
    uint64_t bytes = 0;
    for (double read : train::bytesRead(op))
      bytes += uint64_t(read);
    for (Value value : reads) {
      plan::Operand &operand = *instruction.add_operands();
      unsigned id = buffers.bufferOf(value);
      operand.set_buffer(id);
      operand.set_read(true);
      operand.set_version(versions[id]);
    }
    if (auto beside = op->getAttrOfType<IntegerAttr>(names::kBeside))
      instruction.set_beside(int32_t(beside.getInt()));
    auto scratch = op->getAttrOfType<train::ScratchAttr>(names::kScratch);
    if (scratch) {
      instruction.set_scratch_slot_bytes(uint64_t(scratch.getSlotBytes()));
      instruction.set_scratch_shared_bytes(uint64_t(scratch.getSharedBytes()));
    }
    instruction.set_scratch_offset(uint64_t(integer(op->getAttr(names::kScratchOffset))));
    if (scratch && op->hasAttr(names::kCall))
      instruction.set_tiles(scratch.getTiles());
    for (unsigned id : buffers.definedBy(op)) {
      const EntryBuffer &buffer = buffers.buffers[id];
      plan::Operand &operand = *instruction.add_operands();
      operand.set_buffer(id);
      operand.set_write(true);
      operand.set_version_written(++versions[id]);
      bytes += buffer.bytes;
    }
    if (joined)
      orderByMember(joined, instruction);
    std::vector<std::string> nodes = nodesOf(op);
    if (!nodes.empty())
      instruction.set_node(nodes.back());
    for (const std::string &node : nodes)
      instruction.add_nodes(node);
    instruction.set_flops(train::flopsOf(op));
    instruction.set_recompute(op->hasAttr(names::kRecompute));
    instruction.set_cost(train::nominalCost(op));
    instruction.set_bytes(bytes);
    entry.set_flops(entry.flops() + instruction.flops());
    *entry.add_instructions() = std::move(instruction);
    return Status::success();
  }

  static void setGrid(plan::KernelCall &call, const codegen::KernelWork &work) {
    if (!work.gridBlocks)
      return;
    call.mutable_grid()->set_blocks(work.gridBlocks);
    call.mutable_grid()->set_threads(work.gridThreads);
  }

  bool shareMemory(Value operand, Value result) {
    unsigned from = buffers.bufferOf(operand), to = buffers.bufferOf(result);
    return from == to || buffers.buffers[to].inPlaceOf == int(from);
  }

  static void emitIndexRange(DictionaryAttr range, plan::IndexRange &out) {
    auto number = [&](llvm::StringRef key) { return range.getAs<IntegerAttr>(key).getInt(); };
    out.set_low(number("low"));
    out.set_high(number("high"));
    out.set_extent(number("extent"));
    out.set_axis(number("axis"));
    out.set_node(range.getAs<StringAttr>("node").str());
    out.set_table(range.getAs<StringAttr>("table").str());
    if (auto meaning = range.getAs<StringAttr>("meaning"))
      out.set_meaning(meaning.str());
    auto list = [&](llvm::StringRef key, auto *into) {
      if (auto values = range.getAs<DenseI64ArrayAttr>(key))
        into->Add(values.asArrayRef().begin(), values.asArrayRef().end());
    };
    list("begin", out.mutable_begin());
    list("end", out.mutable_end());
    list("exceptions", out.mutable_exceptions());
  }

  void emitPorts() {
    for (BlockArgument argument : function.getArguments()) {
      unsigned number = argument.getArgNumber(), id = buffers.bufferOf(argument);
      if (function.getArgAttr(number, names::kScalars)) {
        entry.set_scalars(id);
        continue;
      }
      if (function.getArgAttr(number, names::kCounters)) {
        entry.set_counters(id);
        continue;
      }
      auto name = function.getArgAttrOfType<StringAttr>(number, names::kName);
      if (!name)
        continue;
      plan::Port &port = *entry.add_inputs();
      port.set_name(name.str());
      port.set_buffer(id);
      auto axis = function.getArgAttrOfType<IntegerAttr>(number, names::kSampleAxis);
      port.set_sample_axis(axis ? axis.getInt() : 0);
      if (auto length = function.getArgAttrOfType<StringAttr>(number, names::kLength))
        port.set_length(length.str());
      port.set_presence(bool(function.getArgAttr(number, names::kPresence)));
      if (auto ranges = function.getArgAttrOfType<ArrayAttr>(number, names::kIndexRanges))
        for (auto range : ranges.getAsRange<DictionaryAttr>())
          emitIndexRange(range, *port.add_index_ranges());
      auto type = cast<RankedTensorType>(argument.getType());
      if (port.sample_axis() >= 0 && port.sample_axis() < type.getRank() && !entry.batch())
        entry.set_batch(type.getDimSize(port.sample_axis()));
    }
    if (!entry.batch())
      entry.set_batch(1);
    for (OpOperand &operand : function.getBody().front().getTerminator()->getOpOperands()) {
      auto name = function.getResultAttrOfType<StringAttr>(operand.getOperandNumber(), names::kName);
      if (!name)
        continue;
      plan::Port &port = *entry.add_outputs();
      port.set_name(name.str());
      unsigned id = buffers.bufferOf(operand.get());
      port.set_buffer(id);
      auto axis = function.getResultAttrOfType<IntegerAttr>(operand.getOperandNumber(), names::kSampleAxis);
      port.set_sample_axis(axis ? axis.getInt() : -1);
      // The graph's shape, which differs from the buffer's if the value was returned through a view.
      plan::TensorType &type = *entry.mutable_buffers(id)->mutable_type();
      type.clear_dims();
      for (int64_t extent : cast<RankedTensorType>(operand.get().getType()).getShape())
        type.add_dims(extent);
    }
  }

  /// With transfers the time of the planned order, in which stores stand where they are done.
  void measureCost() {
    uint64_t cost = 0;
    for (const plan::Instruction &instruction : entry.instructions())
      cost += instruction.cost();
    const bool moves =
        llvm::any_of(entry.instructions(), [](const plan::Instruction &one) { return one.has_transfer(); });
    entry.set_cost(moves ? uint64_t(integer(function->getAttr(names::kCost))) : cost);
  }

  void measurePeak() {
    int64_t count = buffers.instructions.size(), live = plan::spaceBytes(plan, plan::RESIDENT), most = live;
    std::vector<int64_t> change(count + 3, 0);
    for (const EntryBuffer &buffer : buffers.buffers) {
      if (buffer.kind == EntryBuffer::kState || buffer.onHost)
        continue;
      // A buffer that takes over another's memory counts once at the instruction where both live.
      int64_t first = buffer.first + 1 + (buffer.inPlaceOf >= 0);
      change[first] += buffer.bytes;
      change[std::max(first, buffer.last + 2)] -= buffer.bytes;
    }
    for (int64_t at = 0; at < count; ++at) {
      auto bytes = int64_t(plan::scratchBytes(entry, entry.instructions(int(at)), plan.max_workers()));
      change[at + 1] += bytes;
      change[at + 2] -= bytes;
    }
    for (int64_t delta : change)
      most = std::max(most, live += delta);
    entry.set_peak_live_bytes(most);
  }

  func::FuncOp function;
  codegen::KernelSet &kernels;
  const target::Target &target;
  const std::map<std::string, uint32_t> &variables;
  const plan::Plan &plan;
  plan::Entry &entry;
  bool sizesOnly;
  EntryBuffers buffers;
  std::map<unsigned, uint32_t> versions;
};

} // namespace

Status emitEntry(func::FuncOp function, codegen::KernelSet &kernels, const target::Target &target,
                 const std::map<std::string, uint32_t> &variables, const plan::Plan &plan, bool sizesOnly,
                 plan::Entry &entry) {
  return EntryEmitter(function, kernels, target, variables, plan, entry, sizesOnly).run();
}

} // namespace tcc::emit

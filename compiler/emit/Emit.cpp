//===- Emit.cpp - write a planned program as a plan ------------------------===//
#include "compiler/emit/Emit.h"

#include "compiler/codegen/KernelSet.h"
#include "compiler/dialect/PlanTypes.h"
#include "compiler/emit/Beside.h"
#include "compiler/emit/EmitVariables.h"
#include "compiler/emit/JoinedOperands.h"
#include "compiler/emit/Lives.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/Buffers.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/Signatures.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/VirtualRanks.h"
#include "support/PlanNames.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::emit {

namespace {

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
      : function(function), kernels(kernels), target(target), variables(variables), plan(plan), entry(entry), sizesOnly(sizesOnly),
        buffers(function) {}

  Status run() {
    entry.set_name(function->getAttrOfType<StringAttr>(names::kEntry).str());
    entry.set_transient_bytes(integer(function->getAttr(names::kTransientBytes)));
    entry.set_lower_bound_bytes(integer(function->getAttr(names::kLowerBoundBytes)) + plan::spaceBytes(plan, plan::RESIDENT));
    emitFrontier();
    entry.set_scalars(-1);
    if (sizesOnly)
      return Status::success();
    emitBuffers();
    for (Operation *op : buffers.instructions)
      if (Status status = emitInstruction(op); !status.ok())
        return status;
    // No more than was planned: without the slack that other orders of instructions left.
    entry.set_transient_bytes(plan::transientBytes(entry, plan.max_workers()));
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
        buffer.set_arena(plan::RESIDENT);
        buffer.set_variable(variable);
        buffer.set_name(source.variable);
        buffer.set_offset(plan.variables(variable).offset());
        *buffer.mutable_type() = plan.variables(variable).type();
        continue;
      }
      buffer.set_arena(plan::TRANSIENT);
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
        Type products = loops.getProductType(target.capabilities().multipliesBf16 && (!target.code().warps() || loops.getWarpTileCount()));
        instruction.mutable_kernel()->set_dtype(train::toPlan(products));
      } else if (fused && target.code().warps()) {
        // What the target's library does not compute: the report says so.
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
    } else if (auto fill = dyn_cast<train::FillOp>(op)) {
      instruction.mutable_fill()->set_value(fill.getValue().convertToDouble());
    } else if (isa<train::CopyOp>(op)) {
      instruction.mutable_copy();
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
    entry.set_cost(entry.cost() + instruction.cost());
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
      // The graph's shape, where the value was returned through a view.
      plan::TensorType &type = *entry.mutable_buffers(id)->mutable_type();
      type.clear_dims();
      for (int64_t extent : cast<RankedTensorType>(operand.get().getType()).getShape())
        type.add_dims(extent);
    }
  }

  void measurePeak() {
    int64_t count = buffers.instructions.size(), live = plan::spaceBytes(plan, plan::RESIDENT), most = live;
    std::vector<int64_t> change(count + 3, 0);
    for (const EntryBuffer &buffer : buffers.buffers) {
      if (buffer.kind == EntryBuffer::kState)
        continue;
      // A buffer that takes over another's memory is not counted twice at the instruction where both live.
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

/// Optimizer, schedule, loss and scalars, as one update reads them.
void emitUpdate(const Recipe &recipe, ArrayAttr groups, ArrayAttr scalars, plan::Training &training) {
  plan::Optimizer &optimizer = *training.mutable_optimizer();
  optimizer.set_kind(recipe.optimizer.kind);
  for (const auto &[name, value] : recipe.optimizer.numbers)
    (*optimizer.mutable_numbers())[name] = value;
  optimizer.set_nesterov(recipe.optimizer.nesterov);
  for (Attribute attribute : groups ? groups.getValue() : ArrayRef<Attribute>()) {
    auto group = cast<DictionaryAttr>(attribute);
    plan::OptimizerGroup &target = *optimizer.add_groups();
    target.set_name(group.getAs<StringAttr>("name").str());
    target.set_lr_scale(group.getAs<FloatAttr>("lr_scale").getValueAsDouble());
    target.set_weight_decay(group.getAs<FloatAttr>("weight_decay").getValueAsDouble());
  }
  plan::Schedule &schedule = *training.mutable_schedule();
  schedule.set_kind(recipe.schedule.kind);
  for (const auto &[name, value] : recipe.schedule.numbers)
    (*schedule.mutable_numbers())[name] = value;
  for (auto [index, update] : llvm::enumerate(recipe.schedule.milestones))
    (*schedule.mutable_numbers())["milestone." + std::to_string(index)] = update;
  if (recipe.schedule.floor == "clamp")
    (*schedule.mutable_numbers())["floor_clamp"] = 1;
  schedule.set_per(recipe.schedule.per);
  schedule.set_warmup_from(recipe.schedule.warmupFrom);
  training.set_accumulate(recipe.train.accumulate);
  training.set_has_clip_norm(recipe.train.clipNorm.has_value());
  training.set_clip_norm(recipe.train.clipNorm.value_or(0));
  training.set_seed(recipe.train.seed);
  for (Attribute name : scalars ? scalars.getValue() : ArrayRef<Attribute>())
    training.add_scalars(cast<StringAttr>(name).str());
  training.set_loss_kind(recipe.loss.kind.empty() ? "graph" : recipe.loss.kind);
  training.set_loss_output(recipe.loss.output);
  training.set_target(recipe.loss.target);
  training.set_shift(recipe.loss.shift);
}

void emitTraining(ModuleOp module, const Recipe &recipe, plan::Plan &plan) {
  plan::Training &training = *plan.mutable_training();
  auto groups = module->getAttrOfType<ArrayAttr>(names::kGroups);
  // Of several optimizers, the first that runs at every step.
  Recipe shown = recipe;
  if (auto main = llvm::find_if(recipe.phases, [](const Recipe &phase) { return phase.phaseEvery == 1; });
      main != recipe.phases.end()) {
    shown.optimizer = main->optimizer;
    shown.schedule = main->schedule;
    shown.train = main->train;
  }
  emitUpdate(shown, groups, module->getAttrOfType<ArrayAttr>(names::kScalars), training);
  if (auto phases = module->getAttrOfType<ArrayAttr>(names::kPhases))
    for (auto [attribute, phase] : llvm::zip_equal(phases, recipe.phases)) {
      auto own = cast<DictionaryAttr>(attribute);
      plan::Phase &out = *training.add_phases();
      out.set_name(phase.phase);
      out.set_every(uint64_t(phase.phaseEvery));
      emitUpdate(phase, own.getAs<ArrayAttr>("groups"), own.getAs<ArrayAttr>("scalars"), *out.mutable_training());
    }
  for (Attribute attribute : groups ? groups.getValue() : ArrayRef<Attribute>()) {
    auto group = cast<DictionaryAttr>(attribute);
    plan::Decisions::GroupMembers &members = *plan.mutable_decisions()->add_groups();
    members.set_name(group.getAs<StringAttr>("name").str());
    if (auto parameters = group.getAs<ArrayAttr>("parameters"))
      for (Attribute parameter : parameters)
        members.add_parameters(cast<StringAttr>(parameter).str());
  }
  if (const EmaSettings &ema = recipe.train.ema; ema.decay) {
    training.mutable_ema()->set_decay(*ema.decay);
    training.mutable_ema()->set_every(uint64_t(ema.every));
    training.mutable_ema()->set_warmup(uint64_t(ema.warmup));
    training.mutable_ema()->set_on_device(ema.on == "device");
  }
  if (recipe.train.scalesLoss()) {
    const LossScaleSettings &given = recipe.train.lossScale;
    plan::LossScale &scale = *training.mutable_loss_scale();
    scale.set_dynamic(given.kind != "fixed");
    scale.set_init_scale(given.initScale);
    scale.set_growth_factor(given.growthFactor);
    scale.set_backoff_factor(given.backoffFactor);
    scale.set_growth_interval(uint64_t(given.growthInterval));
  }
  if (const ParallelSettings &given = recipe.parallel; given.distributed()) {
    plan::Parallel &parallel = *training.mutable_parallel();
    parallel.set_mode(given.mode), parallel.set_average(given.average), parallel.set_reduce_dtype(given.reduceDtype);
    parallel.set_bucket_bytes(uint64_t(given.bucketBytes));
    parallel.set_batch_norm(given.batchNorm);
    if (given.virtualRanks) {
      parallel.set_virtual_ranks(uint64_t(given.virtualRanks));
      parallel.set_least_ranks(uint64_t(given.fewestRanks()));
    }
    parallel.set_ranks(given.sharded() ? uint32_t(given.shardRanks()) : 0);
  }
  plan::Evaluation &evaluation = *training.mutable_evaluation();
  evaluation.mutable_metrics()->Assign(recipe.evaluate.metrics.begin(), recipe.evaluate.metrics.end());
  evaluation.set_best(recipe.evaluate.best);
  evaluation.set_stop_metric(recipe.evaluate.stopMetric);
  evaluation.set_stop_patience(uint64_t(recipe.evaluate.stopPatience.value_or(0)));
  evaluation.set_stop_min_change(recipe.evaluate.stopMinChange);
  if (recipe.checkpoint.everyMinutes)
    training.mutable_checkpoints()->set_every_minutes(*recipe.checkpoint.everyMinutes);
  if (recipe.checkpoint.keep)
    training.mutable_checkpoints()->set_keep(uint64_t(*recipe.checkpoint.keep));
  if (recipe.checkpoint.keepBest)
    training.mutable_checkpoints()->set_keep_best(*recipe.checkpoint.keepBest);
  if (recipe.checkpoint.stagingBytes)
    training.mutable_checkpoints()->set_staging_bytes(*recipe.checkpoint.stagingBytes);
  for (const auto &[input, column] : recipe.dataMap)
    (*plan.mutable_data()->mutable_map())[input] = column;
  for (const auto &[key, value] : recipe.dataSettings)
    (*plan.mutable_data()->mutable_settings())[key] = value;
}

void emitAdapters(ModuleOp module, const AdapterSettings &settings, plan::Plan &plan) {
  auto list = module->getAttrOfType<ArrayAttr>(names::kAdapters);
  if (!list)
    return;
  plan::Adapters &adapters = *plan.mutable_adapters();
  adapters.set_rank(settings.rank);
  adapters.set_alpha(settings.alpha);
  adapters.set_scale(settings.scale());
  adapters.set_dropout(settings.dropout);
  adapters.set_rank_stabilized(settings.rankStabilized);
  for (Attribute attribute : list) {
    auto entry = cast<DictionaryAttr>(attribute);
    plan::Adapter &adapter = *adapters.add_list();
    adapter.set_of(entry.getAs<StringAttr>("of").str());
    adapter.set_a(entry.getAs<StringAttr>("a").str());
    adapter.set_b(entry.getAs<StringAttr>("b").str());
    adapter.set_input_first(entry.getAs<BoolAttr>("input_first").getValue());
    adapter.set_not_peft(entry.getAs<StringAttr>("not_peft").str());
  }
}

/// The memory of each point of a fat plan, and the cost of an update there.
void emitVariants(ModuleOp module, plan::Plan &plan) {
  if (auto budget = module->getAttrOfType<IntegerAttr>(names::kBudgetBytes))
    plan.set_budget_bytes(uint64_t(budget.getInt()));
  auto count = module->getAttrOfType<IntegerAttr>(names::kVariant);
  for (int64_t i = 0; count && i < count.getInt(); ++i) {
    plan::Variant &variant = *plan.add_variants();
    for (const plan::Entry &entry : plan.entries()) {
      if (entry.variant() != uint32_t(i))
        continue;
      variant.set_transient_bytes(std::max<uint64_t>(variant.transient_bytes(), entry.transient_bytes()));
      uint64_t runs =
          entries::runsPerUpdate(entry.name(), plan.training().accumulate(), plan::mostVirtualRanks(plan.training()));
      variant.set_cost(variant.cost() + entry.cost() * runs);
    }
  }
}

void emitDecisions(ModuleOp module, const frontend::ImportedModel &model, plan::Plan &plan) {
  plan::Decisions &decisions = *plan.mutable_decisions();
  auto each = [&](StringRef name, auto visit) {
    if (auto list = module->getAttrOfType<ArrayAttr>(name))
      for (Attribute attribute : list)
        visit(cast<DictionaryAttr>(attribute));
  };
  auto text = [](DictionaryAttr entry, StringRef key) {
    auto value = entry.getAs<StringAttr>(key);
    return value ? value.str() : std::string();
  };
  each(names::kUnused, [&](DictionaryAttr entry) {
    plan::Decisions::Unused &unused = *decisions.add_unused_parameters();
    unused.set_name(text(entry, "name"));
    unused.set_reason(text(entry, "reason"));
    unused.set_node(text(entry, "node"));
  });
  auto zeroFill = [&](DictionaryAttr entry, plan::Decisions::ZeroFill &fill) {
    fill.set_parameter(text(entry, "parameter"));
    fill.set_reason(text(entry, "reason"));
    if (auto bytes = entry.getAs<IntegerAttr>("bytes"))
      fill.set_bytes(bytes.getInt());
  };
  each(names::kZeroFillKept, [&](DictionaryAttr entry) { zeroFill(entry, *decisions.add_zero_fill_kept()); });
  each(names::kZeroFillElided, [&](DictionaryAttr entry) { zeroFill(entry, *decisions.add_zero_fill_elided()); });
  each(names::kNotes, [&](DictionaryAttr entry) {
    plan::Decisions::Note &note = *decisions.add_notes();
    note.set_kind(text(entry, "kind"));
    note.set_subject(text(entry, "subject"));
    note.set_text(text(entry, "text"));
  });
  for (const std::string &warning : model.warnings) {
    plan::Decisions::Note &note = *decisions.add_notes();
    note.set_kind("import");
    note.set_text(warning);
  }
  for (const auto &[name, initializer] : model.initializers)
    if (!initializer.sign.empty() && plan::isFloatingPoint(initializer.type.dtype()) && initializer.type.dims_size()) {
      plan::Decisions::Note &note = *decisions.add_notes();
      note.set_kind("parameter");
      note.set_subject(name);
      auto variable = module.lookupSymbol<train::VariableOp>(name);
      const bool frozenBase = module->hasAttr(names::kAdapters) && variable && variable.getRole() == roles::kFrozen &&
                              !initializer.constant && !initializer.sign.starts_with("model.frozen");
      note.set_text(frozenBase ? "beside the adapters" : initializer.sign);
    }
}

} // namespace

Expected<plan::Plan> emitPlan(ModuleOp module, plan::PlanWriter &writer, const EmitOptions &options) {
  plan::Plan plan;
  plan.set_producer("tcc " TCC_VERSION);
  plan.set_model(options.model->name);
  plan.set_target(options.target->name());
  plan.set_precision(options.recipe->train.precision);
  plan.set_card(options.card);
  plan.set_max_workers(options.maxWorkers);
  plan.set_library(options.target->library());
  plan.set_recipe(options.recipe->text);
  emitTraining(module, *options.recipe, plan);
  emitDecisions(module, *options.model, plan);
  emitAdapters(module, options.recipe->adapter, plan);
  for (const auto &[name, tie] : options.model->ties) {
    plan::Tie &out = *plan.add_ties();
    out.set_name(name);
    out.set_of(tie.of);
    out.mutable_permutation()->Assign(tie.permutation.begin(), tie.permutation.end());
    *out.mutable_type() = tie.type;
  }
  plan.mutable_quantized()->Assign(options.model->quantized.begin(), options.model->quantized.end());
  plan.mutable_quantized_ranges()->Assign(options.model->ranges.begin(), options.model->ranges.end());
  auto variables = options.sizesOnly ? Expected(std::map<std::string, uint32_t>()) : emitVariables(module, writer, options, plan);
  if (!variables)
    return variables.status();
  plan::setSpaceBytes(plan, plan::RESIDENT, train::residentBytes(module));

  codegen::KernelSet own(options.target->code());
  codegen::KernelSet &kernels = options.kernels ? *options.kernels : own;
  uint64_t transient = 0;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function->hasAttr(names::kEntry))
      continue;
    plan::Entry &entry = *plan.add_entries();
    if (Status status = EntryEmitter(function, kernels, *options.target, *variables, plan, entry, options.sizesOnly).run(); !status.ok())
      return status;
    transient = std::max<uint64_t>(transient, entry.transient_bytes());
    if (options.recipe->overlap)
      letCollectivesRunBeside(entry);
  }
  plan::setSpaceBytes(plan, plan::TRANSIENT, transient);
  emitVariants(module, plan);
  if (kernels.size() && !options.sizesOnly && !options.describeOnly) {
    Expected<std::string> code = kernels.compile();
    if (!code)
      return code.status();
    plan::CodeObject &object = *plan.add_code_objects();
    object.set_payload(writer.addPayload(*code));
    object.set_abi(kernels.joins() ? plan::kJoinedAbiVersion : plan::kKernelAbiVersion);
    if (options.target->code().warps()) {
      object.set_format(plan::CodeObject::PTX);
      object.set_processor(options.target->code().processor);
    }
    std::vector<plan::CodeBytes> assembled;
    if (object.format() == plan::CodeObject::PTX && options.assemble && options.recipe->cubins != "none") {
      Expected<std::string> machine = options.assemble(*code, object.processor());
      if (!machine)
        return machine.status();
      plan::CodeObject::Assembled &made = *object.add_assembled();
      made.set_architecture(object.processor());
      made.set_assembler(options.assembler);
      made.set_payload(writer.addPayload(*machine));
      assembled.push_back({machine->size(), plan::hashBytes(machine->data(), machine->size())});
    }
    for (plan::KernelSignature &signature : kernels.signatures())
      *object.add_kernels() = std::move(signature);
    object.set_signatures_xxh3(
        plan::hashSignatures(object, {code->size(), plan::hashBytes(code->data(), code->size())}, assembled));
  }
  plan.set_model_payload(options.model->strippedModel.empty() ? -1
                                                              : int(writer.addPayload(options.model->strippedModel)));
  return plan;
}

} // namespace tcc::emit

//===- Emit.cpp - write a planned program as a plan ------------------------===//
//
// The parts that belong to no entry: how to train, what was decided, adapters, variants and the kernels' code.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/Emit.h"

#include "compiler/codegen/KernelSet.h"
#include "compiler/emit/EmitEntry.h"
#include "compiler/emit/EmitVariables.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/InitializerLists.h"
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/Signatures.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/VirtualRanks.h"
#include "runtime/plan/plan.pb.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <set>

using namespace mlir;

namespace tcc::emit {

namespace {

/// Overlaps each collective of a finished entry with the instructions that follow it, up to the first one that touches
/// a result of it. No buffer moves or lives longer: a collective copies its sources when it begins or works in place,
/// and a reduce-scatter ends before its sources die or are overwritten.
void letCollectivesRunBeside(plan::Entry &entry) {
  const int count = entry.instructions_size();
  for (int at = 0; at < count; ++at) {
    plan::Instruction &collective = *entry.mutable_instructions(at);
    if (!collective.has_collective())
      continue;
    const plan::CollectiveCall::Kind kind = collective.collective().kind();
    if (kind == plan::CollectiveCall::OWN_SHARD) // a copy
      continue;
    // A reduce-scatter neither copies its sources nor reduces in place: they stay live until it ends.
    std::set<uint32_t> results, sources;
    int last = count - 1; // the last instruction that it overlaps
    for (const plan::Operand &operand : collective.operands()) {
      if (!operand.write() && kind != plan::CollectiveCall::REDUCE_SCATTER)
        continue;
      (operand.write() ? results : sources).insert(operand.buffer());
      const plan::Buffer &buffer = entry.buffers(int(operand.buffer()));
      if (!plan::holdsState(buffer.arena()))
        last = std::min(last, buffer.last());
    }
    for (int other = at + 1; other <= last; ++other) {
      const plan::Instruction &instruction = entry.instructions(other);
      for (const plan::Operand &operand : instruction.operands())
        if (results.count(operand.buffer()) || (operand.write() && sources.count(operand.buffer())))
          last = other - 1;
      for (const plan::InPlace &pair : instruction.in_place())
        if (sources.count(instruction.operands(int(pair.source())).buffer()))
          last = other - 1;
    }
    collective.set_beside(std::max(0, last - at));
  }
}

namespace names = train::names;

/// Writes what one update reads: optimizer, schedule, clipping, loss and scalars.
void emitUpdate(const Recipe &recipe, ArrayAttr groups, ArrayAttr scalars, plan::Training &training) {
  const plan::Training &given = recipe.training;
  *training.mutable_optimizer() = given.optimizer();
  *training.mutable_schedule() = given.schedule();
  training.set_accumulate(given.accumulate());
  training.set_seed(given.seed());
  if (given.has_clip_norm())
    training.set_clip_norm(given.clip_norm());
  for (Attribute attribute : groups ? groups.getValue() : ArrayRef<Attribute>()) {
    auto group = cast<DictionaryAttr>(attribute);
    plan::OptimizerGroup &target = *training.mutable_optimizer()->add_groups();
    target.set_name(group.getAs<StringAttr>("name").str());
    target.set_lr_scale(group.getAs<FloatAttr>("lr_scale").getValueAsDouble());
    target.set_weight_decay(group.getAs<FloatAttr>("weight_decay").getValueAsDouble());
  }
  for (Attribute name : scalars ? scalars.getValue() : ArrayRef<Attribute>())
    training.add_scalars(cast<StringAttr>(name).str());
  training.set_loss_kind(recipe.loss.kind.empty() ? "graph" : recipe.loss.kind);
  training.set_loss_output(recipe.loss.output);
  training.set_target(recipe.loss.target);
  training.set_sample_weight(recipe.loss.sampleWeight);
  training.set_shift(recipe.loss.shift);
  if (isClassification(recipe.loss.kind)) {
    training.mutable_class_target()->set_ignore_index(recipe.loss.ignoreIndex);
    if (recipe.loss.classAxis)
      training.mutable_class_target()->set_axis(*recipe.loss.classAxis);
  }
  for (const Recipe &one : recipe.losses) {
    plan::LossTerm &term = *training.add_losses();
    term.set_name(one.lossName);
    term.set_scale(one.lossScale);
    term.set_sample_weight(one.loss.sampleWeight);
  }
}

void emitParallel(const ParallelSettings &given, plan::Parallel &parallel) {
  parallel.set_mode(given.mode);
  parallel.set_average(given.average);
  parallel.set_reduce_dtype(given.reduceDtype);
  parallel.set_bucket_bytes(uint64_t(given.bucketBytes));
  parallel.set_batch_norm(given.batchNorm);
  if (given.virtualRanks) {
    parallel.set_virtual_ranks(uint64_t(given.virtualRanks));
    parallel.set_least_ranks(uint64_t(given.fewestRanks()));
  }
  parallel.set_ranks(given.sharded() ? uint32_t(given.shardRanks()) : 0);
}

void emitTraining(ModuleOp module, const Recipe &recipe, plan::Plan &plan) {
  plan::Training &training = *plan.mutable_training();
  training = recipe.training;
  if (!training.ema().has_decay())
    training.clear_ema();
  if (recipe.train.scalesLoss())
    training.mutable_loss_scale()->set_dynamic(recipe.train.lossScaleKind != "fixed");
  else
    training.clear_loss_scale();
  if (recipe.parallel.distributed())
    emitParallel(recipe.parallel, *training.mutable_parallel());
  *plan.mutable_data() = recipe.data;

  auto groups = module->getAttrOfType<ArrayAttr>(names::kGroups);
  // Of several optimizers, show the first one that runs at every step.
  Recipe shown = recipe;
  if (auto main =
          llvm::find_if(recipe.phases, [](const Recipe &phase) { return phase.phaseEvery == 1; });
      main != recipe.phases.end())
    shown.training = main->training;
  training.clear_clip_norm();
  emitUpdate(shown, groups, module->getAttrOfType<ArrayAttr>(names::kScalars), training);
  auto phases = module->getAttrOfType<ArrayAttr>(names::kPhases);
  if (phases && !recipe.stages.empty())
    for (auto [attribute, stage] : llvm::zip_equal(phases, stageRecipes(recipe))) {
      auto own = cast<DictionaryAttr>(attribute);
      plan::Stage &out = *training.add_stages();
      const StageSettings &given = recipe.stages[*stage.stage];
      out.set_name(stage.phase);
      out.set_until(given.until);
      out.set_lr_scale(given.lrScale);
      emitUpdate(stage, own.getAs<ArrayAttr>("groups"), own.getAs<ArrayAttr>("scalars"), *out.mutable_training());
    }
  else if (phases)
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
}

/// True if some entry's target has the shape of the scores without their class axis. (Entries may differ in
/// dimensions.)
bool isShapeOfTarget(const plan::Plan &plan, const plan::TensorType &scores, int classAxis) {
  std::vector<int64_t> dims(scores.dims().begin(), scores.dims().end());
  dims.erase(dims.begin() + classAxis);
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Port &port : entry.inputs()) {
      const auto &target = entry.buffers(int(port.buffer())).type().dims();
      if (port.name() == plan.training().target() && std::equal(dims.begin(), dims.end(), target.begin(), target.end()))
        return true;
    }
  return false;
}

/// The number of classes that an integer target may name: the size of the class axis of the graph output that the loss
/// reads, if the plan's entry `predict` has this output; else 0.
int64_t classesOf(const plan::Plan &plan, const LossSettings &loss) {
  const std::string of = loss.of.empty() ? "" : loss.of.front();
  const int64_t axis = loss.classAxis.value_or(1);
  for (const plan::Entry &entry : plan.entries()) {
    if (entry.name() != entries::kPredict)
      continue;
    const plan::TensorType *scores = nullptr;
    int candidates = 0;
    for (const plan::Port &port : entry.outputs()) {
      const plan::TensorType &type = entry.buffers(int(port.buffer())).type();
      if (of.empty() ? plan::isFloatingPoint(type.dtype()) : port.name() == of) {
        scores = &type;
        ++candidates;
      }
    }
    if (candidates != 1)
      return 0;
    const int64_t position = axis < 0 ? axis + scores->dims_size() : axis;
    if (position >= 0 && position < scores->dims_size() && isShapeOfTarget(plan, *scores, int(position)))
      return scores->dims(int(position));
  }
  return 0;
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
    if (auto dims = entry.getAs<DenseI64ArrayAttr>("dims"))
      adapter.mutable_dims()->Assign(dims.asArrayRef().begin(), dims.asArrayRef().end());
    adapter.set_not_peft(entry.getAs<StringAttr>("not_peft").str());
  }
}

/// Writes the memory and the cost of an update of each variant.
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
      variant.set_cost(variant.cost() + entry.cost() * plan::callsPerUpdate(plan.training(), entry.name()));
    }
  }
}

/// Notes the list of each floating-point initializer (trained, frozen …), and why. Initializers that the importer lists
/// as trained are frozen if adapters are trained instead, or if no gradient reaches them.
void emitLists(ModuleOp module, const ImportedModel &model, plan::Decisions &decisions) {
  std::map<std::string, std::string> unused;
  for (const plan::Decisions::Unused &parameter : decisions.unused_parameters())
    unused[parameter.name()] = parameter.reason();
  std::map<std::string, std::pair<std::string, std::string>> lists;
  const SymbolTable symbols(module);
  for (const auto &[name, initializer] : model.initializers) {
    if (initializer.sign.empty() || !plan::isFloatingPoint(initializer.type.dtype()))
      continue;
    std::string list = initializer.list, sign = initializer.sign;
    auto variable = symbols.lookup<train::VariableOp>(name);
    if (list == plan::lists::kTrained && module->hasAttr(names::kAdapters) && variable &&
        variable.getRole() == roles::kFrozen) {
      list = plan::lists::kFrozen;
      sign = "beside the adapters";
    } else if (auto found = unused.find(name); list == plan::lists::kTrained && found != unused.end()) {
      list = plan::lists::kFrozen;
      sign = "no gradient: " + found->second;
    }
    lists[name] = {list, sign};
  }
  for (const auto &[name, tie] : model.ties)
    if (auto of = lists.find(tie.of); of != lists.end())
      lists[name] = {of->second.first, fmt::format("tied: {}{}", tie.of, tie.permutation.empty() ? "" : " transposed")};
  for (const auto &[name, entry] : lists) {
    plan::Decisions::Note &note = *decisions.add_notes();
    note.set_kind(entry.first);
    note.set_subject(name);
    note.set_text(entry.second);
  }
}

void emitDecisions(ModuleOp module, const ImportedModel &model, plan::Plan &plan) {
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
  if (!model.unsaid.empty()) {
    plan::Decisions::Note &note = *decisions.add_notes();
    note.set_kind(plan::kUnsaidNote);
    note.set_text(model.unsaid);
  }
  emitLists(module, model, decisions);
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
  plan.set_execution(options.target->capabilities().execution);
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
  auto variables =
      options.sizesOnly ? Expected(std::map<std::string, uint32_t>()) : emitVariables(module, writer, options, plan);
  if (!variables)
    return variables.status();
  plan::setSpaceBytes(plan, plan::RESIDENT, train::residentBytes(module));
  plan::setSpaceBytes(plan, plan::HOST_RESIDENT, train::residentBytes(module, /*onHost=*/true));

  codegen::KernelSet own(options.target->code());
  codegen::KernelSet &kernels = options.kernels ? *options.kernels : own;
  uint64_t transient = 0, hostTransient = 0;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function->hasAttr(names::kEntry))
      continue;
    plan::Entry &entry = *plan.add_entries();
    if (Status status = emitEntry(function, kernels, *options.target, *variables, plan, options.sizesOnly, entry);
        !status.ok())
      return status;
    transient = std::max<uint64_t>(transient, entry.transient_bytes());
    hostTransient = std::max<uint64_t>(hostTransient, entry.host_transient_bytes());
    if (options.recipe->overlap)
      letCollectivesRunBeside(entry);
  }
  plan::setSpaceBytes(plan, plan::TRANSIENT, transient);
  plan::setSpaceBytes(plan, plan::HOST_TRANSIENT, hostTransient);
  emitVariants(module, plan);
  plan.mutable_training()->set_batch_statistics(options.model->batchStatistics);
  if (plan.training().has_class_target())
    plan.mutable_training()->mutable_class_target()->set_classes(classesOf(plan, options.recipe->loss));
  if (kernels.size() && !options.sizesOnly && !options.describeOnly) {
    Expected<std::string> code = kernels.compile();
    if (!code)
      return code.status();
    plan::CodeObject &object = *plan.add_code_objects();
    object.set_payload(writer.addPayload(*code));
    object.set_abi(kernels.joins() ? plan::kJoinedAbiVersion : plan::kKernelAbiVersion);
    object.set_format(options.target->code().format);
    if (object.format() == plan::CodeObject::PTX)
      object.set_processor(options.target->code().processor);
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

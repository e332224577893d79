//===- Emit.cpp - write a planned program as a plan ------------------------===//
//
// The parts that belong to no entry: how to train, what was decided, adapters, variants and the kernels' code.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/Emit.h"

#include "compiler/codegen/KernelSet.h"
#include "compiler/emit/Beside.h"
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
#include "runtime/plan/UpdateCalls.h"
#include "support/PlanNames.h"

using namespace mlir;

namespace tcc::emit {

namespace {

namespace names = train::names;

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
  training.set_sample_weight(recipe.loss.sampleWeight);
  training.set_shift(recipe.loss.shift);
  for (const Recipe &one : recipe.losses) {
    plan::LossTerm &term = *training.add_losses();
    term.set_name(one.lossName);
    term.set_scale(one.lossScale);
    term.set_sample_weight(one.loss.sampleWeight);
  }
}

void emitTraining(ModuleOp module, const Recipe &recipe, plan::Plan &plan) {
  plan::Training &training = *plan.mutable_training();
  auto groups = module->getAttrOfType<ArrayAttr>(names::kGroups);
  // Of several optimizers, show the first one that runs at every step.
  Recipe shown = recipe;
  if (auto main = llvm::find_if(recipe.phases, [](const Recipe &phase) { return phase.phaseEvery == 1; });
      main != recipe.phases.end()) {
    shown.optimizer = main->optimizer;
    shown.schedule = main->schedule;
    shown.train = main->train;
  }
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
void emitLists(ModuleOp module, const frontend::ImportedModel &model, plan::Decisions &decisions) {
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
    if (list == plan::lists::kTrained && module->hasAttr(names::kAdapters) && variable && variable.getRole() == roles::kFrozen) {
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

  codegen::KernelSet own(options.target->code());
  codegen::KernelSet &kernels = options.kernels ? *options.kernels : own;
  uint64_t transient = 0;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function->hasAttr(names::kEntry))
      continue;
    plan::Entry &entry = *plan.add_entries();
    if (Status status = emitEntry(function, kernels, *options.target, *variables, plan, options.sizesOnly, entry);
        !status.ok())
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

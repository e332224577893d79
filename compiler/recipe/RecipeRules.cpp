//===- RecipeRules.cpp - keys and defaults of each kind, and conflicts ---------===//
#include "compiler/recipe/RecipeStores.h"
#include "runtime/plan/FourBits.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tcc::recipe {


/// True for a key of the file whose kind was replaced by --set: the key then has no meaning and is dropped.
static bool isOverridden(const Recipe &recipe, const std::string &key, const char *kindKey) {
  auto place = [&](const std::string &name) {
    auto found = recipe.where.find(name);
    return found == recipe.where.end() ? std::string() : found->second;
  };
  return place(kindKey) == "--set" && place(key) != "--set";
}

/// The key that sets a number of the optimizer: optimizer.betas for beta1.
static std::string keyOfNumber(const std::string &number) {
  for (const Key &key : allKeys())
    if (std::find(key.places.begin(), key.places.end(), "optimizer.numbers." + number) != key.places.end())
      return key.name;
  return "optimizer." + number;
}

Status finishOptimizer(Recipe &recipe) {
  OptimizerSettings &settings = recipe.optimizer;
  plan::Optimizer &optimizer = *recipe.training.mutable_optimizer();
  const OptimizerKind *kind = findOptimizerKind(optimizer.kind());
  if (!kind)
    return error("{}unknown optimizer \"{}\"", recipe.at("optimizer.kind"), optimizer.kind());
  auto refuse = [&](const std::string &key) {
    return error("{}{} does not apply to {}: remove it or choose another optimizer.kind", recipe.at(key), key,
                       optimizer.kind());
  };
  auto overridden = [&](const std::string &key) { return isOverridden(recipe, key, "optimizer.kind"); };
  std::map<std::string, double> numbers(optimizer.numbers().begin(), optimizer.numbers().end());
  optimizer.clear_numbers();
  for (const auto &[name, value] : numbers)
    if (kind->numbers.count(name))
      (*optimizer.mutable_numbers())[name] = value;
    else if (const std::string key = keyOfNumber(name); !overridden(key))
      return refuse(key);
  for (auto flag = settings.flags.begin(); flag != settings.flags.end();) {
    if (kind->flags.count(*flag))
      ++flag;
    else if (overridden("optimizer." + *flag))
      flag = settings.flags.erase(flag);
    else
      return refuse("optimizer." + *flag);
  }
  for (const OptimizerKind &other : optimizerKinds())
    for (const std::string &name : other.keys)
      if (const std::string key = "optimizer." + name;
          !kind->keys.count(name) && recipe.where.count(key) && !overridden(key))
        return refuse(key);
  const auto nesterov = kind->flags.find("nesterov");
  if (nesterov == kind->flags.end() && overridden("optimizer.nesterov"))
    optimizer.set_nesterov(false);
  if (nesterov != kind->flags.end() && !recipe.where.count("optimizer.nesterov"))
    optimizer.set_nesterov(optimizer.nesterov() || nesterov->second);
  if (optimizer.nesterov() && nesterov == kind->flags.end())
    return refuse("optimizer.nesterov");
  // PyTorch's one_cycle also sets the momentum of an optimizer that was created without momentum.
  const auto &schedule = recipe.training.schedule();
  auto &chosen = *optimizer.mutable_numbers();
  if (schedule.kind() == "one_cycle" && plan::numberOr(schedule.numbers(), "schedule", "cycle_momentum") != 0) {
    if (!kind->numbers.count("momentum") && !kind->numbers.count("beta1"))
      return error("{}schedule.kind \"one_cycle\" cycles momentum, which {} does not have: set schedule.cycle_momentum "
                         "= false",
                         recipe.at("schedule.kind"), optimizer.kind());
    const auto given = chosen.find("momentum");
    if (kind->numbers.count("momentum") && (given == chosen.end() ? kind->numbers.at("momentum") : given->second) == 0)
      chosen["momentum"] = plan::numberOr(schedule.numbers(), "schedule", "max_momentum");
  }
  for (const auto &[name, preset] : kind->numbers)
    chosen.insert({name, preset});
  if (!recipe.optimizer.momentsExempt.empty() && recipe.optimizer.moments != "8bit")
    return error("{}optimizer.moments_exempt needs optimizer.moments = \"8bit\": other types are those of all moments",
                 recipe.at("optimizer.moments_exempt"));
  if (optimizer.kind() == "sgd" && optimizer.nesterov() && (chosen["momentum"] <= 0 || chosen["dampening"] != 0))
    return error("{}optimizer.nesterov needs a momentum above 0 and no dampening",
                       recipe.at("optimizer.nesterov"));
  return Status::success();
}

/// The given keys of a section, by the name after the dot, in the order of the table of keys.
static std::vector<std::string> givenKeys(const Recipe &recipe, std::string_view section) {
  std::vector<std::string> names;
  for (const Key &key : allKeys())
    if (key.name.starts_with(section) && recipe.where.count(key.name))
      names.push_back(key.name.substr(section.size()));
  return names;
}

static bool contains(const std::vector<std::string> &names, const std::string &name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Status finishLoss(Recipe &recipe) {
  LossSettings &loss = recipe.loss;
  // --set loss.output replaces a built-in loss of the file, and vice versa.
  if (!loss.output.empty() && isOverridden(recipe, "loss.kind", "loss.output"))
    loss.kind.clear();
  if (!loss.kind.empty() && isOverridden(recipe, "loss.output", "loss.kind"))
    loss.output.clear();
  if (!loss.output.empty() && !loss.kind.empty())
    return error("{}loss.output and loss.kind exclude each other: the loss is a graph output, or made from one",
                 recipe.at("loss.output"));
  for (const std::string &name : givenKeys(recipe, "loss.")) {
    const std::string key = "loss." + name;
    if (contains({"kind", "output", "name", "scale"}, name) || isOverridden(recipe, key, "loss.output"))
      continue;
    const std::vector<std::string> kinds = lossesWithKey(name);
    if (loss.kind.empty())
      return error("{}{} needs loss.kind ({})", recipe.at(key), key, fmt::join(kinds, ", "));
    if (!contains(kinds, loss.kind) && !isOverridden(recipe, key, "loss.kind"))
      return error("{}{} does not apply to {}; it belongs to {}", recipe.at(key), key, loss.kind,
                   fmt::join(kinds, ", "));
  }
  if (!loss.kind.empty() && loss.target.empty() && contains(lossesWithKey("target"), loss.kind))
    return error("{}loss.kind needs loss.target: the graph input, or data column, that it compares with",
                       recipe.at("loss.kind"));
  if (loss.kind == "dice" && loss.input == "log_probs")
    return error("{}loss.input \"log_probs\" belongs to ctc; dice takes \"probs\" and \"logits\"",
                       recipe.at("loss.input"));
  if (loss.reduction == "batchmean" && loss.kind != "kl_div")
    return error("{}loss.reduction \"batchmean\" belongs to kl_div", recipe.at("loss.reduction"));
  return Status::success();
}

static Status finishSchedule(const Recipe &recipe) {
  const ScheduleKind &kind = *findScheduleKind(recipe.training.schedule().kind()); // its key takes these names alone
  if (const std::string needed = "schedule." + kind.needs;
      !kind.needs.empty() && !plan::hasSetting(keyOf(needed), recipe.training, recipe.data))
    return error("{}schedule.kind \"{}\" needs {}", recipe.at("schedule.kind"), kind.name, needed);
  for (const std::string &name : givenKeys(recipe, "schedule.")) {
    const std::string key = "schedule." + name;
    if (isOverridden(recipe, key, "schedule.kind"))
      continue;
    if (contains(kind.refuses, name))
      return error("{}schedule.kind \"{}\" takes no {}: remove it", recipe.at(key), kind.name, key);
    if (const std::vector<std::string> kinds = schedulesWithKey(name); !contains(kinds, kind.name))
      return error("{}{} does not apply to {}; it belongs to {}", recipe.at(key), key, kind.name,
                   fmt::join(kinds, ", "));
  }
  return Status::success();
}

Status finishLossAndSchedule(Recipe &recipe) {
  if (recipe.losses.empty()) // with several losses, finishLosses has checked each of them
    if (Status status = finishLoss(recipe); !status.ok())
      return status;
  return finishSchedule(recipe);
}

static Status finishAdapter(const Recipe &recipe) {
  const AdapterSettings &adapter = recipe.adapter;
  if (recipe.where.count("adapter.targets") && recipe.where.count("adapter.match"))
    return error("{}adapter.match is another name of adapter.targets: give one of them", recipe.at("adapter.match"));
  for (const char *key : {"adapter.rank", "adapter.alpha", "adapter.rank_stabilized", "adapter.dropout",
                          "adapter.train", "adapter.base", "adapter.block", "adapter.nested"})
    if (recipe.where.count(key) && adapter.targets.empty())
      return error("{}{} needs adapter.targets: globs of the matrices to adapt, such as [\"*.q_proj\", \"*.v_proj\"]",
                   recipe.at(key), key);
  if (recipe.where.count("adapter.block")) {
    if (!adapter.inFourBits())
      return error("{}adapter.block needs a base in 4 bits, and adapter.base is \"{}\"; set adapter.base to \"nf4\" or "
                   "\"int4\", or leave adapter.block out",
                   recipe.at("adapter.block"), adapter.base);
    if (!plan::isBlockOfFourBits(adapter.block))
      return error("{}adapter.block: {} elements are no block of 4 bits; give 32, 64, 128 or 256",
                   recipe.at("adapter.block"), adapter.block);
  }
  if (adapter.nested && adapter.base == "int4")
    return error("{}adapter.nested: scales of \"int4\" have either sign, so that their mean says nothing about them; "
                 "set adapter.base to \"nf4\", or leave adapter.nested out",
                 recipe.at("adapter.nested"));
  if (adapter.nested && adapter.base != "nf4")
    return error("{}adapter.nested needs the scales of a base in 4 bits, and adapter.base is \"{}\"; set adapter.base "
                 "to \"nf4\", or leave adapter.nested out",
                 recipe.at("adapter.nested"), adapter.base);
  if (!adapter.targets.empty() && recipe.where.count("model.trainable"))
    return error(
        "{}model.trainable: with [adapter] the model's own parameters are frozen; adapter.train lists those that "
        "are trained besides",
        recipe.at("model.trainable"));
  return Status::success();
}

static bool isPowerOfTwo(int64_t number) { return number > 0 && (number & (number - 1)) == 0; }

/// Refuses settings that compute a value from all shards of the state, in an order that depends on the number of ranks.
static Status finishVirtualShards(const Recipe &recipe) {
  const ParallelSettings &parallel = recipe.parallel;
  const std::string at = recipe.at("train.virtual_ranks");
  const int64_t ranks = parallel.shardRanks();
  if (!isPowerOfTwo(ranks) || ranks > parallel.virtualRanks)
    return error(
        "{}train.virtual_ranks: {} virtual ranks are divided among 1, 2, 4 … {} ranks, and the state is sharded over "
        "{}; use one of these numbers for {}",
        at, parallel.virtualRanks, parallel.virtualRanks, ranks,
        parallel.replicates() ? "parallel.shard_within_node" : "parallel.ranks");
  const char *norm = recipe.training.has_clip_norm()                ? "train.clip_norm"
                     : recipe.training.optimizer().kind() == "lamb" ? "optimizer.kind \"lamb\""
                                                                    : nullptr;
  if (norm)
    return error("{}train.virtual_ranks: {} needs a norm, and that of shards is summed in an order that depends on the "
                 "number of ranks; use parallel.mode = \"ddp\"",
                 at, norm);
  if (recipe.optimizer.moments != "f32")
    return error("{}train.virtual_ranks: optimizer.moments \"{}\" rounds shards {}; use \"f32\", or "
                 "parallel.mode = \"ddp\"",
                 at, recipe.optimizer.moments,
                 recipe.optimizer.moments == "bf16" ? "at random, by rank" : "where they hold whole blocks");
  return Status::success();
}

/// Refuses settings whose results would depend on the number of ranks.
static Status finishVirtualRanks(const Recipe &recipe) {
  const ParallelSettings &parallel = recipe.parallel;
  if (!parallel.virtualRanks) {
    if (recipe.where.count("parallel.least_ranks"))
      return error("{}parallel.least_ranks needs train.virtual_ranks: any number of ranks can run other plans",
                   recipe.at("parallel.least_ranks"));
    return Status::success();
  }
  const std::string at = recipe.at("train.virtual_ranks");
  int64_t below = 1;
  while (below * 2 < parallel.virtualRanks)
    below *= 2;
  if (!isPowerOfTwo(parallel.virtualRanks))
    return error("{}train.virtual_ranks = {} is no power of two, which the tree of sums needs; use {} or {}", at,
                 parallel.virtualRanks, below, below * 2);
  if (!isPowerOfTwo(parallel.leastRanks) || parallel.leastRanks > parallel.virtualRanks)
    return error("{}parallel.least_ranks = {}: {} virtual ranks are divided among 1, 2, 4 … {} ranks; use one of these "
                 "numbers",
                 recipe.at("parallel.least_ranks"), parallel.leastRanks, parallel.virtualRanks, parallel.virtualRanks);
  if (parallel.sharded())
    if (Status status = finishVirtualShards(recipe); !status.ok())
      return status;
  if (parallel.average == "ranks")
    return error(
        "{}train.virtual_ranks: parallel.average = \"ranks\" divides by each rank's own denominator, so it depends "
        "on their number; leave parallel.average out",
        at);
  if (parallel.reduceDtype != "f32")
    return error(
        "{}train.virtual_ranks: parallel.reduce_dtype = \"{}\" rounds what a rank sends, so it depends on their "
        "number; leave parallel.reduce_dtype out",
        at, parallel.reduceDtype);
  if (parallel.batchNorm == "sync")
    return error(
        "{}train.virtual_ranks: parallel.batch_norm = \"sync\" needs all batches at once, and a rank takes those of "
        "its virtual ranks in turn; leave parallel.batch_norm out",
        at);
  if (parallel.shardsAccumulators())
    return error("{}train.virtual_ranks: parallel.accumulators = \"shards\" adds the ranks' gradients before those of "
                 "the next micro-batch, so the order depends on their number; leave parallel.accumulators out",
                 at);
  return Status::success();
}

/// Checks the keys that say how state is sharded.
static Status finishShards(const Recipe &recipe) {
  const ParallelSettings &parallel = recipe.parallel;
  if (parallel.replicates() && parallel.shardWithinNode == 0)
    return error(
        "{}parallel.mode \"hybrid\" needs parallel.shard_within_node, the number of ranks of a node, which share "
        "the state; \"full\" shares it among all ranks",
        recipe.at("parallel.mode"));
  if (parallel.replicates() && parallel.ranks != 0)
    return error("{}parallel.ranks: a plan with mode \"hybrid\" runs on any number of nodes of "
                 "parallel.shard_within_node ranks; leave parallel.ranks out",
                 recipe.at("parallel.ranks"));
  if (parallel.shardWithinNode != 0 && !parallel.replicates())
    return error("{}parallel.shard_within_node needs parallel.mode = \"hybrid\"; with \"full\" all ranks share the "
                 "state: leave the key out",
                 recipe.at("parallel.shard_within_node"));
  if (parallel.sharded() && parallel.shardRanks() == 0)
    return error(
        "{}parallel.mode \"{}\" needs parallel.ranks, the number of ranks that share the state; \"ddp\" runs on "
        "any number",
        recipe.at("parallel.mode"), parallel.mode);
  if (parallel.ranks != 0 && !parallel.sharded())
    return error("{}parallel.ranks needs parallel.mode = \"grad_op\" or \"full\"; {}", recipe.at("parallel.ranks"),
                 parallel.distributed() ? "a plan with mode \"ddp\" runs on any number of ranks: leave the key out"
                                        : "without a mode a plan is for one rank");
  if (recipe.where.count("parallel.prefetch") && !parallel.shardsParameters())
    return error("{}parallel.prefetch: nothing is gathered ahead unless parameters are sharded; use parallel.mode = "
                 "\"full\" or \"hybrid\", or leave the key out",
                 recipe.at("parallel.prefetch"));
  if (parallel.accumulators != "auto" && !parallel.sharded())
    return error("{}parallel.accumulators: no state is sharded; use parallel.mode = \"grad_op\", \"full\" or "
                 "\"hybrid\", or leave the key out",
                 recipe.at("parallel.accumulators"));
  if (parallel.shardsAccumulators() && parallel.average == "ranks")
    return error("{}parallel.accumulators = \"shards\" adds the gradients of ranks before each could divide by the "
                 "denominator of its window; leave parallel.average out: \"exact\" divides once, by that of all ranks",
                 recipe.at("parallel.accumulators"));
  return Status::success();
}

static Status finishParallel(const Recipe &recipe) {
  const ParallelSettings &parallel = recipe.parallel;
  if (Status status = finishShards(recipe); !status.ok())
    return status;
  for (const char *key : {"parallel.average", "parallel.reduce_dtype", "parallel.bucket_bytes", "parallel.batch_norm",
                          "parallel.least_ranks", "train.virtual_ranks"})
    if (recipe.where.count(key) && !parallel.distributed())
      return error("{}{} needs parallel.mode", recipe.at(key), key);
  if (parallel.reduceDtype == "f16" && !recipe.train.scalesLoss())
    return error("{}parallel.reduce_dtype \"f16\": sums of gradients may leave its range; use \"bf16\", or give "
                 "[train.loss_scale] kind = \"dynamic\"",
                 recipe.at("parallel.reduce_dtype"));
  if (parallel.batchNorm == "sync" && parallel.average == "ranks")
    return error(
        "{}parallel.batch_norm \"sync\" mixes the gradients of ranks before each divides by its own denominator; "
        "leave parallel.average out: \"exact\" divides once, by that of all ranks",
        recipe.at("parallel.batch_norm"));
  return finishVirtualRanks(recipe);
}

void finishPadding(Recipe &recipe) {
  const auto last = recipe.data.settings().find("last");
  std::vector<LossSettings *> losses = {&recipe.loss};
  for (Recipe &one : recipe.losses)
    losses.push_back(&one.loss);
  for (Recipe &phase : recipe.phases) {
    losses.push_back(&phase.loss);
    for (Recipe &one : phase.losses)
      losses.push_back(&one.loss);
  }
  // A loss inside the graph has its denominator there.
  const bool pads = last != recipe.data.settings().end() && last->second == "pad" &&
                    std::ranges::all_of(losses, [](const LossSettings *loss) { return !loss->kind.empty(); });
  for (LossSettings *loss : losses)
    loss->padsBatches = pads;
}

Status finishTraining(const Recipe &recipe) {
  if (Status status = finishAdapter(recipe); !status.ok())
    return status;
  if (Status status = finishParallel(recipe); !status.ok())
    return status;
  for (const Key &key : allKeys())
    if (!key.with.empty() && recipe.where.count(key.name) &&
        !plan::hasSetting(keyOf(key.neededKey()), recipe.training, recipe.data))
      return error("{}{} needs {}", recipe.at(key.name), key.name, key.with);
  const TrainSettings &train = recipe.train;
  for (const char *key : {"train.loss_scale.init_scale", "train.loss_scale.growth_factor",
                          "train.loss_scale.backoff_factor", "train.loss_scale.growth_interval"}) {
    const bool first = std::string_view(key).ends_with("init_scale");
    if (!recipe.where.count(key) || train.lossScaleKind == "dynamic" || train.lossScaleKind == "auto" ||
        (first && train.lossScaleKind == "fixed"))
      continue;
    return error("{}{} has no meaning with train.loss_scale.kind = \"{}\": remove it, or set kind = \"dynamic\"",
                 recipe.at(key), key, train.lossScaleKind);
  }
  for (const std::string &name : recipe.training.evaluation().metrics()) {
    const std::vector<std::string> losses = lossesWithMetric(name);
    if (losses.empty() || contains(losses, recipe.loss.kind))
      continue; // the metric belongs to every loss, or is a graph output
    return error("{}evaluate.metrics: {} belongs to the losses {}, and {}", recipe.at("evaluate.metrics"), name,
                 fmt::join(losses, ", "),
                 recipe.loss.kind.empty() ? "the loss is a graph output" : "loss.kind is " + recipe.loss.kind);
  }
  return Status::success();
}

} // namespace tcc::recipe

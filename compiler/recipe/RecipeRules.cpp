//===- RecipeRules.cpp - keys and defaults of each kind, and conflicts ---------===//
#include "compiler/recipe/RecipeStores.h"

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

/// "betas" for beta1: the key that sets a number.
static std::string keyOf(const std::string &number) {
  if (number == "beta1" || number == "beta2")
    return "optimizer.betas";
  if (number == "ns_a" || number == "ns_b" || number == "ns_c")
    return "optimizer.ns_coefficients";
  return "optimizer." + number;
}

Status finishOptimizer(Recipe &recipe) {
  OptimizerSettings &optimizer = recipe.optimizer;
  const OptimizerKind *kind = findOptimizerKind(optimizer.kind);
  if (!kind)
    return error("{}unknown optimizer \"{}\"", recipe.at("optimizer.kind"), optimizer.kind);
  auto refuse = [&](const std::string &key) {
    return error("{}{} does not apply to {}: remove it or choose another optimizer.kind", recipe.at(key), key,
                       optimizer.kind);
  };
  auto overridden = [&](const std::string &key) { return isOverridden(recipe, key, "optimizer.kind"); };
  for (auto number = optimizer.numbers.begin(); number != optimizer.numbers.end();) {
    if (kind->numbers.count(number->first))
      ++number;
    else if (overridden(keyOf(number->first)))
      number = optimizer.numbers.erase(number);
    else
      return refuse(keyOf(number->first));
  }
  for (auto flag = optimizer.flags.begin(); flag != optimizer.flags.end();) {
    if (kind->flags.count(*flag))
      ++flag;
    else if (overridden("optimizer." + *flag))
      flag = optimizer.flags.erase(flag);
    else
      return refuse("optimizer." + *flag);
  }
  if (optimizer.kind != "muon" && recipe.where.count("optimizer.adjust_lr_fn") && !overridden("optimizer.adjust_lr_fn"))
    return refuse("optimizer.adjust_lr_fn");
  if (!kind->flags.count("nesterov") && overridden("optimizer.nesterov"))
    optimizer.nesterov = false;
  if (optimizer.kind == "muon" && !recipe.where.count("optimizer.nesterov"))
    optimizer.nesterov = true;
  if (optimizer.nesterov && !kind->flags.count("nesterov"))
    return refuse("optimizer.nesterov");
  // PyTorch's one_cycle also sets the momentum of an optimizer that was created without momentum.
  auto cycles = recipe.schedule.numbers.find("cycle_momentum");
  if (recipe.schedule.kind == "one_cycle" && (cycles == recipe.schedule.numbers.end() || cycles->second != 0)) {
    if (!kind->numbers.count("momentum") && !kind->numbers.count("beta1"))
      return error("{}schedule.kind \"one_cycle\" cycles momentum, which {} does not have: set schedule.cycle_momentum "
                         "= false",
                         recipe.at("schedule.kind"), optimizer.kind);
    if (kind->numbers.count("momentum") && optimizer.numbers["momentum"] == 0) {
      auto most = recipe.schedule.numbers.find("max_momentum");
      optimizer.numbers["momentum"] = most == recipe.schedule.numbers.end() ? 0.95 : most->second;
    }
  }
  optimizer.numbers.insert(kind->numbers.begin(), kind->numbers.end());
  if (optimizer.kind == "sgd" && optimizer.nesterov &&
      (optimizer.numbers["momentum"] <= 0 || optimizer.numbers["dampening"] != 0))
    return error("{}optimizer.nesterov needs a momentum above 0 and no dampening",
                       recipe.at("optimizer.nesterov"));
  return Status::success();
}

static std::vector<std::string> without(std::vector<std::string> names, const std::string &name) {
  std::erase(names, name);
  return names;
}

struct Needs {
  const char *key;
  std::vector<std::string> kinds;
};

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
  const Needs table[] = {
      {"loss.of", lossKinds()},
      {"loss.target", without(lossKinds(), "triplet")},
      {"loss.sample_weight", lossKinds()},
      {"loss.class_axis", {"cross_entropy", "nll", "ctc", "dice"}},
      {"loss.shift", {"cross_entropy", "nll"}},
      {"loss.ignore_index", {"cross_entropy", "nll", "ctc"}},
      {"loss.label_smoothing", {"cross_entropy"}},
      {"loss.weight", {"cross_entropy", "nll", "bce", "bce_with_logits"}},
      {"loss.pos_weight", {"bce_with_logits"}},
      {"loss.reduction", lossKinds()},
      {"loss.delta", {"huber"}},
      {"loss.beta", {"smooth_l1"}},
      {"loss.log_target", {"kl_div"}},
      {"loss.margin", {"cosine_embedding", "triplet", "margin_ranking", "hinge", "hinge_embedding"}},
      {"loss.eps", {"triplet", "poisson_nll", "gaussian_nll"}},
      {"loss.p", {"triplet"}},
      {"loss.swap", {"triplet"}},
      {"loss.full", {"poisson_nll", "gaussian_nll"}},
      {"loss.log_input", {"poisson_nll"}},
      {"loss.alpha", {"focal"}},
      {"loss.gamma", {"focal"}},
      {"loss.smooth", {"dice"}},
      {"loss.input", {"ctc", "dice"}},
      {"loss.time_axis", {"ctc"}},
      {"loss.blank", {"ctc"}},
      {"loss.zero_infinity", {"ctc"}},
      {"loss.input_lengths", {"ctc"}},
      {"loss.target_lengths", {"ctc"}},
      {"loss.max_target_length", {"ctc"}},
  };
  for (const Needs &needs : table) {
    if (!recipe.where.count(needs.key) || isOverridden(recipe, needs.key, "loss.output"))
      continue;
    if (loss.kind.empty())
      return error("{}{} needs loss.kind ({})", recipe.at(needs.key), needs.key,
                         fmt::join(needs.kinds, ", "));
    if (std::find(needs.kinds.begin(), needs.kinds.end(), loss.kind) == needs.kinds.end() &&
        !isOverridden(recipe, needs.key, "loss.kind"))
      return error("{}{} does not apply to {}; it belongs to {}", recipe.at(needs.key), needs.key, loss.kind,
                         fmt::join(needs.kinds, ", "));
  }
  if (!loss.kind.empty() && loss.kind != "triplet" && loss.target.empty())
    return error("{}loss.kind needs loss.target: the graph input, or data column, that it compares with",
                       recipe.at("loss.kind"));
  if (loss.kind == "dice" && loss.input == "log_probs")
    return error("{}loss.input \"log_probs\" belongs to ctc; dice takes \"probs\" and \"logits\"",
                       recipe.at("loss.input"));
  if (loss.reduction == "batchmean" && loss.kind != "kl_div")
    return error("{}loss.reduction \"batchmean\" belongs to kl_div", recipe.at("loss.reduction"));
  return Status::success();
}

Status finishLossAndSchedule(Recipe &recipe) {
  if (recipe.losses.empty()) // else finishLosses checked each of them
    if (Status status = finishLoss(recipe); !status.ok())
      return status;
  const ScheduleSettings &schedule = recipe.schedule;
  auto given = [&](const char *name) { return schedule.numbers.count(name) != 0; };
  const std::string kindPlace = recipe.at("schedule.kind");
  if (schedule.kind == "step" && !given("step_size"))
    return error("{}schedule.kind \"step\" needs schedule.step_size", kindPlace);
  if (schedule.kind == "multi_step" && schedule.milestones.empty())
    return error("{}schedule.kind \"multi_step\" needs schedule.milestones", kindPlace);
  if (schedule.kind == "exponential" && !given("gamma"))
    return error("{}schedule.kind \"exponential\" needs schedule.gamma", kindPlace);
  if (schedule.kind == "cosine_warm_restarts" && !given("t_0"))
    return error("{}schedule.kind \"cosine_warm_restarts\" needs schedule.t_0, the length of the first cycle", kindPlace);
  if (schedule.kind == "one_cycle" && given("warmup_steps"))
    return error("{}schedule.kind \"one_cycle\" warms up by itself: remove schedule.warmup_steps",
                       recipe.at("schedule.warmup_steps"));
  const Needs scheduleTable[] = {
      {"schedule.min_lr_scale", {"linear", "cosine", "polynomial"}},
      {"schedule.floor", {"polynomial"}},
      {"schedule.power", {"polynomial"}},
      {"schedule.step_size", {"step"}},
      {"schedule.milestones", {"multi_step"}},
      {"schedule.gamma", {"step", "multi_step", "exponential"}},
      {"schedule.pct_start", {"one_cycle"}},
      {"schedule.div_factor", {"one_cycle"}},
      {"schedule.final_div_factor", {"one_cycle"}},
      {"schedule.base_momentum", {"one_cycle"}},
      {"schedule.max_momentum", {"one_cycle"}},
      {"schedule.cycle_momentum", {"one_cycle"}},
      {"schedule.t_0", {"cosine_warm_restarts"}},
      {"schedule.t_mult", {"cosine_warm_restarts"}},
      {"schedule.eta_min", {"cosine_warm_restarts"}},
      {"schedule.mode", {"plateau"}},
      {"schedule.factor", {"plateau"}},
      {"schedule.patience", {"plateau"}},
      {"schedule.threshold", {"plateau"}},
      {"schedule.threshold_mode", {"plateau"}},
      {"schedule.cooldown", {"plateau"}},
      {"schedule.min_lr", {"plateau"}},
      {"schedule.eps", {"plateau"}},
  };
  for (const Needs &needs : scheduleTable)
    if (recipe.where.count(needs.key) && !isOverridden(recipe, needs.key, "schedule.kind") &&
        std::find(needs.kinds.begin(), needs.kinds.end(), schedule.kind) == needs.kinds.end())
      return error("{}{} does not apply to {}; it belongs to {}", recipe.at(needs.key), needs.key, schedule.kind,
                         fmt::join(needs.kinds, ", "));
  return Status::success();
}

static Status finishAdapter(const Recipe &recipe) {
  const AdapterSettings &adapter = recipe.adapter;
  if (recipe.where.count("adapter.targets") && recipe.where.count("adapter.match"))
    return error("{}adapter.match is another name of adapter.targets: give one of them", recipe.at("adapter.match"));
  for (const char *key : {"adapter.rank", "adapter.alpha", "adapter.rank_stabilized", "adapter.dropout", "adapter.train",
                          "adapter.base"})
    if (recipe.where.count(key) && adapter.targets.empty())
      return error("{}{} needs adapter.targets: globs of the matrices to adapt, such as [\"*.q_proj\", \"*.v_proj\"]",
                   recipe.at(key), key);
  if (!adapter.targets.empty() && recipe.where.count("model.trainable"))
    return error("{}model.trainable: with [adapter] the model's own parameters are frozen; adapter.train lists those that "
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
  const char *norm = recipe.train.clipNorm             ? "train.clip_norm"
                     : recipe.optimizer.kind == "lamb" ? "optimizer.kind \"lamb\""
                                                       : nullptr;
  if (norm)
    return error("{}train.virtual_ranks: {} needs a norm, and that of shards is summed in an order that depends on the "
                 "number of ranks; use parallel.mode = \"ddp\"",
                 at, norm);
  if (recipe.optimizer.moments == "bf16")
    return error("{}train.virtual_ranks: optimizer.moments \"bf16\" rounds shards at random, by rank; use \"f32\", or "
                 "parallel.mode = \"ddp\"",
                 at);
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
    return error("{}parallel.mode \"{}\" needs parallel.ranks, the number of ranks that share the state; \"ddp\" runs on "
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

Status finishTraining(const Recipe &recipe) {
  if (Status status = finishAdapter(recipe); !status.ok())
    return status;
  if (Status status = finishParallel(recipe); !status.ok())
    return status;
  for (const char *key : {"train.ema.every", "train.ema.warmup", "train.ema.on"})
    if (recipe.where.count(key) && !recipe.train.ema.decay)
      return error("{}{} needs train.ema.decay, such as 0.999", recipe.at(key), key);
  const TrainSettings &train = recipe.train;
  for (const char *key : {"train.loss_scale.init_scale", "train.loss_scale.growth_factor",
                          "train.loss_scale.backoff_factor", "train.loss_scale.growth_interval"}) {
    const bool first = std::string_view(key).ends_with("init_scale");
    if (!recipe.where.count(key) || train.lossScale.kind == "dynamic" || train.lossScale.kind == "auto" ||
        (first && train.lossScale.kind == "fixed"))
      continue;
    return error("{}{} has no meaning with train.loss_scale.kind = \"{}\": remove it, or set kind = \"dynamic\"",
                 recipe.at(key), key, train.lossScale.kind);
  }
  for (const char *key : {"evaluate.stop.metric", "evaluate.stop.min_change"})
    if (recipe.where.count(key) && !recipe.evaluate.stopPatience)
      return error("{}{} needs evaluate.stop.patience, a number of evaluations", recipe.at(key), key);
  for (const std::string &name : recipe.evaluate.metrics) {
    const MetricKind *metric = findMetricKind(name);
    if (!metric || metric->losses.empty() ||
        std::find(metric->losses.begin(), metric->losses.end(), recipe.loss.kind) != metric->losses.end())
      continue; // an unknown name is a graph output
    return error("{}evaluate.metrics: {} belongs to the losses {}, and {}", recipe.at("evaluate.metrics"), name,
                 fmt::join(metric->losses, ", "),
                 recipe.loss.kind.empty() ? "the loss is a graph output" : "loss.kind is " + recipe.loss.kind);
  }
  return Status::success();
}

} // namespace tcc::recipe

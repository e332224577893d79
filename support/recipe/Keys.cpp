//===- Keys.cpp - the table of recipe keys -------------------------------===//
#include "support/recipe/Keys.h"
#include "support/recipe/Kinds.h"

#include <algorithm>
#include <cassert>

namespace tcc::recipe {

namespace {
std::vector<Key> makeKeys() {
  using enum Change;
  const std::string byKind = "by the kind";
  return {
      Key{"model.dims", other("table of integers, one of which may be a list, and of quotients `\"4096/seq\"`"), "",
          Recompile, "values of symbolic dimensions; a list makes [a shape](shapes.md) of each of its values"}
          .whenResumed(Resumed::Ignored),
      Key{"model.buckets", other("list of tables of integers"), "", Recompile,
          "[shapes](shapes.md) of training, each with values of symbolic dimensions"}
          .whenResumed(Resumed::Ignored),
      {"model.shapes", other("table of lists of integers"), "", Recompile,
       "shapes of graph inputs, as `--shape` gives them: `{ x = [4, 3, 48, 192] }`"},
      {"model.fix", other("table of numbers, lists or tensors"), "", Recompile,
       "graph inputs that are settings, with their values: `{ sr = 16000 }`"},
      {"model.trainable", texts(),
       "every floating-point initializer of rank ≥ 1 that is no running statistic or lifted constant", Recompile,
       "globs of trained initializers; an exact name adds one that the default leaves out"},
      {"model.frozen", texts(), "[]", Recompile, "globs of initializers that are not trained"},
      {"model.stop_gradient", texts(), "[]", Recompile,
       "globs of nodes and values whose gradient is stopped, besides the marks in the file"},
      {"model.tie", flag(), "false", Recompile, "make one parameter of each weight that the exporter stored twice"},
      {"model.merged", choice({"auto", "split", "keep"}), "\"auto\"", Recompile,
       "whether to separate weights that the exporter merged"},
      {"model.quantize", choice({"fixed", "observe"}), "\"fixed\"", Recompile,
       "scales of a quantised model in training: those of the file, or observed from values"},
      {"model.batch_norm", choice({"auto", "as-exported", "train"}), "\"auto\"", Recompile,
       "which BatchNormalization nodes train: all of a module exported in `train()` mode, each as exported, or all"},
      {"model.dropout", numberOr(kBelowOne, {"auto", "as-exported"}), "\"auto\"", Recompile,
       "each Dropout node as exported, or one probability for all"},
      Key{"evaluate.dims", integerTable(1), "", Recompile, "values of symbolic dimensions in evaluation"}.whenResumed(
          Resumed::Ignored),
      Key{"predict.dims", integerTable(1), "", Recompile, "values of symbolic dimensions in prediction"}.whenResumed(
          Resumed::Ignored),
      Key{"evaluate.metrics",
          texts(),
          "the loss's",
          Recompile,
          "metrics that evaluations compute besides the loss: their names, or names of graph outputs, which are "
          "averaged",
          {"metrics", "eval_metrics"}}
          .at({"evaluation.metrics"}),
      Key{"evaluate.best",
          text(),
          "the loss",
          RunTime,
          "the metric of the best checkpoint; `\"min:NAME\"`, `\"max:NAME\"` for a graph output",
          {"metric_for_best_model", "monitor"}}
          .at({"evaluation.best"}),
      {"evaluate.at_start", flag(), "false", RunTime, "evaluate before the first update as well", {"eval_on_start"}},
      Key{"evaluate.stop.metric", text(), "that of `evaluate.best`", RunTime, "the metric that ends training early"}
          .at({"evaluation.stop_metric"})
          .needs("evaluate.stop.patience, a number of evaluations"),
      Key{"evaluate.stop.patience",
          integer(0, int64_t(1) << 53),
          "",
          RunTime,
          "evaluations without a better value until training ends; 0: it does not",
          {"early_stopping_patience", "early_stopping"}}
          .at({"evaluation.stop_patience"}),
      Key{"evaluate.stop.min_change",
          number(kNotNegative),
          "0",
          RunTime,
          "the least change that counts as better",
          {"min_delta", "early_stopping_threshold"}}
          .at({"evaluation.stop_min_change"})
          .needs("evaluate.stop.patience, a number of evaluations"),

      Key{"loss.output", text(), "the only scalar floating-point output", Recompile,
          "a graph output that is the loss; excludes `loss.kind`"}
          .whenResumed(Resumed::Refused),
      Key{"loss.kind", choice(lossKindNames()), "", Recompile, "the loss to compute from a graph output"}.whenResumed(
          Resumed::Refused),
      {"loss.of", texts(), "the only floating-point output", Recompile,
       "a graph output, a value inside the graph or its node; a list for the kinds that compare several"},
      {"loss.target", text(), "", Recompile, "new or existing graph input that the prediction is compared with"},
      {"loss.sample_weight",
       text(),
       "each sample counts once",
       Recompile,
       "graph input, or data column, with a weight for each sample",
       {"loss.sample_weights", "sample_weight_mode", "weight_column"}},
      {"loss.class_axis", integer(-8, 8), "1; −1 for `ctc`", Recompile,
       "the axis of the classes; −1 for [batch, sequence, classes]"},
      {"loss.shift", flag(), "false", Recompile, "position t predicts target t + 1"},
      {"loss.ignore_index", integer(), "-100", Recompile, "the target value that does not count"},
      {"loss.label_smoothing", number(kUnit), "0", Recompile, "share of each target that is spread over all classes"},
      {"loss.weight", numbers(kNotNegative), "[]", Recompile, "weights of the classes or elements"},
      {"loss.pos_weight", numbers(kNotNegative), "[]", Recompile, "weights of positive examples"},
      {"loss.reduction", choice({"mean", "sum", "batchmean"}, {"none"}), "\"mean\"", Recompile,
       "`\"batchmean\"` belongs to `kl_div`"},
      {"loss.delta", number(kPositive), "1", Recompile, "where `huber` becomes linear"},
      {"loss.beta", number(kNotNegative), "1", Recompile, "where `smooth_l1` becomes linear"},
      {"loss.log_target", flag(), "false", Recompile, "the target of `kl_div` is a logarithm"},
      {"loss.margin", number(), byKind, Recompile, "the margin, for the kinds that have one"},
      {"loss.eps",
       number(kPositive),
       byKind,
       Recompile,
       "of `triplet`, `poisson_nll`, `gaussian_nll`",
       {"loss.epsilon"}},
      {"loss.p", number({1, kInfinity}), "2", Recompile, "the norm of `triplet`"},
      {"loss.swap", flag(), "false", Recompile, "the distance swap of `triplet`"},
      {"loss.full", flag(), "false", Recompile, "include the constant terms of `poisson_nll`, `gaussian_nll`"},
      {"loss.log_input", flag(), "true", Recompile, "the prediction of `poisson_nll` is a logarithm"},
      {"loss.alpha", numberOr(kUnit, -1), "0.25", Recompile, "weight of positive examples in `focal`; −1: none"},
      {"loss.gamma", number(kNotNegative), "2", Recompile, "exponent of `focal`"},
      {"loss.smooth", number(kNotNegative), "1", Recompile, "added to both sides of the ratio of `dice`"},
      {"loss.input",
       choice({"logits", "log_probs", "probs"}),
       "`ctc`: `\"log_probs\"`, `dice`: `\"probs\"`",
       Recompile,
       "the form of the prediction; logits go through a log-softmax (`ctc`) or a sigmoid (`dice`) first",
       {"loss.from_logits"}},
      {"loss.time_axis", integer(-3, 2), "0", Recompile, "the axis of time in `ctc`"},
      {"loss.blank",
       integer(0),
       "0",
       Recompile,
       "the class of `ctc` that is no label",
       {"loss.blank_label", "loss.blank_id"}},
      {"loss.zero_infinity", flag(), "false", Recompile, "an infinite loss of `ctc` counts as 0"},
      {"loss.input_lengths", text(), "", Recompile, "graph input with the samples' numbers of steps, for `ctc`"},
      {"loss.target_lengths", text(), "", Recompile, "graph input with the samples' numbers of labels, for `ctc`"},
      {"loss.max_target_length", integer(1, int64_t(1) << 20), "", Recompile, "columns of a new target of `ctc`"},

      {"loss.name", text(), "the kind, or the output", Recompile,
       "of one of several losses (`[[loss]]`): its part is `loss/NAME` in a run's metrics"},
      {"loss.scale", number(), "1", Recompile, "factor of one of several losses in their sum"},

      Key{"optimizer.kind",
          choice(optimizerKindNames()),
          "\"adamw\"",
          Recompile,
          "the optimizer",
          {"optimizer.type", "optimizer.name"}}
          .at({"optimizer.kind"})
          .whenResumed(Resumed::Refused),
      {"optimizer.lr", number(kNotNegative), byKind, RunTime, "learning rate", {"learning_rate"}},
      Key{"optimizer.betas",
          numbers(kBelowOne, 2),
          byKind,
          RunTime,
          "decay rates of the moments",
          {"beta1", "beta2", "adam_beta1", "adam_beta2"}}
          .at({"optimizer.numbers.beta1", "optimizer.numbers.beta2"})
          .reads({"beta1"}, "betas"),
      Key{"optimizer.eps", number(kNotNegative), byKind, RunTime, "added to a denominator", {"epsilon", "adam_epsilon"}}
          .reads({"eps"}, "an eps that can change"),
      Key{"optimizer.weight_decay",
          number(kNotNegative),
          byKind,
          RunTime,
          "weight decay; `trun` changes it in a plan that decays",
          {"wd", "l2"}}
          .reads({"weight_decay", "decay"}, "weight decay"),
      Key{"optimizer.momentum", number(kNotNegative), byKind, RunTime,
          "momentum; `trun` changes it in a plan that has momentum"}
          .reads({"momentum"}, "momentum"),
      Key{"optimizer.dampening", number(), byKind, RunTime,
          "dampening of `sgd`; `trun` changes it in a plan that dampens"}
          .reads({"one_minus_dampening"}, "dampening"),
      Key{"optimizer.nesterov", flag(), "false; true for `muon`", Recompile, "Nesterov's momentum"}.at(
          {"optimizer.nesterov"}),
      Key{"optimizer.alpha", number(kNotNegative), byKind, RunTime, "decay rate of `rmsprop`"}.reads({"alpha"},
                                                                                                     "alpha"),
      {"optimizer.centered", flag(), "false", Recompile, "`rmsprop` subtracts the mean gradient"},
      Key{"optimizer.lr_decay", number(kNotNegative), byKind, RunTime, "of `adagrad`"}.reads({"decayed_lr"},
                                                                                             "lr_decay"),
      Key{"optimizer.initial_accumulator_value", number(kNotNegative), byKind, Recompile, "of `adagrad`"}.at(
          {"optimizer.numbers.initial_accumulator_value"}),
      {"optimizer.amsgrad", flag(), "false", Recompile, "of `adam` and `adamw`"},
      {"optimizer.maximize", flag(), "false", Recompile, "ascend instead of descend"},
      Key{"optimizer.ns_steps", integer(0, 99), byKind, Recompile, "Newton-Schulz iterations of `muon`"}.at(
          {"optimizer.numbers.ns_steps"}),
      Key{"optimizer.ns_coefficients", numbers(kAny, 3), byKind, Recompile, "Newton-Schulz coefficients of `muon`"}.at(
          {"optimizer.numbers.ns_a", "optimizer.numbers.ns_b", "optimizer.numbers.ns_c"}),
      {"optimizer.adjust_lr_fn", choice({"original", "match_rms_adamw", "spectral_unclamped"}), "\"original\"",
       Recompile, "how `muon` scales the rate by the matrix's shape"},
      {"optimizer.moments",
       choice({"f32", "bf16", "8bit"}),
       "\"f32\"",
       Recompile,
       "the type that optimizer state is stored in; bf16 is rounded at random: "
       "[mixed-precision.md](mixed-precision.md#moments-in-bf16); 8 bits have a scale for each 256 elements: "
       "[there](mixed-precision.md#moments-in-8-bits)",
       {"optim_bits", "state_dtype", "optimizer.state_dtype"}},
      {"optimizer.moments_exempt",
       texts(),
       "[]",
       Recompile,
       "globs of parameters whose state stays in f32 beside `moments = \"8bit\"`",
       {"optimizer.moments_f32"}},
      {"optimizer.decay_exempt", texts(), "[]", Recompile, "globs of parameters without weight decay"},
      {"optimizer.group", other("tables `[[optimizer.group]]`"), "", Recompile,
       "`match` globs, `lr_scale`, `weight_decay`; the first that matches decides"},
      {"optimizer.layer_decay", other("`{ pattern = \"layers.{}.\", rate, before = \"off\" }`"), "", Recompile,
       "rates that shrink towards the first layer"},

      Key{"schedule.kind",
          choice(scheduleKindNames()),
          "\"constant\"",
          RunTime,
          "the learning rate as a function of the update",
          {"lr_scheduler", "lr_scheduler_type", "schedule.type", "schedule.name"}}
          .at({"schedule.kind"}),
      {"schedule.warmup_steps",
       integer(0, int64_t(1) << 53),
       "0",
       RunTime,
       "updates until the full rate",
       {"num_warmup_steps", "warmup"}},
      {"schedule.total_steps",
       integer(1, int64_t(1) << 53),
       "the run's",
       RunTime,
       "length of the schedule",
       {"num_training_steps", "t_max", "total_iters"}},
      {"schedule.min_lr_scale", number(kNotNegative), "0", RunTime,
       "the last factor of `linear`, `cosine`, `polynomial`"},
      Key{"schedule.per", choice({"step", "epoch"}), "\"step\"", RunTime, "the unit of all counts of the schedule"}.at(
          {"schedule.per"}),
      Key{"schedule.warmup_from", choice({"first", "zero"}), "\"first\"", RunTime,
          "the factor of the first update: 1/`warmup_steps`, or 0"}
          .at({"schedule.warmup_from"}),
      Key{"schedule.floor", choice({"rescale", "clamp"}), "\"rescale\"", RunTime,
          "how `polynomial` reaches `min_lr_scale`"}
          .at({"schedule.numbers.floor_clamp"}),
      {"schedule.step_size", integer(1, int64_t(1) << 53), "", RunTime, "updates between reductions by `step`"},
      Key{"schedule.milestones", integers(0), "", RunTime, "updates at which `multi_step` reduces the rate"}.at(
          {"schedule.numbers.milestone.{}"}),
      {"schedule.gamma", number(kNotNegative), "0.1", RunTime,
       "factor of each reduction by `step`, `multi_step`, and of each update by `exponential`, which has no default"},
      {"schedule.power", number(kNotNegative), "1", RunTime, "of `polynomial`"},
      {"schedule.pct_start", number(kUnit), "0.3", RunTime, "share of `one_cycle` in which the rate rises"},
      {"schedule.div_factor", number(kPositive), "25", RunTime, "`one_cycle` starts at `lr` ÷ this"},
      {"schedule.final_div_factor", number(kPositive), "1e4", RunTime, "`one_cycle` ends at its start ÷ this"},
      {"schedule.base_momentum", number(kBelowOne), "0.85", RunTime, "the least momentum of `one_cycle`"},
      {"schedule.max_momentum", number(kBelowOne), "0.95", RunTime, "the greatest momentum of `one_cycle`"},
      Key{"schedule.cycle_momentum", flag(), "true", Recompile, "whether `one_cycle` cycles momentum"}.at(
          {"schedule.numbers.cycle_momentum"}),
      {"schedule.t_0",
       integer(1, int64_t(1) << 53),
       "",
       RunTime,
       "length of the first cycle of `cosine_warm_restarts`",
       {"schedule.T_0", "num_cycles", "first_cycle_steps"}},
      {"schedule.t_mult",
       integer(1, int64_t(1) << 53),
       "1",
       RunTime,
       "each cycle of `cosine_warm_restarts` is so many times as long as the one before",
       {"schedule.T_mult", "cycle_mult"}},
      {"schedule.eta_min", number(kNotNegative), "0", RunTime,
       "the rate, not a factor of it, at the end of a cycle of `cosine_warm_restarts`"},
      Key{"schedule.mode", choice({"min", "max"}), "the metric's", RunTime,
          "which values of the metric of `evaluate.best` are better for `plateau`"}
          .at({"schedule.numbers.mode_max"}),
      {"schedule.factor",
       number({0, 1, false, true}),
       "0.1",
       RunTime,
       "multiplies the rate of `plateau` after `patience` evaluations without a better value",
       {"lr_factor", "reduce_factor"}},
      {"schedule.patience", integer(0, int64_t(1) << 53), "10", RunTime,
       "evaluations without a better value that `plateau` lets pass"},
      {"schedule.threshold", number(kNotNegative), "1e-4", RunTime, "the least change that `plateau` counts as better"},
      Key{"schedule.threshold_mode", choice({"rel", "abs"}), "\"rel\"", RunTime,
          "`threshold` is a share of the best value, or a difference"}
          .at({"schedule.numbers.threshold_abs"}),
      {"schedule.cooldown", integer(0, int64_t(1) << 53), "0", RunTime,
       "evaluations after a reduction that `plateau` does not count"},
      {"schedule.min_lr", number(kNotNegative), "0", RunTime, "the least rate of `plateau`"},
      {"schedule.eps", number(kNotNegative), "1e-8", RunTime, "the least change of the rate that `plateau` makes"},

      {"phase", other("tables `[[phase]]`"), "[]", Recompile,
       "alternating optimizers over one state: [phases.md](phases.md)"},
      {"stage", other("tables `[[stage]]`"), "[]", Recompile,
       "staged unfreezing: `until` a step, `trainable` globs, `lr_scale`: [stages.md](stages.md)"},

      Key{"train.accumulate",
          integer(1, int64_t(1) << 31),
          "1",
          Recompile,
          "micro-batches of an update",
          {"gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches", "accumulation_steps"}}
          .at({"accumulate"}),
      {"train.virtual_ranks",
       integer(1, int64_t(1) << 16),
       "none",
       Recompile,
       "batches of a global batch, whatever the number of ranks, with the same bits: "
       "[ranks.md](ranks.md#virtual-ranks)",
       {"virtual_workers", "virtual_nodes"}},
      Key{"train.clip_norm",
          number(kPositive),
          "none",
          RunTime,
          "largest global gradient norm; `trun` changes it in a plan that clips",
          {"max_grad_norm", "gradient_clip_val", "grad_clip", "clip_grad_norm", "max_norm"}}
          .at({"clip_norm"})
          .reads({"clip_norm"}, "clipping"),
      {"train.clip_value", number(kPositive), "none", Recompile, "largest gradient of an element"},
      {"train.outputs", texts(), "[]", Recompile,
       "graph outputs that an update also returns, to a loop of your own: [c-and-python.md](c-and-python.md)"},
      Key{"train.seed", integer(0), "0", RunTime, "seed of the sample order and of random numbers"}
          .at({"seed"})
          .whenResumed(Resumed::Kept),
      {"train.precision",
       choice({"f32", "tf32", "bf16", "f16", "auto"}),
       "\"f32\"",
       Recompile,
       "`\"bf16\"`, `\"f16\"`: products in that type; `\"tf32\"`: products of f32 rounded to TF32, on CUDA; "
       "`\"auto\"`: where the "
       "target has bf16; `--precision` overrides it",
       {"train.dtype", "amp", "mixed_precision"}},
      {"train.loss_scale.kind",
       choice({"auto", "dynamic", "fixed", "none"}),
       "\"auto\"",
       Recompile,
       "the factor of the loss in the backward pass: `\"dynamic\"` as torch's `GradScaler`, `\"fixed\"`: `init_scale`; "
       "`\"auto\"`: dynamic with f16, else none",
       {"loss_scale", "grad_scaler", "fp16.loss_scale"}},
      Key{"train.loss_scale.init_scale",
          number({0, 1e30, true}),
          "65536",
          RunTime,
          "the first factor",
          {"initial_scale", "initial_loss_scale"}}
          .at({"loss_scale.init_scale"}),
      Key{"train.loss_scale.growth_factor", number({1, 65536, true}), "2", RunTime,
          "multiplies the factor after `growth_interval` applied updates in a row"}
          .at({"loss_scale.growth_factor"}),
      Key{"train.loss_scale.backoff_factor", number({0, 1, true, true}), "0.5", RunTime,
          "multiplies the factor after a gradient that is not finite"}
          .at({"loss_scale.backoff_factor"}),
      Key{"train.loss_scale.growth_interval",
          integer(1, int64_t(1) << 53),
          "2000",
          RunTime,
          "applied updates in a row until the factor grows",
          {"loss_scale_window", "scale_window"}}
          .at({"loss_scale.growth_interval"}),
      Key{"train.ema.decay",
          number(kBelowOne),
          "none",
          RunTime,
          "keep an average of the parameters: e ← decay·e + (1 − decay)·w after each update",
          {"ema_decay", "model_ema_decay", "ema"}}
          .at({"ema.decay"}),
      Key{"train.ema.every", integer(1, int64_t(1) << 53), "1", RunTime, "updates between averages"}
          .at({"ema.every"})
          .needs("train.ema.decay, such as 0.999"),
      Key{"train.ema.warmup", integer(0, int64_t(1) << 53), "0", RunTime,
          "the n-th average has the decay min(`decay`, (1 + n)/(`warmup` + n))"}
          .at({"ema.warmup"})
          .needs("train.ema.decay, such as 0.999"),
      Key{"train.ema.on", choice({"host", "device"}), "\"host\"", RunTime,
          "`\"device\"`: the update's kernels average, in the memory of a plan compiled with this value"}
          .at({"ema.on_device"})
          .needs("train.ema.decay, such as 0.999"),

      {"adapter.targets",
       texts(),
       "none",
       Recompile,
       "globs of matrices that get a low-rank adapter while everything else is frozen: [adapters.md](adapters.md)",
       {"target_modules", "lora_target_modules", "lora.targets", "peft.target_modules"}},
      {"adapter.match", texts(), "none", Recompile, "another name of `adapter.targets`"},
      {"adapter.rank",
       integer(1, 1 << 16),
       "8",
       Recompile,
       "rank of the adapters",
       {"adapter.r", "lora_r", "lora_rank", "lora.r"}},
      {"adapter.alpha",
       number(kPositive),
       "8",
       Recompile,
       "the adapter's contribution is scaled by `alpha`/`rank`",
       {"lora_alpha", "adapter.lora_alpha"}},
      {"adapter.rank_stabilized",
       flag(),
       "false",
       Recompile,
       "scale by `alpha`/√`rank` instead",
       {"use_rslora", "adapter.use_rslora", "rslora"}},
      {"adapter.dropout",
       number(kBelowOne),
       "0",
       Recompile,
       "dropout of an adapter's input, in training",
       {"lora_dropout", "adapter.lora_dropout"}},
      {"adapter.train",
       texts(),
       "[]",
       Recompile,
       "globs of parameters that are trained beside the adapters",
       {"modules_to_save", "adapter.modules_to_save"}},
      {"adapter.base",
       choice({"f32", "bf16", "int8", "nf4", "int4"}),
       "\"f32\"",
       Recompile,
       "how frozen matrices are kept: as the file has them, rounded to bf16, in half the memory, to 8 bits and a scale "
       "for each output channel, in a quarter, or to 4 bits and a scale for each block, in an eighth",
       {"adapter.dtype", "adapter.base_dtype", "bnb_4bit_quant_type"}},
      {"adapter.block",
       integer(1, 1 << 16),
       "64",
       Recompile,
       "elements that share a scale in a base of 4 bits: 32, 64, 128 or 256",
       {"adapter.blocksize", "adapter.block_size", "adapter.group_size"}},
      {"adapter.nested",
       flag(),
       "false",
       Recompile,
       "with `base = \"nf4\"`: the scales are in 8 bits, with a scale for each 256 of them and their mean in f32",
       {"bnb_4bit_use_double_quant", "adapter.double_quant", "adapter.compress_statistics"}},

      {"offload.what",
       choice({"auto", "state", "activations", "none"}),
       "\"auto\"",
       Recompile,
       "on CUDA, what may be kept in page-locked memory of the host: `\"auto\"`: within a memory budget whatever makes "
       "the "
       "step cheapest; `\"state\"`: all of the optimizer's state and the averages, with a budget or without; "
       "`\"activations\"`: within a budget, values of the forward pass alone; `\"none\"`: nothing",
       {"offload", "offload.kind", "offload.mode", "optimizer.offload", "cpu_offload"}},
      {"offload.bytes_per_second",
       number({1e8, 1e13}),
       "5e10 on CUDA",
       Recompile,
       "bytes that the card copies from the host in a second, and to it at the same time: what plans weigh transfers "
       "by",
       {"offload.bandwidth", "offload.link"}},

      Key{"parallel.mode",
          choice({"none", "ddp", "grad_op", "full", "hybrid"}),
          "\"none\"",
          Recompile,
          "how several ranks train together: `\"ddp\"`: each has all of the model and its own batch; `\"grad_op\"`: a "
          "shard of gradients and optimizer state; `\"full\"`: of the parameters, too; `\"hybrid\"`: as `\"full\"` "
          "inside "
          "a node, and each node has all: [ranks.md](ranks.md)",
          {"ddp", "distributed", "parallel.strategy", "strategy"}}
          .whenResumed(Resumed::Ignored),
      Key{"parallel.ranks",
          integer(1, 1 << 16),
          "",
          Recompile,
          "the number of ranks of a sharded plan, which runs on no other number",
          {"world_size", "nproc", "parallel.world_size"}}
          .whenResumed(Resumed::Ignored),
      Key{"parallel.shard_within_node",
          integer(1, 1 << 16),
          "",
          Recompile,
          "with mode `\"hybrid\"`: the ranks of a node, which share the state; the plan runs on any number of nodes",
          {"sharding_group_size", "hsdp_shard_size", "zero_hpz_partition_size"}}
          .whenResumed(Resumed::Ignored),
      Key{"parallel.prefetch",
          integer(0, 1 << 10),
          "1",
          Recompile,
          "with sharded parameters: buckets that are gathered ahead of the one that computes",
          {"forward_prefetch", "limit_all_gathers"}}
          .whenResumed(Resumed::Ignored),
      {"parallel.average",
       choice({"exact", "ranks"}),
       "\"exact\"",
       Recompile,
       "what the gradient is the mean of: all that counts in the global batch, or, as in PyTorch, the ranks' means",
       {"gradient_average"}},
      {"parallel.reduce_dtype",
       choice({"f32", "bf16", "f16"}),
       "\"f32\"",
       Recompile,
       "the type of gradients on their way between ranks",
       {"grad_reduce_dtype", "communication_data_type"}},
      Key{"parallel.bucket_bytes",
          integer(1, int64_t(1) << 40),
          "26214400",
          Recompile,
          "bytes of gradients that are summed over the ranks together",
          {"bucket_cap_mb", "reduce_bucket_size"}}
          .whenResumed(Resumed::Ignored),
      {"parallel.batch_norm",
       choice({"local", "sync"}),
       "\"local\"",
       Recompile,
       "BatchNormalization by the batch of each rank, or, as torch.nn.SyncBatchNorm, by those of all ranks",
       {"sync_batchnorm", "sync_bn", "sync_batch_norm"}},
      Key{"parallel.accumulators",
          choice({"auto", "whole", "shards"}),
          "\"auto\"",
          Recompile,
          "with sharded state and `train.accumulate`: what each rank holds of a window's gradients: `\"whole\"`: all "
          "of them, summed over the ranks once; `\"shards\"`: a shard, summed at each micro-batch; `\"auto\"`: all of "
          "them, but shards where a memory budget is met by these alone, or sooner: [ranks.md](ranks.md#accumulators)",
          {"no_sync", "contiguous_gradients", "partition_grads"}}
          .whenResumed(Resumed::Ignored),
      Key{"parallel.least_ranks",
          integer(1, int64_t(1) << 16),
          "1",
          Recompile,
          "with `train.virtual_ranks`: the fewest ranks that the plan has memory for",
          {"min_ranks"}}
          .whenResumed(Resumed::Ignored),

      Key{"checkpoint.every_minutes", number(kNotNegative), "15", RunTime,
          "minutes between checkpoints; 0: not by the clock"}
          .at({"checkpoints.every_minutes"}),
      Key{"checkpoint.keep", integer(0, int64_t(1) << 31), "3", RunTime, "number of newest checkpoints to keep; 0: all"}
          .at({"checkpoints.keep"}),
      Key{"checkpoint.keep_best", flag(), "true", RunTime, "keep the best checkpoint, by `evaluate.best`, as well"}.at(
          {"checkpoints.keep_best"}),

      Key{"checkpoint.staging_bytes",
          numberOr(kNotNegative, {"all"}),
          "0",
          RunTime,
          "memory for a copy of the state, which is written while training goes on; 0: training waits; `\"all\"`: for "
          "all "
          "of it",
          {"async_checkpoint", "save_async"}}
          .at({"checkpoints.staging_bytes"}),

      Key{"data.map", textTable(), "", RunTime, "the column of an input, where their names differ"}.at({"data.map"}),
      {"data.batch_axis", integerTable(-1), "", Recompile, "the sample axis of an input; −1: none"},
      {"data.constant", texts(), "[]", RunTime,
       "inputs whose column has the input's own shape and is the same in every batch: "
       "[data.md](data.md#samples-and-constants)"},
      {"data.negative_indices", flag(), "false", RunTime,
       "indices of a weight's rows below 0 count from its end, as ONNX has them, instead of being an error"},
      {"data.tokens", choice({"uint16", "uint32", "bytes", "chars"}), "", RunTime,
       "how a file of tokens or text is read"},
      {"data.windows", choice({"consecutive", "random"}), "\"consecutive\"", RunTime,
       "which windows of a token file are samples"},
      {"data.document_end", integer(0, 4294967295), "none", RunTime,
       "the token that ends a document; adds the columns `document`, `position`, `document_mask`: "
       "[transforms.md](transforms.md#documents)"},
      {"data.format", choice({"cifar10", "cifar100"}), "", RunTime,
       "the format of binary data that does not say its own"},
      {"data.columns", columnRules("table of lists of names"), "", RunTime,
       "columns joined from others, one vector a sample: `{ x = [\"age\", \"income\"] }`"},
      {"data.categories", columnRules("table of columns: `\"sorted\"` or a list of strings"), "", RunTime,
       "texts that become integers: the place in the list, or in the sorted texts of the training data: "
       "[data.md](data.md#tables)"},
      {"data.missing", columnRules("table of columns: number, `\"mean\"` or string; `\"*\"` is any column"), "",
       RunTime, "the replacement of missing values; the mean is that of the training data: [data.md](data.md#tables)"},
      {"data.cast", choice({"f32"}), "none", RunTime,
       "let f64, f16, bf16 and integers become f32 where an input is f32: [data.md](data.md#tables)"},
      {"data.lengths", text(), "none", RunTime,
       "the column that tells how long each sample is, by a number or a mask: [shapes.md](shapes.md#data)"},
      {"data.pad", columnRules("table of columns: number"), "0; the ignored target", RunTime,
       "what follows a sample that is smaller than its shape: [shapes.md](shapes.md#data)"},
      {"data.too_long", choice({"refuse", "cut"}), "\"refuse\"", RunTime,
       "what to do with a sample that is larger than every shape"},
      {"data.last", choice({"drop", "pad", "exact"}), "\"drop\"", RunTime,
       "the samples at the end of an epoch that fill no batch: leave them out, pad their batch with samples that weigh "
       "nothing, or train them in a shape that they fill"},
      {"data.eval_split", number({0, 1, true, true}), "", RunTime,
       "share of the data, at its end, that is kept for evaluation"},
      {"data.max_bad", integer(0, 1000000000), "0", RunTime,
       "damaged samples to skip and count before one ends the run"},
      Key{"data.workers", integer(0, 1024), "as many as processors where samples are decoded or transformed, else 0",
          RunTime, "threads that read batches ahead; 0: training reads them itself"}
          .whenResumed(Resumed::Ignored),
      {"data.limit", integer(1), "", RunTime, "number of samples to use of each data set, spread evenly over it"},
      {"data.sampler", choice({"shuffle", "balanced", "weighted"}), "\"shuffle\"", RunTime,
       "`\"balanced\"`: draws every class equally often; `\"weighted\"`: as `data.weights` says; both draw with "
       "replacement"},
      Key{"data.cache", text(), "none", RunTime,
          "folder that keeps decoded images, with the transforms before the first random one: "
          "[data.md](data.md#the-cache)"}
          .whenResumed(Resumed::Ignored),
      Key{"data.shuffle_window",
          integer(1),
          "all samples",
          RunTime,
          "shuffle files, then samples within runs of so many: reading stays in few files at a time",
          {"shuffle_buffer", "buffer_size", "shuffle_buffer_size"}}
          .whenResumed(Resumed::Refused),
      {"data.weights", text(), "`label` if balanced, `weight` if weighted", RunTime,
       "the column of classes or weights that `data.sampler` reads"},
      {"data.transform", transforms(), "[]", RunTime,
       "transforms of the columns, in order: [transforms.md](transforms.md)"},

      {"compiler.fuse", flag(), "true", Recompile, "false: one kernel per op, for debugging"},
      {"compiler.chunk_bytes", integer(0, int64_t(1) << 50), "64 MiB on a CPU, 512 MiB on CUDA", Recompile,
       "compute a larger product with independent rows (logits) in chunks of about so many bytes, and never store it; "
       "0: no chunks"},
      {"compiler.attention", choice({"auto", "fused", "unfused"}), "\"auto\"", Recompile,
       "`\"auto\"`: fused on a CPU, and on a card except in f32; `\"fused\"`: a near-miss is an error; "
       "`\"unfused\"`: scores are stored"},
      {"compiler.attention_calls", choice({"auto", "none", "forward", "both"}), "\"auto\"", Recompile,
       "on CUDA, the parts of attention that cuDNN computes: `\"none\"`: generated kernels; `\"forward\"`: attention; "
       "`\"both\"`: its gradient, too, which stores the scores' gradients; `\"auto\"`: both on architectures where "
       "that was measured to be faster, within the memory budget"},
      {"compiler.overlap", flag(), "true", Recompile,
       "run updates of parameters concurrently with the products that follow; on CUDA, let small kernels share "
       "launches"},
      {"compiler.fuse_updates", flag(), "true", Recompile,
       "compute gradients of matrices row by row where they are updated, and never store them"},
      {"compiler.slice_bytes", integer(0, int64_t(1) << 50), "32 MiB", Recompile,
       "on CUDA, a larger gradient of a matrix is computed in slices of rows, at most so many bytes each, by the "
       "instruction that updates the matrix, and never stored whole; 0: all are stored"},
      {"compiler.epilogues", choice({"auto", "exact", "bias", "gelu", "all", "none"}), "\"auto\"", Recompile,
       "on CUDA, the epilogues that calls of products and convolutions compute: `\"exact\"`: biases that keep their "
       "bits; `\"bias\"`: all biases; `\"gelu\"`: also gelu and its gradient; `\"all\"`: also "
       "sums for biases' gradients; each in the library's bits; `\"auto\"`: `\"exact\"`, and for 16-bit products "
       "what was measured to be faster on the architecture"},
      {"compiler.convolutions", choice({"auto", "kernels"}), "\"auto\"", Recompile,
       "on CUDA, the implementation of convolutions: `\"auto\"`: cuDNN, except those that it has no engine for; "
       "`\"kernels\"`: "
       "generated kernels, which are far slower"},
      {"compiler.cubins", choice({"auto", "none"}), "\"auto\"", Recompile,
       "on CUDA: `\"auto\"`: where `tcc` finds ptxas, the plan holds machine code beside PTX; `\"none\"`: PTX alone"},
      {"compiler.recompute_time", number({0, 1}), "0.015 on a CPU, 0 on CUDA", Recompile,
       "without a memory budget: recompute values instead of keeping them while the step's planned time grows by at "
       "most "
       "this share; 0: nothing is executed twice, as over several ranks unless the recipe has this key"},
      {"compiler.winograd", flag(), "true", Recompile,
       "compute 3×3 convolutions with fewer multiplications where that is cheaper"},
      {"compiler.pointwise_convolutions", flag(), "true", Recompile,
       "compute 1×1 convolutions as matrix products where that is faster"},
  };
}

/// The place of a run-time key that names none.
std::string usualPlace(const std::string &name) {
  const std::string section = name.substr(0, name.find('.')), rest = name.substr(section.size() + 1);
  if (section == "data")
    return "data.settings." + rest;
  if (section == "optimizer" || section == "schedule")
    return section + ".numbers." + rest;
  return "settings." + name;
}

/// True for sections whose keys change no result.
bool changesNoResult(const std::string &name) {
  return name.starts_with("checkpoint.") || name.starts_with("compiler.") || name.starts_with("evaluate.");
}

std::vector<Key> completeKeys() {
  std::vector<Key> keys = makeKeys();
  for (Key &key : keys) {
    if (key.places.empty() && key.change == Change::RunTime)
      key.places = {usualPlace(key.name)};
    if (changesNoResult(key.name))
      key.resumed = Resumed::Ignored;
  }
  return keys;
}
} // namespace

std::span<const Key> allKeys() {
  static const std::vector<Key> keys = completeKeys();
  return keys;
}

const Key &keyOf(std::string_view name) {
  const Key *key = findKey(name);
  assert(key && "the table of keys lacks this name");
  return *key;
}

double Key::presetNumber() const {
  const auto parsed = parseToml("v = " + preset);
  const toml::node *node = parsed ? parsed->get("v") : nullptr;
  assert(node && (node->is_number() || node->is_boolean()) && "the default is no number");
  return node->is_boolean() ? *node->value<bool>() : *node->value<double>();
}

const Key *findKey(std::string_view name) {
  for (const Key &key : allKeys())
    if (key.name == name)
      return &key;
  return nullptr;
}

const Key *findTableOf(std::string_view name) {
  for (const Key &key : allKeys())
    if (name.size() > key.name.size() && name.starts_with(key.name) && name[key.name.size()] == '.')
      return &key;
  return nullptr;
}

bool isSection(std::string_view name) {
  return std::any_of(allKeys().begin(), allKeys().end(), [&](const Key &key) {
    return key.name.size() > name.size() && key.name.starts_with(name) && key.name[name.size()] == '.';
  });
}

} // namespace tcc::recipe

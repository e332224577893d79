//===- Keys.cpp - the table of recipe keys -------------------------------===//
#include "support/recipe/Keys.h"
#include "support/NearestName.h"
#include "support/recipe/Kinds.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace tcc::recipe {

namespace {
std::vector<Key> makeKeys() {
  using enum Change;
  const std::string byKind = "by the kind";
  return {
      {"model.dims", integerTable(1), "", Recompile, "values of symbolic dimensions"},
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
      {"evaluate.dims", integerTable(1), "", Later, "values of symbolic dimensions in evaluation"},
      {"predict.dims", integerTable(1), "", Later, "values of symbolic dimensions in prediction"},
      {"evaluate.metrics",
       texts(),
       "the loss's",
       Recompile,
       "what evaluations compute besides the loss: names of metrics, or of graph outputs, which are averaged",
       {"metrics", "eval_metrics"}},
      {"evaluate.best",
       text(),
       "the loss",
       RunTime,
       "the metric of the best checkpoint; `\"min:NAME\"`, `\"max:NAME\"` for a graph output",
       {"metric_for_best_model", "monitor"}},
      {"evaluate.stop.metric", text(), "that of `evaluate.best`", RunTime, "the metric that ends training early"},
      {"evaluate.stop.patience",
       integer(0, int64_t(1) << 53),
       "0",
       RunTime,
       "evaluations without a better value until training ends; 0: it does not",
       {"early_stopping_patience", "early_stopping"}},
      {"evaluate.stop.min_change",
       number(kNotNegative),
       "0",
       RunTime,
       "the least change that counts as better",
       {"min_delta", "early_stopping_threshold"}},

      {"loss.output", text(), "the only scalar floating-point output", Recompile,
       "a graph output that is the loss; excludes `loss.kind`"},
      {"loss.kind", choice(lossKinds()), "", Recompile, "the loss to compute from a graph output"},
      {"loss.of", texts(), "the only floating-point output", Recompile,
       "a graph output, a value inside the graph or its node; a list for the kinds that compare several"},
      {"loss.target", text(), "", Recompile, "new or existing graph input that the prediction is compared with"},
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
       "what the prediction holds; logits go through a log-softmax (`ctc`) or a sigmoid (`dice`) first",
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

      {"optimizer.kind",
       choice(optimizerKindNames()),
       "\"adamw\"",
       Recompile,
       "the optimizer",
       {"optimizer.type", "optimizer.name"}},
      {"optimizer.lr", number(kNotNegative), byKind, RunTime, "learning rate", {"learning_rate"}},
      {"optimizer.betas",
       numbers(kBelowOne, 2),
       byKind,
       RunTime,
       "decay rates of the moments",
       {"beta1", "beta2", "adam_beta1", "adam_beta2"}},
      {"optimizer.eps", number(kNotNegative), byKind, RunTime, "added to a denominator", {"epsilon", "adam_epsilon"}},
      {"optimizer.weight_decay",
       number(kNotNegative),
       byKind,
       RunTime,
       "weight decay; `trun` changes it in a plan that decays",
       {"wd", "l2"}},
      {"optimizer.momentum", number(kNotNegative), byKind, RunTime,
       "momentum; `trun` changes it in a plan that has momentum"},
      {"optimizer.dampening", number(), byKind, RunTime,
       "dampening of `sgd`; `trun` changes it in a plan that dampens"},
      {"optimizer.nesterov", flag(), "false; true for `muon`", Recompile, "Nesterov's momentum"},
      {"optimizer.alpha", number(kNotNegative), byKind, RunTime, "decay rate of `rmsprop`"},
      {"optimizer.centered", flag(), "false", Recompile, "`rmsprop` subtracts the mean gradient"},
      {"optimizer.lr_decay", number(kNotNegative), byKind, RunTime, "of `adagrad`"},
      {"optimizer.initial_accumulator_value", number(kNotNegative), byKind, Recompile, "of `adagrad`"},
      {"optimizer.amsgrad", flag(), "false", Recompile, "of `adam` and `adamw`"},
      {"optimizer.maximize", flag(), "false", Recompile, "ascend instead of descend"},
      {"optimizer.ns_steps", integer(0, 99), byKind, Recompile, "Newton-Schulz iterations of `muon`"},
      {"optimizer.ns_coefficients", numbers(kAny, 3), byKind, Recompile, "Newton-Schulz coefficients of `muon`"},
      {"optimizer.adjust_lr_fn", choice({"original", "match_rms_adamw", "spectral_unclamped"}), "\"original\"",
       Recompile, "how `muon` scales the rate by the matrix's shape"},
      {"optimizer.moments",
       choice({"f32", "bf16"}),
       "\"f32\"",
       Recompile,
       "the type that optimizer state is stored in; bf16 is rounded at random: "
       "[mixed-precision.md](mixed-precision.md#moments-in-bf16)",
       {"optim_bits", "state_dtype", "optimizer.state_dtype"}},
      {"optimizer.decay_exempt", texts(), "[]", Recompile, "globs of parameters without weight decay"},
      {"optimizer.group", other("tables `[[optimizer.group]]`"), "", Recompile,
       "`match` globs, `lr_scale`, `weight_decay`; the first that matches decides"},
      {"optimizer.layer_decay", other("`{ pattern = \"layers.{}.\", rate, before = \"off\" }`"), "", Recompile,
       "rates that shrink towards the first layer"},

      {"schedule.kind",
       choice(scheduleKinds()),
       "\"constant\"",
       RunTime,
       "the learning rate as a function of the update",
       {"lr_scheduler", "lr_scheduler_type", "schedule.type", "schedule.name"}},
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
      {"schedule.per", choice({"step", "epoch"}), "\"step\"", RunTime, "the unit of all counts of the schedule"},
      {"schedule.warmup_from", choice({"first", "zero"}), "\"first\"", RunTime,
       "the factor of the first update: 1/`warmup_steps`, or 0"},
      {"schedule.floor", choice({"rescale", "clamp"}), "\"rescale\"", RunTime,
       "how `polynomial` reaches `min_lr_scale`"},
      {"schedule.step_size", integer(1, int64_t(1) << 53), "", RunTime, "of `step`"},
      {"schedule.milestones", integers(0), "", RunTime, "of `multi_step`"},
      {"schedule.gamma", number(kNotNegative), "0.1 for `step`, `multi_step`", RunTime,
       "of `step`, `multi_step`, `exponential`"},
      {"schedule.power", number(kNotNegative), "1", RunTime, "of `polynomial`"},
      {"schedule.pct_start", number(kUnit), "0.3", RunTime, "share of `one_cycle` in which the rate rises"},
      {"schedule.div_factor", number(kPositive), "25", RunTime, "`one_cycle` starts at `lr` ÷ this"},
      {"schedule.final_div_factor", number(kPositive), "1e4", RunTime, "`one_cycle` ends at its start ÷ this"},
      {"schedule.base_momentum", number(kBelowOne), "0.85", RunTime, "the least momentum of `one_cycle`"},
      {"schedule.max_momentum", number(kBelowOne), "0.95", RunTime, "the greatest momentum of `one_cycle`"},
      {"schedule.cycle_momentum", flag(), "true", Recompile, "whether `one_cycle` cycles momentum"},

      {"phase", other("tables `[[phase]]`"), "[]", Recompile,
       "alternating optimizers over one state: [phases.md](phases.md)"},

      {"train.accumulate",
       integer(1, int64_t(1) << 31),
       "1",
       Recompile,
       "micro-batches of an update",
       {"gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches", "accumulation_steps"}},
      {"train.virtual_ranks",
       integer(1, int64_t(1) << 16),
       "none",
       Recompile,
       "batches of a global batch, whatever the number of ranks, with the same bits: "
       "[ranks.md](ranks.md#virtual-ranks)",
       {"virtual_workers", "virtual_nodes"}},
      {"train.clip_norm",
       number(kPositive),
       "none",
       RunTime,
       "largest global gradient norm; `trun` changes it in a plan that clips",
       {"max_grad_norm", "gradient_clip_val", "grad_clip", "clip_grad_norm", "max_norm"}},
      {"train.clip_value", number(kPositive), "none", Recompile, "largest gradient of an element"},
      {"train.seed", integer(0), "0", RunTime, "seed of the sample order and of random numbers"},
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
      {"train.loss_scale.init_scale",
       number({0, 1e30, true}),
       "65536",
       RunTime,
       "the first factor",
       {"initial_scale", "initial_loss_scale"}},
      {"train.loss_scale.growth_factor", number({1, 65536, true}), "2", RunTime,
       "multiplies the factor after `growth_interval` applied updates in a row"},
      {"train.loss_scale.backoff_factor", number({0, 1, true, true}), "0.5", RunTime,
       "multiplies the factor after a gradient that is not finite"},
      {"train.loss_scale.growth_interval",
       integer(1, int64_t(1) << 53),
       "2000",
       RunTime,
       "applied updates in a row until the factor grows",
       {"loss_scale_window", "scale_window"}},
      {"train.ema.decay",
       number(kBelowOne),
       "none",
       RunTime,
       "keep an average of the parameters: e ← decay·e + (1 − decay)·w after each update",
       {"ema_decay", "model_ema_decay", "ema"}},
      {"train.ema.every", integer(1, int64_t(1) << 53), "1", RunTime, "updates between averages"},
      {"train.ema.warmup", integer(0, int64_t(1) << 53), "0", RunTime,
       "the n-th average has the decay min(`decay`, (1 + n)/(`warmup` + n))"},
      {"train.ema.on", choice({"host", "device"}), "\"host\"", RunTime,
       "`\"device\"`: the update's kernels average, in the memory of a plan compiled with this value"},

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
       "what an adapter adds is scaled by `alpha`/`rank`",
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
       choice({"f32", "bf16", "int8"}),
       "\"f32\"",
       Recompile,
       "how frozen matrices are kept: as the file has them, rounded to bf16, in half the memory, or to 8 bits and a "
       "scale "
       "for each output channel, in a quarter",
       {"adapter.dtype", "adapter.base_dtype"}},

      {"parallel.mode",
       choice({"none", "ddp", "grad_op", "full", "hybrid"}),
       "\"none\"",
       Recompile,
       "how several ranks train together: `\"ddp\"`: each has all of the model and its own batch; `\"grad_op\"`: a "
       "shard of gradients and optimizer state; `\"full\"`: of the parameters, too; `\"hybrid\"`: as `\"full\"` inside "
       "a node, and each node has all: [ranks.md](ranks.md)",
       {"ddp", "distributed", "parallel.strategy", "strategy"}},
      {"parallel.ranks",
       integer(1, 1 << 16),
       "",
       Recompile,
       "the number of ranks of a sharded plan, which runs on no other number",
       {"world_size", "nproc", "parallel.world_size"}},
      {"parallel.shard_within_node",
       integer(1, 1 << 16),
       "",
       Recompile,
       "with mode `\"hybrid\"`: the ranks of a node, which share the state; the plan runs on any number of nodes",
       {"sharding_group_size", "hsdp_shard_size", "zero_hpz_partition_size"}},
      {"parallel.prefetch",
       integer(0, 1 << 10),
       "1",
       Recompile,
       "with sharded parameters: buckets that are gathered ahead of the one that computes",
       {"forward_prefetch", "limit_all_gathers"}},
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
      {"parallel.bucket_bytes",
       integer(1, int64_t(1) << 40),
       "26214400",
       Recompile,
       "bytes of gradients that are summed over the ranks together",
       {"bucket_cap_mb", "reduce_bucket_size"}},
      {"parallel.batch_norm",
       choice({"local", "sync"}),
       "\"local\"",
       Recompile,
       "BatchNormalization by the batch of each rank, or, as torch.nn.SyncBatchNorm, by those of all ranks",
       {"sync_batchnorm", "sync_bn", "sync_batch_norm"}},
      {"parallel.least_ranks",
       integer(1, int64_t(1) << 16),
       "1",
       Recompile,
       "with `train.virtual_ranks`: the fewest ranks that the plan has memory for",
       {"min_ranks"}},

      {"checkpoint.every_minutes", number(kNotNegative), "15", RunTime,
       "minutes between checkpoints; 0: not by the clock"},
      {"checkpoint.keep", integer(0, int64_t(1) << 31), "3", RunTime, "number of newest checkpoints to keep; 0: all"},
      {"checkpoint.keep_best", flag(), "true", RunTime, "keep the best checkpoint, by `evaluate.best`, as well"},

      {"checkpoint.staging_bytes",
       numberOr(kNotNegative, {"all"}),
       "0",
       RunTime,
       "memory for a copy of the state, which is written while training goes on; 0: training waits; `\"all\"`: for all "
       "of it",
       {"async_checkpoint", "save_async"}},

      {"data.map", textTable(), "", RunTime, "the column of an input, where their names differ"},
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
      {"data.columns", other("table of lists of names"), "", RunTime,
       "columns made of others that stand side by side, one vector a sample: `{ x = [\"age\", \"income\"] }`"},
      {"data.categories", other("table of columns: `\"sorted\"` or a list of strings"), "", RunTime,
       "texts that become integers: the place in the list, or in the sorted texts of the training data: "
       "[data.md](data.md#tables)"},
      {"data.missing", other("table of columns: number, `\"mean\"` or string; `\"*\"` is any column"), "", RunTime,
       "what stands for missing values; the mean is that of the training data: [data.md](data.md#tables)"},
      {"data.cast", choice({"f32"}), "none", RunTime,
       "let f64, f16, bf16 and integers become f32 where an input is f32: [data.md](data.md#tables)"},
      {"data.last", choice({"drop", "pad"}), "\"drop\"", RunTime, "what to do with a shorter last batch of an epoch"},
      {"data.eval_split", number({0, 1, true, true}), "", RunTime,
       "share of the data, at its end, that is kept for evaluation"},
      {"data.max_bad", integer(0, 1000000000), "0", RunTime,
       "damaged samples to skip and count before one ends the run"},
      {"data.workers", integer(0, 1024), "as many as processors where samples are decoded or transformed, else 0",
       RunTime, "threads that read batches ahead; 0: training reads them itself"},
      {"data.limit", integer(1), "", RunTime, "number of samples to use of each data set, spread evenly over it"},
      {"data.sampler", choice({"shuffle", "balanced", "weighted"}), "\"shuffle\"", RunTime,
       "`\"balanced\"`: draws every class equally often; `\"weighted\"`: as `data.weights` says; both draw with "
       "replacement"},
      {"data.cache", text(), "none", RunTime,
       "folder that keeps decoded images, with the transforms before the first random one: "
       "[data.md](data.md#the-cache)"},
      {"data.shuffle_window",
       integer(1),
       "all samples",
       RunTime,
       "shuffle files, then samples within runs of so many: reading stays in few files at a time",
       {"shuffle_buffer", "buffer_size", "shuffle_buffer_size"}},
      {"data.weights", text(), "`label` if balanced, `weight` if weighted", RunTime,
       "the column of classes or weights that `data.sampler` reads"},
      {"data.transform", other("tables `[[data.transform]]`"), "[]", RunTime,
       "what is done to the columns, in order: [transforms.md](transforms.md)"},

      {"compiler.fuse", flag(), "true", Recompile, "false: one kernel per op, for debugging"},
      {"compiler.chunk_bytes", integer(0, int64_t(1) << 50), "67108864", Recompile,
       "compute a larger product with independent rows (logits) in chunks of about so many bytes, and never store it; "
       "0: no chunks. CUDA plans: 536870912 by default"},
      {"compiler.attention", choice({"auto", "fused", "unfused"}), "\"auto\"", Recompile,
       "`\"auto\"`: fused on a CPU, and on a card except in f32; `\"fused\"`: a near-miss is an error; "
       "`\"unfused\"`: scores are stored"},
      {"compiler.attention_calls", choice({"none", "forward", "both"}), "\"none\"", Recompile,
       "on CUDA, what cuDNN computes of attention: `\"none\"`: generated kernels; `\"forward\"`: attention; "
       "`\"both\"`: its "
       "gradient, too, which stores the scores' gradients"},
      {"compiler.overlap", flag(), "true", Recompile,
       "run updates of parameters concurrently with the products that follow; on CUDA, let small kernels share "
       "launches"},
      {"compiler.fuse_updates", flag(), "true", Recompile,
       "compute gradients of matrices row by row where they are updated, and never store them"},
      {"compiler.slice_bytes", integer(0, int64_t(1) << 50), "33554432", Recompile,
       "on CUDA, a larger gradient of a matrix is computed in slices of rows, at most so many bytes each, by the "
       "instruction that updates the matrix, and never stored whole; 0: all are stored"},
      {"compiler.epilogues", choice({"exact", "bias", "gelu", "all", "none"}), "\"exact\"", Recompile,
       "on CUDA, what calls of products and convolutions compute beside them: `\"exact\"`: biases that keep their "
       "bits; `\"bias\"`: all biases; `\"gelu\"`: also gelu, ReLU of convolutions and gelu's gradient; `\"all\"`: also "
       "sums for biases' gradients; each in the library's bits"},
      {"compiler.convolutions", choice({"auto", "kernels"}), "\"auto\"", Recompile,
       "on CUDA, what computes convolutions: `\"auto\"`: cuDNN, except those that it has no engine for; `\"kernels\"`: "
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
} // namespace

std::span<const Key> allKeys() {
  static const std::vector<Key> keys = makeKeys();
  return keys;
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

std::string hintFor(std::string_view name) {
  const size_t dot = name.rfind('.');
  const std::string_view table = dot == name.npos ? "" : name.substr(0, dot);
  const std::string_view given = name.substr(dot == name.npos ? 0 : dot + 1);
  for (const char *batch : {"batch", "batch_size", "train_batch_size", "per_device_train_batch_size", "micro_batch_size"})
    if (given == batch)
      return "a batch is a dimension of the graph: give tcc --batch N, or model.dims = { batch = N }";
  std::string best;
  size_t bestDistance = ~size_t(0);
  auto offer = [&](const std::string &key, std::optional<size_t> distance, size_t penalty) {
    if (distance && *distance + penalty < bestDistance) {
      bestDistance = *distance + penalty;
      best = key;
    }
  };
  std::vector<std::string> tables, inTable;
  for (const Key &key : allKeys()) {
    const size_t keyDot = key.name.find('.');
    const std::string_view keyTable = std::string_view(key.name).substr(0, keyDot);
    const std::string_view last = std::string_view(key.name).substr(keyDot + 1);
    offer(key.name, table == keyTable ? nameDistance(given, last) : nameDistance(name, key.name), 0);
    offer(key.name, nameDistance(given, last), 2); // without its table, or in the wrong one
    for (const std::string &other : key.elsewhere)
      offer(key.name, nameDistance(other.find('.') == other.npos ? given : name, other), 1);
    if (key.change == Change::Later)
      continue;
    if (tables.empty() || tables.back() != keyTable)
      tables.emplace_back(keyTable);
    if (table == keyTable)
      inTable.emplace_back(last);
  }
  if (std::string near = table.empty() ? nearestName(name, tables) : ""; !near.empty())
    return fmt::format("the nearest known one is [{}]", near);
  if (!best.empty())
    return fmt::format("the nearest known one is {}", best);
  if (!inTable.empty())
    return fmt::format("[{}] takes {}", table, fmt::join(inTable, ", "));
  std::sort(tables.begin(), tables.end());
  tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
  return fmt::format("a recipe has the tables {}", fmt::join(tables, ", "));
}

Expected<toml::table> parseSetting(const std::string &setting) {
  size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    return Status(fmt::format("--set {}: expected KEY=VALUE, such as optimizer.lr=3e-4", setting), kExitUsage);
  std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
  if (Status status = checkTomlText(key + " = " + value, "--set " + key); !status.ok())
    return status;
  Expected<toml::table> parsed = parseToml(key + " = " + value);
  if (parsed)
    return parsed;
  value.erase(0, value.find_first_not_of(" \t"));
  value.erase(value.find_last_not_of(" \t") + 1);
  const bool bare = value.empty() || std::string_view("[{\"'").find(value[0]) == std::string_view::npos;
  if (bare) {
    std::string quoted;
    for (char c : value)
      quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    if (Expected<toml::table> asString = parseToml(key + " = \"" + quoted + "\""))
      return asString;
  }
  return error("--set {}: {}", setting, parsed.message());
}

std::string keysTable() {
  std::string text = "| key | values | default | `trun --set` | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Key &key : allKeys()) {
    if (key.change == Change::Later)
      continue;
    // A preset that is a TOML value is code.
    bool literal = !key.preset.empty() && parseToml("v = " + key.preset).ok();
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, describe(key.values),
                        literal ? "`" + key.preset + "`" : key.preset, key.change == Change::Recompile ? "" : "yes",
                        key.meaning);
  }
  return text;
}

} // namespace tcc::recipe

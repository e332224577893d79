//===- Recipe.h - the recipe as a struct ------------------------*- C++ -*-===//
//
// A recipe is a TOML file plus `--set KEY=VALUE`. Every key is optional; an unknown one is an error that names the
// nearest known one, with file, line and column. The table of keys is support/recipe/Keys.h. Settings that the plan
// keeps for the run are in `training` and `data`, the plan's own messages; the structs hold the settings that only the
// compiler reads.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_RECIPE_RECIPE_H
#define TCC_COMPILER_RECIPE_RECIPE_H

#include "runtime/plan/SettingFields.h"
#include "support/Status.h"
#include "support/recipe/Kinds.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tcc {

/// The settings of a built-in loss. An empty optional means the default of the loss kind (docs/guide/recipe.md).
struct LossSettings {
  std::string output;            ///< a scalar graph output; or:
  std::string kind;              ///< one of lossKindNames(); empty: none given
  std::vector<std::string> of;   ///< graph outputs or values inside the graph; empty: the only floating-point output
  std::string target;            ///< new or existing graph input
  std::string sampleWeight;      ///< new or existing graph input with a weight for each sample; empty: weight 1
  std::optional<int64_t> classAxis;
  bool shift = false;
  int64_t ignoreIndex = -100;
  double labelSmoothing = 0;
  std::vector<double> weight, posWeight;
  std::string reduction = "mean"; ///< mean or sum; kl_div also batchmean
  double delta = 1, beta = 1;
  bool logTarget = false;
  std::optional<double> margin, eps;
  double p = 2;              ///< triplet: order of the norm
  bool swap = false;         ///< triplet
  bool full = false;         ///< poisson_nll, gaussian_nll: with the constant terms
  bool logInput = true;      ///< poisson_nll: the prediction is a logarithm
  double alpha = 0.25;       ///< focal: weight of positive examples; negative: none
  double gamma = 2;          ///< focal: exponent
  double smooth = 1;         ///< dice: added to both sides of the ratio
  std::string input; ///< ctc, dice: whether the prediction is logits, log_probs or probs; empty: the kind's default
  int64_t timeAxis = 0;      ///< ctc
  int64_t blank = 0;         ///< ctc: a class
  bool zeroInfinity = false; ///< ctc
  std::string inputLengths, targetLengths; ///< ctc: graph inputs, new or existing; empty: see docs/guide/recipe.md
  std::optional<int64_t> maxTargetLength;  ///< ctc: extent of a new target
  /// data.last = "pad", and every loss is a built-in one: a slot of a batch without a sample weighs nothing.
  bool padsBatches = false;
  bool operator==(const LossSettings &) const = default;
};

struct OptimizerGroupSettings {
  std::vector<std::string> match; ///< globs
  double lrScale = 1;
  std::optional<double> weightDecay;
  std::string where;              ///< "recipe.toml:12:1", for messages
  bool operator==(const OptimizerGroupSettings &) const = default;
};

/// Rates that shrink from the last layer to the first.
struct LayerDecaySettings {
  std::string pattern;      ///< "layers.{}.": the place of the layer's number in a name
  double rate = 1;          ///< layer i of n has lr_scale × rate^(n − 1 − i)
  bool beforeFirst = false; ///< parameters read before the first layer have rate^n
  bool operator==(const LayerDecaySettings &) const = default;
};

/// Settings of the update's kernels that plan.Optimizer does not have.
struct OptimizerSettings {
  std::set<std::string> flags;       ///< of centered, amsgrad, maximize: those that are on
  std::string adjustLr = "original"; ///< optimizer.adjust_lr_fn
  std::string moments = "f32";       ///< storage type of optimizer state: f32, bf16 or 8bit
  std::vector<std::string> momentsExempt; ///< globs of parameters whose state stays in f32 beside 8bit
  std::vector<std::string> decayExempt;
  std::vector<OptimizerGroupSettings> groups;
  std::optional<LayerDecaySettings> layerDecay;
  bool operator==(const OptimizerSettings &) const = default;
};

/// [[stage]]: a part of a run that trains some of the parameters.
struct StageSettings {
  uint64_t until = 0;                 ///< its last update; 0: the run's end
  std::vector<std::string> trainable; ///< globs
  double lrScale = 1;
  std::string where;                  ///< "recipe.toml:12:1", for messages
  bool operator==(const StageSettings &) const = default;
};

/// The fixed value of a graph input: numbers, or a tensor of a file.
struct FixedValue {
  std::vector<double> numbers;   ///< row-major; true and false are 1 and 0
  std::vector<int64_t> integers; ///< the same numbers without rounding, if all are integers or booleans; else empty
  std::vector<int64_t> shape;    ///< of the nested lists; empty: a single number
  std::string file, tensor;      ///< a safetensors file and one of its tensors (empty: the input's name)
  bool operator==(const FixedValue &) const = default;
};

/// Values of symbolic dimensions.
using DimValues = std::map<std::string, int64_t>;

/// A dimension whose value follows from another one's: `total` ÷ `by`, rounded down, and at least 1.
struct DimQuotient {
  int64_t total = 0;
  std::string by;
  bool operator==(const DimQuotient &) const = default;
};

struct ModelSettings {
  DimValues dims;
  std::map<std::string, DimQuotient> quotients; ///< of model.dims: batch = "4096/seq"
  std::vector<DimValues> buckets; ///< model.buckets, or the values of a list in model.dims; empty: one shape
  std::optional<std::vector<std::string>> trainable; ///< globs
  std::vector<std::string> frozen;                   ///< globs
  std::map<std::string, FixedValue> fix;             ///< model.fix, by graph input
  std::map<std::string, std::vector<int64_t>> shapes; ///< model.shapes, by graph input
  std::vector<std::string> stopGradient;             ///< globs of nodes and values
  /// model.batch_norm: "auto" (as exported; if the module was exported in train() mode, all nodes train), "as-exported"
  /// (each node keeps its mode), "train" (inference-mode nodes train, too).
  std::string batchNorm = "auto";
  bool syncBatchNorm = false; ///< parallel.batch_norm = "sync"
  /// model.dropout: every node drops with this probability; none ("auto", "as-exported"): as exported.
  std::optional<double> dropout;
  /// model.quantize: "fixed" (the scales of a quantised file stay), "observe" (they follow the values).
  std::string quantize = "fixed";
  bool tie = false;             ///< model.tie: tie weights again that an exporter copied
  std::string merged = "auto";  ///< model.merged: what to do with weights that an exporter merged: auto, split, keep
  bool operator==(const ModelSettings &) const = default;
};

struct TrainSettings {
  std::optional<double> clipValue;
  std::vector<std::string> outputs; ///< graph outputs that an update returns besides the loss
  std::string precision = "f32";
  std::string lossScaleKind =
      "auto"; ///< train.loss_scale.kind: auto (dynamic with f16, else none), dynamic, fixed, none
  /// True if the backward pass is scaled.
  bool scalesLoss() const {
    return lossScaleKind == "dynamic" || lossScaleKind == "fixed" || (lossScaleKind == "auto" && precision == "f16");
  }
  bool operator==(const TrainSettings &) const = default;
};

/// [adapter]: low-rank adapters of frozen matrices (Hu et al., arXiv:2106.09685).
struct AdapterSettings {
  std::vector<std::string> targets; ///< globs of the adapted matrices; empty: no adapter
  int64_t rank = 8;
  double alpha = 8;                 ///< the product with the input is scaled by alpha / rank, or
  bool rankStabilized = false;      ///< by alpha / √rank
  double dropout = 0;               ///< of the adapter's input, in training
  std::vector<std::string> train;   ///< globs of parameters that are trained beside the adapters
  /// How frozen matrices are kept: "f32" (as the file has them), "bf16", "int8", "nf4", "int4".
  std::string base = "f32";
  int64_t block = 64;  ///< elements that share a scale in a base of 4 bits
  bool nested = false; ///< the scales of "nf4" are quantised themselves
  bool operator==(const AdapterSettings &) const = default;
  /// The factor of the adapter's product before it is added.
  double scale() const { return alpha / (rankStabilized ? std::sqrt(double(rank)) : double(rank)); }
  bool inFourBits() const { return base == "nf4" || base == "int4"; }
};

/// [parallel]: how the ranks of a job share the work.
struct ParallelSettings {
  std::string mode = "none";       ///< none, ddp, grad_op, full, hybrid
  std::string average = "exact";   ///< exact: the global batch's mean; ranks: the mean of the ranks' means
  std::string reduceDtype = "f32"; ///< type in which gradients are sent between ranks: f32, bf16, f16
  int64_t bucketBytes = 25 << 20;  ///< of gradients that are summed together
  int64_t virtualRanks = 0;        ///< train.virtual_ranks: number shared by the job's ranks; 0: none
  int64_t leastRanks = 1;          ///< least number of virtualRanks' ranks; fewer lack memory for partial sums
  std::string batchNorm = "local"; ///< local: statistics of a rank's batch; sync: of all ranks' batches
  /// A window's sums on each rank: whole; shards, summed at each micro-batch; auto: whole, unless the memory budget is
  /// met by shards alone, or at less cost.
  std::string accumulators = "auto";
  /// With virtualRanks: the least number of ranks that can run the plan.
  int64_t fewestRanks() const { return leastRanks < shardRanks() ? shardRanks() : leastRanks; }
  /// Levels of the reduction tree that each rank sums over its own virtual ranks, if there are as few ranks as allowed.
  int64_t heldLevels() const {
    int64_t levels = 0;
    while (fewestRanks() << levels < virtualRanks)
      ++levels;
    return levels;
  }
  int64_t ranks = 0;           ///< number of ranks with grad_op or full; 0: the plan is for any number
  int64_t shardWithinNode = 0; ///< with hybrid: ranks of a node, which share the state
  int64_t prefetch = 1;        ///< buckets of parameters that are gathered ahead
  /// Ranks that state is sharded over; 0: not sharded.
  int64_t shardRanks() const { return replicates() ? shardWithinNode : ranks; }
  bool distributed() const { return mode != "none"; }
  bool sharded() const { return mode == "grad_op" || shardsParameters(); }
  bool shardsParameters() const { return mode == "full" || replicates(); }
  bool shardsAccumulators() const { return accumulators == "shards"; }
  /// True if the state is sharded and nothing needs a window's sums whole.
  bool mayShardAccumulators() const { return sharded() && average == "exact" && virtualRanks == 0; }
  /// True if each node has all of the state.
  bool replicates() const { return mode == "hybrid"; }
  bool operator==(const ParallelSettings &) const = default;
};

struct Recipe {
  std::string file;  ///< as given, for messages; empty: none
  std::string text;  ///< effective recipe as TOML, --set applied
  ModelSettings model;
  DimValues evaluateDims, predictDims; ///< evaluate.dims, predict.dims
  LossSettings loss;
  OptimizerSettings optimizer;
  TrainSettings train;
  AdapterSettings adapter;
  ParallelSettings parallel;
  std::string offload = "auto";                ///< offload.what
  std::optional<double> offloadBytesPerSecond; ///< unset: the target's
  /// Optimizer, schedule, accumulation, clipping, seed, evaluation, checkpoints; averages, which are kept if there is a
  /// decay; the loss scale, which counts if train.scalesLoss().
  plan::Training training;
  plan::DataSettings data; ///< data.*, except:
  std::map<std::string, int64_t> dataBatchAxis; ///< data.batch_axis.INPUT
  bool fuse = true;                                ///< compiler.fuse
  /// compiler.chunk_bytes: a larger product is computed some rows at a time; 0: none; unset: as the target chooses.
  std::optional<int64_t> chunkBytes;
  std::string attention = "auto";                  ///< compiler.attention
  std::string attentionCalls = "auto";             ///< compiler.attention_calls
  bool winograd = true;                            ///< compiler.winograd
  bool pointwiseConvolutions = true;               ///< compiler.pointwise_convolutions
  std::string convolutions = "auto";               ///< compiler.convolutions
  bool overlap = true;                             ///< compiler.overlap
  bool fuseUpdates = true;                         ///< compiler.fuse_updates
  std::optional<int64_t> sliceBytes;               ///< compiler.slice_bytes; unset: the target's
  std::string epilogues = "auto";                  ///< compiler.epilogues
  std::string cubins = "auto";                     ///< compiler.cubins
  std::optional<double> recomputeTime;             ///< compiler.recompute_time; unset: the target's
  /// [[loss]]: each a recipe of its own, with the members below; `loss` repeats the first one's. Empty: one loss.
  std::vector<Recipe> losses;
  std::string lossName;
  double lossScale = 1; ///< factor of this loss's quotient in the sum of all losses
  /// [[phase]]: each a recipe of its own, with the members below; empty: one optimizer.
  std::vector<Recipe> phases;
  std::vector<StageSettings> stages; ///< empty: one stage that trains all parameters
  std::optional<unsigned> stage;     ///< number of the stage, in a recipe that stageRecipes made
  std::string phase;                        ///< name of the phase or stage
  std::vector<std::string> phaseParameters; ///< globs
  int64_t phaseEvery = 1;
  /// The place of each given key ("recipe.toml:3:1" or "--set"), by dotted key.
  std::map<std::string, std::string> where;

  /// Every key has its default.
  Recipe();
  bool operator==(const Recipe &) const = default;

  bool averagesOnDevice() const { return training.ema().has_decay() && training.ema().on_device(); }

  /// "recipe.toml:3:1: " for a key that was given, else "".
  std::string at(const std::string &key) const;
};

/// Reads `path` (empty: none) and applies `settings` ("optimizer.lr=3e-4") on top.
/// Errors: unreadable file, TOML syntax, unknown key (nearest named), wrong type, value out of range, each with its
/// place.
Expected<Recipe> readRecipe(const std::string &path, const std::vector<std::string> &settings);

/// One recipe for each stage, like those of phases: `phase` and `phaseParameters` are the stage's name and globs.
std::vector<Recipe> stageRecipes(const Recipe &recipe);

/// Applies `settings` alone, with the checks of each key; rules between keys are not checked.
Status applySettings(Recipe &recipe, const std::vector<std::string> &settings);

/// True if `name` matches the glob (`*`, `?`, `[…]`, case-sensitive; fnmatch(3) semantics without special characters).
bool matchesGlob(const std::string &glob, const std::string &name);

} // namespace tcc

#endif // TCC_COMPILER_RECIPE_RECIPE_H

//===- RecipeStores.cpp - where a recipe's values go ----------------------===//
#include "compiler/recipe/RecipeStores.h"

#include <charconv>

namespace tcc::recipe {
namespace {

//===----------------------------------------------------------------------===//
// Members of Recipe
//===----------------------------------------------------------------------===//

/// Assigns the value, whose type was checked, to a member of type T.
template <typename T> Status assign(T &member, const toml::node &node) {
  member = T(*node.value<T>());
  return Status();
}
template <typename T> Status assign(std::vector<T> &member, const toml::node &node) {
  member.clear();
  if (!node.is_array())
    member.push_back(*node.value<T>());
  else
    for (const toml::node &element : *node.as_array())
      member.push_back(*element.value<T>());
  return Status();
}
template <typename T> Status assign(std::map<std::string, T> &member, const toml::node &node) {
  for (const auto &[name, value] : *node.as_table())
    member[std::string(name.str())] = *static_cast<const toml::node &>(value).value<T>();
  return Status();
}
template <typename T> Status assign(std::optional<T> &member, const toml::node &node) {
  return assign(member.emplace(), node);
}

template <typename T> Store to(T Recipe::*field) {
  return [=](Recipe &recipe, const toml::node &node) { return assign(recipe.*field, node); };
}
template <typename Owner, typename T> Store to(Owner Recipe::*part, T Owner::*field) {
  return [=](Recipe &recipe, const toml::node &node) { return assign(recipe.*part.*field, node); };
}

Store optimizerFlag(std::string name) {
  return [=](Recipe &recipe, const toml::node &node) {
    if (*node.value<bool>())
      recipe.optimizer.flags.insert(name);
    else
      recipe.optimizer.flags.erase(name);
    return Status();
  };
}

Status setDropout(Recipe &recipe, const toml::node &node) {
  recipe.model.dropout.reset();
  return node.is_string() ? Status() : assign(recipe.model.dropout, node);
}

//===----------------------------------------------------------------------===//
// Values with formats of their own
//===----------------------------------------------------------------------===//

Status setLayerDecay(Recipe &recipe, const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table with pattern and rate", node);
  LayerDecaySettings decay;
  for (const auto &[name, value] : *table) {
    Status status;
    std::string word;
    if (name == "pattern")
      status = readString(value, decay.pattern);
    else if (name == "rate")
      status = readNumber(value, kPositive, decay.rate);
    else if (name == "before" && (status = readChoice(value, {"off", "on"}, word)).ok())
      decay.beforeFirst = word == "on";
    else if (name != "before")
      status = error("unknown key; layer_decay has pattern, rate and before");
    if (!status.ok())
      return status.withContext(std::string(name.str()));
  }
  size_t at = decay.pattern.find("{}");
  if (at == std::string::npos || decay.pattern.find("{}", at + 2) != std::string::npos || !table->contains("rate"))
    return error("it needs a rate, and a pattern with one {{}} where the layer's number stands, such as "
                 "\"layers.{{}}.\"");
  recipe.optimizer.layerDecay = decay;
  return Status::success();
}

Status setGroups(Recipe &recipe, const toml::node &node) {
  const toml::array *array = node.as_array();
  if (!array)
    return expected("tables, each begun by [[optimizer.group]]", node);
  recipe.optimizer.groups.clear();
  for (const toml::node &element : *array) {
    const toml::table *table = element.as_table();
    if (!table)
      return expected("tables, each begun by [[optimizer.group]]", element);
    OptimizerGroupSettings group;
    const toml::source_position begin = element.source().begin;
    const bool fromFile = recipe.at("optimizer.group") != "--set: ";
    group.where = fromFile ? fmt::format("{}:{}:{}", recipe.file, begin.line, begin.column) : std::string("--set");
    auto located = [&](const Status &status) { return status.withContext(fmt::format("group at {}", group.where)); };
    for (const auto &[name, value] : *table) {
      Status status;
      if (name == "match") {
        status = readStrings(value, group.match);
      } else if (name == "lr_scale") {
        status = readNumber(value, kNotNegative, group.lrScale);
      } else if (name == "weight_decay") {
        double decay = 0;
        status = readNumber(value, kNotNegative, decay);
        group.weightDecay = decay;
      } else {
        status = error("unknown key; a group has match, lr_scale and weight_decay");
      }
      if (!status.ok())
        return located(status.withContext(std::string(name.str())));
    }
    if (group.match.empty())
      return located(error("it has no `match`: give the globs of its parameters"));
    recipe.optimizer.groups.push_back(std::move(group));
  }
  return Status::success();
}

/// A table of extents, each at least 1.
Status readDims(const toml::node &node, DimValues &out) {
  Status status = check(integerTable(1), node);
  return status.ok() ? assign(out, node) : status;
}

/// "4096/seq".
Expected<DimQuotient> readQuotient(const std::string &text) {
  const size_t stroke = text.find('/');
  DimQuotient quotient;
  const auto [end, code] = std::from_chars(text.data(), text.data() + std::min(stroke, text.size()), quotient.total);
  if (stroke == text.npos || code != std::errc() || end != text.data() + stroke || quotient.total < 1 ||
      stroke + 1 == text.size())
    return error("\"{}\" is no value of a dimension: give an integer, a list of integers, or a quotient like "
                 "\"4096/seq\"",
                 text);
  quotient.by = text.substr(stroke + 1);
  return quotient;
}

/// `{ batch = "4096/seq", seq = [128, 256] }`: the list becomes buckets.
Status setDims(Recipe &recipe, const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table of dimensions and their values", node);
  std::string listed;
  for (const auto &[key, value] : *table) {
    const std::string name(key.str());
    std::vector<int64_t> extents;
    if (value.is_string()) {
      auto quotient = readQuotient(*value.value<std::string>());
      if (!quotient)
        return quotient.status().withContext(name);
      if (quotient->by == name)
        return error("{} = \"{}\" divides by itself: name another dimension, like \"4096/seq\"", name,
                     *value.value<std::string>());
      recipe.model.quotients[name] = quotient.take();
      continue;
    }
    const Status status = check(value.is_array() ? integers(1) : integer(1), value);
    if (!status.ok())
      return status.withContext(name);
    if (!value.is_array()) {
      recipe.model.dims[name] = *value.value<int64_t>();
      continue;
    }
    if (Status read = readIntegers(value, 1, extents); !read.ok())
      return read.withContext(name);
    if (extents.empty())
      return error("{}: the list is empty", name);
    if (!recipe.model.buckets.empty())
      return error("{}: a list, beside {}; give all shapes by model.buckets = [{{ {} = …, … }}, …]", name,
                   listed.empty() ? "model.buckets" : "that of " + listed, name);
    listed = name;
    for (int64_t extent : extents)
      recipe.model.buckets.push_back({{name, extent}});
  }
  return Status::success();
}

Status setBuckets(Recipe &recipe, const toml::node &node) {
  const toml::array *array = node.as_array();
  if (!array)
    return expected("a list of tables of dimensions and their values", node);
  if (array->empty())
    return error("the list is empty");
  recipe.model.buckets.clear();
  for (const toml::node &element : *array)
    if (Status status = readDims(element, recipe.model.buckets.emplace_back()); !status.ok())
      return status.withContext(fmt::format("bucket {}", recipe.model.buckets.size()));
  return Status::success();
}

Status setShapes(Recipe &recipe, const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table of inputs and their shapes", node);
  for (const auto &[name, value] : *table) {
    if (!value.is_array())
      return expected("a list of integers", value).withContext(std::string(name.str()));
    if (Status status = readIntegers(value, 1, recipe.model.shapes[std::string(name.str())]); !status.ok())
      return status.withContext(std::string(name.str()));
  }
  return Status::success();
}

Status setFix(Recipe &recipe, const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table of inputs and their values", node);
  for (const auto &[name, value] : *table)
    if (Status status = readFixedValue(value, recipe.model.fix[std::string(name.str())]); !status.ok())
      return status.withContext(std::string(name.str()));
  return Status::success();
}

std::map<std::string, Store, std::less<>> makeStores() {
  using M = ModelSettings;
  using L = LossSettings;
  using O = OptimizerSettings;
  using T = TrainSettings;
  using A = AdapterSettings;
  using P = ParallelSettings;
  const auto model = &Recipe::model;
  const auto loss = &Recipe::loss;
  const auto optimizer = &Recipe::optimizer;
  const auto train = &Recipe::train;
  const auto adapter = &Recipe::adapter;
  const auto parallel = &Recipe::parallel;
  std::map<std::string, Store, std::less<>> stores = {
      {"model.dims", setDims},
      {"model.buckets", setBuckets},
      {"evaluate.dims", to(&Recipe::evaluateDims)},
      {"predict.dims", to(&Recipe::predictDims)},
      {"model.shapes", setShapes},
      {"model.fix", setFix},
      {"model.trainable", to(model, &M::trainable)},
      {"model.frozen", to(model, &M::frozen)},
      {"model.stop_gradient", to(model, &M::stopGradient)},
      {"model.tie", to(model, &M::tie)},
      {"model.merged", to(model, &M::merged)},
      {"model.quantize", to(model, &M::quantize)},
      {"model.batch_norm", to(model, &M::batchNorm)},
      {"model.dropout", setDropout},

      {"loss.output", to(loss, &L::output)},
      {"loss.kind", to(loss, &L::kind)},
      {"loss.of", to(loss, &L::of)},
      {"loss.target", to(loss, &L::target)},
      {"loss.sample_weight", to(loss, &L::sampleWeight)},
      {"loss.name", to(&Recipe::lossName)},
      {"loss.scale", to(&Recipe::lossScale)},
      {"loss.class_axis", to(loss, &L::classAxis)},
      {"loss.shift", to(loss, &L::shift)},
      {"loss.ignore_index", to(loss, &L::ignoreIndex)},
      {"loss.label_smoothing", to(loss, &L::labelSmoothing)},
      {"loss.weight", to(loss, &L::weight)},
      {"loss.pos_weight", to(loss, &L::posWeight)},
      {"loss.reduction", to(loss, &L::reduction)},
      {"loss.delta", to(loss, &L::delta)},
      {"loss.beta", to(loss, &L::beta)},
      {"loss.log_target", to(loss, &L::logTarget)},
      {"loss.margin", to(loss, &L::margin)},
      {"loss.eps", to(loss, &L::eps)},
      {"loss.p", to(loss, &L::p)},
      {"loss.swap", to(loss, &L::swap)},
      {"loss.full", to(loss, &L::full)},
      {"loss.log_input", to(loss, &L::logInput)},
      {"loss.alpha", to(loss, &L::alpha)},
      {"loss.gamma", to(loss, &L::gamma)},
      {"loss.smooth", to(loss, &L::smooth)},
      {"loss.input", to(loss, &L::input)},
      {"loss.time_axis", to(loss, &L::timeAxis)},
      {"loss.blank", to(loss, &L::blank)},
      {"loss.zero_infinity", to(loss, &L::zeroInfinity)},
      {"loss.input_lengths", to(loss, &L::inputLengths)},
      {"loss.target_lengths", to(loss, &L::targetLengths)},
      {"loss.max_target_length", to(loss, &L::maxTargetLength)},

      {"optimizer.moments", to(optimizer, &O::moments)},
      {"optimizer.moments_exempt", to(optimizer, &O::momentsExempt)},
      {"optimizer.adjust_lr_fn", to(optimizer, &O::adjustLr)},
      {"optimizer.decay_exempt", to(optimizer, &O::decayExempt)},
      {"optimizer.group", setGroups},
      {"optimizer.layer_decay", setLayerDecay},

      {"train.virtual_ranks", to(parallel, &P::virtualRanks)},
      {"train.clip_value", to(train, &T::clipValue)},
      {"train.outputs", to(train, &T::outputs)},
      {"train.precision", to(train, &T::precision)},
      {"train.loss_scale.kind", to(train, &T::lossScaleKind)},

      {"adapter.targets", to(adapter, &A::targets)},
      {"adapter.match", to(adapter, &A::targets)},
      {"adapter.rank", to(adapter, &A::rank)},
      {"adapter.alpha", to(adapter, &A::alpha)},
      {"adapter.rank_stabilized", to(adapter, &A::rankStabilized)},
      {"adapter.dropout", to(adapter, &A::dropout)},
      {"adapter.train", to(adapter, &A::train)},
      {"adapter.base", to(adapter, &A::base)},
      {"adapter.block", to(adapter, &A::block)},
      {"adapter.nested", to(adapter, &A::nested)},

      {"offload.what", to(&Recipe::offload)},
      {"offload.bytes_per_second", to(&Recipe::offloadBytesPerSecond)},

      {"parallel.mode", to(parallel, &P::mode)},
      {"parallel.ranks", to(parallel, &P::ranks)},
      {"parallel.shard_within_node", to(parallel, &P::shardWithinNode)},
      {"parallel.prefetch", to(parallel, &P::prefetch)},
      {"parallel.average", to(parallel, &P::average)},
      {"parallel.reduce_dtype", to(parallel, &P::reduceDtype)},
      {"parallel.bucket_bytes", to(parallel, &P::bucketBytes)},
      {"parallel.batch_norm", to(parallel, &P::batchNorm)},
      {"parallel.accumulators", to(parallel, &P::accumulators)},
      {"parallel.least_ranks", to(parallel, &P::leastRanks)},

      {"phase", [](Recipe &, const toml::node &) { return Status(); }}, // finishPhases reads them all together
      {"stage", [](Recipe &, const toml::node &) { return Status(); }}, // finishStages
      {"data.batch_axis", to(&Recipe::dataBatchAxis)},

      {"compiler.fuse", to(&Recipe::fuse)},
      {"compiler.chunk_bytes", to(&Recipe::chunkBytes)},
      {"compiler.attention", to(&Recipe::attention)},
      {"compiler.attention_calls", to(&Recipe::attentionCalls)},
      {"compiler.overlap", to(&Recipe::overlap)},
      {"compiler.fuse_updates", to(&Recipe::fuseUpdates)},
      {"compiler.slice_bytes", to(&Recipe::sliceBytes)},
      {"compiler.epilogues", to(&Recipe::epilogues)},
      {"compiler.convolutions", to(&Recipe::convolutions)},
      {"compiler.cubins", to(&Recipe::cubins)},
      {"compiler.recompute_time", to(&Recipe::recomputeTime)},
      {"compiler.winograd", to(&Recipe::winograd)},
      {"compiler.pointwise_convolutions", to(&Recipe::pointwiseConvolutions)},
  };
  for (const char *name : {"centered", "amsgrad", "maximize"})
    stores.emplace(fmt::format("optimizer.{}", name), optimizerFlag(name));
  return stores;
}

} // namespace

const std::map<std::string, Store, std::less<>> &allStores() {
  static const auto stores = makeStores();
  return stores;
}

} // namespace tcc::recipe

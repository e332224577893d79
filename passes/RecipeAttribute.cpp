//===- RecipeAttribute.cpp - the recipe as an attribute -------------------===//
//
// Each struct of the recipe is a dictionary of the members that differ from their defaults, by name; plan.Training is
// its text. Both directions share one list of members, in which a structured binding names all of them: a member that
// is added to a struct and forgotten here does not compile.
//
//===----------------------------------------------------------------------===//
#include "passes/RecipeAttribute.h"

#include "passes/Common.h"

#include <google/protobuf/text_format.h>

using namespace mlir;

namespace tcc::train {

namespace {

template <typename T, typename Struct>
concept Is = std::same_as<std::remove_const_t<T>, Struct>;

template <Is<LossSettings> S, typename Visit> void visitMembers(S &settings, Visit visit) {
  auto &[output, kind, of, target, sampleWeight, classAxis, shift, ignoreIndex, labelSmoothing, weight, posWeight,
         reduction, delta, beta, logTarget, margin, eps, p, swap, full, logInput, alpha, gamma, smooth, input, timeAxis,
         blank, zeroInfinity, inputLengths, targetLengths, maxTargetLength, padsBatches] = settings;
  visit("output", output);
  visit("kind", kind);
  visit("of", of);
  visit("target", target);
  visit("sample_weight", sampleWeight);
  visit("class_axis", classAxis);
  visit("shift", shift);
  visit("ignore_index", ignoreIndex);
  visit("label_smoothing", labelSmoothing);
  visit("weight", weight);
  visit("pos_weight", posWeight);
  visit("reduction", reduction);
  visit("delta", delta);
  visit("beta", beta);
  visit("log_target", logTarget);
  visit("margin", margin);
  visit("eps", eps);
  visit("p", p);
  visit("swap", swap);
  visit("full", full);
  visit("log_input", logInput);
  visit("alpha", alpha);
  visit("gamma", gamma);
  visit("smooth", smooth);
  visit("input", input);
  visit("time_axis", timeAxis);
  visit("blank", blank);
  visit("zero_infinity", zeroInfinity);
  visit("input_lengths", inputLengths);
  visit("target_lengths", targetLengths);
  visit("max_target_length", maxTargetLength);
  visit("pads_batches", padsBatches);
}

template <Is<OptimizerGroupSettings> S, typename Visit> void visitMembers(S &settings, Visit visit) {
  auto &[match, lrScale, weightDecay, where] = settings;
  visit("match", match);
  visit("lr_scale", lrScale);
  visit("weight_decay", weightDecay);
  visit("where", where);
}

template <Is<LayerDecaySettings> S, typename Visit> void visitMembers(S &settings, Visit visit) {
  auto &[pattern, rate, beforeFirst] = settings;
  visit("pattern", pattern);
  visit("rate", rate);
  visit("before_first", beforeFirst);
}

template <Is<OptimizerSettings> S, typename Visit> void visitMembers(S &settings, Visit visit) {
  auto &[flags, adjustLr, moments, momentsExempt, decayExempt, groups, layerDecay] = settings;
  visit("flags", flags);
  visit("adjust_lr_fn", adjustLr);
  visit("moments", moments);
  visit("moments_exempt", momentsExempt);
  visit("decay_exempt", decayExempt);
  visit("group", groups);
  visit("layer_decay", layerDecay);
}

template <Is<StageSettings> S, typename Visit> void visitMembers(S &settings, Visit visit) {
  auto &[until, trainable, lrScale, where] = settings;
  visit("until", until);
  visit("trainable", trainable);
  visit("lr_scale", lrScale);
  visit("where", where);
}

template <Is<TrainSettings> S, typename Visit> void visitMembers(S &settings, Visit visit) {
  auto &[clipValue, outputs, precision, lossScaleKind] = settings;
  visit("clip_value", clipValue);
  visit("outputs", outputs);
  visit("precision", precision);
  visit("loss_scale", lossScaleKind);
}

template <Is<AdapterSettings> S, typename Visit> void visitMembers(S &settings, Visit visit) {
  auto &[targets, rank, alpha, rankStabilized, dropout, train, base, block, nested] = settings;
  visit("targets", targets);
  visit("rank", rank);
  visit("alpha", alpha);
  visit("rank_stabilized", rankStabilized);
  visit("dropout", dropout);
  visit("train", train);
  visit("base", base);
  visit("block", block);
  visit("nested", nested);
}

template <Is<ParallelSettings> S, typename Visit> void visitMembers(S &settings, Visit visit) {
  auto &[mode, average, reduceDtype, bucketBytes, virtualRanks, leastRanks, batchNorm, accumulators, ranks,
         shardWithinNode, prefetch] = settings;
  visit("mode", mode);
  visit("average", average);
  visit("reduce_dtype", reduceDtype);
  visit("bucket_bytes", bucketBytes);
  visit("virtual_ranks", virtualRanks);
  visit("least_ranks", leastRanks);
  visit("batch_norm", batchNorm);
  visit("accumulators", accumulators);
  visit("ranks", ranks);
  visit("shard_within_node", shardWithinNode);
  visit("prefetch", prefetch);
}

/// Omits the importer's settings, and those of the compiler, which are options of passes.
template <Is<Recipe> S, typename Visit> void visitMembers(S &recipe, Visit visit) {
  [[maybe_unused]] auto &[file, text, model, evaluateDims, predictDims, loss, optimizer, train, adapter, parallel,
                          offload, offloadBytesPerSecond, training, data, dataBatchAxis, fuse, chunkBytes, attention,
                          attentionCalls, winograd, pointwiseConvolutions, convolutions, overlap, fuseUpdates,
                          sliceBytes, epilogues, cubins, recomputeTime, losses, lossName, lossScale, phases, stages,
                          stage, phase, phaseParameters, phaseEvery, where] = recipe;
  visit("loss", loss);
  visit("optimizer", optimizer);
  visit("train", train);
  visit("adapter", adapter);
  visit("parallel", parallel);
  visit("training", training);
  visit("overlap", overlap);
  visit("losses", losses);
  visit("loss_name", lossName);
  visit("loss_scale", lossScale);
  visit("phases", phases);
  visit("stages", stages);
  visit("stage", stage);
  visit("phase", phase);
  visit("phase_parameters", phaseParameters);
  visit("phase_every", phaseEvery);
  visit("where", where);
}

template <typename T>
concept Settings = requires(T &value) { visitMembers(value, [](auto &&...) {}); };

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

struct Writer {
  Builder builder;

  Attribute write(const std::string &value) { return builder.getStringAttr(value); }
  Attribute write(bool value) { return builder.getBoolAttr(value); }
  template <std::integral T> Attribute write(T value) { return builder.getI64IntegerAttr(int64_t(value)); }
  Attribute write(double value) { return builder.getF64FloatAttr(value); }
  Attribute write(const plan::Training &value) {
    google::protobuf::TextFormat::Printer printer;
    printer.SetSingleLineMode(true);
    std::string text;
    printer.PrintToString(value, &text);
    return builder.getStringAttr(text);
  }
  /// Called only for optionals with a value: an empty one is a default.
  template <typename T> Attribute write(const std::optional<T> &value) { return write(*value); }
  template <typename T> Attribute write(const std::vector<T> &list) { return writeAll(list); }
  Attribute write(const std::set<std::string> &list) { return writeAll(list); }
  Attribute write(const std::map<std::string, std::string> &map) {
    NamedAttrList list;
    for (const auto &[name, value] : map)
      list.append(name, write(value));
    return list.getDictionary(builder.getContext());
  }
  template <Settings T> Attribute write(const T &settings) {
    static const T defaults{};
    std::vector<Attribute> standard; // the default of each member, in order
    visitMembers(defaults, [&](StringRef, const auto &member) { standard.push_back(writeOrNull(member)); });
    NamedAttrList list;
    size_t index = 0;
    visitMembers(settings, [&](StringRef name, const auto &member) {
      if (Attribute attribute = writeOrNull(member); attribute != standard[index++])
        list.append(name, attribute);
    });
    return list.getDictionary(builder.getContext());
  }

private:
  template <typename T> Attribute writeOrNull(const T &value) {
    if constexpr (requires { value.has_value(); })
      return value ? write(*value) : Attribute();
    else
      return write(value);
  }
  template <typename List> Attribute writeAll(const List &values) {
    SmallVector<Attribute> list;
    for (const auto &value : values)
      list.push_back(write(value));
    return builder.getArrayAttr(list);
  }
};

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Every function returns true on success; otherwise `problem` has the reason.
struct Reader {
  std::string problem;

  bool read(Attribute attribute, std::string &value) {
    auto text = dyn_cast<StringAttr>(attribute);
    return text ? (value = text.str(), true) : expected("a string", attribute);
  }
  bool read(Attribute attribute, bool &value) {
    auto flag = dyn_cast<BoolAttr>(attribute);
    return flag ? (value = flag.getValue(), true) : expected("true or false", attribute);
  }
  template <std::integral T> bool read(Attribute attribute, T &value) {
    auto number = dyn_cast<IntegerAttr>(attribute);
    return number && number.getType().isInteger(64) ? (value = T(number.getInt()), true)
                                                    : expected("an integer", attribute);
  }
  bool read(Attribute attribute, double &value) {
    auto number = dyn_cast<FloatAttr>(attribute);
    return number && number.getType().isF64() ? (value = number.getValueAsDouble(), true)
                                              : expected("a number", attribute);
  }
  bool read(Attribute attribute, plan::Training &value) {
    auto text = dyn_cast<StringAttr>(attribute);
    return text && google::protobuf::TextFormat::ParseFromString(text.str(), &value)
               ? true
               : expected("the text of a plan.Training", attribute);
  }
  template <typename T> bool read(Attribute attribute, std::optional<T> &value) {
    return read(attribute, value.emplace());
  }
  template <typename T> bool read(Attribute attribute, std::vector<T> &values) {
    auto list = dyn_cast<ArrayAttr>(attribute);
    if (!list)
      return expected("a list", attribute);
    values.assign(list.size(), T());
    for (auto [element, value] : llvm::zip_equal(list, values))
      if (!read(element, value))
        return false;
    return true;
  }
  bool read(Attribute attribute, std::set<std::string> &values) {
    std::vector<std::string> list;
    if (!read(attribute, list))
      return false;
    values = {list.begin(), list.end()};
    return true;
  }
  bool read(Attribute attribute, std::map<std::string, std::string> &values) {
    auto map = dyn_cast<DictionaryAttr>(attribute);
    if (!map)
      return expected("a dictionary", attribute);
    for (NamedAttribute one : map)
      if (!read(one.getValue(), values[one.getName().str()]))
        return false;
    return true;
  }
  template <Settings T> bool read(Attribute attribute, T &settings) {
    auto map = dyn_cast<DictionaryAttr>(attribute);
    if (!map)
      return expected("a dictionary", attribute);
    bool good = true;
    size_t known = 0;
    visitMembers(settings, [&](StringRef name, auto &member) {
      Attribute given = map.get(name);
      known += bool(given);
      if (!good || !given)
        return;
      good = read(given, member);
      if (!good)
        problem = name.str() + ": " + problem;
    });
    if (!good || known == map.size())
      return good;
    for (NamedAttribute one : map) {
      bool any = false;
      visitMembers(settings, [&](StringRef name, auto &) { any |= name == one.getName().getValue(); });
      if (!any)
        problem = "there is no `" + one.getName().str() + "`";
    }
    return false;
  }

private:
  bool expected(const char *what, Attribute found) {
    llvm::raw_string_ostream(problem) << "expected " << what << ", found " << found;
    return false;
  }
};

} // namespace

void setRecipe(ModuleOp module, const Recipe &recipe) {
  module->setAttr(names::kRecipe, Writer{Builder(module.getContext())}.write(recipe));
}

FailureOr<Recipe> recipeOf(ModuleOp module) {
  Recipe recipe;
  Attribute attribute = module->getAttr(names::kRecipe);
  if (Reader reader; attribute && !reader.read(attribute, recipe))
    return module.emitError() << names::kRecipe << ": " << reader.problem;
  return recipe;
}

} // namespace tcc::train

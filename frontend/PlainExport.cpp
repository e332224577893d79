//===- PlainExport.cpp - an export with a batch of one --------------------===//
#include "frontend/PlainExport.h"

#include "frontend/BatchConstants.h"
#include "frontend/ModeNodes.h"
#include "frontend/TorchNotes.h"
#include "frontend/Weights.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tcc::frontend {
namespace {

using Dims = std::vector<int64_t>;

/// The batch size with which the advised shapes are tested.
constexpr int64_t kTrialBatch = 32;

std::string shortList(const std::vector<std::string> &names) {
  if (names.size() <= 3)
    return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{}, {} and {} more", names[0], names[1], names.size() - 2);
}

} // namespace

bool hasTorchNotes(const onnx::GraphProto &graph) {
  auto any = [](const auto &items) {
    return std::any_of(items.begin(), items.end(), [](const auto &item) {
      return std::any_of(item.metadata_props().begin(), item.metadata_props().end(),
                         [](const auto &note) { return note.key().starts_with("pkg.torch"); });
    });
  };
  return any(graph.node()) || any(graph.value_info());
}

/// True if the node was exported in training mode.
static bool isOfTraining(const onnx::NodeProto &node) {
  if (node.op_type() == "Dropout")
    return node.input_size() > 2 && !node.input(2).empty();
  return node.op_type() == "BatchNormalization" &&
         std::any_of(node.attribute().begin(), node.attribute().end(), [](const onnx::AttributeProto &attribute) {
           return attribute.name() == "training_mode" && attribute.i() != 0;
         });
}

namespace {
/// Signs of the mode in which the module was exported.
struct ModeSigns {
  bool normalised = false, drops = false, trains = false;
  std::vector<std::string> folded, renamed; ///< weights
};

ModeSigns modeSigns(const OnnxFile &file) {
  ModeSigns signs;
  bool described = false;
  for (const auto &[name, initializer] : file.initializers)
    described |= initializer.kind == "PARAMETER";
  for (const onnx::NodeProto &node : file.model.graph().node()) {
    signs.normalised |= node.op_type() == "BatchNormalization";
    const bool drops = attentionDropout(node) > 0 || drawsBernoulli(node);
    signs.drops |= node.op_type() == "Dropout" || drops;
    signs.trains |= isOfTraining(node) || wasTracedInTraining(node) || drops;
    for (int i = 1; i < node.input_size(); ++i) {
      auto found = file.initializers.find(node.input(i));
      if (found == file.initializers.end() || !isFloatType(found->second.type) || found->second.dims.empty())
        continue;
      const OnnxInitializer &initializer = found->second;
      // Folding computes new values, without the exporter's note or the original name.
      const bool conv = node.op_type() == "Conv" && i == 1;
      if (conv &&
          (isInventedName(node.input(i)) || (described && initializer.kind.empty() && initializer.foldedFrom.empty())))
        signs.folded.push_back(node.input(i));
      else if (std::count(signs.renamed.begin(), signs.renamed.end(), node.input(i)) == 0 &&
               isInventedName(node.input(i)) && initializer.dims.size() > 1 && node.op_type() != "Conv")
        signs.renamed.push_back(node.input(i));
    }
  }
  return signs;
}
} // namespace

PlainExport plainExport(const OnnxFile &file, const std::map<std::string, Dims> &shapes) {
  const onnx::GraphProto &graph = file.model.graph();
  if (file.model.producer_name() != "pytorch")
    return {};
  PlainExport result;
  std::vector<std::string> quoted, axes;
  bool rebatched = false;
  for (const onnx::ValueInfoProto &input : graph.input()) {
    if (file.initializers.count(input.name()) || !input.type().has_tensor_type())
      continue;
    Dims dims = dimsOf(input);
    if (dims.empty())
      continue;
    if (dims[0] != 1 || std::count(dims.begin(), dims.end(), -1))
      return {};
    rebatched |= shapes.count(input.name()) != 0;
    quoted.push_back(fmt::format("\"{}\"", input.name()));
    axes.push_back(fmt::format("\"{}\": {{0: \"batch\"}}", input.name()));
    dims[0] = kTrialBatch;
    result.larger[input.name()] = dims;
  }
  if (result.larger.empty())
    return {};
  if (rebatched)
    result.larger.clear();
  const bool newer = hasTorchNotes(graph);
  const auto [normalised, drops, trains, folded, renamed] = modeSigns(file);
  std::string text =
      fmt::format("{}: {}: {}", file.name,
                  trains ? "a plain export" : "a plain export, made for inference",
                  rebatched ? "its batch was 1" : "its batch is fixed at 1");
  if (!folded.empty() && !normalised)
    text += fmt::format(", BatchNormalization is folded into convolutions ({})", shortList(folded));
  if (!drops && !trains)
    text += ", dropout, if the model has it, is gone";
  if (!renamed.empty())
    text += fmt::format(", weights are transposed and renamed ({})", shortList(renamed));
  text += fmt::format(". To train it{}, export with torch.onnx.export(model, args, \"model.onnx\", ",
                      trains && folded.empty() ? " in batches" : "");
  if (newer)
    text += fmt::format(
        "dynamic_shapes=({}), optimize=False), with args of two samples or more (torch fixes dimensions of 1)"
        "{}",
        axes.size() == 1 ? "{0: \"batch\"}," : "{0: \"batch\"}, …, one for each of args",
        trains && folded.empty() ? ""
                                 : "; where the model has batch norm, set model.batch_norm = \"train\" in the recipe");
  else
    text +=
        fmt::format("dynamo=False, input_names=[{}], dynamic_axes={{{}}}, training=torch.onnx.TrainingMode.TRAINING, "
                    "do_constant_folding=False)",
                    fmt::join(quoted, ", "), fmt::join(axes, ", "));
  result.warning = std::move(text);
  return result;
}

std::string inferenceExport(const OnnxFile &file) {
  if (file.model.producer_name() != "pytorch")
    return "";
  const ModeSigns signs = modeSigns(file);
  if (signs.trains || (signs.drops && !signs.normalised && signs.folded.empty()))
    return "";
  std::string lost;
  auto add = [&](const std::string &what) { lost += (lost.empty() ? "" : ", and ") + what; };
  if (!signs.folded.empty() && !signs.normalised)
    add(fmt::format("BatchNormalization is folded into convolutions ({})", shortList(signs.folded)));
  if (signs.normalised)
    add("BatchNormalization uses its running statistics (model.batch_norm = \"train\" trains it)");
  if (!signs.drops)
    add("dropout, if the module has it, is gone");
  const bool newer = hasTorchNotes(file.model.graph());
  if (!signs.normalised && signs.folded.empty())
    return fmt::format(
        "{}: it has no dropout and no batch norm: right if the module has none; else export "
        "model.train() with {}. model.dropout = \"as-exported\" in the recipe says that it is meant",
        file.name, newer ? "optimize=False" : "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False");
  return fmt::format("{}: nothing in it was exported in train() mode: {}. Export model.train() with {}, or set "
                     "model.dropout = \"as-exported\" in the recipe if it is meant",
                     file.name, lost,
                     newer ? "optimize=False" : "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False");
}

std::string PlainExport::text(const std::string &problem) const {
  if (larger.empty())
    return warning;
  std::string text = warning + ". As it is, it trains a sample at a time";
  if (!problem.empty())
    return text + "; --shape cannot change that: " + problem;
  for (const auto &[name, dims] : larger)
    text += fmt::format("{} --shape {}={}", name == larger.begin()->first ? ";" : "", name, fmt::join(dims, "x"));
  return text + fmt::format(" {} it batches of {}", larger.size() == 1 ? "gives" : "give", kTrialBatch);
}

} // namespace tcc::frontend

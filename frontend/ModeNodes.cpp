//===- ModeNodes.cpp - check Dropout and BatchNormalization of an export --===//
#include "frontend/ModeNodes.h"

#include "frontend/OnnxLibrary.h"
#include "frontend/TorchNotes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <set>

namespace tcc::frontend {


namespace {

constexpr const char *kTrainingExport = "torch.onnx.export(model.train(), args, path, dynamo=False, "
                                        "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)";

void forEachNode(const onnx::GraphProto &graph, const std::function<void(const onnx::NodeProto &)> &visit) {
  for (const onnx::NodeProto &node : graph.node()) {
    visit(node);
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      if (attribute.has_g())
        forEachNode(attribute.g(), visit);
      for (const onnx::GraphProto &body : attribute.graphs())
        forEachNode(body, visit);
    }
  }
}

/// The exporter's note of the traced call if that is a batch norm whose argument `training` is true; else empty.
std::string trainingNorm(const onnx::NodeProto &node) {
  for (const onnx::StringStringEntryProto &note : node.metadata_props())
    if (note.key() == "pkg.torch.onnx.fx_node")
      return note.value().find("_native_batch_norm_legit") != std::string::npos &&
                     note.value().find(", True, ") != std::string::npos
                 ? note.value()
                 : "";
  return "";
}

/// True for Dropout before opset 12, which has no training mode although its ratio shows that the module's dropout has.
bool isModelessDropout(const onnx::NodeProto &node, int64_t opset) {
  if (node.op_type() != "Dropout" || opset >= 12)
    return false;
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == "ratio")
      return attribute.f() > 0;
  return false;
}

std::string some(const std::vector<std::string> &names) {
  if (names.size() <= 3)
    return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", names.front(), names.size() - 1);
}

} // namespace

bool wasTracedInTraining(const onnx::NodeProto &node) {
  return node.op_type() == "BatchNormalization" && !trainingNorm(node).empty();
}

Expected<std::vector<std::string>> checkModeNodes(const std::string &model, const onnx::GraphProto &graph,
                                                  int64_t opset, const ModelSettings &settings,
                                                  const std::map<std::string, std::string> &where) {
  bool dropout = false, batchNorm = false;
  std::vector<std::string> modeless, traced, folded;
  std::vector<std::pair<std::string, std::string>> others; // a batch norm's call, and another node exported from it
  std::set<std::string> kept;                              // calls with a BatchNormalization node
  forEachNode(graph, [&](const onnx::NodeProto &node) {
    const std::string &op = node.op_type();
    dropout |= op == "Dropout" || op == "BiasDropout" || attentionDropout(node) > 0 || drawsBernoulli(node);
    batchNorm |= op == "BatchNormalization";
    if (isModelessDropout(node, opset))
      modeless.push_back(nodeName(node));
    std::string call = trainingNorm(node);
    if (!call.empty() && op == "BatchNormalization") {
      traced.push_back(nodeName(node));
      kept.insert(std::move(call));
    } else if (!call.empty()) {
      others.emplace_back(std::move(call), nodeName(node));
    }
  });
  for (auto &[call, node] : others)
    if (!kept.contains(call))
      folded.push_back(std::move(node));
  auto place = [&](const char *key) {
    auto found = where.find(key);
    return found == where.end() ? std::string() : found->second + ": ";
  };
  if (settings.dropout && *settings.dropout > 0 && !dropout)
    return error(
        "{}model.dropout: {} has no Dropout node: exporters leave them out in eval() mode; export it again "
        "with {}, or take model.dropout out of the recipe",
        place("model.dropout"), model, kTrainingExport);
  if (settings.batchNorm == "train" && !batchNorm)
    return error(
        "{}model.batch_norm = \"train\": {} has no BatchNormalization node: exporters fold them into the "
        "convolution before them; export it again with {}, or take model.batch_norm out of the recipe",
        place("model.batch_norm"), model, kTrainingExport);
  std::vector<std::string> warnings;
  if (!modeless.empty() && !settings.dropout)
    warnings.push_back(
        fmt::format("{}: Dropout of opset {} has no training mode and does nothing ({}); set model.dropout to a "
                    "probability to train with it",
                    model, opset, some(modeless)));
  if (!traced.empty() && settings.batchNorm == "auto")
    warnings.push_back(
        fmt::format("{}: the module was exported in train() mode, but the exporter wrote its BatchNormalization "
                    "in inference mode ({}); they train by the batch's statistics; model.batch_norm = "
                    "\"as-exported\" keeps the running ones",
                    model, some(traced)));
  if (!folded.empty())
    warnings.push_back(
        fmt::format("{}: the exporter folded BatchNormalization of a module in train() mode into the layer before "
                    "it ({}): there is nothing left to normalise; export it again with optimize=False, or with {}",
                    model, some(folded), kTrainingExport));
  return warnings;
}

} // namespace tcc::frontend

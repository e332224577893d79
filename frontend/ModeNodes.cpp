//===- ModeNodes.cpp - is there a node for what the recipe says of modes? --===//
#include "frontend/ModeNodes.h"

#include <algorithm>
#include <functional>

namespace tcc::frontend {

using plan::Status;

namespace {

bool hasNode(const onnx::GraphProto &graph, const std::function<bool(const onnx::NodeProto &)> &wanted) {
  for (const onnx::NodeProto &node : graph.node()) {
    if (wanted(node))
      return true;
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      if (attribute.has_g() && hasNode(attribute.g(), wanted))
        return true;
      for (const onnx::GraphProto &body : attribute.graphs())
        if (hasNode(body, wanted))
          return true;
    }
  }
  return false;
}

} // namespace

Status checkModeNodes(const std::string &model, const onnx::GraphProto &graph, const ModelSettings &settings,
                      const std::map<std::string, std::string> &where) {
  auto place = [&](const char *key) {
    auto found = where.find(key);
    return found == where.end() ? std::string() : found->second + ": ";
  };
  auto isOneOf = [](std::initializer_list<const char *> ops) {
    return [ops = std::vector<std::string>(ops.begin(), ops.end())](const onnx::NodeProto &node) {
      return std::find(ops.begin(), ops.end(), node.op_type()) != ops.end();
    };
  };
  constexpr const char *kExport = "torch.onnx.export(model.train(), args, path, dynamo=False, "
                                  "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)";
  if (settings.dropout && *settings.dropout > 0 && !hasNode(graph, isOneOf({"Dropout", "BiasDropout"})))
    return plan::error("{}model.dropout: {} has no Dropout node: exporters leave them out in eval() mode; export it again "
                       "with {}, or take model.dropout out of the recipe",
                       place("model.dropout"), model, kExport);
  if (settings.trainBatchNorm && !hasNode(graph, isOneOf({"BatchNormalization"})))
    return plan::error("{}model.batch_norm = \"train\": {} has no BatchNormalization node: exporters fold them into the "
                       "convolution before them in eval() mode; export it again with {}, or take model.batch_norm out of "
                       "the recipe",
                       place("model.batch_norm"), model, kExport);
  return Status::success();
}

} // namespace tcc::frontend

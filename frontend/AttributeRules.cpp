//===- AttributeRules.cpp - the values that ONNX allows for attributes --------===//
#include "frontend/AttributeRules.h"
#include "support/ShortText.h"

#include <algorithm>
#include <fmt/format.h>

namespace tcc::frontend {

namespace {
using Names = std::vector<std::string_view>;

std::vector<AttributeRule> makeRules() {
  std::vector<AttributeRule> rules;
  auto words = [&](std::string_view attribute, Names ops, Names allowed) {
    rules.push_back({attribute, std::move(ops), std::move(allowed), 0, 0});
  };
  auto range = [&](Names attributes, Names ops, int64_t least, int64_t most = std::numeric_limits<int64_t>::max()) {
    for (std::string_view attribute : attributes)
      rules.push_back({attribute, ops, {}, least, most});
  };
  words("approximate", {}, {"none", "tanh"});
  words("auto_pad", {}, {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
  words("coordinate_transformation_mode", {"RoiAlign"}, {"half_pixel", "output_half_pixel"});
  words("coordinate_transformation_mode", {"Resize"},
        {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
         "tf_half_pixel_for_nn", "tf_crop_and_resize"});
  words("direction", {"GRU", "LSTM", "RNN"}, {"forward", "reverse", "bidirectional"});
  words("direction", {"BitShift"}, {"RIGHT", "LEFT"});
  words("keep_aspect_ratio_policy", {}, {"stretch", "not_larger", "not_smaller"});
  words("mode", {"DepthToSpace", "SpaceToDepth"}, {"DCR", "CRD"});
  words("mode", {"GridSample"}, {"linear", "bilinear", "nearest", "cubic", "bicubic"});
  words("mode", {"Pad"}, {"constant", "reflect", "edge", "wrap"});
  words("mode", {"Resize"}, {"nearest", "linear", "cubic"});
  words("mode", {"RoiAlign"}, {"avg", "max"});
  words("mode", {"TensorScatter"}, {"linear", "circular"});
  words("mode", {"TfIdfVectorizer"}, {"TF", "IDF", "TFIDF"});
  words("mode", {"Upsample"}, {"nearest", "linear", "bilinear"});
  words("nearest_mode", {}, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  words("padding_mode", {}, {"zeros", "border", "reflection"});
  words("reduction", {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}, {"none", "sum", "mean"});
  words("reduction", {"ScatterElements", "ScatterND"}, {"none", "add", "mul", "max", "min"});
  words("round_mode", {}, {"up", "down", "nearest"});
  words("update_rule", {}, {"linear", "gated", "delta", "gated_delta"});
  // Truth values, and choices between two.
  range({"align_corners", "allowzero", "antialias", "batch_axis", "broadcast", "ceil_mode", "center_point_box",
         "count_include_pad", "detect_negative", "detect_positive", "exclude_outside", "exclusive", "fmod",
         "input_forget", "interleaved", "inverse", "is_causal", "keepdims", "largest", "layout",
         "linear_before_reset", "new_axis", "noop_with_empty_axes", "onesided", "output_sequence", "periodic",
         "reverse", "saturate", "scan_input_directions", "scan_output_directions", "directions", "select_last_index",
         "sorted", "spatial", "storage_order", "time_axis", "training_mode", "transA", "transB", "upper"},
        {}, 0, 1);
  range({"blocksize", "dilations", "group", "hidden_size", "kernel_shape", "kv_num_heads", "max_gram_length",
         "min_gram_length", "num_groups", "num_outputs", "num_scan_inputs", "offset_group", "output_height",
         "output_width", "p", "pooled_shape", "q_num_heads", "sample_size", "size", "strides"},
        {}, 1);
  range({"p"}, {"LpNormalization"}, 1, 2);
  range({"k"}, {"TopK"}, 0);
  range({"batch_dims", "block_size", "max_skip_count", "ngram_counts", "ngram_indexes", "num_heads", "output_padding",
         "output_shape", "pads", "rotary_embedding_dim", "sampling_ratio"},
        {}, 0);
  range({"pads"}, {"Pad"}, std::numeric_limits<int64_t>::min()); // negative ones remove elements
  range({"shape"}, {"RandomNormal", "RandomUniform"}, 0);
  range({"left_window_size", "right_window_size"}, {}, -1);
  range({"qk_matmul_output_mode"}, {}, 0, 3);
  return rules;
}

} // namespace

std::span<const AttributeRule> attributeRules() {
  static const std::vector<AttributeRule> rules = makeRules();
  return rules;
}

std::string AttributeRule::text() const {
  std::string list;
  for (size_t i = 0; i < words.size(); ++i)
    list += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  if (!words.empty())
    return list;
  if (most == std::numeric_limits<int64_t>::max())
    return fmt::format("at least {}", least);
  return most == least + 1 ? fmt::format("{} or {}", least, most) : fmt::format("from {} to {}", least, most);
}

const AttributeRule *findAttributeRule(std::string_view op, std::string_view attribute) {
  const AttributeRule *general = nullptr;
  for (const AttributeRule &rule : attributeRules()) {
    if (rule.attribute != attribute)
      continue;
    if (rule.ops.empty())
      general = &rule;
    else if (std::find(rule.ops.begin(), rule.ops.end(), op) != rule.ops.end())
      return &rule;
  }
  return general;
}

std::string attributeProblem(const onnx::NodeProto &node) {
  if (!node.domain().empty() && node.domain() != "ai.onnx")
    return "";
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    const AttributeRule *rule = findAttributeRule(node.op_type(), attribute.name());
    if (!rule)
      continue;
    auto inRange = [rule](int64_t value) { return value >= rule->least && value <= rule->most; };
    std::string found;
    if (!rule->words.empty()) {
      if (attribute.type() == onnx::AttributeProto::STRING &&
          std::find(rule->words.begin(), rule->words.end(), attribute.s()) == rule->words.end())
        found = fmt::format("'{}'", shortened(attribute.s()));
    } else if (attribute.type() == onnx::AttributeProto::INT) {
      if (!inRange(attribute.i()))
        found = std::to_string(attribute.i());
    } else if (attribute.type() == onnx::AttributeProto::INTS) {
      if (auto wrong = std::find_if_not(attribute.ints().begin(), attribute.ints().end(), inRange);
          wrong != attribute.ints().end())
        found = fmt::format("{} in element {}", *wrong, wrong - attribute.ints().begin());
    }
    if (!found.empty())
      return fmt::format("its attribute {} is {}; ONNX allows {}: export the model again, or correct the attribute",
                         attribute.name(), found, rule->text());
  }
  return "";
}

} // namespace tcc::frontend

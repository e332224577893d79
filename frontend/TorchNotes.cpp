//===- TorchNotes.cpp - what torch's exporters note at nodes --------------===//
#include "frontend/TorchNotes.h"

#include "frontend/OnnxFile.h"

#include <algorithm>
#include <cstdlib>
#include <onnx/onnx_pb.h>
#include <set>

namespace tcc::frontend {

std::string withoutNumber(const std::string &name) {
  size_t end = name.size();
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9')
    --end;
  return end < name.size() && end > 1 && name[end - 1] == '_' ? name.substr(0, end - 1) : name;
}

bool isTransposition(const std::string &operation) {
  static const std::set<std::string> names = {"t",       "numpy_t",  "numpy_T",  "mT",     "transpose",
                                              "permute", "swapaxes", "swapdims", "adjoint"};
  return names.count(withoutNumber(operation)) != 0;
}

/// The values and the numbers among a call's arguments.
static void readWords(const std::string &text, TracedCall &call) {
  constexpr const char *kEnds = " ,()[]{}:=";
  for (size_t begin = text.find_first_not_of(kEnds); begin != text.npos;) {
    const size_t end = std::min(text.find_first_of(kEnds, begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (word.starts_with('%')) {
      call.values.push_back(word.substr(1));
    } else {
      char *rest = nullptr;
      const double number = std::strtod(word.c_str(), &rest);
      if (rest && !*rest && rest != word.c_str())
        call.numbers.push_back(number);
    }
    begin = text.find_first_not_of(kEnds, end);
  }
}

/// The note of the traced call; null if there is none.
static const std::string *noteOfCall(const onnx::NodeProto &node) {
  const std::string *found = nullptr;
  for (const onnx::StringStringEntryProto &note : node.metadata_props())
    if (note.key() == "pkg.torch.onnx.fx_node")
      found = &note.value();
  return found;
}

std::string_view tracedTarget(const onnx::NodeProto &node) {
  constexpr std::string_view kHead = "target=torch.ops.";
  const std::string *text = noteOfCall(node);
  const size_t at = text ? text->find(kHead) : std::string::npos;
  if (at == std::string::npos)
    return {};
  const std::string_view rest = std::string_view(*text).substr(at + kHead.size());
  return rest.substr(0, rest.find(']'));
}

TracedCall tracedCall(const onnx::NodeProto &node) {
  TracedCall call;
  if (const std::string *note = noteOfCall(node)) {
    const std::string &text = *note;
    auto between = [&](const std::string &head, const char *ends) {
      size_t begin = text.find(head);
      begin = begin == text.npos ? text.size() : begin + head.size();
      return text.substr(begin, std::min(text.find_first_of(ends, begin), text.size()) - begin);
    };
    call.target = tracedTarget(node);
    const std::string list = between("args = (", ")");
    for (size_t begin = 0; begin < list.size();) {
      const size_t end = std::min(list.find(", ", begin), list.size());
      call.arguments.push_back(list.substr(begin, end - begin));
      begin = end + 2;
    }
    call.text = text;
    const size_t arguments = text.find("args = (");
    readWords(arguments == text.npos ? std::string() : text.substr(arguments + 8), call);
  }
  return call;
}

std::optional<double> numberOf(const TracedCall &call, size_t place, const std::string &name) {
  auto parsed = [](const std::string &text) -> std::optional<double> {
    char *rest = nullptr;
    const double number = std::strtod(text.c_str(), &rest);
    return rest && !*rest && rest != text.c_str() ? std::optional<double>(number) : std::nullopt;
  };
  // "…, kwargs = {dropout_p: 0.1, is_causal: True})"
  const size_t named = call.text.rfind("kwargs = {");
  if (named != call.text.npos)
    for (const std::string &head : {"{" + name + ": ", ", " + name + ": "})
      if (const size_t at = call.text.find(head, named); at != call.text.npos) {
        const size_t begin = at + head.size();
        return parsed(
            call.text.substr(begin, std::min(call.text.find_first_of(",}", begin), call.text.size()) - begin));
      }
  return place < call.arguments.size() ? parsed(call.arguments[place]) : std::nullopt;
}

double attentionDropout(const onnx::NodeProto &node) {
  return tracedTarget(node).starts_with("aten.scaled_dot_product_attention.")
             ? std::clamp(numberOf(tracedCall(node), 4, "dropout_p").value_or(0), 0.0, 1.0)
             : 0;
}

std::optional<int64_t> paddingIndex(const onnx::NodeProto &node) {
  if (!tracedTarget(node).starts_with("aten.embedding."))
    return std::nullopt;
  const std::optional<double> index = numberOf(tracedCall(node), 2, "padding_idx");
  return index && *index >= 0 ? std::optional<int64_t>(int64_t(*index)) : std::nullopt;
}

bool drawsBernoulli(const onnx::NodeProto &node) {
  return node.op_type() == "Bernoulli" ||
         (node.op_type() == "RandomUniformLike" && tracedTarget(node).starts_with("aten.bernoulli"));
}

std::vector<std::string> scopesOf(const onnx::NodeProto &node) {
  for (const onnx::StringStringEntryProto &note : node.metadata_props())
    if (note.key() == "pkg.torch.onnx.name_scopes")
      return quotedNames(note.value());
  return {};
}

std::string lastScope(const onnx::NodeProto &node) {
  const std::vector<std::string> scopes = scopesOf(node);
  return scopes.empty() ? std::string() : scopes.back();
}

} // namespace tcc::frontend

//===- TorchNames.cpp - find torch's parameter names of initializers ------===//
#include "frontend/TorchNames.h"

#include "frontend/OnnxLibrary.h"
#include "frontend/TorchNotes.h"
#include "frontend/Weights.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace tcc::frontend {
namespace {

using Roles = std::map<std::string, InitializerRole>;

/// "h.0.attn.weight" → "%p_h_0_attn_weight": a parameter among the arguments of a traced call.
std::string asArgument(const std::string &parameter) {
  std::string text = "%p_" + parameter;
  for (char &c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '%')
      c = '_';
  return text;
}

int64_t countOf(const std::vector<int64_t> &dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t(1), std::multiplies<>());
}

/// The modules that "/layers.0/lin_1/MatMul" may have been named after, the likeliest first. A call of a module that is
/// called several times has its number after the name ("lin_1"), and a child of a Sequential repeats its parent's
/// ("0/0.1").
std::vector<std::string> modulesOf(const std::string &node) {
  std::vector<std::string> parts;
  for (size_t begin = 1; node.starts_with('/') && begin < node.size();) {
    const size_t end = std::min(node.find('/', begin), node.size());
    parts.push_back(node.substr(begin, end - begin));
    begin = end + 1;
  }
  if (parts.size() < 2) // the root's own operation
    return {};
  parts.pop_back();
  std::vector<std::string> paths;
  for (bool drops : {true, false})
    for (bool numbered : {true, false}) {
      std::string path;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (drops && i + 1 < parts.size() && parts[i + 1].starts_with(parts[i] + "."))
          continue;
        const std::string part = !numbered && i + 1 == parts.size() ? withoutNumber(parts[i]) : parts[i];
        path += (path.empty() ? "" : ".") + part;
      }
      if (std::find(paths.begin(), paths.end(), path) == paths.end())
        paths.push_back(path);
    }
  return paths;
}

/// The module of a node: the one whose bias is among the initializers, or else the only possible one; empty if unknown.
std::string moduleOf(const std::string &node, const Roles &roles) {
  const std::vector<std::string> paths = modulesOf(node);
  for (const std::string &path : paths)
    if (roles.count(path + ".bias"))
      return path;
  return paths.size() == 1 ? paths.front() : std::string();
}

struct Reader {
  const onnx::NodeProto *node;
  int input;
};

class Names {
public:
  Names(const OnnxFile &file, const onnx::GraphProto &graph, Roles &roles) : file(file), roles(roles) { visit(graph); }

  void run() {
    std::map<std::string, std::vector<std::string>> claims; // initializers by name in torch
    for (auto &[name, role] : roles) {
      const OnnxInitializer &initializer = file.initializers.at(name);
      role.torchName = nameOf(name, initializer, role);
      if (!role.torchName.empty())
        claims[role.torchName].push_back(name);
    }
    for (const auto &[torch, claimants] : claims)
      if (claimants.size() > 1 || roles.count(torch) || file.ties.count(torch))
        for (const std::string &name : claimants)
          roles.at(name).torchName.clear();
    for (auto &[name, role] : roles)
      role.computed = isComputed(file.initializers.at(name), role);
  }

private:
  void visit(const onnx::GraphProto &graph) {
    for (const onnx::NodeProto &node : graph.node()) {
      for (int i = 0; i < node.input_size(); ++i)
        if (roles.count(node.input(i)))
          readers[node.input(i)].push_back({&node, i});
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g())
          visit(attribute.g());
    }
  }

  /// A constant of the code, or a buffer that state_dict leaves out. Only torch's notes tell.
  static bool isComputed(const OnnxInitializer &initializer, const InitializerRole &role) {
    if (!initializer.code.empty())
      return true;
    if (initializer.kind == "BUFFER")
      return initializer.persistent == "False";
    if (!initializer.kind.empty())
      return initializer.kind != "PARAMETER";
    return !initializer.foldedFrom.empty() && role.torchName.empty() && role.role != Role::Parameter;
  }

  std::string nameOf(const std::string &name, const OnnxInitializer &initializer, InitializerRole &role) {
    const std::vector<Reader> &reads = readers[name];
    const TorchShape &shape = role.torch;
    // The order of axes is unknown for more than two of them.
    const auto wide =
        std::count_if(initializer.dims.begin(), initializer.dims.end(), [](int64_t dim) { return dim != 1; });
    if (shape.count != 1 || countOf(shape.dims) != countOf(initializer.dims) || role.display == name ||
        (wide > 1 && initializer.dims.size() > 2))
      return {};
    if (!role.display.empty() && shape.assumption.empty()) {
      const std::string argument = asArgument(role.display), operation = withoutNumber(name);
      for (const Reader &read : reads) {
        const std::vector<std::string> arguments = tracedCall(*read.node).arguments;
        if (!isRecurrent(*read.node) && std::find(arguments.begin(), arguments.end(), argument) != arguments.end())
          return role.display;
      }
      // A view of a parameter was computed from that parameter and constants of the translation alone.
      bool alone = true;
      for (const std::string &source : initializer.foldedFrom)
        alone &= source == role.display || isInventedName(source);
      const bool turned = initializer.foldedFrom.size() == 1 && isTransposition(name) && shape.transposed;
      return turned || (alone && operation == "unsqueeze") ? role.display : std::string();
    }
    // The older exporter transposes a linear layer's weight, and names the result after the operation that reads it.
    if (!role.display.empty() || !name.starts_with("onnx::MatMul_") || !shape.transposed || reads.size() != 1 ||
        reads[0].input != 1 || reads[0].node->op_type() != "MatMul")
      return {};
    const std::string module = moduleOf(reads[0].node->name(), roles);
    role.namedByNode = !module.empty();
    return module.empty() ? std::string() : module + ".weight";
  }

  /// True for recurrent layers, whose gates ONNX stores in another order than torch.
  static bool isRecurrent(const onnx::NodeProto &node) {
    return node.op_type() == "LSTM" || node.op_type() == "GRU" || node.op_type() == "RNN";
  }

  const OnnxFile &file;
  Roles &roles;
  std::map<std::string, std::vector<Reader>> readers;
};

} // namespace

void nameInTorch(const OnnxFile &file, const onnx::GraphProto &graph, std::map<std::string, InitializerRole> &roles) {
  Names(file, graph, roles).run();
}

} // namespace tcc::frontend

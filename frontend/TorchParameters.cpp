//===- TorchParameters.cpp - names and shapes of parameters in torch ------===//
#include "frontend/TorchParameters.h"

#include "frontend/OnnxFile.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/TorchNotes.h"
#include "frontend/Weights.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

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
  Names(const OnnxFile &file, const onnx::GraphProto &graph, Roles &roles) : file(file), roles(roles) {
    visit(graph);
    for (const onnx::ValueInfoProto &value : file.model.graph().value_info())
      declared[value.name()] = &value;
  }

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

  /// A constant of the code, or a buffer that state_dict omits. Only torch's notes tell them apart from parameters. A
  /// module has no parameter that is a weight's 4-bit integers.
  static bool isComputed(const OnnxInitializer &initializer, const InitializerRole &role) {
    if (!initializer.code.empty() || role.fourBits)
      return true;
    if (initializer.kind == "BUFFER")
      return initializer.persistent == "False";
    if (!initializer.kind.empty())
      return initializer.kind != "PARAMETER";
    return !initializer.foldedFrom.empty() && role.torchName.empty() && role.role != Role::Parameter;
  }

  /// The parameter that a quantiser replaced by 4-bit integers, by the name that it derived; if the quantised tensor
  /// had the older exporter's invented name, by the node that reads it, and the newer one's, by its note. onnxruntime
  /// appends "_Q4", "_DQ_Q4" and the size of blocks, its builder of generative models ".MatMulNBits.qweight".
  std::string nameOfFourBits(const std::string &name, InitializerRole &role) {
    std::string stem = withoutSuffixes(name, {".qweight", "_quantized", "_quant"});
    if (const size_t at = stem.rfind("_Q4"); at != stem.npos)
      stem.resize(at);
    stem = withoutSuffixes(stem, {"_DQ"});
    if (stem == name)
      return {};
    stem = withoutSuffixes(stem, {".MatMulNBits", ".MatMul"});
    if (stem.starts_with("onnx::") && readers[name].size() == 1) {
      const std::string module = moduleOf(readers[name][0].node->name(), roles);
      role.namedByNode = !module.empty();
      return module.empty() ? std::string() : module + ".weight";
    }
    if (const std::string source = foldedSource(stem); !source.empty())
      return source;
    if (isInventedName(stem) || stem.find('.') == stem.npos)
      return {};
    return stem.ends_with(".weight") ? stem : stem + ".weight";
  }

  /// The one parameter that the exporter notes as the source of a tensor, which a quantiser replaced; its declaration
  /// stays in the file.
  std::string foldedSource(const std::string &tensor) const {
    std::vector<std::string> sources;
    if (auto found = declared.find(tensor); found != declared.end())
      for (const onnx::StringStringEntryProto &note : found->second->metadata_props())
        if (note.key() == kFoldedFromNote)
          for (const std::string &source : quotedNames(note.value()))
            if (!isInventedName(source))
              sources.push_back(source);
    return sources.size() == 1 ? sources.front() : std::string();
  }

  static std::string withoutSuffixes(std::string name, std::initializer_list<std::string_view> suffixes) {
    for (std::string_view suffix : suffixes)
      if (name.size() > suffix.size() && name.ends_with(suffix))
        name.resize(name.size() - suffix.size());
    return name;
  }

  std::string nameOf(const std::string &name, const OnnxInitializer &initializer, InitializerRole &role) {
    if (role.fourBits)
      return nameOfFourBits(name, role);
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
  std::map<std::string, const onnx::ValueInfoProto *> declared;
};

} // namespace

void nameInTorch(const OnnxFile &file, const onnx::GraphProto &graph, std::map<std::string, InitializerRole> &roles) {
  Names(file, graph, roles).run();
}

// An initializer under a parameter's own name is stored with torch's shape. One that the exporter computed (a folded
// value, or one with an invented name) may not be: the reader's note of the traced call tells which matrix torch
// multiplied by ("aten.linear" with the parameter itself, "aten.matmul" with its transpose), and so does a value that
// is named after a torch operation ("t"). Without these, a computed matrix that is read as a factor is taken for a
// linear layer's weight, [features of the result, features of the input], and a warning says so.

namespace {

/// A matrix of the file, seen through transposes and casts.
struct Alias {
  std::string initializer;
  bool swapped = false;
};

/// Facts about an initializer that follow from the nodes that read it.
struct Reading {
  int recurrentInput = 0;        ///< 1 to 3, or 7: W, R, B, P of a recurrent layer
  bool slope = false;            ///< the slope of PRelu, which is a vector in torch
  std::string product;           ///< a node that multiplies by it
  std::optional<int> resultAxis; ///< the stored axis that becomes features of the product's result
  /// Whether it is stored transposed, by the notes of the product.
  std::optional<bool> transposed;
};

int64_t intAttribute(const onnx::NodeProto &node, const char *name) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.i();
  return 0;
}

bool swapsTwo(const onnx::NodeProto &node) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == "perm")
      return attribute.ints_size() == 2 && attribute.ints(0) == 1 && attribute.ints(1) == 0;
  return true; // the default reverses the axes
}

/// True if the module's matrix in the traced call is [result, input], false if [input, result]; nullopt if the notes do
/// not tell.
std::optional<bool> resultFirst(const onnx::NodeProto &node) {
  const TracedCall call = tracedCall(node);
  const bool linear = call.target.starts_with("aten.linear.");
  size_t weight = 0;
  if (linear || call.target.starts_with("aten.matmul.") || call.target.starts_with("aten.mm."))
    weight = 1;
  else if (call.target.starts_with("aten.addmm."))
    weight = 2;
  if (!weight || weight >= call.arguments.size() || !call.arguments[weight].starts_with("%"))
    return std::nullopt;
  const std::string name = call.arguments[weight].substr(1);
  if (name.starts_with("p_"))
    return linear;
  return isTransposition(name) ? std::optional(!linear) : std::nullopt;
}

class Readings {
public:
  Readings(const OnnxFile &file, const onnx::GraphProto &graph) : file(file) {
    for (const auto &[name, initializer] : file.initializers)
      aliases[name] = {name, false};
    for (const auto &[value, name] : file.rounded)
      aliases[value] = {name, false};
    visit(graph);
  }

  const Reading &of(const std::string &name) { return readings[name]; }

private:
  void visit(const onnx::GraphProto &graph) {
    for (const onnx::NodeProto &node : graph.node()) {
      for (int i = 0; i < node.input_size(); ++i)
        if (auto found = aliases.find(node.input(i)); found != aliases.end())
          note(node, i, found->second);
      const std::string &op = node.op_type();
      const bool views = op == "Cast" || op == "CastLike" || op == "Identity" || op == "StopGradient";
      if (auto found = node.input_size() ? aliases.find(node.input(0)) : aliases.end();
          found != aliases.end() && node.output_size() && (views || (op == "Transpose" && swapsTwo(node)))) {
        Alias alias = found->second;
        alias.swapped ^= op == "Transpose";
        if (views || file.initializers.at(alias.initializer).dims.size() == 2)
          aliases[node.output(0)] = alias;
      }
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g())
          visit(attribute.g());
    }
  }

  void note(const onnx::NodeProto &node, int input, const Alias &alias) {
    static const std::set<std::string> recurrent = {"LSTM", "GRU", "RNN"};
    static const std::set<std::string> products = {"MatMul", "Gemm", "FusedMatMul", "TransposeMatMul", "FusedGemm",
                                                   "GemmFastGelu"};
    Reading &reading = readings[alias.initializer];
    const std::string &op = node.op_type();
    if (recurrent.count(op) && ((input >= 1 && input <= 3) || input == 7))
      reading.recurrentInput = input;
    reading.slope |= op == "PRelu" && input == 1;
    if (!products.count(op) || input > 1 || file.initializers.at(alias.initializer).dims.size() != 2)
      return;
    const bool flag = intAttribute(node, input ? "transB" : "transA") != 0;
    const int axis = int((input == 1) != (flag != alias.swapped));
    if (reading.product.empty()) {
      reading.product = nodeName(node);
      reading.resultAxis = axis;
    } else if (reading.resultAxis != axis) {
      reading.resultAxis.reset();
    }
    if (std::optional<bool> first = input == 1 ? resultFirst(node) : std::nullopt; first && !reading.transposed)
      reading.transposed = *first == (axis == 1);
  }

  const OnnxFile &file;
  std::map<std::string, Alias> aliases;
  std::map<std::string, Reading> readings;
};

std::string shapeText(const std::vector<int64_t> &dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

/// The shapes of W, R, B and P of a recurrent layer: for each direction, torch has a matrix for the input's gates, one
/// for the state's, and two vectors of biases.
TorchShape recurrentShape(const std::vector<int64_t> &dims, int input) {
  TorchShape shape;
  shape.count = dims.front();
  shape.dims.assign(dims.begin() + 1, dims.end());
  if (input == 3 && shape.dims.size() == 1 && shape.dims[0] % 2 == 0) {
    shape.count *= 2;
    shape.dims[0] /= 2;
  }
  return shape;
}

TorchShape shapeOf(const std::string &name, const OnnxInitializer &initializer, const Reading &reading) {
  const std::vector<int64_t> &dims = initializer.dims;
  const size_t rank = dims.size();
  TorchShape shape = TorchShape::asStored(dims);
  if (reading.recurrentInput && rank >= 2)
    return recurrentShape(dims, reading.recurrentInput);
  auto transpose = [&] {
    std::swap(shape.dims[0], shape.dims[1]);
    shape.transposed = true;
  };
  if (rank == 2 && reading.transposed) {
    if (*reading.transposed)
      transpose();
    return shape;
  }
  const bool computed = initializer.computed || !initializer.foldedFrom.empty() || isInventedName(name);
  if (!computed || rank < 2)
    return shape;
  if (rank == 2 && !initializer.foldedFrom.empty() && isTransposition(name)) {
    transpose();
    return shape;
  }
  auto isUnit = [](int64_t extent) { return extent == 1; };
  std::vector<int64_t> wide;
  std::remove_copy_if(dims.begin(), dims.end(), std::back_inserter(wide), isUnit);
  const bool hasUnits = wide.size() < rank, vector = reading.product.empty() && hasUnits && wide.size() <= 1;
  const bool unsqueezed = withoutNumber(name) == "unsqueeze";
  if (vector || (rank > 2 && wide.size() == 2 && unsqueezed)) {
    shape.dims = wide.empty() ? std::vector<int64_t>{1} : wide;
    if (rank == 2 && !reading.slope && !unsqueezed)
      shape.assumption = fmt::format("a vector {}, though it is stored as {}", shapeText(shape.dims), shapeText(dims));
    return shape;
  }
  if (rank > 2) {
    if (hasUnits && wide.size() == 2)
      shape.assumption = fmt::format("{}, as it is stored, and no matrix", shapeText(dims));
    return shape;
  }
  if (reading.resultAxis == 1)
    transpose();
  shape.assumption = shape.transposed ? fmt::format("{}, the transpose of the stored matrix that {} reads",
                                                    shapeText(shape.dims), reading.product)
                                      : fmt::format("{}, as it is stored", shapeText(shape.dims));
  return shape;
}

} // namespace

std::map<std::string, TorchShape> torchShapes(const OnnxFile &file, const onnx::GraphProto &graph) {
  Readings readings(file, graph);
  std::map<std::string, TorchShape> shapes;
  for (const auto &[name, initializer] : file.initializers)
    shapes[name] = shapeOf(name, initializer, readings.of(name));
  return shapes;
}

} // namespace tcc::frontend

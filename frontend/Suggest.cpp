//===- Suggest.cpp - guess a recipe from the graph ------------------------===//
//
// A file that was exported for inference tells much about how to train it: a Softmax at its end asks for class labels,
// a Sigmoid for targets between 0 and 1; an integer that is compared with a constant is a setting. All other values are
// chosen so that the model compiles, and marked with "check".
//
//===----------------------------------------------------------------------===//
#include "frontend/Suggest.h"

#include "frontend/BatchAxis.h"
#include "frontend/Dimensions.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/WeightReads.h"
#include "frontend/Weights.h"

#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace tcc::frontend {
namespace {


/// Batch size, and sizes that are tried for all other open dimensions.
constexpr int64_t kBatch = 8;
constexpr int64_t kSizes[] = {32, 48, 64, 96, 128, 224, 256, 320, 512, 576, 640, 1024, 16, 8, 4, 2, 1};
/// Most names in one comment.
constexpr size_t kNamed = 6;

/// A key or a string in TOML.
std::string quoted(const std::string &text) {
  std::string out = "\"";
  for (char c : text)
    out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "\"";
}

std::string listed(const std::vector<std::string> &names) {
  const size_t shown = names.size() <= kNamed + 1 ? names.size() : kNamed;
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + long(shown), ", "),
                     shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
}

using Producers = std::map<std::string, const onnx::NodeProto *>;

/// The producers of a graph's values, added to those of the graphs around it.
Producers producersOf(const onnx::GraphProto &graph, Producers producers) {
  for (const onnx::NodeProto &node : graph.node())
    for (const std::string &output : node.output())
      producers[output] = &node;
  return producers;
}

/// The last op before an output, not counting movements and means.
struct Ending {
  std::string op;               ///< Softmax, Sigmoid, …; empty: an input or a constant
  const onnx::NodeProto *node = nullptr;
  bool inside = false;          ///< in a branch, whose values have no name outside
  bool exact = true;            ///< no op moves elements between it and the output
};

/// The Exp of a decomposed softmax, e^x ÷ Σ e^x, whose division is `node`; null if it is none. The operand of Exp
/// differs from the logits by at most a constant for each row, which does not change the loss of a softmax.
const onnx::NodeProto *exponentialOf(const onnx::NodeProto &node, const Producers &producers) {
  auto producer = [&](std::string value) -> const onnx::NodeProto * {
    for (int steps = 0; steps < 8; ++steps) {
      auto found = producers.find(value);
      if (found == producers.end())
        return nullptr;
      const onnx::NodeProto *made = found->second;
      if (!movesElements(made->op_type()) || made->input_size() == 0)
        return made;
      value = made->input(0);
    }
    return nullptr;
  };
  if (node.op_type() != "Div" || node.input_size() != 2)
    return nullptr;
  const onnx::NodeProto *exponential = producer(node.input(0)), *sum = producer(node.input(1));
  const bool matches = exponential && sum && exponential->op_type() == "Exp" && sum->op_type() == "ReduceSum" &&
                       exponential->input_size() == 1 && sum->input_size() > 0 &&
                       producer(sum->input(0)) == exponential;
  return matches ? exponential : nullptr;
}

Ending endingOf(const onnx::GraphProto &graph, std::string value, const Producers &around = {}, int depth = 0) {
  const Producers producers = producersOf(graph, around);
  Ending ending;
  for (int steps = 0; steps < 32; ++steps) {
    auto found = producers.find(value);
    if (found == producers.end())
      return ending;
    const onnx::NodeProto &node = *found->second;
    // A mean of probabilities is a probability.
    if ((movesElements(node.op_type()) || node.op_type() == "ReduceMean") && node.input_size() > 0) {
      ending.exact &= node.op_type() == "Identity";
      value = node.input(0);
      continue;
    }
    ending.op = node.op_type();
    ending.node = &node;
    if (const onnx::NodeProto *exponential = exponentialOf(node, producers)) {
      ending.op = "Softmax";
      ending.node = exponential;
    }
    if (node.op_type() != "If" || depth > 8)
      return ending;
    // If both branches end in the same op, the output ends in that op.
    int number = 0;
    while (number < node.output_size() && node.output(number) != value)
      ++number;
    std::optional<Ending> agreed;
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g() && number < attribute.g().output_size()) {
        Ending one = endingOf(attribute.g(), attribute.g().output(number).name(), producers, depth + 1);
        if (agreed && agreed->op != one.op)
          return ending;
        one.exact &= ending.exact;
        agreed = one;
      }
    if (agreed) {
      ending = *agreed;
      ending.inside = true;
    }
    return ending;
  }
  return ending;
}

int64_t intAttribute(const onnx::NodeProto &node, const std::string &name, int64_t otherwise) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.i();
  return otherwise;
}

class Suggestion {
public:
  Suggestion(MLIRContext &context, const std::string &path, const ImportOptions &options)
      : context(context), path(path), options(options) {}

  Expected<std::string> run() {
    auto read = readOnnxFile(path);
    if (!read)
      return read.status();
    file = read.take();
    findSettings();
    findScores();
    if (Status status = findSizes(); !status.ok())
      return status;
    chooseLoss();
    return text();
  }

private:
  const onnx::GraphProto &graph() const { return file.model.graph(); }

  bool isData(const onnx::ValueInfoProto &input) const {
    return !file.initializers.count(input.name()) && !options.model.fix.count(input.name());
  }

  //===--------------------------------------------------------------------===//
  // Settings
  //===--------------------------------------------------------------------===//

  /// Integers and truth values of one element that are compared with constants, or decide branches.
  void findSettings() {
    std::map<std::string, int64_t> compared;
    std::set<std::string> conditions;
    noteUses(graph(), compared, conditions);
    for (const onnx::ValueInfoProto &input : graph().input()) {
      const onnx::TypeProto_Tensor &type = input.type().tensor_type();
      if (!isData(input) || isFloatType(type.elem_type()) || type.shape().dim_size() > 1 ||
          (type.shape().dim_size() == 1 && type.shape().dim(0).dim_value() != 1))
        continue;
      FixedValue value;
      if (auto found = compared.find(input.name()); found != compared.end())
        value.integers = {found->second};
      else if (conditions.count(input.name()))
        value.integers = {1};
      else
        continue;
      value.numbers = {double(value.integers[0])};
      options.model.fix[input.name()] = value;
      settings[input.name()] = value.integers[0];
      isTruth[input.name()] = type.elem_type() == onnx::TensorProto::BOOL;
    }
  }

  void noteUses(const onnx::GraphProto &part, std::map<std::string, int64_t> &compared,
                std::set<std::string> &conditions) {
    static const std::set<std::string> comparisons = {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"};
    std::map<std::string, int64_t> constants;
    for (const onnx::NodeProto &node : part.node()) {
      if (node.op_type() == "Constant" && node.attribute_size() == 1 && node.output_size() == 1 &&
          node.attribute(0).has_t() && node.attribute(0).t().data_type() == onnx::TensorProto::INT64)
        if (auto bytes = tensorBytes(node.attribute(0).t()); bytes && bytes->size() == sizeof(int64_t))
          std::memcpy(&constants[node.output(0)], bytes->data(), sizeof(int64_t));
      for (int i = 0; comparisons.count(node.op_type()) && i < 2 && node.input_size() == 2; ++i) {
        std::optional<int64_t> number;
        const std::string &other = node.input(1 - i);
        if (auto found = constants.find(other); found != constants.end())
          number = found->second;
        else if (auto initializer = file.initializers.find(other);
                 initializer != file.initializers.end() && initializer->second.type == onnx::TensorProto::INT64 &&
                 initializer->second.data.size() == sizeof(int64_t))
          std::memcpy(&number.emplace(), initializer->second.data.data(), sizeof(int64_t));
        if (number)
          compared.emplace(node.input(i), *number);
      }
      if (node.op_type() == "If" && node.input_size() > 0)
        conditions.insert(node.input(0));
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g())
          noteUses(attribute.g(), compared, conditions);
    }
  }

  //===--------------------------------------------------------------------===//
  // Dimensions
  //===--------------------------------------------------------------------===//

  static bool isOpen(const onnx::TensorShapeProto_Dimension &dim) {
    return !dim.has_dim_value() || dim.dim_value() < 0;
  }

  /// The sample axis: the one called batch; else the first open one, if another input's sample axis is open, too.
  int64_t axisOf(const onnx::ValueInfoProto &input, bool openElsewhere) const {
    auto given = options.batchAxis.find(input.name());
    if (given != options.batchAxis.end())
      return given->second;
    const auto &shape = input.type().tensor_type().shape();
    const int64_t axis = sampleAxis(input, size_t(shape.dim_size()));
    if (axis != 0 || shape.dim_size() == 0 || isOpen(shape.dim(0)) || !openElsewhere)
      return axis;
    for (int i = 1; i < shape.dim_size(); ++i)
      if (isOpen(shape.dim(i)))
        return i;
    return axis;
  }

  /// Gives open dimensions sizes: the batch's, and the first of those tried with which the model can be imported.
  Status findSizes() {
    bool openBatch = false;
    for (const onnx::ValueInfoProto &input : graph().input())
      if (const auto &shape = input.type().tensor_type().shape(); isData(input) && shape.dim_size() > 0)
        openBatch |= isOpen(shape.dim(int(std::max<int64_t>(0, sampleAxis(input, size_t(shape.dim_size()))))));
    bool open = false;
    std::string problem;
    for (int64_t size : kSizes) {
      ImportOptions trial = options;
      dims.clear();
      shapes.clear();
      axes.clear();
      open = false;
      for (const onnx::ValueInfoProto &input : graph().input())
        if (isData(input))
          open |= sizeInput(input, openBatch, size, trial);
      auto imported = importModel(context, path, trial);
      if (imported) {
        model = imported.take();
        return Status::success();
      }
      if (problem.empty())
        problem = imported.message();
      if (!open)
        break;
    }
    return error("{}", problem);
  }

  /// True if the input has open dimensions that are no batch.
  bool sizeInput(const onnx::ValueInfoProto &input, bool openBatch, int64_t size, ImportOptions &trial) {
    const auto &shape = input.type().tensor_type().shape();
    if (trial.shapes.count(input.name()))
      return false;
    const int64_t axis = axisOf(input, openBatch);
    if (axis != sampleAxis(input, size_t(shape.dim_size())))
      trial.batchAxis[input.name()] = axes[input.name()] = axis;
    bool open = false, unnamed = false;
    std::vector<int64_t> sizes;
    for (int i = 0; i < shape.dim_size(); ++i) {
      const auto &dim = shape.dim(i);
      const int64_t chosen = i == axis ? kBatch : size;
      if (!isOpen(dim)) {
        sizes.push_back(dim.dim_value());
        continue;
      }
      open |= i != axis;
      const std::set<std::string> names = dimensionNames(dim.dim_param());
      const bool named = !isPlaceholder(dim.dim_param()) && !names.empty();
      unnamed |= !named;
      for (const std::string &name : named ? names : std::set<std::string>())
        if (!options.dims.count(name))
          trial.dims[name] = dims.try_emplace(name, chosen).first->second;
      sizes.push_back(named ? dimensionValue(dim.dim_param(), trial.dims).value_or(chosen) : chosen);
    }
    if (unnamed)
      trial.shapes[input.name()] = shapes[input.name()] = sizes;
    return open;
  }

  //===--------------------------------------------------------------------===//
  // The loss
  //===--------------------------------------------------------------------===//

  /// The output's shape; nullopt if the import dropped the output, since the loss does not need it.
  std::optional<llvm::ArrayRef<int64_t>> shapeOf(const std::string &output) {
    auto function = model.module->lookupSymbol<func::FuncOp>("forward");
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (auto name = function.getResultAttrOfType<StringAttr>(i, "train.name"); name && name.getValue() == output)
        return cast<RankedTensorType>(function.getFunctionType().getResult(i)).getShape();
    return std::nullopt;
  }

  /// Finds the scores of a detector. It ends in a selection of boxes, which has no gradient, so the loss reads the
  /// scores before that.
  void findScores() {
    for (const onnx::NodeProto &node : graph().node()) {
      if (node.op_type() != "NonMaxSuppression" || node.input_size() < 2)
        continue;
      const Ending ending = endingOf(graph(), node.input(1));
      if (!ending.node)
        continue;
      // Only elementwise losses: movements in between may have changed the class axis.
      const bool known = !ending.inside && ending.op == "Sigmoid";
      scores = {known ? ending.node->input(0) : node.input(1), known ? "bce_with_logits" : "bce", nodeName(node)};
      options.lossOf = {{scores.of}};
      return;
    }
  }

  bool hasIntegerData() const {
    for (const onnx::ValueInfoProto &input : graph().input())
      if (isData(input) && !isFloatType(input.type().tensor_type().elem_type()))
        return true;
    return false;
  }

  void key(const std::string &name, const std::string &value, const std::string &comment = {}) {
    loss += fmt::format("{} = {}{}\n", name, value, comment.empty() ? "" : "  # " + comment);
  }

  /// Class labels for scores along `axis`.
  void classes(const std::string &of, llvm::ArrayRef<int64_t> shape, int64_t axis, const std::string &comment) {
    if (axis < 0)
      axis += int64_t(shape.size());
    if (shape.size() == 3 && axis == 2 && !hasIntegerData()) {
      key("kind", "\"ctc\"", "check: cross_entropy with class_axis = -1 if every step has a label of its own");
      key("of", quoted(of), comment);
      key("input", "\"logits\"");
      key("time_axis", "1");
      key("target", "\"target\"", "[samples, labels], padded with -100; class 0 is the blank");
      key("max_target_length", std::to_string(std::max<int64_t>(1, shape[1] / 2)));
      return;
    }
    key("kind", "\"cross_entropy\"");
    key("of", quoted(of), comment);
    key("target", "\"target\"", "class numbers");
    if (shape.size() > 2 && axis != 1)
      key("class_axis", "-1");
  }

  void chooseLoss() {
    for (int i = 0; i < graph().output_size(); ++i)
      if (auto shape = shapeOf(graph().output(i).name());
          shape && shape->empty() && isFloatType(graph().output(i).type().tensor_type().elem_type()))
        return key("output", quoted(graph().output(i).name()));
    if (!scores.of.empty()) {
      key("kind", quoted(scores.kind), "check: boxes need a loss of their own");
      key("of", quoted(scores.of), "the scores before " + scores.node);
      key("target", "\"target\"", "between 0 and 1, of the scores' shape");
      return;
    }
    for (int i = 0; i < graph().output_size(); ++i)
      if (chooseLossOf(i))
        return;
    for (int i = 0; i < graph().output_size(); ++i)
      if (isFloatType(graph().output(i).type().tensor_type().elem_type())) {
        key("kind", "\"mse\"", "check: nothing says what the output means");
        key("of", quoted(graph().output(i).name()));
        key("target", "\"target\"");
        return;
      }
    loss = "# check: no output of the model is floating-point; name a value inside as of, and its kind\n";
  }

  /// True if the output says what its loss is.
  bool chooseLossOf(int output) {
    const std::string &name = graph().output(output).name();
    const Ending ending = endingOf(graph(), name);
    const std::optional<llvm::ArrayRef<int64_t>> computed = shapeOf(name);
    if (!ending.node || !computed)
      return false;
    const std::string of = ending.inside ? std::string() : ending.node->input(0);
    llvm::ArrayRef<int64_t> shape = *computed;
    const std::string what = fmt::format("before {}", nodeName(*ending.node));
    const int64_t last = int64_t(shape.size()) - 1;
    if (ending.op == "Softmax" && !of.empty() && ending.exact) {
      classes(of, shape, intAttribute(*ending.node, "axis", last), what);
    } else if (ending.op == "LogSoftmax" && ending.exact) {
      key("kind", "\"nll\"");
      key("of", quoted(name));
      key("target", "\"target\"", "class numbers");
      if (shape.size() > 2 && intAttribute(*ending.node, "axis", last) != 1)
        key("class_axis", "-1");
    } else if (ending.op == "Sigmoid" || ending.op == "HardSigmoid") {
      const bool logits = ending.op == "Sigmoid" && !of.empty() && ending.exact;
      key("kind", logits ? "\"bce_with_logits\"" : "\"bce\"");
      key("of", quoted(logits ? of : name), logits ? what : "");
      key("target", "\"target\"", "between 0 and 1, of the output's shape");
    } else if (ending.op == "ArgMax" && !of.empty()) {
      key("kind", "\"cross_entropy\"");
      key("of", quoted(of), what);
      key("target", "\"target\"", "class numbers");
      if (const int64_t axis = intAttribute(*ending.node, "axis", 0); axis != 1)
        key("class_axis", std::to_string(axis));
    } else if ((ending.op == "Gemm" || ending.op == "MatMul" || ending.op == "Add") && shape.size() >= 2 &&
               shape.back() > 1) {
      key("kind", "\"cross_entropy\"", "check: mse if the outputs are no scores of classes");
      key("of", quoted(name));
      key("target", "\"target\"", "class numbers");
      if (shape.size() > 2)
        key("class_axis", "-1");
    } else {
      return false;
    }
    return true;
  }

  //===--------------------------------------------------------------------===//
  // The text
  //===--------------------------------------------------------------------===//

  std::string text() {
    std::string out =
        fmt::format("# A recipe for {}, by what its graph shows. Lines with \"check\" are guesses.\n", file.name);
    std::vector<std::string> frozen, doubtful;
    uint64_t trained = 0, stored = 0; // stored: in 4 bits
    for (const auto &[name, initializer] : model.initializers) {
      (initializer.type.dtype() == plan::U8 ? stored : trained) += !initializer.constant;
      if (initializer.constant && model.module->lookupSymbol<train::VariableOp>(name))
        frozen.push_back(fmt::format("{} ({})", name, initializer.sign));
      if (initializer.sign.starts_with("doubtful"))
        doubtful.push_back(name);
    }
    std::string inside;
    if (!dims.empty()) {
      inside += "dims = { ";
      for (auto entry = dims.begin(); entry != dims.end(); ++entry)
        inside += fmt::format("{}{} = {}", entry == dims.begin() ? "" : ", ", quoted(entry->first), entry->second);
      inside += " }\n";
    }
    if (!shapes.empty()) {
      inside += "shapes = { ";
      for (auto entry = shapes.begin(); entry != shapes.end(); ++entry)
        inside += fmt::format("{}{} = [{}]", entry == shapes.begin() ? "" : ", ", quoted(entry->first),
                              fmt::join(entry->second, ", "));
      inside += " }  # check: the sizes of your data\n";
    }
    if (!settings.empty()) {
      inside += "fix = { ";
      for (auto entry = settings.begin(); entry != settings.end(); ++entry)
        inside +=
            fmt::format("{}{} = {}", entry == settings.begin() ? "" : ", ", quoted(entry->first),
                        isTruth.at(entry->first) ? (entry->second ? "true" : "false") : std::to_string(entry->second));
      inside += " }  # check: what the model compares it with\n";
    }
    if (!frozen.empty())
      inside += fmt::format("# frozen: {}\n", listed(frozen));
    if (!doubtful.empty())
      inside += fmt::format("# check: trained, though they may be constants: {}\n", listed(doubtful));
    if (trained + stored == 0)
      inside += "# check: nothing of the file looks like a weight; name what to train in trainable\n";
    if (!inside.empty())
      out += "\n[model]\n" + inside;
    out += "\n[loss]\n" + loss;
    out += "\n[optimizer]\nkind = \"adamw\"\nlr = 1e-3  # check: a tenth of it where the weights are trained already\n";
    if (stored)
      out += "\n# Weights of 4 bits stay as they are; adapters are trained beside them.\n[adapter]\ntargets = [\"*\"]  "
             "# check: "
             "the matrices to adapt\nrank = 4\nalpha = 8\n";
    if (!axes.empty()) {
      out += "\n[data.batch_axis]\n";
      for (const auto &[name, axis] : axes)
        out += fmt::format("{} = {}\n", quoted(name), axis);
    }
    return out;
  }

  MLIRContext &context;
  const std::string &path;
  ImportOptions options;
  OnnxFile file;
  ImportedModel model;
  std::map<std::string, int64_t> settings, dims, axes;
  std::map<std::string, bool> isTruth;
  std::map<std::string, std::vector<int64_t>> shapes;
  struct {
    std::string of, kind, node;
  } scores;         ///< of a detector; else empty
  std::string loss; ///< the keys of [loss]
};

} // namespace

Expected<std::string> suggestRecipe(MLIRContext &context, const std::string &path, const ImportOptions &options) {
  return Suggestion(context, path, options).run();
}

} // namespace tcc::frontend

//===- Import.cpp - import an ONNX forward graph as a train module --------===//
//
// Imports everything except the nodes: variables, the function with its arguments and results, and the facts about the
// model as a whole.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/WeightFacts.h"
#include "frontend/BatchAxis.h"
#include "frontend/Dequantize.h"
#include "frontend/Dimensions.h"
#include "frontend/Draws.h"
#include "frontend/FakeQuantize.h"
#include "frontend/FixedInputs.h"
#include "frontend/GraphImport.h"
#include "frontend/Import.h"
#include "frontend/InnerWeights.h"
#include "frontend/ModeNodes.h"
#include "frontend/NodeImport.h"
#include "frontend/PlainExport.h"
#include "frontend/Weights.h"
#include "support/NearestName.h"
#include "support/PlanNames.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <cstring>
#include <llvm/ADT/StringSet.h>
#include <llvm/Support/raw_ostream.h>

using namespace mlir;

namespace tcc::frontend {

namespace {

/// Finds the sample axes of a static export's outputs that the ONNX library cannot infer: a second import, with one
/// more sample, shows which axis grows.
void findGrownAxes(MLIRContext &context, const std::string &path, const ImportOptions &options, func::FuncOp forward) {
  auto dimsOf = [](func::FuncOp function, unsigned i) {
    return cast<RankedTensorType>(function.getFunctionType().getResult(i)).getShape();
  };
  auto isOpen = [&](unsigned i) {
    return !forward.getResultAttr(i, "train.sample_axis") && !forward.getResultAttr(i, "train.inner") &&
           !dimsOf(forward, i).empty();
  };
  if (llvm::none_of(llvm::seq(forward.getNumResults()), isOpen))
    return;
  ImportOptions trial = options;
  trial.isTrial = true;
  int64_t batch = 0;
  for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
    auto axis = forward.getArgAttrOfType<IntegerAttr>(i, "train.sample_axis");
    Shape shape(train::shapeOf(forward.getArgument(i)));
    if (!axis || axis.getInt() < 0 || axis.getInt() >= int64_t(shape.size()))
      continue;
    int64_t &samples = shape[size_t(axis.getInt())];
    batch = batch ? batch : samples;
    if (samples != batch)
      continue;
    ++samples;
    trial.shapes[forward.getArgAttrOfType<StringAttr>(i, "train.name").str()] = {shape.begin(), shape.end()};
  }
  if (!batch)
    return;
  Expected<ImportedModel> grown = importModel(context, path, trial);
  if (!grown)
    return;
  auto other = grown->module->lookupSymbol<func::FuncOp>(forward.getSymName());
  if (!other || other.getNumResults() != forward.getNumResults())
    return;
  for (unsigned i = 0; i < forward.getNumResults(); ++i) {
    if (!isOpen(i))
      continue;
    llvm::ArrayRef<int64_t> old = dimsOf(forward, i), now = dimsOf(other, i);
    for (size_t d = 0; d < old.size() && old.size() == now.size(); ++d)
      if (old[d] == batch && now[d] == batch + 1) {
        forward.setResultAttr(i, "train.sample_axis", Builder(&context).getI64IntegerAttr(int64_t(d)));
        break;
      }
  }
}

} // namespace

//===----------------------------------------------------------------------===//
// Variables and the function
//===----------------------------------------------------------------------===//

void GraphImport::createVariables() {
  for (const auto &[name, role] : roles.initializers) {
    if (role.role == Role::Constant)
      continue;
    const OnnxInitializer &initializer = file.initializers.at(name);
    Type type = RankedTensorType::get(initializer.dims,
                                      importedElementType(&context, initializer.type, options.forceF64));
    builder.setInsertionPointToEnd(module->getBody());
    auto variable = train::VariableOp::create(builder, locationOf(role.node.empty() ? name : role.node), name, type,
                                              role.role == Role::Parameter ? roles::kParameter : roles::kFrozen,
                                              FloatAttr(), ElementsAttr(), int64_t(-1));
    train::setWeightFacts(variable, {role.display, role.torchName, role.uses, role.lifted, role.torch});
    variables.insert(name);
  }
}

/// The exported symbol of a dimension; empty if it has none.
static std::string exportedDim(const onnx::ValueInfoProto &value, int64_t axis) {
  const auto &shape = value.type().tensor_type().shape();
  std::string symbol = axis < shape.dim_size() ? shape.dim(int(axis)).dim_param() : "";
  return isPlaceholder(symbol) ? std::string() : symbol;
}

/// The axis of an output that has the symbol of the inputs' sample axes; -1 if there is none. Symbols that contain
/// "batch" take precedence over others, which may be that of a constant input's first axis.
static int64_t outputSampleAxis(const onnx::ValueInfoProto &output, const std::set<std::string> &symbols) {
  auto isBatch = [](const std::string &symbol) { return symbol.find("batch") != std::string::npos; };
  bool batchOnly = llvm::any_of(symbols, isBatch);
  for (int64_t axis = 0; axis < output.type().tensor_type().shape().dim_size(); ++axis)
    if (std::string symbol = exportedDim(output, axis);
        !symbol.empty() && symbols.count(symbol) && (!batchOnly || isBatch(symbol)))
      return axis;
  return -1;
}

Status GraphImport::createFunction() {
  llvm::SmallVector<Type> types;
  llvm::SmallVector<std::string> names, lengths;
  llvm::SmallVector<int64_t> axes;
  // Read symbols from the file's declarations: in the prepared graph dimensions are numbers.
  llvm::StringMap<const onnx::ValueInfoProto *> exported;
  for (const onnx::ValueInfoProto &input : file.model.graph().input())
    exported.try_emplace(input.name(), &input);
  auto inputInfo = [&](const std::string &name) -> const onnx::ValueInfoProto & {
    const onnx::ValueInfoProto *found = exported.lookup(name);
    return found ? *found : onnx::ValueInfoProto::default_instance();
  };
  for (const onnx::ValueInfoProto &input : model.graph.input()) {
    if (file.initializers.count(input.name()))
      continue;
    const onnx::TypeProto_Tensor &type = input.type().tensor_type();
    Type element = importedElementType(&context, type.elem_type(), options.forceF64);
    if (!element) {
      problems.push_back(fmt::format("input {} has the element type {}, which is not supported", input.name(),
                                     onnxTypeName(type.elem_type())));
      scopes.front().slots[input.name()].failed = true;
      continue;
    }
    Shape shape;
    for (const auto &dim : type.shape().dim())
      shape.push_back(dim.dim_value());
    if (std::string problem = tensorProblem(shape, uint64_t(train::elementBytes(element))); !problem.empty())
      return error("{}: input {}: its shape {} is not valid: {}", file.path, input.name(),
                         shapeText(llvm::ArrayRef(shape).take_front(8)), problem);
    types.push_back(RankedTensorType::get(shape, element));
    names.push_back(input.name());
    auto given = options.batchAxis.find(input.name());
    int64_t axis = given != options.batchAxis.end() ? given->second : sampleAxis(inputInfo(input.name()), shape.size());
    if (axis < -1 || axis >= int64_t(shape.size()))
      return error("data.batch_axis.{} is {}, but the input has {} dimensions", input.name(), axis, shape.size());
    axes.push_back(axis);
    lengths.push_back(axis < 0 ? "" : exportedDim(inputInfo(input.name()), axis == 0 ? 1 : 0));
    if (std::string symbol = axis >= 0 ? exportedDim(inputInfo(input.name()), axis) : ""; !symbol.empty())
      sampleDims.insert(symbol);
  }
  for (const auto &[name, axis] : options.batchAxis)
    if (!llvm::is_contained(names, name))
      return error("data.batch_axis.{}: the model has no such input; it has {}", name, fmt::join(names, ", "));
  builder.setInsertionPointToEnd(module->getBody());
  function = func::FuncOp::create(builder, locationOf("forward"), "forward", builder.getFunctionType(types, {}));
  Block *body = function.addEntryBlock();
  // Set all attributes at once, since each change rebuilds the whole list.
  llvm::SmallVector<Attribute> attributes;
  for (size_t i = 0; i < types.size(); ++i) {
    NamedAttrList own;
    own.append("train.name", builder.getStringAttr(names[i]));
    own.append("train.sample_axis", builder.getI64IntegerAttr(axes[i]));
    if (!lengths[i].empty())
      own.append("train.length", builder.getStringAttr(lengths[i]));
    attributes.push_back(own.getDictionary(&context));
    scopes.front().slots[names[i]] = Slot{body->getArgument(unsigned(i)), std::nullopt};
  }
  function.setArgAttrsAttr(builder.getArrayAttr(attributes));
  builder.setInsertionPointToEnd(body);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// The imported model
//===----------------------------------------------------------------------===//

/// Replaces a constant that repeats along a dimension (such as a mask for each sample) by a smaller one and a
/// broadcast.
void GraphImport::shrinkConstants() {
  for (auto constant : llvm::make_early_inc_range(function.getBody().front().getOps<train::ConstantOp>())) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!dense || dense.isSplat() || dense.getNumElements() < 64)
      continue;
    train::HostTensor tensor = train::HostTensor::fromAttribute(dense);
    const int64_t element = train::elementBytes(tensor.elementType());
    Shape shape(tensor.shape());
    std::string bytes(tensor.data(), tensor.sizeBytes());
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const int64_t extent = shape[dim], outer = countOf(llvm::ArrayRef(shape).take_front(dim));
      const size_t inner = size_t(countOf(llvm::ArrayRef(shape).drop_front(dim + 1)) * element);
      bool repeats = extent > 1;
      for (int64_t o = 0; repeats && o < outer; ++o)
        for (int64_t i = 1; repeats && i < extent; ++i)
          repeats = !std::memcmp(&bytes[size_t(o * extent + i) * inner], &bytes[size_t(o * extent) * inner], inner);
      if (!repeats)
        continue;
      std::string kept;
      for (int64_t o = 0; o < outer; ++o)
        kept.append(bytes, size_t(o * extent) * inner, inner);
      bytes.swap(kept);
      shape[dim] = 1;
    }
    if (llvm::ArrayRef<int64_t>(shape) == tensor.shape())
      continue;
    train::HostTensor small(RankedTensorType::get(shape, tensor.elementType()));
    std::memcpy(small.data(), bytes.data(), bytes.size());
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(constant);
    Value stored = train::ConstantOp::create(builder, constant.getLoc(), small.toAttribute());
    Value spread = train::BroadcastOp::create(builder, constant.getLoc(), constant.getType(), stored);
    constant.replaceAllUsesWith(spread);
    constant.erase();
  }
}

std::map<std::string, std::string> GraphImport::namedValues() const {
  std::map<std::string, std::string> values;
  for (const onnx::NodeProto &node : model.graph.node())
    for (const std::string &output : node.output())
      values.emplace(output, output);
  for (const onnx::NodeProto &node : model.graph.node())
    if (node.output_size() == 1)
      values.emplace(node.name(), node.output(0));
  values.erase("");
  return values;
}

bool GraphImport::cutBehindLoss() {
  if (options.lossOf.empty() || nodes > kMostNodes)
    return false;
  const std::map<std::string, std::string> values = namedValues();
  const llvm::StringMap<Slot> &slots = scopes.front().slots;
  for (const LossValue &named : options.lossOf) {
    auto value = values.find(named.name);
    auto slot = value == values.end() ? slots.end() : slots.find(value->second);
    if (slot == slots.end() || slot->second.failed)
      return false;
  }
  std::string outputs;
  for (const onnx::ValueInfoProto &output : model.graph.output())
    if (auto slot = slots.find(output.name()); slot != slots.end() && slot->second.failed)
      outputs += (outputs.empty() ? "" : ", ") + output.name();
  warnings.push_back(fmt::format("{}\n  loss.of needs none of this, so the rest is compiled{}{}",
                                 allProblems().message(), outputs.empty() ? "" : "; predict leaves out ", outputs));
  return true;
}

Status GraphImport::returnLossValues(llvm::SmallVectorImpl<Value> &results, llvm::SmallVectorImpl<Attribute> &names) {
  const std::map<std::string, std::string> values = namedValues();
  for (const auto &[name, where] : options.lossOf) {
    if (llvm::is_contained(names, builder.getStringAttr(name)))
      continue;
    auto found = values.find(name);
    const std::string &place = where.empty() ? file.path : where;
    if (found == values.end()) {
      std::vector<std::string> known;
      for (const auto &[value, output] : values)
        known.push_back(value);
      std::string outputs;
      for (const onnx::ValueInfoProto &output : model.graph.output())
        outputs += (outputs.empty() ? "" : ", ") + output.name();
      std::string nearest = nearestName(name, known);
      return error("{}: loss.of: the graph has no output `{}`, and no node computes it; {}the outputs are {}", place,
                         name, nearest.empty() ? "" : "the nearest is `" + nearest + "`; ", outputs);
    }
    Expected<Slot> slot = lookUp(found->second, locationOf(name));
    if (!slot || !slot->tensor)
      return error("{}: loss.of: `{}` is a sequence or an optional value, and a loss needs a tensor; name another",
                         place, name);
    results.push_back(slot->tensor);
    names.push_back(builder.getStringAttr(name));
  }
  return Status::success();
}

Status GraphImport::finish() {
  llvm::SmallVector<Value> results;
  llvm::SmallVector<Attribute> names;
  for (const onnx::ValueInfoProto &output : model.graph.output()) {
    Expected<Slot> slot = lookUp(output.name(), locationOf(output.name()));
    if (!slot)
      return error("{}: graph output {} is computed by no node", file.path, output.name());
    if (slot->failed) // depends on an unsupported node
      continue;
    if (!slot->tensor)
      return error("{}: graph output {} is a sequence; only tensors are supported", file.path, output.name());
    results.push_back(slot->tensor);
    names.push_back(builder.getStringAttr(output.name()));
  }
  const size_t outputs = results.size();
  if (Status status = returnLossValues(results, names); !status.ok())
    return status;
  func::ReturnOp::create(builder, locationOf("return"), results);
  function.setFunctionType(builder.getFunctionType(function.getArgumentTypes(), TypeRange(ValueRange(results))));
  llvm::SmallVector<Attribute> attributes;
  llvm::StringMap<const onnx::ValueInfoProto *> declared;
  for (const onnx::ValueInfoProto &output : file.model.graph().output())
    declared.try_emplace(output.name(), &output);
  for (size_t i = 0; i < names.size(); ++i) {
    NamedAttrList list(builder.getDictionaryAttr(builder.getNamedAttr("train.name", names[i])));
    if (i >= outputs) {
      list.set("train.inner", builder.getUnitAttr());
      attributes.push_back(list.getDictionary(&context));
      continue;
    }
    const onnx::ValueInfoProto *output = declared.lookup(cast<StringAttr>(names[i]).getValue());
    int64_t axis = output ? outputSampleAxis(*output, sampleDims) : -1;
    if (auto grown = model.sampledOutputs.find(cast<StringAttr>(names[i]).str());
        axis < 0 && grown != model.sampledOutputs.end())
      axis = grown->second;
    if (axis >= 0)
      list.set("train.sample_axis", builder.getI64IntegerAttr(axis));
    attributes.push_back(list.getDictionary(&context));
  }
  function.setResAttrsAttr(builder.getArrayAttr(attributes));
  // Erase ops that no output needs.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  // Erase unread weights of inner graphs, such as those of a branch that is not taken.
  llvm::StringSet<> read;
  module->walk([&](train::ReadOp op) { read.insert(op.getVariable()); });
  for (auto variable : llvm::make_early_inc_range(module->getOps<train::VariableOp>()))
    if (!file.initializers.at(variable.getSymName().str()).home.empty() && !read.contains(variable.getSymName())) {
      variables.erase(variable.getSymName().str());
      variable.erase();
    }
  if (!disagreements.empty()) {
    constexpr size_t kNamed = 3;
    const size_t named = disagreements.size() <= kNamed + 1 ? disagreements.size() : kNamed;
    warnings.push_back(fmt::format(
        "{}: shapes that the file declares are wrong for these inputs; the computed ones hold: {}{}", file.name,
        fmt::join(disagreements.begin(), disagreements.begin() + long(named), "; "),
        named < disagreements.size() ? fmt::format("; and {} more", disagreements.size() - named) : ""));
  }
  shrinkConstants();
  diagnostics.clear();
  if (failed(verify(*module)))
    return error("{}: the imported program is not valid: {}", file.path, diagnostics);
  return Status::success();
}

/// All problems in one message.
Status GraphImport::allProblems() const {
  if (problems.size() == 1 && !firstProblem.empty())
    return error("{}", firstProblem);
  return listedProblems(file.path, problems);
}

Expected<OwningOpRef<ModuleOp>> GraphImport::run() {
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    diagnostics += (diagnostics.empty() ? "" : "; ") + diagnostic.str();
    return success();
  });
  if (file.initializers.count("forward"))
    return error("{}: an initializer is called \"forward\", which is reserved: rename it", file.path);
  module = ModuleOp::create(locationOf(file.name));
  scopes.emplace_back().opsets = &model.opsets;
  createVariables();
  if (Status status = createFunction(); !status.ok())
    return status;
  // Constants that are stored in the file do not count against the limit.
  budget.constantBytes += file.model.ByteSizeLong();
  for (const auto &[name, initializer] : file.initializers)
    if (!initializer.home.empty())
      budget.constantBytes += initializer.bytes;
  for (const onnx::NodeProto &node : model.graph.node()) {
    importNode(node);
    if (nodes > kMostNodes)
      break;
  }
  if (!problems.empty() && !cutBehindLoss())
    return allProblems();
  if (Status status = finish(); !status.ok())
    return status;
  return std::move(module);
}

Expected<FixedInputs> fixInputs(OnnxFile &file, const ImportOptions &options) {
  return fixInputs(file, options.model.fix, options.dims, options.shapes, options.where);
}

/// Options of the ONNX library's part.
PrepareOptions prepareOptions(const ImportOptions &options) {
  PrepareOptions prepare;
  prepare.dims = options.dims;
  prepare.shapes = options.shapes;
  prepare.batchAxis = options.batchAxis;
  for (const auto &[name, value] : options.model.fix)
    prepare.shapes.erase(name);
  prepare.isolate = options.isolate;
  auto place = [&](const char *key) {
    auto found = options.where.find(key);
    return found == options.where.end() ? std::string() : found->second + ": ";
  };
  prepare.dimsPlace = place("model.dims");
  prepare.stopGradient = options.model.stopGradient;
  prepare.stopPlace = place("model.stop_gradient");
  prepare.knows = [](const std::string &domain, const std::string &op, int64_t version) {
    return findOp(domain, op, version) != nullptr;
  };
  return prepare;
}

/// Tells, from the table of ops, what becomes of a node's inputs.
UseOfInput inputUses(const PreparedModel &model) {
  return [&opsets = model.opsets](const onnx::NodeProto &node, int input) {
    const std::string domain = canonicalDomain(node.domain());
    auto version = opsets.find(domain);
    const OpEntry *entry =
        findOp(domain, node.op_type(), version == opsets.end() ? (domain.empty() ? kNewestOpset : 1) : version->second);
    return !entry                  ? InputUse::Value
           : entry->codes == input ? InputUse::FourBits
           : !entry->reads(input)  ? InputUse::Value
           : entry->fourBits       ? InputUse::Steps
                                   : InputUse::WhenCompiling;
  };
}

/// Dequantises the model if the options ask for it; returns warnings.
Expected<std::vector<std::string>> readQuantization(OnnxFile &file, const ImportOptions &options) {
  return options.dequantize ? dequantize(file) : std::vector<std::string>();
}

std::string problemOfShapes(MLIRContext &context, const std::string &path, const ImportOptions &options,
                            const std::map<std::string, std::vector<int64_t>> &shapes) {
  if (shapes.empty())
    return {};
  ImportOptions trial = options;
  trial.shapes = shapes;
  Expected<ImportedModel> imported = importModel(context, path, trial);
  if (imported)
    return {};
  // Take the first of several problems from its line; a single problem follows the file's name.
  const std::string &text = imported.message();
  const size_t line = text.find("\n  ");
  std::string problem = line == text.npos ? text : text.substr(line + 3);
  if (problem.starts_with(path + ": "))
    problem.erase(0, path.size() + 2);
  return problem.substr(0, problem.find('\n'));
}

Status refusalOf(const std::string &path, const std::vector<std::string> &refusals) {
  return error(
      "{}: the exporter computed with weights, and what it stored is not to be trained in their place: {}{}\n  "
      "export with torch.onnx.export(model, args, path, dynamo=True, optimize=False), which keeps the weights, "
      "or name what shall stay as it is in model.frozen",
      path, refusals.size() > 1 ? "\n  " : "", fmt::join(refusals, "\n  "));
}

/// A warning that a torch export does not say which parameters are frozen; empty if the recipe says so.
std::string unsaidOf(const OnnxFile &file, const onnx::GraphProto &graph, const Roles &roles,
                     const ModelSettings &settings) {
  size_t trained = 0;
  for (const auto &[name, role] : roles.initializers)
    trained += role.role == Role::Parameter;
  if (file.model.producer_name() != "pytorch" || settings.trainable || !settings.frozen.empty() ||
      !settings.stopGradient.empty() || !stopsIn(graph).empty() || !trained)
    return {};
  return fmt::format("{}: an export does not say requires_grad_(False) or torch.no_grad(), so all {} parameters are "
                     "trained; name those to leave alone in model.frozen, and values without a gradient in "
                     "model.stop_gradient",
                     file.name, trained);
}

/// Records what the export needs to write quantised integers.
static void describeQuantization(const OnnxFile &file, ImportedModel &result) {
  for (const auto &[name, quantized] : file.quantized) {
    plan::Quantized &out = result.quantized.emplace_back();
    out.set_name(name);
    out.mutable_type()->set_dtype(storedType(quantized.stored.type));
    for (int64_t dim : quantized.stored.dims)
      out.mutable_type()->add_dims(dim);
    out.mutable_scale()->Assign(quantized.scale.begin(), quantized.scale.end());
    out.mutable_zero_point()->Assign(quantized.zeroPoint.begin(), quantized.zeroPoint.end());
    out.set_axis(quantized.axis);
    out.set_observed(quantized.observed);
    out.set_scale_name(quantized.scaleName);
    out.set_zero_point_name(quantized.zeroPointName);
    out.set_level(quantized.level);
    out.set_integers(storedType(quantized.type));
    out.mutable_scale_of()->Assign(quantized.scaleOf.begin(), quantized.scaleOf.end());
  }
  for (const OnnxObservedRange &range : file.ranges) {
    plan::QuantizedRange &out = result.ranges.emplace_back();
    out.set_scale_name(range.scaleName);
    out.set_zero_point_name(range.zeroPointName);
    out.set_low(range.low);
    out.set_high(range.high);
    out.set_type(storedType(range.type));
    out.set_symmetric(range.symmetric);
  }
}

Expected<ImportedModel> importModel(MLIRContext &context, const std::string &path, const ImportOptions &options,
                                    std::vector<std::string> *problems) {
  context.loadDialect<train::TrainDialect, func::FuncDialect>();
  Expected<OnnxFile> read = readOnnxFile(path, options.absentData);
  if (!read)
    return read.status();
  auto file = std::make_shared<OnnxFile>(read.take());
  std::set<std::string> externalFiles;
  for (const auto &[name, initializer] : file->initializers)
    if (initializer.external())
      externalFiles.insert(initializer.file);
  TCC_TRY(fixed, fixInputs(*file, options));
  externalFiles.insert(fixed.files.begin(), fixed.files.end());
  TCC_TRY(dequantized, readQuantization(*file, options));
  const PlainExport plain = plainExport(*file, options.shapes);
  const std::string inferenceWarning = inferenceExport(*file);
  TCC_TRY(restored, restoreWeights(*file, options.model));
  if (Status taken = takeInnerWeights(*file); !taken.ok())
    return taken;
  TCC_TRY(prepared, prepareModel(*file, prepareOptions(options)));
  auto standard = prepared.opsets.find("");
  TCC_TRY(modeWarnings, checkModeNodes(file->name, prepared.graph,
                                       standard == prepared.opsets.end() ? kNewestOpset : standard->second,
                                       options.model, options.where));
  for (onnx::FunctionProto &function : prepared.functions)
    dropFakeQuantize(function);
  TCC_TRY(rounded, fakeQuantize(*file, prepared.graph, options.model, options.where));
  TCC_TRY(roles, decideRoles(*file, prepared.graph, options.model, options.where, inputUses(prepared)));

  GraphImport import(context, *file, prepared, roles, options);
  Expected<OwningOpRef<ModuleOp>> module = import.run();
  if (!module) {
    if (problems)
      *problems = import.problems;
    return module.status();
  }
  ImportedModel result;
  result.module = module.take();
  if (!options.isTrial && import.sampleDims.empty())
    findGrownAxes(context, path, options, result.module->lookupSymbol<func::FuncOp>("forward"));
  result.name = file->name;
  // A plain export gets one warning, which includes everything about its weights.
  std::vector<std::string> lines = restored.lines([&](const std::string &name) { return isTrained(roles, name); });
  lines.insert(lines.end(), roles.warnings.begin(), roles.warnings.end());
  if (!plain.warning.empty())
    result.warnings.push_back(fmt::format("{}{}{}", plain.text(problemOfShapes(context, path, options, plain.larger)),
                                          lines.empty() ? "" : "\n  ", fmt::join(lines, "\n  ")));
  else
    result.warnings = lines;
  result.refusals = refusalsOf(restored, roles);
  result.unsaid = unsaidOf(*file, prepared.graph, roles, options.model);
  if (plain.warning.empty() && !options.where.contains("model.dropout") && !options.where.contains("model.batch_norm"))
    result.inferenceWarning = inferenceWarning;
  result.warnings.insert(result.warnings.end(), dequantized.begin(), dequantized.end());
  result.warnings.insert(result.warnings.end(), prepared.warnings.begin(), prepared.warnings.end());
  for (const std::vector<std::string> *more : {&rounded, &modeWarnings, &import.warnings})
    result.warnings.insert(result.warnings.end(), more->begin(), more->end());
  for (const std::string &node : openDraws(*result.module))
    result.warnings.push_back(
        fmt::format("{}: node {} draws 0 or 1 in evaluation and prediction, too; if the module does so in train() mode "
                    "alone, as AlphaDropout, use a plan of its export in eval() mode there, with --from RUN",
                    file->name, node));
  TCC_TRY(stripped, strippedModel(*file, import.variables));
  result.strippedModel = std::move(stripped);
  for (const auto &[name, initializer] : file->initializers) {
    if (!initializer.home.empty() && !import.variables.count(name))
      continue;
    const InitializerRole &role = roles.initializers.at(name);
    Initializer &out = result.initializers[name];
    out.name = name;
    out.type.set_dtype(storedType(initializer.type));
    for (int64_t dim : initializer.dims)
      out.type.add_dims(dim);
    out.bytes = initializer.bytes;
    if (initializer.external()) {
      out.file = initializer.file;
      out.offset = initializer.offset;
    } else {
      out.data = initializer.data.data();
    }
    out.display = role.display;
    out.node = role.node;
    out.constant = role.lifted;
    out.list = listName(role.list);
    out.sign = role.sign;
    out.torch = role.torch;
    out.torchName = role.torchName;
    out.namedByNode = role.namedByNode;
    out.computed = role.computed;
  }
  for (const auto &[name, tie] : file->ties) {
    TiedInitializer &out = result.ties[name];
    out.of = tie.of;
    out.permutation = tie.permutation;
    out.type.set_dtype(storedType(tie.copy.type));
    for (int64_t dim : tie.copy.dims)
      out.type.add_dims(dim);
  }
  if (!options.forceF64) // gradcheck exports nothing
    describeQuantization(*file, result);
  result.externalFiles.assign(externalFiles.begin(), externalFiles.end());
  result.storage = file;
  return result;
}

} // namespace tcc::frontend

//===- Inspect.cpp - tcc inspect: describe a model as text ----------------===//
#include "frontend/FakeQuantize.h"
#include "frontend/FixedInputs.h"
#include "frontend/Import.h"
#include "frontend/InnerWeights.h"
#include "frontend/NodeImport.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/Parameters.h"
#include "frontend/PlainExport.h"
#include "frontend/Suggest.h"
#include "frontend/Weights.h"
#include "support/BytesText.h"

namespace tcc::frontend {

Expected<FixedInputs> fixInputs(OnnxFile &file, const ImportOptions &options);
PrepareOptions prepareOptions(const ImportOptions &options);
Expected<std::vector<std::string>> readQuantization(OnnxFile &file, const ImportOptions &options);
std::string problemOfShapes(mlir::MLIRContext &context, const std::string &path, const ImportOptions &options,
                            const std::map<std::string, std::vector<int64_t>> &shapes);
UseOfInput inputUses(const PreparedModel &model);
std::string unsaidOf(const OnnxFile &file, const onnx::GraphProto &graph, const Roles &roles,
                     const ModelSettings &settings);

namespace {

/// The size that inspection assumes for a dimension without a value.
constexpr int64_t kProbe = 32;


std::string valueText(const onnx::ValueInfoProto &value) {
  if (!value.type().has_tensor_type())
    return "no tensor";
  std::vector<std::string> dims;
  for (const auto &dim : value.type().tensor_type().shape().dim())
    dims.push_back(dim.has_dim_param() ? dim.dim_param() : dim.has_dim_value() ? std::to_string(dim.dim_value()) : "?");
  return fmt::format("{:<8} [{}]", onnxTypeName(value.type().tensor_type().elem_type()), fmt::join(dims, ", "));
}

/// Counts ops by name, including those of graphs inside nodes.
int countOps(const onnx::GraphProto &graph, std::map<std::string, int> &histogram) {
  int count = graph.node_size();
  for (const onnx::NodeProto &node : graph.node()) {
    ++histogram[(node.domain().empty() ? "" : node.domain() + "::") + node.op_type()];
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g())
        count += countOps(attribute.g(), histogram);
  }
  return count;
}

/// Lists the nodes that stop gradients; if there are none, says whether this kind of export could have marked them.
std::string stopsText(const OnnxFile &file, const PreparedModel &model) {
  constexpr size_t kShown = 20;
  std::vector<Stop> stops = stopsIn(model.graph);
  for (const auto &[name, source] : model.stoppedInitializers)
    stops.push_back({name, source});
  if (stops.empty())
    return fmt::format("stopped gradients: none: {}\n", missingStopsText(file));
  std::string text = fmt::format("stopped gradients: {} (torch.no_grad() leaves no mark in any export: name its "
                                 "results in model.stop_gradient)\n",
                                 stops.size());
  for (size_t i = 0; i < std::min(kShown, stops.size()); ++i)
    text += fmt::format("  {:<32} {}\n", stops[i].node, stops[i].source);
  if (stops.size() > kShown)
    text += fmt::format("  and {} more\n", stops.size() - kShown);
  return text;
}

} // namespace

/// Sets shapes for all inputs with unbound dimensions; false if an input has no shape at all.
static bool probeShapes(const OnnxFile &file, std::map<std::string, std::vector<int64_t>> &shapes,
                        const ImportOptions &options) {
  for (const onnx::ValueInfoProto &input : file.model.graph().input()) {
    if (file.initializers.count(input.name()) || shapes.count(input.name()))
      continue;
    if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape())
      return false;
    std::vector<int64_t> &shape = shapes[input.name()];
    for (const auto &dim : input.type().tensor_type().shape().dim()) {
      auto given = options.dims.find(dim.dim_param());
      shape.push_back(dim.has_dim_value() && dim.dim_value() > 0 ? dim.dim_value()
                      : dim.has_dim_param() && given != options.dims.end() ? given->second
                                                                            : kProbe);
    }
  }
  return true;
}

/// The lists of floating-point initializers, each with a reason, and of other places that hold tensors.
static std::string initializersText(const OnnxFile &file, const Roles &roles, const Expected<ImportedModel> &imported,
                                    Inspection &result) {
  static constexpr const char *kTitles[] = {"trained", "frozen", "buffers", "constants"};
  std::string rows[4];
  uint64_t count[4] = {}, elements[4] = {}, bytes[4] = {}, others = 0;
  size_t unread = 0;
  auto add = [&](const std::string &name, const OnnxInitializer &initializer, List list, const std::string &reason,
                 const std::string &foldedFrom) {
    const size_t kind = size_t(list);
    ++count[kind];
    bytes[kind] += initializer.bytes;
    const std::string type = onnxTypeName(initializer.declaredType());
    const std::vector<int64_t> &dims = initializer.declaredDims();
    const auto known = roles.initializers.find(name);
    elements[kind] += known != roles.initializers.end() && known->second.fourBits
                          ? 2 * initializer.bytes
                          : initializer.bytes / std::max<uint64_t>(1, onnxElementBytes(initializer.type));
    rows[kind] +=
        fmt::format("  {:<48} {:<8} {:<18} {:>10}{}  {}\n", name, type, fmt::format("[{}]", fmt::join(dims, ", ")),
                    bytesText(initializer.bytes), initializer.external() ? "  external" : "", reason);
    result.initializers.push_back({name, type, dims, initializer.bytes, listName(list), reason, foldedFrom});
  };
  for (const auto &[name, initializer] : file.initializers) {
    const InitializerRole &role = roles.initializers.at(name);
    if (initializer.home == "a Constant node" && role.role == Role::Constant)
      continue;
    if (!initializer.home.empty() && role.role != Role::Constant && imported && !imported->initializers.count(name)) {
      ++unread;
      continue;
    }
    if (isFloatType(initializer.type) || role.fourBits)
      add(name, initializer, role.list, role.sign, role.display);
    else
      ++others;
  }
  for (const auto &[name, tie] : file.ties)
    add(name, tie.copy, roles.initializers.at(tie.of).list,
        fmt::format("tied: {}{}", tie.of, tie.permutation.empty() ? "" : " transposed"), "");
  std::string text;
  for (size_t kind = 0; kind < 4; ++kind)
    if (kind == 0 || count[kind])
      text += fmt::format("{}: {} tensors, {} elements, {}\n{}", kTitles[kind], count[kind], elements[kind],
                          bytesText(bytes[kind]), rows[kind]);
  if (others)
    text += fmt::format("not floating-point: {} tensors\n", others);
  if (unread)
    text += fmt::format("not read: {} tensors, of branches that are not taken\n", unread);
  return text;
}

Expected<Inspection> inspectModel(mlir::MLIRContext &context, const std::string &path, const ImportOptions &options) {
  Inspection result;
  TCC_TRY(file, readOnnxFile(path));
  if (auto fixed = fixInputs(file, options); !fixed)
    return fixed.status();
  TCC_TRY(dequantized, readQuantization(file, options));
  const PlainExport plain = plainExport(file, options.shapes);
  TCC_TRY(restored, restoreWeights(file, options.model));
  if (Status taken = takeInnerWeights(file); !taken.ok())
    return taken;
  PrepareOptions prepare = prepareOptions(options);
  prepare.requireBound = false;
  TCC_TRY(model, prepareModel(file, prepare));
  std::map<std::string, int> histogram;
  const int nodes = countOps(model.graph, histogram);
  for (onnx::FunctionProto &function : model.functions)
    dropFakeQuantize(function);
  TCC_TRY(rounded, fakeQuantize(file, model.graph, options.model, options.where));
  TCC_TRY(roles, decideRoles(file, model.graph, options.model, options.where, inputUses(model)));

  std::string text = fmt::format("{}: IR version {}", file.name, file.model.ir_version());
  for (const onnx::OperatorSetIdProto &set : file.model.opset_import()) {
    const std::string domain = canonicalDomain(set.domain());
    text += fmt::format(", opset {}{}", domain.empty() ? "" : domain + " ", set.version());
  }
  if (!file.model.producer_name().empty())
    text += fmt::format(", by {} {}", file.model.producer_name(), file.model.producer_version());
  text += "\n\ninputs\n";
  for (const onnx::ValueInfoProto &input : file.model.graph().input())
    if (!file.initializers.count(input.name()))
      text += fmt::format("  {:<32} {}\n", input.name(), valueText(input));
  text += "outputs\n";
  for (const onnx::ValueInfoProto &output : file.model.graph().output())
    text += fmt::format("  {:<32} {}\n", output.name(), valueText(output));

  // Only the import itself finds problems that depend on values, such as a data-dependent shape or the branch taken.
  std::vector<std::string> problems;
  Expected<ImportedModel> imported = error("not imported");
  if (model.unbound.empty())
    imported = importModel(context, path, options, &problems);

  text += initializersText(file, roles, imported, result);
  result.missing = restored.lost;
  if (!restored.lost.empty())
    text +=
        fmt::format("parameters of the module that the file does not hold (unused there, or merged with others): {}\n",
                    fmt::join(restored.lost, ", "));
  if (std::string unsaid = unsaidOf(file, model.graph, roles, options.model); !unsaid.empty())
    text += "note: " + unsaid + "\n";
  result.refusals = refusalsOf(restored, roles);
  for (const std::string &refusal : result.refusals)
    text += "refused for training: " + refusal + "\n";

  text += stopsText(file, model);

  text += fmt::format("ops: {} nodes\n", nodes);
  for (const auto &[op, number] : histogram)
    text += fmt::format("  {:<32} {:>6}\n", op, number);
  if (!model.unbound.empty()) {
    text += "dynamic dimensions, to be bound with --dim or --shape\n";
    for (const std::string &line : model.unbound)
      text += "  " + line + "\n";
  }
  std::vector<std::string> lines = restored.lines([&](const std::string &name) { return isTrained(roles, name); });
  if (!plain.warning.empty())
    result.warnings.push_back(plain.text(problemOfShapes(context, path, options, plain.larger)));
  for (const std::vector<std::string> *warnings : {&lines, &dequantized, &rounded, &model.warnings, &roles.warnings})
    result.warnings.insert(result.warnings.end(), warnings->begin(), warnings->end());
  for (const std::string &warning : result.warnings)
    text += "warning: " + warning + "\n";
  if (model.unbound.empty()) {
    if (!imported && problems.empty()) {
      result.unsupported = {imported.message()};
      result.text = text + fmt::format("unsupported: {}\n", imported.message());
      return result;
    }
  } else {
    // The same with a value for every unbound dimension. Problems with these values are not reported.
    ImportOptions probe = options;
    if (probeShapes(file, probe.shapes, options))
      imported = importModel(context, path, probe, &problems);
    if (!imported && !problems.empty())
      text += fmt::format(
          "with {} for every dimension without a value, these nodes are unsupported or need other dimensions:\n",
          kProbe);
    if (problems.empty())
      for (const UnsupportedOp &op : model.unsupported)
        problems.push_back(describe(op));
  }
  if (!problems.empty())
    text += fmt::format("unsupported: {} nodes\n", problems.size());
  for (const std::string &problem : problems)
    text += "  " + problem + "\n";
  if (problems.empty())
    text += model.unbound.empty() ? "everything is supported\n" : "every op is supported\n";
  if (auto recipe = suggestRecipe(context, path, options))
    result.suggestion =
        fmt::format("\na recipe that would work (--suggest-recipe R.toml writes and tries it)\n\n{}", *recipe);
  if (imported)
    result.imported = imported.take();
  result.unsupported = problems;
  result.text = std::move(text);
  return result;
}

} // namespace tcc::frontend

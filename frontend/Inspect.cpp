//===- Inspect.cpp - what a model holds, as text --------------------------===//
#include "frontend/Import.h"
#include "frontend/NodeImport.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/Parameters.h"

namespace tcc::frontend {

PrepareOptions prepareOptions(const ImportOptions &options);

namespace {

std::string bytesText(uint64_t bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB"};
  double value = double(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 3; ++unit)
    value /= 1024;
  return unit ? fmt::format("{:.1f} {}", value, units[unit]) : fmt::format("{} B", bytes);
}

std::string valueText(const onnx::ValueInfoProto &value) {
  if (!value.type().has_tensor_type())
    return "no tensor";
  std::vector<std::string> dims;
  for (const auto &dim : value.type().tensor_type().shape().dim())
    dims.push_back(dim.has_dim_param() ? dim.dim_param() : dim.has_dim_value() ? std::to_string(dim.dim_value()) : "?");
  return fmt::format("{:<8} [{}]", onnxTypeName(value.type().tensor_type().elem_type()), fmt::join(dims, ", "));
}

} // namespace

plan::Expected<std::string> inspectModel(mlir::MLIRContext &context, const std::string &path,
                                         const ImportOptions &options) {
  TCC_TRY(file, readOnnxFile(path));
  PrepareOptions prepare = prepareOptions(options);
  prepare.requireBound = false;
  TCC_TRY(model, prepareModel(file, prepare));
  TCC_TRY(roles, decideRoles(file, model.graph, options.model, options.where));

  std::string text = fmt::format("{}: IR version {}", file.name, file.model.ir_version());
  for (const auto &[domain, version] : model.opsets)
    text += fmt::format(", opset {}{}", domain.empty() ? "" : domain + " ", version);
  if (!file.model.producer_name().empty())
    text += fmt::format(", by {} {}", file.model.producer_name(), file.model.producer_version());
  text += "\n\ninputs\n";
  for (const onnx::ValueInfoProto &input : file.model.graph().input())
    if (!file.initializers.count(input.name()))
      text += fmt::format("  {:<32} {}\n", input.name(), valueText(input));
  text += "outputs\n";
  for (const onnx::ValueInfoProto &output : file.model.graph().output())
    text += fmt::format("  {:<32} {}\n", output.name(), valueText(output));

  uint64_t count[3] = {}, elements[3] = {}, bytes[3] = {};
  std::string parameters;
  for (const auto &[name, initializer] : file.initializers) {
    const InitializerRole &role = roles.initializers.at(name);
    int kind = int(role.role);
    ++count[kind];
    bytes[kind] += initializer.bytes;
    uint64_t element = onnxElementBytes(initializer.type);
    elements[kind] += element ? initializer.bytes / element : 0;
    if (role.role != Role::Constant)
      parameters += fmt::format("  {:<48} {:<8} {:<18} {:>10}{}{}{}\n", name, onnxTypeName(initializer.type),
                                fmt::format("[{}]", fmt::join(initializer.dims, ", ")), bytesText(initializer.bytes),
                                role.role == Role::Frozen ? "  frozen" : "",
                                initializer.external() ? "  external" : "",
                                role.display.empty() ? "" : "  folded from " + role.display);
  }
  text += fmt::format("parameters: {} tensors, {} elements, {}\n", count[0], elements[0], bytesText(bytes[0]));
  if (count[1])
    text += fmt::format("frozen: {} tensors, {} elements, {}\n", count[1], elements[1], bytesText(bytes[1]));
  if (count[2])
    text += fmt::format("constants: {} tensors, {}\n", count[2], bytesText(bytes[2]));
  text += parameters;

  std::map<std::string, int> histogram;
  for (const onnx::NodeProto &node : model.graph.node())
    ++histogram[(node.domain().empty() ? "" : node.domain() + "::") + node.op_type()];
  text += fmt::format("ops: {} nodes\n", model.graph.node_size());
  for (const auto &[op, number] : histogram)
    text += fmt::format("  {:<32} {:>6}\n", op, number);
  if (!model.unbound.empty()) {
    text += "dynamic dimensions, to be bound with --dim or --shape\n";
    for (const std::string &line : model.unbound)
      text += "  " + line + "\n";
  }
  for (const std::string &warning : roles.warnings)
    text += "warning: " + warning + "\n";
  if (!model.unsupported.empty()) {
    text += fmt::format("unsupported: {} nodes\n", model.unsupported.size());
    for (const UnsupportedOp &op : model.unsupported)
      text += "  " + describe(op) + "\n";
    return text;
  }
  if (model.unbound.empty()) {
    // The import itself finds what only values tell, such as a shape that depends on data.
    plan::Expected<ImportedModel> imported = importModel(context, path, options);
    text += imported ? std::string("everything is supported\n") : fmt::format("unsupported: {}\n", imported.message());
  } else {
    text += "every op is supported\n";
  }
  return text;
}

} // namespace tcc::frontend

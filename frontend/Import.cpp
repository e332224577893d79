//===- Import.cpp - an ONNX forward graph as a train module ---------------===//
//
// The nodes come in topological order. Each is handed to its importer; what it built is checked, and folded where all
// operands are constants, so that shape arithmetic has values by the time an op asks for them.
//
//===----------------------------------------------------------------------===//
#include "frontend/Import.h"

#include "compiler/dialect/Fold.h"
#include "frontend/NodeImport.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/Parameters.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <cstring>
#include <llvm/ADT/StringMap.h>
#include <llvm/Support/raw_ostream.h>

using namespace mlir;

namespace tcc::frontend {
namespace {

using plan::Expected;
using plan::Status;

/// Constants are folded up to this size; larger ones stay ops, which are fused into what reads them.
constexpr int64_t kFoldBytes = 256 * 1024;
/// Frozen initializers up to this size may be read at compile time where an op needs a value.
constexpr uint64_t kReadableBytes = 1024 * 1024;

plan::DType storedType(int32_t onnxType) {
  switch (onnxType) {
  case onnx::TensorProto::DOUBLE: return plan::F64;
  case onnx::TensorProto::FLOAT: return plan::F32;
  case onnx::TensorProto::BFLOAT16: return plan::BF16;
  case onnx::TensorProto::FLOAT16: return plan::F16;
  case onnx::TensorProto::INT64: return plan::I64;
  case onnx::TensorProto::INT32: return plan::I32;
  case onnx::TensorProto::INT16: return plan::I16;
  case onnx::TensorProto::INT8: return plan::I8;
  case onnx::TensorProto::UINT64: return plan::U64;
  case onnx::TensorProto::UINT32: return plan::U32;
  case onnx::TensorProto::UINT16: return plan::U16;
  case onnx::TensorProto::UINT8: return plan::U8;
  case onnx::TensorProto::BOOL: return plan::I1;
  default: return plan::DTYPE_NONE;
  }
}

class GraphImport {
public:
  GraphImport(MLIRContext &context, const OnnxFile &file, const PreparedModel &model, const Roles &roles,
              const ImportOptions &options)
      : context(context), file(file), model(model), roles(roles), options(options), builder(&context) {}

  Expected<OwningOpRef<ModuleOp>> run();
  std::set<std::string> variables;
  std::set<std::string> sampleDims; ///< symbols, as exported, of the axes that samples lie along

private:
  Location locationOf(const std::string &name) { return NameLoc::get(StringAttr::get(&context, name)); }
  std::string place(const onnx::NodeProto &node, int64_t opset) const {
    return fmt::format("{}: node {} ({}, opset {})", file.path, nodeName(node), node.op_type(), opset);
  }

  void createVariables();
  Status createFunction();
  Expected<Slot> lookUp(const std::string &name, Location loc);
  DenseElementsAttr constantOf(Value value);
  Status importNode(const onnx::NodeProto &node);
  Status foldNewOps(Operation *before, llvm::MutableArrayRef<Slot> outputs);
  void shrinkConstants();
  Status finish();

  MLIRContext &context;
  const OnnxFile &file;
  const PreparedModel &model;
  const Roles &roles;
  const ImportOptions &options;
  OpBuilder builder;
  OwningOpRef<ModuleOp> module;
  func::FuncOp function;
  llvm::StringMap<Slot> slots;
  std::string diagnostics; ///< what MLIR's verifiers said
};

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
    train::VariableOp::create(builder, locationOf(role.node.empty() ? name : role.node), name, type,
                              role.role == Role::Parameter ? "parameter" : "frozen", FloatAttr(), ElementsAttr(),
                              int64_t(-1));
    variables.insert(name);
  }
}

/// The axis called batch in the model as it was exported, else 0; a scalar is a constant.
int64_t sampleAxis(const OnnxFile &file, const std::string &input, size_t rank) {
  if (rank == 0)
    return -1;
  int64_t found = 0;
  for (const onnx::ValueInfoProto &value : file.model.graph().input()) {
    if (value.name() != input)
      continue;
    bool exact = false, similar = false;
    int64_t axis = 0;
    for (const auto &dim : value.type().tensor_type().shape().dim()) {
      if (!exact && dim.dim_param() == "batch") {
        exact = true;
        found = axis;
      } else if (!exact && !similar && dim.dim_param().find("batch") != std::string::npos) {
        similar = true;
        found = axis;
      }
      ++axis;
    }
  }
  return found;
}

/// The symbol of a dimension as it was exported; empty where it has none.
std::string exportedDim(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> &values, const std::string &name,
                        int64_t axis) {
  for (const onnx::ValueInfoProto &value : values)
    if (const auto &shape = value.type().tensor_type().shape(); value.name() == name && axis < shape.dim_size())
      return shape.dim(int(axis)).dim_param();
  return "";
}

/// The axis of an output that has the symbol of the inputs' samples; -1 where the export does not tell. Symbols with
/// "batch" in them count before others, which a constant input's first axis may have brought in.
int64_t outputSampleAxis(const OnnxFile &file, const std::string &output, int64_t rank, const std::set<std::string> &symbols) {
  auto isBatch = [](const std::string &symbol) { return symbol.find("batch") != std::string::npos; };
  bool batchOnly = llvm::any_of(symbols, isBatch);
  for (int64_t axis = 0; axis < rank; ++axis)
    if (std::string symbol = exportedDim(file.model.graph().output(), output, axis);
        !symbol.empty() && symbols.count(symbol) && (!batchOnly || isBatch(symbol)))
      return axis;
  return -1;
}

Status GraphImport::createFunction() {
  llvm::SmallVector<Type> types;
  llvm::SmallVector<std::string> names;
  llvm::SmallVector<int64_t> axes;
  for (const onnx::ValueInfoProto &input : model.graph.input()) {
    if (file.initializers.count(input.name()))
      continue;
    const onnx::TypeProto_Tensor &type = input.type().tensor_type();
    Type element = importedElementType(&context, type.elem_type(), options.forceF64);
    if (!element)
      return plan::error("{}: input {} has the element type {}, which is not supported", file.path, input.name(),
                         onnxTypeName(type.elem_type()));
    Shape shape;
    for (const auto &dim : type.shape().dim())
      shape.push_back(dim.dim_value());
    types.push_back(RankedTensorType::get(shape, element));
    names.push_back(input.name());
    auto given = options.batchAxis.find(input.name());
    int64_t axis = given != options.batchAxis.end() ? given->second : sampleAxis(file, input.name(), shape.size());
    if (axis < -1 || axis >= int64_t(shape.size()))
      return plan::error("data.batch_axis.{} is {}, but the input has {} dimensions", input.name(), axis, shape.size());
    axes.push_back(axis);
    if (axis >= 0)
      sampleDims.insert(exportedDim(file.model.graph().input(), input.name(), axis));
  }
  for (const auto &[name, axis] : options.batchAxis)
    if (!llvm::is_contained(names, name))
      return plan::error("data.batch_axis.{}: the model has no such input; it has {}", name, fmt::join(names, ", "));
  builder.setInsertionPointToEnd(module->getBody());
  function = func::FuncOp::create(builder, locationOf("forward"), "forward", builder.getFunctionType(types, {}));
  Block *body = function.addEntryBlock();
  for (size_t i = 0; i < types.size(); ++i) {
    function.setArgAttr(unsigned(i), "train.name", builder.getStringAttr(names[i]));
    function.setArgAttr(unsigned(i), "train.sample_axis", builder.getI64IntegerAttr(axes[i]));
    slots[names[i]] = Slot{body->getArgument(unsigned(i)), std::nullopt};
  }
  builder.setInsertionPointToEnd(body);
  return Status::success();
}

Expected<Slot> GraphImport::lookUp(const std::string &name, Location loc) {
  if (name.empty())
    return Slot();
  if (auto found = slots.find(name); found != slots.end())
    return found->second;
  auto found = file.initializers.find(name);
  if (found == file.initializers.end())
    return plan::error("its input \"{}\" is computed by no node", name);
  const OnnxInitializer &initializer = found->second;
  Value value;
  if (variables.count(name)) {
    Type type = RankedTensorType::get(initializer.dims, importedElementType(&context, initializer.type, options.forceF64));
    value = train::ReadOp::create(builder, loc, type, name);
  } else {
    Expected<std::string> bytes = initializerBytes(initializer);
    if (!bytes)
      return bytes.status();
    value = train::ConstantOp::create(
        builder, loc, importedElements(&context, initializer.dims, initializer.type, *bytes, options.forceF64));
  }
  return slots[name] = Slot{value, std::nullopt};
}

/// A constant's elements; for a small frozen variable, those of its initializer.
DenseElementsAttr GraphImport::constantOf(Value value) {
  if (auto constant = value.getDefiningOp<train::ConstantOp>())
    return dyn_cast<DenseElementsAttr>(constant.getValue());
  auto read = value.getDefiningOp<train::ReadOp>();
  if (!read)
    return nullptr;
  auto role = roles.initializers.find(read.getVariable().str());
  if (role == roles.initializers.end() || role->second.role == Role::Parameter)
    return nullptr;
  const OnnxInitializer &initializer = file.initializers.at(role->first);
  if (initializer.bytes > kReadableBytes)
    return nullptr;
  Expected<std::string> bytes = initializerBytes(initializer);
  if (!bytes)
    return nullptr;
  return importedElements(&context, initializer.dims, initializer.type, *bytes, options.forceF64);
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

Status GraphImport::importNode(const onnx::NodeProto &node) {
  const std::string domain = canonicalDomain(node.domain());
  auto version = model.opsets.find(domain);
  const int64_t opset = version == model.opsets.end() ? (domain.empty() ? kNewestOpset : 1) : version->second;
  auto located = [&](const Status &status) { return plan::error("{}: {}", place(node, opset), status.message()); };
  const OpEntry *entry = findOp(domain, node.op_type(), opset);
  if (!entry)
    return located(plan::error("is not supported"));
  NodeImport n(node, opset, builder, locationOf(nodeName(node)), options.forceF64);
  n.constantOf = [this](Value value) { return constantOf(value); };
  for (const std::string &name : node.input()) {
    Expected<Slot> slot = lookUp(name, n.loc);
    if (!slot)
      return located(slot.status());
    if (slot->sequence && !entry->sequences)
      return located(plan::error("its input \"{}\" is a sequence", name));
    n.inputs.push_back(slot.take());
  }
  for (int i = 0; i < entry->minInputs; ++i)
    if (!n.has(unsigned(i)))
      return located(plan::error("its input {} is missing", i));
  Operation *before = builder.getInsertionBlock()->empty() ? nullptr : &builder.getInsertionBlock()->back();
  if (Status status = entry->import(n); !status.ok())
    return located(status);
  if (Status status = foldNewOps(before, n.outputs); !status.ok())
    return located(status);
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty())
      continue;
    if (size_t(i) >= n.outputs.size() || (!n.outputs[size_t(i)].tensor && !n.outputs[size_t(i)].sequence)) {
      // Outputs that are made in training mode only (older BatchNormalization) have no readers here.
      continue;
    }
    slots[node.output(i)] = n.outputs[size_t(i)];
  }
  return Status::success();
}

/// Checks the ops built since `before`, and replaces those whose operands are constants.
Status GraphImport::foldNewOps(Operation *before, llvm::MutableArrayRef<Slot> outputs) {
  Block *block = builder.getInsertionBlock();
  Operation *op = before ? before->getNextNode() : (block->empty() ? nullptr : &block->front());
  while (op) {
    Operation *next = op->getNextNode();
    diagnostics.clear();
    if (failed(verify(op)))
      return plan::error("{}", diagnostics.empty() ? "the built op is not valid" : diagnostics);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(op);
    llvm::SmallVector<Value> constants = train::foldIfConstant(builder, op, kFoldBytes);
    if (!constants.empty()) {
      for (auto [result, constant] : llvm::zip_equal(op->getResults(), constants)) {
        for (Slot &slot : outputs) {
          if (slot.tensor == result)
            slot.tensor = constant;
          if (slot.sequence)
            for (Value &element : *slot.sequence)
              if (element == result)
                element = constant;
        }
        result.replaceAllUsesWith(constant);
      }
      op->erase();
    }
    op = next;
  }
  return Status::success();
}

//===----------------------------------------------------------------------===//
// The whole
//===----------------------------------------------------------------------===//

/// A constant that repeats along a dimension (a mask for each sample, say) is stored once and broadcast.
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

Status GraphImport::finish() {
  llvm::SmallVector<Value> results;
  llvm::SmallVector<Attribute> names;
  for (const onnx::ValueInfoProto &output : model.graph.output()) {
    Expected<Slot> slot = lookUp(output.name(), locationOf(output.name()));
    if (!slot)
      return plan::error("{}: graph output {} is computed by no node", file.path, output.name());
    if (!slot->tensor)
      return plan::error("{}: graph output {} is a sequence; only tensors are supported", file.path, output.name());
    if (output.type().tensor_type().has_shape()) {
      llvm::ArrayRef<int64_t> shape = train::shapeOf(slot->tensor);
      bool fits = output.type().tensor_type().shape().dim_size() == int(shape.size());
      for (size_t i = 0; fits && i < shape.size(); ++i) {
        const auto &dim = output.type().tensor_type().shape().dim(int(i));
        fits = !dim.has_dim_value() || dim.dim_value() == shape[i];
      }
      if (!fits)
        return plan::error("{}: graph output {} is declared with another shape than the one computed, {}", file.path,
                           output.name(), shapeText(shape));
    }
    results.push_back(slot->tensor);
    names.push_back(builder.getStringAttr(output.name()));
  }
  func::ReturnOp::create(builder, locationOf("return"), results);
  function.setFunctionType(builder.getFunctionType(function.getArgumentTypes(), TypeRange(ValueRange(results))));
  for (size_t i = 0; i < names.size(); ++i) {
    function.setResultAttr(unsigned(i), "train.name", names[i]);
    int64_t rank = int64_t(train::shapeOf(results[i]).size());
    int64_t axis = outputSampleAxis(file, model.graph.output(int(i)).name(), rank, sampleDims);
    if (axis >= 0)
      function.setResultAttr(unsigned(i), "train.sample_axis", builder.getI64IntegerAttr(axis));
  }
  // What no output needs.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  shrinkConstants();
  diagnostics.clear();
  if (failed(verify(*module)))
    return plan::error("{}: the imported program is not valid: {}", file.path, diagnostics);
  return Status::success();
}

Expected<OwningOpRef<ModuleOp>> GraphImport::run() {
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    diagnostics += (diagnostics.empty() ? "" : "; ") + diagnostic.str();
    return success();
  });
  if (file.initializers.count("forward"))
    return plan::error("{}: an initializer is called \"forward\", which is reserved: rename it", file.path);
  module = ModuleOp::create(locationOf(file.name));
  createVariables();
  if (Status status = createFunction(); !status.ok())
    return status;
  for (const onnx::NodeProto &node : model.graph.node())
    if (Status status = importNode(node); !status.ok())
      return status;
  if (Status status = finish(); !status.ok())
    return status;
  return std::move(module);
}

} // namespace

/// Options of the ONNX library's part.
PrepareOptions prepareOptions(const ImportOptions &options) {
  PrepareOptions prepare;
  prepare.dims = options.dims;
  for (const auto &[name, size] : options.model.dims)
    prepare.dims.emplace(name, size);
  prepare.shapes = options.shapes;
  if (auto found = options.where.find("model.dims"); found != options.where.end())
    prepare.dimsPlace = found->second + ": ";
  prepare.knows = [](const std::string &domain, const std::string &op, int64_t version) {
    return findOp(domain, op, version) != nullptr;
  };
  return prepare;
}

Expected<ImportedModel> importModel(MLIRContext &context, const std::string &path, const ImportOptions &options) {
  context.loadDialect<train::TrainDialect, func::FuncDialect>();
  Expected<OnnxFile> read = readOnnxFile(path);
  if (!read)
    return read.status();
  auto file = std::make_shared<OnnxFile>(read.take());
  TCC_TRY(prepared, prepareModel(*file, prepareOptions(options)));
  if (!prepared.unsupported.empty()) {
    std::string lines;
    for (const UnsupportedOp &op : prepared.unsupported)
      lines += "\n  " + describe(op);
    return plan::error("{}: {} of its nodes are not supported:{}", path, prepared.unsupported.size(), lines);
  }
  TCC_TRY(roles, decideRoles(*file, prepared.graph, options.model, options.where));

  GraphImport import(context, *file, prepared, roles, options);
  TCC_TRY(module, import.run());
  ImportedModel result;
  result.module = std::move(module);
  result.name = file->name;
  result.warnings = roles.warnings;
  TCC_TRY(stripped, strippedModel(*file, import.variables));
  result.strippedModel = std::move(stripped);
  for (const auto &[name, initializer] : file->initializers) {
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
    out.uses = role.uses;
    out.constant = role.lifted;
  }
  result.storage = file;
  return result;
}

} // namespace tcc::frontend

//===- GraphImport.cpp - import the nodes of a graph in order -------------===//
//
// The nodes are in topological order. Each is handed to its importer. The ops that it builds are verified, and folded
// if all operands are constants, so that shape arithmetic has values by the time an op asks for them. An op without an
// importer is imported as the body of its function: one of the model's, or the standard's at the model's version.
//
//===----------------------------------------------------------------------===//
#include "frontend/GraphImport.h"

#include "frontend/AttributeRules.h"

#include "compiler/dialect/Fold.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

#include <onnx/defs/schema.h>

using namespace mlir;

namespace tcc::frontend {


/// Results up to this size are folded; ops with larger ones stay, and are fused into their readers.
static constexpr int64_t kFoldBytes = 256 * 1024;
/// Frozen initializers up to this size may be read at compile time if an op needs their values.
static constexpr uint64_t kReadableBytes = 1024 * 1024;
/// Once folded results have this total size, only small ones (shape arithmetic) are folded.
static constexpr int64_t kFoldedBytes = 128 * 1024 * 1024;
static constexpr int64_t kSmallFoldBytes = 1024;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

Expected<Slot> GraphImport::lookUp(const std::string &name, Location loc) {
  if (name.empty())
    return Slot();
  // A value from outside a gated scope is wrapped by `gated` in each gated scope that it enters.
  auto passGates = [&](size_t from, Slot slot) {
    for (size_t i = from + 1; i < scopes.size(); ++i)
      if (Value gate = scopes[i].gate) {
        slot.tensor = gated(slot.tensor, gate, loc);
        if (slot.sequence)
          for (Value &element : *slot.sequence)
            element = gated(element, gate, loc);
        scopes[i].slots[name] = slot;
      }
    return slot;
  };
  bool outside = false;
  for (size_t i = scopes.size(); i-- > 0 && !outside;) {
    if (auto found = scopes[i].slots.find(name); found != scopes[i].slots.end())
      return passGates(i, found->second);
    outside = scopes[i].isolated;
  }
  auto found = file.initializers.find(name);
  if (found == file.initializers.end() || (outside && found->second.home.empty()))
    return error("its input \"{}\" is computed by no node", name);
  const OnnxInitializer &initializer = found->second;
  Value value;
  if (variables.count(name)) {
    Type type =
        RankedTensorType::get(initializer.dims, importedElementType(&context, initializer.type, options.forceF64));
    value = train::ReadOp::create(builder, loc, type, name);
    if (auto stop = model.stoppedInitializers.find(name); stop != model.stoppedInitializers.end())
      value = stopped(value, loc, stop->second);
  } else {
    Expected<std::string> bytes = initializerBytes(initializer);
    if (!bytes)
      return bytes.status();
    value = train::ConstantOp::create(
        builder, loc, importedElements(&context, initializer.dims, initializer.type, *bytes, options.forceF64));
  }
  Slot slot{value, std::nullopt};
  if (initializer.inFourBits()) {
    slot.fourBits = FourBitTensor{value, Shape(initializer.elements.begin(), initializer.elements.end()),
                                  initializer.packedType == onnx::TensorProto::INT4};
    slot.tensor = nullptr;
    slot.unusable = "a tensor of 4-bit integers, which DequantizeLinear and GatherBlockQuantized alone read";
  }
  // One read for the whole program, even if an inner scope asks for it first.
  return passGates(0, scopes.front().slots[name] = slot);
}

/// The value; if the gate is false, no gradient flows through it.
Value GraphImport::gated(Value value, Value gate, Location loc) {
  if (!value || !train::isFloatTensor(value) || value.getDefiningOp<train::ConstantOp>())
    return value;
  Value held = train::StopGradientOp::create(builder, loc, value, "");
  train::Expr choice(builder, loc, gate);
  return choice.broadcast(train::shapeOf(value)).select(choice.with(value), choice.with(held));
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

/// The name of a node in reports: its own and its iterations; inside a function, that of the call.
std::string GraphImport::nameIn(const Scope &scope, const onnx::NodeProto &node) {
  return scope.caller.empty() ? nodeName(node) + scope.suffix : scope.caller;
}

int64_t GraphImport::opsetOf(const std::string &domain) const {
  auto version = scopes.back().opsets->find(domain);
  return version == scopes.back().opsets->end() ? (domain.empty() ? kNewestOpset : 1) : version->second;
}

const onnx::FunctionProto *GraphImport::functionOf(const onnx::NodeProto &node) const {
  for (const onnx::FunctionProto &candidate : model.functions)
    if (candidate.name() == node.op_type() && canonicalDomain(candidate.domain()) == canonicalDomain(node.domain()) &&
        candidate.overload() == node.overload())
      return &candidate;
  return nullptr;
}

/// The ONNX type of a value (or of a sequence of such), for functions that depend on it.
static onnx::TypeProto onnxTypeOf(Value value, bool sequence) {
  onnx::TypeProto type, *tensor = &type;
  if (sequence)
    tensor = type.mutable_sequence_type()->mutable_elem_type();
  if (!value)
    return sequence ? type : onnx::TypeProto();
  for (int32_t kind = 1; onnx::TensorProto_DataType_IsValid(kind); ++kind)
    if (importedElementType(value.getContext(), kind, false) == train::elementTypeOf(value))
      tensor->mutable_tensor_type()->set_elem_type(kind);
  for (int64_t dim : train::shapeOf(value))
    tensor->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(dim);
  tensor->mutable_tensor_type()->mutable_shape();
  return type;
}

//===----------------------------------------------------------------------===//
// Problems
//===----------------------------------------------------------------------===//

/// Counts a node, or an iteration; false, and a problem once, beyond the limit.
bool GraphImport::countNode(const std::string &name) {
  if (++nodes == kMostNodes + 1)
    problems.push_back(
        fmt::format("{}: the model unrolls to more than {} nodes, the most that are supported; shorten its loops", name,
                    kMostNodes));
  return nodes <= kMostNodes;
}

/// Marks the node's outputs as failed, so that their readers are skipped.
void GraphImport::fail(const onnx::NodeProto &node) {
  for (const std::string &output : node.output())
    if (!output.empty()) {
      Slot slot;
      slot.failed = true;
      scopes.back().slots[output] = slot;
    }
}

void GraphImport::reportUnsupported(const onnx::NodeProto &node, const std::string &name, int64_t opset) {
  UnsupportedOp op = unsupportedOp(node, opset);
  op.node = name;
  problems.push_back(describe(op));
}

/// Lists unsupported ops in the graphs inside a node that was not imported.
void GraphImport::reportUnsupportedInside(const onnx::NodeProto &node) {
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (!attribute.has_g())
      continue;
    for (const onnx::NodeProto &inner : attribute.g().node()) {
      const std::string domain = canonicalDomain(inner.domain());
      const int64_t opset = opsetOf(domain);
      if (!functionOf(inner) && !findOp(domain, inner.op_type(), opset) &&
          !hasFunctionBody(domain, inner.op_type(), opset))
        reportUnsupported(inner, nodeName(inner) + scopes.back().suffix, opset);
      reportUnsupportedInside(inner);
    }
  }
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

void GraphImport::importNode(const onnx::NodeProto &node) {
  const std::string domain = canonicalDomain(node.domain());
  const int64_t opset = opsetOf(domain);
  const std::string name = nameIn(scopes.back(), node);
  const onnx::FunctionProto *local = functionOf(node);
  const OpEntry *entry = local ? nullptr : findOp(domain, node.op_type(), opset);
  if (!countNode(name))
    return fail(node);
  if (!local && !entry && !hasFunctionBody(domain, node.op_type(), opset)) {
    reportUnsupported(node, name, opset);
    return fail(node);
  }
  NodeImport n(node, opset, builder, locationOf(name), options.forceF64);
  n.constantOf = [this](Value value) { return constantOf(value); };
  n.settings = &options.model;
  n.budget = &budget;
  n.warn = [&](const std::string &text) {
    std::string line = fmt::format("{}: {}: {} (opset {}): {}", file.name, name, node.op_type(), opset, text);
    if (warned.insert(line).second)
      warnings.push_back(std::move(line));
  };
  bool entered = false;
  n.importGraph = [&](const onnx::GraphProto &graph, llvm::ArrayRef<Slot> inputs, const std::string &suffix) {
    entered = true;
    return importGraph(n, graph, inputs, suffix);
  };
  n.gated = [&](Value value, Value gate) { return gated(value, gate, n.loc); };
  n.importGatedGraph = [&](const onnx::GraphProto &graph, llvm::ArrayRef<Slot> inputs, const std::string &suffix,
                           Value gate) {
    entered = true;
    return importGraph(n, graph, inputs, suffix, gate);
  };
  auto problem = [&](const Status &status) {
    if (!status.message().empty()) {
      if (problems.empty())
        firstProblem =
            fmt::format("{}: node {} ({}, opset {}): {}", file.path, name, node.op_type(), opset, status.message());
      problems.push_back(fmt::format("{}: {} (opset {}): {}", name, node.op_type(), opset, status.message()));
    }
    if (!entered)
      reportUnsupportedInside(node);
    fail(node);
  };
  bool blocked = false;
  for (const std::string &input : node.input()) {
    Expected<Slot> slot = lookUp(input, n.loc);
    if (!slot)
      return problem(slot.status());
    if (entry && !slot->unusable.empty() && !entry->sequences && !(slot->fourBits && entry->fourBits))
      return problem(error("its input \"{}\" is {}", input, slot->unusable));
    if (entry && slot->sequence && !entry->sequences)
      return problem(error("its input \"{}\" is a sequence; only ops on sequences take one", input));
    blocked |= slot->failed;
    n.inputs.push_back(slot.take());
  }
  if (blocked && entry && entry->ofConstants)
    return problem(error("how many elements come out depends on values that are not known at compile time; multiply by "
                               "a mask, or select with Where"));
  if (blocked)
    return problem(alreadyReported());

  Operation *before = builder.getInsertionBlock()->empty() ? nullptr : &builder.getInsertionBlock()->back();
  const size_t depth = scopes.size();
  auto build = [&]() -> Status {
    if (local)
      return importBody(n, bindFunction(*local, node), opsetsOf(*local));
    if (entry)
      return importOp(n, *entry);
    std::vector<onnx::TypeProto> types;
    for (const Slot &slot : n.inputs)
      types.push_back(
          onnxTypeOf(slot.sequence ? slot.sequence->empty() ? Value() : slot.sequence->front() : slot.tensor,
                     slot.sequence.has_value()));
    Expected<onnx::FunctionProto> body = functionBody(node, opset, types, options.isolate);
    entered = true;
    return body ? importBody(n, *body, opsetsOf(*body)) : body.status();
  };
  Status status;
  try {
    status = build();
  } catch (const NodeProblem &refused) {
    status = refused.status;
  } catch (const std::bad_alloc &) {
    status = error("it takes more memory than there is");
  } catch (const std::exception &thrown) { // shapes that do not fit together, say
    const std::string_view text = thrown.what();
    // ONNX's own errors begin with their kind in brackets; messages of the standard library do not help a user.
    status = text.starts_with('[')
                 ? error("{}", text)
                 : error("the ONNX library refuses it without a reason; check its inputs and attributes");
  }
  scopes.resize(depth);
  if (status.ok())
    status = foldNewOps(before, n.outputs);
  if (!status.ok())
    return problem(status);
  stopGradients(n);
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty())
      continue;
    if (size_t(i) >= n.outputs.size())
      continue;
    const Slot &slot = n.outputs[size_t(i)];
    // Outputs that exist only in training mode (older BatchNormalization) have no readers here.
    if (slot.tensor || slot.sequence || slot.failed || !slot.unusable.empty())
      scopes.back().slots[node.output(i)] = slot;
    if (scopes.size() == 1)
      compareHint(node.output(i), slot);
  }
}

/// Records a declared shape that differs from the computed one.
void GraphImport::compareHint(const std::string &name, const Slot &slot) {
  auto hint = model.hints.find(name);
  if (hint == model.hints.end() || !slot.tensor)
    return;
  llvm::ArrayRef<int64_t> shape = train::shapeOf(slot.tensor);
  bool fits = hint->second.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = hint->second[i] < 0 || hint->second[i] == shape[i];
  if (fits)
    return;
  std::vector<std::string> declared;
  for (int64_t dim : hint->second)
    declared.push_back(dim < 0 ? "?" : std::to_string(dim));
  disagreements.push_back(
      fmt::format("{} is declared [{}] and computed {}", name, fmt::join(declared, ", "), shapeText(shape)));
}

/// True if the standard allows an input to be absent. For ops without a schema (of other domains) only minInputs
/// decides. A variadic input has no gaps.
static bool mayBeAbsent(const onnx::OpSchema *schema, size_t input) {
  if (!schema || schema->inputs().empty())
    return true;
  const auto &formal = schema->inputs()[std::min(input, schema->inputs().size() - 1)];
  return formal.GetOption() == onnx::OpSchema::Optional;
}

Status GraphImport::importOp(NodeImport &n, const OpEntry &entry) {
  const onnx::OpSchema *schema = schemaOf(canonicalDomain(n.node.domain()), n.node.op_type(), n.opset);
  for (size_t i = 0; i < std::max(n.inputs.size(), size_t(entry.minInputs)); ++i) {
    if (n.has(unsigned(i)) || (i < n.inputs.size() && !n.inputs[i].unusable.empty()))
      continue;
    if (i < size_t(entry.minInputs) || !mayBeAbsent(schema, i))
      return error("its input {} is missing", i);
  }
  if (std::string problem = attributeProblem(n.node); !problem.empty())
    return error("{}", problem);
  return entry.import(n);
}

int64_t GraphImport::mostFoldBytes() const { return foldedBytes < kFoldedBytes ? kFoldBytes : kSmallFoldBytes; }

/// Imports a function's body in place of its call; all of it is located at the call.
Status GraphImport::importBody(NodeImport &n, const onnx::FunctionProto &body,
                               const std::map<std::string, int64_t> &opsets) {
  if (nodes > kMostNodes)
    return alreadyReported();
  if (scopes.size() > kDeepestNesting)
    return error("functions call each other more than {} deep", kDeepestNesting);
  Scope scope;
  scope.isolated = true;
  scope.opsets = &opsets;
  scope.caller = cast<NameLoc>(n.loc).getName().str();
  for (int i = 0; i < body.input_size(); ++i)
    scope.slots[body.input(i)] = size_t(i) < n.inputs.size() ? n.inputs[size_t(i)] : Slot();
  const size_t before = problems.size();
  scopes.push_back(std::move(scope));
  for (const onnx::NodeProto &node : body.node())
    importNode(node);
  Status status = problems.size() > before ? alreadyReported() : Status::success();
  for (int i = 0; i < body.output_size() && status.ok(); ++i) {
    if (!n.wants(unsigned(i))) {
      n.outputs.push_back({});
      continue;
    }
    Expected<Slot> slot = lookUp(body.output(i), n.loc);
    if (!slot)
      status = error("its function does not compute output {}, \"{}\"", i, n.node.output(i));
    else
      n.outputs.push_back(slot.take());
  }
  scopes.pop_back();
  return status;
}

/// Initializers of a subgraph that are no weights (InnerWeights.h).
Status GraphImport::addConstants(const NodeImport &n, const onnx::GraphProto &graph) {
  auto add = [&](const onnx::TensorProto &tensor) -> Status {
    Location loc = locationOf(tensor.name());
    Type element = importedElementType(&context, tensor.data_type(), options.forceF64);
    if (!element)
      return error("initializer \"{}\" of its graph has the type {}, which is not supported", tensor.name(),
                         onnxTypeName(tensor.data_type()));
    Expected<std::string> bytes = tensorBytes(tensor);
    if (!bytes)
      return bytes.status().withContext(fmt::format("initializer \"{}\" of its graph", tensor.name()));
    n.spend(bytes->size());
    Shape shape(tensor.dims().begin(), tensor.dims().end());
    Value value = train::ConstantOp::create(
        builder, loc, importedElements(&context, shape, tensor.data_type(), *bytes, options.forceF64));
    scopes.back().slots[tensor.name()] = Slot{value, std::nullopt};
    return Status::success();
  };
  for (const onnx::TensorProto &tensor : graph.initializer())
    if (Status status = add(tensor); !status.ok())
      return status;
  for (const onnx::SparseTensorProto &sparse : graph.sparse_initializer()) {
    Expected<onnx::TensorProto> dense = denseTensor(sparse, std::min(kMostDenseBytes, budget.constantBytes));
    if (!dense)
      return dense.status();
    if (Status status = add(*dense); !status.ok())
      return status;
  }
  return Status::success();
}

Expected<llvm::SmallVector<Slot>> GraphImport::importGraph(const NodeImport &n, const onnx::GraphProto &graph,
                                                           llvm::ArrayRef<Slot> inputs, const std::string &suffix,
                                                           Value gate) {
  if (!countNode(scopes.back().caller.empty() ? graph.name() + suffix : scopes.back().caller))
    return alreadyReported();
  if (scopes.size() > kDeepestNesting)
    return error("graphs are nested more than {} deep", kDeepestNesting);
  Scope scope;
  scope.opsets = scopes.back().opsets;
  scope.caller = scopes.back().caller.empty() ? "" : scopes.back().caller + suffix;
  scope.suffix = scopes.back().suffix + suffix;
  scope.gate = gate;
  for (auto [input, slot] : llvm::zip(graph.input(), inputs))
    scope.slots[input.name()] = slot;
  // Fold values that the loop computed from constants, so that the body's nodes can be folded.
  for (const onnx::ValueInfoProto &input : graph.input())
    if (Slot &slot = scope.slots[input.name()]; slot.tensor)
      slot.tensor = stopped(folded(slot.tensor), locationOf(input.name() + scope.suffix), stopOf(input));
  const size_t before = problems.size();
  scopes.push_back(std::move(scope));
  Status status = addConstants(n, graph);
  if (status.ok())
    for (const onnx::NodeProto &node : graph.node())
      importNode(node);
  if (status.ok() && problems.size() > before)
    status = alreadyReported();
  llvm::SmallVector<Slot> outputs;
  for (const onnx::ValueInfoProto &output : graph.output()) {
    if (!status.ok())
      break;
    Expected<Slot> slot = lookUp(output.name(), locationOf(output.name()));
    if (!slot)
      status = error("output \"{}\" of its graph is computed by no node", output.name());
    else
      outputs.push_back(slot.take());
  }
  scopes.pop_back();
  if (!status.ok())
    return status;
  return outputs;
}

/// The value behind a stop. A value without a gradient gets no stop, which would hide a constant from importers that
/// need one.
Value GraphImport::stopped(Value value, Location loc, const std::string &source) {
  if (!value || source.empty() || !train::isFloatTensor(value) || isa<BlockArgument>(value) ||
      isa<train::ConstantOp>(value.getDefiningOp()))
    return value;
  if (auto read = value.getDefiningOp<train::ReadOp>())
    if (auto role = roles.initializers.find(read.getVariable().str());
        role == roles.initializers.end() || role->second.role != Role::Parameter)
      return value;
  return train::StopGradientOp::create(builder, loc, value, source);
}

/// Stops the outputs of a node that is marked (StopMarks.h).
void GraphImport::stopGradients(NodeImport &n) {
  for (int i = 0; i < n.node.output_size() && size_t(i) < n.outputs.size(); ++i) {
    const std::string source = stopOf(n.node, i);
    if (source.empty())
      continue;
    Slot &slot = n.outputs[size_t(i)];
    slot.tensor = stopped(slot.tensor, n.loc, source);
    if (slot.sequence)
      for (Value &element : *slot.sequence)
        element = stopped(element, n.loc, source);
  }
}

/// The value as a constant, if it is computed from constants by at most `depth` levels of ops.
Value GraphImport::folded(Value value, int depth) {
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0 || isa<train::ConstantOp, train::ReadOp>(op))
    return value;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
  for (OpOperand &operand : op->getOpOperands())
    operand.set(folded(operand.get(), depth - 1));
  llvm::SmallVector<Value> constants = train::foldIfConstant(builder, op, mostFoldBytes());
  return constants.empty() ? value : constants[cast<OpResult>(value).getResultNumber()];
}

/// Checks the ops built since `before`, and replaces those whose operands are constants.
Status GraphImport::foldNewOps(Operation *before, llvm::MutableArrayRef<Slot> outputs) {
  Block *block = builder.getInsertionBlock();
  Operation *op = before ? before->getNextNode() : (block->empty() ? nullptr : &block->front());
  while (op) {
    Operation *next = op->getNextNode();
    diagnostics.clear();
    for (Type type : op->getResultTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type))
        if (std::string problem =
                tensorProblem(tensor.getShape(), uint64_t(train::elementBytes(tensor.getElementType())));
            !problem.empty())
          return error("it would make a tensor {}: {}", shapeText(tensor.getShape().take_front(8)), problem);
    if (failed(verify(op)))
      return error("{}", diagnostics.empty() ? "the built op is not valid" : diagnostics);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(op);
    llvm::SmallVector<Value> constants = train::foldIfConstant(builder, op, mostFoldBytes());
    for (Value constant : constants)
      if (auto dense = dyn_cast<DenseElementsAttr>(constant.getDefiningOp<train::ConstantOp>().getValue()))
        foldedBytes += int64_t(dense.getRawData().size());
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

} // namespace tcc::frontend

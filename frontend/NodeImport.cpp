//===- NodeImport.cpp - the interface between a node and its importer -----===//
#include "frontend/NodeImport.h"

#include "compiler/dialect/Philox.h"
#include "frontend/OnnxFile.h"

#include <cstring>
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/Support/raw_ostream.h>

using namespace mlir;
namespace tcc::frontend {

std::span<const std::span<const OpEntry>> opFamilies() {
  static const std::span<const OpEntry> families[] = {
      activationOps(),       arithmeticOps(),    constantOps(),     contractionOps(), indexingOps(),   lossOps(),
      movementOps(),         normalizationOps(), reductionOps(),    selectionOps(),   sequenceOps(),   shapeOps(),
      windowOps(),           gridOps(),          patchOps(),        regionOps(),      resampleOps(),   signalOps(),
      recurrentOps(),        modeOps(),          quantizationOps(), randomOps(),      attentionOps(),  contribOps(),
      contribAttentionOps(), fourBitOps(),       textOps(),         trainingOps(),    controlFlowOps()};
  return families;
}

const OpEntry *findOp(std::string_view domain, std::string_view op, int64_t version) {
  for (std::span<const OpEntry> family : opFamilies())
    for (const OpEntry &entry : family)
      if (entry.op == op && entry.domain == domain && entry.since <= version && version <= entry.until)
        return &entry;
  return nullptr;
}

std::string typeText(Value value) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << train::elementTypeOf(value);
  return fmt::format("{}[{}]", text, fmt::join(train::shapeOf(value), "x"));
}

mlir::Type importedElementType(MLIRContext *context, int32_t onnxType, bool forceF64) {
  Builder builder(context);
  auto floating = [&](Type type) { return forceF64 ? Type(builder.getF64Type()) : type; };
  switch (onnxType) {
  case onnx::TensorProto::DOUBLE: return builder.getF64Type();
  case onnx::TensorProto::FLOAT: return floating(builder.getF32Type());
  case onnx::TensorProto::BFLOAT16: return floating(builder.getBF16Type());
  case onnx::TensorProto::FLOAT16: return floating(builder.getF16Type());
  case onnx::TensorProto::INT64: return builder.getI64Type();
  case onnx::TensorProto::INT32: return builder.getI32Type();
  case onnx::TensorProto::INT16: return builder.getIntegerType(16);
  case onnx::TensorProto::INT8: return builder.getIntegerType(8);
  case onnx::TensorProto::UINT64: return builder.getIntegerType(64, false);
  case onnx::TensorProto::UINT32: return builder.getIntegerType(32, false);
  case onnx::TensorProto::UINT16: return builder.getIntegerType(16, false);
  case onnx::TensorProto::UINT8: return builder.getIntegerType(8, false);
  case onnx::TensorProto::BOOL: return builder.getI1Type();
  default: return nullptr;
  }
}

DenseElementsAttr importedElements(MLIRContext *context, llvm::ArrayRef<int64_t> shape, int32_t onnxType,
                                   llvm::StringRef bytes, bool forceF64) {
  train::HostTensor stored(RankedTensorType::get(shape, importedElementType(context, onnxType, false)));
  llvm::copy(bytes.take_front(stored.sizeBytes()), stored.data());
  Type element = importedElementType(context, onnxType, forceF64);
  if (element == stored.elementType())
    return stored.toAttribute();
  train::HostTensor converted(RankedTensorType::get(shape, element));
  for (int64_t i = 0; i < stored.size(); ++i)
    converted.setDouble(i, stored.getDouble(i));
  return converted.toAttribute();
}

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

/// Calls `visit` for the graph inputs and reads that a value depends on, until it returns false.
static void forEachOrigin(Value value, llvm::function_ref<bool(Value)> visit) {
  llvm::SmallVector<Value> work = {value};
  llvm::SmallPtrSet<Operation *, 16> seen;
  while (!work.empty()) {
    Value next = work.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!op || isa<train::ReadOp>(op)) {
      if (!visit(next))
        return;
    } else if (seen.insert(op).second) {
      for (Value operand : op->getOperands())
        work.push_back(operand);
    }
  }
}

static std::string inputName(BlockArgument argument) {
  auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto name = function ? function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "train.name") : StringAttr();
  return name ? name.getValue().str() : "?";
}

/// Describes what a value that should be constant depends on.
static std::string originOf(Value value) {
  std::string origin = "constants too large to compute with";
  forEachOrigin(value, [&](Value from) {
    auto argument = dyn_cast<BlockArgument>(from);
    origin = argument ? fmt::format("graph input {}", inputName(argument))
                      : fmt::format("initializer {}, which is a weight",
                                    from.getDefiningOp<train::ReadOp>().getVariable().str());
    return false;
  });
  return origin;
}

std::string NodeImport::origin(Value value) const { return originOf(value); }

std::vector<std::string> NodeImport::inputsBehind(Value value) const {
  std::map<unsigned, std::string> names; // each once, by number
  forEachOrigin(value, [&](Value from) {
    if (auto argument = dyn_cast<BlockArgument>(from))
      names[argument.getArgNumber()] = inputName(argument);
    return true;
  });
  std::vector<std::string> list;
  for (auto &[number, name] : names)
    list.push_back(std::move(name));
  return list;
}

std::string NodeImport::fixAdvice(Value value) const {
  std::string options;
  for (const std::string &name : inputsBehind(value))
    options += fmt::format("{}--fix {}=VALUE", options.empty() ? "" : " ", name);
  return options.empty()
             ? options
             : fmt::format("if it is a setting and no data, give it a value with {} (model.fix in the recipe)",
                           options);
}

Value NodeImport::in(unsigned i) const {
  if (i >= inputs.size() || (!inputs[i].tensor && !inputs[i].sequence))
    throw NodeProblem{error("its input {} is missing", i)};
  if (!inputs[i].tensor)
    throw NodeProblem{error("its input \"{}\" is a sequence, where a tensor is needed", node.input(int(i)))};
  return inputs[i].tensor;
}

Expected<DenseElementsAttr> NodeImport::elements(unsigned i) const {
  if (DenseElementsAttr value = constantOf(in(i)))
    return value;
  std::string producer;
  if (Operation *op = in(i).getDefiningOp())
    if (auto name = dyn_cast<NameLoc>(op->getLoc()))
      producer = fmt::format(" (computed by {})", name.getName().str());
  const std::string fix = fixAdvice(in(i));
  return error("input \"{}\"{} must be known at compile time, but depends on {}; {}export the model with static shapes",
                     node.input(int(i)), producer, originOf(in(i)), fix.empty() ? "" : fix + ", or ");
}

Expected<Shape> NodeImport::ints(unsigned i) const {
  TCC_TRY(value, elements(i));
  // Expanding a splat may take any amount of memory.
  (void)table({value.getNumElements()});
  if (isa<FloatType>(value.getElementType()))
    return error("input \"{}\" must be of integers, not {}", node.input(int(i)), typeText(in(i)));
  train::HostTensor tensor = train::HostTensor::fromAttribute(value);
  Shape result;
  for (int64_t k = 0; k < tensor.size(); ++k)
    result.push_back(tensor.getInt(k));
  return result;
}

Expected<double> NodeImport::number(unsigned i) const {
  TCC_TRY(value, elements(i));
  if (value.getNumElements() != 1)
    return error("input \"{}\" must be one number, not {}", node.input(int(i)), typeText(in(i)));
  train::HostTensor tensor = train::HostTensor::fromAttribute(value);
  return tensor.isFloat() ? tensor.getDouble(0) : double(tensor.getInt(0));
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

const onnx::AttributeProto *NodeImport::attribute(std::string_view name) const {
  for (const onnx::AttributeProto &candidate : node.attribute())
    if (candidate.name() == name)
      return &candidate;
  return nullptr;
}

int64_t NodeImport::intAttr(std::string_view name, int64_t otherwise) const {
  const onnx::AttributeProto *found = attribute(name);
  return found ? found->i() : otherwise;
}

double NodeImport::floatAttr(std::string_view name, double otherwise) const {
  const onnx::AttributeProto *found = attribute(name);
  return found ? double(found->f()) : otherwise;
}

std::string NodeImport::stringAttr(std::string_view name, std::string_view otherwise) const {
  const onnx::AttributeProto *found = attribute(name);
  return found ? found->s() : std::string(otherwise);
}

std::optional<Shape> NodeImport::intsAttr(std::string_view name) const {
  const onnx::AttributeProto *found = attribute(name);
  if (!found)
    return std::nullopt;
  return Shape(found->ints().begin(), found->ints().end());
}

Expected<std::optional<Shape>> NodeImport::intsFrom(std::string_view name, unsigned i) const {
  if (std::optional<Shape> given = intsAttr(name))
    return given;
  if (!has(i))
    return std::optional<Shape>();
  TCC_TRY(values, ints(i));
  return std::optional<Shape>(std::move(values));
}

Expected<int64_t> NodeImport::axis(int64_t given, int64_t rank) const {
  if (given < -rank || given >= rank)
    return error("axis {} is outside of a tensor of rank {}", given, rank);
  return given < 0 ? given + rank : given;
}

Expected<Shape> NodeImport::axes(llvm::ArrayRef<int64_t> given, int64_t rank) const {
  Shape result;
  if (given.size() > kMostRank)
    return error("{} axes are given; tensors have at most {}", given.size(), kMostRank);
  for (int64_t one : given) {
    TCC_TRY(dim, axis(one, rank));
    if (llvm::is_contained(result, dim))
      return error("axis {} is given twice", one);
    result.push_back(dim);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Type NodeImport::elementType(int32_t onnxType) const {
  return importedElementType(builder.getContext(), onnxType, forceF64);
}

mlir::RankedTensorType NodeImport::type(llvm::ArrayRef<int64_t> shape, mlir::Type element) const {
  if (std::string problem = tensorProblem(shape, element ? uint64_t(train::elementBytes(element)) : 1);
      !problem.empty())
    throw NodeProblem{error("it would make a tensor {}: {}", shapeText(shape.take_front(8)), problem)};
  return mlir::RankedTensorType::get(shape, element);
}

int64_t NodeImport::table(llvm::ArrayRef<int64_t> extents) const {
  const uint64_t count = saturatingProduct(extents);
  if (count > uint64_t(kMostTableElements))
    throw NodeProblem{error("compiling it takes a table of {} elements; at most {} are supported",
                                  fmt::join(extents, " × "), kMostTableElements)};
  spend(count * sizeof(double));
  return int64_t(count);
}

void NodeImport::spend(uint64_t bytes) const {
  if (bytes > budget->constantBytes)
    throw NodeProblem{error("the model's constants and tables, repeated by its loops, take more than {} MiB beyond the "
                                  "file's own size, the most that is supported",
                                  kMostConstantBytes >> 20)};
  budget->constantBytes -= bytes;
}

Value NodeImport::constant(llvm::ArrayRef<int64_t> shape, int32_t onnxType, llvm::StringRef bytes) const {
  (void)type(shape, elementType(onnxType));
  spend(bytes.size());
  return train::ConstantOp::create(builder, loc,
                                   importedElements(builder.getContext(), shape, onnxType, bytes, forceF64));
}

Value NodeImport::splat(llvm::ArrayRef<int64_t> shape, Type element, double value) const {
  return train::splat(builder, loc, type(shape, element), value);
}

Value NodeImport::iota(llvm::ArrayRef<int64_t> shape, int64_t dim) const {
  return train::IotaOp::create(builder, loc, type(shape, i64()), dim);
}

Value NodeImport::slice(Value x, int64_t dim, int64_t begin, int64_t size) const {
  Shape shape(train::shapeOf(x));
  if (begin == 0 && shape[dim] == size)
    return x;
  Shape starts(shape.size(), 0), steps(shape.size(), 1);
  starts[dim] = begin;
  shape[dim] = size;
  return train::SliceOp::create(builder, loc, type(shape, train::elementTypeOf(x)), x, starts, steps);
}

Value NodeImport::dropDims(Value x, llvm::ArrayRef<int64_t> dims) const {
  Shape shape;
  for (auto [i, dim] : llvm::enumerate(train::shapeOf(x)))
    if (!llvm::is_contained(dims, int64_t(i)))
      shape.push_back(dim);
  return reshape(x, shape);
}

Value NodeImport::randomKey() const {
  auto type = RankedTensorType::get({4}, builder.getIntegerType(32, /*isSigned=*/false));
  return train::RandomKeyOp::create(builder, loc, type);
}

int64_t NodeImport::randomId(uint64_t seed) const {
  auto name = dyn_cast<NameLoc>(loc);
  for (uint64_t ordinal = 0;; ++ordinal)
    if (int64_t id = train::randomId(name ? name.getName().strref() : llvm::StringRef(), ordinal, seed);
        budget->randomIds.insert(id).second)
      return id;
}

Expected<std::pair<train::Expr, train::Expr>> NodeImport::common(Value x, Value y) const {
  std::optional<Shape> shape = train::broadcastShapes(train::shapeOf(x), train::shapeOf(y));
  if (!shape)
    return error("{} and {} do not broadcast together", typeText(x), typeText(y));
  return std::pair(expr(broadcast(x, *shape)), expr(broadcast(y, *shape)));
}

Status NodeImport::asVector(Status (*import)(NodeImport &)) {
  inputs[0].tensor = reshape(in(0), {1});
  if (Status status = import(*this); !status.ok())
    return status.message().empty() ? status : status.withContext("a scalar, as a vector of one element");
  for (Slot &output : outputs)
    if (output.tensor)
      output.tensor = reshape(output.tensor, {});
  return Status::success();
}

Status NodeImport::set(unsigned i, Value value) {
  if (i >= outputs.size())
    outputs.resize(i + 1);
  outputs[i] = Slot{value, std::nullopt};
  return Status::success();
}

} // namespace tcc::frontend

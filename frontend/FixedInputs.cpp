//===- FixedInputs.cpp - graph inputs that are settings -------------------===//
#include "frontend/FixedInputs.h"

#include "frontend/Dimensions.h"
#include "frontend/Limits.h"
#include "frontend/Weights.h"
#include "runtime/plan/DType.h"
#include "runtime/tensors/Safetensors.h"
#include "support/NearestName.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tcc::frontend {
namespace {

using Dims = std::vector<int64_t>;

/// The declared shape of an input; unknown extents are -1.
Dims declaredShape(const onnx::TypeProto_Tensor &type, const std::map<std::string, int64_t> &dims) {
  Dims shape;
  for (const auto &dim : type.shape().dim()) {
    std::optional<int64_t> value;
    if (dim.has_dim_value() && dim.dim_value() >= 0)
      value = dim.dim_value();
    else if (dim.has_dim_param())
      value = dimensionValue(dim.dim_param(), dims);
    shape.push_back(value.value_or(-1));
  }
  return shape;
}

std::string text(const Dims &shape) {
  std::vector<std::string> parts;
  for (int64_t extent : shape)
    parts.push_back(extent < 0 ? "?" : std::to_string(extent));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

bool fits(const Dims &given, const Dims &declared) {
  bool same = given.size() == declared.size();
  for (size_t i = 0; same && i < given.size(); ++i)
    same = declared[i] < 0 || declared[i] == given[i];
  return same;
}

bool isUnsigned(plan::DType type) {
  return type == plan::U8 || type == plan::U16 || type == plan::U32 || type == plan::U64;
}

/// True if an integer is a value of the type.
bool holds(plan::DType type, int64_t value) {
  if (type == plan::I1)
    return value == 0 || value == 1;
  const uint64_t bits = 8 * plan::dtypeBytes(type);
  if (isUnsigned(type))
    return value >= 0 && (bits == 64 || value < int64_t(1) << bits);
  return bits == 64 || (value >= -(int64_t(1) << (bits - 1)) && value < int64_t(1) << (bits - 1));
}

/// The bytes of one element. Error: the type does not have the value.
Status appendElement(const FixedValue &value, size_t i, plan::DType type, std::string &bytes) {
  std::string element(plan::dtypeBytes(type), '\0');
  if (plan::isFloatingPoint(type)) {
    plan::fillElements(element.data(), type, 1, value.numbers[i]);
  } else if (value.integers.empty()) {
    return error("{} is no {}", value.numbers[i], plan::dtypeName(type));
  } else if (!holds(type, value.integers[i])) {
    return error("{} is no {}", value.integers[i], plan::dtypeName(type));
  } else {
    std::memcpy(element.data(), &value.integers[i], element.size());
  }
  bytes += element;
  return Status::success();
}

Status fromNumbers(const FixedValue &value, const Dims &declared, const std::string &name, plan::DType type,
                   OnnxInitializer &out) {
  const bool one = value.shape.empty();
  out.dims = one ? declared : value.shape;
  if (one)
    for (int64_t extent : declared)
      if (extent < 0)
        return error("its shape {} is not known, so one number cannot fill it: give a list, or the shape with "
                           "--shape {}=…",
                           text(declared), name);
  if (!fits(out.dims, declared))
    return error("its value has the shape {}, the input {}", text(out.dims), text(declared));
  if (std::string problem = tensorProblem(out.dims, plan::dtypeBytes(type)); !problem.empty())
    return error("its shape {} is not valid: {}", text(out.dims), problem);
  const uint64_t count = saturatingProduct(out.dims);
  out.data.reserve(count * plan::dtypeBytes(type));
  for (uint64_t i = 0; i < count; ++i)
    if (Status status = appendElement(value, one ? 0 : size_t(i), type, out.data); !status.ok())
      return status;
  return Status::success();
}

Status fromFile(const FixedValue &value, const Dims &declared, const std::string &name, plan::DType type,
                OnnxInitializer &out) {
  auto opened = runtime::SafetensorsFile::open(value.file);
  if (!opened)
    return opened.status();
  const std::string wanted = value.tensor.empty() ? name : value.tensor;
  const runtime::Tensor *tensor = opened->find(wanted);
  if (!tensor) {
    std::vector<std::string> names;
    for (const runtime::Tensor &one : opened->tensors())
      names.push_back(one.name);
    return error("{} has no tensor {}; {}", value.file, wanted, nearestOrSome(wanted, names));
  }
  out.dims.assign(tensor->type.dims().begin(), tensor->type.dims().end());
  if (tensor->type.dtype() != type || !fits(out.dims, declared))
    return error("tensor {} of {} is {}, the input {}{}", wanted, value.file, plan::typeName(tensor->type),
                       plan::dtypeName(type), text(declared));
  if (std::string problem = tensorProblem(out.dims, plan::dtypeBytes(type)); !problem.empty())
    return error("the shape {} of {} is not valid: {}", text(out.dims), wanted, problem);
  out.data.assign(reinterpret_cast<const char *>(tensor->bytes.data()), tensor->bytes.size());
  return Status::success();
}

} // namespace

Expected<FixedInputs> fixInputs(OnnxFile &file, const std::map<std::string, FixedValue> &fixed,
                                const std::map<std::string, int64_t> &dims, const std::map<std::string, Dims> &shapes,
                                const std::map<std::string, std::string> &where) {
  FixedInputs result;
  std::map<std::string, const onnx::ValueInfoProto *> inputs;
  std::vector<std::string> names;
  for (const onnx::ValueInfoProto &input : file.model.graph().input())
    if (!file.initializers.count(input.name())) {
      inputs[input.name()] = &input;
      names.push_back(input.name());
    }
  std::set<std::string> files;
  for (const auto &[name, value] : fixed) {
    auto place = where.find("model.fix." + name);
    const std::string at =
        fmt::format("{}{}: model.fix.{}", place == where.end() ? "" : place->second + ": ", file.path, name);
    auto input = inputs.find(name);
    if (input == inputs.end())
      return error("{}: the model has no such input; {}", at, nearestOrSome(name, names));
    const onnx::TypeProto_Tensor &type = input->second->type().tensor_type();
    const plan::DType dtype = storedType(type.elem_type());
    if (!input->second->type().has_tensor_type() || dtype == plan::DTYPE_NONE)
      return error("{}: the input is no tensor of numbers", at);
    OnnxInitializer initializer;
    initializer.type = type.elem_type();
    initializer.fixed = true;
    Dims declared = declaredShape(type, dims);
    if (auto given = shapes.find(name); given != shapes.end()) {
      if (type.has_shape() && !fits(given->second, declared))
        return error("{}: --shape gives it {}, the model {}", at, text(given->second), text(declared));
      declared = given->second;
    } else if (!type.has_shape()) {
      declared = value.shape;
    }
    Status status = value.file.empty() ? fromNumbers(value, declared, name, dtype, initializer)
                                       : fromFile(value, declared, name, dtype, initializer);
    if (!status.ok())
      return status.withContext(at);
    if (!value.file.empty() && files.insert(value.file).second)
      result.files.push_back(value.file);
    initializer.bytes = initializer.data.size();
    onnx::TensorProto &tensor = *file.model.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(initializer.type);
    for (int64_t extent : initializer.dims)
      tensor.add_dims(extent);
    file.initializers.emplace(name, std::move(initializer));
  }
  return result;
}

} // namespace tcc::frontend

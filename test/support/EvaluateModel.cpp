//===- EvaluateModel.cpp - an imported model through the naive evaluators -===//
#include "test/support/EvaluateModel.h"

#include "compiler/dialect/Builders.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstring>
#include <fstream>

using namespace mlir;

namespace tcc::test {

using train::HostTensor;

/// The initializer's elements, converted to the variable's type.
static Expected<HostTensor> initialValue(const Initializer &initializer, RankedTensorType type) {
  std::string bytes(initializer.bytes, '\0');
  if (initializer.data) {
    std::memcpy(bytes.data(), initializer.data, bytes.size());
  } else {
    std::ifstream stream(initializer.file, std::ios::binary);
    stream.seekg(std::streamoff(initializer.offset));
    if (!stream.read(bytes.data(), std::streamsize(bytes.size())))
      return error("{}: too short", initializer.file);
  }
  HostTensor value(type);
  if (value.sizeBytes() == bytes.size()) {
    std::memcpy(value.data(), bytes.data(), bytes.size());
    return value;
  }
  if (initializer.type.dtype() != plan::F32)
    return error("{}: only f32 converts", initializer.name);
  const auto *floats = reinterpret_cast<const float *>(bytes.data());
  for (int64_t i = 0; i < value.size(); ++i)
    value.setDouble(i, floats[i]);
  return value;
}

Expected<Tensors> evaluateModel(const ImportedModel &model, const Tensors &inputs) {
  auto function = (*model.module).lookupSymbol<func::FuncOp>("forward");
  if (!function)
    return error("the module has no @forward");
  llvm::DenseMap<Value, HostTensor> values;
  for (BlockArgument argument : function.getArguments()) {
    std::string name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "train.name").str();
    auto found = inputs.find(name);
    if (found == inputs.end())
      return error("input {} is missing", name);
    if (found->second.type() != argument.getType())
      return error("input {} has another type", name);
    values[argument] = found->second;
  }
  Tensors results;
  for (Operation &op : function.getBody().front()) {
    if (auto read = dyn_cast<train::ReadOp>(op)) {
      auto value = initialValue(model.initializers.at(read.getVariable().str()), cast<RankedTensorType>(read.getType()));
      if (!value)
        return value.status();
      values[read.getResult()] = value.take();
    } else if (auto constant = dyn_cast<train::ConstantOp>(op)) {
      values[constant.getResult()] = HostTensor::fromAttribute(constant.getValue());
    } else if (auto reference = dyn_cast<train::Reference>(op)) {
      llvm::SmallVector<HostTensor> operands, outputs;
      for (Value operand : op.getOperands())
        operands.push_back(values.at(operand));
      for (Type type : op.getResultTypes())
        outputs.emplace_back(cast<RankedTensorType>(type));
      reference.evaluate(operands, outputs);
      for (auto [result, output] : llvm::zip_equal(op.getResults(), outputs))
        values[result] = output;
    } else if (auto done = dyn_cast<func::ReturnOp>(op)) {
      for (auto [i, operand] : llvm::enumerate(done.getOperands()))
        results[function.getResultAttrOfType<StringAttr>(unsigned(i), "train.name").str()] = values.at(operand);
    } else {
      return error("{} has no Reference", op.getName().getStringRef().str());
    }
  }
  return results;
}

} // namespace tcc::test

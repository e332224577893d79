//===- Evaluate.cpp - functions through the naive evaluators ----*- C++ -*-===//
#include "test/support/Evaluate.h"

using namespace mlir;
using tcc::train::HostTensor;

namespace tcc::test {

std::vector<HostTensor> evaluate(func::FuncOp function, llvm::ArrayRef<HostTensor> arguments) {
  llvm::DenseMap<Value, HostTensor> values;
  for (auto [argument, value] : llvm::zip_equal(function.getArguments(), arguments))
    values[argument] = value;
  std::vector<HostTensor> returned;
  for (Operation &op : function.getBody().front()) {
    if (isa<func::ReturnOp>(op)) {
      for (Value operand : op.getOperands())
        returned.push_back(values.at(operand));
      continue;
    }
    llvm::SmallVector<HostTensor> operands, results;
    for (Value operand : op.getOperands())
      operands.push_back(values.at(operand));
    for (Type type : op.getResultTypes())
      results.emplace_back(cast<RankedTensorType>(type));
    cast<train::Reference>(op).evaluate(operands, results);
    for (auto [result, value] : llvm::zip_equal(op.getResults(), results))
      values[result] = value;
  }
  return returned;
}

} // namespace tcc::test

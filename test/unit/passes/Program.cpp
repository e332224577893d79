//===- Program.cpp - run passes on textual IR and evaluate the result -----===//
#include "test/unit/passes/Program.h"

#include "compiler/dialect/Builders.h"
#include "compiler/kernels/Kernels.h"
#include "passes/Common.h"
#include "passes/RecipeAttribute.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

using namespace mlir;

namespace tcc::test {

Program::Program(const std::string &text) {
  DialectRegistry registry;
  train::registerKernels(registry);
  context.appendDialectRegistry(registry);
  context.loadDialect<train::TrainDialect, func::FuncDialect>();
  module = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(module) << text;
}

void Program::describe(const Recipe &recipe, llvm::ArrayRef<llvm::StringRef> entries) {
  train::setRecipe(*module, recipe);
  if (!entries.empty())
    (*module)->setAttr(train::names::kEntries, Builder(&context).getStrArrayAttr(entries));
}

bool Program::run(const std::function<void(PassManager &)> &addPasses) {
  messages.clear();
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) { messages += diagnostic.str() + "\n"; });
  PassManager manager(&context);
  addPasses(manager);
  return succeeded(manager.run(*module));
}

static std::string argumentName(func::FuncOp function, unsigned i) {
  if (function.getArgAttr(i, "train.scalars"))
    return "scalars";
  for (const char *key : {"train.name", "train.variable"})
    if (auto name = function.getArgAttrOfType<StringAttr>(i, key))
      return name.str();
  return "";
}

static std::string resultName(func::FuncOp function, unsigned i) {
  if (auto name = function.getResultAttrOfType<StringAttr>(i, "train.gradient_of"))
    return "gradient:" + name.str();
  for (const char *key : {"train.name", "train.variable"})
    if (auto name = function.getResultAttrOfType<StringAttr>(i, key))
      return name.str();
  return "";
}

HostTensor Program::tensor(const std::string &name, const Numbers &values) {
  RankedTensorType type;
  if (auto variable = module->lookupSymbol<train::VariableOp>(name))
    type = cast<RankedTensorType>(variable.getType());
  for (auto function : module->getOps<func::FuncOp>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (argumentName(function, i) == name)
        type = cast<RankedTensorType>(function.getArgument(i).getType());
  EXPECT_TRUE(type) << "nothing is called " << name;
  HostTensor result(type);
  EXPECT_EQ(size_t(result.size()), values.size()) << name;
  for (size_t i = 0; i < values.size(); ++i)
    result.isFloat() ? result.setDouble(i, values[i]) : result.setInt(i, int64_t(values[i]));
  return result;
}

Tensors Program::call(const std::string &name, const Tensors &arguments) {
  Tensors results;
  auto function = module->lookupSymbol<func::FuncOp>(name);
  if (!function) {
    ADD_FAILURE() << "there is no @" << name;
    return results;
  }
  llvm::DenseMap<Value, HostTensor> known;
  auto given = [&](const std::string &what, Value value) {
    auto found = arguments.find(what);
    ASSERT_NE(found, arguments.end()) << name << " needs " << what;
    ASSERT_EQ(found->second.type(), value.getType()) << what;
    known[value] = found->second;
  };
  for (BlockArgument argument : function.getArguments())
    given(argumentName(function, argument.getArgNumber()), argument);
  for (Operation &op : function.getBody().front()) {
    if (auto read = dyn_cast<train::ReadOp>(op)) {
      given(read.getVariable().str(), read.getResult());
    } else if (auto constant = dyn_cast<train::ConstantOp>(op)) {
      known[constant.getResult()] = HostTensor::fromAttribute(constant.getValue());
    } else if (auto reference = dyn_cast<train::Reference>(op)) {
      llvm::SmallVector<HostTensor> operands, outputs;
      for (Value operand : op.getOperands())
        operands.push_back(known[operand]);
      for (Type type : op.getResultTypes())
        outputs.emplace_back(cast<RankedTensorType>(type));
      reference.evaluate(operands, outputs);
      for (auto [result, output] : llvm::zip_equal(op.getResults(), outputs))
        known[result] = output;
    } else if (auto done = dyn_cast<func::ReturnOp>(op)) {
      for (auto [i, operand] : llvm::enumerate(done.getOperands()))
        results[resultName(function, i)] = known[operand];
    } else {
      ADD_FAILURE() << op.getName().getStringRef().str() << " has no Reference";
      return results;
    }
  }
  return results;
}

std::vector<std::string> Program::scalars() {
  std::vector<std::string> names;
  if (auto list = (*module)->getAttrOfType<ArrayAttr>("train.scalars"))
    for (auto name : list.getAsRange<StringAttr>())
      names.push_back(name.str());
  return names;
}

std::string parameterModule(const std::string &shape) {
  return "train.variable @p : tensor<" + shape + "xf64> {role = \"parameter\"}\n" +       //
         "func.func @forward() -> (tensor<" + shape + "xf64> {train.name = \"y\"}) {\n" + //
         "  %p = train.read @p : tensor<" + shape + "xf64>\n  return %p : tensor<" + shape + "xf64>\n}\n";
}

Numbers values(const HostTensor &tensor) {
  Numbers numbers;
  for (int64_t i = 0; i < tensor.size(); ++i)
    numbers.push_back(tensor.getDouble(i));
  return numbers;
}

void expectNear(const HostTensor &actual, const Numbers &expected, double tolerance, double floor) {
  ASSERT_EQ(size_t(actual.size()), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual.getDouble(i), expected[i], tolerance * std::max(std::abs(expected[i]), floor))
        << "element " << i;
}

std::vector<TensorList> evaluateRanks(func::FuncOp function, const std::vector<TensorList> &arguments) {
  std::vector<llvm::DenseMap<Value, HostTensor>> known(arguments.size());
  for (size_t rank = 0; rank < arguments.size(); ++rank)
    for (auto [argument, value] : llvm::zip_equal(function.getArguments(), arguments[rank]))
      known[rank][argument] = value;
  auto operandsOf = [&](Operation *op, size_t rank) {
    TensorList operands;
    for (Value operand : op->getOperands())
      operands.push_back(known[rank].at(operand));
    return operands;
  };
  auto resultsOf = [](Operation *op) {
    TensorList results;
    for (Type type : op->getResultTypes())
      results.emplace_back(cast<RankedTensorType>(type));
    return results;
  };
  Block &block = function.getBody().front();
  for (Operation &op : block.without_terminator()) {
    std::vector<TensorList> operands, results;
    for (size_t rank = 0; rank < arguments.size(); ++rank) {
      operands.push_back(operandsOf(&op, rank));
      results.push_back(resultsOf(&op));
    }
    if (auto collective = dyn_cast<train::Collective>(op))
      collective.evaluateRanks(operands, results);
    else
      for (size_t rank = 0; rank < arguments.size(); ++rank)
        cast<train::Reference>(op).evaluate(operands[rank], results[rank]);
    for (size_t rank = 0; rank < arguments.size(); ++rank)
      for (auto [result, value] : llvm::zip_equal(op.getResults(), results[rank]))
        known[rank][result] = value;
  }
  std::vector<TensorList> returned;
  for (size_t rank = 0; rank < arguments.size(); ++rank)
    returned.push_back(operandsOf(block.getTerminator(), rank));
  return returned;
}

} // namespace tcc::test

//===- Gradients.cpp - every gradient against finite differences -*- C++ -*-===//
//
// For a case f and weights w, the gradient of Σ w·f(x) that buildGradient makes is compared with central differences of the
// same sum, both through the naive evaluators in f64.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "test/support/Cases.h"
#include "test/support/Evaluate.h"

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringSet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

bool isFloat(Type type) { return isa<FloatType>(cast<RankedTensorType>(type).getElementType()); }

/// Turns @f into its gradient by the chain rule over its ops: adds arguments for the weights of its float results, and
/// returns the gradients of its float arguments.
func::FuncOp differentiate(func::FuncOp function) {
  Block &body = function.getBody().front();
  auto done = cast<func::ReturnOp>(body.getTerminator());
  OpBuilder builder(done);
  Location loc = builder.getUnknownLoc();
  unsigned arguments = body.getNumArguments();
  llvm::DenseMap<Value, Value> gradients;
  auto accumulate = [&](Value value, Value gradient) {
    Value &sum = gradients[value];
    sum = sum ? train::AddOp::create(builder, loc, sum, gradient).getResult() : gradient;
  };
  llvm::SmallVector<Value> returned(done.getOperands());
  llvm::SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    ops.push_back(&op);
  for (Value value : returned)
    if (isFloat(value.getType()))
      accumulate(value, body.addArgument(value.getType(), loc));
  for (Operation *op : llvm::reverse(ops)) {
    auto rule = dyn_cast<train::Differentiable>(op);
    llvm::SmallVector<Value> resultGradients, operandGradients(op->getNumOperands());
    for (Value result : op->getResults())
      resultGradients.push_back(gradients.lookup(result));
    if (!rule || llvm::none_of(resultGradients, [](Value value) { return bool(value); }))
      continue;
    rule.buildGradient(builder, resultGradients, operandGradients);
    for (auto [operand, gradient] : llvm::zip_equal(op->getOperands(), operandGradients))
      if (gradient) {
        EXPECT_EQ(gradient.getType(), operand.getType());
        accumulate(operand, gradient);
      }
  }
  llvm::SmallVector<Value> results;
  for (BlockArgument argument : body.getArguments().take_front(arguments))
    if (isFloat(argument.getType())) {
      // A missing gradient means 0, which the differences must confirm.
      Value gradient = gradients.lookup(argument);
      results.push_back(gradient ? gradient : train::splat(builder, loc, argument.getType(), 0));
    }
  func::ReturnOp::create(builder, loc, results);
  done.erase();
  function.setType(FunctionType::get(function.getContext(), body.getArgumentTypes(), ValueRange(results).getTypes()));
  return function;
}

double weighted(func::FuncOp function, llvm::ArrayRef<HostTensor> arguments, llvm::ArrayRef<HostTensor> weights) {
  double sum = 0;
  size_t next = 0;
  for (const HostTensor &result : test::evaluate(function, arguments)) {
    if (!result.isFloat())
      continue;
    for (int64_t i = 0; i < result.size(); ++i)
      if (!std::isinf(result.getDouble(i))) // skips the maximum of a window without inputs, which is always −∞
        sum += result.getDouble(i) * weights[next].getDouble(i);
    ++next;
  }
  return sum;
}

class Gradients : public testing::TestWithParam<test::Case> {};

TEST_P(Gradients, AgreeWithFiniteDifferences) {
  const test::Case &c = GetParam();
  OwningOpRef<ModuleOp> module = test::parseCase(c, "f64");
  ASSERT_TRUE(module);
  OwningOpRef<ModuleOp> derived = module->clone();
  auto function = *module->getOps<func::FuncOp>().begin();
  std::vector<HostTensor> arguments = test::argumentsOf(c, function), weights;
  std::mt19937_64 random(99);
  for (Type type : function.getResultTypes())
    if (isFloat(type)) {
      weights.emplace_back(cast<RankedTensorType>(type));
      for (int64_t i = 0; i < weights.back().size(); ++i)
        weights.back().setDouble(i, double(random() >> 11) * 0x1p-52 - 1);
    }
  func::FuncOp gradient = differentiate(*derived->getOps<func::FuncOp>().begin());
  ASSERT_TRUE(succeeded(verify(*derived)));
  std::vector<HostTensor> inputs = arguments;
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  std::vector<HostTensor> gradients = test::evaluate(gradient, inputs);

  size_t next = 0;
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (!arguments[a].isFloat())
      continue;
    const HostTensor &actual = gradients[next++];
    for (int64_t i = 0; i < arguments[a].size(); ++i) {
      double x = arguments[a].getDouble(i), step = 1e-5 * std::max(1.0, std::fabs(x));
      arguments[a].setDouble(i, x + step);
      double above = weighted(function, arguments, weights);
      arguments[a].setDouble(i, x - step);
      double below = weighted(function, arguments, weights);
      arguments[a].setDouble(i, x);
      double expected = (above - below) / (2 * step);
      EXPECT_NEAR(actual.getDouble(i), expected, 1e-6 * std::max(0.1, std::fabs(expected))) << "argument " << a << ", element " << i;
    }
  }
}

/// Cases in f64 whose ops are differentiable with respect to some argument.
std::vector<test::Case> differentiableCases() {
  std::vector<test::Case> chosen;
  for (const test::Case &c : test::allCases()) {
    std::vector<std::string> types = c.elementTypes();
    bool inDouble = types.front() == "f64" || (types.front().empty() && c.signature.find("f64") != std::string::npos);
    if (!c.gradient || !inDouble)
      continue;
    OwningOpRef<ModuleOp> module = test::parseCase(c, "f64");
    if (!module) { // kept, so that its own test reports the failure
      chosen.push_back(c);
      continue;
    }
    auto function = *module->getOps<func::FuncOp>().begin();
    bool flows = llvm::any_of(function.getArgumentTypes(), [](Type type) { return isFloat(type) && cast<RankedTensorType>(type).getElementType().isF64(); }) &&
                 llvm::any_of(function.getResultTypes(), isFloat);
    for (Operation &op : function.getBody().front().without_terminator())
      flows &= isa<train::Differentiable>(op) || isa<train::ConstantOp>(op);
    if (flows)
      chosen.push_back(c);
  }
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Ops, Gradients, testing::ValuesIn(differentiableCases()),
                         [](const testing::TestParamInfo<test::Case> &info) { return info.param.name; });

TEST(GradientTable, CoversEveryDifferentiableOp) {
  llvm::StringSet<> covered;
  for (const test::Case &c : differentiableCases()) {
    OwningOpRef<ModuleOp> module = test::parseCase(c, "f64");
    ASSERT_TRUE(module) << c.name;
    module->walk([&](train::Differentiable op) { covered.insert(op->getName().getStringRef()); });
  }
  for (RegisteredOperationName name : test::testContext().getRegisteredOperationsByDialect("train"))
    if (name.hasInterface<train::Differentiable>() && !name.hasInterface<train::Collective>()) { // InterfaceCoverage.cpp
      EXPECT_TRUE(covered.contains(name.getStringRef())) << name.getStringRef().str() << " has a gradient that no case tests";
    }
}

} // namespace

//===- Kernels.cpp - every generated kernel against the reference -*- C++ -*-===//
//
// All cases in all element types: integers must agree exactly, floats to what rounding explains.
//
//===----------------------------------------------------------------------===//
#include "test/support/Cases.h"
#include "test/support/Evaluate.h"
#include "test/support/RunCompiled.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

/// Two units in the last place; 16-bit types are rounded once more than the reference.
double toleranceOf(Type element) {
  if (element.isF64())
    return 0x1p-50;
  if (element.isF32())
    return 0x1p-21;
  return element.isF16() ? 0x1p-10 : 0x1p-7;
}

void expectEqual(const HostTensor &actual, const HostTensor &expected, const test::Case &c) {
  ASSERT_EQ(actual.type(), expected.type());
  if (!expected.isFloat()) {
    for (int64_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(actual.getInt(i), expected.getInt(i)) << "element " << i;
    return;
  }
  // Sums cancel: what they lose is measured by their largest element.
  double scale = 1;
  if (c.slack > 1)
    for (int64_t i = 0; i < expected.size(); ++i)
      scale = std::max(scale, std::fabs(expected.getDouble(i)));
  for (int64_t i = 0; i < expected.size(); ++i) {
    double x = expected.getDouble(i), y = actual.getDouble(i);
    if (std::isnan(x) || std::isinf(x)) {
      ASSERT_TRUE(std::isnan(x) ? std::isnan(y) : x == y) << "element " << i << ": " << y << ", not " << x;
      continue;
    }
    ASSERT_NEAR(y, x, c.slack * toleranceOf(expected.elementType()) * std::max(scale, std::fabs(x))) << "element " << i;
  }
}

class Kernels : public testing::TestWithParam<test::Case> {};

TEST_P(Kernels, AgreeWithReference) {
  const test::Case &c = GetParam();
  for (const std::string &type : c.elementTypes()) {
    SCOPED_TRACE(type);
    OwningOpRef<ModuleOp> module = test::parseCase(c, type);
    ASSERT_TRUE(module);
    auto function = *module->getOps<func::FuncOp>().begin();
    std::vector<HostTensor> arguments = test::argumentsOf(c, function);
    std::vector<HostTensor> expected = test::evaluate(function, arguments), actual = test::runCompiled(*module, arguments);
    ASSERT_EQ(actual.size(), expected.size());
    for (auto [got, wanted] : llvm::zip_equal(actual, expected))
      expectEqual(got, wanted, c);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Kernels, testing::ValuesIn(test::allCases()),
                         [](const testing::TestParamInfo<test::Case> &info) { return info.param.name; });

/// One op on given numbers, in f32 or f64.
HostTensor apply(const std::string &op, const std::string &type, llvm::ArrayRef<double> values) {
  std::string tensor = "tensor<" + std::to_string(values.size()) + "x" + type + ">";
  test::Case c{op, "(%x: " + tensor + ") -> " + tensor, "%r = train." + op + " %x : " + tensor, test::Types::None};
  OwningOpRef<ModuleOp> module = test::parseCase(c, "");
  HostTensor argument(cast<RankedTensorType>((*module->getOps<func::FuncOp>().begin()).getArgumentTypes()[0]));
  for (auto [i, value] : llvm::enumerate(values))
    argument.setDouble(i, value);
  return test::runCompiled(*module, {argument})[0];
}

TEST(SpecialValues, ComeOutOfKernelsAsInC) {
  const std::vector<double> values = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-320, -1e-40, 88.8, -87.5, -100, 709.5, -740, 1e30, -1e30, 1, -1, -2};
  using Function = double (*)(double);
  for (auto [op, exact] : {std::pair<const char *, Function>{"exp", std::exp}, {"log", std::log}, {"log1p", std::log1p}, {"tanh", std::tanh}, {"erf", std::erf}, {"atan", std::atan}, {"expm1", std::expm1}, {"asin", std::asin}, {"acos", std::acos}, {"sinh", std::sinh}, {"cosh", std::cosh}, {"asinh", std::asinh}, {"acosh", std::acosh}, {"atanh", std::atanh}})
    for (const char *type : {"f64", "f32"}) {
      HostTensor actual = apply(op, type, values);
      HostTensor expected(actual.type()), rounded(actual.type());
      for (auto [i, value] : llvm::enumerate(values)) {
        rounded.setDouble(i, value);
        expected.setDouble(i, exact(rounded.getDouble(i)));
        double x = expected.getDouble(i), y = actual.getDouble(i);
        if (std::isnan(x) || std::isinf(x) || x == 0) {
          EXPECT_TRUE(std::isnan(x) ? std::isnan(y) : x == y) << op << " of " << value << " in " << type << ": " << y << ", not " << x;
        } else {
          EXPECT_NEAR(y / x, 1, std::fabs(x) < 1e-37 && type == std::string("f32") ? 1e-2 : 3e-7) << op << " of " << value << " in " << type;
        }
      }
    }
}

} // namespace

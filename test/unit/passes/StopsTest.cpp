//===- StopsTest.cpp - gradients that stop, and differences that hold ------===//
//
// A layer whose weight is quantised with a straight-through gradient, and a target that is detached. Finite differences
// of the loss with stopped values held fixed agree with the derived gradients; they would not if a stop were ignored.
//
//===----------------------------------------------------------------------===//
#include "test/unit/passes/Program.h"

#include <gtest/gtest.h>

namespace tcc::test {
namespace {

/// Σ (w + stop(round(4w)/4 − w))³ + Σ stop(v)·w + Σ v·x: w is quantised straight through, and the gradient of v is
/// stopped at one of its two readers.
const char *kStops = R"(
train.variable @w : tensor<4xf64> {role = "parameter"}
train.variable @v : tensor<4xf64> {role = "parameter"}
func.func @loss(%x: tensor<4xf64> {train.name = "x"})
    -> (tensor<f64> {train.name = "loss_sum"}, tensor<f64> {train.name = "loss_weight"}) {
  %w = train.read @w : tensor<4xf64>
  %v = train.read @v : tensor<4xf64>
  %four = train.constant dense<4.0> : tensor<4xf64>
  %0 = train.mul %w, %four : tensor<4xf64>
  %1 = train.round %0 : tensor<4xf64>
  %2 = train.div %1, %four : tensor<4xf64>
  %3 = train.sub %2, %w : tensor<4xf64>
  %4 = train.stop_gradient %3 : tensor<4xf64>
  %5 = train.add %w, %4 : tensor<4xf64>
  %6 = train.mul %5, %5 : tensor<4xf64>
  %7 = train.mul %6, %5 : tensor<4xf64>
  %8 = train.stop_gradient %v : tensor<4xf64>
  %9 = train.mul %8, %w : tensor<4xf64>
  %10 = train.mul %v, %x : tensor<4xf64>
  %11 = train.add %7, %9 : tensor<4xf64>
  %12 = train.add %11, %10 : tensor<4xf64>
  %13 = train.reduce sum %12 [0] : tensor<4xf64> -> tensor<1xf64>
  %14 = train.reshape %13 : tensor<1xf64> -> tensor<f64>
  %15 = train.constant dense<1.0> : tensor<f64>
  return %14, %15 : tensor<f64>, tensor<f64>
})";

constexpr const char *kHold = "tcc.stopped/hold";

Tensors argumentsOf(Program &program) {
  return {{"x", program.tensor("x", {1, -2, 3, 0.5})},
          {"w", program.tensor("w", {0.3, -0.8, 1.3, 0.05})},
          {"v", program.tensor("v", {2, 1, -1, 0.5})},
          {kHold, program.tensor(kHold, {0})},
          {"tcc.stopped/0", program.tensor("tcc.stopped/0", {0, 0, 0, 0})},
          {"tcc.stopped/1", program.tensor("tcc.stopped/1", {0, 0, 0, 0})}};
}

/// Makes @gradients; `ignore` removes the stops before gradients are derived, as a broken compiler would.
void makeGradients(Program &program, bool ignore) {
  program.describe(Recipe(), {"gradients"});
  ASSERT_TRUE(program.run([&](mlir::PassManager &manager) {
    manager.addPass(train::createHoldStopsPass());
    if (ignore)
      manager.addPass(train::createElideStopsPass());
    manager.addPass(train::createDifferentiatePass());
    manager.addPass(train::createElideStopsPass());
    manager.addPass(train::createBuildUpdatePass());
  })) << program.messages;
}

/// Central differences of a parameter, element by element, with stopped values held as in `base`.
Numbers differences(Program &program, const Tensors &arguments, Tensors &base, const std::string &name) {
  Tensors moved = arguments;
  moved[kHold] = program.tensor(kHold, {1});
  for (const char *held : {"tcc.stopped/0", "tcc.stopped/1"})
    moved[held] = base[held];
  HostTensor &parameter = moved[name] = HostTensor::fromAttribute(arguments.at(name).toAttribute());
  const double step = 1e-5;
  Numbers result;
  for (int64_t i = 0; i < parameter.size(); ++i) {
    const double at = parameter.getDouble(i);
    auto lossAt = [&](double value) {
      parameter.setDouble(i, value);
      return program.call("gradients", moved)["loss"].getDouble(0);
    };
    result.push_back((lossAt(at + step) - lossAt(at - step)) / (2 * step));
    parameter.setDouble(i, at);
  }
  return result;
}

TEST(Stops, GradientsAgreeWithDifferencesThatHoldStoppedValues) {
  Program program(kStops);
  makeGradients(program, /*ignore=*/false);
  Tensors arguments = argumentsOf(program), base = program.call("gradients", arguments);
  // The gradients are 3·q² + v, where q is the quantised weight, and x: neither the rounding nor the detached reader of
  // v adds anything.
  Numbers quantised = {0.25, -0.75, 1.25, 0}, expected;
  for (size_t i = 0; i < quantised.size(); ++i)
    expected.push_back(3 * quantised[i] * quantised[i] + arguments["v"].getDouble(int64_t(i)));
  expectNear(base["gradient:w"], expected, 1e-12);
  expectNear(base["gradient:v"], values(arguments["x"]), 1e-12);
  for (const char *name : {"w", "v"}) {
    SCOPED_TRACE(name);
    expectNear(base[std::string("gradient:") + name], differences(program, arguments, base, name), 1e-8);
  }
}

TEST(Stops, DifferencesTellAnIgnoredStop) {
  Program program(kStops);
  makeGradients(program, /*ignore=*/true);
  Tensors arguments = argumentsOf(program), base = program.call("gradients", arguments);
  Numbers w = differences(program, arguments, base, "w"), v = differences(program, arguments, base, "v");
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_GT(std::abs(base["gradient:v"].getDouble(i) - v[size_t(i)]), 0.04) << i; // too large by w
  EXPECT_GT(std::abs(base["gradient:w"].getDouble(2) - w[2]), 1);                   // no straight-through gradient
}

TEST(Stops, AHeldValueStaysAndAFreshOneIsKept) {
  Program program(kStops);
  makeGradients(program, /*ignore=*/false);
  Tensors arguments = argumentsOf(program), base = program.call("gradients", arguments);
  expectNear(base["tcc.stopped/1"], {2, 1, -1, 0.5}, 0);
  arguments["v"] = program.tensor("v", {5, 5, 5, 5});
  expectNear(program.call("gradients", arguments)["tcc.stopped/1"], {5, 5, 5, 5}, 0);
  arguments[kHold] = program.tensor(kHold, {1});
  arguments["tcc.stopped/1"] = base["tcc.stopped/1"];
  expectNear(program.call("gradients", arguments)["tcc.stopped/1"], {2, 1, -1, 0.5}, 0);
}

TEST(Stops, AParameterBehindAStopAloneIsNamedWithIt) {
  Program program(R"(
train.variable @w : tensor<4xf64> {role = "parameter"}
train.variable @target : tensor<4xf64> {role = "parameter"}
train.variable @rounded : tensor<4xf64> {role = "parameter"}
func.func @loss() -> (tensor<f64> {train.name = "loss_sum"}, tensor<f64> {train.name = "loss_weight"}) {
  %w = train.read @w : tensor<4xf64>
  %t = train.read @target : tensor<4xf64>
  %r = train.read @rounded : tensor<4xf64>
  %zero = train.constant dense<0.0> : tensor<4xf64>
  %p = train.compare gt %t, %zero : tensor<4xf64> -> tensor<4xi1> loc("positive")
  %0 = train.select %p, %t, %zero : tensor<4xi1>, tensor<4xf64>
  %1 = train.stop_gradient %0 {source = "aten.detach"} : tensor<4xf64> loc("detach")
  %q = train.compare gt %r, %zero : tensor<4xf64> -> tensor<4xi1> loc("above")
  %2 = train.select %q, %r, %zero : tensor<4xi1>, tensor<4xf64>
  %3 = train.floor %2 : tensor<4xf64> loc("floor")
  %4 = train.sub %w, %1 : tensor<4xf64>
  %5 = train.mul %4, %3 : tensor<4xf64>
  %6 = train.reduce sum %5 [0] : tensor<4xf64> -> tensor<1xf64>
  %7 = train.reshape %6 : tensor<1xf64> -> tensor<f64>
  return %7, %7 : tensor<f64>, tensor<f64>
})");
  ASSERT_TRUE(program.run([](mlir::PassManager &manager) { manager.addPass(train::createDifferentiatePass()); }))
      << program.messages;
  std::vector<std::string> found;
  for (auto entry :
       (*program.module)->getAttrOfType<mlir::ArrayAttr>("train.unused_parameters").getAsRange<mlir::DictionaryAttr>())
    found.push_back(entry.getAs<mlir::StringAttr>("name").str() + ", " + entry.getAs<mlir::StringAttr>("node").str() +
                    ": " + entry.getAs<mlir::StringAttr>("reason").str());
  // The reason names the stop, not the comparisons that also block the gradient.
  EXPECT_EQ(found, (std::vector<std::string>{"target, detach: detached: no gradient passes through stop_gradient",
                                             "rounded, floor: detached: no gradient passes through floor"}));
}

} // namespace
} // namespace tcc::test

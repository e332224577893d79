//===- TinyMachineTest.cpp - a new machine is two folders -----------------===//
//
// Neither a pass nor the training loop knows the target `tiny` or the device `tiny`. A program that registers them
// compiles a model for this machine, and trains it there to PyTorch's losses.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/CompileModel.h"
#include "runtime/plan/Verifier.h"
#include "runtime/registry/DeviceRegistry.h"
#include "runtime/train/Train.h"
#include "test/tiny/device/TinyDevice.h"
#include "test/tiny/target/TinyTarget.h"

#include "mlir/IR/MLIRContext.h"

#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace tcc;

namespace {
class TinyMachine : public ::testing::Test {
protected:
  TinyMachine() : context(dialects()) {
    CompileOptions options;
    options.modelPath = ZOO "/mlp/model.onnx";
    options.recipePath = ZOO "/mlp/recipe.toml";
    options.target = "tiny";
    auto compiled = compileModel(context, options);
    EXPECT_TRUE(compiled.ok()) << compiled.message();
    if (!compiled)
      return;
    auto written = compiled->writer.toBuffer(compiled->plan);
    EXPECT_TRUE(written.ok()) << written.message();
    bytes = std::make_shared<const std::string>(written->begin(), written->end());
    plan = compiled->plan;
  }

  Expected<runtime::Session> open(const runtime::DeviceRegistry &devices) {
    runtime::SessionOptions options;
    options.planPath = ZOO "/mlp/model.tplan";
    options.planBytes = bytes;
    options.devices = &devices;
    return runtime::openSession(options);
  }

  plan::Plan plan;
  std::shared_ptr<const std::string> bytes;

private:
  /// This program's targets, `tiny` behind those of the compiler.
  static mlir::DialectRegistry dialects() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    target::registerTarget(test::tinyKind());
    return registry;
  }
  mlir::MLIRContext context;
};

struct Losses : runtime::RunEvents {
  void update(const runtime::UpdateMetrics &update) override { all.push_back(update.loss); }
  std::vector<double> all;
};
} // namespace

TEST_F(TinyMachine, ItsChoicesStandInThePlan) {
  EXPECT_EQ(plan.target(), "tiny:one");
  EXPECT_EQ(plan.library(), "");
  auto reader = plan::PlanReader::fromBuffer(*bytes);
  ASSERT_TRUE(reader.ok()) << reader.message();
  for (const std::string &problem : plan::verifyPlan(reader->plan(), 5))
    ADD_FAILURE() << problem;
  int products = 0;
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Instruction &instruction : entry.instructions()) {
      if (!instruction.has_matmul())
        continue;
      ++products;
      EXPECT_EQ(instruction.matmul().tile_m(), instruction.matmul().m());
      EXPECT_EQ(instruction.matmul().numerics(), test::kTinyNumerics);
      EXPECT_FALSE(instruction.matmul().has_row_kernel()) << "it cannot hand rows to kernels";
      EXPECT_EQ(instruction.scratch_slot_bytes(), 640u);
      // The cost follows the target's own rates: 7 ns, plus 1 ns for 3 operations.
      EXPECT_GE(static_cast<double>(instruction.cost()), 7 + instruction.flops() / 3 - 1);
    }
  EXPECT_GT(products, 0);
}

TEST_F(TinyMachine, TrainsToPyTorchsLosses) {
  runtime::DeviceRegistry devices = runtime::standardDevices();
  devices.add(test::tinyDevice());
  auto session = open(devices);
  ASSERT_TRUE(session.ok()) << session.message();
  EXPECT_EQ(session->device->capabilities().name, "tiny");
  std::ifstream file(ZOO "/mlp/expected.json");
  const nlohmann::json expected = nlohmann::json::parse(file);
  Losses losses;
  runtime::TrainOptions options;
  options.data = ZOO "/mlp/data.safetensors";
  options.steps = expected["loss"].size();
  options.shuffle = false;
  options.keepsFiles = false;
  options.events = &losses;
  Status status = runtime::train(*session, options);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(losses.all.size(), expected["loss"].size());
  for (size_t i = 0; i < losses.all.size(); ++i)
    EXPECT_NEAR(losses.all[i], expected["loss"][i].get<double>(), expected["tolerance"].get<double>()) << i;
}

TEST_F(TinyMachine, NothingElseRunsItsPlans) {
  auto session = open(runtime::standardDevices());
  ASSERT_FALSE(session.ok());
  EXPECT_NE(session.message().find("tiny"), std::string::npos) << session.message();
}

//===- TargetTest.cpp - a second target, and constants that change -------===//
//
// A new target's answers reach the plan without a change to any pass. A plan carries decisions, so that a plan made
// with other constants runs as well.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/CompileModel.h"
#include "compiler/target/Target.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "runtime/plan/Verifier.h"
#include "runtime/registry/DeviceRegistry.h"

#include "mlir/IR/MLIRContext.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;

namespace {
/// A machine with one level: it has a library call for f32 products whose sizes are multiples of 8, and generates
/// kernels with four lanes for everything else.
class TinyTarget final : public target::Target {
public:
  TinyTarget() : Target("tiny:one") {
    rates.callFlopsPerNs = 3;
    rates.launchNs = 7;
    generated = {"x86-64-v3", "", 4, false};
  }

  const target::Capabilities &capabilities() const override { return able; }
  const target::CostModel &costs() const override { return rates; }
  const target::CodeModel &code() const override { return generated; }
  void addPasses(target::Stage, mlir::OpPassManager &, const target::Wishes &) const override {}

  std::optional<target::Call> call(mlir::Operation *op) const override {
    auto library = mlir::dyn_cast<train::LibraryCall>(op);
    if (!library)
      return std::nullopt;
    target::Call made;
    library.buildCall(made.instruction);
    if (!made.instruction.has_matmul())
      return std::nullopt;
    plan::MatmulCall &call = *made.instruction.mutable_matmul();
    if (call.dtype() != plan::F32 || call.m() % 8 || call.n() % 8 || call.k() % 8)
      return std::nullopt;
    call.set_tile_batch(1);
    call.set_tile_m(8);
    call.set_tile_n(8);
    call.set_chunk_k(call.k());
    call.set_block_k(call.k());
    call.set_numerics(5);
    made.scratchSlotBytes = 640;
    made.scratchSlots = static_cast<uint64_t>(call.batch() * call.m() / 8 * call.n() / 8);
    return made;
  }

private:
  target::Capabilities able;
  target::CostModel rates;
  target::CodeModel generated;
};

/// Registers a target after those of the compiler, the first of which is the default.
void registerBehind(const target::TargetKind &kind) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  target::registerTarget(kind);
}

Expected<CompiledModel> compile(const std::string &targetName) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  static std::vector<std::unique_ptr<mlir::MLIRContext>> contexts; // kept, since a compiled model refers to its context
  contexts.push_back(std::make_unique<mlir::MLIRContext>(registry));
  CompileOptions options;
  options.modelPath = ZOO "/mlp/model.onnx";
  options.recipePath = ZOO "/mlp/recipe.toml";
  options.target = targetName;
  return compileModel(*contexts.back(), options);
}

/// Runs the entry `predict` on inputs from a fixed sequence, and returns its outputs.
std::vector<float> predict(const CompiledModel &model) {
  auto bytes = model.writer.toBuffer(model.plan);
  EXPECT_TRUE(bytes.ok()) << bytes.message();
  auto reader = plan::PlanReader::fromBuffer(*bytes, ZOO "/mlp/model.tplan");
  EXPECT_TRUE(reader.ok()) << reader.message();
  auto device = runtime::createDevice(*reader);
  EXPECT_TRUE(device.ok()) << device.message();
  if (!device)
    return {};
  uint32_t entry = *(*device)->findEntry("predict");
  const plan::Entry &program = reader->plan().entries(static_cast<int>(entry));
  auto placeOf = [&](const plan::Port &port) { return runtime::Place::buffer(entry, port.buffer()); };
  for (const plan::Port &input : program.inputs()) {
    std::vector<float> values(*(*device)->bytesOf(placeOf(input)) / 4);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(static_cast<float>(i));
    EXPECT_TRUE((*device)->write(placeOf(input), 0, std::as_bytes(std::span(values))).ok());
  }
  EXPECT_TRUE((*device)->run(entry).ok());
  std::vector<float> result(*(*device)->bytesOf(placeOf(program.outputs(0))) / 4);
  EXPECT_TRUE((*device)->read(placeOf(program.outputs(0)), 0, std::as_writable_bytes(std::span(result))).ok());
  return result;
}

template <typename Visit> void forProducts(const plan::Plan &plan, Visit visit) {
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Instruction &instruction : entry.instructions())
      if (instruction.has_matmul())
        visit(instruction);
}
} // namespace

TEST(Target, ASecondOneCompilesAModelWithoutAChangeToAPass) {
  target::TargetKind tiny;
  tiny.name = "tiny";
  tiny.levels = {"tiny:one"};
  tiny.defaultLevel = [](bool) -> Expected<std::string> { return std::string("tiny:one"); };
  tiny.create = [](const std::string &) -> std::unique_ptr<const target::Target> {
    return std::make_unique<TinyTarget>();
  };
  registerBehind(tiny);
  auto model = compile("tiny");
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ(model->plan.target(), "tiny:one");
  EXPECT_EQ(model->plan.library(), "");
  auto bytes = model->writer.toBuffer(model->plan);
  ASSERT_TRUE(bytes.ok()) << bytes.message();
  auto reader = plan::PlanReader::fromBuffer(*bytes);
  ASSERT_TRUE(reader.ok()) << reader.message();
  for (const std::string &problem : plan::verifyPlan(reader->plan(), 5))
    ADD_FAILURE() << problem;
  EXPECT_NE(runtime::createDevice(*reader).message().find("tiny"), std::string::npos) << "nothing runs it";
  int products = 0;
  forProducts(model->plan, [&](const plan::Instruction &instruction) {
    ++products;
    EXPECT_EQ(instruction.matmul().tile_m(), 8) << "the target's tiles stand in the plan";
    EXPECT_EQ(instruction.matmul().numerics(), 5u);
    EXPECT_FALSE(instruction.matmul().has_row_kernel()) << "it cannot hand rows to kernels";
    EXPECT_EQ(instruction.scratch_slot_bytes(), 640u);
    // The cost follows the target's own rates: 7 ns, plus 1 ns for 3 operations.
    EXPECT_GE(static_cast<double>(instruction.cost()), 7 + instruction.flops() / 3 - 1);
  });
  EXPECT_GT(products, 0);
}

TEST(Target, AnUnknownOneIsRefusedWithThoseThatExist) {
  auto model = compile("gpu");
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.message().find("--target gpu: this version compiles for cpu, cpu:v3"), std::string::npos)
      << model.message();
  EXPECT_EQ(model.status().code(), StatusCode::Usage);
}

TEST(Target, APlanOfOtherConstantsRuns) {
  target::TargetKind retuned = target::cpu::cpuKind();
  retuned.name = "retuned";
  retuned.levels = {"retuned:v3"};
  retuned.create = [](const std::string &) {
    target::cpu::CpuModel model;
    model.split.tileFlops = 1; // split even small products
    model.library.callNs = 1e-3;
    return target::cpu::createCpuTarget("cpu:v3", model);
  };
  registerBehind(retuned);
  auto usual = compile("cpu:v3"), other = compile("retuned:v3");
  ASSERT_TRUE(usual.ok()) << usual.message();
  ASSERT_TRUE(other.ok()) << other.message();
  EXPECT_EQ(other->plan.target(), "cpu:v3");
  auto tilesOf = [](const plan::Plan &plan) {
    std::string tiles;
    forProducts(plan, [&](const plan::Instruction &instruction) {
      const plan::MatmulCall &call = instruction.matmul();
      tiles += std::to_string(call.tile_m()) + "x" + std::to_string(call.tile_n()) + "x" +
               std::to_string(call.chunk_k()) + " ";
    });
    return tiles;
  };
  EXPECT_NE(tilesOf(usual->plan), tilesOf(other->plan)) << "the constants decide nothing";
  std::vector<float> first = predict(*usual), second = predict(*other);
  ASSERT_EQ(first.size(), second.size());
  ASSERT_FALSE(first.empty());
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_NEAR(first[i], second[i], 1e-4);
}

//===- TargetTest.cpp - constants of a target that change ----------------===//
//
// A plan carries decisions, so that a plan made with other constants runs as well. test/tiny has a whole machine.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/CompileModel.h"
#include "compiler/target/Target.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "runtime/registry/DeviceRegistry.h"

#include "mlir/IR/MLIRContext.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;

namespace {
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

//===- TargetsTest.cpp - plans for several targets, and the choice of one -===//
#include "runtime/cpu/calls/CpuLevel.h"
#include "runtime/null/NullDevice.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/Targets.h"
#include "runtime/registry/DeviceRegistry.h"
#include "test/support/Shown.h"
#include "test/unit/runtime/TestPlan.h"

using namespace tcc;
using namespace tcc::test;

namespace {
/// A plan whose code differs by target and whose weights are common.
plan::PlanReader planFor(const std::string &target, const std::string &weights = std::string(2048, 'w')) {
  plan::PlanWriter writer;
  const std::string code = "code for " + target;
  plan::Plan plan = makeTestPlan();
  plan.set_target(target);
  plan.set_recipe("seed = 1");
  plan.mutable_code_objects(0)->set_payload(writer.addPayload(code));
  bindCode(*plan.mutable_code_objects(0), code);
  plan.set_model_payload(static_cast<int32_t>(writer.addPayload("the model")));
  plan.mutable_variables(0)->set_payload(writer.addPayload(weights));
  auto bytes = writer.toBuffer(plan);
  EXPECT_TRUE(bytes.ok()) << bytes.message();
  auto reader = plan::PlanReader::fromBuffer(bytes.take(), "one.tplan");
  EXPECT_TRUE(reader.ok()) << reader.message();
  return reader.take();
}

std::string combined(std::initializer_list<const char *> targets) {
  std::vector<plan::PlanReader> plans;
  for (const char *target : targets)
    plans.push_back(planFor(target));
  auto bytes = plan::combineTargets(plans);
  EXPECT_TRUE(bytes.ok()) << bytes.message();
  return bytes.take();
}

plan::PlanReader open(std::string bytes) {
  auto reader = plan::PlanReader::fromBuffer(std::move(bytes), "several.tplan");
  EXPECT_TRUE(reader.ok()) << reader.message();
  return reader.take();
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

/// The text of a plan without its payload numbers, so that combined and single plans can be compared.
std::string withoutPayloads(plan::Plan plan) {
  plan.clear_payloads();
  plan.clear_model_payload();
  plan.mutable_variables(0)->clear_init();
  plan.mutable_code_objects(0)->clear_payload();
  return plan::serialize(plan);
}

runtime::CpuFeatures avx2() {
  runtime::CpuFeatures features;
  features.avx2 = true;
  return features;
}
runtime::CpuFeatures avx512() {
  runtime::CpuFeatures features = avx2();
  features.avx512 = true;
  return features;
}

std::string chosen(const plan::PlanReader &reader, const std::string &target = "", const std::string &device = "",
                   const runtime::DeviceRegistry &devices = runtime::standardDevices()) {
  auto index = devices.chooseTarget(reader, target, device);
  return index ? plan::targetNames(reader.plan())[*index] : index.message();
}

void expectAll(const std::string &message, std::initializer_list<const char *> texts) {
  const std::string words = test::shown(message);
  for (const char *text : texts)
    EXPECT_NE(words.find(text), std::string::npos) << "'" << text << "' is missing in: " << words;
}
} // namespace

TEST(Targets, ThePlanOfEachIsWhatItWasAlone) {
  for (uint32_t i = 0; i < 2; ++i) {
    plan::PlanReader reader = open(combined({"cpu:v3", "cpu:v4"})), alone = planFor(i ? "cpu:v4" : "cpu:v3");
    EXPECT_EQ(plan::targetNames(reader.plan()), (std::vector<std::string>{"cpu:v3", "cpu:v4"}));
    reader.selectTarget(i);
    EXPECT_EQ(withoutPayloads(reader.plan()), withoutPayloads(alone.plan()));
    for (auto of : {+[](const plan::Plan &plan) { return plan.code_objects(0).payload(); },
                    +[](const plan::Plan &plan) { return static_cast<uint32_t>(plan.model_payload()); },
                    +[](const plan::Plan &plan) { return plan.variables(0).payload(); }})
      EXPECT_EQ(text(reader.payload(of(reader.plan()))), text(alone.payload(of(alone.plan()))));
  }
}

TEST(Targets, TheirOrderChangesNoByte) {
  EXPECT_TRUE(combined({"cpu:v3", "cpu:v4", "cpu:v4-bf16"}) == combined({"cpu:v4-bf16", "cpu:v3", "cpu:v4"}));
}

TEST(Targets, WhatAllHaveAlikeIsStoredOnce) {
  plan::PlanReader reader = open(combined({"cpu:v3", "cpu:v4"}));
  EXPECT_EQ(reader.plan().payloads_size(), 4); // two kernels, the model, the weights
  EXPECT_EQ(reader.plan().recipe(), "seed = 1");
  EXPECT_EQ(reader.plan().variables_size(), 3);
  for (const plan::Plan &part : reader.plan().targets())
    EXPECT_TRUE(part.recipe().empty() && part.variables().empty() && part.entries().empty());
}

TEST(Targets, TwoPlansForOneTargetAreRefused) {
  std::vector<plan::PlanReader> plans;
  plans.push_back(planFor("cpu:v3"));
  plans.push_back(planFor("cpu:v3"));
  auto bytes = plan::combineTargets(plans);
  ASSERT_FALSE(bytes.ok());
  expectAll(bytes.message(), {"two plans are for cpu:v3"});
}

TEST(Targets, TheVerifierChecksEach) {
  plan::Plan plan = open(combined({"cpu:v3", "cpu:v4"})).plan();
  for (const std::string &problem : plan::verifyPlan(plan))
    ADD_FAILURE() << problem;
  plan::Plan damaged = plan;
  damaged.mutable_targets(1)->mutable_code_objects(0)->set_signatures_xxh3(1);
  expectProblem(damaged, {"cpu:v4: ", "code object 0"});
  plan::Plan twice = plan;
  twice.mutable_targets(1)->set_target("cpu:v3");
  expectProblem(twice, {"target 1", "'cpu:v3'", "used twice"});
  plan::Plan nested = plan;
  *nested.mutable_targets(0)->add_targets() = plan;
  expectProblem(nested, {"'cpu:v3'", "targets, payloads or a format version of its own"});
  plan::Plan both = plan;
  both.set_target("cpu:v9");
  expectProblem(both, {"2 targets", "'cpu:v9' beside them"});
}

TEST(Targets, TheBestThatRunsIsChosen) {
  plan::PlanReader reader = open(combined({"cpu:v3", "cpu:v4", "cpu:amx"}));
  {
    runtime::ScopedFeatures machine(avx2());
    EXPECT_EQ(chosen(reader), "cpu:v3");
    EXPECT_EQ(chosen(reader, "cpu:v4"), "cpu:v4"); // an explicit choice; the device will refuse it
    EXPECT_EQ(chosen(reader, "", "cpu"), "cpu:v3");
    EXPECT_EQ(chosen(reader, "", "null"), "cpu:v3");
  }
  runtime::ScopedFeatures machine(avx512());
  EXPECT_EQ(chosen(reader), "cpu:v4");
  expectAll(chosen(reader, "cpu:v4-bf16"), {"cpu:v4-bf16", "several.tplan", "cpu:amx, cpu:v3, cpu:v4"});
  expectAll(chosen(reader, "", "cuda"), {"--device cuda", "cpu:amx, cpu:v3, cpu:v4"});
}

TEST(Targets, TheDeviceOfTheGreatestPreferenceIsChosen) {
  int highest = 0; // of the levels that the device runs
  auto rank = [&](const std::string &target) -> Expected<uint32_t> {
    const int level = std::stoi(target.substr(target.find(':') + 1));
    return level <= highest ? Expected<uint32_t>(static_cast<uint32_t>(level)) : error("no abacus for {}", target);
  };
  plan::PlanReader reader = open(combined({"abacus:0", "abacus:1", "cpu:v4"}));
  runtime::ScopedFeatures machine(avx512());
  runtime::DeviceRegistry devices = runtime::standardDevices();
  devices.add({.name = "abacus", .create = runtime::createNullDevice, .rank = rank});
  EXPECT_EQ(chosen(reader, "", "", devices), "cpu:v4") << "it has the higher rank";
  devices.add({.name = "abacus", .create = runtime::createNullDevice, .rank = rank, .preference = 2});
  EXPECT_EQ(chosen(reader, "", "", devices), "abacus:0");
  highest = 1;
  EXPECT_EQ(chosen(reader, "", "", devices), "abacus:1");
  EXPECT_EQ(chosen(reader, "", "cpu", devices), "cpu:v4");
  highest = -1;
  EXPECT_EQ(chosen(reader, "", "", devices), "cpu:v4");
}

TEST(Targets, NoneThatRunsNamesAll) {
  plan::PlanReader reader = open(combined({"cpu:v4", "cpu:amx"}));
  runtime::ScopedFeatures machine(avx2());
  expectAll(chosen(reader), {"several.tplan", "cpu:amx, cpu:v4", "cannot run programs for cpu:v4",
                             "recompile with tcc --target cpu:v3"});
}

TEST(Targets, ADeviceAsksForOne) {
  plan::PlanReader reader = open(combined({"cpu:v3", "cpu:v4"}));
  auto device = runtime::createDevice(reader, {.name = "null"});
  ASSERT_FALSE(device.ok());
  expectAll(device.message(), {"2 targets, of which none was selected"});
}

TEST(Spaces, EachHasItsAlignment) {
  plan::Plan plan = makeTestPlan();
  plan.mutable_spaces(plan::TRANSIENT)->set_alignment(256);
  EXPECT_TRUE(plan::verifyPlan(plan).empty()); // offsets of the test plan are multiples of 256
  plan.mutable_entries(0)->mutable_buffers(kY)->set_offset(320);
  expectProblem(plan, {"'y'", "offset 320 is not a multiple of 256"});
  for (uint64_t bad : {0, 32, 96, 512}) {
    plan = makeTestPlan();
    plan.mutable_spaces(plan::RESIDENT)->set_alignment(bad);
    expectProblem(plan, {"'resident'", "power of two"});
  }
}

TEST(Spaces, TheFirstTwoAreInEveryPlan) {
  plan::Plan plan = makeTestPlan();
  plan.mutable_spaces()->RemoveLast();
  expectProblem(plan, {"memory space 1 is not 'transient'"});
}

TEST(Spaces, OnlyADeviceWithMemoryOfItsOwnKeepsSomeOnTheHost) {
  plan::Plan plan = makeTestPlan();
  addVariable(plan, "c", {16}, 0, 1)->set_arena(plan::HOST_RESIDENT);
  plan::setSpaceBytes(plan, plan::HOST_RESIDENT, 64);
  plan::PlanWriter writer;
  writer.addPayload(kNoCode);
  auto bytes = writer.toBuffer(plan);
  ASSERT_TRUE(bytes.ok());
  plan::PlanReader reader = open(bytes.take());
  auto device = runtime::createDevice(reader, {.name = "cpu"});
  ASSERT_FALSE(device.ok());
  expectAll(device.message(), {"keeps memory of a card on the host", "has no memory of its own"});
  auto null = runtime::createDevice(reader, {.name = "null"});
  ASSERT_TRUE(null.ok()) << null.message();
  EXPECT_EQ((*null)->hostBytes(), 64u);
}

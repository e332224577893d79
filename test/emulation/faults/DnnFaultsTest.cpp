//===- DnnFaultsTest.cpp - planted mistakes with convolutions ------------===//
//
// Each program uses cuDNN's stand-in with one mistake, and without. The probes test the values that engines compute.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/faults/DnnScene.h"

#include <gtest/gtest.h>
#include <set>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

namespace {

constexpr size_t kWorkspace = 512; ///< more than the scene's engine takes

/// Convolves the scene's buffers a and b into `y`.
void convolve(Scene &s, DnnScene &c, CUdeviceptr y, CUdeviceptr workspace) {
  c.execute(s.a, s.b, y, workspace, s.one);
  cuCtxSynchronize();
}

/// Applies `change`, which plants the mistake, then opens and executes the convolution.
template <typename Change> void program(Scene &s, Change change) {
  giveValues(s);
  Extra y(256), workspace(kWorkspace);
  DnnScene c;
  change(c);
  if (c.open())
    convolve(s, c, y.address, workspace.address);
  c.close();
}

const Planted kPlanted[] = {
    {"ConvolvedBeforeItsCopy", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(256), workspace(kWorkspace);
       DnnScene c;
       c.open();
       cuMemcpyHtoDAsync_v2(s.a, s.pinned, Scene::kBytes, s.one);
       cuEventRecord(s.event, s.one);
       if (!wrong)
         cuStreamWaitEvent(s.two, s.event, 0);
       c.execute(s.a, s.b, y.address, workspace.address, s.two);
       cuCtxSynchronize();
       c.close();
     }},
    {"OperandWithoutAValue", "uninitialised-read",
     [](Scene &s, bool wrong) {
       if (!wrong)
         giveValues(s);
       else
         cuMemsetD8Async(s.a, 0, Scene::kBytes, s.one);
       Extra y(256), workspace(kWorkspace);
       DnnScene c;
       c.open();
       convolve(s, c, y.address, workspace.address);
       c.close();
     }},
    {"OneWorkspaceForTwoStreams", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(256), z(256), workspace(kWorkspace), other(kWorkspace);
       DnnScene c;
       c.open();
       c.execute(s.a, s.b, y.address, workspace.address, s.one);
       c.execute(s.a, s.b, z.address, wrong ? workspace.address : other.address, s.two);
       cuCtxSynchronize();
       c.close();
     }},
    {"WorkspaceBehindTheEnd", "out-of-bounds",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(256), workspace(wrong ? 128 : kWorkspace);
       DnnScene c;
       c.open();
       convolve(s, c, y.address, workspace.address);
       c.close();
     }},
    {"NoWorkspace", "out-of-bounds",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(256), workspace(kWorkspace);
       DnnScene c;
       c.open();
       convolve(s, c, y.address, wrong ? 0 : workspace.address);
       c.close();
     }},
    {"WorkspaceOverAnOperand", "misuse",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(kWorkspace), workspace(kWorkspace);
       DnnScene c;
       c.open();
       convolve(s, c, y.address, wrong ? y.address + 32 : workspace.address);
       c.close();
     }},
    {"ResultOverAnOperand", "misuse",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(256), workspace(kWorkspace);
       DnnScene c;
       c.open();
       convolve(s, c, wrong ? s.a + 64 : y.address, workspace.address);
       c.close();
     }},
    {"ResultTooLarge", "out-of-bounds",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(wrong ? 32 : 256), workspace(kWorkspace);
       DnnScene c;
       c.open();
       convolve(s, c, y.address, workspace.address);
       c.close();
     }},
    {"LessAlignedThanDescribed", "misaligned",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(256), workspace(kWorkspace);
       DnnScene c;
       c.alignment = wrong ? 16 : 4;
       c.open();
       convolve(s, c, y.address + 4, workspace.address);
       c.close();
     }},
    {"TensorNotFinalized", "misuse",
     [](Scene &s, bool wrong) { program(s, [&](DnnScene &c) { c.finalizeTensor = !wrong; }); }},
    {"AttributeOfAnotherType", "misuse",
     [](Scene &s, bool wrong) {
       program(s, [&](DnnScene &c) { c.sizes = wrong ? CUDNN_TYPE_FLOAT : CUDNN_TYPE_INT64; });
     }},
    {"AttributeMissing", "misuse",
     [](Scene &s, bool wrong) { program(s, [&](DnnScene &c) { c.setAlignment = !wrong; }); }},
    {"OutputsThatDoNotFit", "misuse",
     [](Scene &s, bool wrong) { program(s, [&](DnnScene &c) { c.outputs = wrong ? 3 : 2; }); }},
    {"PlanNotFinalized", "misuse",
     [](Scene &s, bool wrong) { program(s, [&](DnnScene &c) { c.finalizePlan = !wrong; }); }},
    {"AttributeAfterTheEnd", "misuse",
     [](Scene &, bool wrong) {
       DnnScene c;
       c.open();
       if (wrong)
         DnnScene::set(c.tensors[0], CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector<int64_t>{7});
       c.close();
     }},
    {"ReadBeforeItIsFinalized", "misuse",
     [](Scene &, bool wrong) {
       DnnScene c;
       c.finalizePlan = !wrong;
       c.open();
       int64_t bytes = 0, count = 0;
       cudnnBackendGetAttribute(c.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
       c.close();
     }},
    {"PlanAfterItsEnd", "use-after-free",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(256), workspace(kWorkspace);
       DnnScene c;
       c.open();
       if (wrong)
         c.destroy(c.plan);
       convolve(s, c, y.address, workspace.address);
       c.close();
     }},
    {"ConfigurationAfterItsEnd", "use-after-free",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(256), workspace(kWorkspace);
       DnnScene c;
       c.open();
       if (wrong)
         c.destroy(c.configuration);
       convolve(s, c, y.address, workspace.address);
       c.close();
     }},
    {"AHandleForADescriptor", "not-a-handle",
     [](Scene &, bool wrong) {
       DnnScene c;
       c.open();
       if (wrong)
         cudnnBackendFinalize(c.handle);
       c.close();
     }},
    {"DescriptorLeft", "leak",
     [](Scene &s, bool wrong) {
       DnnScene c;
       c.open();
       c.close();
       cudnnBackendDescriptor_t left = nullptr;
       cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &left);
       if (!wrong)
         cudnnBackendDestroyDescriptor(left);
       s.close();
     }},
};

class DnnFaults : public testing::TestWithParam<Planted> {};

TEST_P(DnnFaults, AreFoundByName) { expectFound(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Emulation, DnnFaults, testing::ValuesIn(kPlanted), [](auto &info) { return info.param.name; });

/// The different results of a convolution of inexact numbers in eight runs.
std::set<std::vector<float>> bitsOf(int64_t engine, int64_t tile) {
  std::set<std::vector<float>> results;
  Scene scene(1);
  {
    Extra x(256), w(256), y(256), workspace(kWorkspace);
    std::vector<float> values(64);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 1 / float(i * i + 3);
    for (CUdeviceptr to : {x.address, w.address})
      cuMemcpyHtoDAsync_v2(to, values.data(), 256, scene.one);
    DnnScene c;
    c.engine = engine;
    c.tile = tile;
    EXPECT_TRUE(c.open());
    for (int run = 0; run < 8; ++run) {
      c.execute(x.address, w.address, y.address, workspace.address, scene.one);
      std::vector<float> got(16);
      cuMemcpyDtoHAsync_v2(got.data(), y.address, 64, scene.one);
      cuStreamSynchronize(scene.one);
      results.insert(got);
    }
    c.close();
  }
  EXPECT_EQ(Scene::faults(), "");
  return results;
}

// Engines whose notes the runtime rejects give other bits; so does another setting, which is why a record stores it.
TEST(Dnn, EnginesDifferAsTheirNotesSay) {
  EXPECT_EQ(bitsOf(0, 0).size(), 2u) << "an engine without a fixed order";
  const auto whole = bitsOf(9, 1), parts = bitsOf(9, 2), strict = bitsOf(10, 0), tensor = bitsOf(8, 1);
  for (const auto &one : {whole, parts, strict, tensor})
    EXPECT_EQ(one.size(), 1u);
  EXPECT_EQ(whole, strict);
  EXPECT_NE(whole, parts) << "a setting changes bits";
  EXPECT_NE(whole, tensor) << "tensor cores round f32 to TF32";
  EXPECT_NE(whole, bitsOf(3, 0)) << "a transform rounds more";
}

} // namespace

//===- DnnFinishFaultsTest.cpp - planted mistakes behind convolutions ----===//
//
// A bias in the graph of a convolution: what the stand-in computes, and programs with one mistake each beside
// the smallest change that mends them.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/faults/DnnScene.h"

#include <gtest/gtest.h>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

namespace {

constexpr size_t kWorkspace = 512;

/// Applies `change`, then opens the convolution and executes it with a bias at `bias(memory, y)`.
template <typename Change, typename Place> void finished(Scene &s, Change change, Place bias) {
  giveValues(s);
  Extra y(256), workspace(kWorkspace), memory(256);
  DnnScene c;
  c.finish = DnnProblem::Bias;
  change(c);
  if (c.open())
    c.execute(s.a, s.b, y.address, workspace.address, s.one, bias(memory.address, y.address));
  cuCtxSynchronize();
  c.close();
}
auto inMemory = [](CUdeviceptr memory, CUdeviceptr) { return memory; };

const Planted kPlanted[] = {
    {"BiasOfAnotherLength", "misuse",
     [](Scene &s, bool wrong) {
       finished(
           s, [&](DnnScene &c) { c.biases = wrong ? 3 : 4; }, inMemory);
     }},
    {"BiasWithoutAnAddress", "misuse",
     [](Scene &s, bool wrong) {
       finished(
           s, [](DnnScene &) {}, [&](CUdeviceptr memory, CUdeviceptr) { return wrong ? 0 : memory; });
     }},
    {"BiasBehindTheEnd", "out-of-bounds",
     [](Scene &s, bool wrong) {
       finished(
           s, [](DnnScene &) {}, [&](CUdeviceptr memory, CUdeviceptr) { return memory + (wrong ? 256 : 240); });
     }},
    {"BiasLessAlignedThanDescribed", "misaligned",
     [](Scene &s, bool wrong) {
       finished(
           s, [](DnnScene &) {}, [&](CUdeviceptr memory, CUdeviceptr) { return memory + (wrong ? 4 : 16); });
     }},
    {"ResultOverTheBias", "misuse",
     [](Scene &s, bool wrong) {
       finished(
           s, [](DnnScene &) {}, [&](CUdeviceptr memory, CUdeviceptr y) { return wrong ? y + 16 : memory; });
     }},
    {"BiasWithoutAValue", "uninitialised-read",
     [](Scene &s, bool wrong) {
       CUdeviceptr fresh = 0;
       cuMemAlloc_v2(&fresh, 256);
       finished(
           s, [](DnnScene &) {}, [&](CUdeviceptr memory, CUdeviceptr) { return wrong ? fresh : memory; });
       cuMemFree_v2(fresh);
     }},
    {"SumsThatAreNotVirtual", "misuse",
     [](Scene &s, bool wrong) {
       finished(
           s, [&](DnnScene &c) { c.keepsSums = !wrong; }, inMemory);
     }},
    {"BiasAddedToAnotherTensor", "misuse",
     [](Scene &s, bool wrong) {
       finished(
           s, [&](DnnScene &c) { c.addsSums = !wrong; }, inMemory);
     }},
    {"BiasThatIsMultiplied", "misuse",
     [](Scene &s, bool wrong) {
       finished(
           s, [&](DnnScene &c) { c.adds = !wrong; }, inMemory);
     }},
    {"BiasReadBeforeItsCopy", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra y(256), workspace(kWorkspace), bias(256);
       DnnScene c;
       c.finish = DnnProblem::Bias;
       c.open();
       cuMemcpyHtoDAsync_v2(bias.address, s.pinned, 16, s.one);
       cuEventRecord(s.event, s.one);
       if (!wrong)
         cuStreamWaitEvent(s.two, s.event, 0);
       c.execute(s.a, s.b, y.address, workspace.address, s.two, bias.address);
       cuCtxSynchronize();
       c.close();
     }},
};

class DnnFinishFaults : public testing::TestWithParam<Planted> {};

TEST_P(DnnFinishFaults, AreFoundByName) { expectFound(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Emulation, DnnFinishFaults, testing::ValuesIn(kPlanted),
                         [](auto &info) { return info.param.name; });

/// The convolution of inexact numbers with a finish.
std::vector<float> resultOf(DnnProblem::Finish finish, const std::vector<float> &bias) {
  std::vector<float> got(16);
  Scene scene(1);
  {
    Extra x(256), w(256), y(256), workspace(kWorkspace), b(256);
    std::vector<float> values(64);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = (i % 3 ? 1.0F : -1.0F) / float(i + 3);
    for (CUdeviceptr to : {x.address, w.address})
      cuMemcpyHtoDAsync_v2(to, values.data(), 256, scene.one);
    cuMemcpyHtoDAsync_v2(b.address, bias.data(), bias.size() * sizeof(float), scene.one);
    cuStreamSynchronize(scene.one);
    DnnScene c;
    c.finish = finish;
    EXPECT_TRUE(c.open());
    c.execute(x.address, w.address, y.address, workspace.address, scene.one,
              finish == DnnProblem::Sums ? 0 : b.address);
    cuMemcpyDtoHAsync_v2(got.data(), y.address, 64, scene.one);
    cuStreamSynchronize(scene.one);
    c.close();
  }
  EXPECT_EQ(Scene::faults(), "");
  return got;
}

TEST(DnnFinish, AddsTheBiasOfEachFeature) {
  const std::vector<float> bias = {0.5F, -0.25F, 0, -3}, sums = resultOf(DnnProblem::Sums, bias),
                           biased = resultOf(DnnProblem::Bias, bias);
  for (size_t i = 0; i < sums.size(); ++i)
    EXPECT_EQ(biased[i], sums[i] + bias[i / 4]) << i;
}

} // namespace

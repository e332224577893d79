//===- CardRanksTest.cpp - collectives of a card in a graph --------------===//
//
// A job of one rank, so that the program also runs on a machine with a single card and NVIDIA's NCCL: joining, each
// kind of collective in a captured entry beside other instructions, and the end of waiting kernels when the job fails.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/CapturedEntry.h"
#include "runtime/parallel/NullGroup.h"

#include <chrono>
#include <gtest/gtest.h>
#include <numeric>

using namespace tcc;
using namespace tcc::cuda;

namespace {

class CardRanksTest : public testing::Test {
protected:
  static constexpr int64_t kElements = 1000;
  static constexpr uint64_t kBytes = kElements * 4, kBuffers = 6;

  void SetUp() override {
    Expected<DriverLibrary> opened = DriverLibrary::open();
    ASSERT_TRUE(opened) << opened.message();
    driver = *opened;
    Expected<Card> made = Card::open(driver);
    ASSERT_TRUE(made) << made.message();
    card.emplace(made.take());
    for (api::CUstream *one : {&stream, &communication})
      ASSERT_EQ(driver->streamCreate(one, api::CU_STREAM_NON_BLOCKING), api::CUDA_SUCCESS);
    ASSERT_EQ(driver->memAlloc(&memory, kBuffers * kBytes), api::CUDA_SUCCESS);
    ASSERT_EQ(driver->memsetD8Async(memory, 0, kBuffers * kBytes, stream), api::CUDA_SUCCESS);
    for (uint64_t i = 0; i < kBuffers; ++i) {
      plan::Buffer *buffer = entry.add_buffers();
      buffer->mutable_type()->set_dtype(plan::F32);
      buffer->mutable_type()->add_dims(kElements);
    }
    auto joined = CardRanks::join(*card, *group.front(), "plan");
    ASSERT_TRUE(joined) << joined.message();
    ranks = joined.take();
  }
  void TearDown() override {
    if (!card)
      return;
    (void)driver->streamSynchronize(stream);
    for (api::CUgraphExec graph : graphs)
      (void)driver->graphExecDestroy(graph);
    ranks.reset();
    if (memory)
      (void)driver->memFree(memory);
    for (api::CUstream one : {stream, communication})
      if (one)
        (void)driver->streamDestroy(one);
  }

  api::CUdeviceptr at(uint32_t buffer) const { return memory + buffer * kBytes; }
  plan::Instruction &instruction(uint32_t from, uint32_t to) {
    plan::Instruction &made = *entry.add_instructions();
    for (uint32_t buffer : {from, to})
      made.add_operands()->set_buffer(buffer);
    return made;
  }
  Step stepOf(const plan::Instruction &source) const {
    Step step;
    step.source = &source;
    for (const plan::Operand &operand : source.operands())
      step.pointers.push_back(at(operand.buffer()));
    if (source.has_collective())
      step.collective.emplace(entry, source, step.pointers, parallel);
    else
      step.bytes = kBytes;
    return step;
  }
  void fill(uint32_t buffer, float first) {
    std::vector<float> values(kElements);
    std::iota(values.begin(), values.end(), first);
    ASSERT_EQ(driver->memcpyHtoDAsync(at(buffer), values.data(), kBytes, stream), api::CUDA_SUCCESS);
    ASSERT_EQ(driver->streamSynchronize(stream), api::CUDA_SUCCESS);
  }
  float last(uint32_t buffer) {
    std::vector<float> values(kElements);
    EXPECT_EQ(driver->memcpyDtoHAsync(values.data(), at(buffer), kBytes, stream), api::CUDA_SUCCESS);
    EXPECT_EQ(driver->streamSynchronize(stream), api::CUDA_SUCCESS);
    return values.back();
  }
  api::CUgraphExec capture(const std::vector<Step> &steps) {
    const EntryStreams streams{.main = stream, .communication = communication};
    auto graph =
        captureSteps(steps, 0, steps.size(), driver, streams, ranks.get(), [](size_t i) { return std::to_string(i); });
    EXPECT_TRUE(graph) << graph.message();
    graphs.push_back(graph ? *graph : nullptr);
    return graphs.back();
  }

  DriverLibrary driver;
  std::optional<Card> card;
  api::CUstream stream = nullptr, communication = nullptr;
  api::CUdeviceptr memory = 0;
  plan::Entry entry;
  plan::Parallel parallel;
  std::vector<std::unique_ptr<runtime::Communicator>> group = runtime::makeNullGroup(1);
  std::unique_ptr<CardRanks> ranks;
  std::vector<api::CUgraphExec> graphs;
};

/// The collective copies buffer 0 to 1; another instruction copies 4 to 5 beside it, and a third copies 1 to 2 after
/// it.
TEST_F(CardRanksTest, EachKindRunsInAGraphBesideOtherInstructions) {
  for (auto kind :
       {plan::CollectiveCall::ALL_REDUCE, plan::CollectiveCall::BROADCAST, plan::CollectiveCall::REDUCE_SCATTER,
        plan::CollectiveCall::ALL_GATHER, plan::CollectiveCall::OWN_SHARD}) {
    entry.clear_instructions();
    plan::Instruction &collective = instruction(0, 1);
    collective.mutable_collective()->set_kind(kind);
    collective.mutable_collective()->set_dtype(plan::F32);
    collective.set_beside(1);
    instruction(4, 5).mutable_copy();
    instruction(1, 2).mutable_copy();
    std::vector<Step> steps;
    for (const plan::Instruction &one : entry.instructions())
      steps.push_back(stepOf(one));
    api::CUgraphExec graph = capture(steps);
    for (float first : {3.0f, 70.0f}) {
      fill(0, first);
      fill(4, -first);
      fill(1, 0.5f);
      ASSERT_EQ(driver->graphLaunch(graph, stream), api::CUDA_SUCCESS);
      EXPECT_EQ(last(2), first + kElements - 1) << plan::CollectiveCall::Kind_Name(kind);
      EXPECT_EQ(last(5), -first + kElements - 1);
      // Each instruction by itself, as profiles run them.
      fill(1, 0.5f);
      ASSERT_TRUE(submit(steps.front(), driver, stream, ranks.get()).ok());
      EXPECT_EQ(last(1), first + kElements - 1);
    }
  }
  EXPECT_TRUE(ranks->failure().ok());
}

TEST_F(CardRanksTest, AFailureOfTheJobIsKnownSoonAndTheEndWaitsForNobody) {
  entry.clear_instructions();
  plan::Instruction &collective = instruction(0, 1);
  collective.mutable_collective()->set_kind(plan::CollectiveCall::ALL_REDUCE);
  collective.mutable_collective()->set_dtype(plan::F32);
  api::CUgraphExec graph = capture({stepOf(collective)});
  ASSERT_EQ(driver->graphLaunch(graph, stream), api::CUDA_SUCCESS);
  group.front()->abort("its data ended");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_TRUE(ranks->failure().ok()) << "nothing is under way";
  ranks->begin();
  const auto begun = std::chrono::steady_clock::now();
  while (ranks->failure().ok() && std::chrono::steady_clock::now() < begun + std::chrono::seconds(5))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(ranks->failure().message(), "rank 0: its data ended");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(1));
}

/// After a kernel's fault a driver destroys nothing, so that a graph with captured collectives may outlive the ranks.
TEST_F(CardRanksTest, TheEndDoesNotWaitLongForAGraphThatIsLeft) {
  plan::Instruction &collective = instruction(0, 1);
  collective.mutable_collective()->set_kind(plan::CollectiveCall::ALL_REDUCE);
  collective.mutable_collective()->set_dtype(plan::F32);
  ASSERT_NE(capture({stepOf(collective)}), nullptr);
  const auto begun = std::chrono::steady_clock::now();
  ranks.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(6));
  (void)driver->graphExecDestroy(graphs.back()); // so that NCCL can destroy the communicator
  graphs.clear();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

TEST_F(CardRanksTest, RanksOnOneCardAreNamed) {
  // A group of two ranks that returns the text of rank 0 for both.
  auto pair = runtime::makeNullGroup(2);
  auto joined = CardRanks::join(*card, *pair.front(), "plan");
  ASSERT_FALSE(joined);
  EXPECT_NE(joined.message().find("rank 0 and rank 1 run on one card, " + card->uuid()), std::string::npos)
      << joined.message();
}

TEST_F(CardRanksTest, AlgorithmsComeBackAsTheyWere) {
  runtime::Algorithms own;
  own.library = "cuBLASLt 13.1.0";
  own.machine = "a card: of, commas";
  own.calls["product 1"] = {"0:1,2", "one, of 3:4", 0.25};
  own.calls["product 2"] = {"5", "", 0};
  auto shared = ranks->share(own);
  ASSERT_TRUE(shared) << shared.message();
  EXPECT_EQ(shared->library, own.library);
  EXPECT_EQ(shared->machine, own.machine);
  EXPECT_EQ(shared->calls, own.calls);
  EXPECT_EQ(shared->calls["product 1"].about, "one, of 3:4");
  EXPECT_EQ(shared->calls["product 1"].seconds, 0.25);
}

} // namespace

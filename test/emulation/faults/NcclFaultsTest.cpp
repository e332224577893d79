//===- NcclFaultsTest.cpp - collectives, and planted mistakes around them ===//
//
// NCCL's stand-in against sums and copies by hand; and programs of two ranks with one mistake each, which it must name,
// beside the smallest change that mends them.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/faults/NcclScene.h"

using namespace tcc::cuda::api;
using namespace tcc::emulation;

namespace {

struct PlantedAmongRanks {
  const char *name, *fault;
  RankProgram run;
};

void *at(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

/// Captures `work` on the scene's first stream.
template <typename Work> CUgraphExec graphOf(Scene &s, Work work) {
  cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  work();
  CUgraph graph = nullptr;
  CUgraphExec made = nullptr;
  if (cuStreamEndCapture(s.one, &graph) == CUDA_SUCCESS) {
    cuGraphInstantiateWithFlags(&made, graph, 0);
    cuGraphDestroy(graph);
  }
  return made;
}

const PlantedAmongRanks kPlanted[] = {
    {"AnotherSize", "misuse",
     [](Rank &r) {
       giveValues(r.scene);
       r.sum(r.scene.a, r.wrong && r.number == 1 ? 32 : 64, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"AnotherType", "misuse",
     [](Rank &r) {
       giveValues(r.scene);
       const bool wide = r.wrong && r.number == 1;
       ncclAllReduce(at(r.scene.a), at(r.scene.a), 32, wide ? ncclFloat64 : ncclFloat32, ncclSum, r.communicator,
                     r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"AnotherRoot", "misuse",
     [](Rank &r) {
       giveValues(r.scene);
       ncclBroadcast(at(r.scene.a), at(r.scene.a), 64, ncclFloat32, r.wrong ? static_cast<int>(r.number) : 1,
                     r.communicator, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"AnotherOrder", "misuse",
     [](Rank &r) {
       giveValues(r.scene);
       const bool first = r.wrong && r.number == 1;
       r.sum(first ? r.scene.b : r.scene.a, first ? 8 : 64, r.scene.one);
       r.sum(first ? r.scene.a : r.scene.b, first ? 64 : 8, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"ARankThatDoesNotCome", "deadlock",
     [](Rank &r) {
       giveValues(r.scene);
       if (!r.wrong || r.number == 0)
         r.sum(r.scene.a, 64, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"CapturedOnOneRankAlone", "misuse",
     [](Rank &r) {
       giveValues(r.scene);
       CUgraphExec graph = nullptr;
       if (r.wrong && r.number == 1) {
         r.sum(r.scene.a, 64, r.scene.one);
       } else {
         graph = graphOf(r.scene, [&] { r.sum(r.scene.a, 64, r.scene.one); });
         cuGraphLaunch(graph, r.scene.one);
       }
       cuStreamSynchronize(r.scene.one);
       if (graph)
         cuGraphExecDestroy(graph);
     }},
    {"GraphsInAnotherOrder", "misuse",
     [](Rank &r) {
       giveValues(r.scene);
       CUgraphExec graphs[2];
       for (CUgraphExec &graph : graphs)
         graph = graphOf(r.scene, [&] { r.sum(r.scene.a, 64, r.scene.one); });
       const bool turned = r.wrong && r.number == 1;
       cuGraphLaunch(graphs[turned], r.scene.one);
       cuGraphLaunch(graphs[!turned], r.scene.one);
       cuStreamSynchronize(r.scene.one);
       for (CUgraphExec graph : graphs)
         cuGraphExecDestroy(graph);
     }},
    {"AfterTheAbort", "use-after-free",
     [](Rank &r) {
       giveValues(r.scene);
       if (r.wrong)
         ncclCommAbort(r.communicator);
       r.sum(r.scene.a, 64, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"TheEndBeforeThatOfItsGraphs", "deadlock",
     [](Rank &r) {
       giveValues(r.scene);
       CUgraphExec graph = graphOf(r.scene, [&] { r.sum(r.scene.a, 64, r.scene.one); });
       cuGraphLaunch(graph, r.scene.one);
       cuStreamSynchronize(r.scene.one);
       if (r.wrong)
         ncclCommDestroy(r.communicator);
       cuGraphExecDestroy(graph);
       if (!r.wrong)
         ncclCommDestroy(r.communicator);
     }},
    {"ACommunicatorThatIsLeft", "leak",
     [](Rank &r) {
       if (r.wrong)
         r.scene.leaves = "communicator";
     }},
    {"NoWaitForASource", "unordered-work",
     [](Rank &r) {
       giveValues(r.scene);
       r.scene.launch(r.scene.fill, r.scene.one, r.scene.a);
       cuEventRecord(r.scene.event, r.scene.one);
       if (!r.wrong)
         cuStreamWaitEvent(r.scene.two, r.scene.event, 0);
       r.sum(r.scene.a, 64, r.scene.two);
       cuCtxSynchronize();
     }},
    {"NoWaitForAResult", "unordered-work",
     [](Rank &r) {
       giveValues(r.scene);
       r.sum(r.scene.a, 64, r.scene.two);
       cuEventRecord(r.scene.event, r.scene.two);
       if (!r.wrong)
         cuStreamWaitEvent(r.scene.one, r.scene.event, 0);
       r.scene.launch(r.scene.twice, r.scene.one, r.scene.a);
       cuCtxSynchronize();
     }},
    {"NoOrderBetweenOperations", "unordered-work",
     [](Rank &r) {
       giveValues(r.scene);
       r.sum(r.scene.a, 64, r.scene.one);
       cuEventRecord(r.scene.event, r.scene.one);
       if (!r.wrong)
         cuStreamWaitEvent(r.scene.two, r.scene.event, 0);
       r.sum(r.scene.b, 64, r.scene.two);
       cuCtxSynchronize();
     }},
    {"AForkThatIsNotJoined", "capture",
     [](Rank &r) {
       giveValues(r.scene);
       CUgraphExec graph = graphOf(r.scene, [&] {
         cuEventRecord(r.scene.event, r.scene.one);
         cuStreamWaitEvent(r.scene.two, r.scene.event, 0);
         r.sum(r.scene.a, 64, r.scene.two);
         cuEventRecord(r.scene.event, r.scene.two);
         if (!r.wrong)
           cuStreamWaitEvent(r.scene.one, r.scene.event, 0);
       });
       if (graph)
         cuGraphExecDestroy(graph);
     }},
    {"OperationsOfAGroupThatMeet", "misuse",
     [](Rank &r) {
       giveValues(r.scene);
       ncclGroupStart();
       r.sum(r.scene.a, 64, r.scene.one);
       r.sum(r.wrong ? r.scene.a + 128 : r.scene.b, 32, r.scene.one);
       ncclGroupEnd();
       cuStreamSynchronize(r.scene.one);
     }},
    {"AGroupThatEndsTwice", "misuse",
     [](Rank &r) {
       ncclGroupStart();
       ncclGroupEnd();
       if (r.wrong)
         ncclGroupEnd();
     }},
    {"NotQuiteInPlace", "misuse",
     [](Rank &r) {
       giveValues(r.scene);
       const CUdeviceptr own = r.scene.a + (r.wrong ? 4 : 0) + r.number * 64;
       ncclAllGather(at(own), at(r.scene.a), 16, ncclFloat32, r.communicator, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"MemoryOfTheHost", "out-of-bounds",
     [](Rank &r) {
       giveValues(r.scene);
       ncclAllReduce(r.wrong ? r.scene.pinned : at(r.scene.b), at(r.scene.a), 64, ncclFloat32, ncclSum, r.communicator,
                     r.scene.one);
       if (!r.wrong)
         cuStreamSynchronize(r.scene.one);
     }},
    {"AResultBehindTheEnd", "out-of-bounds",
     [](Rank &r) {
       giveValues(r.scene);
       ncclAllGather(at(r.scene.b), at(r.scene.a), r.wrong ? 64 : 32, ncclFloat32, r.communicator, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"ASourceWithoutAValue", "uninitialised-read",
     [](Rank &r) {
       if (!r.wrong)
         giveValues(r.scene);
       r.sum(r.scene.a, 64, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"AddressesAreMisaligned", "misaligned",
     [](Rank &r) {
       giveValues(r.scene);
       r.sum(r.scene.a + (r.wrong ? 2 : 4), 32, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
    {"ARootThatIsNoRank", "misuse",
     [](Rank &r) {
       giveValues(r.scene);
       ncclBroadcast(at(r.scene.a), at(r.scene.a), 64, ncclFloat32, r.wrong ? 2 : 1, r.communicator, r.scene.one);
       cuStreamSynchronize(r.scene.one);
     }},
};

class NcclFault : public testing::TestWithParam<PlantedAmongRanks> {};

TEST_P(NcclFault, IsFoundByItsName) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    EXPECT_EQ(runRanks(2, seed, true, GetParam().run), GetParam().fault) << "seed " << seed;
    EXPECT_EQ(runRanks(2, seed, false, GetParam().run), "") << "seed " << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Planted, NcclFault, testing::ValuesIn(kPlanted),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(NcclFaults, TwoRanksOnOneDevice) {
  EXPECT_EQ(runRanks(
                2, 1, true, [](Rank &) {}, /*devices=*/1),
            "misuse");
}

TEST(Nccl, SumsAreNearAndEveryRankHasTheSameBits) {
  for (ncclDataType_t type : {ncclFloat32, ncclFloat64, ncclFloat16, ncclBfloat16})
    EXPECT_EQ(runRanks(3, 1, false,
                       [type](Rank &r) {
                         const cudaDataType as = type == ncclFloat32   ? CUDA_R_32F
                                                 : type == ncclFloat64 ? CUDA_R_64F
                                                 : type == ncclFloat16 ? CUDA_R_16F
                                                                       : CUDA_R_16BF;
                         const size_t width = elementBytes(as), count = Scene::kBytes / width;
                         auto *bytes = reinterpret_cast<std::byte *>(r.scene.pinned);
                         for (size_t i = 0; i < count; ++i)
                           put(bytes + i * width, double((i + 1) * (r.number + 1)), as);
                         cuMemcpyHtoDAsync_v2(r.scene.a, bytes, Scene::kBytes, r.scene.one);
                         ncclAllReduce(at(r.scene.a), at(r.scene.b), count, type, ncclSum, r.communicator, r.scene.one);
                         cuStreamSynchronize(r.scene.one);
                         cuMemcpyDtoHAsync_v2(bytes, r.scene.b, Scene::kBytes, r.scene.one);
                         cuStreamSynchronize(r.scene.one);
                         // Sums are integers below 2048: exact except in bf16, where each number and sum is rounded.
                         const double most = type == ncclBfloat16 ? 3 * 0x1p-8 : 0;
                         for (size_t i = 0; i < count; ++i)
                           r.expect(std::abs(get(bytes + i * width, as) / double(6 * (i + 1)) - 1) <= most,
                                    "the sum of three ranks");
                         // All ranks must have the bits of rank 0, which are broadcast as bytes.
                         ncclBroadcast(at(r.scene.b), at(r.scene.a), Scene::kBytes, ncclInt8, 0, r.communicator,
                                       r.scene.one);
                         std::vector<std::byte> own(bytes, bytes + Scene::kBytes), first(Scene::kBytes);
                         cuMemcpyDtoHAsync_v2(first.data(), r.scene.a, Scene::kBytes, r.scene.one);
                         cuStreamSynchronize(r.scene.one);
                         r.expect(own == first, "the bits of rank 0");
                       }),
              "");
}

/// Rank 0 waits for a sum; the host of rank 1 waits until rank 0 has it, and calls nothing meanwhile.
TEST(Nccl, ADeviceGoesOnWhileItsHostWaitsElsewhere) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    EXPECT_EQ(runRanks(2, seed, false,
                       [&](Rank &r) {
                         giveValues(r.scene);
                         r.sum(r.scene.a, 64, r.scene.one);
                         char word = 0;
                         if (r.number == 1)
                           r.expect(::read(ends[0], &word, 1) == 1, "a word of rank 0");
                         cuStreamSynchronize(r.scene.one);
                         if (r.number == 0)
                           r.expect(::write(ends[1], &word, 1) == 1, "a word to rank 1");
                       }),
              "")
        << "seed " << seed;
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

/// Rank 0 queues a sum and waits for other work. Rank 1 queues its part only after rank 0 has written to the pipe, so
/// that the wait of rank 0 must not run the sum.
TEST(Nccl, AHostWaitsForNoMeetingThatItDoesNotWant) {
  for (uint64_t seed = 1; seed <= 32; ++seed) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    EXPECT_EQ(runRanks(2, seed, false,
                       [&](Rank &r) {
                         giveValues(r.scene);
                         cuStreamSynchronize(r.scene.one);
                         char word = 0;
                         if (r.number == 1)
                           r.expect(::read(ends[0], &word, 1) == 1, "a word of rank 0");
                         r.sum(r.scene.a, 64, r.scene.one);
                         if (r.number == 0) {
                           r.scene.launch(r.scene.fill, r.scene.two, r.scene.b);
                           cuStreamSynchronize(r.scene.two);
                           r.expect(::write(ends[1], &word, 1) == 1, "a word to rank 1");
                         }
                         cuStreamSynchronize(r.scene.one);
                       }),
              "")
        << "seed " << seed;
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

TEST(Nccl, PartsOfRanks) {
  EXPECT_EQ(
      runRanks(2, 1, false,
               [](Rank &r) {
                 std::vector<float> values(64), got(64);
                 auto load = [&](CUdeviceptr to) {
                   cuMemcpyHtoDAsync_v2(to, values.data(), Scene::kBytes, r.scene.one);
                   cuStreamSynchronize(r.scene.one);
                 };
                 auto read = [&](CUdeviceptr from) {
                   cuMemcpyDtoHAsync_v2(got.data(), from, Scene::kBytes, r.scene.one);
                   cuStreamSynchronize(r.scene.one);
                 };
                 for (size_t i = 0; i < 64; ++i)
                   values[i] = float(i) + 1000 * float(r.number);
                 load(r.scene.a);
                 load(r.scene.b);
                 ncclReduceScatter(at(r.scene.a), at(r.scene.b), 32, ncclFloat32, ncclSum, r.communicator, r.scene.one);
                 read(r.scene.b);
                 for (size_t i = 0; i < 32; ++i)
                   r.expect(got[i] == 2 * float(i + 32 * r.number) + 1000, "a rank's part of the sum");
                 r.expect(got[32] == values[32], "and no more");
                 ncclAllGather(at(r.scene.b), at(r.scene.a), 32, ncclFloat32, r.communicator, r.scene.one);
                 read(r.scene.a);
                 for (size_t i = 0; i < 64; ++i)
                   r.expect(got[i] == 2 * float(i) + 1000, "the parts of all");
                 load(r.scene.a);
                 ncclReduce(at(r.scene.a), at(r.scene.b), 64, ncclFloat32, ncclSum, 1, r.communicator, r.scene.one);
                 read(r.scene.b);
                 r.expect((got[40] == 1080) == (r.number == 1), "the sum at the root alone");
               }),
      "");
}

/// The stand-in exchanges tensors in pieces; here the last piece is not full.
TEST(Nccl, TensorsOfSeveralPieces) {
  EXPECT_EQ(
      runRanks(3, 1, false,
               [](Rank &r) {
                 constexpr size_t kCount = 2 * NcclMeeting::kPieceBytes / sizeof(float) + 5;
                 std::vector<float> values(3 * kCount), got(3 * kCount);
                 auto value = [](size_t rank, size_t i) { return float(i % 4093 + 10000 * rank); };
                 auto sum = [&](size_t i) { return value(0, i) + value(1, i) + value(2, i); };
                 for (size_t i = 0; i < values.size(); ++i)
                   values[i] = value(r.number, i);
                 CUdeviceptr part = 0, whole = 0;
                 cuMemAlloc_v2(&part, kCount * sizeof(float));
                 cuMemAlloc_v2(&whole, 3 * kCount * sizeof(float));
                 auto load = [&] {
                   cuMemcpyHtoDAsync_v2(part, values.data(), kCount * sizeof(float), r.scene.one);
                   cuMemcpyHtoDAsync_v2(whole, values.data(), 3 * kCount * sizeof(float), r.scene.one);
                   cuStreamSynchronize(r.scene.one);
                 };
                 auto expectAll = [&](CUdeviceptr from, size_t count, auto wanted, const char *what) {
                   cuMemcpyDtoHAsync_v2(got.data(), from, count * sizeof(float), r.scene.one);
                   cuStreamSynchronize(r.scene.one);
                   bool same = true;
                   for (size_t i = 0; i < count; ++i)
                     same = same && got[i] == wanted(i);
                   r.expect(same, what);
                 };
                 load();
                 r.sum(part, kCount, r.scene.one);
                 expectAll(part, kCount, sum, "the sum of all");
                 load();
                 ncclReduceScatter(at(whole), at(part), kCount, ncclFloat32, ncclSum, r.communicator, r.scene.one);
                 expectAll(
                     part, kCount, [&](size_t i) { return sum(r.number * kCount + i); }, "a rank's part");
                 load();
                 ncclAllGather(at(part), at(whole), kCount, ncclFloat32, r.communicator, r.scene.one);
                 expectAll(
                     whole, 3 * kCount, [&](size_t i) { return value(i / kCount, i % kCount); }, "the parts of all");
                 load();
                 ncclBroadcast(at(part), at(part), kCount, ncclFloat32, 2, r.communicator, r.scene.one);
                 expectAll(
                     part, kCount, [&](size_t i) { return value(2, i); }, "what the root has");
                 load();
                 ncclReduce(at(part), at(whole), kCount, ncclFloat32, ncclSum, 1, r.communicator, r.scene.one);
                 expectAll(
                     whole, kCount, [&](size_t i) { return r.number == 1 ? sum(i) : values[i]; },
                     "the sum at the root alone");
                 cuMemFree_v2(part);
                 cuMemFree_v2(whole);
               }),
      "");
}

TEST(Nccl, AnAbortEndsWhoWaits) {
  EXPECT_EQ(runRanks(2, 1, false,
                     [](Rank &r) {
                       giveValues(r.scene);
                       if (r.number == 1)
                         return; // and aborts its own
                       r.sum(r.scene.a, 64, r.scene.one);
                       std::thread other([&] {
                         ::usleep(100'000);
                         r.expect(ncclCommAbort(r.communicator) == ncclSuccess, "the abort");
                       });
                       r.expect(cuStreamSynchronize(r.scene.one) == CUDA_SUCCESS, "the wait ends");
                       other.join();
                     }),
            "");
}

} // namespace

//===- DriverFaultsTest.cpp - planted mistakes of the host ---------------===//
//
// Each case is a program with one mistake, which the stand-in must name in every order that a seed draws; with the
// smallest change that mends it, the program must run clean.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/faults/Scene.h"

#include <gtest/gtest.h>
#include <thread>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

namespace {
/// Copies a to the host and waits.
void readBack(Scene &s, CUdeviceptr from, CUstream stream) {
  cuMemcpyDtoHAsync_v2(s.pinned, from, Scene::kBytes, stream);
  cuStreamSynchronize(stream);
}
/// Initialises a, so that an early read is not reported as a read of uninitialised memory.
void giveValues(Scene &s) {
  cuMemsetD8Async(s.a, 0, Scene::kBytes, s.one);
  cuStreamSynchronize(s.one);
}
/// Begins `second` in the other stream, behind `first` unless the order is left out.
template <typename First, typename Second> void oneThenTwo(Scene &s, bool ordered, First first, Second second) {
  first();
  cuEventRecord(s.event, s.one);
  if (ordered)
    cuStreamWaitEvent(s.two, s.event, 0);
  second();
  cuCtxSynchronize();
}
/// Initialises b, then lets the card write the pinned memory and read it, as a plan's memory on the host.
void keepOnHost(Scene &s) {
  giveValues(s);
  cuMemcpyDtoHAsync_v2(s.pinned, s.a, Scene::kBytes, s.one);
  cuMemcpyHtoDAsync_v2(s.b, s.pinned, Scene::kBytes, s.one);
  cuStreamSynchronize(s.one);
}
CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec executable = nullptr;
  if (graph) {
    cuGraphInstantiateWithFlags(&executable, graph, 0);
    cuGraphDestroy(graph);
  }
  return executable;
}

const Planted kPlanted[] = {
    {"NoWaitForACopy", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       cuMemcpyHtoDAsync_v2(s.a, s.pinned, Scene::kBytes, s.one);
       cuEventRecord(s.event, s.one);
       if (!wrong)
         cuStreamWaitEvent(s.two, s.event, 0);
       s.launch(s.twice, s.two, s.a);
       cuCtxSynchronize();
     }},
    {"EventRecordedTooEarly", "unordered-work",
     [](Scene &s, bool wrong) {
       if (wrong)
         cuEventRecord(s.event, s.one);
       s.launch(s.fill, s.one, s.a);
       if (!wrong)
         cuEventRecord(s.event, s.one);
       cuStreamWaitEvent(s.two, s.event, 0);
       s.launch(s.fill, s.two, s.a);
       cuCtxSynchronize();
     }},
    {"HostWaitsForTheOtherStream", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       s.launch(s.fill, s.one, s.a);
       s.launch(s.fill, s.two, s.b);
       cuStreamSynchronize(wrong ? s.two : s.one);
       s.launch(s.twice, s.two, s.a);
       cuCtxSynchronize();
     }},
    {"TwoGraphsShareMemory", "unordered-work",
     [](Scene &s, bool wrong) {
       CUgraphExec x = instantiate(s.capture({{s.fill, s.a}})),
                   y = instantiate(s.capture({{s.fill, wrong ? s.a : s.b}}));
       cuGraphLaunch(x, s.one);
       cuGraphLaunch(y, s.two);
       cuCtxSynchronize();
       cuGraphExecDestroy(x);
       cuGraphExecDestroy(y);
     }},
    {"GraphWithoutAnEdge", "unordered-work",
     [](Scene &s, bool wrong) {
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       if (wrong)
         cuEventRecord(s.event, s.one);
       s.launch(s.fill, s.one, s.a);
       if (!wrong)
         cuEventRecord(s.event, s.one);
       cuStreamWaitEvent(s.two, s.event, 0);
       s.launch(s.twice, s.two, s.a);
       cuEventRecord(s.event, s.two);
       cuStreamWaitEvent(s.one, s.event, 0);
       CUgraph graph = nullptr;
       cuStreamEndCapture(s.one, &graph);
       CUgraphExec x = instantiate(graph);
       if (wrong)
         cuMemsetD8Async(s.a, 0, Scene::kBytes, s.one);
       cuGraphLaunch(x, s.one);
       cuCtxSynchronize();
       cuGraphExecDestroy(x);
     }},
    // Checkpoints copied beside training, and metrics copied during a run, rely on this order.
    {"UpdateBeforeItsStateIsCopied", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       CUgraphExec update = instantiate(s.capture({{s.twice, s.a}}));
       cuMemcpyDtoHAsync_v2(s.pinned, s.a, Scene::kBytes, s.two);
       cuEventRecord(s.event, s.two);
       if (!wrong)
         cuStreamWaitEvent(s.one, s.event, 0);
       cuGraphLaunch(update, s.one);
       cuCtxSynchronize();
       cuGraphExecDestroy(update);
     }},
    {"StateCopiedBeforeTheUpdateIsDone", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       CUgraphExec update = instantiate(s.capture({{s.twice, s.a}}));
       cuGraphLaunch(update, s.one);
       cuEventRecord(s.event, s.one);
       if (!wrong)
         cuStreamWaitEvent(s.two, s.event, 0);
       cuMemcpyDtoHAsync_v2(s.pinned, s.a, Scene::kBytes, s.two);
       cuCtxSynchronize();
       cuGraphExecDestroy(update);
     }},
    {"NumberCopiedBeforeTheGraphHasMadeIt", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       CUgraphExec forward = instantiate(s.capture({{s.fill, s.a}})), rest = instantiate(s.capture({{s.fill, s.b}}));
       if (wrong)
         cuEventRecord(s.event, s.one);
       cuGraphLaunch(forward, s.one);
       if (!wrong)
         cuEventRecord(s.event, s.one);
       cuStreamWaitEvent(s.two, s.event, 0);
       cuMemcpyDtoHAsync_v2(s.pinned, s.a, 4, s.two);
       cuGraphLaunch(rest, s.one);
       cuCtxSynchronize();
       cuGraphExecDestroy(forward);
       cuGraphExecDestroy(rest);
     }},
    {"NextRunBeforeTheNumberIsCopied", "unordered-work",
     [](Scene &s, bool wrong) {
       CUevent copied = nullptr;
       cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING);
       CUgraphExec forward = instantiate(s.capture({{s.fill, s.a}}));
       cuGraphLaunch(forward, s.one);
       cuEventRecord(s.event, s.one);
       cuStreamWaitEvent(s.two, s.event, 0);
       cuMemcpyDtoHAsync_v2(s.pinned, s.a, 4, s.two);
       cuEventRecord(copied, s.two);
       if (!wrong)
         cuStreamWaitEvent(s.one, copied, 0);
       cuGraphLaunch(forward, s.one);
       cuCtxSynchronize();
       cuGraphExecDestroy(forward);
       cuEventDestroy_v2(copied);
     }},
    // Memory that plans keep on the host relies on these orders.
    {"FetchBeforeItsStoreIsDone", "unordered-work",
     [](Scene &s, bool wrong) {
       keepOnHost(s);
       oneThenTwo(
           s, !wrong, [&] { cuMemcpyDtoHAsync_v2(s.pinned, s.a, Scene::kBytes, s.one); },
           [&] { cuMemcpyHtoDAsync_v2(s.b, s.pinned, Scene::kBytes, s.two); });
     }},
    {"StoreOverAPlaceThatIsFetched", "unordered-work",
     [](Scene &s, bool wrong) {
       keepOnHost(s);
       oneThenTwo(
           s, !wrong, [&] { cuMemcpyHtoDAsync_v2(s.b, s.pinned, Scene::kBytes, s.one); },
           [&] { cuMemcpyDtoHAsync_v2(s.pinned, s.a, Scene::kBytes, s.two); });
     }},
    {"StoresThatOverlapOnTheHost", "unordered-work",
     [](Scene &s, bool wrong) {
       keepOnHost(s);
       oneThenTwo(
           s, false, [&] { cuMemcpyDtoHAsync_v2(s.pinned, s.a, Scene::kBytes / 2, s.one); },
           [&] { cuMemcpyDtoHAsync_v2(s.pinned + (wrong ? 31 : 32), s.b, Scene::kBytes / 2, s.two); });
     }},
    {"FetchFromTheWrongPlace", "unordered-work",
     [](Scene &s, bool wrong) {
       keepOnHost(s);
       oneThenTwo(
           s, false, [&] { cuMemcpyDtoHAsync_v2(s.pinned, s.a, Scene::kBytes / 2, s.one); },
           [&] { cuMemcpyHtoDAsync_v2(s.b, s.pinned + (wrong ? 0 : 32), Scene::kBytes / 2, s.two); });
     }},
    {"FetchOverAValueThatIsRead", "unordered-work",
     [](Scene &s, bool wrong) {
       keepOnHost(s);
       oneThenTwo(
           s, !wrong, [&] { cuMemcpyDtoHAsync_v2(s.pinned, s.b, Scene::kBytes, s.one); },
           [&] { cuMemsetD8Async(s.b, 0, Scene::kBytes, s.two); });
     }},
    {"NextUpdateFetchesBeforeTheLastOneHasStored", "unordered-work",
     [](Scene &s, bool wrong) {
       keepOnHost(s);
       auto graphOf = [&](auto copy) {
         CUgraph graph = nullptr;
         cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
         copy();
         cuStreamEndCapture(s.one, &graph);
         return instantiate(graph);
       };
       CUgraphExec last = graphOf([&] { cuMemcpyDtoHAsync_v2(s.pinned, s.a, Scene::kBytes, s.one); }),
                   next = graphOf([&] { cuMemcpyHtoDAsync_v2(s.b, s.pinned, Scene::kBytes, s.one); });
       oneThenTwo(
           s, !wrong, [&] { cuGraphLaunch(last, s.one); }, [&] { cuGraphLaunch(next, s.two); });
       cuGraphExecDestroy(last);
       cuGraphExecDestroy(next);
     }},
    {"PinnedMemoryWrittenTooEarly", "pinned-overwritten",
     [](Scene &s, bool wrong) {
       cuMemcpyHtoDAsync_v2(s.a, s.pinned, Scene::kBytes, s.one);
       if (!wrong)
         cuStreamSynchronize(s.one);
       s.pinned[5] = 77;
       cuStreamSynchronize(s.one);
     }},
    {"PinnedMemoryOfAGraphWrittenTooEarly", "pinned-overwritten",
     [](Scene &s, bool wrong) {
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       cuMemcpyHtoDAsync_v2(s.a, s.pinned, Scene::kBytes, s.one);
       CUgraph graph = nullptr;
       cuStreamEndCapture(s.one, &graph);
       CUgraphExec x = instantiate(graph);
       for (unsigned step = 0; step < 3; ++step) {
         s.pinned[5] = step;
         cuGraphLaunch(x, s.one);
         if (!wrong)
           cuStreamSynchronize(s.one);
       }
       cuCtxSynchronize();
       cuGraphExecDestroy(x);
     }},
    {"UninitialisedMemoryCopied", "uninitialised-read",
     [](Scene &s, bool wrong) {
       if (!wrong)
         cuMemsetD8Async(s.a, 0, Scene::kBytes, s.one);
       readBack(s, s.a, s.one);
     }},
    {"ClearedMemoryTakenForAValue", "uninitialised-read",
     [](Scene &s, bool wrong) {
       standIn().options.clearedBytes = wrong ? 128 : Scene::kBytes;
       cuMemsetD8Async(s.a, 0, Scene::kBytes, s.one);
       s.launch(s.twice, s.one, s.a);
       cuStreamSynchronize(s.one);
     }},
    {"KernelBeyondItsBuffer", "out-of-bounds",
     [](Scene &s, bool wrong) {
       s.launch(wrong ? s.outside : s.fill, s.one, s.a);
       cuStreamSynchronize(s.one);
     }},
    {"CopyBeyondABuffer", "out-of-bounds",
     [](Scene &s, bool wrong) { cuMemcpyHtoDAsync_v2(s.a + (wrong ? 4 : 0), s.pinned, Scene::kBytes, s.one); }},
    {"FillBeyondABuffer", "out-of-bounds",
     [](Scene &s, bool wrong) { cuMemsetD32Async(s.a, 1, wrong ? 65 : 64, s.one); }},
    {"RowsBeyondABuffer", "out-of-bounds",
     [](Scene &s, bool wrong) { cuMemsetD2D32Async(s.a, 64, 1, 16, wrong ? 5 : 4, s.one); }},
    {"PinnedRangeBeyondItsEnd", "out-of-bounds",
     [](Scene &s, bool wrong) { cuMemcpyHtoDAsync_v2(s.a, s.pinned + (wrong ? 1 : 0), Scene::kBytes, s.one); }},
    {"MisalignedFill", "misaligned",
     [](Scene &s, bool wrong) { cuMemsetD32Async(s.a + (wrong ? 2 : 4), 1, 8, s.one); }},
    {"MisalignedKernel", "misaligned",
     [](Scene &s, bool wrong) {
       s.launch(s.fill, s.one, s.a + (wrong ? 2 : 0));
       cuStreamSynchronize(s.one);
     }},
    {"DeviceMemoryAsTheHosts", "misuse",
     [](Scene &s, bool wrong) {
       cuMemcpyHtoDAsync_v2(s.a, wrong ? reinterpret_cast<void *>(s.b) : s.pinned, Scene::kBytes, s.one);
     }},
    {"OverlappingCopy", "misuse",
     [](Scene &s, bool wrong) {
       cuMemsetD8Async(s.a, 0, Scene::kBytes, s.one);
       cuMemcpyDtoDAsync_v2(s.a + (wrong ? 64 : 128), s.a, 128, s.one);
     }},
    {"WaitForAnEventNeverRecorded", "misuse",
     [](Scene &s, bool wrong) {
       if (!wrong)
         cuEventRecord(s.event, s.two);
       cuStreamWaitEvent(s.one, s.event, 0);
     }},
    {"TimeOfAnEventWithoutTiming", "misuse",
     [](Scene &s, bool wrong) {
       CUevent from, to;
       cuEventCreate(&from, wrong ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT);
       cuEventCreate(&to, CU_EVENT_DEFAULT);
       cuEventRecord(from, s.one);
       cuEventRecord(to, s.one);
       cuStreamSynchronize(s.one);
       float time = 0;
       cuEventElapsedTime(&time, from, to);
       cuEventDestroy_v2(from);
       cuEventDestroy_v2(to);
     }},
    {"ThreadWithoutAContext", "misuse",
     [](Scene &s, bool wrong) {
       std::thread([&] {
         if (!wrong)
           cuCtxSetCurrent(s.context);
         cuMemsetD8Async(s.a, 0, Scene::kBytes, s.one);
       }).join();
     }},
    {"ContextReleasedTwice", "misuse",
     [](Scene &s, bool wrong) {
       s.close();
       if (wrong)
         cuDevicePrimaryCtxRelease_v2(0);
     }},
    {"NullParameter", "misuse",
     [](Scene &s, bool wrong) {
       void *parameters[] = {wrong ? nullptr : &s.a};
       cuLaunchKernel(s.fill, 1, 1, 1, 64, 1, 1, 0, s.one, parameters, nullptr);
     }},
    {"PtxWithAnUnknownInstruction", "misuse",
     [](Scene &s, bool wrong) {
       std::string text = sceneModule();
       if (wrong)
         text.replace(text.find("add.s32"), 7, "foo.s32");
       CUmodule other = nullptr;
       if (cuModuleLoadDataEx(&other, text.c_str(), 0, nullptr, nullptr) == CUDA_SUCCESS)
         cuModuleUnload(other);
     }},
    {"BlockTooLarge", "launch-limits",
     [](Scene &s, bool wrong) {
       void *parameters[] = {&s.a};
       cuLaunchKernel(s.fill, 1, 1, 1, wrong ? 2048 : 64, 1, 1, 0, s.one, parameters, nullptr);
     }},
    {"SharedMemoryAboveTheDefault", "launch-limits",
     [](Scene &s, bool wrong) {
       void *parameters[] = {&s.a};
       cuLaunchKernel(s.fill, 1, 1, 1, 64, 1, 1, wrong ? 49153 : 49152, s.one, parameters, nullptr);
     }},
    {"PinnedMemoryFreedTooEarly", "use-after-free",
     [](Scene &s, bool wrong) {
       void *host = nullptr;
       cuMemHostAlloc(&host, Scene::kBytes, 0);
       // So much work that some stays queued: the copy must not have run by chance.
       for (int i = 0; i < 64; ++i)
         s.launch(s.fill, s.one, s.a);
       cuMemcpyHtoDAsync_v2(s.a, host, Scene::kBytes, s.one);
       if (!wrong)
         cuStreamSynchronize(s.one);
       cuMemFreeHost(host);
     }},
    {"DeviceMemoryFreedTwice", "use-after-free",
     [](Scene &s, bool wrong) {
       CUdeviceptr other = 0;
       cuMemAlloc_v2(&other, 64);
       cuMemFree_v2(other);
       if (wrong)
         cuMemFree_v2(other);
     }},
    {"StreamUsedAfterItsEnd", "use-after-free",
     [](Scene &s, bool wrong) {
       CUstream other = nullptr;
       cuStreamCreate(&other, 0);
       if (wrong)
         cuStreamDestroy_v2(other);
       s.launch(s.fill, other, s.a);
       if (!wrong)
         cuStreamDestroy_v2(other);
     }},
    {"ModuleUnloadedTooEarly", "use-after-free",
     [](Scene &s, bool wrong) {
       for (int i = 0; i < 64; ++i)
         s.launch(s.fill, s.one, s.a);
       if (!wrong)
         cuStreamSynchronize(s.one);
       cuModuleUnload(s.module);
       s.module = nullptr;
     }},
    {"GraphOfAnUnloadedModule", "use-after-free",
     [](Scene &s, bool wrong) {
       CUgraphExec x = instantiate(s.capture({{s.fill, s.a}}));
       if (wrong) {
         cuModuleUnload(s.module);
         s.module = nullptr;
       }
       cuGraphLaunch(x, s.one);
       cuGraphExecDestroy(x);
     }},
    {"GraphLaunchedAfterItsEnd", "use-after-free",
     [](Scene &s, bool wrong) {
       CUgraphExec x = instantiate(s.capture({{s.fill, s.a}}));
       if (wrong)
         cuGraphExecDestroy(x);
       cuGraphLaunch(x, s.one);
       if (!wrong)
         cuGraphExecDestroy(x);
     }},
    {"EventAsAStream", "not-a-handle",
     [](Scene &s, bool wrong) {
       cuMemsetD8Async(s.a, 0, Scene::kBytes, wrong ? reinterpret_cast<CUstream>(s.event) : s.one);
     }},
    {"AllocationInACapture", "capture",
     [](Scene &s, bool wrong) {
       CUdeviceptr other = 0;
       if (!wrong)
         cuMemAlloc_v2(&other, 64);
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       if (wrong) {
         EXPECT_EQ(cuMemAlloc_v2(&other, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
       }
       CUgraph graph = nullptr;
       EXPECT_EQ(cuStreamEndCapture(s.one, &graph), wrong ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
       if (!wrong) {
         cuGraphDestroy(graph);
         cuMemFree_v2(other);
       }
     }},
    {"CapturingStreamSynchronized", "capture",
     [](Scene &s, bool wrong) {
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_RELAXED);
       cuStreamSynchronize(wrong ? s.one : s.two);
       CUgraph graph = nullptr;
       if (cuStreamEndCapture(s.one, &graph) == CUDA_SUCCESS)
         cuGraphDestroy(graph);
     }},
    {"LegacyStreamInACapture", "capture",
     [](Scene &s, bool wrong) {
       CUstream blocking = nullptr;
       cuStreamCreate(&blocking, 0);
       cuStreamBeginCapture_v2(wrong ? blocking : s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       s.launch(s.fill, nullptr, s.a);
       CUgraph graph = nullptr;
       if (cuStreamEndCapture(wrong ? blocking : s.one, &graph) == CUDA_SUCCESS)
         cuGraphDestroy(graph);
       cuStreamDestroy_v2(blocking);
     }},
    {"StreamNotJoined", "capture",
     [](Scene &s, bool wrong) {
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       s.launch(s.fill, s.one, s.a);
       cuEventRecord(s.event, s.one);
       cuStreamWaitEvent(s.two, s.event, 0);
       s.launch(s.fill, s.two, s.b);
       cuEventRecord(s.event, s.two);
       if (!wrong)
         cuStreamWaitEvent(s.one, s.event, 0);
       CUgraph graph = nullptr;
       EXPECT_EQ(cuStreamEndCapture(s.one, &graph), wrong ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS);
       if (graph)
         cuGraphDestroy(graph);
     }},
    {"EventFromOutsideACapture", "capture",
     [](Scene &s, bool wrong) {
       cuEventRecord(s.event, s.two);
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       if (wrong) {
         EXPECT_EQ(cuStreamWaitEvent(s.one, s.event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
       }
       CUgraph graph = nullptr;
       if (cuStreamEndCapture(s.one, &graph) == CUDA_SUCCESS)
         cuGraphDestroy(graph);
     }},
    {"CapturedEventSynchronized", "capture",
     [](Scene &s, bool wrong) {
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       s.launch(s.fill, s.one, s.a);
       if (wrong)
         cuEventRecord(s.event, s.one);
       CUgraph graph = nullptr;
       cuStreamEndCapture(s.one, &graph);
       cuGraphDestroy(graph);
       if (!wrong)
         cuEventRecord(s.event, s.one);
       EXPECT_EQ(cuEventSynchronize(s.event), wrong ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS);
     }},
    {"EndOfAForkedStream", "capture",
     [](Scene &s, bool wrong) {
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       cuEventRecord(s.event, s.one);
       cuStreamWaitEvent(s.two, s.event, 0);
       CUgraph graph = nullptr;
       if (wrong)
         cuStreamEndCapture(s.two, &graph);
       if (cuStreamEndCapture(s.one, &graph) == CUDA_SUCCESS)
         cuGraphDestroy(graph);
     }},
    {"CapturesJoined", "capture",
     [](Scene &s, bool wrong) {
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_RELAXED);
       cuStreamBeginCapture_v2(s.two, CU_STREAM_CAPTURE_MODE_RELAXED);
       cuEventRecord(s.event, s.one);
       if (wrong)
         cuStreamWaitEvent(s.two, s.event, 0);
       CUgraph graph = nullptr;
       for (CUstream stream : {s.one, s.two})
         if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS)
           cuGraphDestroy(graph);
     }},
    {"CaptureBegunTwice", "capture",
     [](Scene &s, bool wrong) {
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       if (wrong)
         cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       CUgraph graph = nullptr;
       cuStreamEndCapture(s.one, &graph);
       cuGraphDestroy(graph);
     }},
    {"CaptureEndedByAnotherThread", "capture",
     [](Scene &s, bool wrong) {
       cuStreamBeginCapture_v2(s.one, wrong ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_RELAXED);
       CUgraph graph = nullptr;
       std::thread([&] {
         cuCtxSetCurrent(s.context);
         cuStreamEndCapture(s.one, &graph);
       }).join();
       if (graph)
         cuGraphDestroy(graph);
       else
         cuStreamEndCapture(s.one, &graph);
     }},
    {"PageableMemoryInACapture", "capture",
     [](Scene &s, bool wrong) {
       std::vector<unsigned> pageable(64);
       cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
       cuMemcpyHtoDAsync_v2(s.a, wrong ? pageable.data() : s.pinned, Scene::kBytes, s.one);
       CUgraph graph = nullptr;
       if (cuStreamEndCapture(s.one, &graph) == CUDA_SUCCESS)
         cuGraphDestroy(graph);
     }},
    {"MemoryLeft", "leak",
     [](Scene &s, bool wrong) {
       CUdeviceptr other = 0;
       cuMemAlloc_v2(&other, 64);
       if (!wrong)
         cuMemFree_v2(other);
       s.close();
     }},
    {"StreamLeft", "leak",
     [](Scene &s, bool wrong) {
       CUstream other = nullptr;
       cuStreamCreate(&other, 0);
       if (!wrong)
         cuStreamDestroy_v2(other);
       s.close();
     }},
    {"GraphLeft", "leak",
     [](Scene &s, bool wrong) {
       CUgraph graph = s.capture({{s.fill, s.a}});
       if (!wrong)
         cuGraphDestroy(graph);
       s.close();
     }},
};

class DriverFaults : public testing::TestWithParam<Planted> {};
} // namespace

TEST_P(DriverFaults, AreFoundByName) {
  expectFound(GetParam());
}
INSTANTIATE_TEST_SUITE_P(Emulation, DriverFaults, testing::ValuesIn(kPlanted),
                         [](auto &info) { return info.param.name; });

TEST(DriverFaultReports, HostTouchesDeviceMemory) {
  EXPECT_DEATH(
      {
        Scene scene(1);
        *reinterpret_cast<volatile unsigned *>(scene.a + 8) = 1;
      },
      "emulation: host-touches-device: the host accesses 0x[0-9a-f]+, byte 8 of device allocation 1");
}

TEST(DriverFaultReports, AFaultOfAKernelIsAnsweredFromThenOn) {
  Scene scene(1);
  scene.launch(scene.outside, scene.one, scene.a);
  EXPECT_EQ(cuStreamSynchronize(scene.one), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuMemsetD8Async(scene.a, 0, 4, scene.one), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAlloc_v2(&more, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Without a wait the host reads a pattern, never a result that happens to be ready.
TEST(DriverFaultReports, AnEarlyReadSeesNoResult) {
  int early = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Scene scene(seed);
    scene.launch(scene.fill, scene.one, scene.a);
    cuMemcpyDtoHAsync_v2(scene.pinned, scene.a, Scene::kBytes, scene.one);
    early += scene.pinned[5] == ~0u;
    EXPECT_TRUE(scene.pinned[5] == ~0u || scene.pinned[5] == 5);
    cuStreamSynchronize(scene.one);
    EXPECT_EQ(scene.pinned[5], 5u);
    EXPECT_EQ(Scene::faults(), "");
  }
  EXPECT_GT(early, 5);
}

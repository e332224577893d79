//===- DriverProbes.cpp - beliefs about the driver -----------------------===//
#include "test/emulation/probes/Probe.h"

#include <cstring>
#include <thread>

using namespace tcc::probes;

PROBE(BareCallsNeedInitialisation, "Driver API: Initialization") {
  int count = 0;
  EXPECT(cu.deviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
}
PROBE(ThePrimaryContextIsOne, "Driver API: Primary Context Management") {
  CUcontext again = nullptr;
  EXPECT(cu.devicePrimaryCtxRetain(&again, 0) == CUDA_SUCCESS);
  EXPECT(again == p.context);
}
PROBE(AThreadHasNoContextAtFirst, "Driver API: Context Management") {
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    CUdeviceptr made = 0;
    result = cu.memAlloc(&made, 256);
  }).join();
  EXPECT(result == CUDA_ERROR_INVALID_CONTEXT);
}
PROBE(NoAllocationOfZeroBytes, "Driver API: cuMemAlloc") {
  CUdeviceptr made = 0;
  EXPECT(cu.memAlloc(&made, 0) == CUDA_ERROR_INVALID_VALUE);
}
PROBE(TooLargeAnAllocationIsAnswered, "Driver API: cuMemAlloc") {
  CUdeviceptr made = 0;
  EXPECT(cu.memAlloc(&made, size_t{1} << 42) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cu.memAlloc(&made, 256) == CUDA_SUCCESS); // the failed allocation has left the context usable
}
PROBE(AllocationsAreAligned, "Programming Guide: Device Memory Accesses") { EXPECT(p.a % 256 == 0 && p.b % 256 == 0); }
PROBE(AStreamKeepsItsOrder, "Programming Guide: Streams") {
  p.launch(p.store7, p.a);
  p.launch(p.add1, p.a);
  cu.memcpyDtoDAsync(p.b, p.a, 4, p.stream);
  p.launch(p.add1, p.a);
  EXPECT(p.word(p.b) == 8 && p.word(p.a) == 9);
}
PROBE(AnEventOrdersStreams, "Programming Guide: Events") {
  for (int i = 0; i < 50; ++i)
    p.launch(p.add1, p.a);
  cu.eventRecord(p.event, p.stream);
  cu.streamWaitEvent(p.other, p.event, 0);
  cu.memcpyDtoDAsync(p.b, p.a, 4, p.other);
  EXPECT(p.word(p.b) == 50);
}
PROBE(AnEventIsRecordedOnce, "Driver API: cuStreamWaitEvent") { // a later record does not change an earlier wait
  p.launch(p.store7, p.a);
  cu.eventRecord(p.event, p.stream);
  cu.streamWaitEvent(p.other, p.event, 0);
  cu.eventRecord(p.event, p.other);
  EXPECT(cu.eventSynchronize(p.event) == CUDA_SUCCESS);
  EXPECT(p.word(p.a) == 7);
}
PROBE(TheLegacyStreamWaitsForBlockingStreams, "Driver API: Stream synchronization behavior") {
  CUstream blocking = nullptr;
  cu.streamCreate(&blocking, CU_STREAM_DEFAULT);
  for (int i = 0; i < 50; ++i)
    p.launch(p.add1, p.a, 0, blocking);
  cu.memcpyDtoDAsync(p.b, p.a, 4, nullptr);
  p.launch(p.store7, p.a, 0, blocking);
  EXPECT(p.word(p.b) == 50);
}
PROBE(PageableMemoryIsTakenAtTheCall, "Driver API: API synchronization behavior") {
  unsigned value = 5;
  cu.memcpyHtoDAsync(p.a, &value, 4, p.stream);
  value = 6;
  EXPECT(p.word(p.a) == 5);
}
PROBE(PageableMemoryIsWrittenBeforeTheReturn, "Driver API: API synchronization behavior") {
  unsigned value = 0;
  p.launch(p.store7, p.a);
  cu.memcpyDtoHAsync(&value, p.a, 4, p.stream);
  EXPECT(value == 7);
}
PROBE(ParametersAreTakenAtTheCall, "Driver API: cuLaunchKernel") {
  CUdeviceptr first = p.a, second = 0;
  void *parameters[] = {&first, &second};
  cu.launchKernel(p.store7, 1, 1, 1, 1, 1, 1, 0, p.stream, parameters, nullptr);
  first = p.b;
  EXPECT(p.word(p.a) == 7 && p.word(p.b) == 0);
}
PROBE(FillsWriteElements, "Driver API: cuMemsetD32, cuMemsetD2D32") {
  cu.memsetD32Async(p.a, 0x01020304, 2, p.stream);
  cu.memsetD16Async(p.a, 0xffee, 1, p.stream);
  EXPECT(p.word(p.a) == 0x0102ffee && p.word(p.a + 4) == 0x01020304 && p.word(p.a + 8) == 0);
  cu.memsetD2D32Async(p.b, 16, 9, 2, 3, p.stream);
  EXPECT(p.word(p.b + 36) == 9 && p.word(p.b + 8) == 0 && p.word(p.b + 48) == 0);
}
PROBE(AFillNeedsAlignment, "Driver API: cuMemsetD32") {
  EXPECT(cu.memsetD32Async(p.a + 2, 0, 1, p.stream) == CUDA_ERROR_INVALID_VALUE);
}
PROBE(ADestroyedStreamEndsItsWork, "Driver API: cuStreamDestroy") {
  for (int i = 0; i < 50; ++i)
    p.launch(p.add1, p.a, 0, p.other);
  EXPECT(cu.streamDestroy(p.other) == CUDA_SUCCESS);
  EXPECT(p.word(p.a) == 50);
}
PROBE(AWaitedStreamIsReady, "Driver API: cuStreamQuery") {
  p.launch(p.add1, p.a);
  cu.streamSynchronize(p.stream);
  EXPECT(cu.streamQuery(p.stream) == CUDA_SUCCESS);
}
PROBE(TimeOfEventsNeedsTiming, "Driver API: cuEventElapsedTime") {
  float time = -1;
  CUevent from = nullptr, to = nullptr;
  cu.eventCreate(&from, CU_EVENT_DEFAULT);
  cu.eventCreate(&to, CU_EVENT_DEFAULT);
  cu.eventRecord(from, p.stream);
  p.launch(p.add1, p.a);
  cu.eventRecord(to, p.stream);
  cu.streamSynchronize(p.stream);
  EXPECT(cu.eventElapsedTime(&time, from, to) == CUDA_SUCCESS && time >= 0);
  cu.eventRecord(p.event, p.stream);
  cu.streamSynchronize(p.stream);
  EXPECT(cu.eventElapsedTime(&time, from, p.event) == CUDA_ERROR_INVALID_HANDLE);
}

// Stream capture.
PROBE(ACaptureRunsNothing, "Programming Guide: Creating a Graph Using Stream Capture") {
  CUgraph graph = p.capture([&] { p.launch(p.store7, p.a); });
  EXPECT(p.word(p.a) == 0);
  CUgraphExec executable = p.instantiate(graph);
  EXPECT(cu.graphDestroy(graph) == CUDA_SUCCESS); // the executable graph is a copy
  EXPECT(cu.graphLaunch(executable, p.stream) == CUDA_SUCCESS);
  EXPECT(p.word(p.a) == 7);
}
PROBE(LaunchesOfAGraphDoNotOverlap, "Driver API: cuGraphLaunch") {
  CUgraphExec executable = p.instantiate(p.capture([&] {
    for (int i = 0; i < 10; ++i)
      p.launch(p.add1, p.a);
  }));
  cu.graphLaunch(executable, p.stream);
  cu.graphLaunch(executable, p.other);
  EXPECT(p.word(p.a) == 20);
}
PROBE(AGraphReadsPinnedMemoryAtEachLaunch, "Programming Guide: CUDA Graphs") {
  CUgraphExec executable = p.instantiate(p.capture([&] { cu.memcpyHtoDAsync(p.a, p.pinned, 4, p.stream); }));
  for (unsigned value : {3u, 4u}) {
    p.pinned[0] = value;
    cu.graphLaunch(executable, p.stream);
    EXPECT(p.word(p.a) == value);
  }
}
PROBE(ACaptureSpansStreams, "Programming Guide: Cross-stream Dependencies and Events") {
  CUgraphExec executable = p.instantiate(p.capture([&] {
    p.launch(p.store7, p.a);
    cu.eventRecord(p.event, p.stream);
    cu.streamWaitEvent(p.other, p.event, 0);
    cu.memcpyDtoDAsync(p.b, p.a, 4, p.other);
    cu.eventRecord(p.event, p.other);
    cu.streamWaitEvent(p.stream, p.event, 0);
    p.launch(p.add1, p.b);
  }));
  cu.graphLaunch(executable, p.stream);
  EXPECT(p.word(p.b) == 8);
}
PROBE(AForkMustJoin, "Programming Guide: Cross-stream Dependencies and Events") {
  p.capture(
      [&] {
        cu.eventRecord(p.event, p.stream);
        cu.streamWaitEvent(p.other, p.event, 0);
        p.launch(p.store7, p.a, 0, p.other);
      },
      CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}
PROBE(ACaptureForbidsAllocation, "Driver API: cuThreadExchangeStreamCaptureMode") {
  CUdeviceptr made = 0;
  p.capture([&] { EXPECT(cu.memAlloc(&made, 256) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); },
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
PROBE(ACaptureForbidsSynchronising, "Programming Guide: Prohibited and Unhandled Operations") {
  p.capture([&] { EXPECT(cu.streamSynchronize(p.stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); },
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
PROBE(ACaptureForbidsOutsideEvents, "Programming Guide: Prohibited and Unhandled Operations") {
  cu.eventRecord(p.event, p.other);
  p.capture([&] { EXPECT(cu.streamWaitEvent(p.stream, p.event, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION); },
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
PROBE(ACapturedEventHasNoState, "Programming Guide: Prohibited and Unhandled Operations") {
  cu.streamBeginCapture(p.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cu.eventRecord(p.event, p.stream);
  EXPECT(cu.eventQuery(p.event) == CUDA_ERROR_CAPTURED_EVENT);
  CUgraph graph = nullptr; // the documentation does not say whether the query invalidates the capture
  if (cu.streamEndCapture(p.stream, &graph) == CUDA_SUCCESS)
    cu.graphDestroy(graph);
}
PROBE(ABlockingCaptureForbidsTheLegacyStream, "Programming Guide: Prohibited and Unhandled Operations") {
  CUstream blocking = nullptr;
  cu.streamCreate(&blocking, CU_STREAM_DEFAULT);
  cu.streamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT(cu.memcpyDtoDAsync(p.b, p.a, 4, nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CUgraph graph = nullptr;
  EXPECT(cu.streamEndCapture(blocking, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && !graph);
}
PROBE(TheLegacyStreamCapturesNothing, "Driver API: cuStreamBeginCapture") {
  EXPECT(cu.streamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

// Modules and launches.
PROBE(AModuleNamesItsKernels, "Driver API: cuModuleGetFunction") {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  cu.moduleLoadDataEx(&module, ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n", 0,
                      nullptr, nullptr);
  EXPECT(cu.moduleGetFunction(&function, module, "none") == CUDA_ERROR_NOT_FOUND);
}
PROBE(BadPtxIsExplained, "Driver API: cuModuleLoadDataEx") {
  char log[1024] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
  CUmodule module = nullptr;
  EXPECT(cu.moduleLoadDataEx(&module,
                             ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() { foo.s32; }\n", 2,
                             options, values) == CUDA_ERROR_INVALID_PTX);
  EXPECT(std::strlen(log) > 0);
}
PROBE(NewerPtxIsRefused, "Driver API: CUDA_ERROR_UNSUPPORTED_PTX_VERSION") {
  CUmodule module = nullptr;
  EXPECT(cu.moduleLoadDataEx(&module, ".version 99.9\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n",
                             0, nullptr, nullptr) == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
}
PROBE(ABlockHas1024Threads, "Programming Guide: Technical Specifications per Compute Capability") {
  CUfunction nothing = p.kernel("");
  EXPECT(p.launch(nothing, 0, 0, nullptr, 1024) == CUDA_SUCCESS);
  EXPECT(p.launch(nothing, 0, 0, nullptr, 1025) == CUDA_ERROR_INVALID_VALUE);
}
PROBE(SharedMemoryIs48KiBUnlessAllowed, "Programming Guide: Shared Memory") {
  void *parameters[] = {&p.a, &p.b};
  EXPECT(cu.launchKernel(p.store7, 1, 1, 1, 1, 1, 1, 49152, p.stream, parameters, nullptr) == CUDA_SUCCESS);
  EXPECT(cu.launchKernel(p.store7, 1, 1, 1, 1, 1, 1, 49153, p.stream, parameters, nullptr) == CUDA_ERROR_INVALID_VALUE);
}
PROBE(AFaultStays, "Driver API: CUDA_ERROR_ILLEGAL_ADDRESS") {
  p.launch(p.store7, 0);
  EXPECT(cu.streamSynchronize(p.stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr made = 0;
  EXPECT(cu.memAlloc(&made, 256) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
PROBE(AMisalignedAccessIsAFault, "Driver API: CUDA_ERROR_MISALIGNED_ADDRESS") {
  p.launch(p.store7, p.a + 2);
  EXPECT(cu.streamSynchronize(p.stream) == CUDA_ERROR_MISALIGNED_ADDRESS);
}

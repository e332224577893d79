//===- DriverTest.cpp - what the stand-in does for a correct program -----===//
#include "test/emulation/faults/Scene.h"

#include <gtest/gtest.h>
#include <set>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

// Each entry point of the list is defined with the declared type: this table links.
TEST(StandIn, HasEveryEntryPoint) {
  const Driver table = {
#define TCC_ADDRESS(member, symbol, parameters) &symbol,
      TCC_CUDA_ENTRY_POINTS(TCC_ADDRESS)
#undef TCC_ADDRESS
  };
  EXPECT_NE(table.launchKernel, nullptr);
}

TEST(StandIn, AsksForInitialisation) {
  freshStandIn({});
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
  size_t bytes = 0;
  EXPECT_EQ(cuMemGetInfo_v2(&bytes, &bytes), CUDA_ERROR_INVALID_CONTEXT);
  standIn().faults.clear();
}

TEST(StandIn, IsTheDeviceThatItIsToldToBe) {
  StandInOptions options;
  options.architecture = 86;
  options.memoryBytes = 1 << 20;
  freshStandIn(options);
  cuInit(0);
  int major = 0, minor = 0;
  cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
  cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  EXPECT_EQ(major * 10 + minor, 86);
  CUcontext context;
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  CUdeviceptr address = 0, more = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 1 << 19), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc_v2(&more, (1 << 19) + 1), CUDA_ERROR_OUT_OF_MEMORY);
  size_t freeBytes = 0, total = 0;
  cuMemGetInfo_v2(&freeBytes, &total);
  EXPECT_EQ(freeBytes, size_t{1} << 19);
  EXPECT_EQ(total, size_t{1} << 20);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  // Code for a later architecture or a newer compiler is refused, with the reason in the log.
  char log[256] = "";
  CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadDataEx(&module, sceneModule().c_str(), 2, names, values), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_STREQ(log, "the module is for sm_90, the device is sm_86");
  std::string newer = sceneModule();
  newer.replace(newer.find("8.0\n.target sm_90"), 17, "9.9\n.target sm_80");
  EXPECT_EQ(cuModuleLoadDataEx(&module, newer.c_str(), 2, names, values), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  cuDevicePrimaryCtxRelease_v2(0);
  EXPECT_EQ(Scene::faults(), "");
}

// A copy in, kernels on two streams, a copy out: the same result in every order, captured or not.
TEST(StandIn, RunsAStepInEveryOrder) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    for (bool captured : {false, true}) {
      Scene s(seed);
      if (captured)
        cuStreamBeginCapture_v2(s.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
      s.launch(s.fill, s.one, s.a);
      cuEventRecord(s.event, s.one);
      cuStreamWaitEvent(s.two, s.event, 0);
      cuMemcpyDtoDAsync_v2(s.b, s.a, Scene::kBytes, s.two);
      s.launch(s.twice, s.two, s.b);
      CUevent done;
      cuEventCreate(&done, 0);
      cuEventRecord(done, s.two);
      cuStreamWaitEvent(s.one, done, 0);
      s.launch(s.twice, s.one, s.a);
      cuMemcpyDtoHAsync_v2(s.pinned, s.b, Scene::kBytes, s.one);
      if (captured) {
        CUgraph graph = nullptr;
        ASSERT_EQ(cuStreamEndCapture(s.one, &graph), CUDA_SUCCESS);
        CUgraphExec executable = nullptr;
        ASSERT_EQ(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
        cuGraphDestroy(graph);
        for (int i = 0; i < 3; ++i)
          ASSERT_EQ(cuGraphLaunch(executable, s.one), CUDA_SUCCESS);
        ASSERT_EQ(cuStreamSynchronize(s.one), CUDA_SUCCESS);
        cuGraphExecDestroy(executable);
      }
      ASSERT_EQ(cuStreamSynchronize(s.one), CUDA_SUCCESS);
      for (unsigned i = 0; i < 64; ++i)
        ASSERT_EQ(s.pinned[i], 2 * i);
      cuEventDestroy_v2(done);
      s.close();
      EXPECT_EQ(Scene::faults(), "") << "seed " << seed;
    }
  }
}

// Two streams without order between them: both orders occur.
TEST(StandIn, DrawsTheOrderFromItsSeed) {
  std::set<unsigned> results;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    StandInOptions options;
    options.machine.checked = false; // checked mode would report the race instead
    options.machine.seed = seed;
    Scene s(seed);
    cuMemsetD32Async(s.a, 1, 1, s.one);
    cuStreamSynchronize(s.one);
    cuMemcpyDtoHAsync_v2(s.pinned, s.a, 4, s.one);
    cuStreamSynchronize(s.one);
    s.launch(s.fill, s.one, s.b);
    cuEventRecord(s.event, s.one);
    results.insert(static_cast<unsigned>(cuEventQuery(s.event)));
    cuStreamSynchronize(s.one);
  }
  EXPECT_EQ(results, (std::set<unsigned>{CUDA_SUCCESS, CUDA_ERROR_NOT_READY}));
}

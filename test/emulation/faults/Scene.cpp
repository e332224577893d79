//===- Scene.cpp - a program of the driver in a test ---------------------===//
#include "test/emulation/faults/Scene.h"

#include <gtest/gtest.h>
#include <set>

using namespace tcc::cuda::api;

namespace tcc::emulation {

std::string sceneModule() {
  std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n";
  for (auto &[name, body] :
       {std::pair{"fill", "st.global.b32 [%d2], %r1;"},
        std::pair{"twice", "ld.global.b32 %r2, [%d2]; add.s32 %r2, %r2, %r2; st.global.b32 [%d2], %r2;"},
        std::pair{"outside", "st.global.b32 [%d1+256], %r1;"}})
    text += fmt::format(
        ".visible .entry {0}(.param .u64 {0}_a) {{ .reg .b32 %r<4>; .reg .b64 %d<4>; ld.param.b64 %d1, [{0}_a];"
        " mov.u32 %r1, %tid.x; mad.wide.u32 %d2, %r1, 4, %d1;\n{1}\nret; }}\n",
        name, body);
  return text;
}

void expectFound(const Planted &planted) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    {
      Scene scene(seed);
      planted.run(scene, true);
      EXPECT_EQ(Scene::faults(), planted.fault) << "seed " << seed;
    }
    Scene scene(seed);
    planted.run(scene, false);
    scene.close();
    EXPECT_EQ(Scene::faults(), "") << "seed " << seed;
  }
}

Scene::Scene(uint64_t seed, int number) {
  StandInOptions options;
  options.machine.seed = seed;
  options.devices = 16;
  options.ncclSeconds = 1;
  options.graphSeconds = 0.2;
  freshStandIn(options);
  CUdevice device;
  cuInit(0);
  cuDeviceGet(&device, number);
  cuDevicePrimaryCtxRetain(&context, device);
  cuCtxSetCurrent(context);
  cuStreamCreate(&one, CU_STREAM_NON_BLOCKING);
  cuStreamCreate(&two, CU_STREAM_NON_BLOCKING);
  cuMemAlloc_v2(&a, kBytes);
  cuMemAlloc_v2(&b, kBytes);
  void *host = nullptr;
  cuMemHostAlloc(&host, kBytes, 0);
  pinned = static_cast<unsigned *>(host);
  for (unsigned i = 0; i < 64; ++i)
    pinned[i] = i;
  cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  cuModuleLoadDataEx(&module, sceneModule().c_str(), 0, nullptr, nullptr);
  cuModuleGetFunction(&fill, module, "fill");
  cuModuleGetFunction(&twice, module, "twice");
  cuModuleGetFunction(&outside, module, "outside");
}

Scene::~Scene() {
  close();
  standIn().faults.clear(); // so that they do not fail the process at its end
}

void Scene::close() {
  if (closed)
    return;
  closed = true;
  cuCtxSynchronize();
  if (module)
    cuModuleUnload(module);
  cuEventDestroy_v2(event);
  cuMemFreeHost(pinned);
  cuMemFree_v2(a);
  cuMemFree_v2(b);
  cuStreamDestroy_v2(one);
  cuStreamDestroy_v2(two);
  cuDevicePrimaryCtxRelease_v2(standIn().device);
}

void Scene::launch(CUfunction kernel, CUstream stream, CUdeviceptr at) {
  void *parameters[] = {&at};
  cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr);
}

CUgraph Scene::capture(const std::vector<std::pair<CUfunction, CUdeviceptr>> &kernels) {
  cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL);
  for (auto &[kernel, at] : kernels)
    launch(kernel, one, at);
  CUgraph graph = nullptr;
  cuStreamEndCapture(one, &graph);
  return graph;
}

std::string Scene::faults() {
  std::set<std::string> names;
  for (const std::string &fault : standIn().faults)
    names.insert(fault.substr(0, fault.find(':')));
  std::string all;
  for (const std::string &name : names)
    all += (all.empty() ? "" : " ") + name;
  return all;
}

} // namespace tcc::emulation

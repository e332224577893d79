//===- Main.cpp - probes [NAME...] | --list | --engines [ARCH] -----------===//
//
// Runs each probe in a process of its own, since a fault ends a context for good. Exit status 1 if any failed.
// --engines prints the engines that cuDNN's heuristics list for some convolutions, and measures those that our runtime
// takes; with an architecture ("sm_90") it prints what they list for a card of it, which need not be present.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/BlasProducts.h"
#include "test/emulation/probes/DnnProbe.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tcc::probes {

Driver cu;
BlasLt lt;
Cudnn dnn;
Nccl nccl;

namespace {
int failures = 0;

void openDriver() {
  void *library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "probes: %s\n", ::dlerror());
    ::_exit(2);
  }
#define TCC_FIND(member, symbol, parameters)                                                                           \
  cu.member = reinterpret_cast<decltype(cu.member)>(::dlsym(library, #symbol));
  TCC_CUDA_ENTRY_POINTS(TCC_FIND)
#undef TCC_FIND
}

void openBlas() {
  void *library = nullptr;
  for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12"})
    library = library ? library : ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "probes: %s\n", ::dlerror());
    ::_exit(2);
  }
#define TCC_FIND(member, symbol, parameters)                                                                           \
  lt.member = reinterpret_cast<decltype(lt.member)>(::dlsym(library, #symbol));
  TCC_BLASLT_ENTRY_POINTS(TCC_FIND)
#undef TCC_FIND
  lt.getVersion = reinterpret_cast<decltype(lt.getVersion)>(::dlsym(library, "cublasLtGetVersion"));
}

void openDnn() {
  void *library = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "probes: %s\n", ::dlerror());
    ::_exit(2);
  }
#define TCC_FIND(member, symbol, parameters)                                                                           \
  dnn.member = reinterpret_cast<decltype(dnn.member)>(::dlsym(library, #symbol));
  TCC_CUDNN_ENTRY_POINTS(TCC_FIND)
#undef TCC_FIND
  dnn.getVersion = reinterpret_cast<decltype(dnn.getVersion)>(::dlsym(library, "cudnnGetVersion"));
  dnn.getErrorString = reinterpret_cast<decltype(dnn.getErrorString)>(::dlsym(library, "cudnnGetErrorString"));
}

/// Exit status of a probe if NCCL is not installed, which is no failure.
constexpr int kNoNccl = 3;
void openNccl() {
  void *library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    ::_exit(kNoNccl);
#define TCC_FIND(member, symbol, parameters)                                                                           \
  nccl.member = reinterpret_cast<decltype(nccl.member)>(::dlsym(library, #symbol));
  TCC_NCCL_ENTRY_POINTS(TCC_FIND)
#undef TCC_FIND
}

std::string module(const std::string &body, const std::string &declared) {
  return ".version 7.8\n.target sm_80\n.address_size 64\n" + declared +
         ".visible .entry k(.param .u64 x, .param .u64 y) {\n.reg .pred %p<32>; .reg .b16 %h<32>; .reg .b32 %r<32>; "
         ".reg .b64 %d<32>;\n"
         "ld.param.b64 %d1, [x]; ld.param.b64 %d2, [y]; mov.u32 %r1, %tid.x;\n" +
         body + "\nret; }\n";
}

/// Runs one probe in this process. Returns the exit status; 0: passed.
int runOne(const Probe &probe) {
  openDriver();
  if (std::strncmp(probe.name, "Blas", 4) == 0)
    openBlas();
  if (std::strncmp(probe.name, "Dnn", 3) == 0)
    openDnn();
  if (std::strncmp(probe.name, "Nccl", 4) == 0) {
    openNccl();
    ::alarm(120); // NCCL would wait for a missing rank for ever
  }
  Program program(std::strncmp(probe.name, "Bare", 4) != 0); // "Bare" probes run before anything is initialised
  probe.run(program);
  return failures ? 1 : 0;
}

int runEngines(const std::string &architecture) {
  if (architecture.empty())
    openDriver();
  openDnn();
  Program program(architecture.empty());
  const bool good = printEngines(program, architecture);
  std::fflush(nullptr);
  return good && !failures ? 0 : 1;
}

int runProducts() {
  openDriver();
  openBlas();
  Program program(true);
  const bool good = printProducts();
  std::fflush(nullptr);
  return good ? 0 : 1;
}
} // namespace

void expect(bool holds, const char *condition, int line) {
  if (holds)
    return;
  ++failures;
  std::fprintf(stderr, "  line %d: %s\n", line, condition);
}

std::vector<Probe> &probes() {
  static std::vector<Probe> all;
  return all;
}

Program::Program(bool started) {
  if (!started)
    return;
  CUdevice device = 0;
  if (cu.init(0) != CUDA_SUCCESS || cu.deviceGet(&device, 0) != CUDA_SUCCESS) {
    std::fprintf(stderr, "probes: no device\n");
    ::_exit(2);
  }
  cu.devicePrimaryCtxRetain(&context, device);
  cu.ctxSetCurrent(context);
  cu.streamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cu.streamCreate(&other, CU_STREAM_NON_BLOCKING);
  for (CUdeviceptr *buffer : {&a, &b, &c}) {
    cu.memAlloc(buffer, 256);
    cu.memsetD8Async(*buffer, 0, 256, stream);
  }
  cu.memHostAlloc(reinterpret_cast<void **>(&pinned), 256, 0);
  std::memset(pinned, 0, 256);
  cu.eventCreate(&event, CU_EVENT_DISABLE_TIMING);
  store7 = kernel("st.global.b32 [%d1], 7;");
  add1 = kernel("ld.global.b32 %r2, [%d1]; add.s32 %r2, %r2, 1; st.global.b32 [%d1], %r2;");
  expect(cu.streamSynchronize(stream) == CUDA_SUCCESS, "the program starts", 0);
}

CUfunction Program::kernel(const std::string &body, const std::string &declared) {
  CUmodule loaded = nullptr;
  CUfunction function = nullptr;
  expect(cu.moduleLoadDataEx(&loaded, module(body, declared).c_str(), 0, nullptr, nullptr) == CUDA_SUCCESS,
         body.c_str(), 0);
  expect(cu.moduleGetFunction(&function, loaded, "k") == CUDA_SUCCESS, "the kernel exists", 0);
  return function;
}

CUresult Program::launch(CUfunction function, CUdeviceptr first, CUdeviceptr second, CUstream in, unsigned threads) {
  void *parameters[] = {&first, &second};
  return cu.launchKernel(function, 1, 1, 1, threads, 1, 1, 0, in ? in : stream, parameters, nullptr);
}

uint64_t Program::compute(const std::string &body, uint64_t x, uint64_t y) {
  uint64_t words[3] = {x, y, 0};
  cu.memcpyHtoDAsync(a, words, sizeof words, stream);
  bool wide = body.find("%d0") != std::string::npos;
  CUfunction function = kernel("mov.b64 %d20, %d1; ld.global.b64 %d1, [%d20]; ld.global.b64 %d2, [%d20+8];\n"
                               "cvt.u32.u64 %r1, %d1; cvt.u32.u64 %r2, %d2; cvt.u16.u64 %h1, %d1;\n" +
                               body + (wide ? "" : "\ncvt.u64.u32 %d0, %r0;") + "\nst.global.b64 [%d20+16], %d0;");
  launch(function, a);
  cu.memcpyDtoHAsync(words, a, sizeof words, stream);
  expect(cu.streamSynchronize(stream) == CUDA_SUCCESS, body.c_str(), 0);
  return words[2];
}

unsigned Program::word(CUdeviceptr from) {
  unsigned value = 0;
  cu.ctxSynchronize();
  cu.memcpyDtoHAsync(&value, from, 4, stream);
  cu.streamSynchronize(stream);
  return value;
}

CUgraphExec Program::instantiate(CUgraph graph) {
  CUgraphExec executable = nullptr;
  EXPECT(cu.graphInstantiate(&executable, graph, 0) == CUDA_SUCCESS);
  return executable;
}

} // namespace tcc::probes

int main(int count, char **arguments) {
  using namespace tcc::probes;
  std::vector<std::string> wanted(arguments + 1, arguments + count);
  if (wanted == std::vector<std::string>{"--list"}) {
    for (const Probe &probe : probes())
      std::printf("%-40s %s\n", probe.name, probe.section);
    return 0;
  }
  if (!wanted.empty() && wanted[0] == "--engines" && wanted.size() <= 2)
    return runEngines(wanted.size() == 2 ? wanted[1] : "");
  if (wanted == std::vector<std::string>{"--products"})
    return runProducts();
  int passed = 0, failed = 0;
  for (const Probe &probe : probes()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), probe.name) == wanted.end())
      continue;
    std::fflush(nullptr);
    pid_t child = ::fork();
    if (child == 0)
      ::_exit(runOne(probe)); // skips the stand-in's check at exit: many probes make mistakes on purpose
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNccl) {
      std::printf("none %s (the loader finds no libnccl.so.2)\n", probe.name);
      continue;
    }
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    good ? ++passed : ++failed;
    std::printf("%s %s (%s)\n", good ? "ok  " : "FAIL", probe.name, probe.section);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed || !passed ? 1 : 0;
}

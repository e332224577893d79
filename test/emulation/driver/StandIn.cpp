//===- StandIn.cpp - the state behind the stand-in of libcuda.so.1 --------===//
#include "test/emulation/driver/StandIn.h"

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stop_token>
#include <unistd.h>

using namespace tcc::cuda::api;

namespace tcc::emulation {

Expected<StandInOptions> StandInOptions::fromEnvironment() {
  StandInOptions options;
  std::string problem;
  auto variable = [](const char *name) {
    const char *value = std::getenv(name);
    return std::string_view(value ? value : "");
  };
  auto number = [&](const char *name, auto &to, uint64_t most) {
    std::string_view text = variable(name);
    if (text.empty())
      return;
    uint64_t value = 0;
    auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (bad != std::errc() || end != text.data() + text.size() || value > most)
      problem = fmt::format("{}={}: a number up to {} is expected", name, text, most);
    to = static_cast<std::remove_reference_t<decltype(to)>>(value);
  };
  number("TCC_EMULATION_SEED", options.machine.seed, UINT64_MAX);
  number("TCC_EMULATION_MEMORY", options.memoryBytes, uint64_t{1} << 40);
  number("TCC_EMULATION_CLEARED", options.clearedBytes, UINT64_MAX);
  number("TCC_EMULATION_DEVICES", options.devices, 16);
  number("TCC_EMULATION_DRIVER", options.version, 99990);
  number("TCC_EMULATION_BLAS", options.blasVersion, 999999);
  number("TCC_EMULATION_DNN", options.dnnVersion, 999999);
  number("TCC_EMULATION_DNN_CUDA", options.dnnCuda, 99990);
  number("TCC_EMULATION_DNN_NOTE", options.dnnNote, 999);
  number("TCC_EMULATION_NVRTC", options.nvrtcVersion, 999999);
  number("TCC_EMULATION_NCCL", options.ncclVersion, 999999);
  number("TCC_EMULATION_NCCL_FAILS", options.ncclFails, UINT64_MAX);
  number("TCC_EMULATION_NCCL_LEAVES", options.ncclLeaves, UINT64_MAX);
  number("TCC_EMULATION_KERNEL_FAILS", options.kernelFails, UINT64_MAX);
  number("TCC_EMULATION_LATE", options.late, 1);
  number("TCC_EMULATION_ENGINES", options.engines, 1);
  number("TCC_EMULATION_EPILOGUES", options.epilogues, 2);
  options.productsFile = variable("TCC_EMULATION_PRODUCTS");
  options.modulesFile = variable("TCC_EMULATION_MODULES");
  options.trafficFile = variable("TCC_EMULATION_TRAFFIC");
  options.queuedFile = variable("TCC_EMULATION_QUEUED");
  options.allocationsFile = variable("TCC_EMULATION_ALLOCATIONS");
  std::string_view mode = variable("TCC_EMULATION_MODE"), order = variable("TCC_EMULATION_ORDER"),
                   device = variable("TCC_EMULATION_DEVICE");
  if (mode == "fast")
    options.machine.checked = false;
  else if (!mode.empty() && mode != "checked")
    problem = fmt::format("TCC_EMULATION_MODE={}: it is checked or fast", mode);
  if (order == "descending")
    options.machine.order = ThreadOrder::Descending;
  else if (order == "seeded")
    options.machine.order = ThreadOrder::Seeded;
  else if (!order.empty() && order != "ascending")
    problem = fmt::format("TCC_EMULATION_ORDER={}: it is ascending, descending or seeded", order);
  if (!device.empty()) {
    std::string_view digits = device.starts_with("sm_") ? device.substr(3) : std::string_view();
    auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), options.architecture);
    if (bad != std::errc() || end != digits.data() + digits.size())
      problem = fmt::format("TCC_EMULATION_DEVICE={}: it is sm_80, sm_90 and so on", device);
  }
  if (!problem.empty())
    return Status(problem);
  return options;
}

void StandIn::recordTraffic(std::string_view kernel) {
  const Machine::Traffic &t = machine.traffic;
  std::ofstream(options.trafficFile, std::ios::app)
      << fmt::format("{{\"kernel\": \"{}\", \"read_bytes\": {}, \"written_bytes\": {}, \"reads\": {}, \"writes\": {}}}\n",
                     kernel, t.readBytes, t.writtenBytes, t.reads, t.writes);
}

void StandIn::noteAllocation(Home home, uint64_t bytes) {
  uint64_t &held = home == Home::Device ? deviceBytes : pinnedBytes;
  held += bytes;
  if (!options.allocationsFile.empty())
    std::ofstream(options.allocationsFile, std::ios::app) << fmt::format(
        "{{\"home\": \"{}\", \"bytes\": {}, \"held\": {}}}\n", home == Home::Device ? "device" : "host", bytes, held);
}

void StandIn::recordQueued(const void *graph) {
  auto known = std::find(launched.begin(), launched.end(), graph);
  const auto number = known - launched.begin();
  if (known == launched.end())
    launched.push_back(graph);
  uint64_t copies = 0, others = 0, bytes = 0;
  (void)queue.isPending([&](const Task &task) {
    copies += task.pinnedTo != nullptr;
    bytes += task.pinnedTo ? task.pinnedBytes : 0;
    others += task.pinnedTo == nullptr && task.pinnedFrom == nullptr;
    return false;
  });
  std::ofstream(options.queuedFile, std::ios::app) << fmt::format(
      "{{\"graph\": {}, \"work\": {}, \"copies_to_host\": {}, \"copied_bytes\": {}}}\n", number, others, copies, bytes);
}

namespace {
std::unique_ptr<StandIn> theStandIn;
std::once_flag made;

/// Device memory lies on pages without access rights; says which allocation the host touched.
void onSegmentationFault(int, siginfo_t *info, void *) {
  if (theStandIn) {
    char text[512];
    if (Allocation *in = theStandIn->machine.memory().find(info->si_addr); in && in->home == Home::Device)
      std::snprintf(text, sizeof text, "emulation: host-touches-device: the host accesses %p, byte %ld of %s\n",
                    info->si_addr, static_cast<long>(static_cast<std::byte *>(info->si_addr) - in->base),
                    in->name.c_str());
    else
      std::snprintf(text, sizeof text,
                    "emulation: access to %p, which is no memory (%s); if a kernel made it, TCC_EMULATION_MODE=checked "
                    "names it\n",
                    info->si_addr, theStandIn->machine.memory().describe(info->si_addr).c_str());
    (void)!::write(2, text, std::strlen(text));
  }
  std::signal(SIGSEGV, SIG_DFL);
}

/// Ends the process with an error if faults were reported that no test looked at.
struct AtExit {
  ~AtExit() {
    if (!theStandIn || theStandIn->faults.empty())
      return;
    std::fprintf(stderr, "emulation: %zu faults (seed %llu)\n", theStandIn->faults.size(),
                 static_cast<unsigned long long>(theStandIn->options.machine.seed));
    std::fflush(nullptr);
    ::_exit(86);
  }
} atExit;

void handleFaults() {
  struct sigaction action = {};
  action.sa_sigaction = onSegmentationFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSEGV, &action, nullptr);
}
} // namespace

StandIn::StandIn(StandInOptions given)
    : options(given), machine(given.machine), queue(machine.memory(), given.machine.seed) {
  machine.memory().order = &queue;
  machine.memory().open(false);
}

StandIn &freshStandIn(StandInOptions options) {
  std::call_once(made, [] {});
  handleFaults();
  theStandIn = std::make_unique<StandIn>(options);
  contextIsCurrent() = false;
  return *theStandIn;
}

StandIn &standIn() {
  std::call_once(made, [] {
    auto options = StandInOptions::fromEnvironment();
    if (!options) {
      std::fprintf(stderr, "emulation: %s\n", options.message().c_str());
      ::_exit(86);
    }
    handleFaults();
    theStandIn = std::make_unique<StandIn>(*options);
  });
  return *theStandIn;
}

bool &contextIsCurrent() {
  thread_local bool current = false;
  return current;
}

CUresult StandIn::report(Fault fault, CUresult code) {
  faults.push_back(fault.message());
  std::fprintf(stderr, "emulation: %s\n", faults.back().c_str());
  return code;
}

CUresult StandIn::enter(bool needsContext) {
  if (!initialised)
    return CUDA_ERROR_NOT_INITIALIZED;
  if (!needsContext)
    return CUDA_SUCCESS;
  if (!retained || !contextIsCurrent())
    return misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_CONTEXT, "no context is current in the calling thread");
  if (sticky != CUDA_SUCCESS)
    return sticky;
  return options.late ? CUDA_SUCCESS : fail(queue.progress());
}

CUresult StandIn::fail(const std::optional<Fault> &fault) {
  if (!fault)
    return CUDA_SUCCESS;
  sticky = fault->kind == FaultKind::OutOfBounds  ? CUDA_ERROR_ILLEGAL_ADDRESS
           : fault->kind == FaultKind::Misaligned ? CUDA_ERROR_MISALIGNED_ADDRESS
                                                  : CUDA_ERROR_LAUNCH_FAILED;
  return report(*fault, sticky);
}

Stream *StandIn::stream(CUstream handle) {
  if (!handle || handle == reinterpret_cast<CUstream>(1)) // CU_STREAM_LEGACY
    return &legacy;
  return lookup(streams, handle, "a call", "stream");
}

std::vector<WorkId> StandIn::predecessors(const Stream &stream) const {
  std::vector<WorkId> after = stream.tail;
  if (&stream == &legacy) { // the legacy stream and all blocking streams wait for each other
    for (auto &[handle, other] : streams.all())
      if (other->blocking && !other->capture)
        after.insert(after.end(), other->tail.begin(), other->tail.end());
  } else if (stream.blocking) {
    after.insert(after.end(), legacy.tail.begin(), legacy.tail.end());
  }
  return after;
}

CUresult StandIn::enqueue(CUstream handle, Task task, const char *call) {
  Stream *to = stream(handle);
  if (!to)
    return CUDA_ERROR_INVALID_HANDLE;
  if (to == &legacy)
    for (auto &[other, one] : streams.all())
      if (one->capture && one->blocking)
        return invalidate(*one->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                          fmt::format("{} in the legacy stream, which waits for a stream that captures", call));
  if (to->capture) {
    if (to->capture->invalid)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    Graph &graph = to->capture->graph;
    graph.nodes.push_back({std::move(task), to->captureTail});
    to->captureTail = {graph.nodes.size() - 1};
    return CUDA_SUCCESS;
  }
  to->tail = {queue.add(task, predecessors(*to))};
  return CUDA_SUCCESS;
}

CUresult StandIn::invalidate(Capture &capture, CUresult code, std::string text) {
  capture.invalid = true;
  return misuse(FaultKind::Capture, code, std::move(text));
}

CUresult StandIn::forbiddenInCapture(const char *call) {
  CUresult result = CUDA_SUCCESS;
  for (auto &capture : captures) {
    bool concerns =
        capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && capture->thread == std::this_thread::get_id());
    if (concerns)
      result =
          invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, fmt::format("{} while a stream captures", call));
  }
  return result;
}

StandIn::~StandIn() {
  for (auto &[handle, communicator] : communicators.all())
    communicator->state->aborted = true; // the thread may wait for ranks that never arrive
}

void StandIn::meetOthers() {
  if (meeting.joinable())
    return;
  meeting = std::jthread([this](std::stop_token stop) {
    while (!stop.stop_requested()) {
      ::usleep(1000);
      if (std::unique_lock lock(mutex, std::try_to_lock); lock && sticky == CUDA_SUCCESS)
        fail(queue.meetOthers());
    }
  });
}

void StandIn::releaseContext() {
  if (sticky == CUDA_SUCCESS)
    fail(queue.finishAll());
  auto leak = [&](size_t count, const char *what) {
    if (count && sticky == CUDA_SUCCESS)
      report(Fault{FaultKind::Leak, fmt::format("{} {} at the context's release", count, what)}, CUDA_SUCCESS);
  };
  for (auto &allocation : machine.memory().all())
    if (sticky == CUDA_SUCCESS && !allocation->name.starts_with("variable "))
      report(Fault{FaultKind::Leak,
                   fmt::format("{} ({} bytes) at the context's release", allocation->name, allocation->bytes)},
             CUDA_SUCCESS);
  leak(streams.count(), "streams");
  leak(events.count(), "events");
  leak(graphs.count(), "graphs");
  leak(executables.count(), "executable graphs");
  leak(modules.count(), "modules");
  leak(blas.count(), "objects of cuBLASLt");
  leak(dnn.count(), "objects of cuDNN");
  leak(communicators.count(), "communicators of NCCL");
}

} // namespace tcc::emulation

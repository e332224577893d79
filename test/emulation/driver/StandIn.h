//===- StandIn.h - the state behind the stand-in of libcuda.so.1 ----------===//
//
// One device of the machine, one primary context. Every handle is looked up before it is used. A mistake of the caller
// is reported by name on standard error, and the call returns the error code that the documentation gives; after a
// fault of queued work every later call returns an error, as with a device.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_STANDIN_H
#define TCC_TEST_EMULATION_DRIVER_STANDIN_H

#include "runtime/cuda/api/BlasLt.h"
#include "runtime/cuda/api/Driver.h"
#include "test/emulation/driver/DnnObjects.h"
#include "test/emulation/driver/NcclOperation.h"
#include "test/emulation/driver/Queue.h"
#include "test/emulation/machine/Machine.h"
#include "test/emulation/ptx/Program.h"

#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace tcc::emulation {

using cuda::api::CUresult;

/// Read from TCC_EMULATION_* (docs/design/emulation.md), or given by a test.
struct StandInOptions {
  MachineOptions machine;
  unsigned architecture = 90;        ///< 10 · major + minor of the compute capability
  uint64_t memoryBytes = 8ull << 30; ///< of the device
  int devices = 1;
  int version = 13000; ///< of the driver
  int blasVersion = 130100; ///< of cuBLASLt
  int dnnVersion = 92600;   ///< of cuDNN
  int dnnCuda = 13000;      ///< the version of CUDA that cuDNN is made for
  int dnnNote = 0;          ///< a numerical note that every engine has besides its own; 0: none
  int nvrtcVersion = 13000; ///< of NVRTC
  int ncclVersion = 23007;  ///< of NCCL
  uint64_t ncclFails = 0;   ///< NCCL's operation of this number finds its peers gone; 0: none
  uint64_t ncclLeaves = 0;  ///< the rank of this number ends when it joins the others; 0: none
  double ncclSeconds = 300; ///< that ranks wait for each other
  double graphSeconds = 20; ///< that the end of a communicator waits for graphs
  /// 1: work runs only where the host waits for it, so that what is queued does not depend on how often the host asks.
  int late = 0;
  int engines = 1;          ///< 0: cuDNN has no engine that sums in a fixed order and in f32
  uint64_t kernelFails = 0; ///< the launch of a kernel of this number, from 1, reads outside its memory; 0: none
  /// 0: cuBLASLt has algorithms for plain products alone, cuDNN engines for plain convolutions; 2: cuBLASLt has none
  /// for gelu's gradient with sums
  int epilogues = 1;
  std::string productsFile; ///< recorded answers of cuBLASLt's heuristics (BlasReplay.h); empty: our own list
  std::string modulesFile;  ///< gets a line for each image that is to be loaded; empty: none
  std::string trafficFile;  ///< gets a line for each launch of a kernel with its accesses; empty: none
  std::string queuedFile;   ///< gets a line for each launch of a graph with the work queued at that time; empty: none
  std::string allocationsFile; ///< gets a line for each allocation; empty: none
  /// A fill of a whole allocation initialises only so many bytes of it, so that reads of uninitialised buffers are
  /// found although the runtime clears its arena. A plan's state may begin as zeros, its buffers may not.
  uint64_t clearedBytes = UINT64_MAX;
  /// An error names the variable and its allowed values.
  static Expected<StandInOptions> fromEnvironment();
};

/// A node of a graph, in a capture or an executable graph.
struct GraphNode {
  Task task;
  std::vector<size_t> after; ///< indices of earlier nodes
};
struct Graph {
  std::vector<GraphNode> nodes;
};
struct Stream;
struct Capture {
  Graph graph;
  Stream *origin = nullptr;
  std::set<Stream *> streams;
  cuda::api::CUstreamCaptureMode mode = cuda::api::CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool invalid = false;
};
struct Stream {
  bool blocking = true;
  std::vector<WorkId> tail;
  Capture *capture = nullptr;
  std::vector<size_t> captureTail; ///< nodes of the capture's graph
};
struct Event {
  bool timing = true, recorded = false;
  std::vector<WorkId> at;
  Capture *capture = nullptr; ///< the capture that it was recorded in
  std::vector<size_t> captureAt;
};
struct GraphExec {
  Graph graph;
  std::vector<WorkId> last; ///< of its latest launch
};
struct Module {
  std::unique_ptr<Program> program;
};
struct Function {
  Module *module = nullptr;
  std::string name;
};

/// What a handle of cuBLASLt stands for.
struct BlasObject {
  enum Kind { Handle, Desc, Layout, Preference } kind;
  cuda::api::cublasComputeType_t computeType = cuda::api::CUBLAS_COMPUTE_32F;
  cuda::api::cudaDataType scaleType = cuda::api::CUDA_R_32F, type = cuda::api::CUDA_R_32F;
  bool transA = false, transB = false;
  uint32_t epilogue = cuda::api::CUBLASLT_EPILOGUE_DEFAULT;
  void *vector = nullptr, *auxiliary = nullptr; ///< of a description: bias or its gradient, gelu's input
  int64_t auxiliaryLd = 0, vectorStride = 0;    ///< the latter between the biases of a batch
  uint64_t rows = 0, columns = 0; ///< of a layout: column-major, columns `ld` elements apart
  int64_t ld = 0, stride = 0;
  int32_t batch = 1;
  uint64_t workspace = 0; ///< of a preference, with the documentation's defaults
  uint32_t schemes = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};
};

/// Objects of one kind that the caller holds handles of.
template <typename T> class Handles {
public:
  T *add(std::unique_ptr<T> object) {
    T *raw = object.get();
    live[raw] = std::move(object);
    return raw;
  }
  T *find(const void *handle) const {
    auto found = live.find(handle);
    return found == live.end() ? nullptr : found->second.get();
  }
  void remove(const void *handle) {
    auto found = live.find(handle);
    gone.push_back(std::move(found->second)); // the address is not given again, so that an old handle stays wrong
    live.erase(found);
  }
  bool wasRemoved(const void *handle) const {
    for (auto &object : gone)
      if (object.get() == handle)
        return true;
    return false;
  }
  size_t count() const { return live.size(); }
  const std::map<const void *, std::unique_ptr<T>> &all() const { return live; }

private:
  std::map<const void *, std::unique_ptr<T>> live;
  std::vector<std::unique_ptr<T>> gone;
};

class StandIn {
public:
  explicit StandIn(StandInOptions options);
  ~StandIn();

  /// Writes a fault to standard error, keeps it, and gives back the error code.
  CUresult report(Fault fault, CUresult code);
  CUresult misuse(FaultKind kind, CUresult code, std::string text) {
    return report(Fault{kind, std::move(text)}, code);
  }
  /// The error of a call that is not allowed to do anything: no cuInit, no context, or an earlier fault.
  CUresult enter(bool needsContext = true);
  /// Keeps a fault of queued work for all later calls.
  CUresult fail(const std::optional<Fault> &fault);

  /// The stream of a handle, null for a handle that is none (reported).
  Stream *stream(cuda::api::CUstream handle);
  template <typename T> T *lookup(const Handles<T> &among, const void *handle, const char *call, const char *kind) {
    if (T *found = among.find(handle))
      return found;
    bool removed = among.wasRemoved(handle);
    report(Fault{removed ? FaultKind::UseAfterFree : FaultKind::NotAHandle,
                 fmt::format("{}: this {} {}", call, kind, removed ? "was destroyed" : "does not exist")},
           cuda::api::CUDA_ERROR_INVALID_HANDLE);
    return nullptr;
  }
  /// Queues work in a stream, or adds it to the graph that the stream captures.
  CUresult enqueue(cuda::api::CUstream handle, Task task, const char *call);
  /// The work that new work of a stream must wait for.
  std::vector<WorkId> predecessors(const Stream &stream) const;
  /// To be called by entry points that a capture forbids: invalidates every capture that is concerned.
  CUresult forbiddenInCapture(const char *call);
  CUresult invalidate(Capture &capture, CUresult code, std::string text);
  /// Reports all remaining objects of the context as leaks, and frees them.
  void releaseContext();
  /// Starts a thread that runs the collectives that other ranks wait in while the host makes no calls.
  void meetOthers();

  StandInOptions options;
  /// Appends the accesses of the last launch to options.trafficFile, as a line of JSON.
  void recordTraffic(std::string_view kernel);
  /// Appends to options.queuedFile the card's work, and its copies to pinned memory, that are not done.
  void recordQueued(const void *graph);
  std::vector<const void *> launched; ///< graphs, in the order of their first launch
  std::recursive_mutex mutex;
  Machine machine;
  Queue queue;
  bool initialised = false;
  int retained = 0;
  uint64_t kernelsRun = 0;
  CUresult sticky = cuda::api::CUDA_SUCCESS;
  std::vector<std::string> faults;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Graph> graphs;
  Handles<GraphExec> executables;
  Handles<Module> modules;
  Handles<Function> functions;
  Handles<BlasObject> blas;
  Handles<DnnObject> dnn;
  Handles<NcclCommunicator> communicators;
  uint64_t ncclOperations = 0; ///< that ran
  int device = 0;              ///< whose context it is
  std::vector<std::unique_ptr<Capture>> captures, ended;
  Stream legacy;
  /// Counts an allocation, and appends it to options.allocationsFile.
  void noteAllocation(Home home, uint64_t bytes);
  uint64_t deviceBytes = 0, pinnedBytes = 0; ///< allocated
  unsigned allocationsMade = 0;

private:
  std::jthread meeting; ///< last, so that it ends first
};

/// The process's driver. `fresh` replaces it and invalidates the handles of the old one.
StandIn &standIn();
StandIn &freshStandIn(StandInOptions options);

/// Whether the calling thread made the context current.
bool &contextIsCurrent();

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_STANDIN_H

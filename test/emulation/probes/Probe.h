//===- Probe.h - beliefs about CUDA as programs --------------------------===//
//
// The stand-in is only as right as its reading of CUDA's documentation. Each belief about CUDA is a program of a few
// lines that runs on the stand-in and on a device: `probes` opens the libcuda.so.1 and, for probes whose names begin
// with Blas, Dnn or Nccl, the libcublasLt.so.13 or .12, libcudnn.so.9 or libnccl.so.2 that the loader finds. A probe
// that fails on a device shows a mistake of the stand-in.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_PROBES_PROBE_H
#define TCC_TEST_EMULATION_PROBES_PROBE_H

#include "runtime/cuda/api/BlasLt.h"
#include "runtime/cuda/api/Cudnn.h"
#include "runtime/cuda/api/Driver.h"
#include "runtime/cuda/api/Nccl.h"

#include <bit>
#include <string>
#include <vector>

namespace tcc::probes {

using namespace cuda::api;

/// The driver's entry points; a symbol that the library lacks is null.
extern Driver cu;

/// cuBLASLt's entry points, for probes whose names begin with "Blas".
extern BlasLt lt;

/// cuDNN's entry points, for probes whose names begin with "Dnn".
extern Cudnn dnn;

/// NCCL's entry points, for probes whose names begin with "Nccl".
extern Nccl nccl;

/// Marks the probe as failed if the condition does not hold; the probe goes on.
void expect(bool holds, const char *condition, int line);
#define EXPECT(condition) ::tcc::probes::expect((condition), #condition, __LINE__)

/// A program with the device's context, a stream that is not ordered with the legacy one, and three buffers of 256
/// bytes.
struct Program {
  explicit Program(bool started);

  /// A kernel: %d1 and %d2 are its two pointers, %r1 the thread; registers %r, %d, %h, %p <32>. `declared` precedes it.
  CUfunction kernel(const std::string &body, const std::string &declared = "");
  CUresult launch(CUfunction kernel, CUdeviceptr first, CUdeviceptr second = 0, CUstream in = nullptr,
                  unsigned threads = 1);
  /// The result of `body`, which computes %r0 or %d0 from %r1, %r2 or %d1, %d2.
  uint64_t compute(const std::string &body, uint64_t a, uint64_t b = 0);
  /// The first word of a buffer, after all work.
  unsigned word(CUdeviceptr from);
  /// Captures what `work` does on the program's stream.
  template <typename Work> CUgraph capture(Work work, CUresult expected = CUDA_SUCCESS) {
    EXPECT(cu.streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    work();
    CUgraph graph = nullptr;
    EXPECT(cu.streamEndCapture(stream, &graph) == expected);
    EXPECT((graph != nullptr) == (expected == CUDA_SUCCESS));
    return graph;
  }
  CUgraphExec instantiate(CUgraph graph);

  CUcontext context = nullptr;
  CUstream stream = nullptr, other = nullptr;
  CUdeviceptr a = 0, b = 0, c = 0;
  unsigned *pinned = nullptr; ///< 64 numbers
  CUevent event = nullptr;
  CUfunction store7 = nullptr; ///< writes 7 to its first pointer
  CUfunction add1 = nullptr;   ///< adds 1 to it
};

struct Probe {
  const char *name, *section;
  void (*run)(Program &);
};
std::vector<Probe> &probes();
struct Registered {
  Registered(Probe probe) { probes().push_back(probe); }
};

/// PROBE(Name, "document: section") { EXPECT(...); }, with the program as `p`.
#define PROBE(name, section)                                                                                           \
  static void run##name(Program &);                                                                                    \
  static const Registered registered##name({#name, section, run##name});                                               \
  static void run##name([[maybe_unused]] Program &p)

inline uint64_t bits(float value) { return std::bit_cast<uint32_t>(value); }

} // namespace tcc::probes

#endif // TCC_TEST_EMULATION_PROBES_PROBE_H

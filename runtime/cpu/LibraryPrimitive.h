//===- LibraryPrimitive.h - one-thread oneDNN primitives -----------------===//
//
// A thin ownership layer over oneDNN's C interface. Everything is created at load; executing a primitive only sets
// pointers in existing memory objects.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_LIBRARYPRIMITIVE_H
#define TCC_RUNTIME_CPU_LIBRARYPRIMITIVE_H

#include "runtime/cpu/Library.h"
#include "runtime/cpu/ThreadPool.h"
#include "runtime/cpu/calls/Needs.h"
#include "runtime/plan/KernelAbi.h"

#include <memory>
#include <oneapi/dnnl/dnnl.h>
#include <vector>

namespace tcc::runtime {

inline constexpr int kMaxPrimitiveOperands = 3;

/// The process's CPU engine.
dnnl_engine_t cpuEngine();

/// The library's element type; dnnl_data_type_undef if it has none.
dnnl_data_type_t libraryType(plan::DType dtype);

/// The text for a failed call's status.
std::string libraryError(dnnl_status_t status);

/// A memory descriptor with strides in elements.
Expected<dnnl_memory_desc_t> stridedDesc(const std::vector<int64_t> &dims, dnnl_data_type_t type,
                                               const std::vector<int64_t> &strides);

/// A row-major, dense memory descriptor.
Expected<dnnl_memory_desc_t> denseDesc(const std::vector<int64_t> &dims, dnnl_data_type_t type);

/// A memory descriptor whose layout the library chooses.
Expected<dnnl_memory_desc_t> anyDesc(const std::vector<int64_t> &dims, dnnl_data_type_t type);

/// A primitive's description, made on a thread with one OpenMP thread (WorkerScope).
class PrimitiveDesc {
public:
  PrimitiveDesc() = default;
  explicit PrimitiveDesc(dnnl_primitive_desc_t owned) : desc(owned, dnnl_primitive_desc_destroy) {}

  /// From an operation descriptor; `accumulate` adds to the destination instead of overwriting it; `hint` is the
  /// forward description that gradients need, or null.
  static Expected<PrimitiveDesc> create(const_dnnl_op_desc_t operation, bool accumulate,
                                              const PrimitiveDesc *hint);

  static Expected<PrimitiveDesc> reorder(const dnnl_memory_desc_t &from, const dnnl_memory_desc_t &to);

  std::string implementation() const;
  uint64_t scratchBytes() const;
  const dnnl_memory_desc_t *memory(dnnl_query_t what) const;
  dnnl_primitive_desc_t get() const { return desc.get(); }

private:
  std::shared_ptr<dnnl_primitive_desc> desc;
};

/// A primitive ready to run on any worker.
class Primitive {
public:
  /// One operand: the library's argument number and its layout.
  struct Argument {
    int id;
    dnnl_memory_desc_t desc;
  };

  static Expected<Primitive> create(const PrimitiveDesc &desc, const std::vector<Argument> &arguments,
                                          unsigned workers);

  /// Runs on this thread. `pointers` follow the arguments; `scratch` has scratchBytes(). Returns true on success.
  bool execute(unsigned worker, void *const *pointers, void *scratch) const;

private:
  struct Bound {
    dnnl_exec_arg_t arguments[kMaxPrimitiveOperands + 1];
  };
  std::shared_ptr<dnnl_primitive> primitive;
  std::vector<Bound> bound; // one for each worker
  std::vector<std::shared_ptr<dnnl_memory>> memories;
  std::vector<std::shared_ptr<dnnl_stream>> streams;
  int count = 0;
};

/// The worker, operands and scratch of a piece of work.
struct CallContext {
  unsigned worker, workers;
  void *const *pointers; ///< of the instruction's operands, in order
  char *scratch;
};

/// A library call of a plan, ready to run: stages one after the other, each of independent tiles.
class LibraryCall {
public:
  virtual ~LibraryCall() = default;

  virtual int stages() const = 0;
  virtual int64_t tiles(int stage) const = 0;
  virtual int longestStage() const { return 0; }

  /// Runs some tiles of a stage on this thread. False: the library failed.
  virtual bool run(int stage, const CallContext &context, int64_t begin, int64_t end) const = 0;
};

/// Runs all stages on all workers.
bool runCall(const LibraryCall &call, ThreadPool &pool, void *const *pointers, char *scratch);

/// Scratch of one instruction: a part that all tiles share, then `slots` slots.
struct Scratch {
  uint64_t slotBytes = 0;
  uint64_t slots = 0;
  uint64_t sharedBytes = 0;
};

/// Prepares a call of a plan for `level`, which this machine has, from its descriptor. `rowKernel`: the function of
/// MatmulCall.row_kernel, if there is one. Errors: a descriptor that fits no kernel, other numerics than this
/// program's, too little scratch, a library that has no such primitive, needs more scratch than the plan allows, or
/// runs at another level (selectLevel).
Expected<std::unique_ptr<LibraryCall>> prepare(const plan::MatmulCall &call, CpuLevel level, const Scratch &scratch,
                                               unsigned workers, plan::KernelFunction rowKernel = nullptr);
Expected<std::unique_ptr<LibraryCall>> prepare(const plan::ConvolutionCall &call, CpuLevel level,
                                               const Scratch &scratch, unsigned workers);

/// Checks a call's descriptor before its kernels are made: it must fit a kernel at the level, with this program's
/// numerics, and have enough scratch.
template <typename Call> Status checkCall(const Call &call, CpuLevel level, const Scratch &scratch, unsigned workers);

/// Why the plan's scratch does not suffice for this call with `workers` workers; empty if it does.
std::string scratchMismatch(const Scratch &planned, const CallNeeds &needed, unsigned workers);

/// The scratch slot of a tile: its own if there are no more tiles than workers, else its worker's. So the number of
/// slots is the minimum of the two.
inline uint64_t slotOf(int64_t tile, int64_t tiles, unsigned worker, unsigned workers) {
  return tiles <= static_cast<int64_t>(workers) ? static_cast<uint64_t>(tile) : worker;
}

/// Adds up partial sums: destination[i] = sum over chunks of partials[chunk · elements + i], in the order of the
/// chunks, on tiles of fixed size.
struct PartialSums {
  const float *partials;
  int64_t chunks, elements;

  static int64_t tiles(int64_t elements);
  /// With `accumulate` the sum is added to the destination.
  void add(float *destination, bool accumulate, int64_t begin, int64_t end) const;
  /// For a bf16 result: the sum is rounded once, to nearest even; a NaN stays one.
  void round(uint16_t *destination, int64_t begin, int64_t end) const;
};
uint16_t roundToBf16(float value);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_LIBRARYPRIMITIVE_H

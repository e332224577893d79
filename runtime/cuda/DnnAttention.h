//===- DnnAttention.h - attention by cuDNN -------------------------------===//
//
// The library fuses a graph of operations for attention or its gradient, if it recognises the graph. Of the gradient's
// forms we use the one without atomic additions: it stores the gradients of the scores in the workspace, where a second
// product and the sum for the bias's gradient read them. (No engine note reveals that the other form adds in arbitrary
// order.)
//
// NVRTC compiles engines when they are made ready, so the run records its version in addition to cuDNN's.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_DNNATTENTION_H
#define TCC_RUNTIME_CUDA_DNNATTENTION_H

#include "runtime/cuda/DnnEngines.h"
#include "runtime/plan/plan.pb.h"

#include <string>
#include <vector>

namespace tcc::cuda {

class DnnAttention {
public:
  using Algorithm = DnnEngine;
  static constexpr const char *kLibrary = "cuDNN", *kNoun = "attention call";
  static constexpr int kAsked = 1;
  static constexpr bool kLoadsWhenRun = true;
  /// The oldest version of cuDNN that we use and have tested.
  static constexpr int kLeastVersion = 91900;

  /// `pointers` are the instruction's operands, `scratch` is aligned and has the call's number of bytes. Error: the
  /// library is too old, or one of its calls failed.
  static Expected<DnnAttention> describe(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                         const plan::AttentionCall &call, std::span<const api::CUdeviceptr> pointers,
                                         api::CUdeviceptr scratch);

  /// Everything that the library is told about the call: calls with equal texts may share an engine.
  std::string text() const;

  /// Up to `most` engines that satisfy the plan, the library's favourite first. Error: it has none.
  Expected<std::vector<DnnEngine>> candidates(int most) const;
  Expected<DnnEngine> fromCode(const std::string &code) const { return engines().fromCode(code); }
  static std::string codeOf(const DnnEngine &engine) { return engine.code(); }
  static std::string aboutOf(const DnnEngine &engine) { return engine.about(); }

  /// Error: a call of the library failed.
  Status use(const DnnEngine &engine);

  /// Adds the call to a stream; after use().
  Status submit(api::CUstream stream) const;

  /// The memory that it reads and writes.
  struct Range {
    api::CUdeviceptr address;
    uint64_t bytes;
  };
  std::vector<Range> operandRanges() const;

private:
  class Builder;
  DnnEngines engines() const;

  std::shared_ptr<const DnnLibrary> library;
  api::cudnnHandle_t handle = nullptr;
  plan::AttentionCall call;
  std::vector<api::CUdeviceptr> addresses; ///< by tensor of the call
  api::CUdeviceptr scratch = 0;
  std::shared_ptr<std::vector<float>> numbers; ///< scalars that the graph has by value; their addresses must not change
  std::vector<int64_t> uids;                   ///< ids of the tensors in the variant pack
  std::vector<void *> data;                    ///< likewise
  std::vector<DnnDescriptor> parts;            ///< tensors and operations that the graph refers to
  DnnDescriptor graph;
  DnnEngine engine;
  DnnDescriptor pack; ///< the engine's addresses
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_DNNATTENTION_H

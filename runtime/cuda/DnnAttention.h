//===- DnnAttention.h - attention by cuDNN -------------------------------===//
//
// The library fuses a graph of operations that compute attention or its gradient, if the graph is one that it knows. Of
// the gradient's forms this is the one without atomic additions: the scores' gradients are in the workspace, from where
// a second product takes them, and the sum that is a bias's gradient. (No note of an engine says that the other form
// adds in any order.)
//
// Engines are compiled as they are made ready, by NVRTC, whose version the run records beside cuDNN's.
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
  /// Engines are asked for, and were tried, from this version on.
  static constexpr int kLeastVersion = 91900;

  /// `pointers` are the instruction's operands, `scratch` is an aligned place of as many bytes as the call says. Error:
  /// the library is too old, or one of its calls failed.
  static Expected<DnnAttention> describe(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                         const plan::AttentionCall &call, std::span<const api::CUdeviceptr> pointers,
                                         api::CUdeviceptr scratch);

  /// All that the library is told of the call: those of one text may share an engine.
  std::string text() const;

  /// Up to `most` engines that keep to the plan, the library's favourite first. Error: it has none.
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
  std::shared_ptr<std::vector<float>> numbers; ///< that the graph has by value; addresses of them stay
  std::vector<int64_t> uids;                   ///< of what the variant pack names
  std::vector<void *> data;                    ///< likewise
  std::vector<DnnDescriptor> parts;            ///< tensors and operations that the graph refers to
  DnnDescriptor graph;
  DnnEngine engine;
  DnnDescriptor pack; ///< the engine's addresses
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_DNNATTENTION_H

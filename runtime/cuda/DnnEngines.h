//===- DnnEngines.h - engines of cuDNN for a graph of operations --------===//
//
// The library lists engines with settings for a graph. Only those are allowed that satisfy the plan: sums in a fixed
// order and in f32, no operand narrowed (except to TF32 if the plan says so), no Winograd or Fourier transform, which
// round more, and no engine whose bits depend on a library that the run's record does not name.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_DNNENGINES_H
#define TCC_RUNTIME_CUDA_DNNENGINES_H

#include "runtime/cuda/DnnLibrary.h"

#include <string>
#include <utility>
#include <vector>

namespace tcc::cuda {

/// An engine of the library with its settings, ready to run.
struct DnnEngine {
  int64_t index = 0;
  std::vector<std::pair<int64_t, int64_t>> knobs; ///< kinds and values
  std::string doubt; ///< a note that this version does not know, for which it was the last choice; else empty
  uint64_t workspaceBytes = 0;
  std::vector<DnnDescriptor> parts; ///< descriptors that the plan refers to
  DnnDescriptor plan;

  /// Its code in the record.
  std::string code() const;
  /// For people.
  std::string about() const;
};

/// Which engines are allowed.
struct DnnRules {
  uint64_t workspaceBytes = 0;
  bool tensorCores = false; ///< the operands have 16 bits, or may be rounded to TF32
  bool compiles = false;    ///< NVRTC may compile the engine: the record names its version
};

/// The engines for a graph. The handle and the graph outlive the object.
class DnnEngines {
public:
  DnnEngines(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle, const DnnDescriptor &graph,
             const DnnRules &rules)
      : library(std::move(library)), handle(handle), graph(graph), rules(rules) {}

  /// Up to `most` engines that satisfy the rules, the library's favourite first. Error: it has none; `what` describes
  /// the graph ("convolution (...)"), `wayOut` advises the user.
  Expected<std::vector<DnnEngine>> candidates(int most, const std::string &what, const std::string &wayOut) const;

  /// An engine from its code. Error: not a code, or the library, the card or the rules do not allow it.
  Expected<DnnEngine> fromCode(const std::string &code) const;

private:
  /// Why the rules do not allow an engine; "" if they do. A note that only a later version of the library knows is an
  /// objection as long as there is another engine: not with `takesUnknown`. Error: a call failed.
  Expected<std::string> objection(const DnnDescriptor &engine, bool takesUnknown) const;
  /// Appends engines that are allowed to `found`, up to `most`. `listed` counts all, `reasons` has those against
  /// others.
  Status gather(bool takesUnknown, int most, std::vector<DnnEngine> &found, size_t &listed,
                std::vector<std::string> &reasons) const;
  /// Makes a configuration ready to run. Error: the library cannot, or it needs more workspace than there is.
  Expected<DnnEngine> ready(DnnDescriptor configuration, std::vector<DnnDescriptor> parts) const;

  std::shared_ptr<const DnnLibrary> library;
  api::cudnnHandle_t handle;
  const DnnDescriptor &graph;
  DnnRules rules;
};

/// Alignment of an address in bytes, up to the most that engines require.
int64_t dnnAlignmentOf(api::CUdeviceptr address);

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_DNNENGINES_H

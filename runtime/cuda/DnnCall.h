//===- DnnCall.h - a graph of cuDNN's operations with its operands --------===//
//
// cuDNN runs graphs of operations: a convolution, or the products, reductions and arithmetic of attention. DnnGraph
// describes one; DnnCall runs it by one of the library's engines (DnnEngines).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_DNNCALL_H
#define TCC_RUNTIME_CUDA_DNNCALL_H

#include "runtime/cuda/DnnEngines.h"
#include "runtime/cuda/LibraryCall.h"
#include "runtime/plan/plan.pb.h"

namespace tcc::cuda {

/// A graph that is described, and the memory of its operands.
class DnnCall {
public:
  using Algorithm = DnnEngine;
  static constexpr const char *kLibrary = "cuDNN";
  static constexpr int kAsked = 1;
  static constexpr bool kLoadsWhenRun = true;

  /// See LibraryCall.
  const std::string &text() const { return about.text; }
  Expected<std::vector<DnnEngine>> candidates(int most) const {
    return engines().candidates(most, about.text, about.wayOut);
  }
  Expected<DnnEngine> fromCode(const std::string &code) const { return engines().fromCode(code); }
  static std::string codeOf(const DnnEngine &engine) { return engine.code(); }
  static std::string aboutOf(const DnnEngine &engine) { return engine.about(); }
  Status use(const DnnEngine &chosen);
  Status submit(api::CUstream stream) const;
  const std::vector<MemoryRange> &operandRanges() const { return ranges; }

  /// What is known of a call apart from its graph.
  struct About {
    std::string text;   ///< see LibraryCall
    std::string wayOut; ///< advice if the library has no engine
    DnnRules rules;
    api::CUdeviceptr workspace = 0; ///< rules.workspaceBytes
  };

private:
  friend class DnnGraph;
  DnnEngines engines() const { return {library, handle, graph, about.rules}; }

  std::shared_ptr<const DnnLibrary> library;
  api::cudnnHandle_t handle = nullptr;
  About about;
  std::vector<int64_t> uids;        ///< ids of the tensors in the variant pack
  std::vector<void *> data;         ///< and their addresses
  std::vector<MemoryRange> ranges;  ///< of the tensors in device memory
  std::shared_ptr<float[]> numbers; ///< scalars that the graph has by value; their addresses must not change
  std::vector<DnnDescriptor> parts; ///< tensors and operations that the graph refers to
  DnnDescriptor graph;
  DnnEngine engine;
  DnnDescriptor pack; ///< the engine's addresses
};

/// Describes a graph. The first call of the library that fails sets the status; all later ones do nothing.
class DnnGraph {
public:
  using Tensor = DnnDescriptor; ///< null: there is no such tensor
  using Sizes = std::span<const int64_t>;

  /// The handle outlives the call.
  DnnGraph(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle);

  /// Describes a tensor in device memory, of a type with 16 or 32 bits.
  Tensor operand(Sizes dims, Sizes strides, api::cudnnDataType_t type, api::CUdeviceptr address);
  /// Describes a tensor that stays within the graph.
  Tensor between(Sizes dims, Sizes strides, api::cudnnDataType_t type);
  /// A scalar by value; at most four. `dims` counts dimensions.
  Tensor number(float value, size_t dims);

  /// Adds arithmetic on x and, where they are given, b and t (the condition).
  void pointwise(api::cudnnPointwiseMode_t mode, const Tensor &x, const Tensor &b, const Tensor &t, const Tensor &to,
                 api::cudnnDataType_t in = api::CUDNN_DATA_FLOAT, int64_t axis = -1);

  /// A descriptor to be filled in; null after a failure.
  DnnDescriptor create(api::cudnnBackendDescriptorType_t kind);
  /// Finalizes a descriptor that operations refer to.
  void keep(DnnDescriptor &descriptor, const char *what);
  /// Finalizes an operation and adds it to the graph.
  void add(DnnDescriptor &operation);

  bool failed() const { return !status.ok(); }

  /// The described graph. Error: a call of the library failed.
  Expected<DnnCall> finish(DnnCall::About about);

private:
  Tensor describe(Sizes dims, Sizes strides, api::cudnnDataType_t type, int64_t alignment, bool isVirtual,
                  bool isByValue);

  DnnCall made;
  std::vector<api::cudnnBackendDescriptor_t> operations;
  int64_t uid = 0;
  size_t numbers = 0;
  Status status;
};

/// Describes a convolution. `pointers` are the instruction's operands, `workspace` is aligned and has the call's number
/// of bytes. Error: types that the library does not convolve, or one of its calls failed.
Expected<DnnCall> describeConvolution(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                      const plan::ConvolutionCall &call, std::span<const api::CUdeviceptr> pointers,
                                      api::CUdeviceptr workspace);

/// Everything that the library is told about a convolution (LibraryCall::text), without asking it.
std::string convolutionText(const plan::ConvolutionCall &call, std::span<const api::CUdeviceptr> pointers);
/// How such a text of a convolution with a bias begins.
constexpr const char *kBiasedText = "convolution forward + bias ";

/// The oldest version of cuDNN that we use for attention and have tested.
constexpr int kLeastDnnForAttention = 91900;

/// The error that the library is older than that.
Status tooOldForAttention(const DnnLibrary &library);

/// Everything that the library is told about attention (LibraryCall::text), without asking it; begins with
/// kAttentionText.
std::string attentionText(const plan::AttentionCall &call, std::span<const api::CUdeviceptr> pointers);
constexpr const char *kAttentionText = "attention ";

/// Describes attention, or its gradient. Error: the library is too old, or one of its calls failed.
Expected<DnnCall> describeAttention(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                    const plan::AttentionCall &call, std::span<const api::CUdeviceptr> pointers,
                                    api::CUdeviceptr scratch);

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_DNNCALL_H

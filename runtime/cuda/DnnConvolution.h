//===- DnnConvolution.h - a convolution by cuDNN -------------------------===//
//
// A plan specifies the convolution, its types, the layout of channels, and the workspace. DnnEngines lists the
// library's engines for it; AlgorithmChoice chooses one.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_DNNCONVOLUTION_H
#define TCC_RUNTIME_CUDA_DNNCONVOLUTION_H

#include "runtime/cuda/DnnEngines.h"
#include "runtime/plan/plan.pb.h"

#include <string>
#include <utility>
#include <vector>

namespace tcc::cuda {

/// Addresses of a convolution's operands: input, weights and output, or their gradients; and the bias, if it has one.
struct DnnOperands {
  api::CUdeviceptr x = 0, w = 0, y = 0, workspace = 0, bias = 0;

  /// Of an instruction's operands, in order (plan.proto).
  static DnnOperands of(const plan::ConvolutionCall &call, std::span<const api::CUdeviceptr> pointers,
                        api::CUdeviceptr workspace);
};

class DnnConvolution {
public:
  using Algorithm = DnnEngine;
  static constexpr const char *kLibrary = "cuDNN", *kNoun = "convolution";
  static constexpr int kAsked = 1;
  static constexpr bool kLoadsWhenRun = true;

  /// Error: types that the library does not convolve, or one of its calls failed.
  static Expected<DnnConvolution> describe(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                           const plan::ConvolutionCall &call, const DnnOperands &operands);

  /// Everything that the library is told about the convolution: convolutions with equal texts may share an engine.
  std::string text() const;

  /// Up to `most` engines that satisfy the plan, the library's favourite first. Error: it has none.
  Expected<std::vector<DnnEngine>> candidates(int most) const;

  /// An engine from a record. Error: not a code, or the library, the card or the plan's bounds do not allow it.
  Expected<DnnEngine> fromCode(const std::string &code) const { return engines().fromCode(code); }
  static std::string codeOf(const DnnEngine &engine) { return engine.code(); }
  static std::string aboutOf(const DnnEngine &engine) { return engine.about(); }

  /// Error: a call of the library failed.
  Status use(const DnnEngine &engine);

  /// Adds the convolution to a stream; after use().
  Status submit(api::CUstream stream) const;

  /// The memory that it reads and writes.
  struct Range {
    api::CUdeviceptr address;
    uint64_t bytes;
  };
  std::vector<Range> operandRanges() const;

private:
  Status describeTensors();
  Status describeOperation();
  /// Describes the operation after the convolution, + bias.
  Status describeFinish();
  /// The operations as one graph.
  Status describeGraph();
  DnnEngines engines() const;

  std::shared_ptr<const DnnLibrary> library;
  api::cudnnHandle_t handle = nullptr;
  plan::ConvolutionCall call;
  DnnOperands operands;
  DnnDescriptor x, w, y, window, operation, graph;
  DnnDescriptor bias, sums;                       ///< with a bias: the sums are virtual
  std::vector<DnnDescriptor> pointwise;           ///< the addition, and its descriptor
  std::vector<api::cudnnBackendDescriptor_t> ops; ///< in order
  DnnEngine engine;
  DnnDescriptor pack; ///< the engine's addresses
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_DNNCONVOLUTION_H

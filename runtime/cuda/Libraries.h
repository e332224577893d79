//===- Libraries.h - the libraries that a plan's calls run on ------------===//
#ifndef TCC_RUNTIME_CUDA_LIBRARIES_H
#define TCC_RUNTIME_CUDA_LIBRARIES_H

#include "runtime/cuda/AlgorithmChoice.h"

#include <optional>

namespace tcc::cuda {

/// cuBLASLt and cuDNN with their handles, and the version of NVRTC, each opened by the first call that needs it. The
/// context must be current.
class Libraries {
public:
  using Pointers = std::span<const api::CUdeviceptr>; ///< of an instruction's operands

  /// `machine` names the card for the record. References must outlive the object.
  Libraries(const DriverLibrary &driver, api::CUstream stream, std::string machine, const runtime::Algorithms &recorded,
            bool tune)
      : driver(driver), stream(stream), machine(std::move(machine)), recorded(recorded), tune(tune) {}
  Libraries(const Libraries &) = delete;
  Libraries &operator=(const Libraries &) = delete;
  ~Libraries();

  /// Opens the libraries that the plan calls. They take memory of the card, so call it before the plan takes its own.
  /// Error, with advice: one is missing, or the record was written with other versions of them.
  Status open(const plan::Plan &plan);

  /// A call with its algorithm, and operands and workspace at these addresses. Error: the library is missing, or has no
  /// algorithm for it.
  Expected<BlasProduct> product(const plan::MatmulCall &call, const BlasOperands &operands);
  Expected<BlasProduct> product(const plan::MatmulCall &call, Pointers pointers, api::CUdeviceptr workspace) {
    return product(call, BlasOperands::of(call, pointers, workspace));
  }
  Expected<DnnCall> convolution(const plan::ConvolutionCall &call, Pointers pointers, api::CUdeviceptr workspace);
  Expected<DnnCall> attention(const plan::AttentionCall &call, Pointers pointers, api::CUdeviceptr workspace);

  /// Attention is computed by the library everywhere in a plan, or by the plan's kernels: a plan's losses then depend
  /// on one choice, which the run records.
  bool attendsByKernels() const { return !whyKernels.empty(); }
  /// Lets the plan's kernels compute attention if the library has no engine for this call. Error: the library has
  /// none, and the kernels may not take its place, since a call has none or the run was computed by the library.
  Status tryAttention(const plan::AttentionCall &call, Pointers pointers, api::CUdeviceptr workspace);
  /// Records that kernels compute this call.
  void recordKernels(const plan::AttentionCall &call, Pointers pointers);

  /// The algorithms chosen so far.
  runtime::Algorithms taken() const;

private:
  Status openBlas();
  Status openDnn();
  /// Finds the version of NVRTC, which compiles attention's engines.
  Status openCompiler();
  /// Opens what attention by the library needs.
  Status openAttention();
  /// Lets kernels compute attention, if they may; else the error that prevents the library from it.
  Status useKernels(const Status &why);
  /// The kind of the run's record of attention: by kernels, by the library, or none.
  enum class Recorded { None, Kernels, Library };
  Recorded recordedAttention() const;

  const DriverLibrary &driver;
  api::CUstream stream;
  std::string machine;
  const runtime::Algorithms &recorded;
  bool tune;
  std::shared_ptr<const BlasLibrary> blas;
  api::cublasLtHandle_t blasHandle = nullptr;
  std::optional<AlgorithmChoice<BlasProduct>> products;
  std::shared_ptr<const DnnLibrary> dnn;
  api::cudnnHandle_t dnnHandle = nullptr;
  std::optional<AlgorithmChoice<DnnCall>> convolutions, attentions;
  bool convolves = false;                              ///< the plan has convolutions
  bool hasKernels = false;                             ///< each call of attention has kernels
  std::vector<DnnCall> tried;                          ///< whose graphs the found engines refer to
  std::string whyKernels;                              ///< compute attention; empty: the library does
  std::map<std::string, runtime::Algorithm> byKernels; ///< calls that they compute, for the record
  std::string compiler;                                ///< "NVRTC 13.0"; empty: no call needs it
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_LIBRARIES_H

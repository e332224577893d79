//===- Libraries.h - the libraries that a plan's calls run on ------------===//
#ifndef TCC_RUNTIME_CUDA_LIBRARIES_H
#define TCC_RUNTIME_CUDA_LIBRARIES_H

#include "runtime/cuda/AlgorithmChoice.h"

#include <array>
#include <optional>

namespace tcc::cuda {

/// cuBLASLt and cuDNN with their handles, and the version of NVRTC, each opened by the first call that needs it. The
/// context must be current.
class Libraries {
public:
  using Pointers = std::span<const api::CUdeviceptr>; ///< of an instruction's operands

  /// `machine` names the card for the record. References must outlive the object.
  Libraries(const DriverLibrary &driver, api::CUstream stream, std::string machine, const runtime::Algorithms &recorded,
            bool tune);
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

  /// Attention, epilogues of products and biases of convolutions are each computed by the library everywhere in a plan,
  /// or by the plan's kernels: a plan's losses then depend on one choice for each part, which the run records.
  bool usesKernels(const plan::Instruction &instruction) const;
  /// Lets the plan's kernels compute a part if the library has no algorithm for this call of it. Error: the library has
  /// none, and the kernels may not take its place, since a call has none or the run was computed by the library.
  Status tryCall(const plan::Instruction &instruction, Pointers pointers, api::CUdeviceptr workspace);
  /// Records that kernels compute or finish this call.
  void recordKernels(const plan::Instruction &instruction, Pointers pointers);

  /// The algorithms chosen so far.
  runtime::Algorithms taken() const;

private:
  Status openBlas();
  Status openDnn();
  /// Finds the version of NVRTC, which compiles attention's engines.
  Status openCompiler();
  /// Opens what attention by the library needs.
  Status openAttention();
  /// Calls that kernels may compute or finish in place of the library.
  struct Part {
    const char *noun = "", *library = "";
    bool (*isOf)(std::string_view text) = nullptr;            ///< whether a recorded call is one of them
    bool hasKernels = false;                                  ///< each call of the plan has kernels
    std::string whyKernels = {};                              ///< run; empty: the library does
    std::map<std::string, runtime::Algorithm> byKernels = {}; ///< calls that they compute, for the record
  };
  enum PartNumber : size_t { kAttention, kEpilogues, kBiases, kParts };
  static std::optional<PartNumber> partOf(const plan::Instruction &instruction);
  /// Lets kernels compute a part, if they may; else the error that prevents the library from it.
  Status useKernels(PartNumber number, const Status &why);
  /// The kind of the run's record of a part: by kernels, by the library, or none.
  enum class Recorded { None, Kernels, Library };
  Recorded recordedOf(const Part &part) const;

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
  bool convolves = false; ///< the plan has convolutions
  std::array<Part, kParts> parts;
  std::vector<DnnCall> tried; ///< whose graphs the found engines refer to
  std::string compiler;       ///< "NVRTC 13.0"; empty: no call needs it
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_LIBRARIES_H

//===- BlasProduct.h - a matrix product by cuBLASLt ----------------------===//
//
// A plan specifies the product, its types and the workspace; AlgorithmChoice chooses one of the library's algorithms
// that satisfy it. An algorithm gives the same bits at every call on cards with the same architecture and number of
// processors (cuBLAS, "Results reproducibility"), provided that split-K sums have a fixed order. So only split-K
// reductions by a separate step in the compute type are allowed (cublasLtReductionScheme_t).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_BLASPRODUCT_H
#define TCC_RUNTIME_CUDA_BLASPRODUCT_H

#include "runtime/cuda/BlasLibrary.h"
#include "runtime/cuda/LibraryCall.h"
#include "runtime/plan/plan.pb.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tcc::cuda {

/// Addresses of a product's operands. With accumulate, C also holds the addend. `vector` is the bias, or the sums;
/// `matrix` is gelu's input, written or read; 0 if the epilogue does not have it.
struct BlasOperands {
  api::CUdeviceptr a = 0, b = 0, c = 0, workspace = 0, vector = 0, matrix = 0;
  int64_t rowOfA = 0; ///< row stride of A in elements; 0: dense

  /// Of an instruction's operands, in order (plan.proto).
  static BlasOperands of(const plan::MatmulCall &call, std::span<const api::CUdeviceptr> pointers,
                         api::CUdeviceptr workspace);
};

/// Everything that the library is told about a product (LibraryCall::text), without asking it.
std::string productText(const plan::MatmulCall &call, const BlasOperands &operands);
/// What such a text of a product with an epilogue contains.
constexpr const char *kEpilogueText = ", epilogue ";

/// An algorithm of the library, and the workspace that it needs for this product.
struct BlasAlgorithm {
  api::cublasLtMatmulAlgo_t algo{};
  uint64_t workspaceBytes = 0;
};

class BlasProduct {
public:
  using Algorithm = BlasAlgorithm;
  static constexpr const char *kLibrary = "cuBLASLt";
  static constexpr int kAsked = 8; ///< some may not satisfy the plan
  static constexpr bool kLoadsWhenRun = false;

  /// Error: types that the library does not multiply, or one of its calls failed.
  static Expected<BlasProduct> describe(std::shared_ptr<const BlasLibrary> library, api::cublasLtHandle_t handle,
                                        const plan::MatmulCall &call, const BlasOperands &operands);

  /// See LibraryCall.
  std::string text() const { return productText(call, operands); }
  Expected<std::vector<BlasAlgorithm>> candidates(int most) const;
  static std::string codeOf(const BlasAlgorithm &algorithm);
  Expected<BlasAlgorithm> fromCode(const std::string &code) const;
  std::string aboutOf(const BlasAlgorithm &algorithm) const;
  Status use(const BlasAlgorithm &chosen) {
    algorithm = chosen;
    return Status();
  }
  Status submit(api::CUstream stream) const;
  std::vector<MemoryRange> operandRanges() const;

  /// Checks an algorithm from another source. Error: the library or the card cannot run it for this product, it needs
  /// more workspace than the plan has, or its split-K sums have no fixed order.
  Expected<BlasAlgorithm> check(const api::cublasLtMatmulAlgo_t &algo) const;

private:
  template <typename T> using Owned = std::shared_ptr<std::remove_pointer_t<T>>;

  std::shared_ptr<const BlasLibrary> library;
  api::cublasLtHandle_t handle = nullptr;
  plan::MatmulCall call;
  BlasOperands operands;
  Owned<api::cublasLtMatmulDesc_t> desc;
  Owned<api::cublasLtMatrixLayout_t> layoutOfA, layoutOfB, layoutOfC; ///< the library's, which are ours transposed
  BlasAlgorithm algorithm;
  bool isDouble = false;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_BLASPRODUCT_H

//===- BlasProduct.h - a matrix product by cuBLASLt ----------------------===//
//
// A plan says what is multiplied, in which types, and how much workspace there is; which of its algorithms computes that is
// the library's answer, asked once, untimed, when the plan is loaded: the first of its heuristic's list that keeps to the
// plan. The same library on the same card gives the same answer, and its algorithms the same bits at every call (cuBLAS,
// "Results reproducibility"); sums over parts of K are added in the compute type alone.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_BLASPRODUCT_H
#define TCC_RUNTIME_CUDA_BLASPRODUCT_H

#include "runtime/cuda/BlasLibrary.h"
#include "runtime/plan/plan.pb.h"

#include <memory>

namespace tcc::cuda {

/// Where a product's operands lie. With accumulate C holds the addend, too.
struct BlasOperands {
  api::CUdeviceptr a = 0, b = 0, c = 0, workspace = 0;
};

class BlasProduct {
public:
  /// Error: a call that the library has no algorithm for, or one of its own calls failed.
  static Expected<BlasProduct> prepare(std::shared_ptr<const BlasLibrary> library, api::cublasLtHandle_t handle,
                                       const plan::MatmulCall &call, const BlasOperands &operands);

  Status submit(api::CUstream stream) const;

private:
  template <typename T> using Owned = std::shared_ptr<std::remove_pointer_t<T>>;

  std::shared_ptr<const BlasLibrary> library;
  api::cublasLtHandle_t handle = nullptr;
  BlasOperands operands;
  Owned<api::cublasLtMatmulDesc_t> desc;
  Owned<api::cublasLtMatrixLayout_t> layoutOfA, layoutOfB, layoutOfC; ///< as the library sees them: ours, the other way
  api::cublasLtMatmulAlgo_t algo{};
  uint64_t workspaceBytes = 0;
  bool accumulate = false, isDouble = false;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_BLASPRODUCT_H

//===- BlasProduct.h - a matrix product by cuBLASLt ----------------------===//
//
// A plan says what is multiplied, in which types, and how much workspace there is; AlgorithmChoice takes one of the
// library's algorithms that keep to it. An algorithm gives the same bits at every call on cards of one architecture
// with as many processors (cuBLAS, "Results reproducibility"), provided that sums over parts of K have a fixed order:
// only those are allowed that are added by a separate step, in the compute type (cublasLtReductionScheme_t).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_BLASPRODUCT_H
#define TCC_RUNTIME_CUDA_BLASPRODUCT_H

#include "runtime/cuda/BlasLibrary.h"
#include "runtime/plan/plan.pb.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tcc::cuda {

/// Where a product's operands lie. With accumulate C holds the addend, too. `vector` is the bias, or the sums; `matrix`
/// gelu's input, kept or read; both 0 where the epilogue has none.
struct BlasOperands {
  api::CUdeviceptr a = 0, b = 0, c = 0, workspace = 0, vector = 0, matrix = 0;
  int64_t rowOfA = 0; ///< elements from a row of A to the next; 0: rows lie side by side

  /// Of an instruction's operands, in order (plan.proto).
  static BlasOperands of(const plan::MatmulCall &call, std::span<const api::CUdeviceptr> pointers,
                         api::CUdeviceptr workspace);
};

/// An algorithm of the library, and the workspace that it takes for the product it was asked for.
struct BlasAlgorithm {
  api::cublasLtMatmulAlgo_t algo{};
  uint64_t workspaceBytes = 0;
};

class BlasProduct {
public:
  using Algorithm = BlasAlgorithm;
  static constexpr const char *kLibrary = "cuBLASLt", *kNoun = "product";
  /// Algorithms that the library is asked for where one is taken: some do not keep to the plan.
  static constexpr int kAsked = 8;
  static constexpr bool kLoadsWhenRun = false;

  /// Error: types that the library does not multiply, or one of its calls failed.
  static Expected<BlasProduct> describe(std::shared_ptr<const BlasLibrary> library, api::cublasLtHandle_t handle,
                                        const plan::MatmulCall &call, const BlasOperands &operands);

  /// All that the library is told of the product: products of one text may share an algorithm.
  std::string text() const;

  /// Up to `most` algorithms that keep to the plan, the library's favourite first. Error: it has none.
  Expected<std::vector<BlasAlgorithm>> candidates(int most) const;

  /// The same of an algorithm from elsewhere. Error: the library or the card does not run it for this product, it takes
  /// more workspace than the plan has, or adds parts of K in an order that is not fixed.
  Expected<BlasAlgorithm> check(const api::cublasLtMatmulAlgo_t &algo) const;

  /// An algorithm as a record has it, and back. Error: text that is none, or what check() says.
  static std::string codeOf(const BlasAlgorithm &algorithm);
  Expected<BlasAlgorithm> fromCode(const std::string &code) const;
  /// For people.
  std::string aboutOf(const BlasAlgorithm &algorithm) const;

  Status use(const BlasAlgorithm &chosen) {
    algorithm = chosen;
    return Status();
  }

  /// Adds the product to a stream; after use().
  Status submit(api::CUstream stream) const;

  /// The memory that it reads and writes.
  struct Range {
    api::CUdeviceptr address;
    uint64_t bytes;
  };
  std::vector<Range> operandRanges() const;

private:
  template <typename T> using Owned = std::shared_ptr<std::remove_pointer_t<T>>;

  std::shared_ptr<const BlasLibrary> library;
  api::cublasLtHandle_t handle = nullptr;
  plan::MatmulCall call;
  BlasOperands operands;
  Owned<api::cublasLtMatmulDesc_t> desc;
  Owned<api::cublasLtMatrixLayout_t> layoutOfA, layoutOfB, layoutOfC; ///< as the library sees them: ours, the other way
  BlasAlgorithm algorithm;
  bool isDouble = false;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_BLASPRODUCT_H

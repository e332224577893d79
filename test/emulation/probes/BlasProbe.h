//===- BlasProbe.h - a product of cuBLASLt in a probe ---------------------===//
//
// Column-major, D[m, n] = A[m, k] · B[k, n] of small integers, so that sums are exact; sums are in f32. Bias, its
// gradient and gelu's input have D's type and memory of their own.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_PROBES_BLASPROBE_H
#define TCC_TEST_EMULATION_PROBES_BLASPROBE_H

#include "test/emulation/probes/Probe.h"

namespace tcc::probes {

struct ProductShape {
  uint64_t m = 32, n = 32, k = 32, batch = 1;
  cudaDataType type = CUDA_R_32F, result = CUDA_R_32F; ///< of A and B; of D
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int64_t biasStride = 0; ///< from one product of the batch to the next; 0: one bias for all
};

/// A product with its operands in device memory.
class Product {
public:
  explicit Product(Program &program, const ProductShape &shape = {});
  Product(const Product &) = delete;
  Product &operator=(const Product &) = delete;
  ~Product();

  /// `operand`: 0 A, 1 B, 2 D, 3 the vector, 4 gelu's input.
  void fill(size_t operand, const std::vector<float> &values);
  std::vector<float> read(size_t operand) const;

  /// The library's algorithms, perhaps none.
  std::vector<cublasLtMatmulHeuristicResult_t> offers(uint32_t schemes) const;
  /// The same; the probe expects at least one.
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms(uint32_t schemes) const;
  cublasStatus_t submit(const cublasLtMatmulAlgo_t &algo) const;
  /// Runs the first algorithm, and waits. False: there is none.
  bool run() const;
  /// An element of product `of` of the batch, exactly.
  float sum(uint64_t row, uint64_t column, uint64_t of = 0) const;

  const ProductShape shape;
  const uint64_t m = shape.m, n = shape.n, k = shape.k;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layouts[3] = {};
  CUdeviceptr memory[5] = {}, workspace = 0;
  uint64_t workspaceBytes = 8 << 20;
  std::vector<float> host[5]; ///< the values of fill(), by operand

private:
  cudaDataType typeOf(size_t operand) const { return operand < 2 ? shape.type : shape.result; }

  Program &p;
};

/// The number rounded to the type.
float rounded(float value, cudaDataType type);
double geluByTanh(double x);

} // namespace tcc::probes

#endif // TCC_TEST_EMULATION_PROBES_BLASPROBE_H

//===- BlasScene.h - products of cuBLASLt in a test ----------------------===//
#ifndef TCC_TEST_EMULATION_FAULTS_BLASSCENE_H
#define TCC_TEST_EMULATION_FAULTS_BLASSCENE_H

#include "test/emulation/faults/Scene.h"

#include <cstring>

namespace tcc::emulation {

using namespace tcc::cuda::api;

/// C = op(A) · op(B) of column-major matrices, with the descriptors that the library needs.
struct Product {
  uint64_t m = 8, n = 8, k = 8;
  bool transA = false, transB = false;
  int32_t batch = 1;
  cudaDataType type = CUDA_R_32F, result = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  uint64_t workspaceBytes = 0;
  uint32_t alignment = 256, schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  CUdeviceptr vector = 0, auxiliary = 0;
  int64_t auxiliaryLd = 8, vectorStride = 0;

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulHeuristicResult_t found{};

  void open() {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, compute, compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F);
    int32_t turned[] = {transA ? CUBLAS_OP_T : CUBLAS_OP_N, transB ? CUBLAS_OP_T : CUBLAS_OP_N};
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned[0], 4);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &turned[1], 4);
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 4);
      cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, 8);
      if (vectorStride)
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &vectorStride, 8);
      cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &auxiliary, 8);
      cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &auxiliaryLd, 8);
    }
    layout(a, type, transA ? k : m, transA ? m : k);
    layout(b, type, transB ? n : k, transB ? k : n);
    layout(c, result, m, n);
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspaceBytes, 8);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, 4);
    for (int i = 0; i < 4; ++i)
      cublasLtMatmulPreferenceSetAttribute(
          preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i),
          &alignment, 4);
    int count = 0;
    cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, c, c, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
  }
  void layout(cublasLtMatrixLayout_t &to, cudaDataType element, uint64_t rows, uint64_t columns) const {
    cublasLtMatrixLayoutCreate(&to, element, rows, columns, int64_t(rows));
    auto stride = int64_t(rows * columns);
    cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 4);
    cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, 8);
  }
  cublasStatus_t submit(CUdeviceptr at, CUdeviceptr with, CUdeviceptr to, CUstream stream, CUdeviceptr workspace = 0,
                        float beta = 0) const {
    auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
    const float one = 1;
    const double wideOne = 1, wideBeta = beta;
    const bool wide = compute == CUBLAS_COMPUTE_64F;
    return cublasLtMatmul(handle, desc, wide ? static_cast<const void *>(&wideOne) : &one, pointer(at), a,
                          pointer(with), b, wide ? static_cast<const void *>(&wideBeta) : &beta, pointer(to), c,
                          pointer(to), c, &found.algo, pointer(workspace), found.workspaceSize, stream);
  }
  void close() const {
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatrixLayoutDestroy(b);
    cublasLtMatrixLayoutDestroy(c);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
  }
};

/// Device memory besides the scene's.
struct Extra {
  CUdeviceptr address = 0;
  explicit Extra(size_t bytes) {
    cuMemAlloc_v2(&address, bytes);
    cuMemsetD8Async(address, 0, bytes, nullptr);
    cuCtxSynchronize();
  }
  ~Extra() {
    cuCtxSynchronize();
    cuMemFree_v2(address);
  }
};

/// Initialises all of the scene's buffers.
inline void giveValues(Scene &s) {
  cuMemsetD8Async(s.a, 0, Scene::kBytes, s.one);
  cuMemsetD8Async(s.b, 0, Scene::kBytes, s.one);
  cuStreamSynchronize(s.one);
}

inline size_t elementBytes(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

inline void put(std::byte *to, double value, cudaDataType type) {
  auto single = static_cast<float>(value);
  if (type == CUDA_R_64F)
    std::memcpy(to, &value, 8);
  else if (type == CUDA_R_32F)
    std::memcpy(to, &single, 4);
  else if (auto half = static_cast<_Float16>(single); type == CUDA_R_16F)
    std::memcpy(to, &half, 2);
  else
    std::memcpy(to, reinterpret_cast<const std::byte *>(&single) + 2, 2); // the inputs have few bits
}
inline double get(const std::byte *from, cudaDataType type) {
  double wide = 0;
  float single = 0;
  if (type == CUDA_R_64F) {
    std::memcpy(&wide, from, 8);
    return wide;
  }
  if (type == CUDA_R_16F) {
    _Float16 half;
    std::memcpy(&half, from, 2);
    return half;
  }
  std::memcpy(reinterpret_cast<std::byte *>(&single) + (type == CUDA_R_32F ? 0 : 2), from, elementBytes(type));
  return single;
}

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_FAULTS_BLASSCENE_H

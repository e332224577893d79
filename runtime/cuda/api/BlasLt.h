//===- BlasLt.h - the part of cuBLASLt that we call ----------------------===//
//
// Types, constants and entry points of libcublasLt.so, declared from the documentation (cuBLAS, "Using the cuBLASLt
// API", CUDA 12.0 and later), so that the runtime is built on machines without CUDA. Names are those of the
// documentation, in a namespace of their own; BlasLtDeclarations in CudaDriverTest.cpp compares them with the real
// header where the machine has it.
//
// TCC_BLASLT_ENTRY_POINTS is the list: X(member, symbol, parameters). Every entry point of it returns a cublasStatus_t.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_API_BLASLT_H
#define TCC_RUNTIME_CUDA_API_BLASLT_H

#include "runtime/cuda/api/Driver.h"

#include <cstddef>
#include <cstdint>

namespace tcc::cuda::api {

using cublasLtHandle_t = struct cublasLtContext *;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque_t *;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque_t *;
using cublasLtMatmulPreference_t = struct cublasLtMatmulPreferenceOpaque_t *;

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};

/// The type of sums, and the types to which factors may be rounded.
enum cublasComputeType_t : int {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};

enum cudaDataType : int { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };

enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };

enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3, ///< cublasOperation_t as int32_t
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,           ///< uint32_t, one cublasLtEpilogue_t
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,       ///< void *: a vector of D's type; read, or of a bias's gradient written
  CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10, ///< int64_t, elements; 0: one bias for all products of a batch
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11, ///< void *: gelu's input, of D's type
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,      ///< int64_t, elements; a multiple of 8
};

/// The operation on the product before it is stored. A bias has a value for each row of D.
enum cublasLtEpilogue_t : int {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_GELU_BIAS = 36,      ///< gelu of product and bias
  CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164, ///< the same, and gelu's input is stored
  CUBLASLT_EPILOGUE_DGELU = 192,         ///< times gelu's derivative at the auxiliary matrix
  CUBLASLT_EPILOGUE_DGELU_BGRAD = 208,   ///< the same, and the sum of each row of D is stored
  CUBLASLT_EPILOGUE_BGRADA = 256,        ///< the sum of each row of op(A) is stored: a value for each row of D
  CUBLASLT_EPILOGUE_BGRADB = 512,        ///< the sum of each column of op(B): a value for each column of D
};

enum cublasLtMatrixLayoutAttribute_t : int {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,          ///< int32_t
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6, ///< int64_t, elements
};

enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,   ///< uint64_t
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3, ///< uint32_t of cublasLtReductionScheme_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, ///< uint32_t, 256 unless set
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};

/// How sums over parts of K are added. A mask allows schemes; a product in one part is always allowed.
enum cublasLtReductionScheme_t : int {
  CUBLASLT_REDUCTION_SCHEME_NONE = 0,
  CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,      ///< in the result, in its type
  CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2, ///< in the workspace, in the compute type
  CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,
};

/// How an algorithm is configured.
enum cublasLtMatmulAlgoConfigAttributes_t : int {
  CUBLASLT_ALGO_CONFIG_ID = 0,               ///< int32_t
  CUBLASLT_ALGO_CONFIG_TILE_ID = 1,          ///< uint32_t
  CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,       ///< int32_t, parts of K
  CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3, ///< uint32_t, one cublasLtReductionScheme_t
};

/// Its bytes may be stored, and used again with the same version of the library.
struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

// clang-format off
#define TCC_BLASLT_ENTRY_POINTS(X)                                                                                     \
  X(create, cublasLtCreate, (cublasLtHandle_t *handle))                                                                \
  X(destroy, cublasLtDestroy, (cublasLtHandle_t handle))                                                               \
  /* Matrices are column-major: element (row, column) at row + column * ld */                                          \
  X(layoutCreate, cublasLtMatrixLayoutCreate,                                                                          \
    (cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld))                  \
  X(layoutDestroy, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                                       \
  X(layoutSetAttribute, cublasLtMatrixLayoutSetAttribute,                                                              \
    (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t bytes))       \
  X(descCreate, cublasLtMatmulDescCreate,                                                                              \
    (cublasLtMatmulDesc_t *desc, cublasComputeType_t computeType, cudaDataType scaleType))                             \
  X(descDestroy, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc))                                               \
  X(descSetAttribute, cublasLtMatmulDescSetAttribute,                                                                  \
    (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes))            \
  X(preferenceCreate, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t *preference))                        \
  X(preferenceDestroy, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))                       \
  X(preferenceSetAttribute, cublasLtMatmulPreferenceSetAttribute,                                                      \
    (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void *value,         \
     size_t bytes))                                                                                                    \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                                         \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,           \
     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int asked,             \
     cublasLtMatmulHeuristicResult_t *results, int *found))                                                            \
  X(algoConfigGetAttribute, cublasLtMatmulAlgoConfigGetAttribute,                                                      \
    (const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t bytes,      \
     size_t *written))                                                                                                 \
  /* Whether the device runs an algorithm for a product, and in how much workspace; `result->algo` stays */            \
  X(algoCheck, cublasLtMatmulAlgoCheck,                                                                                \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,           \
     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,                             \
     cublasLtMatmulHeuristicResult_t *result))                                                                         \
  /* D = alpha · op(A) · op(B) + beta · C; alpha and beta lie in the host's memory */                                  \
  X(matmul, cublasLtMatmul,                                                                                            \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,                             \
     cublasLtMatrixLayout_t layoutOfA, const void *b, cublasLtMatrixLayout_t layoutOfB, const void *beta,              \
     const void *c, cublasLtMatrixLayout_t layoutOfC, void *d, cublasLtMatrixLayout_t layoutOfD,                       \
     const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspaceBytes, CUstream stream))
// clang-format on

/// The entry points as pointers, which BlasLibrary looks up in the library.
struct BlasLt {
#define TCC_BLASLT_MEMBER(member, symbol, parameters) cublasStatus_t(*member) parameters = nullptr;
  TCC_BLASLT_ENTRY_POINTS(TCC_BLASLT_MEMBER)
#undef TCC_BLASLT_MEMBER
  size_t (*getVersion)() = nullptr;                        ///< cublasLtGetVersion: 130100 for 13.1
  const char *(*getStatusString)(cublasStatus_t) = nullptr; ///< cublasLtGetStatusString
};

} // namespace tcc::cuda::api

#endif // TCC_RUNTIME_CUDA_API_BLASLT_H

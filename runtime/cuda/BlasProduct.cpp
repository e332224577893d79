//===- BlasProduct.cpp - a matrix product by cuBLASLt --------------------===//
//
// Our matrices are row-major, the library's column-major: it is given Cᵀ = op(B)ᵀ · op(A)ᵀ, whose bytes are those of C.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/BlasProduct.h"

#include <algorithm>
#include <array>

namespace tcc::cuda {

namespace {

Expected<api::cudaDataType> typeOf(plan::DType type) {
  switch (type) {
  case plan::F32:
    return api::CUDA_R_32F;
  case plan::F64:
    return api::CUDA_R_64F;
  case plan::BF16:
    return api::CUDA_R_16BF;
  default:
    return error("cuBLASLt multiplies no {}", plan::DType_Name(type));
  }
}

/// The alignment of an address that algorithms may rely on: they ask for no more than 256 bytes.
uint32_t alignmentOf(api::CUdeviceptr address) {
  return static_cast<uint32_t>(std::min<api::CUdeviceptr>(256, address & (~address + 1)));
}

} // namespace

Expected<BlasProduct> BlasProduct::prepare(std::shared_ptr<const BlasLibrary> shared, api::cublasLtHandle_t handle,
                                           const plan::MatmulCall &call, const BlasOperands &operands) {
  const BlasLibrary &library = *shared;
  auto type = typeOf(call.dtype());
  auto resultType = typeOf(call.result_dtype() == plan::DTYPE_NONE ? call.dtype() : call.result_dtype());
  if (!type || !resultType)
    return type ? resultType.status() : type.status();
  BlasProduct product;
  product.library = shared;
  product.handle = handle;
  product.operands = operands;
  product.accumulate = call.accumulate();
  product.isDouble = *type == api::CUDA_R_64F;

  api::cublasLtMatmulDesc_t desc = nullptr;
  api::cublasComputeType_t compute = product.isDouble ? api::CUBLAS_COMPUTE_64F
                                     : call.tf32()    ? api::CUBLAS_COMPUTE_32F_FAST_TF32
                                                      : api::CUBLAS_COMPUTE_32F;
  if (Status status = library.check(
          library->descCreate(&desc, compute, product.isDouble ? api::CUDA_R_64F : api::CUDA_R_32F), "describing a product");
      !status.ok())
    return status;
  product.desc.reset(desc, [shared](api::cublasLtMatmulDesc_t made) { (void)(*shared)->descDestroy(made); });
  for (auto [attribute, transposed] : {std::pair(api::CUBLASLT_MATMUL_DESC_TRANSA, call.trans_b()),
                                       std::pair(api::CUBLASLT_MATMUL_DESC_TRANSB, call.trans_a())}) {
    int32_t operation = transposed ? api::CUBLAS_OP_T : api::CUBLAS_OP_N;
    if (Status status =
            library.check(library->descSetAttribute(desc, attribute, &operation, sizeof operation), "describing a product");
        !status.ok())
      return status;
  }

  // A matrix of `rows` rows of `columns` elements, as we say it.
  auto layout = [&](api::cudaDataType element, int64_t rows, int64_t columns,
                    Owned<api::cublasLtMatrixLayout_t> &into) -> Status {
    api::cublasLtMatrixLayout_t made = nullptr;
    if (Status status = library.check(library->layoutCreate(&made, element, static_cast<uint64_t>(columns),
                                                            static_cast<uint64_t>(rows), columns),
                                      "describing a matrix");
        !status.ok())
      return status;
    into.reset(made, [shared](api::cublasLtMatrixLayout_t old) { (void)(*shared)->layoutDestroy(old); });
    auto batch = static_cast<int32_t>(call.batch());
    int64_t stride = rows * columns;
    Status status = library.check(
        library->layoutSetAttribute(made, api::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), "describing a batch");
    return status.ok() ? library.check(library->layoutSetAttribute(made, api::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                                   &stride, sizeof stride),
                                       "describing a batch")
                       : status;
  };
  Status status = layout(*type, call.trans_b() ? call.n() : call.k(), call.trans_b() ? call.k() : call.n(), product.layoutOfA);
  if (status.ok())
    status = layout(*type, call.trans_a() ? call.k() : call.m(), call.trans_a() ? call.m() : call.k(), product.layoutOfB);
  if (status.ok())
    status = layout(*resultType, call.m(), call.n(), product.layoutOfC);
  if (!status.ok())
    return status;

  api::cublasLtMatmulPreference_t made = nullptr;
  if (status = library.check(library->preferenceCreate(&made), "asking for an algorithm"); !status.ok())
    return status;
  Owned<api::cublasLtMatmulPreference_t> preference(
      made, [shared](api::cublasLtMatmulPreference_t old) { (void)(*shared)->preferenceDestroy(old); });
  auto prefer = [&](api::cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (status.ok())
      status = library.check(library->preferenceSetAttribute(made, attribute, &value, sizeof value), "asking for an algorithm");
  };
  prefer(api::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(call.library_scratch_bytes()));
  prefer(api::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(api::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(api::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignmentOf(operands.b));
  prefer(api::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignmentOf(operands.a));
  prefer(api::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignmentOf(operands.c));
  prefer(api::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignmentOf(operands.c));
  if (!status.ok())
    return status;
  std::array<api::cublasLtMatmulHeuristicResult_t, 8> results{};
  int count = 0;
  api::cublasStatus_t answer =
      library->heuristic(handle, desc, product.layoutOfA.get(), product.layoutOfB.get(), product.layoutOfC.get(),
                         product.layoutOfC.get(), made, static_cast<int>(results.size()), results.data(), &count);
  for (int i = 0; answer == api::CUBLAS_STATUS_SUCCESS && i < count; ++i)
    if (results[static_cast<size_t>(i)].state == api::CUBLAS_STATUS_SUCCESS &&
        results[static_cast<size_t>(i)].workspaceSize <= call.library_scratch_bytes()) {
      product.algo = results[static_cast<size_t>(i)].algo;
      product.workspaceBytes = results[static_cast<size_t>(i)].workspaceSize;
      return product;
    }
  return error("cuBLASLt {} has no algorithm for {} products of {} x {} x {} in {} within {} bytes of workspace: {}",
               library.version(), call.batch(), call.m(), call.n(), call.k(), plan::DType_Name(call.dtype()),
               call.library_scratch_bytes(), library->getStatusString(answer));
}

Status BlasProduct::submit(api::CUstream stream) const {
  const float one = 1, zero = 0;
  const double wideOne = 1, wideZero = 0;
  const void *alpha = isDouble ? static_cast<const void *>(&wideOne) : &one;
  const void *beta = accumulate ? alpha : isDouble ? static_cast<const void *>(&wideZero) : &zero;
  auto at = [](api::CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  return library->check((*library)->matmul(handle, desc.get(), alpha, at(operands.b), layoutOfA.get(), at(operands.a),
                                           layoutOfB.get(), beta, at(operands.c), layoutOfC.get(), at(operands.c),
                                           layoutOfC.get(), &algo, workspaceBytes ? at(operands.workspace) : nullptr,
                                           workspaceBytes, stream),
                        "submitting a product");
}

} // namespace tcc::cuda

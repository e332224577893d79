//===- BlasProducts.cpp - what cuBLASLt's heuristics answer --------------===//
//
// For products of common networks, forward and backward, in all types and with the epilogues that plans use. A product
// is described as the library sees it: column-major, D[m, n] = op(A)[m, k] · op(B)[k, n].
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/BlasProducts.h"
#include "test/emulation/probes/Probe.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace tcc::probes {

namespace {
struct Described {
  uint64_t m, n, k;
  int32_t batch;
  bool ta, tb;
  cudaDataType type, result;
  cublasComputeType_t compute;
  cublasLtEpilogue_t epilogue;
};

/// The workspace that a plan gives the product: one f32 result for each 512 of K, at most 16 results and 32 MiB.
uint64_t workspaceOf(const Described &p) {
  const uint64_t one = p.m * p.n * uint64_t(p.batch) * 4;
  return std::min<uint64_t>(uint64_t(32) << 20, one * std::min<uint64_t>(16, p.k / 512));
}

std::vector<Described> described() {
  struct Layer {
    uint64_t tokens, in, out;
    int32_t batch = 1;
  };
  static constexpr Layer kLayers[] = {{8192, 768, 2304},  {8192, 768, 768},     {8192, 768, 3072},  {8192, 3072, 768},
                                      {8192, 768, 50304}, {65536, 768, 3072},   {4096, 1024, 4096}, {4096, 4096, 4096},
                                      {512, 512, 1008},   {128, 64, 10},        {32, 2048, 1000},   {64, 784, 128},
                                      {256, 64, 256, 96}, {1024, 64, 1024, 48}, {49, 512, 2048, 32}};
  std::vector<Described> all;
  for (const Layer &l : kLayers)
    for (auto [type, result, compute] : {std::tuple(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F),
                                         std::tuple(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32),
                                         std::tuple(CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F),
                                         std::tuple(CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F),
                                         std::tuple(CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F)}) {
      // y = x·Wᵀ, its gradients of x and W; weights as PyTorch has them.
      all.push_back({l.out, l.tokens, l.in, l.batch, true, false, type, result, compute, CUBLASLT_EPILOGUE_DEFAULT});
      all.push_back({l.in, l.tokens, l.out, l.batch, false, false, type, result, compute, CUBLASLT_EPILOGUE_DEFAULT});
      all.push_back({l.in, l.out, l.tokens, l.batch, false, true, type, result, compute, CUBLASLT_EPILOGUE_DEFAULT});
      if (l.batch != 1 || l.out % 8 != 0)
        continue;
      for (cublasLtEpilogue_t epilogue :
           {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU_BGRAD})
        all.push_back({l.out, l.tokens, l.in, 1, true, false, type, result, compute, epilogue});
      // The weight gradient with the sums of y's gradient, as the left or as the right factor.
      all.push_back({l.in, l.out, l.tokens, 1, false, true, type, result, compute, CUBLASLT_EPILOGUE_BGRADB});
      all.push_back({l.out, l.in, l.tokens, 1, false, true, type, result, compute, CUBLASLT_EPILOGUE_BGRADA});
    }
  return all;
}

/// Prints the line of one product.
void print(cublasLtHandle_t handle, const Described &p, CUdeviceptr memory, int &answered) {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layouts[3] = {};
  cublasLtMatmulPreference_t preference = nullptr;
  lt.descCreate(&desc, p.compute, CUDA_R_32F);
  const int32_t operations[] = {p.ta ? CUBLAS_OP_T : CUBLAS_OP_N, p.tb ? CUBLAS_OP_T : CUBLAS_OP_N};
  lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &operations[0], sizeof operations[0]);
  lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &operations[1], sizeof operations[1]);
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    const auto epilogue = static_cast<uint32_t>(p.epilogue);
    const int64_t ld = int64_t(p.m);
    lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &memory, sizeof memory);
    if (p.epilogue != CUBLASLT_EPILOGUE_BIAS) {
      lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &memory, sizeof memory);
      lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    }
  }
  const uint64_t rows[] = {p.ta ? p.k : p.m, p.tb ? p.n : p.k, p.m},
                 columns[] = {p.ta ? p.m : p.k, p.tb ? p.k : p.n, p.n};
  for (size_t i = 0; i < 3; ++i) {
    const int64_t stride = int64_t(rows[i] * columns[i]);
    lt.layoutCreate(&layouts[i], i == 2 ? p.result : p.type, rows[i], columns[i], int64_t(rows[i]));
    lt.layoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &p.batch, sizeof p.batch);
    lt.layoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  }
  lt.preferenceCreate(&preference);
  const uint64_t workspace = workspaceOf(p);
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, alignment = 256;
  lt.preferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  lt.preferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
  for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    lt.preferenceSetAttribute(preference, attribute, &alignment, sizeof alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(8);
  int found = 0;
  const cublasStatus_t status = lt.heuristic(handle, desc, layouts[0], layouts[1], layouts[2], layouts[2], preference,
                                             int(results.size()), results.data(), &found);
  answered += status == CUBLAS_STATUS_SUCCESS && found > 0;
  std::printf(
      "{\"product\":{\"m\":%llu,\"n\":%llu,\"k\":%llu,\"batch\":%d,\"ta\":%d,\"tb\":%d,\"type\":%d,\"result\":%d,"
      "\"compute\":%d,\"epilogue\":%d},\"workspace\":%llu,\"status\":%d,\"algorithms\":[",
      (unsigned long long)p.m, (unsigned long long)p.n, (unsigned long long)p.k, p.batch, p.ta, p.tb, p.type, p.result,
      p.compute, p.epilogue, (unsigned long long)workspace, status);
  for (int i = 0; i < found; ++i) {
    auto number = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
      int32_t value = 0;
      size_t written = 0;
      lt.algoConfigGetAttribute(&results[size_t(i)].algo, attribute, &value, sizeof value, &written);
      return value;
    };
    std::printf("%s{\"id\":%d,\"tile\":%d,\"parts\":%d,\"scheme\":%d,\"workspace\":%zu,\"waves\":%.3g}", i ? "," : "",
                number(CUBLASLT_ALGO_CONFIG_ID), number(CUBLASLT_ALGO_CONFIG_TILE_ID),
                std::max(1, number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM)), number(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
                results[size_t(i)].workspaceSize, double(results[size_t(i)].wavesCount));
  }
  std::printf("]}\n");
  lt.preferenceDestroy(preference);
  for (cublasLtMatrixLayout_t layout : layouts)
    lt.layoutDestroy(layout);
  lt.descDestroy(desc);
}
} // namespace

bool printProducts() {
  cublasLtHandle_t handle = nullptr;
  CUdeviceptr memory = 0;
  if (lt.create(&handle) != CUBLAS_STATUS_SUCCESS || cu.memAlloc(&memory, 1 << 20) != CUDA_SUCCESS)
    return false;
  std::printf("{\"cublaslt\":%zu}\n", lt.getVersion());
  int answered = 0;
  for (const Described &product : described())
    print(handle, product, memory, answered);
  lt.destroy(handle);
  cu.memFree(memory);
  return answered > 0;
}

} // namespace tcc::probes

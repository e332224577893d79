//===- BlasProbes.cpp - beliefs about cuBLASLt ---------------------------===//
//
// Each probe asks the library for algorithms as the runtime does.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/BlasProbe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace tcc::probes;

namespace {

uint32_t schemeOf(const cublasLtMatmulAlgo_t &algo) {
  uint32_t scheme = 99;
  size_t written = 0;
  EXPECT(lt.algoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &written) ==
         CUBLAS_STATUS_SUCCESS);
  EXPECT(written == sizeof scheme);
  return scheme;
}

} // namespace

PROBE(BlasMatricesAreColumnMajor, "cuBLAS: Data layout; cublasLtMatmul") {
  Product x(p);
  if (x.run())
    EXPECT(x.read(2)[3 + 5 * x.m] == x.sum(3, 5));
}
PROBE(BlasSumsOfF16AreF32, "cublasLtMatmul: CUBLAS_COMPUTE_32F with CUDA_R_16F") {
  // 2048 + 1 + … + 1 stays 2048 if each sum is rounded to f16; summed in f32 it is 2079, which rounds to 2080 in f16.
  for (cudaDataType to : {CUDA_R_32F, CUDA_R_16F}) {
    Product x(p, {.type = CUDA_R_16F, .result = to});
    std::vector<float> left(x.m * x.k, 1);
    std::fill_n(left.begin(), x.m, 2048.f);
    x.fill(0, left);
    x.fill(1, std::vector<float>(x.k * x.n, 1));
    if (x.run())
      EXPECT(x.read(2)[0] == (to == CUDA_R_32F ? 2079 : 2080));
  }
}
PROBE(BlasAlgorithmsArePlainBytes, "cublasLtMatmulAlgo_t: stored, and restored for the same version") {
  std::vector<float> results[2];
  unsigned char bytes[sizeof(cublasLtMatmulAlgo_t)];
  for (int restored = 0; restored < 2; ++restored) {
    Product x(p, {.m = 64, .k = 512});
    cublasLtMatmulAlgo_t algo = x.algorithms(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).back().algo;
    if (restored)
      std::memcpy(&algo, bytes, sizeof bytes); // for other descriptors of the same product, and another handle
    else
      std::memcpy(bytes, &algo, sizeof bytes);
    cublasLtMatmulHeuristicResult_t checked{};
    EXPECT(lt.algoCheck(x.handle, x.desc, x.layouts[0], x.layouts[1], x.layouts[2], x.layouts[2], &algo, &checked) ==
           CUBLAS_STATUS_SUCCESS);
    EXPECT(checked.workspaceSize <= x.workspaceBytes);
    EXPECT(x.submit(algo) == CUBLAS_STATUS_SUCCESS);
    results[restored] = x.read(2);
  }
  EXPECT(results[0] == results[1]);
}
PROBE(BlasCheckRefusesAnotherProduct, "cublasLtMatmulAlgoCheck") {
  Product x(p), other(p, {.k = 48});
  const cublasLtMatmulAlgo_t nothing{};
  cublasLtMatmulHeuristicResult_t checked{};
  EXPECT(lt.algoCheck(x.handle, x.desc, x.layouts[0], other.layouts[1], x.layouts[2], x.layouts[2], &nothing,
                      &checked) != CUBLAS_STATUS_SUCCESS);
}
PROBE(BlasReductionMaskLeavesSchemesOut, "cublasLtMatmulPreferenceAttributes_t: REDUCTION_SCHEME_MASK") {
  Product x(p, {.m = 16, .n = 16, .k = 4096});
  for (uint32_t mask : {0u, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)})
    for (const cublasLtMatmulHeuristicResult_t &result : x.algorithms(mask))
      EXPECT((schemeOf(result.algo) & ~mask) == 0);
}
PROBE(BlasSumsInTheComputeTypeRepeat, "cuBLAS: Results reproducibility; cublasLtReductionScheme_t") {
  Product x(p, {.m = 16, .n = 16, .k = 4096});
  for (const cublasLtMatmulHeuristicResult_t &result : x.algorithms(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) {
    std::vector<float> first;
    for (int run = 0; run < 8; ++run) {
      EXPECT(x.submit(result.algo) == CUBLAS_STATUS_SUCCESS);
      std::vector<float> got = x.read(2);
      EXPECT(run == 0 || got == first);
      first = got;
    }
  }
}
PROBE(BlasEventsTimeAProduct, "cuEventElapsedTime") {
  Product x(p);
  const cublasLtMatmulAlgo_t algo = x.algorithms(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).front().algo;
  CUevent events[2] = {};
  for (CUevent &event : events)
    EXPECT(cu.eventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  float milliseconds = 0;
  EXPECT(cu.eventRecord(events[0], p.stream) == CUDA_SUCCESS);
  EXPECT(x.submit(algo) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cu.eventRecord(events[1], p.stream) == CUDA_SUCCESS);
  EXPECT(cu.eventSynchronize(events[1]) == CUDA_SUCCESS);
  EXPECT(cu.eventElapsedTime(&milliseconds, events[0], events[1]) == CUDA_SUCCESS);
  EXPECT(milliseconds > 0);
  for (CUevent event : events)
    cu.eventDestroy(event);
}

//===----------------------------------------------------------------------===//
// Epilogues
//===----------------------------------------------------------------------===//
namespace {

ProductShape shapeOf(cublasLtEpilogue_t epilogue, cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
  return {.n = 16, .compute = compute, .epilogue = epilogue};
}
bool near(double got, double wanted, double tolerance = 1e-3) {
  return std::abs(got - wanted) <= tolerance * std::max(1.0, std::abs(wanted));
}

constexpr cublasComputeType_t kComputeTypes[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};

} // namespace

PROBE(BlasBiasIsOfARow, "cublasLtEpilogue_t: BIAS") {
  for (cublasComputeType_t compute : kComputeTypes) {
    Product x(p, shapeOf(CUBLASLT_EPILOGUE_BIAS, compute));
    if (!x.run())
      continue;
    const std::vector<float> got = x.read(2);
    for (uint64_t i = 0; i < got.size(); ++i)
      EXPECT(got[i] == x.sum(i % x.m, i / x.m) + x.host[3][i % x.m]);
  }
}
PROBE(BlasBiasIsAddedToTheSum, "cublasLtEpilogue_t: BIAS; when it is added is not documented") {
  // 2^24 - 2^24 = 0, plus a bias of 1 is 1; a bias added first would be lost, since 1 + 2^24 rounds to 2^24.
  Product x(p, shapeOf(CUBLASLT_EPILOGUE_BIAS));
  std::vector<float> left(x.m * x.k), right(x.k * x.n), one(x.m, 1);
  left[0] = 0x1p24f;
  left[x.m] = -0x1p24f;
  right[0] = right[1] = 1;
  x.fill(0, left);
  x.fill(1, right);
  x.fill(3, one);
  if (x.run())
    EXPECT(x.read(2)[0] == 1);
}
PROBE(BlasGeluIsTanh, "cublasLtEpilogue_t: GELU_AUX_BIAS; no form is documented") {
  Product x(p, shapeOf(CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
  // One product of 1 x -2.25: erf gives -0.02751, tanh -0.02776.
  std::vector<float> left(x.m * x.k), right(x.k * x.n), zero(x.m);
  left[0] = 1;
  right[0] = -2.25f;
  x.fill(0, left);
  x.fill(1, right);
  x.fill(3, zero);
  if (!x.run())
    return;
  const float got = x.read(2)[0];
  EXPECT(std::abs(got - geluByTanh(-2.25)) < 5e-5);
  EXPECT(std::abs(got - 0.5 * -2.25 * std::erfc(2.25 / std::sqrt(2))) > 1e-4);
}
PROBE(BlasGeluKeepsItsInput, "cublasLtMatmulDescAttributes_t: EPILOGUE_AUX_POINTER, EPILOGUE_AUX_LD") {
  for (cublasComputeType_t compute : kComputeTypes) {
    Product x(p, shapeOf(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, compute));
    if (!x.run())
      continue;
    const std::vector<float> got = x.read(2), kept = x.read(4);
    for (uint64_t i = 0; i < got.size(); ++i) {
      EXPECT(kept[i] == x.sum(i % x.m, i / x.m) + x.host[3][i % x.m]);
      EXPECT(near(got[i], geluByTanh(kept[i])));
    }
  }
}
namespace {
void multiplyByGeluGradient(Program &p, cublasComputeType_t compute) {
  Product x(p, shapeOf(CUBLASLT_EPILOGUE_DGELU_BGRAD, compute));
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2), sums = x.read(3);
  std::vector<double> wanted(x.m);
  for (uint64_t i = 0; i < got.size(); ++i) {
    const double slope = (geluByTanh(x.host[4][i] + 1e-6) - geluByTanh(x.host[4][i] - 1e-6)) / 2e-6;
    EXPECT(near(got[i], x.sum(i % x.m, i / x.m) * slope));
    wanted[i % x.m] += got[i];
  }
  for (uint64_t i = 0; i < x.m; ++i)
    EXPECT(near(sums[i], wanted[i], 1e-2));
}
void sumFactor(Program &p, cublasComputeType_t compute) {
  Product x(p, shapeOf(CUBLASLT_EPILOGUE_BGRADA, compute));
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2), sums = x.read(3);
  EXPECT(got[3 + 5 * x.m] == x.sum(3, 5));
  for (uint64_t i = 0; i < x.m; ++i) {
    float sum = 0;
    for (uint64_t q = 0; q < x.k; ++q)
      sum += x.host[0][i + q * x.m];
    EXPECT(sums[i] == sum);
  }
}
} // namespace

PROBE(BlasHasNoSumsOfB, "cublasLtEpilogue_t: BGRADB; seen with version 13, in f32") {
  for (cublasComputeType_t compute : kComputeTypes)
    EXPECT(
        Product(p, shapeOf(CUBLASLT_EPILOGUE_BGRADB, compute)).offers(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).empty());
}
PROBE(BlasGeluGradientAndItsSums, "cublasLtEpilogue_t: DGELU_BGRAD") { multiplyByGeluGradient(p, CUBLAS_COMPUTE_32F); }
PROBE(BlasGeluGradientAndItsSumsInTf32, "cublasLtEpilogue_t: DGELU_BGRAD") {
  multiplyByGeluGradient(p, CUBLAS_COMPUTE_32F_FAST_TF32);
}
PROBE(BlasSumsOfA, "cublasLtEpilogue_t: BGRADA") { sumFactor(p, CUBLAS_COMPUTE_32F); }
PROBE(BlasSumsOfAInTf32, "cublasLtEpilogue_t: BGRADA") { sumFactor(p, CUBLAS_COMPUTE_32F_FAST_TF32); }

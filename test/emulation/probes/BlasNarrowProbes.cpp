//===- BlasNarrowProbes.cpp - epilogues of 16-bit products, and of batches ===//
#include "test/emulation/probes/BlasProbe.h"

#include <algorithm>
#include <cmath>

using namespace tcc::probes;

namespace {

constexpr std::pair<cudaDataType, cudaDataType> kTypes[] = {
    {CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16F, CUDA_R_16F}, {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_16F, CUDA_R_32F}};
ProductShape shapeOf(cublasLtEpilogue_t epilogue, cudaDataType type, cudaDataType result) {
  return {.n = 16, .type = type, .result = result, .epilogue = epilogue};
}
/// Whether the difference is at most two roundings to the type.
bool isNear(double got, double wanted, cudaDataType type) {
  const double step = type == CUDA_R_32F ? 1e-3 : type == CUDA_R_16F ? 2e-3 : 1.6e-2;
  return std::abs(got - wanted) <= step * std::max(1.0, std::abs(wanted));
}

void biases(Program &p, cudaDataType type, cudaDataType result, uint64_t batch, bool ofEach) {
  ProductShape shape = shapeOf(CUBLASLT_EPILOGUE_BIAS, type, result);
  shape.batch = batch;
  shape.biasStride = ofEach ? int64_t(shape.m) : 0;
  Product x(p, shape);
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2);
  for (uint64_t of = 0; of < batch; ++of)
    for (uint64_t i = 0; i < x.m * x.n; ++i)
      if (got[of * x.m * x.n + i] !=
          rounded(x.sum(i % x.m, i / x.m, of) + x.host[3][(ofEach ? of * x.m : 0) + i % x.m], result)) {
        EXPECT(!"each row has its bias");
        return;
      }
}
void keepsGelusInput(Program &p, cudaDataType type, cudaDataType result) {
  Product x(p, shapeOf(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, type, result));
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2), kept = x.read(4);
  for (uint64_t i = 0; i < got.size(); ++i) {
    const float sum = x.sum(i % x.m, i / x.m) + x.host[3][i % x.m];
    if (kept[i] != rounded(sum, result) || !isNear(got[i], geluByTanh(sum), result)) {
      EXPECT(!"gelu's input is kept in D's type");
      return;
    }
  }
}
void multipliesByGelusGradient(Program &p, cublasLtEpilogue_t epilogue, cudaDataType type, cudaDataType result) {
  Product x(p, shapeOf(epilogue, type, result));
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2), sums = x.read(3);
  std::vector<double> wanted(x.m), size(x.m);
  for (uint64_t i = 0; i < got.size(); ++i) {
    const double at = x.host[4][i], slope = (geluByTanh(at + 1e-6) - geluByTanh(at - 1e-6)) / 2e-6,
                 value = x.sum(i % x.m, i / x.m) * slope;
    EXPECT(isNear(got[i], value, result));
    wanted[i % x.m] += value;
    size[i % x.m] += std::abs(value);
  }
  for (uint64_t i = 0; epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD && i < x.m; ++i)
    EXPECT(std::abs(sums[i] - wanted[i]) <= 1e-2 * std::max(1.0, size[i]));
}
void sumsAFactor(Program &p, cublasLtEpilogue_t epilogue, cudaDataType type, cudaDataType result) {
  Product x(p, shapeOf(epilogue, type, result));
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2), sums = x.read(3);
  EXPECT(got[3 + 5 * x.m] == rounded(x.sum(3, 5), result));
  const bool ofA = epilogue == CUBLASLT_EPILOGUE_BGRADA;
  for (uint64_t i = 0; i < (ofA ? x.m : x.n); ++i) {
    float sum = 0;
    for (uint64_t q = 0; q < x.k; ++q)
      sum += ofA ? x.host[0][i + q * x.m] : x.host[1][q + i * x.k];
    EXPECT(sums[i] == rounded(sum, result));
  }
}

} // namespace

PROBE(BlasNarrowBias, "cublasLtMatmulDescAttributes_t: BIAS_POINTER, BIAS_DATA_TYPE (unset: D's type)") {
  for (auto [type, result] : kTypes)
    biases(p, type, result, 1, false);
}
PROBE(BlasBiasOfABatch, "cublasLtMatmulDescAttributes_t: BIAS_BATCH_STRIDE, 0: one bias for all") {
  for (cudaDataType type : {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F})
    biases(p, type, type, 3, false);
}
PROBE(BlasBiasOfEachProduct, "cublasLtMatmulDescAttributes_t: BIAS_BATCH_STRIDE") {
  for (cudaDataType type : {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F})
    biases(p, type, type, 3, true);
}
PROBE(BlasNarrowBiasIsRoundedOnce, "cublasLtEpilogue_t: BIAS; when the sum is rounded is not documented") {
  // 256 + 1 rounds to 256 in bf16, 2048 + 1 to 2048 in f16; a bias of 1 added to the unrounded sum gives 258 and 2050.
  for (auto [type, large] : {std::pair(CUDA_R_16BF, 256.f), std::pair(CUDA_R_16F, 2048.f)}) {
    Product x(p, shapeOf(CUBLASLT_EPILOGUE_BIAS, type, type));
    std::vector<float> left(x.m * x.k), right(x.k * x.n);
    left[0] = large;
    left[x.m] = right[0] = right[1] = 1;
    x.fill(0, left);
    x.fill(1, right);
    x.fill(3, std::vector<float>(x.m, 1));
    if (x.run())
      EXPECT(x.read(2)[0] == large + 2);
  }
}
PROBE(BlasNarrowGeluKeepsItsInput, "cublasLtMatmulDescAttributes_t: EPILOGUE_AUX_DATA_TYPE (unset: D's type)") {
  for (auto [type, result] : {kTypes[0], kTypes[1]})
    keepsGelusInput(p, type, result);
}
PROBE(BlasNarrowGeluGradient, "cublasLtEpilogue_t: DGELU") {
  for (auto [type, result] : {kTypes[0], kTypes[1]})
    multipliesByGelusGradient(p, CUBLASLT_EPILOGUE_DGELU, type, result);
}
PROBE(BlasNarrowGeluGradientAndItsSums, "cublasLtEpilogue_t: DGELU_BGRAD; sums of D's type") {
  for (auto [type, result] : {kTypes[0], kTypes[1]})
    multipliesByGelusGradient(p, CUBLASLT_EPILOGUE_DGELU_BGRAD, type, result);
}
PROBE(BlasNarrowSumsOfA, "cublasLtEpilogue_t: BGRADA; sums of D's type") {
  for (auto [type, result] : {kTypes[0], kTypes[1]})
    sumsAFactor(p, CUBLASLT_EPILOGUE_BGRADA, type, result);
}
PROBE(BlasNarrowSumsOfAInF32, "cublasLtEpilogue_t: BGRADA with D in f32") {
  for (auto [type, result] : {kTypes[2], kTypes[3]})
    sumsAFactor(p, CUBLASLT_EPILOGUE_BGRADA, type, result);
}
PROBE(BlasNarrowSumsOfB, "cublasLtEpilogue_t: BGRADB; sums of D's type") {
  for (auto [type, result] : {kTypes[0], kTypes[1]})
    sumsAFactor(p, CUBLASLT_EPILOGUE_BGRADB, type, result);
}
PROBE(BlasNarrowSumsOfBInF32, "cublasLtEpilogue_t: BGRADB with D in f32") {
  for (auto [type, result] : {kTypes[2], kTypes[3]})
    sumsAFactor(p, CUBLASLT_EPILOGUE_BGRADB, type, result);
}

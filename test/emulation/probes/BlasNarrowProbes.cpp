//===- BlasNarrowProbes.cpp - epilogues of 16-bit products, and of batches ===//
//
// Column-major, D[m, n] = A[m, k] · B[k, n] with sums in f32; bias, its gradient and gelu's input have D's type.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/Probe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace tcc::probes;

namespace {

size_t bytesOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

void put(std::byte *to, float value, cudaDataType type) {
  const auto word = std::bit_cast<uint32_t>(value);
  const auto half = static_cast<_Float16>(value);
  const auto brain = static_cast<unsigned short>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  if (type == CUDA_R_32F)
    std::memcpy(to, &value, 4);
  else if (type == CUDA_R_16F)
    std::memcpy(to, &half, 2);
  else
    std::memcpy(to, &brain, 2);
}
float get(const std::byte *from, cudaDataType type) {
  if (type == CUDA_R_32F) {
    float value = 0;
    std::memcpy(&value, from, 4);
    return value;
  }
  unsigned short bits = 0;
  std::memcpy(&bits, from, 2);
  return type == CUDA_R_16F ? float(std::bit_cast<_Float16>(bits)) : std::bit_cast<float>(uint32_t(bits) << 16);
}

/// Factors of one type, a result of the same or f32. Vector and auxiliary matrix are in memory of their own.
struct NarrowProduct {
  static constexpr uint64_t m = 32, n = 16, k = 32;
  Program &p;
  cudaDataType type, result;
  uint64_t batch;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layouts[3] = {};
  CUdeviceptr memory[5] = {}, workspace = 0; ///< A, B, D, vector, auxiliary
  std::vector<float> host[5];
  uint64_t workspaceBytes = 8 << 20;

  NarrowProduct(Program &program, cublasLtEpilogue_t epilogue, cudaDataType type, cudaDataType result,
                uint64_t batch = 1, int64_t biasStride = 0)
      : p(program), type(type), result(result), batch(batch) {
    EXPECT(lt.create(&handle) == CUBLAS_STATUS_SUCCESS);
    EXPECT(lt.descCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    const uint64_t rows[] = {m, k, m}, columns[] = {k, n, n};
    for (size_t i = 0; i < 5; ++i) {
      const uint64_t count = i < 3 ? rows[i] * columns[i] * batch : i == 3 ? m * batch : m * n;
      cu.memAlloc(&memory[i], count * 4);
      std::vector<float> values(count);
      for (uint64_t at = 0; at < count; ++at)
        values[at] = (float((at + i * 7) * 2654435761u >> 7 & 7) - 3) * (i == 4 ? 0.5f : 1);
      fill(i, values);
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT(lt.layoutCreate(&layouts[i], i == 2 ? result : type, rows[i], columns[i], int64_t(rows[i])) ==
             CUBLAS_STATUS_SUCCESS);
      const auto count = int32_t(batch);
      const auto stride = int64_t(rows[i] * columns[i]);
      lt.layoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
      lt.layoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    }
    cu.memAlloc(&workspace, workspaceBytes);
    const auto number = uint32_t(epilogue);
    const auto ld = int64_t(m);
    EXPECT(lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &number, sizeof number) == CUBLAS_STATUS_SUCCESS);
    EXPECT(lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &memory[3], 8) == CUBLAS_STATUS_SUCCESS);
    if (biasStride)
      EXPECT(lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &biasStride, 8) ==
             CUBLAS_STATUS_SUCCESS);
    if (epilogue != CUBLASLT_EPILOGUE_BIAS) {
      EXPECT(lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &memory[4], 8) ==
             CUBLAS_STATUS_SUCCESS);
      EXPECT(lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld) == CUBLAS_STATUS_SUCCESS);
    }
  }
  NarrowProduct(const NarrowProduct &) = delete;
  NarrowProduct &operator=(const NarrowProduct &) = delete;
  ~NarrowProduct() {
    cu.ctxSynchronize();
    for (cublasLtMatrixLayout_t layout : layouts)
      lt.layoutDestroy(layout);
    for (CUdeviceptr one : memory)
      cu.memFree(one);
    cu.memFree(workspace);
    lt.descDestroy(desc);
    lt.destroy(handle);
  }

  cudaDataType typeOf(size_t i) const { return i < 2 ? type : result; }
  void fill(size_t i, const std::vector<float> &values) {
    host[i] = values;
    std::vector<std::byte> bytes(values.size() * bytesOf(typeOf(i)));
    for (size_t at = 0; at < values.size(); ++at)
      put(&bytes[at * bytesOf(typeOf(i))], values[at], typeOf(i));
    cu.memcpyHtoDAsync(memory[i], bytes.data(), bytes.size(), p.stream);
    cu.streamSynchronize(p.stream);
  }
  std::vector<float> read(size_t i) const {
    std::vector<std::byte> bytes(host[i].size() * bytesOf(typeOf(i)));
    cu.memcpyDtoHAsync(bytes.data(), memory[i], bytes.size(), p.stream);
    EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
    std::vector<float> values(host[i].size());
    for (size_t at = 0; at < values.size(); ++at)
      values[at] = get(&bytes[at * bytesOf(typeOf(i))], typeOf(i));
    return values;
  }

  /// False: the library has no algorithm.
  bool run() const {
    cublasLtMatmulPreference_t preference = nullptr;
    EXPECT(lt.preferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    lt.preferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspaceBytes, 8);
    lt.preferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    lt.heuristic(handle, desc, layouts[0], layouts[1], layouts[2], layouts[2], preference, 1, &found, &count);
    EXPECT(lt.preferenceDestroy(preference) == CUBLAS_STATUS_SUCCESS);
    EXPECT(count == 1);
    if (count != 1)
      return false;
    const float one = 1, zero = 0;
    auto at = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
    EXPECT(lt.matmul(handle, desc, &one, at(memory[0]), layouts[0], at(memory[1]), layouts[1], &zero, at(memory[2]),
                     layouts[2], at(memory[2]), layouts[2], &found.algo, at(workspace), workspaceBytes,
                     p.stream) == CUBLAS_STATUS_SUCCESS);
    return cu.streamSynchronize(p.stream) == CUDA_SUCCESS;
  }
  /// Exact: the numbers are small.
  float product(uint64_t of, uint64_t row, uint64_t column) const {
    float sum = 0;
    for (uint64_t q = 0; q < k; ++q)
      sum += host[0][of * m * k + row + q * m] * host[1][of * k * n + q + column * k];
    return sum;
  }
};

constexpr std::pair<cudaDataType, cudaDataType> kTypes[] = {
    {CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16F, CUDA_R_16F}, {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_16F, CUDA_R_32F}};
double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
/// Within two roundings to a type.
bool isNear(double got, double wanted, cudaDataType type) {
  const double step = type == CUDA_R_32F ? 1e-3 : type == CUDA_R_16F ? 2e-3 : 1.6e-2;
  return std::abs(got - wanted) <= step * std::max(1.0, std::abs(wanted));
}
float rounded(float value, cudaDataType type) {
  std::byte bytes[4];
  put(bytes, value, type);
  return get(bytes, type);
}

void biases(Program &p, cudaDataType type, cudaDataType result, uint64_t batch, bool ofEach) {
  NarrowProduct x(p, CUBLASLT_EPILOGUE_BIAS, type, result, batch, ofEach ? int64_t(NarrowProduct::m) : 0);
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2);
  for (uint64_t of = 0; of < batch; ++of)
    for (uint64_t i = 0; i < x.m * x.n; ++i)
      if (got[of * x.m * x.n + i] !=
          rounded(x.product(of, i % x.m, i / x.m) + x.host[3][(ofEach ? of * x.m : 0) + i % x.m], result)) {
        EXPECT(!"each row has its bias");
        return;
      }
}
void keepsGelusInput(Program &p, cudaDataType type, cudaDataType result) {
  NarrowProduct x(p, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, type, result);
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2), kept = x.read(4);
  for (uint64_t i = 0; i < got.size(); ++i) {
    const float sum = x.product(0, i % x.m, i / x.m) + x.host[3][i % x.m];
    if (kept[i] != rounded(sum, result) || !isNear(got[i], gelu(sum), result)) {
      EXPECT(!"gelu's input is kept in D's type");
      return;
    }
  }
}
void multipliesByGelusGradient(Program &p, cublasLtEpilogue_t epilogue, cudaDataType type, cudaDataType result) {
  NarrowProduct x(p, epilogue, type, result);
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2), sums = x.read(3);
  std::vector<double> wanted(x.m), size(x.m);
  for (uint64_t i = 0; i < got.size(); ++i) {
    const double at = x.host[4][i], slope = (gelu(at + 1e-6) - gelu(at - 1e-6)) / 2e-6,
                 value = x.product(0, i % x.m, i / x.m) * slope;
    EXPECT(isNear(got[i], value, result));
    wanted[i % x.m] += value;
    size[i % x.m] += std::abs(value);
  }
  for (uint64_t i = 0; epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD && i < x.m; ++i)
    EXPECT(std::abs(sums[i] - wanted[i]) <= 1e-2 * std::max(1.0, size[i]));
}
void sumsAFactor(Program &p, cublasLtEpilogue_t epilogue, cudaDataType type, cudaDataType result) {
  NarrowProduct x(p, epilogue, type, result);
  if (!x.run())
    return;
  const std::vector<float> got = x.read(2), sums = x.read(3);
  EXPECT(got[3 + 5 * x.m] == rounded(x.product(0, 3, 5), result));
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
  // 256 + 1 becomes 256 in bf16, 2048 + 1 becomes 2048 in f16; with a bias of 1 behind the unrounded sum 258 and 2050.
  for (auto [type, large] : {std::pair(CUDA_R_16BF, 256.f), std::pair(CUDA_R_16F, 2048.f)}) {
    NarrowProduct x(p, CUBLASLT_EPILOGUE_BIAS, type, type);
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

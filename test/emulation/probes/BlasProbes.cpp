//===- BlasProbes.cpp - beliefs about cuBLASLt ---------------------------===//
//
// Products of column-major matrices in device memory; each probe asks the library for algorithms as the runtime does.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/Probe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace tcc::probes;

namespace {

/// D[m, n] = A[m, k] · B[k, n] in f32, of small integers, so that sums are exact.
struct Product {
  Program &p;
  uint64_t m = 32, n = 32, k = 32;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layouts[3] = {};
  CUdeviceptr memory[3] = {}, workspace = 0;
  uint64_t workspaceBytes = 8 << 20;
  std::vector<float> host[3];

  explicit Product(Program &program, uint64_t m = 32, uint64_t n = 32, uint64_t k = 32) : p(program), m(m), n(n), k(k) {
    EXPECT(lt.create(&handle) == CUBLAS_STATUS_SUCCESS);
    EXPECT(lt.descCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    const uint64_t rows[] = {m, k, m}, columns[] = {k, n, n};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT(lt.layoutCreate(&layouts[i], CUDA_R_32F, rows[i], columns[i], int64_t(rows[i])) == CUBLAS_STATUS_SUCCESS);
      memory[i] = put(host[i] = numbers(rows[i] * columns[i], i));
    }
    cu.memAlloc(&workspace, workspaceBytes);
  }
  Product(const Product &) = delete;
  Product &operator=(const Product &) = delete;
  ~Product() {
    cu.ctxSynchronize();
    for (size_t i = 0; i < 3; ++i) {
      lt.layoutDestroy(layouts[i]);
      cu.memFree(memory[i]);
    }
    cu.memFree(workspace);
    lt.descDestroy(desc);
    lt.destroy(handle);
  }

  static std::vector<float> numbers(uint64_t count, uint64_t salt) {
    std::vector<float> values(count);
    for (uint64_t i = 0; i < count; ++i)
      values[i] = float((i + salt) * 2654435761u >> 7 & 7) - 3;
    return values;
  }
  CUdeviceptr put(const std::vector<float> &values) const {
    CUdeviceptr to = 0;
    cu.memAlloc(&to, values.size() * 4);
    cu.memcpyHtoDAsync(to, values.data(), values.size() * 4, p.stream);
    cu.streamSynchronize(p.stream);
    return to;
  }
  std::vector<float> get(CUdeviceptr from, size_t count) const {
    std::vector<float> values(count);
    cu.memcpyDtoHAsync(values.data(), from, count * 4, p.stream);
    EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
    return values;
  }

  std::vector<cublasLtMatmulHeuristicResult_t> algorithms(uint32_t schemes) const {
    std::vector<cublasLtMatmulHeuristicResult_t> results = offers(schemes);
    EXPECT(!results.empty());
    return results;
  }
  /// What the library has, perhaps nothing.
  std::vector<cublasLtMatmulHeuristicResult_t> offers(uint32_t schemes) const {
    cublasLtMatmulPreference_t preference = nullptr;
    EXPECT(lt.preferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    lt.preferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspaceBytes,
                              sizeof workspaceBytes);
    lt.preferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    std::vector<cublasLtMatmulHeuristicResult_t> results(32);
    int found = 0;
    lt.heuristic(handle, desc, layouts[0], layouts[1], layouts[2], layouts[2], preference, 32, results.data(), &found);
    results.resize(size_t(found));
    EXPECT(lt.preferenceDestroy(preference) == CUBLAS_STATUS_SUCCESS);
    return results;
  }
  cublasStatus_t submit(const cublasLtMatmulAlgo_t &algo, float beta = 0) const {
    const float one = 1;
    auto at = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
    return lt.matmul(handle, desc, &one, at(memory[0]), layouts[0], at(memory[1]), layouts[1], &beta, at(memory[2]),
                     layouts[2], at(memory[2]), layouts[2], &algo, at(workspace), workspaceBytes, p.stream);
  }
  static uint32_t schemeOf(const cublasLtMatmulAlgo_t &algo) {
    uint32_t scheme = 99;
    size_t written = 0;
    EXPECT(lt.algoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &written) ==
           CUBLAS_STATUS_SUCCESS);
    EXPECT(written == sizeof scheme);
    return scheme;
  }
};

} // namespace

PROBE(BlasMatricesAreColumnMajor, "cuBLAS: Data layout; cublasLtMatmul") {
  Product x(p);
  EXPECT(x.submit(x.algorithms(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).front().algo) == CUBLAS_STATUS_SUCCESS);
  float sum = 0; // row 3, column 5
  for (uint64_t q = 0; q < x.k; ++q)
    sum += x.host[0][3 + q * x.m] * x.host[1][q + 5 * x.k];
  EXPECT(x.get(x.memory[2], x.m * x.n)[3 + 5 * x.m] == sum);
}
PROBE(BlasSumsOfF16AreF32, "cublasLtMatmul: CUBLAS_COMPUTE_32F with CUDA_R_16F") {
  // 2048 + 1 + … + 1 stays 2048 where each sum is rounded to f16, and is 2079 in f32; as f16, 2080, rounded once.
  for (cudaDataType to : {CUDA_R_32F, CUDA_R_16F}) {
    Product x(p);
    constexpr unsigned short kOne = 0x3c00, kMany = 0x6800; // 2048
    std::vector<unsigned short> ones(x.m * x.k, kOne), left = ones;
    for (uint64_t i = 0; i < x.m; ++i)
      left[i] = kMany;
    for (auto [index, values] : {std::pair(size_t(0), &left), std::pair(size_t(1), &ones)}) {
      cu.memcpyHtoDAsync(x.memory[index], values->data(), values->size() * 2, p.stream);
      cu.streamSynchronize(p.stream);
    }
    for (size_t i = 0; i < 3; ++i) {
      lt.layoutDestroy(x.layouts[i]);
      EXPECT(lt.layoutCreate(&x.layouts[i], i == 2 ? to : CUDA_R_16F, 32, 32, 32) == CUBLAS_STATUS_SUCCESS);
    }
    EXPECT(x.submit(x.algorithms(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).front().algo) == CUBLAS_STATUS_SUCCESS);
    const float got = x.get(x.memory[2], 1)[0];
    unsigned short half = 0;
    std::memcpy(&half, &got, 2);
    EXPECT(to == CUDA_R_32F ? got == 2079 : half == 0x6810); // 2080
  }
}
PROBE(BlasAlgorithmsArePlainBytes, "cublasLtMatmulAlgo_t: stored, and restored for the same version") {
  std::vector<float> results[2];
  unsigned char bytes[sizeof(cublasLtMatmulAlgo_t)];
  for (int restored = 0; restored < 2; ++restored) {
    Product x(p, 64, 32, 512);
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
    results[restored] = x.get(x.memory[2], x.m * x.n);
  }
  EXPECT(results[0] == results[1]);
}
PROBE(BlasCheckRefusesAnotherProduct, "cublasLtMatmulAlgoCheck") {
  Product x(p), other(p, 32, 32, 48);
  const cublasLtMatmulAlgo_t nothing{};
  cublasLtMatmulHeuristicResult_t checked{};
  EXPECT(lt.algoCheck(x.handle, x.desc, x.layouts[0], other.layouts[1], x.layouts[2], x.layouts[2], &nothing,
                      &checked) != CUBLAS_STATUS_SUCCESS);
}
PROBE(BlasReductionMaskLeavesSchemesOut, "cublasLtMatmulPreferenceAttributes_t: REDUCTION_SCHEME_MASK") {
  Product x(p, 16, 16, 4096);
  for (uint32_t mask : {0u, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)})
    for (const cublasLtMatmulHeuristicResult_t &result : x.algorithms(mask))
      EXPECT((Product::schemeOf(result.algo) & ~mask) == 0);
}
PROBE(BlasSumsInTheComputeTypeRepeat, "cuBLAS: Results reproducibility; cublasLtReductionScheme_t") {
  Product x(p, 16, 16, 4096);
  for (const cublasLtMatmulHeuristicResult_t &result : x.algorithms(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) {
    std::vector<float> first;
    for (int run = 0; run < 8; ++run) {
      EXPECT(x.submit(result.algo) == CUBLAS_STATUS_SUCCESS);
      std::vector<float> got = x.get(x.memory[2], x.m * x.n);
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

/// A product with an epilogue: vectors and gelu's input are in memory of their own.
struct Finished : Product {
  CUdeviceptr vector = 0, auxiliary = 0;
  std::vector<float> bias, input;

  Finished(Program &program, cublasLtEpilogue_t epilogue, cublasComputeType_t compute = CUBLAS_COMPUTE_32F)
      : Product(program, 32, 16, 32) {
    lt.descDestroy(desc);
    EXPECT(lt.descCreate(&desc, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    bias = numbers(m, 5);
    input = numbers(m * n, 9);
    for (float &value : input)
      value *= 0.5f;
    vector = put(bias);
    auxiliary = put(input);
    const auto number = uint32_t(epilogue);
    const auto ld = int64_t(m);
    EXPECT(lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &number, sizeof number) == CUBLAS_STATUS_SUCCESS);
    EXPECT(lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector) ==
           CUBLAS_STATUS_SUCCESS);
    EXPECT(lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &auxiliary, sizeof auxiliary) ==
           CUBLAS_STATUS_SUCCESS);
    EXPECT(lt.descSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld) == CUBLAS_STATUS_SUCCESS);
  }
  Finished(const Finished &) = delete;
  Finished &operator=(const Finished &) = delete;
  ~Finished() {
    cu.ctxSynchronize();
    cu.memFree(vector);
    cu.memFree(auxiliary);
  }

  std::vector<float> run() {
    EXPECT(submit(algorithms(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).front().algo) == CUBLAS_STATUS_SUCCESS);
    return get(memory[2], m * n);
  }
  /// Exact: the numbers are small.
  float product(uint64_t row, uint64_t column) const {
    float sum = 0;
    for (uint64_t q = 0; q < k; ++q)
      sum += host[0][row + q * m] * host[1][q + column * k];
    return sum;
  }
};

bool near(double got, double wanted, double tolerance = 1e-3) {
  return std::abs(got - wanted) <= tolerance * std::max(1.0, std::abs(wanted));
}
double geluByTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

constexpr cublasComputeType_t kComputeTypes[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};

} // namespace

PROBE(BlasBiasIsOfARow, "cublasLtEpilogue_t: BIAS") {
  for (cublasComputeType_t compute : kComputeTypes) {
    Finished x(p, CUBLASLT_EPILOGUE_BIAS, compute);
    std::vector<float> got = x.run();
    for (uint64_t i = 0; i < got.size(); ++i)
      EXPECT(got[i] == x.product(i % x.m, i / x.m) + x.bias[i % x.m]);
  }
}
PROBE(BlasBiasIsAddedToTheSum, "cublasLtEpilogue_t: BIAS; when it is added is not documented") {
  // 2^24 - 2^24 is 0, and 1 afterwards; 1 + 2^24 would be rounded to 2^24.
  Finished x(p, CUBLASLT_EPILOGUE_BIAS);
  std::vector<float> left(x.m * x.k), right(x.k * x.n), one(x.m, 1);
  left[0] = 0x1p24f;
  left[x.m] = -0x1p24f;
  right[0] = right[1] = 1;
  cu.memcpyHtoDAsync(x.memory[0], left.data(), left.size() * 4, p.stream);
  cu.memcpyHtoDAsync(x.memory[1], right.data(), right.size() * 4, p.stream);
  cu.memcpyHtoDAsync(x.vector, one.data(), one.size() * 4, p.stream);
  EXPECT(x.run()[0] == 1);
}
PROBE(BlasGeluIsTanh, "cublasLtEpilogue_t: GELU_AUX_BIAS; no form is documented") {
  Finished x(p, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  // One product of 1 x -2.25: erf gives -0.02751, tanh -0.02776.
  std::vector<float> left(x.m * x.k), right(x.k * x.n), zero(x.m);
  left[0] = 1;
  right[0] = -2.25f;
  cu.memcpyHtoDAsync(x.memory[0], left.data(), left.size() * 4, p.stream);
  cu.memcpyHtoDAsync(x.memory[1], right.data(), right.size() * 4, p.stream);
  cu.memcpyHtoDAsync(x.vector, zero.data(), zero.size() * 4, p.stream);
  const float got = x.run()[0];
  EXPECT(std::abs(got - geluByTanh(-2.25)) < 5e-5);
  EXPECT(std::abs(got - 0.5 * -2.25 * std::erfc(2.25 / std::sqrt(2))) > 1e-4);
}
PROBE(BlasGeluKeepsItsInput, "cublasLtMatmulDescAttributes_t: EPILOGUE_AUX_POINTER, EPILOGUE_AUX_LD") {
  for (cublasComputeType_t compute : kComputeTypes) {
    Finished x(p, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, compute);
    std::vector<float> got = x.run(), kept = x.get(x.auxiliary, x.m * x.n);
    for (uint64_t i = 0; i < got.size(); ++i) {
      EXPECT(kept[i] == x.product(i % x.m, i / x.m) + x.bias[i % x.m]);
      EXPECT(near(got[i], geluByTanh(kept[i])));
    }
  }
}
namespace {
void multiplyByGeluGradient(Program &p, cublasComputeType_t compute) {
  Finished x(p, CUBLASLT_EPILOGUE_DGELU_BGRAD, compute);
  std::vector<float> got = x.run(), sums = x.get(x.vector, x.m);
  std::vector<double> wanted(x.m);
  for (uint64_t i = 0; i < got.size(); ++i) {
    const double slope = (geluByTanh(x.input[i] + 1e-6) - geluByTanh(x.input[i] - 1e-6)) / 2e-6;
    EXPECT(near(got[i], x.product(i % x.m, i / x.m) * slope));
    wanted[i % x.m] += got[i];
  }
  for (uint64_t i = 0; i < x.m; ++i)
    EXPECT(near(sums[i], wanted[i], 1e-2));
}
void sumFactor(Program &p, cublasComputeType_t compute) {
  Finished x(p, CUBLASLT_EPILOGUE_BGRADA, compute);
  std::vector<float> got = x.run(), sums = x.get(x.vector, x.m);
  EXPECT(got[3 + 5 * x.m] == x.product(3, 5));
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
    EXPECT(Finished(p, CUBLASLT_EPILOGUE_BGRADB, compute).offers(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).empty());
}
PROBE(BlasGeluGradientAndItsSums, "cublasLtEpilogue_t: DGELU_BGRAD") {
  multiplyByGeluGradient(p, CUBLAS_COMPUTE_32F);
}
PROBE(BlasGeluGradientAndItsSumsInTf32, "cublasLtEpilogue_t: DGELU_BGRAD") {
  multiplyByGeluGradient(p, CUBLAS_COMPUTE_32F_FAST_TF32);
}
PROBE(BlasSumsOfA, "cublasLtEpilogue_t: BGRADA") { sumFactor(p, CUBLAS_COMPUTE_32F); }
PROBE(BlasSumsOfAInTf32, "cublasLtEpilogue_t: BGRADA") {
  sumFactor(p, CUBLAS_COMPUTE_32F_FAST_TF32);
}

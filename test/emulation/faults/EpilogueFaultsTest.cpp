//===- EpilogueFaultsTest.cpp - epilogues of products, and mistakes ------===//
//
// Each epilogue of cuBLASLt's stand-in against sums in f64; and programs with one mistake each around the bias and
// gelu's input, beside the smallest change that mends them.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/faults/BlasScene.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

namespace {

/// Submits an 8 × 8 × 8 product with an epilogue; bias and auxiliary matrix have memory of their own.
struct Finished {
  Extra c{256}, vector{256}, auxiliary{1024};
  Product p;
  explicit Finished(Scene &s, cublasLtEpilogue_t epilogue) {
    giveValues(s);
    p.epilogue = epilogue;
    p.vector = vector.address;
    p.auxiliary = auxiliary.address;
  }
  void run(Scene &s) {
    p.open();
    p.submit(s.a, s.b, c.address, s.one);
    cuCtxSynchronize();
    p.close();
  }
  /// If `wrong`, makes `pointer` point to uninitialised memory; then runs.
  void runWithFresh(Scene &s, CUdeviceptr &pointer, bool wrong) {
    CUdeviceptr fresh = 0;
    cuMemAlloc_v2(&fresh, 256);
    if (wrong)
      pointer = fresh;
    run(s);
    cuMemFree_v2(fresh);
  }
};

const Planted kMistakes[] = {
    {"BiasWithoutAPointer", "misuse",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_BIAS);
       if (wrong)
         f.p.vector = 0;
       f.run(s);
     }},
    {"BiasBehindTheEnd", "out-of-bounds",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_GELU_BIAS);
       f.p.vector += wrong ? 240 : 224; // 8 values
       f.run(s);
     }},
    {"BiasesOfABatchBehindTheEnd", "out-of-bounds",
     [](Scene &s, bool wrong) {
       Extra factors(512), result(512), vector(64);
       Finished f(s, CUBLASLT_EPILOGUE_BIAS);
       f.p.batch = 2;
       f.p.vector = vector.address + (wrong ? 4 : 0); // two biases of 8 values fill it
       f.p.vectorStride = 8;
       f.p.open();
       f.p.submit(factors.address, factors.address, result.address, s.one);
       cuCtxSynchronize();
       f.p.close();
     }},
    {"BiasesOfABatchThatOverlap", "misuse",
     [](Scene &s, bool wrong) {
       Extra factors(512), result(512);
       Finished f(s, CUBLASLT_EPILOGUE_BIAS);
       f.p.batch = 2;
       f.p.vectorStride = wrong ? 7 : 8;
       f.p.open();
       f.p.submit(factors.address, factors.address, result.address, s.one);
       cuCtxSynchronize();
       f.p.close();
     }},
    {"BiasInsideAnElement", "misuse",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_BIAS);
       f.p.vector += wrong ? 2 : 4;
       f.run(s);
     }},
    {"BiasLessAlignedThanWhenAsked", "misaligned",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_BIAS);
       f.p.open();
       f.p.vector += wrong ? 4 : 0;
       cublasLtMatmulDescSetAttribute(f.p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &f.p.vector, 8);
       f.p.submit(s.a, s.b, f.c.address, s.one);
       cuCtxSynchronize();
       f.p.close();
     }},
    {"BiasThatNobodyWrote", "uninitialised-read",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_BIAS);
       f.runWithFresh(s, f.p.vector, wrong);
     }},
    {"GeluInputThatNobodyWrote", "uninitialised-read",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_DGELU_BGRAD);
       f.runWithFresh(s, f.p.auxiliary, wrong);
     }},
    {"RowsOfGeluInputNotInEights", "misuse",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
       f.p.auxiliaryLd = wrong ? 12 : 16;
       f.run(s);
     }},
    {"RowsOfGeluInputTooClose", "misuse",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_DGELU_BGRAD);
       f.p.auxiliaryLd = wrong ? 0 : 8;
       f.run(s);
     }},
    {"GeluInputBehindTheEnd", "out-of-bounds",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
       f.p.auxiliary += wrong ? 1024 - 128 : 1024 - 256;
       f.run(s);
     }},
    {"GeluInputOverTheResult", "misuse",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
       if (wrong)
         f.p.auxiliary = f.c.address;
       f.run(s);
     }},
    {"SumsOverAFactor", "misuse",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_BGRADA);
       if (wrong)
         f.p.vector = s.a;
       f.run(s);
     }},
    {"SumsReadTooEarly", "unordered-work",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_DGELU_BGRAD);
       f.p.open();
       f.p.submit(s.a, s.b, f.c.address, s.one);
       cuEventRecord(s.event, s.one);
       if (!wrong)
         cuStreamWaitEvent(s.two, s.event, 0);
       cuMemcpyDtoHAsync_v2(s.pinned, f.vector.address, 32, s.two);
       cuCtxSynchronize();
       f.p.close();
     }},
    {"AlgorithmWithoutTheEpilogue", "misuse",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_BIAS);
       Product plain;
       plain.open();
       f.p.open();
       if (wrong)
         f.p.found = plain.found;
       f.p.submit(s.a, s.b, f.c.address, s.one);
       cuCtxSynchronize();
       f.p.close();
       plain.close();
     }},
    {"EpilogueOfABatch", "misuse",
     [](Scene &s, bool wrong) {
       Finished f(s, CUBLASLT_EPILOGUE_GELU_BIAS); // only plain biases may be batched
       f.p.batch = wrong ? 2 : 1;
       f.p.m = f.p.n = f.p.k = 4;
       f.run(s);
     }},
};

class EpilogueFaults : public testing::TestWithParam<Planted> {};

TEST_P(EpilogueFaults, AreFoundByName) { expectFound(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Emulation, EpilogueFaults, testing::ValuesIn(kMistakes),
                         [](auto &info) { return info.param.name; });

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double geluDerivative(double x) { return (gelu(x + 1e-6) - gelu(x - 1e-6)) / 2e-6; }

struct Matrix {
  std::vector<double> values; ///< column-major
  uint64_t rows;
  double at(uint64_t row, uint64_t column) const { return values[row + column * rows]; }
};

class Epilogues : public testing::TestWithParam<std::tuple<cublasLtEpilogue_t, cudaDataType>> {};

TEST_P(Epilogues, ComputeWhatTheirNamesSay) {
  auto [epilogue, type] = GetParam();
  const uint64_t m = 16, n = 5, k = 7, size = elementBytes(type);
  Scene scene(1);
  {
    auto fill = [&](CUdeviceptr to, uint64_t rows, uint64_t columns, size_t salt) {
      Matrix matrix{{}, rows};
      std::vector<std::byte> bytes(rows * columns * size);
      for (size_t i = 0; i < rows * columns; ++i) {
        matrix.values.push_back((double((i + salt) * 2654435761u >> 7 & 7) - 3.5) / 4);
        put(&bytes[i * size], matrix.values.back(), type);
      }
      cuMemcpyHtoDAsync_v2(to, bytes.data(), bytes.size(), scene.one);
      cuStreamSynchronize(scene.one);
      return matrix;
    };
    auto fetch = [&](CUdeviceptr from, uint64_t rows, uint64_t columns) {
      Matrix matrix{{}, rows};
      std::vector<std::byte> bytes(rows * columns * size);
      cuMemcpyDtoHAsync_v2(bytes.data(), from, bytes.size(), scene.one);
      cuStreamSynchronize(scene.one);
      for (size_t i = 0; i < rows * columns; ++i)
        matrix.values.push_back(get(&bytes[i * size], type));
      return matrix;
    };
    Extra a(m * k * size), b(k * n * size), c(m * n * size), vector(m * size), auxiliary(m * n * size);
    const Matrix left = fill(a.address, m, k, 1), right = fill(b.address, k, n, 50),
                 bias = fill(vector.address, m, 1, 99), given = fill(auxiliary.address, m, n, 123);
    Product p;
    p.m = m, p.n = n, p.k = k, p.type = p.result = type;
    p.epilogue = epilogue;
    p.vector = vector.address;
    p.auxiliary = auxiliary.address;
    p.auxiliaryLd = m;
    p.open();
    ASSERT_EQ(p.submit(a.address, b.address, c.address, scene.one), CUBLAS_STATUS_SUCCESS);
    const Matrix result = fetch(c.address, m, n), kept = fetch(auxiliary.address, m, n),
                 sums = fetch(vector.address, m, 1);
    const double tolerance = type == CUDA_R_32F ? 1e-5 : 2e-2;
    const bool adds = epilogue & CUBLASLT_EPILOGUE_BIAS,
               derivative = epilogue == CUBLASLT_EPILOGUE_DGELU || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
    std::vector<double> ofRows(m), ofA(m), ofB(n);
    for (uint64_t j = 0; j < n; ++j)
      for (uint64_t i = 0; i < m; ++i) {
        double sum = adds ? bias.at(i, 0) : 0;
        for (uint64_t q = 0; q < k; ++q)
          sum += left.at(i, q) * right.at(q, j);
        if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          EXPECT_NEAR(kept.at(i, j), sum, tolerance);
        }
        const double wanted = epilogue & 32 ? gelu(sum) : derivative ? sum * geluDerivative(given.at(i, j)) : sum;
        EXPECT_NEAR(result.at(i, j), wanted, tolerance * std::max(1.0, std::abs(wanted))) << i << ", " << j;
        ofRows[i] += wanted;
      }
    for (uint64_t q = 0; q < k; ++q) {
      for (uint64_t i = 0; i < m; ++i)
        ofA[i] += left.at(i, q);
      for (uint64_t j = 0; j < n; ++j)
        ofB[j] += right.at(q, j);
    }
    const std::vector<double> *wanted = epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD ? &ofRows
                                        : epilogue == CUBLASLT_EPILOGUE_BGRADA    ? &ofA
                                        : epilogue == CUBLASLT_EPILOGUE_BGRADB    ? &ofB
                                                                                  : nullptr;
    for (size_t i = 0; wanted && i < wanted->size(); ++i)
      EXPECT_NEAR(sums.values[i], (*wanted)[i], 4 * tolerance) << i;
    p.close();
  }
  EXPECT_EQ(Scene::faults(), "");
}
TEST(BatchedEpilogue, AddsTheBiasOfAll) {
  for (bool ofEach : {false, true}) {
    Scene scene(1);
    {
      Extra factors(512), result(512), vector(64);
      std::vector<float> biases(16);
      for (size_t i = 0; i < biases.size(); ++i)
        biases[i] = float(i) + 1;
      cuMemcpyHtoDAsync_v2(vector.address, biases.data(), 64, scene.one);
      cuStreamSynchronize(scene.one);
      Product p;
      p.batch = 2;
      p.epilogue = CUBLASLT_EPILOGUE_BIAS;
      p.vector = vector.address;
      p.vectorStride = ofEach ? 8 : 0;
      p.open();
      ASSERT_EQ(p.submit(factors.address, factors.address, result.address, scene.one), CUBLAS_STATUS_SUCCESS);
      std::vector<float> got(128);
      cuMemcpyDtoHAsync_v2(got.data(), result.address, 512, scene.one);
      cuStreamSynchronize(scene.one);
      for (size_t i = 0; i < got.size(); ++i) // the product is 0, so that only the bias is left
        EXPECT_EQ(got[i], biases[i % 8 + (ofEach && i >= 64 ? 8 : 0)]) << i;
      p.close();
    }
    EXPECT_EQ(Scene::faults(), "");
  }
}

std::string nameOf(const testing::TestParamInfo<Epilogues::ParamType> &info) {
  return "Number" + std::to_string(int(std::get<0>(info.param))) +
         (std::get<1>(info.param) == CUDA_R_32F   ? "F32"
          : std::get<1>(info.param) == CUDA_R_16F ? "F16"
                                                  : "Bf16");
}
INSTANTIATE_TEST_SUITE_P(Emulation, Epilogues,
                         testing::Combine(testing::Values(CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS,
                                                          CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                                          CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA),
                                          testing::Values(CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F)),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Narrow, Epilogues,
                         testing::Combine(testing::Values(CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB),
                                          testing::Values(CUDA_R_16BF, CUDA_R_16F)),
                         nameOf);

} // namespace

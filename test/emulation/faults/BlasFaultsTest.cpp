//===- BlasFaultsTest.cpp - products, and planted mistakes around them ---===//
//
// cuBLASLt's stand-in against sums in f64, in every type that it multiplies; and programs with one mistake each, which it
// must name, beside the smallest change that mends them.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/faults/BlasScene.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

namespace {

const Planted kPlanted[] = {
    {"NoWaitForAFactor", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(256);
       Product p;
       p.open();
       cuMemcpyHtoDAsync_v2(s.a, s.pinned, Scene::kBytes, s.one);
       cuEventRecord(s.event, s.one);
       if (!wrong)
         cuStreamWaitEvent(s.two, s.event, 0);
       p.submit(s.a, s.b, c.address, s.two);
       cuCtxSynchronize();
       p.close();
     }},
    {"AFactorWithoutAValue", "uninitialised-read",
     [](Scene &s, bool wrong) {
       if (!wrong)
         giveValues(s);
       else
         cuMemsetD8Async(s.a, 0, Scene::kBytes, s.one);
       Extra c(256);
       Product p;
       p.open();
       p.submit(s.a, s.b, c.address, s.one);
       cuStreamSynchronize(s.one);
       p.close();
     }},
    {"OneWorkspaceForTwoStreams", "unordered-work",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(256), d(256), workspace(4096), other(4096);
       Product p;
       p.workspaceBytes = 1024;
       p.open();
       p.submit(s.a, s.b, c.address, s.one, workspace.address);
       p.submit(s.a, s.b, d.address, s.two, wrong ? workspace.address : other.address);
       cuCtxSynchronize();
       p.close();
     }},
    {"WorkspaceOverAFactor", "misuse",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(256), workspace(2048);
       Product p;
       p.workspaceBytes = 256;
       p.open();
       p.submit(s.a, s.b, c.address, s.one, wrong ? s.b : workspace.address);
       cuCtxSynchronize();
       p.close();
     }},
    {"WorkspaceBehindTheEnd", "out-of-bounds",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(256), workspace(wrong ? 512 : 1024);
       Product p;
       p.workspaceBytes = 1024;
       p.open();
       p.submit(s.a, s.b, c.address, s.one, workspace.address);
       cuCtxSynchronize();
       p.close();
     }},
    {"AlgorithmOfAnotherProduct", "misuse",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(256);
       Product p, other;
       p.open();
       other.transA = true;
       other.open();
       if (wrong)
         p.found = other.found;
       p.submit(s.a, s.b, c.address, s.one);
       cuCtxSynchronize();
       other.close();
       p.close();
     }},
    {"AlgorithmOfAnotherVersion", "misuse",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(256);
       Product p;
       p.open();
       const cublasLtMatmulAlgo_t stored = p.found.algo;
       p.close();
       if (wrong)
         standIn().options.blasVersion += 100;
       Product again;
       again.open();
       again.found.algo = stored;
       again.submit(s.a, s.b, c.address, s.one);
       cuCtxSynchronize();
       again.close();
     }},
    {"LessAlignedThanPromised", "misaligned",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(512);
       Product p;
       p.alignment = wrong ? 256 : 4;
       p.open();
       p.submit(s.a, s.b, c.address + 4, s.one);
       cuCtxSynchronize();
       p.close();
     }},
    {"ResultOverAFactor", "misuse",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(256);
       Product p;
       p.open();
       p.submit(s.a, s.b, wrong ? s.a : c.address, s.one);
       cuCtxSynchronize();
       p.close();
     }},
    {"ResultTooLarge", "out-of-bounds",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(wrong ? 128 : 256);
       Product p;
       p.open();
       p.submit(s.a, s.b, c.address, s.one);
       cuCtxSynchronize();
       p.close();
     }},
    {"TypesThatAreNoProduct", "misuse",
     [](Scene &, bool wrong) {
       Product p;
       p.compute = wrong ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
       p.open();
       p.close();
     }},
    {"LayoutAfterItsEnd", "use-after-free",
     [](Scene &s, bool wrong) {
       giveValues(s);
       Extra c(256);
       Product p;
       p.open();
       if (wrong) {
         cublasLtMatrixLayoutDestroy(p.b);
         p.submit(s.a, s.b, c.address, s.one);
         p.layout(p.b, CUDA_R_32F, 8, 8);
       }
       p.submit(s.a, s.b, c.address, s.one);
       cuCtxSynchronize();
       p.close();
     }},
    {"LayoutLeft", "leak",
     [](Scene &s, bool wrong) {
       Product p;
       p.open();
       p.close();
       if (wrong)
         p.layout(p.a, CUDA_R_32F, 8, 8);
       s.close();
     }},
};

class BlasFaults : public testing::TestWithParam<Planted> {};

TEST_P(BlasFaults, AreFoundByName) {
  expectFound(GetParam());
}
INSTANTIATE_TEST_SUITE_P(Emulation, BlasFaults, testing::ValuesIn(kPlanted), [](auto &info) { return info.param.name; });

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//
/// Multiplies numbers with so few bits that every sum is exact, and compares every element.
void expectExact(Product p, bool accumulate) {
  SCOPED_TRACE(testing::Message() << p.m << "x" << p.n << "x" << p.k << " types " << p.type << " " << p.result << " trans "
                                  << p.transA << p.transB << " batch " << p.batch << " compute " << p.compute << " add "
                                  << accumulate);
  Scene scene(1);
  const size_t of = size_t(p.batch), aBytes = of * p.m * p.k * elementBytes(p.type), bBytes = of * p.k * p.n * elementBytes(p.type),
               cBytes = of * p.m * p.n * elementBytes(p.result);
  {
    Extra a(aBytes), b(bBytes), c(cBytes), workspace(1 << 16);
    std::vector<std::byte> hostA(aBytes), hostB(bBytes), hostC(cBytes);
    auto number = [](size_t i) { return double(i * 2654435761u >> 7 & 7) - 3; };
    for (size_t i = 0; i < aBytes / elementBytes(p.type); ++i)
      put(&hostA[i * elementBytes(p.type)], number(i), p.type);
    for (size_t i = 0; i < bBytes / elementBytes(p.type); ++i)
      put(&hostB[i * elementBytes(p.type)], number(i + 77) / 2, p.type);
    for (size_t i = 0; i < cBytes / elementBytes(p.result); ++i)
      put(&hostC[i * elementBytes(p.result)], accumulate ? number(i + 5) : NAN, p.result);
    for (auto &[to, from] : {std::pair(a.address, &hostA), std::pair(b.address, &hostB), std::pair(c.address, &hostC)})
      cuMemcpyHtoDAsync_v2(to, from->data(), from->size(), scene.one);
    p.workspaceBytes = 1 << 16;
    p.open();
    ASSERT_EQ(p.submit(a.address, b.address, c.address, scene.one, workspace.address, accumulate ? 1 : 0),
              CUBLAS_STATUS_SUCCESS);
    std::vector<std::byte> got(cBytes);
    cuMemcpyDtoHAsync_v2(got.data(), c.address, cBytes, scene.one);
    cuStreamSynchronize(scene.one);
    for (size_t batch = 0; batch < of; ++batch)
      for (size_t j = 0; j < p.n; ++j)
        for (size_t i = 0; i < p.m; ++i) {
          double sum = 0;
          for (size_t q = 0; q < p.k; ++q) {
            size_t atA = batch * p.m * p.k + (p.transA ? q + i * p.k : i + q * p.m),
                   atB = batch * p.k * p.n + (p.transB ? j + q * p.n : q + j * p.k);
            sum += get(&hostA[atA * elementBytes(p.type)], p.type) * get(&hostB[atB * elementBytes(p.type)], p.type);
          }
          size_t at = batch * p.m * p.n + i + j * p.m;
          if (accumulate)
            sum += get(&hostC[at * elementBytes(p.result)], p.result);
          ASSERT_EQ(get(&got[at * elementBytes(p.result)], p.result), sum) << "element " << i << ", " << j;
        }
    p.close();
  }
  EXPECT_EQ(Scene::faults(), "");
}

TEST(Blas, MultipliesEveryType) {
  struct Types {
    cudaDataType type, result;
    cublasComputeType_t compute;
  };
  for (auto [type, result, compute] : {Types{CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                                       {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
                                       {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
                                       {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                                       {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F},
                                       {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                                       {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F}})
    for (int form = 0; form < 8; ++form) {
      Product p;
      p.type = type;
      p.result = result;
      p.compute = compute;
      p.transA = form & 1;
      p.transB = form & 2;
      p.batch = form & 4 ? 3 : 1;
      p.m = 3, p.n = 5, p.k = 7; // a result in bf16 holds sums of seven such products
      expectExact(p, form & 1);
      if (result != CUDA_R_16BF) {
        p.m = 4, p.n = 2, p.k = 130; // long enough to be split along K
        expectExact(p, form & 2);
      }
    }
}

// In-place reductions change their order from call to call; only the preference's mask excludes them.
TEST(Blas, SumsInPlaceHaveNoFixedOrder) {
  for (uint32_t schemes : {uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), 7u}) {
    Scene scene(1);
    std::set<std::vector<float>> results;
    {
      Product p;
      p.m = 16, p.n = 1, p.k = 4096;
      p.workspaceBytes = 4096;
      p.schemes = schemes;
      Extra a(p.m * p.k * 4), b(p.k * 4), c(256), workspace(4096);
      std::vector<float> left(p.m * p.k), right(p.k, 1), got(p.m);
      for (size_t i = 0; i < left.size(); ++i)
        left[i] = 1 / float(i + 1);
      cuMemcpyHtoDAsync_v2(a.address, left.data(), left.size() * 4, scene.one);
      cuMemcpyHtoDAsync_v2(b.address, right.data(), p.k * 4, scene.one);
      p.open();
      for (int run = 0; run < 8; ++run) {
        p.submit(a.address, b.address, c.address, scene.one, workspace.address);
        cuMemcpyDtoHAsync_v2(got.data(), c.address, p.m * 4, scene.one);
        cuStreamSynchronize(scene.one);
        results.insert(got);
      }
      p.close();
    }
    EXPECT_EQ(results.size(), schemes == 7 ? 2u : 1u);
    EXPECT_EQ(Scene::faults(), "");
  }
}

TEST(Blas, RoundsOperandsToTf32) {
  Scene scene(1);
  Extra a(256), b(256), c(256);
  // 1 + 2⁻¹¹ lies between two TF32 numbers, the even one is 1; 1 + 3·2⁻¹¹ goes to 1 + 2⁻⁹.
  float left[64] = {1 + 0x1p-11f, 1 + 3 * 0x1p-11f}, right[64] = {1};
  cuMemcpyHtoDAsync_v2(a.address, left, 256, scene.one);
  cuMemcpyHtoDAsync_v2(b.address, right, 256, scene.one);
  for (auto compute : {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32}) {
    Product p;
    p.compute = compute;
    p.open();
    p.submit(a.address, b.address, c.address, scene.one);
    float got[64];
    cuMemcpyDtoHAsync_v2(got, c.address, 256, scene.one);
    cuStreamSynchronize(scene.one);
    bool rounded = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    EXPECT_EQ(got[0], rounded ? 1.0f : left[0]);
    EXPECT_EQ(got[1], rounded ? 1 + 0x1p-9f : left[1]);
    p.close();
  }
}

} // namespace

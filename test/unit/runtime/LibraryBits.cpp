//===- LibraryBits.cpp - prints hashes of library results ----------------===//
//
// Usage: library-bits THREADS. Run under several environments, its output must be the same text.
//
//===----------------------------------------------------------------------===//
#include "LibraryFixture.h"

#include "runtime/plan/PlanFile.h"

using namespace tcc;
using namespace tcc::test;

namespace {
template <typename Call>
bool print(const std::string &name, const Call &call, size_t first, size_t second, size_t result, unsigned threads) {
  Floats a = randomFloats(first, 1), b = randomFloats(second, 2), c(result);
  std::string problem = runCall(call, a, b, c, threads);
  fmt::print("{}: {}\n", name,
             problem.empty() ? fmt::format("{:016x}", plan::hashBytes(c.get(), result * 4)) : problem);
  return problem.empty();
}

bool matmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool transA, bool transB, unsigned threads) {
  return print(fmt::format("matmul {}x{}x{}x{} {}{}", batch, m, n, k, transA, transB),
               matmulCall(batch, m, n, k, transA, transB), static_cast<size_t>(batch * m * k),
               static_cast<size_t>(batch * k * n), static_cast<size_t>(batch * m * n), threads);
}

bool convolution(const ConvolutionShape &shape, unsigned threads) {
  bool good = true;
  for (auto kind : {plan::ConvolutionCall::FORWARD, plan::ConvolutionCall::INPUT_GRADIENT,
                    plan::ConvolutionCall::WEIGHT_GRADIENT}) {
    plan::ConvolutionCall call = convolutionCall(shape, kind);
    size_t x = elements(call.x_dims()), w = elements(call.w_dims()), y = elements(call.y_dims());
    bool forward = kind == plan::ConvolutionCall::FORWARD, toInput = kind == plan::ConvolutionCall::INPUT_GRADIENT;
    good &= print(fmt::format("convolution {} kind {}", fmt::join(shape.w, "x"), static_cast<int>(kind)), call,
                  toInput ? y : x, forward || toInput ? w : y,
                  forward   ? y
                  : toInput ? x
                            : w,
                  threads);
  }
  return good;
}
} // namespace

int main(int argc, char **argv) {
  auto threads = static_cast<unsigned>(argc > 1 ? std::atoi(argv[1]) : 1);
  bool good = matmul(1, 10, 64, 8192, true, false, threads); // a weight gradient of few elements
  good &= matmul(1, 64, 10, 8192, true, false, threads);
  good &= matmul(1, 256, 768, 768, false, false, threads);
  good &= matmul(1, 300, 500, 1600, false, true, threads);
  good &= matmul(1, 120, 3200, 200, false, false, threads); // on packed panels
  good &= matmul(1, 8, 777, 500, false, true, threads); // of few rows
  good &= matmul(1, 8, 500, 777, false, false, threads);
  good &= matmul(48, 64, 64, 64, true, false, threads);
  good &= convolution({{32, 64, 32, 32}, {64, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}, threads);
  good &= convolution({{9, 6, 14, 15}, {10, 3, 3, 3}, {2, 1}, {1, 2}, {1, 0}, {2, 1}, 2}, threads);
  return good ? 0 : 1;
}

//===- QuotientsTest.cpp - divisions and roots without branches -----------===//
//
// Kernels compute them by a fast path that is exact for usual numbers, and recompute the rest
// (compiler/codegen/ExactQuotients.cpp). Results must have the CPU's bits: for special numbers, and if the elements of
// one thread take both paths.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/kernels/EmulatedFunctions.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace tcc;
using tcc::train::HostTensor;

namespace {

float number(uint32_t bits) { return std::bit_cast<float>(bits); }

/// Zeros, subnormal numbers, the ends of the usual ranges, infinities and NaN, of both signs.
std::vector<float> specialNumbers() {
  std::vector<float> all;
  for (float x : {0.0f,
                  number(1),
                  number(0x7fffff),
                  0x1p-126f,
                  0x1.fffffep-125f,
                  0x1p-124f,
                  0x1p-101f,
                  0x1p-100f,
                  0.5f,
                  1.0f,
                  0x1.fffffep0f,
                  3.0f,
                  0x1p63f,
                  0x1p124f,
                  0x1p125f,
                  0x1p126f,
                  0x1p127f,
                  0x1.fffffep127f,
                  float(INFINITY),
                  float(NAN)})
    all.insert(all.end(), {x, -x});
  return all;
}

struct Operands {
  std::vector<float> a, b;
  void add(float x, float y) {
    a.push_back(x);
    b.push_back(y);
  }
};

Operands mixedOperands() {
  Operands operands;
  std::mt19937 random(3);
  const std::vector<float> special = specialNumbers();
  for (float x : special)
    for (float y : special) {
      operands.add(x, y);
      operands.add(number(0x3f800000 | (random() & 0x7fffff)), number(0x3f800000 | (random() & 0x7fffff)));
    }
  for (int i = 0; i < 20000; ++i)
    operands.add(number(uint32_t(random())), number(uint32_t(random())));
  while (operands.a.size() % 256)
    operands.add(1, 3);
  return operands;
}

uint32_t bitsOf(float x) { return std::isnan(x) ? 0x7fffffff : std::bit_cast<uint32_t>(x); }

TEST(Quotients, HaveTheProcessorsBits) {
  const Operands operands = mixedOperands();
  const std::string type = "tensor<" + std::to_string(operands.a.size()) + "xf32>";
  const test::Case program{"quotients",
                           "(%a: " + type + ", %b: " + type + ") -> (" + type + ", " + type + ", " + type + ")",
                           "%q = train.div %a, %b : " + type + "\n%s = train.sqrt %a : " + type +
                               "\n%one = train.constant dense<1.0> : " + type + "\n%r = train.div %one, %b : " + type,
                           test::Types::None,
                           {},
                           "%q, %s, %r"};
  auto module = test::parseCase(program, "");
  ASSERT_TRUE(module);
  test::EmulatedFunctions emulated({true, emulation::ThreadOrder::Ascending, 1});
  emulated.add(*module);
  ASSERT_TRUE(emulated.compile());
  std::vector<HostTensor> arguments;
  for (const std::vector<float> *values : {&operands.a, &operands.b}) {
    arguments.emplace_back(
        mlir::RankedTensorType::get({int64_t(values->size())}, mlir::Float32Type::get(&test::testContext())));
    std::copy(values->begin(), values->end(), reinterpret_cast<float *>(arguments.back().data()));
  }
  const std::vector<HostTensor> results = emulated.run(*module, arguments);
  ASSERT_EQ(results.size(), 3u);
  const auto *quotients = reinterpret_cast<const float *>(results[0].data());
  const auto *roots = reinterpret_cast<const float *>(results[1].data());
  const auto *reciprocals = reinterpret_cast<const float *>(results[2].data());
  for (size_t i = 0; i < operands.a.size(); ++i) {
    const float a = operands.a[i], b = operands.b[i];
    ASSERT_EQ(bitsOf(quotients[i]), bitsOf(a / b)) << a << " / " << b;
    ASSERT_EQ(bitsOf(roots[i]), bitsOf(std::sqrt(a))) << "root of " << a;
    ASSERT_EQ(bitsOf(reciprocals[i]), bitsOf(1 / b)) << "1 / " << b;
  }
}

} // namespace

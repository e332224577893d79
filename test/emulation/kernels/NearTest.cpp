//===- NearTest.cpp - functions for results of 16 bits --------------------===//
//
// Ops marked kOfNarrow over every bf16 and f16. On the stand-in the card's approximations are the nearest results, so
// kernels have the bits of the same forms on the host, whose error test/kernels/NearFunctions.cpp bounds.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/kernels/EmulatedFunctions.h"
#include "test/support/NearFunctionTable.h"

#include <gtest/gtest.h>

using namespace tcc;
using tcc::test::HostLane;
using tcc::train::HostTensor;

namespace {

TEST(Near, KernelsHaveTheBitsOfTheNearForms) {
  test::EmulatedFunctions emulated({true, emulation::ThreadOrder::Ascending, 1});
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules;
  for (const test::NearFunction &function : test::nearFunctions())
    for (const test::NarrowType &type : {test::kBf16, test::kF16}) {
      const std::string narrow = std::string("tensor<65536x") + type.name + ">", wide = "tensor<65536xf32>";
      const test::Case program{"near", "(%a: " + narrow + ") -> " + narrow,
                               "%x = train.cast %a : " + narrow + " -> " + wide + "\n%y = train." + function.op +
                                   " %x {" + (function.tanh ? "tanh = true, " : "") + "train.of_narrow} : " + wide +
                                   "\n%r = train.cast %y : " + wide + " -> " + narrow,
                               test::Types::None};
      modules.push_back(test::parseCase(program, ""));
      ASSERT_TRUE(modules.back());
      emulated.add(*modules.back());
    }
  ASSERT_TRUE(emulated.compile());
  auto module = modules.begin();
  for (const test::NearFunction &function : test::nearFunctions())
    for (const test::NarrowType &type : {test::kBf16, test::kF16}) {
      SCOPED_TRACE(function.name() + ", " + type.name);
      auto &context = test::testContext();
      mlir::Type element = type.digits == 7 ? mlir::Type(mlir::BFloat16Type::get(&context))
                                            : mlir::Type(mlir::Float16Type::get(&context));
      HostTensor argument(mlir::RankedTensorType::get({65536}, element));
      for (uint32_t bits = 0; bits < 65536; ++bits)
        reinterpret_cast<uint16_t *>(argument.data())[bits] = uint16_t(bits);
      const std::vector<HostTensor> results = emulated.run(**module++, {argument});
      ASSERT_EQ(results.size(), 1u);
      for (uint32_t bits = 0; bits < 65536; ++bits) {
        const double x = test::widened(type, bits), got = results[0].getDouble(bits);
        const double near = function.near(HostLane::single(float(x))).f, wanted = double(test::roundedTo(type, near));
        if (std::isnan(near))
          ASSERT_TRUE(std::isnan(got)) << x;
        else
          ASSERT_TRUE(got == wanted && std::signbit(got) == std::signbit(near))
              << x << ": " << got << ", not " << wanted;
      }
    }
}

} // namespace

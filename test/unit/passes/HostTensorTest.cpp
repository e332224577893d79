//===- HostTensorTest.cpp - elements against LLVM's APFloat and APInt -----===//
#include "compiler/dialect/HostTensor.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/APFloat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

using namespace mlir;

namespace {

TEST(HostTensor, ReadsEveryNumberOfSixteenBits) {
  MLIRContext context;
  constexpr int64_t kPatterns = 1 << 16;
  for (FloatType type : {FloatType(BFloat16Type::get(&context)), FloatType(Float16Type::get(&context))}) {
    tcc::train::HostTensor tensor(RankedTensorType::get({kPatterns}, type));
    for (int64_t bits = 0; bits < kPatterns; ++bits) {
      const auto pattern = uint16_t(bits);
      std::memcpy(tensor.data() + 2 * bits, &pattern, sizeof(pattern));
      const llvm::APFloat expected(type.getFloatSemantics(), llvm::APInt(16, uint64_t(bits)));
      const double value = tensor.getDouble(bits);
      if (expected.isNaN()) {
        EXPECT_TRUE(std::isnan(value)) << bits;
        continue;
      }
      EXPECT_EQ(value, expected.convertToDouble()) << bits;
      EXPECT_EQ(std::signbit(value), expected.isNegative()) << bits;
    }
  }
}

} // namespace

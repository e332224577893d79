//===- DTypeTest.cpp - element sizes, names and fills --------------------===//
#include "runtime/plan/DType.h"
#include "runtime/plan/Roles.h"
#include "support/PlanNames.h"

#include <cctype>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace tcc::plan;

namespace {
template <typename T> T filled(DType dtype, double value) {
  T result[3] = {};
  fillElements(result, dtype, 2, value);
  EXPECT_EQ(result[0], result[1]);
  EXPECT_EQ(result[2], T{}) << "it wrote too far";
  return result[0];
}
} // namespace

TEST(DType, NamesAndSizesAgree) {
  for (int i = F64; i <= I1; ++i) {
    auto dtype = static_cast<DType>(i);
    EXPECT_GT(dtypeBytes(dtype), 0u);
    EXPECT_EQ(dtypeFromName(dtypeName(dtype)), dtype);
  }
  EXPECT_EQ(dtypeBytes(DTYPE_NONE), 0u);
  EXPECT_FALSE(dtypeFromName("float32").has_value());
  EXPECT_EQ(dtypeName(BF16), "bf16");
}

TEST(DType, TensorSizes) {
  TensorType type;
  type.set_dtype(F32);
  EXPECT_EQ(tensorBytes(type), 4u); // a scalar
  for (int64_t dim : {3, 1, 5})
    type.add_dims(dim);
  EXPECT_EQ(tensorBytes(type), 60u);
  EXPECT_EQ(typeName(type), "f32[3x1x5]");
  type.set_dims(0, -3);
  EXPECT_FALSE(tensorBytes(type).has_value());
  type.set_dims(0, int64_t(1) << 40);
  type.set_dims(1, int64_t(1) << 40); // beyond 64 bits
  EXPECT_FALSE(tensorBytes(type).has_value());
}

/// Half precision: ties to even, subnormals, the largest value, overflow, signed zero.
TEST(DType, FillsRoundToNearestEven) {
  EXPECT_EQ(filled<uint16_t>(F16, 1.0), 0x3c00);
  EXPECT_EQ(filled<uint16_t>(F16, -2.5), 0xc100);
  EXPECT_EQ(filled<uint16_t>(F16, 65504), 0x7bff);
  EXPECT_EQ(filled<uint16_t>(F16, 65519.9), 0x7bff);
  EXPECT_EQ(filled<uint16_t>(F16, 65520), 0x7c00);
  EXPECT_EQ(filled<uint16_t>(F16, 0x1p-24), 0x0001);
  EXPECT_EQ(filled<uint16_t>(F16, 0x1p-25), 0x0000);
  EXPECT_EQ(filled<uint16_t>(F16, 1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(filled<uint16_t>(F16, 1 + 3 * 0x1p-11), 0x3c02);
  EXPECT_EQ(filled<uint16_t>(F16, 2 - 0x1p-12), 0x4000); // the mantissa overflows into the exponent
  EXPECT_EQ(filled<uint16_t>(F16, -0.0), 0x8000);
  EXPECT_EQ(filled<uint16_t>(BF16, 1.0), 0x3f80);
  EXPECT_EQ(filled<uint16_t>(BF16, 1 + 0x1p-8), 0x3f80);
  EXPECT_EQ(filled<uint16_t>(BF16, 1 + 3 * 0x1p-8), 0x3f82);
  EXPECT_EQ(filled<uint16_t>(BF16, std::nan("")) & 0x7fc0, 0x7fc0);
}

TEST(DType, FillsOfIntegersSaturate) {
  EXPECT_EQ(filled<int8_t>(I8, 300), 127);
  EXPECT_EQ(filled<int8_t>(I8, -300), -128);
  EXPECT_EQ(filled<uint8_t>(U8, -1), 0);
  EXPECT_EQ(filled<int64_t>(I64, 1e30), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(filled<int64_t>(I64, -3.7), -3);
  EXPECT_EQ(filled<int32_t>(I32, std::nan("")), 0);
  EXPECT_EQ(filled<uint8_t>(I1, 2), 1);
  EXPECT_EQ(filled<double>(F64, 0.1), 0.1);
}

TEST(Roles, EveryRoleHasItsWord) {
  for (int i = VariableRole_MIN; i <= VariableRole_MAX; ++i) {
    auto role = static_cast<VariableRole>(i);
    std::string word = VariableRole_Name(role);
    for (char &c : word)
      c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(roleName(role), word);
    EXPECT_EQ(roleFromName(word), role);
  }
  EXPECT_EQ(roleName(static_cast<VariableRole>(99)), "unknown");
  EXPECT_EQ(roleFromName("weight"), std::nullopt);
}

TEST(Entries, RunsOfAnUpdate) {
  using namespace tcc::entries;
  EXPECT_EQ(runsPerUpdate(kStep, 1), 1u);
  EXPECT_EQ(runsPerUpdate(kAccumulateFirst, 4), 1u);
  EXPECT_EQ(runsPerUpdate(kAccumulateNext, 4), 3u);
  EXPECT_EQ(runsPerUpdate(kAccumulateNext, 0), 0u) << "a plan that says nothing accumulates one";
  EXPECT_EQ(runsPerUpdate(kUpdate, 4), 1u);
  // Eight virtual ranks of two micro-batches each are summed in four pairs, then two, then one.
  EXPECT_EQ(runsPerUpdate(kAccumulateFirst, 2, 8), 8u);
  EXPECT_EQ(runsPerUpdate("accumulate_next.critic", 2, 8), 8u);
  EXPECT_EQ(runsPerUpdate("hold_0", 2, 8), 4u);
  EXPECT_EQ(runsPerUpdate("join_1.critic", 2, 8), 2u);
  EXPECT_EQ(runsPerUpdate("join_2", 2, 8), 1u);
  EXPECT_EQ(runsPerUpdate("join_3", 2, 8), 0u);
  EXPECT_EQ(runsPerUpdate(kUpdate, 2, 8), 1u);
  EXPECT_TRUE(isOfUpdate("hold_7.critic"));
  for (const char *name : {kEvaluate, kPredict, kPredictInference, kGradients, kTrain, "hold_", "join_x", "hold_1x"})
    EXPECT_FALSE(isOfUpdate(name)) << name;
}

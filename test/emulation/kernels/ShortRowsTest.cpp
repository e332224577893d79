//===- ShortRowsTest.cpp - short rows that a warp reduces together --------===//
//
// With more rows than a card holds warps, a warp owns several. It reduces short rows several at a time, and the
// remaining rows of its tile one by one. The results are those of the reference, in every order of threads.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/kernels/EmulatedFunctions.h"
#include "test/kernels/Compare.h"
#include "test/support/Evaluate.h"

#include <cstring>
#include <gtest/gtest.h>

using namespace tcc;
using tcc::emulation::ThreadOrder;
using tcc::train::HostTensor;

namespace {

/// kMany: a bit more than five rows for each of the largest grid's 8192 warps, so that the last tile has fewer rows
/// than the others. kFew: one row a warp.
constexpr int64_t kMany = 41003, kFew = 1000;

struct Rows {
  std::string name;
  int64_t length;
  std::string body; ///< reads %x; $F stands for its type, $R for the type with one number a row

  test::Case of(int64_t count) const {
    auto typeOf = [&](int64_t columns) {
      return "tensor<" + std::to_string(count) + "x" + std::to_string(columns) + "xf32>";
    };
    std::string text = body;
    for (auto [sign, type] : {std::pair(std::string("$F"), typeOf(length)), std::pair(std::string("$R"), typeOf(1))})
      for (size_t at = text.find(sign); at != std::string::npos; at = text.find(sign, at))
        text.replace(at, sign.size(), type);
    return {name,     "(%x: " + typeOf(length) + ") -> (" + typeOf(1) + ", " + typeOf(length) + ")",
            text,     test::Types::None,
            {{1, 2}}, "%s, %r"};
  }
};

std::vector<HostTensor> run(const test::Case &c, ThreadOrder order, llvm::ArrayRef<HostTensor> arguments) {
  auto module = test::parseCase(c, "");
  test::EmulatedFunctions emulated({true, order, 1});
  emulated.add(*module);
  return emulated.compile() ? emulated.run(*module, arguments) : std::vector<HostTensor>();
}

class ShortRows : public testing::TestWithParam<Rows> {};

TEST_P(ShortRows, HaveTheBitsOfRowsAlone) {
  const test::Case many = GetParam().of(kMany), few = GetParam().of(kFew);
  auto whole = test::parseCase(many, ""), part = test::parseCase(few, "");
  ASSERT_TRUE(whole && part);
  auto functionOf = [](mlir::ModuleOp module) { return *module.getOps<mlir::func::FuncOp>().begin(); };
  const std::vector<HostTensor> arguments = test::argumentsOf(many, functionOf(*whole));
  std::vector<HostTensor> ofFew = test::argumentsOf(few, functionOf(*part));
  const std::vector<HostTensor> results = run(many, ThreadOrder::Ascending, arguments);
  ASSERT_EQ(results.size(), 2u);
  const std::vector<HostTensor> again = run(many, ThreadOrder::Seeded, arguments);
  ASSERT_EQ(again.size(), 2u);
  for (auto [got, wanted] : llvm::zip_equal(again, results))
    test::expectSameBits(got, wanted);
  // The first kFew rows alone, and the last ones, give the same bits.
  for (int64_t first : {int64_t(0), kMany - kFew}) {
    const size_t rowBytes = arguments[0].sizeBytes() / kMany;
    std::memcpy(ofFew[0].data(), arguments[0].data() + size_t(first) * rowBytes, ofFew[0].sizeBytes());
    const std::vector<HostTensor> alone = run(few, ThreadOrder::Ascending, ofFew);
    ASSERT_EQ(alone.size(), 2u);
    for (auto [got, wanted] : llvm::zip_equal(results, alone)) {
      const size_t bytes = got.sizeBytes() / kMany;
      EXPECT_EQ(std::memcmp(got.data() + size_t(first) * bytes, wanted.data(), wanted.sizeBytes()), 0);
    }
    for (auto [got, wanted] : llvm::zip_equal(alone, test::evaluate(functionOf(*part), ofFew)))
      test::expectEqual(got, wanted, few);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ops, ShortRows,
    testing::Values(Rows{"whole", 64,
                         "%s = train.reduce sum %x [1] : $F -> $R\n"
                         "%b = train.broadcast %s : $R -> $F\n%r = train.sub %x, %b : $F"},
                    Rows{"with_a_tail", 21,
                         "%s = train.reduce max %x [1] : $F -> $R\n"
                         "%b = train.broadcast %s : $R -> $F\n%r = train.sub %x, %b : $F"},
                    Rows{"of_two_walks", 37,
                         "%s = train.reduce sum %x [1] : $F -> $R\n%r = train.softmax %x dim = 1 : $F"}),
    [](const testing::TestParamInfo<Rows> &info) { return info.param.name; });

} // namespace

//===- BytesTest.cpp - bytes that a kernel reads --------------------------===//
#include "passes/memory/EntryProblem.h"
#include "test/unit/passes/Program.h"

#include "compiler/dialect/Joined.h"

#include <gtest/gtest.h>

namespace tcc::test {
namespace {

/// The bytes that the function's only instruction reads from each operand.
std::vector<double> bytesReadIn(const std::string &text) {
  Program program(text);
  mlir::Operation *found = nullptr;
  program.module->walk([&](mlir::Operation *op) {
    if (train::isInstruction(op) && op->getNumResults() > 0 && mlir::isa<mlir::func::FuncOp>(op->getParentOp()))
      found = op;
  });
  auto bytes = train::bytesRead(found);
  return {bytes.begin(), bytes.end()};
}

const std::string kLookUp = R"(
  %r = train.fused(%table, %at, %x) : (tensor<1000x8xf32>, tensor<3xi64>, tensor<3x8xf32>) -> tensor<3x8xf32> {
  ^bb0(%a: tensor<1000x8xf32>, %i: tensor<3xi64>, %b: tensor<3x8xf32>):
    %wide = train.exp %a : tensor<1000x8xf32>
    %rows = train.gather %wide, %i axis = 0 : (tensor<1000x8xf32>, tensor<3xi64>) -> tensor<3x8xf32>
    %sum = train.add %rows, %b : tensor<3x8xf32>
    train.yield %sum : tensor<3x8xf32>
  })";
const std::string kArguments = "%table: tensor<1000x8xf32>, %at: tensor<3xi64>, %x: tensor<3x8xf32>";

TEST(BytesRead, OfATableTheRowsThatAreLookedUp) {
  EXPECT_EQ(bytesReadIn("func.func @f(" + kArguments + ") -> tensor<3x8xf32> {" + kLookUp +
                        "\n return %r : tensor<3x8xf32> }"),
            (std::vector<double>{3 * 8 * 4, 3 * 8, 3 * 8 * 4}));
}

TEST(BytesRead, OfLogitsTheElementsThatArePicked) {
  EXPECT_EQ(bytesReadIn(R"(
func.func @f(%x: tensor<5x1000xbf16>, %at: tensor<5x1xi64>) -> tensor<5x1xf32> {
  %r = train.fused(%x, %at) : (tensor<5x1000xbf16>, tensor<5x1xi64>) -> tensor<5x1xf32> {
  ^bb0(%a: tensor<5x1000xbf16>, %i: tensor<5x1xi64>):
    %wide = train.cast %a : tensor<5x1000xbf16> -> tensor<5x1000xf32>
    %one = train.pick %wide, %i dim = 1 : (tensor<5x1000xf32>, tensor<5x1xi64>) -> tensor<5x1xf32>
    train.yield %one : tensor<5x1xf32>
  }
  return %r : tensor<5x1xf32>
})"),
            (std::vector<double>{5 * 2, 5 * 8}));
}

TEST(BytesRead, AllOfAnOperandThatIsAlsoReduced) {
  EXPECT_EQ(bytesReadIn(R"(
func.func @f(%x: tensor<5x1000xf32>, %at: tensor<5x1xi64>) -> tensor<5x1xf32> {
  %r = train.fused(%x, %at) : (tensor<5x1000xf32>, tensor<5x1xi64>) -> tensor<5x1xf32> {
  ^bb0(%a: tensor<5x1000xf32>, %i: tensor<5x1xi64>):
    %sum = train.reduce sum %a [1] : tensor<5x1000xf32> -> tensor<5x1xf32>
    %one = train.pick %a, %i dim = 1 : (tensor<5x1000xf32>, tensor<5x1xi64>) -> tensor<5x1xf32>
    %left = train.sub %sum, %one : tensor<5x1xf32>
    train.yield %left : tensor<5x1xf32>
  }
  return %r : tensor<5x1xf32>
})"),
            (std::vector<double>{5 * 1000 * 4, 5 * 8}));
}

TEST(BytesRead, OfASliceItsElementsAndOfEachMemberItsOwn) {
  EXPECT_EQ(bytesReadIn(R"(
func.func @f(%x: tensor<100xf32>, %y: tensor<7xf32>) -> (tensor<4xf32>, tensor<7xf32>) {
  %r:2 = train.joined(%x, %y) : (tensor<100xf32>, tensor<7xf32>) -> (tensor<4xf32>, tensor<7xf32>) {
  ^bb0(%a: tensor<100xf32>, %b: tensor<7xf32>):
    %p = train.fused(%a) : (tensor<100xf32>) -> tensor<4xf32> {
    ^bb0(%c: tensor<100xf32>):
      %part = train.slice %c starts [10] steps [3] : tensor<100xf32> -> tensor<4xf32>
      train.yield %part : tensor<4xf32>
    }
    %q = train.fused(%b) : (tensor<7xf32>) -> tensor<7xf32> {
    ^bb0(%c: tensor<7xf32>):
      %square = train.mul %c, %c : tensor<7xf32>
      train.yield %square : tensor<7xf32>
    }
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<7xf32>
})"),
            (std::vector<double>{4 * 4, 7 * 4}));
}

} // namespace
} // namespace tcc::test

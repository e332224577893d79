//===- InterfaceCoverage.cpp - interfaces that every op needs ---*- C++ -*-===//
//
// Walks all registered ops of the dialect: a new op fails here until it says how it is evaluated, costed,
// differentiated and computed, and until the table of cases tests it. Also tests that decomposing a composite does not
// change its value.
//
//===----------------------------------------------------------------------===//
#include "test/support/Cases.h"
#include "test/support/Evaluate.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSet.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace mlir;
using namespace tcc;

namespace {

/// Ops that hold, move or group values and compute nothing themselves, and calls that replace kernels of other ops,
/// whose interfaces describe the computation.
bool isStructural(llvm::StringRef name) {
  static const llvm::StringSet<> names = {"train.variable",
                                          "train.read",
                                          "train.write",
                                          "train.fused",
                                          "train.rowwise",
                                          "train.joined",
                                          "train.random_key",
                                          "train.yield",
                                          "train.next",
                                          "train.fill",
                                          "train.copy",
                                          "train.store",
                                          "train.fetch",
                                          "train.conv_epilogue",
                                          "train.matmul_epilogue",
                                          "train.matmul_unpack",
                                          "train.run_scalar",
                                          "train.attention_call",
                                          "train.attention_grad_call"};
  return names.contains(name);
}

std::vector<RegisteredOperationName> computingOps() {
  std::vector<RegisteredOperationName> ops;
  for (RegisteredOperationName name : test::testContext().getRegisteredOperationsByDialect("train"))
    // No kernel computes a collective: it has tests of its own below.
    if (!isStructural(name.getStringRef()) && !name.hasInterface<train::Collective>())
      ops.push_back(name);
  return ops;
}

TEST(Interfaces, EveryOpIsEvaluatedAndCosted) {
  ASSERT_GT(computingOps().size(), 40u);
  for (RegisteredOperationName op : computingOps()) {
    EXPECT_TRUE(op.hasInterface<train::Reference>()) << op.getStringRef().str() << " has no Reference";
    EXPECT_TRUE(op.hasInterface<train::Cost>()) << op.getStringRef().str() << " has no Cost";
  }
}

TEST(Interfaces, EveryOpSaysWhetherItIsDifferentiable) {
  for (RegisteredOperationName op : computingOps())
    EXPECT_NE(op.hasInterface<train::Differentiable>(), op.hasTrait<train::NotDifferentiable>())
        << op.getStringRef().str() << " needs Differentiable or the trait NotDifferentiable, not both";
}

TEST(Interfaces, EveryOpCanBeComputed) {
  for (RegisteredOperationName op : computingOps())
    EXPECT_TRUE(op.hasInterface<train::Fusible>() || op.hasInterface<train::LoopKernel>() ||
                op.hasInterface<train::Decomposable>() || op.hasTrait<train::View>())
        << op.getStringRef().str() << " needs Fusible, LoopKernel, Decomposable or the trait View";
}

/// A context in which the loops of compiler/kernels are not registered must abort: it would otherwise fuse such an op
/// as if it had no loops of its own.
TEST(InterfacesDeathTest, LoopsThatAreNotRegisteredAreMissed) {
  MLIRContext bare(MLIRContext::Threading::DISABLED);
  bare.loadDialect<train::TrainDialect, func::FuncDialect>();
  auto module = parseSourceString<ModuleOp>(
      "func.func @f(%x: tensor<1x4x4x8xf32>, %w: tensor<8x8x3x3xf32>) -> tensor<1x4x4x8xf32> {\n"
      "  %y = train.winograd_conv %x, %w {padsBegin = array<i64: 1, 1>} : (tensor<1x4x4x8xf32>, tensor<8x8x3x3xf32>) "
      "-> "
      "tensor<1x4x4x8xf32>\n  return %y : tensor<1x4x4x8xf32>\n}",
      ParserConfig(&bare));
  ASSERT_TRUE(module);
  module->walk([](train::WinogradConvOp op) {
    EXPECT_DEATH((void)isa<train::LoopKernel>(op.getOperation()), "promised interface|LoopKernel");
  });
}

TEST(Interfaces, EveryCollectiveIsCostedAndSaysWhetherItIsDifferentiable) {
  int collectives = 0;
  for (RegisteredOperationName op : test::testContext().getRegisteredOperationsByDialect("train"))
    if (op.hasInterface<train::Collective>()) {
      ++collectives;
      EXPECT_TRUE(op.hasInterface<train::Cost>()) << op.getStringRef().str();
      EXPECT_NE(op.hasInterface<train::Differentiable>(), op.hasTrait<train::NotDifferentiable>())
          << op.getStringRef().str();
      EXPECT_FALSE(op.hasInterface<train::Reference>())
          << op.getStringRef().str() << ": constants would be folded as if there were one rank";
    }
  EXPECT_GE(collectives, 2);
}

/// The results of a collective on each rank, whose operands are vectors of 2.
std::vector<std::vector<double>> onRanks(llvm::StringRef op, llvm::StringRef type,
                                         const std::vector<std::vector<double>> &operands) {
  std::string text = ("func.func @f(%x: tensor<2x" + type + ">) -> tensor<2x" + type + "> {\n  %y = train." + op +
                      " : (tensor<2x" + type + ">) -> tensor<2x" + type + ">\n  return %y : tensor<2x" + type + ">\n}")
                         .str();
  auto module = parseSourceString<ModuleOp>(text, ParserConfig(&test::testContext()));
  EXPECT_TRUE(module);
  std::vector<std::vector<double>> numbers;
  module->walk([&](train::Collective collective) {
    auto tensor = cast<RankedTensorType>(collective->getOperand(0).getType());
    std::vector<std::vector<train::HostTensor>> given, results;
    for (const std::vector<double> &own : operands) {
      given.push_back({train::HostTensor(tensor)});
      results.push_back({train::HostTensor(tensor)});
      for (int64_t i = 0; i < 2; ++i)
        given.back()[0].setDouble(i, own[size_t(i)]);
    }
    collective.evaluateRanks(given, results);
    for (const auto &rank : results)
      numbers.push_back({rank[0].getDouble(0), rank[0].getDouble(1)});
  });
  return numbers;
}

TEST(Collectives, SumsAreATreeOverTheRanks) {
  // 2^24 + 1 + 1 in f32: from left to right each 1 is lost; (2^24 + 1) + (1 + 2) keeps the 3 of the right half, which
  // rounds to 4.
  for (const std::vector<double> &rank : onRanks("all_reduce(%x)", "f32", {{0x1p24, 1}, {1, 2}, {1, 3}, {2, 4}}))
    EXPECT_EQ(rank, (std::vector<double>{0x1p24 + 4, 10}));
  // Three ranks: (0 + 1) + 2.
  for (const std::vector<double> &rank : onRanks("all_reduce(%x)", "f32", {{0x1p24, 0}, {1, 0}, {2, 0}}))
    EXPECT_EQ(rank[0], 0x1p24 + 2);
  // bf16 is added in f32 and rounded once.
  for (const std::vector<double> &rank : onRanks("all_reduce(%x)", "bf16", {{1, 0}, {0x1p-8, 0}, {0x1p-8, 0}}))
    EXPECT_EQ(rank[0], 1 + 0x1p-7);
}

TEST(Collectives, ABroadcastIsItsRoots) {
  for (const std::vector<double> &rank :
       onRanks("rank_broadcast(%x) {root = 1 : i64}", "f32", {{1, 2}, {3, 4}, {5, 6}}))
    EXPECT_EQ(rank, (std::vector<double>{3, 4}));
}

TEST(Collectives, TheGradientOfASumIsTheSumOfGradients) {
  auto module = parseSourceString<ModuleOp>(
      "func.func @f(%a: tensor<2xf32>, %b: tensor<3xf32>, %g: tensor<3xf32>) -> tensor<3xf32> {\n"
      "  %s:2 = train.all_reduce(%a, %b) : (tensor<2xf32>, tensor<3xf32>) -> (tensor<2xf32>, tensor<3xf32>)\n"
      "  return %s#1 : tensor<3xf32>\n}",
      ParserConfig(&test::testContext()));
  ASSERT_TRUE(module);
  module->walk([&](train::AllReduceOp op) {
    OpBuilder builder(op->getBlock()->getTerminator());
    llvm::SmallVector<Value> gradients(2);
    Value given = op->getBlock()->getArgument(2);
    op.buildGradient(builder, {Value(), given}, gradients);
    EXPECT_FALSE(gradients[0]);
    ASSERT_TRUE(gradients[1]);
    auto sum = gradients[1].getDefiningOp<train::AllReduceOp>();
    ASSERT_TRUE(sum);
    EXPECT_EQ(sum.getInputs()[0], given);
  });
  EXPECT_TRUE(succeeded(verify(*module)));
}

TEST(Collectives, AShardIsARangeOfElementsAndZeros) {
  auto module =
      parseSourceString<ModuleOp>("func.func @f(%a: tensor<5x1xf32>, %g: tensor<2xf32>) -> tensor<5x1xf32> {\n"
                                  "  %s = train.reduce_scatter(%a) ranks = 3 : (tensor<5x1xf32>) -> tensor<2xf32>\n"
                                  "  %o = train.own_shard(%a) ranks = 3 : (tensor<5x1xf32>) -> tensor<2xf32>\n"
                                  "  %w = train.all_gather(%s) ranks = 3 : (tensor<2xf32>) -> tensor<5x1xf32>\n"
                                  "  return %w : tensor<5x1xf32>\n}",
                                  ParserConfig(&test::testContext()));
  ASSERT_TRUE(module);
  using Ranks = std::vector<std::vector<train::HostTensor>>;
  auto evaluate = [](train::Collective op, const Ranks &operands) {
    Ranks results(operands.size());
    for (auto &rank : results)
      rank.push_back(train::HostTensor(cast<RankedTensorType>(op->getResult(0).getType())));
    op.evaluateRanks(operands, results);
    return results;
  };
  Ranks given(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    given[rank].push_back(train::HostTensor(RankedTensorType::get({5, 1}, Float32Type::get(&test::testContext()))));
    for (int64_t i = 0; i < 5; ++i)
      given[rank][0].setDouble(i, double(i + 1) * std::pow(10, double(rank)));
  }
  auto numbers = [](const train::HostTensor &tensor) {
    std::vector<double> list;
    for (int64_t i = 0; i < tensor.size(); ++i)
      list.push_back(tensor.getDouble(i));
    return list;
  };
  using List = std::vector<double>;
  llvm::SmallVector<Operation *> ops;
  module->walk([&](train::Collective op) { ops.push_back(op); });
  for (Operation *one : ops)
    if (auto op = dyn_cast<train::ReduceScatterOp>(one)) {
      const Ranks sums = evaluate(cast<train::Collective>(op.getOperation()), given);
      EXPECT_EQ(numbers(sums[0][0]), (List{111, 222}));
      EXPECT_EQ(numbers(sums[2][0]), (List{555, 0}));
      auto gather = cast<train::AllGatherOp>(*op->getResult(0).user_begin());
      for (const auto &rank : evaluate(cast<train::Collective>(gather.getOperation()), sums))
        EXPECT_EQ(numbers(rank[0]), (List{111, 222, 333, 444, 555}));
      // The gradient of a reduce-scatter is an all-gather, and vice versa.
      OpBuilder builder(op->getBlock()->getTerminator());
      llvm::SmallVector<Value> gradients(1);
      op.buildGradient(builder, {op->getBlock()->getArgument(1)}, gradients);
      ASSERT_TRUE(gradients[0].getDefiningOp<train::AllGatherOp>());
      EXPECT_EQ(gradients[0].getType(), op->getOperand(0).getType());
      Value whole = gradients[0];
      gather.buildGradient(builder, {whole}, gradients);
      ASSERT_TRUE(gradients[0].getDefiningOp<train::ReduceScatterOp>());
    } else if (auto op = dyn_cast<train::OwnShardOp>(one)) {
      const Ranks own = evaluate(cast<train::Collective>(op.getOperation()), given);
      EXPECT_EQ(numbers(own[1][0]), (List{30, 40}));
      EXPECT_EQ(numbers(own[2][0]), (List{500, 0}));
    }
  EXPECT_TRUE(succeeded(verify(*module)));
}

/// Divides dimension `dim` of the op's result into groups of `count`. True if each group either equals a group of the
/// first operand that starts at a multiple of `count`, or repeats one value, as in a broadcast or in padding.
bool keepsGroups(Operation *op, unsigned dim, int64_t count) {
  std::vector<train::HostTensor> operands, results;
  for (Value operand : op->getOperands()) {
    operands.emplace_back(cast<RankedTensorType>(operand.getType()));
    train::HostTensor &numbers = operands.back();
    for (int64_t i = 0; i < numbers.size(); ++i)
      if (numbers.isFloat())
        numbers.setDouble(i, double(i + 1));
      else
        numbers.setInt(i, i % 3);
  }
  results.emplace_back(cast<RankedTensorType>(op->getResult(0).getType()));
  cast<train::Reference>(op).evaluate(operands, results);
  auto strideOf = [](llvm::ArrayRef<int64_t> shape, size_t fromEnd) {
    int64_t stride = 1;
    for (int64_t extent : shape.take_back(fromEnd))
      stride *= extent;
    return stride;
  };
  const llvm::ArrayRef<int64_t> to = results[0].shape(), from = operands[0].shape();
  const size_t behind = to.size() - dim - 1;
  const int64_t extent = behind < from.size() ? from[from.size() - behind - 1] : 1, step = strideOf(to, behind),
                stride = strideOf(from, std::min(behind, from.size()));
  for (int64_t i = 0; i < results[0].size(); ++i) {
    if (i / step % to[dim] % count != 0)
      continue;
    const double first = results[0].getDouble(i);
    bool same = true, beside = int64_t(first - 1) / stride % extent % count == 0;
    for (int64_t j = 1; j < count; ++j) {
      same = same && results[0].getDouble(i + j * step) == first;
      beside = beside && results[0].getDouble(i + j * step) == first + double(j * stride);
    }
    if (!same && !beside)
      return false;
  }
  return true;
}

TEST(Interfaces, NeighboursAreReadSideBySide) {
  auto module = parseSourceString<ModuleOp>(R"(
    func.func @f(%x: tensor<8x16xf32>, %y: tensor<2x4x16xf32>, %v: tensor<16xf32>, %i: tensor<3xi64>) {
      %0 = train.gather %x, %i axis = 0 {most = 8} : (tensor<8x16xf32>, tensor<3xi64>) -> tensor<3x16xf32>
      %1 = train.gather %x, %i axis = 1 {most = 1} : (tensor<8x16xf32>, tensor<3xi64>) -> tensor<8x3xf32>
      %2 = train.transpose %y [1, 0, 2] {most = 8} : tensor<2x4x16xf32> -> tensor<4x2x16xf32>
      %3 = train.transpose %y [0, 2, 1] {most = 1} : tensor<2x4x16xf32> -> tensor<2x16x4xf32>
      %4 = train.slice %x starts [1, 8] steps [2, 1] {most = 8} : tensor<8x16xf32> -> tensor<3x8xf32>
      %5 = train.slice %x starts [0, 4] steps [1, 1] {most = 4} : tensor<8x16xf32> -> tensor<8x8xf32>
      %6 = train.slice %x starts [0, 0] steps [1, 2] {most = 1} : tensor<8x16xf32> -> tensor<8x8xf32>
      %7 = train.pad %x low [1, 8] steps [1, 1] value 0.0 {most = 8} : tensor<8x16xf32> -> tensor<10x32xf32>
      %8 = train.pad %x low [0, 2] steps [1, 1] value 0.0 {most = 2} : tensor<8x16xf32> -> tensor<8x24xf32>
      %9 = train.broadcast %v {most = 8} : tensor<16xf32> -> tensor<8x16xf32>
      %10 = train.reverse %x [1] {most = 1} : tensor<8x16xf32> -> tensor<8x16xf32>
      return
    })",
                                            ParserConfig(&test::testContext()));
  ASSERT_TRUE(module);
  int asked = 0;
  module->walk([&](train::Fusible op) {
    const auto most = op->getAttrOfType<IntegerAttr>("most");
    ASSERT_TRUE(most);
    const auto last = unsigned(cast<RankedTensorType>(op->getResult(0).getType()).getRank() - 1);
    for (int64_t count : {2, 4, 8}) {
      EXPECT_EQ(op.readsNeighbours(0, last, count), count <= most.getInt()) << op->getName().getStringRef().str();
      EXPECT_TRUE(count > most.getInt() || keepsGroups(op, last, count))
          << op->getName().getStringRef().str() << " by " << count;
    }
    ++asked;
  });
  EXPECT_EQ(asked, 11);
}

TEST(Interfaces, EveryOpHasACase) {
  llvm::StringSet<> covered;
  for (const test::Case &c : test::allCases())
    for (const std::string &type : c.elementTypes()) {
      OwningOpRef<ModuleOp> module = test::parseCase(c, type);
      ASSERT_TRUE(module) << c.name << " in " << type;
      module->walk([&](Operation *op) { covered.insert(op->getName().getStringRef()); });
    }
  for (RegisteredOperationName op : computingOps())
    EXPECT_TRUE(covered.contains(op.getStringRef())) << op.getStringRef().str() << " has no case in test/support";
}

TEST(Cases, HaveNamesOfTheirOwn) {
  llvm::StringSet<> names;
  for (const test::Case &c : test::allCases())
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

TEST(Cases, HaveFiniteCosts) {
  for (const test::Case &c : test::allCases()) {
    OwningOpRef<ModuleOp> module = test::parseCase(c, c.elementTypes().front());
    ASSERT_TRUE(module) << c.name;
    module->walk([&](train::Cost op) { EXPECT_TRUE(std::isfinite(op.getFlops()) && op.getFlops() >= 0) << c.name; });
  }
}

TEST(Composites, AreWorthTheirParts) {
  int tested = 0;
  for (const test::Case &c : test::allCases()) {
    std::string type = c.elementTypes().front();
    OwningOpRef<ModuleOp> module = test::parseCase(c, type);
    ASSERT_TRUE(module) << c.name;
    llvm::SmallVector<train::Decomposable> composites;
    module->walk([&](train::Decomposable op) { composites.push_back(op); });
    if (composites.empty())
      continue;
    auto function = *module->getOps<func::FuncOp>().begin();
    std::vector<train::HostTensor> arguments = test::argumentsOf(c, function);
    std::vector<train::HostTensor> whole = test::evaluate(function, arguments);
    for (train::Decomposable op : composites) {
      OpBuilder builder(op);
      op->replaceAllUsesWith(op.decompose(builder));
      op->erase();
    }
    ASSERT_TRUE(succeeded(verify(*module))) << c.name;
    std::vector<train::HostTensor> parts = test::evaluate(function, arguments);
    for (auto [expected, actual] : llvm::zip_equal(whole, parts)) {
      // In 16-bit and 32-bit composites every part is rounded, so that they differ from the whole.
      double tolerance = expected.elementType().isF64() ? 1e-12 : expected.elementType().isF32() ? 1e-5 : 1e-2;
      for (int64_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(actual.getDouble(i), expected.getDouble(i),
                    tolerance * std::max(1.0, std::fabs(expected.getDouble(i))))
            << c.name;
    }
    ++tested;
  }
  EXPECT_GE(tested, 10);
}

TEST(Composites, SurviveRowsWithoutFiniteElements) {
  // A row of −∞ alone, as a fully masked one: −∞, not NaN.
  test::Case c{"logsumexp_masked", "() -> tensor<1x1xf64>",
               "%x = train.constant dense<0xFFF0000000000000> : tensor<1x3xf64>\n"
               "%r = train.logsumexp %x dim = 1 : tensor<1x3xf64> -> tensor<1x1xf64>",
               test::Types::None};
  OwningOpRef<ModuleOp> module = test::parseCase(c, "");
  ASSERT_TRUE(module);
  auto function = *module->getOps<func::FuncOp>().begin();
  EXPECT_EQ(test::evaluate(function, {})[0].getDouble(0), -HUGE_VAL);
  train::Decomposable op = nullptr;
  module->walk([&](train::Decomposable found) { op = found; });
  OpBuilder builder(op);
  op->replaceAllUsesWith(op.decompose(builder));
  op->erase();
  EXPECT_EQ(test::evaluate(function, {})[0].getDouble(0), -HUGE_VAL);
}

} // namespace

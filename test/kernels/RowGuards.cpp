//===- RowGuards.cpp - rows that a loss does not count are not read -------===//
#include "compiler/codegen/KernelEmitter.h"
#include "compiler/codegen/RowGuard.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "test/kernels/Compare.h"
#include "test/support/Evaluate.h"
#include "test/support/RunCompiled.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

constexpr int64_t kRows = 9, kClasses = 70;

/// Logits, targets and each row's picked logit → the losses and the gradient of the logits, as attach-loss and
/// differentiate make them; `gradient` defines %gradient. One kernel, or `apart` for the evaluators.
test::Case crossEntropy(const std::string &gradient, bool apart = false) {
  std::string ops = R"(
    %largest = train.reduce max %a [1] : FULL -> ROW
    %wide = train.broadcast %largest : ROW -> FULL
    %shifted = train.sub %a, %wide : FULL
    %e = train.exp %shifted : FULL
    %sum = train.reduce sum %e [1] : FULL -> ROW
    %none = train.constant dense<-100> : TARGETS
    %counts = train.compare ne %b, %none : TARGETS -> ROWIS
    %log = train.log %sum : ROW
    %lse = train.add %largest, %log : ROW
    %nll = train.sub %lse, %c : ROW
    %zero = train.constant dense<0.0> : ROW
    %loss = train.select %counts, %nll, %zero : ROWIS, ROW
    %one = train.constant dense<1.0> : ROW
    %g = train.select %counts, %one, %zero : ROWIS, ROW
    %zeros = train.constant dense<0.0> : FULL
    %lseWide = train.broadcast %lse : ROW -> FULL
    %under = train.sub %a, %lseWide : FULL
    %p = train.exp %under : FULL
    %gWide = train.broadcast %g : ROW -> FULL
    %scaled = train.mul %gWide, %p : FULL
    %has = train.compare ne %g, %zero : ROW -> ROWIS
    %hasWide = train.broadcast %has : ROWIS -> FULLIS
    %ofSum = train.select %hasWide, %scaled, %zeros : FULLIS, FULL
    %i = train.iota dim = 1 : NUMBERS
    %targetWide = train.broadcast %b : TARGETS -> NUMBERS
    %isTarget = train.compare eq %i, %targetWide : NUMBERS -> FULLIS
    %minus = train.neg %g : ROW
    %minusWide = train.broadcast %minus : ROW -> FULL
    %ofTarget = train.select %isTarget, %minusWide, %zeros : FULLIS, FULL
)" + gradient;
  std::string signature = "(%x: FULL, %y: TARGETS, %z: ROW) -> (ROW, FULL)", results = "%r#0, %r#1";
  if (apart) {
    signature = "(%a: FULL, %b: TARGETS, %c: ROW) -> (ROW, FULL)";
    results = "%loss, %gradient";
  } else {
    ops = "%r:2 = train.fused(%x, %y, %z) : (FULL, TARGETS, ROW) -> (ROW, FULL) {\n"
          "^bb0(%a: FULL, %b: TARGETS, %c: ROW):\n" +
          ops + "train.yield %loss, %gradient : ROW, FULL\n}";
  }
  for (std::string *text : {&ops, &signature})
    for (const auto &[name, type] : std::vector<std::pair<std::string, std::string>>{{"FULLIS", "tensor<9x70xi1>"},
                                                                                     {"ROWIS", "tensor<9x1xi1>"},
                                                                                     {"FULL", "tensor<9x70x$T>"},
                                                                                     {"ROW", "tensor<9x1x$T>"},
                                                                                     {"TARGETS", "tensor<9x1xi64>"},
                                                                                     {"NUMBERS", "tensor<9x70xi64>"}})
      for (size_t at = 0; (at = text->find(name, at)) != std::string::npos; at += type.size())
        text->replace(at, name.size(), type);
  return {.name = "cross_entropy", .signature = signature, .body = ops, .results = results};
}

const char *kGradient = "  %gradient = train.add %ofTarget, %ofSum : FULL\n";

Value guardOf(const std::string &gradient) {
  static std::vector<OwningOpRef<ModuleOp>> kept;
  kept.push_back(test::parseCase(crossEntropy(gradient), "f32"));
  if (!kept.back()) {
    ADD_FAILURE() << "does not parse";
    return Value();
  }
  train::FusedOp fused;
  kept.back()->walk([&](train::FusedOp op) { fused = op; });
  return codegen::rowGuardOf(fused, codegen::analyzeIterationSpace(fused, target::cpu::codeOf(runtime::CpuLevel::V3)));
}

TEST(RowGuards, ARowCountsUnlessItsTargetIsIgnored) {
  Value guard = guardOf(kGradient);
  ASSERT_TRUE(guard);
  auto compare = guard.getDefiningOp<train::CompareOp>();
  ASSERT_TRUE(compare);
  EXPECT_TRUE(isa<BlockArgument>(compare.getLhs()));
}

TEST(RowGuards, ResultsThatAreNotPlusZeroNeedTheRow) {
  // 0 · p is NaN where p is.
  EXPECT_FALSE(guardOf("  %gradient = train.add %ofTarget, %scaled : FULL\n"));
  // −0
  EXPECT_FALSE(guardOf("  %sum2 = train.add %ofTarget, %ofSum : FULL\n"
                       "  %gradient = train.neg %sum2 : FULL\n"));
  EXPECT_FALSE(guardOf("  %gradient = train.mul %ofTarget, %a : FULL\n"));
  EXPECT_FALSE(guardOf("  %gradient = train.add %ofTarget, %a : FULL\n"));
}

/// Does the kernel have loops that only some rows enter?
bool skipsRows(const std::string &gradient) {
  test::CompiledFunctions loadsDialects;
  OwningOpRef<ModuleOp> whole = test::parseCase(crossEntropy(gradient), "f32");
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&test::testContext()));
  bool skips = false;
  whole->walk([&](train::FusedOp fused) {
    EXPECT_TRUE(succeeded(codegen::emitKernel(fused, "kernel", *kernels, target::cpu::codeOf(runtime::CpuLevel::V3))));
  });
  kernels->walk([&](scf::IfOp branch) { branch.walk([&](scf::ForOp) { skips = true; }); });
  return skips;
}

TEST(RowGuards, AKernelTestsARowBeforeItReadsIt) {
  EXPECT_TRUE(skipsRows(kGradient));
  EXPECT_FALSE(skipsRows("  %gradient = train.add %ofTarget, %scaled : FULL\n"));
}

/// A padded row may hold anything.
TEST(RowGuards, IgnoredRowsAreZeroWhateverTheyHold) {
  const test::Case c = crossEntropy(kGradient);
  for (const std::string &type : c.elementTypes()) {
    SCOPED_TRACE(type);
    OwningOpRef<ModuleOp> module = test::parseCase(c, type),
                          whole = test::parseCase(crossEntropy(kGradient, /*apart=*/true), type);
    ASSERT_TRUE(module && whole);
    test::CompiledFunctions compiled;
    compiled.add(*module);
    ASSERT_TRUE(compiled.compile());
    auto function = *whole->getOps<func::FuncOp>().begin();
    std::vector<HostTensor> arguments = test::argumentsOf(c, function);
    for (int64_t row = 0; row < kRows; ++row) {
      const bool ignored = row % 4 == 1 || row == kRows - 1;
      arguments[1].setInt(row, ignored ? -100 : (row * 13) % kClasses);
      for (int64_t i = 0; ignored && i < kClasses; ++i)
        arguments[0].setDouble(row * kClasses + i, i % 3 == 0 ? NAN : HUGE_VAL);
    }
    const std::vector<HostTensor> expected = test::evaluate(function, arguments);
    for (test::Placement placement : {test::Placement::BeforeFence, test::Placement::InPlace}) {
      std::vector<HostTensor> actual = compiled.run(*module, arguments, placement);
      ASSERT_EQ(actual.size(), 2u);
      for (size_t i = 0; i < 2; ++i)
        test::expectEqual(actual[i], expected[i], c);
      for (int64_t row : {int64_t(1), int64_t(5), kRows - 1})
        for (int64_t i = 0; i < kClasses; ++i) {
          const double x = actual[1].getDouble(row * kClasses + i);
          ASSERT_TRUE(x == 0 && !std::signbit(x)) << row << ", " << i << ": " << x;
        }
    }
  }
}

} // namespace

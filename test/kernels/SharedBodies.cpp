//===- SharedBodies.cpp - kernels that differ in constants have one body --===//
#include "compiler/codegen/SharedBodies.h"
#include "test/kernels/Compare.h"
#include "test/support/RunCompiled.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <set>

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

/// A kernel: a loop of `count` iterations around a short one, over rows of `stride` elements; `inner` and `outer` are
/// ops of the two loops.
std::string kernel(const std::string &name, int count, int stride, int end = 16, const std::string &factor = "2.0",
                   const std::string &inner = "") {
  auto number = [](int value) { return std::to_string(value); };
  return "llvm.func internal @" + name +
         "_body(%p: !llvm.ptr, %first: i64, %last: i64) attributes "
         "{passthrough = [\"nounwind\", \"alwaysinline\"]} {\n"
         "  %c0 = arith.constant 0 : i64\n  %c1 = arith.constant 1 : i64\n"
         "  %end = arith.constant " +
         number(end) +
         " : i64\n"
         "  %count = arith.constant " +
         number(count) +
         " : i64\n"
         "  %stride = arith.constant " +
         number(stride) +
         " : i64\n"
         "  %factor = arith.constant " +
         factor +
         " : f32\n"
         "  scf.for %row = %first to %last step %c1 : i64 {\n"
         "    %tail = arith.remui %row, %count : i64\n    %base = arith.muli %tail, %stride : i64\n"
         "    scf.for %i = %c0 to %end step %c1 : i64 {\n"
         "      %at = arith.addi %base, %i : i64\n" +
         inner +
         "      %address = llvm.getelementptr %p[%at] : (!llvm.ptr, i64) -> !llvm.ptr, f32\n"
         "      %x = llvm.load %address : !llvm.ptr -> f32\n      %y = arith.mulf %x, %factor : f32\n"
         "      llvm.store %y, %address : f32, !llvm.ptr\n    }\n  }\n  llvm.return\n}\n"
         "llvm.func @" +
         name +
         "(%p: !llvm.ptr, %first: i64, %last: i64) {\n"
         "  llvm.call @" +
         name + "_body(%p, %first, %last) : (!llvm.ptr, i64, i64) -> ()\n  llvm.return\n}\n";
}

struct Shared {
  OwningOpRef<ModuleOp> module;
  unsigned replaced = 0;
  LLVM::LLVMFuncOp body(const std::string &name) { return module->lookupSymbol<LLVM::LLVMFuncOp>(name + "_body"); }
};

Shared share(const std::string &text) {
  MLIRContext &context = test::testContext();
  context.loadDialect<arith::ArithDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  Shared shared;
  shared.module = parseSourceString<ModuleOp>(text, &context);
  if (!shared.module) {
    ADD_FAILURE() << "does not parse:\n" << text;
    return shared;
  }
  shared.replaced = codegen::shareBodies(*shared.module);
  EXPECT_TRUE(succeeded(verify(*shared.module)));
  return shared;
}

/// The integers that a kernel passes to its body.
std::vector<int64_t> numbersOf(Shared &shared, const std::string &name) {
  std::vector<int64_t> numbers;
  shared.module->lookupSymbol<LLVM::LLVMFuncOp>(name).walk(
      [&](LLVM::ConstantOp constant) { numbers.push_back(cast<IntegerAttr>(constant.getValue()).getInt()); });
  return numbers;
}

TEST(SharedBodies, ConstantsThatDifferBecomeArguments) {
  Shared shared = share(kernel("a", 8, 100) + kernel("b", 16, 200) + kernel("c", 32, 200));
  EXPECT_EQ(shared.replaced, 2u);
  ASSERT_TRUE(shared.body("a"));
  EXPECT_FALSE(shared.body("b"));
  EXPECT_EQ(shared.body("a").getNumArguments(), 5u);
  EXPECT_EQ(numbersOf(shared, "a"), (std::vector<int64_t>{8, 100}));
  EXPECT_EQ(numbersOf(shared, "b"), (std::vector<int64_t>{16, 200}));
  EXPECT_EQ(numbersOf(shared, "c"), (std::vector<int64_t>{32, 200}));
}

TEST(SharedBodies, ConstantsThatAreEqualInEveryKernelAreOneArgument) {
  Shared shared = share(kernel("a", 8, 8) + kernel("b", 16, 16));
  EXPECT_EQ(numbersOf(shared, "a"), (std::vector<int64_t>{8}));
  EXPECT_EQ(numbersOf(shared, "b"), (std::vector<int64_t>{16}));
}

TEST(SharedBodies, BodiesThatDifferInMoreThanIntegersStayApart) {
  EXPECT_EQ(share(kernel("a", 8, 100) + kernel("b", 8, 100, 16, "3.0")).replaced, 0u);
  EXPECT_EQ(
      share(kernel("a", 8, 100) + kernel("b", 8, 100, 16, "2.0", "      %z = arith.addi %i, %i : i64\n")).replaced, 0u);
}

/// LLVM unrolls an innermost loop of 16 iterations, and would not one whose end it does not know.
TEST(SharedBodies, EndsOfShortLoopsStayConstants) {
  EXPECT_EQ(share(kernel("a", 8, 100, 16) + kernel("b", 8, 100, 32)).replaced, 0u);
  EXPECT_EQ(share(kernel("a", 8, 100, 160) + kernel("b", 8, 100, 320)).replaced, 1u);
}

TEST(SharedBodies, DivisorsInInnermostLoopsStayConstants) {
  const std::string divides = "      %z = arith.divui %i, %count : i64\n";
  EXPECT_EQ(share(kernel("a", 8, 100, 16, "2.0", divides) + kernel("b", 16, 100, 16, "2.0", divides)).replaced, 0u);
  EXPECT_EQ(share(kernel("a", 8, 100, 16, "2.0", divides) + kernel("b", 8, 200, 16, "2.0", divides)).replaced, 1u);
}

/// Kernels of attention, which are the longest, and of each kind of loop nest, in shapes so large that loops remain.
TEST(SharedBodies, ComputeTheSameBits) {
  const std::set<std::string> attention{"attention_small",
                                        "attention_odd",
                                        "attention_one_query",
                                        "attention_grad_even_of_many_heads_f32",
                                        "attention_grad_blocks_of_many_heads_f32",
                                        "attention_grad_causal_of_many_heads_f32"};
  const std::set<std::string> resized{"exp_17", "gelu_17", "cast_to_i1"};
  std::vector<test::Case> cases;
  for (test::Case c : test::allCases())
    if (c.isResizable() && resized.contains(c.name)) {
      for (const char *shape : {"3x7x40x", "5x16x72x", "4x2x2500x"}) {
        c.shape = shape;
        cases.push_back(c);
      }
    } else if (attention.contains(c.name)) {
      cases.push_back(c);
    }
  for (int rows : {6, 40, 300})
    for (const char *dims : {"2", "0, 1"}) {
      const std::string input = llvm::formatv("tensor<{0}x20x200x$T>", rows);
      std::string result = "tensor<1x1x200x$T>";
      if (*dims == '2')
        result = llvm::formatv("tensor<{0}x20x1x$T>", rows);
      cases.push_back({.name = "rows",
                       .signature = "(%x: " + input + ") -> " + result,
                       .body = "%r = train.reduce sum %x [" + std::string(dims) + "] : " + input + " -> " + result});
    }
  test::CompiledFunctions own, shared;
  shared.shareAlike();
  struct Twins {
    test::Case c;
    OwningOpRef<ModuleOp> own, shared;
  };
  std::vector<Twins> all;
  ASSERT_EQ(cases.size(), attention.size() + 3 * resized.size() + 6);
  for (const test::Case &c : cases) {
    const std::string type = c.elementTypes().front();
    Twins twins{c, test::parseCase(c, type), test::parseCase(c, type)};
    ASSERT_TRUE(twins.own && twins.shared) << c.name;
    all.push_back(std::move(twins));
    own.add(*all.back().own);
    shared.add(*all.back().shared);
  }
  ASSERT_TRUE(own.compile());
  ASSERT_TRUE(shared.compile());
  EXPECT_LT(shared.codeBytes(), own.codeBytes());
  for (Twins &twins : all) {
    SCOPED_TRACE(twins.c.name + " " + twins.c.signature);
    OwningOpRef<ModuleOp> whole = test::parseCase(twins.c, twins.c.elementTypes().front());
    const auto arguments = test::argumentsOf(twins.c, *whole->getOps<func::FuncOp>().begin());
    std::vector<HostTensor> wanted = own.run(*twins.own, arguments), got = shared.run(*twins.shared, arguments);
    ASSERT_EQ(wanted.size(), got.size());
    for (auto [left, right] : llvm::zip_equal(got, wanted))
      test::expectSameBits(left, right);
  }
}

} // namespace

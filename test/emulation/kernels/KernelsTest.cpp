//===- KernelsTest.cpp - every generated kernel as PTX, on the machine ----===//
//
// The cases of test/kernels, compiled for a card. In checked mode each runs with its threads in three orders, which must
// give the same bits, near the reference's values, both with results in memory of their own and with results that
// overwrite operands in place. A kernel without reductions has the bits of the CPU's kernel.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/kernels/EmulatedFunctions.h"
#include "test/emulation/kernels/KernelRecord.h"
#include "test/kernels/Compare.h"
#include "test/support/Evaluate.h"
#include "test/support/RunCompiled.h"

using namespace mlir;
using namespace tcc;
using tcc::emulation::ThreadOrder;
using tcc::train::HostTensor;

namespace {

func::FuncOp functionOf(ModuleOp module) { return *module.getOps<func::FuncOp>().begin(); }

/// True where every element comes from one scalar program, or from additions in an order that all targets share.
bool hasOneOrder(ModuleOp module) {
  bool one = true;
  module.walk([&](Operation *op) {
    bool ordered = isa<train::ScatterOp, train::ScatterAddOp>(op);
    one &= !isa<train::Reducible>(op) && (ordered || !isa<train::LoopKernel>(op));
  });
  return one;
}

/// Cases of ops that plans for cards may contain: Winograd convolutions exist on CPUs only.
std::vector<test::Case> casesOfCards() {
  std::vector<test::Case> cases = test::allCases();
  std::erase_if(cases, [](const test::Case &c) { return c.body.find("train.winograd") != std::string::npos; });
  return cases;
}

class EmulatedKernels : public testing::TestWithParam<test::Case> {};

TEST_P(EmulatedKernels, AgreeWithReferenceInEveryOrder) {
  const test::Case &c = GetParam();
  test::EmulatedFunctions emulated({true, ThreadOrder::Ascending, 1}, test::KernelRecord::architecture());
  test::CompiledFunctions compiled("cpu:v3");
  struct Typed {
    OwningOpRef<ModuleOp> module, whole, processor;
  };
  std::vector<Typed> all;
  const std::vector<std::string> types = c.elementTypes();
  for (const std::string &type : types) {
    all.push_back({test::parseCase(c, type), test::parseCase(c, type), test::parseCase(c, type)});
    ASSERT_TRUE(all.back().module);
    emulated.add(*all.back().module);
    compiled.add(*all.back().processor);
  }
  ASSERT_TRUE(emulated.compile());
  ASSERT_TRUE(compiled.compile());
  for (auto [type, typed] : llvm::zip_equal(types, all)) {
    SCOPED_TRACE(type);
    const std::vector<HostTensor> arguments = test::argumentsOf(c, functionOf(*typed.whole));
    const std::vector<HostTensor> expected = test::evaluate(functionOf(*typed.whole), arguments);
    emulated.recordAs(type.empty() ? c.name : c.name + " " + type);
    const std::vector<HostTensor> first = emulated.run(*typed.module, arguments);
    emulated.recordAs("");
    ASSERT_EQ(first.size(), expected.size());
    for (auto [got, wanted] : llvm::zip_equal(first, expected))
      test::expectEqual(got, wanted, c);
    if (hasOneOrder(*typed.whole))
      for (auto [got, wanted] : llvm::zip_equal(first, compiled.run(*typed.processor, arguments)))
        test::expectSameBits(got, wanted);
    for (auto [order, placement] : {std::pair(ThreadOrder::Descending, test::Placement::Aligned),
                                    std::pair(ThreadOrder::Seeded, test::Placement::InPlace)}) {
      SCOPED_TRACE(order == ThreadOrder::Seeded ? "seeded" : "descending");
      emulated.options().order = order;
      std::vector<HostTensor> again = emulated.run(*typed.module, arguments, placement);
      ASSERT_EQ(again.size(), first.size());
      for (auto [got, wanted] : llvm::zip_equal(again, first))
        test::expectSameBits(got, wanted);
    }
    emulated.options().order = ThreadOrder::Ascending;
  }
}

/// Ops that move or select 16-bit numbers round nothing: only what computes new ones does, once an element.
TEST(NarrowKernels, RoundOnce) {
  const std::string head = "%out = train.fused(%a, %b) : (tensor<512x$T>, tensor<512x$T>) -> tensor<512x$T> {\n"
                           "^bb0(%x: tensor<512x$T>, %y: tensor<512x$T>):\n"
                           "%m = train.compare lt %x, %y : tensor<512x$T> -> tensor<512xi1>\n",
                    computed = "%c = train.exp %x : tensor<512x$T>\n",
                    selected = "%k = train.constant dense<5.000000e-01> : tensor<512x$T>\n"
                               "%d = train.select %m, %c, %y : tensor<512xi1>, tensor<512x$T>\n"
                               "%e = train.select %m, %d, %k : tensor<512xi1>, tensor<512x$T>\n"
                               "%w = train.cast %e : tensor<512x$T> -> tensor<512xf32>\n"
                               "%r = train.cast %w : tensor<512xf32> -> tensor<512x$T>\n";
  auto kernel = [&](std::string ops, const std::string &result) {
    ops += "train.yield " + result + " : tensor<512x$T>\n}\n";
    return test::Case{"rounding", "(%a: tensor<512x$T>, %b: tensor<512x$T>) -> tensor<512x$T>",
                      head + ops, test::Types::None,
                      {{-2, 2}},  "%out"};
  };
  std::string copied = selected;
  copied.replace(copied.find("%c"), 2, "%x");
  for (const std::string type : {"bf16", "f16"}) {
    SCOPED_TRACE(type);
    auto roundings = [&](const test::Case &c) {
      test::EmulatedFunctions emulated({true, ThreadOrder::Ascending, 1});
      test::CompiledFunctions compiled("cpu:v3");
      auto card = test::parseCase(c, type), processor = test::parseCase(c, type);
      emulated.add(*card);
      compiled.add(*processor);
      int64_t count = 0;
      emulated.rewrite = [&](std::string &text) {
        for (const auto &[rounding, elements] :
             {std::pair<std::string, int64_t>("cvt.rn.bf16x2.f32", 1), {"cvt.rn.f16.f32", 1}, {"cvt.rn.f16x2.f32", 2}})
          for (size_t at = text.find(rounding); at != std::string::npos; at = text.find(rounding, at + 1))
            count += elements;
      };
      if (!emulated.compile() || !compiled.compile())
        return int64_t(-1);
      const std::vector<HostTensor> arguments = test::argumentsOf(c, functionOf(*card));
      test::expectSameBits(emulated.run(*card, arguments).at(0), compiled.run(*processor, arguments).at(0));
      return count;
    };
    const int64_t once = roundings(kernel(computed, "%c"));
    EXPECT_GT(once, 0);
    EXPECT_EQ(roundings(kernel(computed + selected, "%r")), once);
    EXPECT_EQ(roundings(kernel(copied, "%r")), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EmulatedKernels, testing::ValuesIn(casesOfCards()),
                         [](const testing::TestParamInfo<test::Case> &info) { return info.param.name; });

} // namespace

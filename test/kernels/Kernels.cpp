//===- Kernels.cpp - every generated kernel against the reference -*- C++ -*-===//
//
// All cases in all element types: integers must agree exactly, floats up to rounding. Each case runs with operands
// aligned as in a plan, at the ends of pages, in place, and with special numbers in each operand in turn. Every op with
// a case is tested in all these ways (interface-tests names ops without a case).
//
//===----------------------------------------------------------------------===//
#include "test/kernels/Compare.h"
#include "test/support/Evaluate.h"
#include "test/support/RunCompiled.h"

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

func::FuncOp functionOf(ModuleOp module) { return *module.getOps<func::FuncOp>().begin(); }

/// Numbers on which kernels go wrong. Each is put into one element of an operand, some in its tail, or into all
/// elements.
struct Special {
  const char *name;
  double at; ///< position as a fraction of the elements; below 0: all elements
  double (*value)(Type element, double ordinary);

  bool isFinite() const { return at < 0 || std::isfinite(value(Type(), 0)); }
  bool isAt(int64_t index, int64_t size) const { return at < 0 || index == int64_t(at * double(size - 1)); }
};
const Special kSpecials[] = {
    {"NaN", 1, [](Type, double) { return double(NAN); }},
    {"infinity", 0.67, [](Type, double) { return HUGE_VAL; }},
    {"minus infinity", 0.35, [](Type, double) { return -HUGE_VAL; }},
    {"minus zero", 0, [](Type, double) { return -0.0; }},
    {"zeros", -1, [](Type, double ordinary) { return std::copysign(0.0, ordinary); }},
    {"subnormals", -1, [](Type element, double ordinary) { return ordinary * 64 * test::smallestOf(element); }},
};

/// The ends of integer types; indices are clamped, sums and products wrap.
constexpr int64_t kIntegers[] = {INT64_MIN, INT64_MAX, -1, 0, 1, INT32_MIN, INT32_MAX, -128, 127, 255, 32768, -32768};

/// Evaluators are slow for larger cases: these try each special number in one operand of four, a different one for each
/// case and type.
constexpr int64_t kMostElements = 3000, kTurns = 4;

class Kernels : public testing::TestWithParam<test::Case> {
protected:
  /// Runs the case in one type, on one set of arguments after another.
  struct Typed {
    OwningOpRef<ModuleOp> module, whole; ///< for kernels, with composites decomposed; for the evaluators
    OwningOpRef<ModuleOp> reach;         ///< null: the same as `whole`
  };

  void check(test::CompiledFunctions &compiled, Typed &typed, llvm::ArrayRef<HostTensor> arguments,
             bool finite = true) {
    std::vector<HostTensor> expected = test::evaluate(functionOf(*typed.whole), arguments), reach;
    std::vector<HostTensor> actual = compiled.run(*typed.module, arguments);
    if (!finite && typed.reach)
      reach = test::evaluate(functionOf(*typed.reach), arguments);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      SCOPED_TRACE("result " + std::to_string(i));
      test::expectEqual(actual[i], expected[i], GetParam(), reach.empty() ? nullptr : &reach[i]);
    }
  }
};

TEST_P(Kernels, AgreeWithReference) {
  const test::Case &c = GetParam();
  test::CompiledFunctions compiled;
  std::vector<Typed> all;
  for (const std::string &type : c.elementTypes()) {
    all.push_back({test::parseCase(c, type), test::parseCase(c, type), {}});
    ASSERT_TRUE(all.back().module);
    if (!c.reach.empty()) {
      test::Case wide = c;
      wide.body = c.reach;
      all.back().reach = test::parseCase(wide, type);
      ASSERT_TRUE(all.back().reach);
    }
    compiled.add(*all.back().module);
  }
  ASSERT_TRUE(compiled.compile());
  for (auto [type, typed] : llvm::zip_equal(c.elementTypes(), all)) {
    SCOPED_TRACE(type);
    const std::vector<HostTensor> ordinary = test::argumentsOf(c, functionOf(*typed.whole));
    check(compiled, typed, ordinary);
    std::vector<HostTensor> first = compiled.run(*typed.module, ordinary);
    for (test::Placement placement :
         {test::Placement::BeforeFence, test::Placement::AfterFence, test::Placement::InPlace}) {
      SCOPED_TRACE("placement " + std::to_string(int(placement)));
      std::vector<HostTensor> again = compiled.run(*typed.module, ordinary, placement);
      for (auto [got, wanted] : llvm::zip_equal(again, first))
        test::expectSameBits(got, wanted);
    }
    int64_t elements = 0;
    for (const HostTensor &argument : ordinary)
      elements += argument.size();
    for (auto [number, argument] : llvm::enumerate(ordinary)) {
      if (argument.size() == 0)
        continue;
      std::vector<HostTensor> arguments = ordinary;
      HostTensor &changed = arguments[number];
      if (!argument.isFloat()) {
        SCOPED_TRACE("integers' ends in operand " + std::to_string(number));
        for (int64_t i = 0; i < argument.size(); ++i)
          changed.setInt(i, kIntegers[(i * 7 + 3) % std::size(kIntegers)]);
        check(compiled, typed, arguments);
        continue;
      }
      for (auto [turn, special] : llvm::enumerate(kSpecials)) {
        if (!c.readsAll && !special.isFinite())
          continue;
        if (elements > kMostElements && (turn + number + size_t(&typed - all.data()) + c.name.size()) % kTurns != 0)
          continue;
        SCOPED_TRACE(std::string(special.name) + " in operand " + std::to_string(number));
        changed = argument;
        for (int64_t i = 0; i < argument.size(); ++i)
          if (special.isAt(i, argument.size()))
            changed.setDouble(i, special.value(argument.elementType(), argument.getDouble(i)));
        check(compiled, typed, arguments, special.isFinite());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Kernels, testing::ValuesIn(test::allCases()),
                         [](const testing::TestParamInfo<test::Case> &info) { return info.param.name; });

} // namespace

//===- Kernels.cpp - every generated kernel against the reference -*- C++ -*-===//
//
// All cases in all element types: integers must agree exactly, floats to what rounding explains. Each is run where a
// plan would put its operands, at the ends of pages, in place, and with special numbers in each operand in turn. An op
// that has a case has all of this (and interface-tests names those that have none).
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

/// Numbers on which kernels go wrong. Each goes to one element of one operand, or, where they are many, to all of it.
struct Special {
  const char *name;
  bool everywhere;
  double (*value)(Type element, double ordinary);
};
const Special kSpecials[] = {
    {"NaN", false, [](Type, double) { return double(NAN); }},
    {"infinity", false, [](Type, double) { return HUGE_VAL; }},
    {"minus infinity", false, [](Type, double) { return -HUGE_VAL; }},
    {"minus zero", false, [](Type, double) { return -0.0; }},
    {"zeros", true, [](Type, double ordinary) { return std::copysign(0.0, ordinary); }},
    {"subnormals", true, [](Type element, double ordinary) { return ordinary * 64 * test::smallestOf(element); }},
};

/// The ends of integer types; indices are clamped, sums and products wrap.
constexpr int64_t kIntegers[] = {INT64_MIN, INT64_MAX, -1, 0, 1, INT32_MIN, INT32_MAX, -128, 127, 255, 32768, -32768};

/// Larger cases, which other ones stand for, take the evaluators too long to be run again for each of these.
constexpr int64_t kMostElements = 3000;

class Kernels : public testing::TestWithParam<test::Case> {
protected:
  /// Runs the case in one type, on one set of arguments after another.
  struct Typed {
    OwningOpRef<ModuleOp> module, whole; ///< composites are decomposed in the first
  };

  void check(test::CompiledFunctions &compiled, Typed &typed, llvm::ArrayRef<HostTensor> arguments) {
    std::vector<HostTensor> expected = test::evaluate(functionOf(*typed.whole), arguments);
    std::vector<HostTensor> actual = compiled.run(*typed.module, arguments);
    ASSERT_EQ(actual.size(), expected.size());
    for (auto [got, wanted] : llvm::zip_equal(actual, expected))
      test::expectEqual(got, wanted, GetParam());
  }
};

TEST_P(Kernels, AgreeWithReference) {
  const test::Case &c = GetParam();
  test::CompiledFunctions compiled;
  std::vector<Typed> all;
  for (const std::string &type : c.elementTypes()) {
    all.push_back({test::parseCase(c, type), test::parseCase(c, type)});
    ASSERT_TRUE(all.back().module);
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
      if (argument.size() == 0 || elements > kMostElements)
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
      for (const Special &special : kSpecials) {
        if (!c.laysDownNonFinite && !std::isfinite(special.value(argument.elementType(), 1)))
          continue;
        SCOPED_TRACE(std::string(special.name) + " in operand " + std::to_string(number));
        changed = argument;
        for (int64_t i = special.everywhere ? 0 : argument.size() * 2 / 3; i < argument.size(); ++i) {
          changed.setDouble(i, special.value(argument.elementType(), argument.getDouble(i)));
          if (!special.everywhere)
            break;
        }
        check(compiled, typed, arguments);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Kernels, testing::ValuesIn(test::allCases()),
                         [](const testing::TestParamInfo<test::Case> &info) { return info.param.name; });

} // namespace

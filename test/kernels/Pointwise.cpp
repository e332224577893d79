//===- Pointwise.cpp - pointwise kernels at every size and number -*- C++ -*-===//
//
// Every op with the trait Pointwise, by the cases that can have any shape: rows one element shorter and longer than
// vectors and blocks, at each level that this machine has; every pair of special numbers; all 65536 numbers of the
// 16-bit types; and our own functions, whose bits must be those on the host, where ScalarFunctions.cpp bounds their
// errors over every binade.
//
//===----------------------------------------------------------------------===//
#include "test/kernels/Compare.h"
#include "test/support/Evaluate.h"
#include "test/support/RunCompiled.h"
#include "test/support/ScalarFunctionTable.h"

#include "llvm/ADT/StringSet.h"

#include <iomanip>
#include <random>
#include <sstream>

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

func::FuncOp theFunction(ModuleOp module) { return *module.getOps<func::FuncOp>().begin(); }

/// One case of each pointwise op and its attributes.
std::vector<test::Case> pointwiseCases() {
  std::vector<test::Case> cases;
  llvm::StringSet<> bodies;
  for (const test::Case &c : test::allCases())
    if (c.isResizable() && bodies.insert(c.signature + c.body).second)
      cases.push_back(c);
  return cases;
}

TEST(Pointwise, EveryOpHasACaseOfAnyShape) {
  llvm::StringSet<> covered;
  for (const test::Case &c : pointwiseCases()) {
    OwningOpRef<ModuleOp> module = test::parseCase(c, c.elementTypes().front());
    ASSERT_TRUE(module) << c.name;
    module->walk([&](Operation *op) { covered.insert(op->getName().getStringRef()); });
  }
  for (RegisteredOperationName op : test::testContext().getRegisteredOperationsByDialect("train"))
    if (op.hasTrait<train::Pointwise>()) {
      EXPECT_TRUE(covered.contains(op.getStringRef())) << op.getStringRef().str() << " has no case with the shape $S";
    }
}

/// A case in one type and shape, with modules for its kernels and for its evaluator.
struct Example {
  test::Case c;
  std::string type;
  OwningOpRef<ModuleOp> module, whole; ///< one for kernels, which change it, and one to evaluate
  std::vector<HostTensor> arguments;

  Example(test::Case shaped, const std::string &elementType)
      : c(std::move(shaped)), type(elementType), module(test::parseCase(c, type)), whole(test::parseCase(c, type)) {
    EXPECT_TRUE(module) << c.name << " in " << type;
    arguments = test::argumentsOf(c, theFunction(*whole));
  }
  std::vector<HostTensor> expected() const { return test::evaluate(theFunction(*whole), arguments); }
};

test::Case withShape(test::Case c, int64_t extent) {
  c.shape = std::to_string(extent) + "x";
  return c;
}

/// Vectors have 16 or 32 lanes, and blocks 8192 elements; the last block may have a single one.
TEST(Pointwise, RowsOfEveryLength) {
  for (const std::string &level : test::testedLevels()) {
    SCOPED_TRACE(level);
    int64_t lanes = level == "cpu:v3" ? 16 : 32;
    const int64_t extents[] = {1, lanes - 1, lanes, lanes + 1, 3 * lanes + 7, 8192 + lanes + 1};
    test::CompiledFunctions compiled(level);
    std::vector<std::unique_ptr<Example>> examples;
    size_t turn = 0;
    for (const test::Case &c : pointwiseCases())
      for (int64_t extent : extents) {
        // One type for each length, in turn: every type is tested at some length, and fewer kernels are compiled.
        std::vector<std::string> types = c.elementTypes();
        examples.push_back(std::make_unique<Example>(withShape(c, extent), types[turn++ % types.size()]));
        compiled.add(*examples.back()->module);
      }
    ASSERT_TRUE(compiled.compile());
    for (auto &example : examples) {
      SCOPED_TRACE(example->c.name + " " + example->c.shape + example->type);
      std::vector<HostTensor> expected = example->expected();
      for (test::Placement placement :
           {test::Placement::BeforeFence, test::Placement::AfterFence, test::Placement::InPlace})
        for (auto [got, wanted] :
             llvm::zip_equal(compiled.run(*example->module, example->arguments, placement), expected))
          test::expectEqual(got, wanted, example->c);
    }
  }
}

std::string number(double x) { return (std::ostringstream() << std::setprecision(17) << x).str(); }

/// The numbers on which arithmetic goes wrong, for each type.
std::vector<double> specialsOf(Type element) {
  double largest = test::largestOf(element), smallest = test::smallestOf(element);
  double epsilon = element.isF64() ? 0x1p-52 : element.isF32() ? 0x1p-23 : element.isF16() ? 0x1p-10 : 0x1p-7;
  double normal = smallest / epsilon, root = std::sqrt(largest);
  std::vector<double> values = {0,           smallest,    normal - smallest,
                                normal,      normal * 3,  1 - epsilon / 2,
                                1,           1 + epsilon, 0.5,
                                2,           3,           2.5,
                                17.25,       88.5,        104,
                                700,         root,        root * 2,
                                largest / 2, largest,     HUGE_VAL,
                                0.1,         epsilon / 4, 1 / root};
  for (size_t count = values.size(), i = 0; i < count; ++i)
    values.push_back(-values[i]);
  values.push_back(NAN);
  return values;
}

/// The largest |x| for which an op is accurate: beyond it the argument reduction of trigonometric functions is not.
double reducedUpTo(llvm::StringRef name, Type element) {
  bool trigonometric = name.starts_with("sin_") || name.starts_with("cos_") || name.starts_with("tan_");
  return trigonometric ? (element.isF64() ? 0x1p30 : 0x1p50) : HUGE_VAL;
}

/// The absolute error that rounding inside an op may add: in gelu, 1 + erf or 1 + tanh cancels at arguments far below
/// 0; in silu, σ(x) may lose its last subnormal before it is multiplied by x.
double lossOf(llvm::StringRef name, double x, double tolerance, Type element) {
  if (name.starts_with("gelu"))
    return tolerance * std::fabs(x);
  return name.starts_with("silu") ? test::smallestOf(element) * std::fabs(x) : 0;
}

/// Whether the value is within the tolerance of the exact one, relative to it down to subnormal numbers. For an exact
/// value near the largest number ∞ counts as close if all operands were finite. A zero must have the exact sign unless
/// `loss` is above 0.
testing::AssertionResult isClose(double actual, double exact, Type element, double tolerance, double loss,
                                 bool finiteOperands) {
  double edge = test::largestOf(element) * (1 - tolerance);
  bool close;
  if (std::isnan(exact))
    close = std::isnan(actual);
  else if (std::fabs(exact) >= edge)
    close =
        actual == exact || (finiteOperands && std::fabs(actual) >= edge && std::signbit(actual) == std::signbit(exact));
  else
    close = std::fabs(actual - exact) <= tolerance * std::fabs(exact) + loss + 2 * test::smallestOf(element) &&
            (exact != 0 || actual != 0 || loss > 0 || std::signbit(actual) == std::signbit(exact));
  return close ? testing::AssertionSuccess() : testing::AssertionFailure() << actual << ", not " << exact;
}

TEST(Pointwise, SpecialNumbersInEveryOperand) {
  for (const std::string &level : test::testedLevels()) {
    SCOPED_TRACE(level);
    test::CompiledFunctions compiled(level);
    std::vector<std::unique_ptr<Example>> examples;
    for (const test::Case &c : pointwiseCases())
      for (const std::string &type : c.elementTypes()) {
        auto probe = std::make_unique<Example>(c, type);
        auto first = llvm::find_if(probe->arguments, [](const HostTensor &argument) { return argument.isFloat(); });
        if (first == probe->arguments.end())
          continue;
        auto specials = int64_t(specialsOf(first->elementType()).size());
        bool pairs = probe->arguments.size() > 1;
        examples.push_back(std::make_unique<Example>(withShape(c, pairs ? specials * specials : specials), type));
        compiled.add(*examples.back()->module);
      }
    ASSERT_TRUE(compiled.compile());
    for (auto &example : examples) {
      SCOPED_TRACE(example->c.name + " " + example->type);
      int64_t period = 1, specials = 0;
      for (HostTensor &argument : example->arguments)
        if (argument.isFloat()) {
          std::vector<double> values = specialsOf(argument.elementType());
          double bound = reducedUpTo(example->c.name, argument.elementType());
          specials = int64_t(values.size());
          for (int64_t i = 0; i < argument.size(); ++i) {
            double value = values[i / period % specials];
            argument.setDouble(i, std::fabs(value) > bound && std::isfinite(value) ? bound : value);
          }
          period *= specials;
        }
      std::vector<HostTensor> expected = example->expected();
      std::vector<HostTensor> actual = compiled.run(*example->module, example->arguments, test::Placement::BeforeFence);
      for (auto [got, wanted] : llvm::zip_equal(actual, expected))
        for (int64_t i = 0; i < wanted.size(); ++i) {
          if (!wanted.isFloat()) {
            EXPECT_EQ(got.getInt(i), wanted.getInt(i)) << example->arguments[0].getDouble(i);
            continue;
          }
          SCOPED_TRACE("f(" + number(example->arguments[0].getDouble(i)) +
                       (example->arguments.size() > 1 ? ", " + number(example->arguments[1].getDouble(i)) : "") + ")");
          bool finite = llvm::all_of(example->arguments, [&](const HostTensor &argument) {
            return !argument.isFloat() || std::isfinite(argument.getDouble(i));
          });
          double tolerance = example->c.slack * test::toleranceOf(wanted.elementType());
          double loss =
              finite && example->arguments[0].isFloat()
                  ? lossOf(example->c.name, example->arguments[0].getDouble(i), tolerance, wanted.elementType())
                  : 0;
          auto close = isClose(got.getDouble(i), wanted.getDouble(i), wanted.elementType(), tolerance, loss, finite);
          EXPECT_TRUE(close);
          if (!close)
            break;
        }
    }
  }
}

/// The result is the exact one rounded: its error is half a unit in the last place, plus that of the f32 inside.
TEST(Pointwise, AllNumbersOfSixteenBits) {
  test::CompiledFunctions compiled;
  std::vector<std::unique_ptr<Example>> examples;
  for (const test::Case &c : pointwiseCases()) {
    if (c.types != test::Types::Floats && c.types != test::Types::All)
      continue;
    for (const char *type : {"bf16", "f16"}) {
      auto example = std::make_unique<Example>(withShape(c, 65536), type);
      auto results = theFunction(*example->whole).getResultTypes();
      if (example->arguments.size() != 1 || !example->arguments[0].isFloat() || results.size() != 1 ||
          results[0] != example->arguments[0].type())
        continue;
      examples.push_back(std::move(example));
      compiled.add(*examples.back()->module);
    }
  }
  ASSERT_GT(examples.size(), 60u);
  ASSERT_TRUE(compiled.compile());
  for (auto &example : examples) {
    SCOPED_TRACE(example->c.name + " " + example->type);
    Example exact(example->c, "f64");
    HostTensor &argument = example->arguments[0];
    Type element = argument.elementType();
    bool isHalf = element.isF16();
    for (int64_t bits = 0; bits < 65536; ++bits) {
      reinterpret_cast<uint16_t *>(argument.data())[bits] = uint16_t(bits);
      exact.arguments[0].setDouble(bits, argument.getDouble(bits));
    }
    HostTensor actual = compiled.run(*example->module, example->arguments)[0];
    HostTensor expected = exact.expected()[0], rounded(actual.type());
    double bound = reducedUpTo(example->c.name, element);
    for (int64_t i = 0; i < 65536; ++i) {
      double x = argument.getDouble(i), wanted = expected.getDouble(i), got = actual.getDouble(i);
      if (std::isfinite(x) && std::fabs(x) > bound)
        continue;
      rounded.setDouble(i, wanted);
      if (!std::isfinite(rounded.getDouble(i)) || !std::isfinite(got)) {
        ASSERT_TRUE(std::isnan(wanted) ? std::isnan(got) : got == rounded.getDouble(i))
            << x << ": " << got << ", not " << wanted;
        continue;
      }
      int exponent = std::max(std::ilogb(std::max(std::fabs(wanted), 1e-300)), isHalf ? -14 : -126);
      double unit = std::ldexp(1.0, exponent - (isHalf ? 10 : 7)), inside = 0x1p-21 * example->c.slack;
      double loss = lossOf(example->c.name, x, inside, Float32Type::get(element.getContext()));
      ASSERT_LE(std::fabs(got - wanted), unit / 2 + inside * std::fabs(wanted) + loss + 0x1p-149)
          << x << ": " << got << ", not " << wanted;
    }
  }
}

/// Kernels and the host run the same scalar programs and round alike, in vectors and in the tail, at each level.
TEST(ScalarPrograms, AreTheHostsBits) {
  for (const std::string &level : test::testedLevels()) {
    SCOPED_TRACE(level);
    test::CompiledFunctions compiled(level);
    constexpr int64_t kSingles = 30011, kDoubles = 10007; // primes: the last vector is not full
    std::vector<std::unique_ptr<Example>> examples;
    for (const test::ScalarFunction &function : test::scalarFunctions())
      for (bool isDouble : {false, true}) {
        std::string name = function.name;
        test::Case c{name, "(%x: tensor<$S$T>) -> tensor<$S$T>", "%r = train." + name + " %x : tensor<$S$T>"};
        examples.push_back(
            std::make_unique<Example>(withShape(c, isDouble ? kDoubles : kSingles), isDouble ? "f64" : "f32"));
        compiled.add(*examples.back()->module);
      }
    ASSERT_TRUE(compiled.compile());
    for (auto [number, example] : llvm::enumerate(examples)) {
      const test::ScalarFunction &function = test::scalarFunctions()[number / 2];
      SCOPED_TRACE(example->c.name + " " + example->type);
      HostTensor &argument = example->arguments[0];
      HostTensor expected(argument.type());
      std::mt19937_64 random(17);
      std::normal_distribution<double> ordinary(0, 4);
      for (int64_t i = 0; i < argument.size(); ++i) {
        if (example->type == "f64") {
          argument.setDouble(i, i % 2 ? ordinary(random) : std::bit_cast<double>(random()));
          expected.setDouble(i, function.program(test::HostLane::dbl(argument.getDouble(i))).f);
        } else {
          argument.setDouble(i, std::bit_cast<float>(uint32_t(uint64_t(i) * 143113)));
          expected.setDouble(i, function.program(test::HostLane::single(float(argument.getDouble(i)))).f);
        }
      }
      test::expectSameBits(compiled.run(*example->module, example->arguments)[0], expected);
    }
  }
}

} // namespace

//===- LargeReductions.cpp - a million elements and more --------*- C++ -*-===//
//
// Sums along lanes, across them and over several dimensions, and ops that contain sums, against long double. The bound
// is that of the tree (docs/design/codegen.md): a sum that is d additions deep errs by at most d·u·Σ|x|, u = 2⁻²⁴ in f32
// (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). For ten million elements d is below 400; a sequential
// sum would have d = 10⁷, and the bound 0.6·Σ|x| would be useless.
//
//===----------------------------------------------------------------------===//
#include "test/kernels/Compare.h"
#include "test/support/RunCompiled.h"

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

/// The depth of the tree that sums `extent` elements: runs of 128, whose sums are added in runs of 128, …
double depthOf(double extent) {
  double depth = 8; // the tail, and the halving of up to 32 lanes
  for (; extent > 1; extent = std::ceil(extent / 128))
    depth += std::min(extent, 128.0);
  return depth;
}

double unitOf(Type element) { return element.isF64() ? 0x1p-53 : 0x1p-24; } // 16-bit types are added up in f32
/// The relative error of rounding the result to its type.
double lastRounding(Type element) { return element.isF16() ? 0x1p-11 : element.isBF16() ? 0x1p-8 : unitOf(element); }

enum class Data { Positive, Cancelling, Shifted };

/// One function of one tensor, compiled and run.
std::vector<HostTensor> runOn(const test::Case &c, const std::string &type, Data data, HostTensor &x) {
  OwningOpRef<ModuleOp> module = test::parseCase(c, type);
  EXPECT_TRUE(module);
  x = HostTensor(cast<RankedTensorType>((*module->getOps<func::FuncOp>().begin()).getArgumentTypes()[0]));
  uint64_t state = 23;
  for (int64_t i = 0; i < x.size(); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407; // Knuth's generator; its high bits are good
    double unit = double(state >> 11) * 0x1p-53;
    x.setDouble(i, data == Data::Positive ? unit : 4 * unit - 2 + (data == Data::Shifted ? 1000 : 0));
  }
  test::CompiledFunctions compiled;
  compiled.add(*module);
  EXPECT_TRUE(compiled.compile());
  return compiled.run(*module, {x});
}

struct Shape {
  const char *name, *from, *dims, *to;
};

TEST(LargeReductions, SumsAreWithinTheirTreesBound) {
  for (Shape s : {Shape{"one row", "10000019x", "[0]", "1x"},
                  {"columns", "300007x3x", "[0]", "1x3x"},
                  {"rows", "5x200003x", "[1]", "5x1x"},
                  {"everything", "1009x1013x", "[0, 1]", "1x1x"},
                  {"channels", "67x3x129x61x", "[0, 2, 3]", "1x3x1x1x"},
                  {"channels last", "67x129x61x3x", "[0, 1, 2]", "1x1x1x3x"}})
    for (const char *type : {"f32", "f64", "bf16", "f16"})
      for (Data data : {Data::Positive, Data::Cancelling}) {
        if ((std::string(type) != "f32" && std::string(s.name) == "one row") ||
            (data == Data::Positive && std::string(type) == "f16"))
          continue; // a sum of positive numbers soon exceeds 65504, the largest f16
        SCOPED_TRACE(std::string(s.name) + " " + type + (data == Data::Positive ? " positive" : " cancelling"));
        std::string from = std::string("tensor<") + s.from + "$T>", to = std::string("tensor<") + s.to + "$T>";
        HostTensor x;
        auto sums = runOn({"sum", "(%x: " + from + ") -> " + to,
                           std::string("%r = train.reduce sum %x ") + s.dims + " : " + from + " -> " + to},
                          type, data, x);
        ASSERT_EQ(sums.size(), 1u);
        const HostTensor &sum = sums[0];
        std::vector<long double> exact(sum.size()), magnitude(sum.size());
        // The kept dimension's stride in the operand.
        int64_t kept = 0;
        for (size_t d = 0; d < sum.shape().size(); ++d)
          if (sum.shape()[d] > 1)
            kept = int64_t(d);
        int64_t stride = 1;
        for (int64_t extent : x.shape().drop_front(kept + 1))
          stride *= extent;
        for (int64_t i = 0; i < x.size(); ++i) {
          int64_t at = sum.size() == 1 ? 0 : i / stride % sum.size();
          exact[at] += x.getDouble(i);
          magnitude[at] += std::fabs(x.getDouble(i));
        }
        double depth = 0;
        for (size_t d = 0; d < sum.shape().size(); ++d)
          if (sum.shape()[d] == 1)
            depth += depthOf(double(x.shape()[d]));
        for (int64_t i = 0; i < sum.size(); ++i)
          EXPECT_LE(std::fabs(double(sum.getDouble(i) - exact[i])),
                    depth * unitOf(sum.elementType()) * double(magnitude[i]) +
                        lastRounding(sum.elementType()) * std::fabs(double(exact[i])));
      }
}

TEST(LargeReductions, ExtremesAreExact) {
  for (const char *kind : {"max", "min"}) {
    HostTensor x;
    auto result = runOn({"extreme",
                         "(%x: tensor<3000017x$T>) -> (tensor<1x$T>, tensor<1xi64>)",
                         std::string("%r = train.reduce ") + kind +
                             " %x [0] : tensor<3000017x$T> -> tensor<1x$T>\n%i = train.argmax %x dim = 0 " +
                             (kind[1] == 'i' ? "{smallest = true} " : "") + ": tensor<3000017x$T> -> tensor<1xi64>",
                         test::Types::Floats,
                         {},
                         "%r, %i"},
                        "f32", Data::Cancelling, x);
    int64_t best = 0;
    for (int64_t i = 1; i < x.size(); ++i)
      if (kind[1] == 'i' ? x.getDouble(i) < x.getDouble(best) : x.getDouble(i) > x.getDouble(best))
        best = i;
    EXPECT_EQ(result[0].getDouble(0), x.getDouble(best));
    EXPECT_EQ(result[1].getInt(0), best);
  }
}

/// Each exponential of x − max has a relative error of (|x − max| + 4)·u: the rounding of the subtraction, and two ulp
/// of our exp.
TEST(LargeReductions, Softmax) {
  for (const char *type : {"f32", "f64"})
    for (const char *dim : {"0", "1"}) {
      SCOPED_TRACE(std::string(type) + " along " + dim);
      std::string tensor = dim[0] == '0' ? "tensor<1000003x1x$T>" : "tensor<1x1000003x$T>", one = "tensor<1x1x$T>";
      HostTensor x;
      auto results = runOn({"softmax",
                            "(%x: " + tensor + ") -> (" + tensor + ", " + tensor + ", " + one + ")",
                            std::string("%s = train.softmax %x dim = ") + dim + " : " + tensor +
                                "\n%l = train.log_softmax %x dim = " + dim + " : " + tensor +
                                "\n%r = train.logsumexp %x dim = " + dim + " : " + tensor + " -> " + one,
                            test::Types::Floats,
                            {},
                            "%s, %l, %r"},
                           type, Data::Cancelling, x);
      long double sum = 0, largest = -HUGE_VALL, range = 0;
      for (int64_t i = 0; i < x.size(); ++i)
        largest = std::max(largest, (long double)x.getDouble(i));
      for (int64_t i = 0; i < x.size(); ++i) {
        sum += expl(x.getDouble(i) - largest);
        range = std::max(range, largest - x.getDouble(i));
      }
      double unit = unitOf(x.elementType()), relative = (depthOf(double(x.size())) + 2 * double(range) + 16) * unit;
      long double total = largest + logl(sum);
      EXPECT_LE(std::fabs(double(results[2].getDouble(0) - total)), relative + 8 * unit * double(fabsl(total)));
      for (int64_t i = 0; i < x.size(); ++i) {
        double exact = double(expl(x.getDouble(i) - total)), logarithm = double(x.getDouble(i) - total);
        ASSERT_LE(std::fabs(results[0].getDouble(i) - exact), relative * exact) << i;
        ASSERT_LE(std::fabs(results[1].getDouble(i) - logarithm), relative + 8 * unit * std::fabs(logarithm)) << i;
      }
    }
}

/// Mean and deviation of numbers around 1000: the mean first, then squares of differences, in which nothing cancels.
TEST(LargeReductions, MeansVariancesAndNorms) {
  for (const char *type : {"f32", "f64"}) {
    SCOPED_TRACE(type);
    const std::string tensor = "tensor<1x2000003x$T>", row = "tensor<2000003x$T>", one = "tensor<1x1x$T>";
    HostTensor x;
    auto results =
        runOn({"norms",
               "(%x: " + tensor + ") -> (" + one + ", " + one + ", " + one + ")",
               "%c = train.constant dense<1.0> : " + row +
                   "\n%y, %m, %d = train.layer_norm %x, %c axis = 1 epsilon = 0.0 : (" + tensor + ", " + row +
                   ") -> (" + tensor + ", " + one + ", " + one + ")\n%q = train.mul %x, %x : " + tensor +
                   "\n%s = train.reduce sum %q [1] : " + tensor + " -> " + one + "\n%n = train.sqrt %s : " + one,
               test::Types::Floats,
               {},
               "%m, %d, %n"},
              type, Data::Shifted, x);
    long double count = x.size(), sum = 0, squares = 0, variance = 0;
    for (int64_t i = 0; i < x.size(); ++i) {
      sum += x.getDouble(i);
      squares += (long double)x.getDouble(i) * x.getDouble(i);
    }
    for (int64_t i = 0; i < x.size(); ++i)
      variance += (x.getDouble(i) - sum / count) * (x.getDouble(i) - sum / count) / count;
    double relative = (depthOf(double(x.size())) + 8) * unitOf(x.elementType());
    double mean = double(sum / count), deviation = double(sqrtl(variance)), off = relative * mean;
    EXPECT_LE(std::fabs(results[0].getDouble(0) - mean), off);
    // A mean that is off by δ adds δ² to the variance; the relative error of 1/√v is half that of v.
    EXPECT_LE(std::fabs(results[1].getDouble(0) * deviation - 1), relative + off * off / double(variance));
    EXPECT_LE(std::fabs(results[2].getDouble(0) / double(sqrtl(squares)) - 1), relative);
  }
}

} // namespace

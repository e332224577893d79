//===- FusedGraphs.cpp - fused kernels against one kernel an op -*- C++ -*-===//
//
// Random graphs of the ops that fusion merges: chains, broadcasts, reductions that are broadcast back to full size,
// casts, and movements of elements. A value's bits are a property of its op: every result has the same bits whether ops
// are fused or not, in place or not. (Kernels.cpp tests that the kernel of one op is right.)
//
//===----------------------------------------------------------------------===//
#include "test/kernels/Compare.h"
#include "test/support/RunCompiled.h"

#include "passes/Common.h"
#include "passes/Lowering.h"

#include "mlir/Pass/PassManager.h"

#include <random>

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

/// Writes a function of random ops, value by value.
class GraphWriter {
public:
  /// `extremesOnly`: all reductions are maxima and minima, whose bits do not depend on an order.
  explicit GraphWriter(uint64_t seed, bool extremesOnly = false) : random(seed), extremesOnly(extremesOnly) {
    const int64_t extents[] = {1, 2, 3, 5, 7, 16, 31, 33, 64, 70, 129};
    for (int d = 0; d < 3; ++d)
      full.push_back(extents[pick(std::size(extents))]);
  }

  test::Case write(int ops) {
    std::string arguments;
    for (int i = 0; i < 3; ++i) {
      // Full shape, one number a row, or one number a column.
      std::vector<int64_t> shape = full;
      if (i == 1)
        shape[2] = 1;
      if (i == 2)
        shape[0] = shape[1] = 1;
      values.push_back({"%a" + std::to_string(i), shape, pick(4) ? "f32" : "bf16"});
      arguments += (i ? ", " : "") + values.back().name + ": " + values.back().type();
    }
    while (int(values.size()) < ops)
      add();
    std::string names, types;
    for (size_t i = 3; i < values.size(); ++i)
      if (!values[i].isRead || pick(4) == 0) {
        names += (names.empty() ? "" : ", ") + values[i].name;
        types += (types.empty() ? "" : ", ") + values[i].type();
      }
    return {"graph", "(" + arguments + ") -> (" + types + ")", body, test::Types::None, {{-2, 2}}, names};
  }

private:
  struct Written {
    std::string name;
    std::vector<int64_t> shape;
    std::string element;
    bool isRead = false;
    std::string type(const char *as = nullptr) const {
      std::string text = "tensor<";
      for (int64_t extent : shape)
        text += std::to_string(extent) + "x";
      return text + (as ? as : element) + ">";
    }
  };

  size_t pick(size_t count) { return size_t(random() % count); }
  size_t pickValue() { // prefers recent values, so that chains form
    for (;;) {
      size_t back = std::min(pick(values.size()), pick(values.size()));
      if (fits(values[values.size() - 1 - back].shape))
        return values.size() - 1 - back;
    }
  }
  /// Whether the shape broadcasts to the full shape; false for transposed values.
  bool fits(llvm::ArrayRef<int64_t> shape) const {
    return llvm::all_of(llvm::zip_equal(shape, full),
                        [](auto pair) { return std::get<0>(pair) == 1 || std::get<0>(pair) == std::get<1>(pair); });
  }

  /// Defines a new value with that shape and type by `op`.
  size_t define(std::vector<int64_t> shape, std::string element, const std::string &op) {
    values.push_back({"%v" + std::to_string(values.size()), std::move(shape), std::move(element)});
    body += values.back().name + " = train." + op + "\n";
    return values.size() - 1;
  }
  size_t casted(size_t from, const std::string &element) {
    if (values[from].element == element)
      return from;
    values[from].isRead = true;
    Written to = values[from];
    to.element = element;
    return define(to.shape, element, "cast " + values[from].name + " : " + values[from].type() + " -> " + to.type());
  }
  /// `from`, broadcast to the full shape.
  size_t widened(size_t from) {
    if (values[from].shape == full)
      return from;
    values[from].isRead = true;
    Written to = values[from];
    to.shape = full;
    return define(full, to.element,
                  "broadcast " + values[from].name + " : " + values[from].type() + " -> " + to.type());
  }

  void add() {
    size_t first = pickValue();
    values[first].isRead = true;
    const Written x = values[first];
    switch (pick(8)) {
    case 0:
    case 1: {
      const char *ops[] = {"neg", "abs", "relu", "tanh", "sigmoid", "exp", "gelu", "silu", "sin", "sign"};
      define(x.shape, x.element, std::string(ops[pick(std::size(ops))]) + " " + x.name + " : " + x.type());
      return;
    }
    case 2:
    case 3: { // a binary op on two values of one shape
      size_t left = widened(first), right = casted(widened(pickValue()), x.element);
      values[left].isRead = values[right].isRead = true;
      const char *ops[] = {"add", "sub", "mul", "max", "min", "div"};
      define(full, x.element,
             std::string(ops[pick(std::size(ops))]) + " " + values[left].name + ", " + values[right].name + " : " +
                 values[left].type());
      return;
    }
    case 4: { // a reduction from the full shape that keeps the reduced dimensions with extent 1
      size_t whole = widened(first);
      values[whole].isRead = true;
      std::vector<int64_t> shape = full;
      const std::vector<std::vector<int>> dims = {{2}, {1, 2}, {0, 1}, {0}, {0, 1, 2}};
      const std::vector<int> &reduced = dims[pick(dims.size())];
      std::string list;
      for (int d : reduced) {
        shape[d] = 1;
        list += (list.empty() ? "" : ", ") + std::to_string(d);
      }
      const char *kinds[] = {extremesOnly ? "max" : "sum", "max", "min", extremesOnly ? "min" : "sum"};
      Written to = values[whole];
      to.shape = shape;
      define(shape, to.element,
             std::string("reduce ") + kinds[pick(std::size(kinds))] + " " + values[whole].name + " [" + list +
                 "] : " + values[whole].type() + " -> " + to.type());
      return;
    }
    case 5: // a cast to the other type
      casted(first, x.element == "f32" ? "bf16" : "f32");
      return;
    case 6: { // a select between two values
      size_t left = widened(first), right = casted(widened(pickValue()), x.element);
      values[left].isRead = values[right].isRead = true;
      std::string mask = "%m" + std::to_string(values.size());
      body += mask + " = train.compare lt " + values[left].name + ", " + values[right].name + " : " +
              values[left].type() + " -> " + values[left].type("i1") + "\n";
      define(full, x.element,
             "select " + mask + ", " + values[left].name + ", " + values[right].name + " : " + values[left].type("i1") +
                 ", " + values[left].type());
      return;
    }
    default: { // an op between a transpose and its inverse
      Written turned = x;
      turned.shape = {x.shape[2], x.shape[0], x.shape[1]};
      size_t there =
          define(turned.shape, x.element, "transpose " + x.name + " [2, 0, 1] : " + x.type() + " -> " + turned.type());
      values[there].isRead = true;
      size_t changed = define(turned.shape, x.element, "tanh " + values[there].name + " : " + turned.type());
      values[changed].isRead = true;
      define(x.shape, x.element,
             "transpose " + values[changed].name + " [1, 2, 0] : " + turned.type() + " -> " + x.type());
    }
    }
  }

  std::mt19937_64 random;
  bool extremesOnly;
  std::vector<int64_t> full;
  std::vector<Written> values;
  std::string body;
};

/// `parts`: reductions are split into parts, as for a machine that needs thousands of rows to be busy.
LogicalResult fuse(ModuleOp module, bool parts = false) {
  for (auto function : module.getOps<func::FuncOp>())
    function->setAttr(train::names::kEntry, StringAttr::get(module.getContext(), "predict"));
  PassManager passes(module.getContext());
  passes.addNestedPass<func::FuncOp>(train::createFuseKernelsPass());
  if (parts) {
    train::SplitReductionsPassOptions split;
    split.units = 4096;
    split.length = 1;
    passes.addNestedPass<func::FuncOp>(train::createSplitReductionsPass(split));
  }
  return passes.run(module);
}

int64_t kernelsOf(ModuleOp module) {
  int64_t count = 0;
  module.walk([&](train::FusedOp) { ++count; });
  return count;
}

TEST(FusedGraphs, HaveTheBitsOfTheirOps) {
  for (const std::string &level : test::testedLevels()) {
    SCOPED_TRACE(level);
    test::CompiledFunctions compiled(level);
    std::vector<test::Case> cases;
    std::vector<OwningOpRef<ModuleOp>> apart, fused;
    unsigned most = 0;
    for (uint64_t seed = 1; seed <= 32; ++seed) {
      cases.push_back(GraphWriter(seed + (level == "cpu:v3" ? 1000 : 0)).write(22));
      apart.push_back(test::parseCase(cases.back(), ""));
      fused.push_back(test::parseCase(cases.back(), ""));
      ASSERT_TRUE(apart.back() && fused.back()) << cases.back().body;
      ASSERT_TRUE(succeeded(fuse(*fused.back()))) << cases.back().body;
      fused.back()->walk(
          [&](train::FusedOp op) { most = std::max(most, unsigned(op.getBody().front().getOperations().size())); });
      compiled.add(*apart.back());
      compiled.add(*fused.back());
    }
    EXPECT_GE(most, 8u) << "nothing was fused";
    ASSERT_TRUE(compiled.compile());
    for (auto [number, c] : llvm::enumerate(cases)) {
      SCOPED_TRACE("graph " + std::to_string(number + 1) + "\n" + c.signature + "\n" + c.body);
      auto arguments = test::argumentsOf(c, *apart[number]->getOps<func::FuncOp>().begin());
      std::vector<HostTensor> expected = compiled.run(*apart[number], arguments);
      for (test::Placement placement :
           {test::Placement::Aligned, test::Placement::BeforeFence, test::Placement::InPlace}) {
        std::vector<HostTensor> actual = compiled.run(*fused[number], arguments, placement);
        ASSERT_EQ(actual.size(), expected.size());
        for (auto [got, wanted] : llvm::zip_equal(actual, expected))
          test::expectSameBits(got, wanted);
      }
    }
  }
}

/// Split reductions give the results of whole ones: maxima and minima bit by bit, in random graphs; sums within
/// rounding, with all ops that a kernel may compute before, beside and after them.
TEST(SplitReductions, GiveTheResultsOfWholeOnes) {
  test::CompiledFunctions compiled("cpu:v3");
  std::vector<test::Case> cases;
  for (uint64_t seed = 201; seed <= 240; ++seed)
    cases.push_back(GraphWriter(seed, /*extremesOnly=*/true).write(22));
  const size_t random = cases.size();
  const std::string head = "%b = train.broadcast %s : tensor<40xf32> -> tensor<96x40xf32>\n"
                           "%m = train.mul %x, %b : tensor<96x40xf32>\n";
  cases.push_back({"columns", "(%x: tensor<96x40xf32>, %s: tensor<40xf32>) -> (tensor<96x40xf32>, tensor<1x40xf32>, tensor<1x40xf32>)",
                   head + "%r = train.reduce sum %m [0] : tensor<96x40xf32> -> tensor<1x40xf32>\n"
                          "%q = train.reduce sum %x [0] : tensor<96x40xf32> -> tensor<1x40xf32>\n"
                          "%e = train.sub %r, %q : tensor<1x40xf32>\n",
                   test::Types::None, {{-2, 2}}, "%m, %e, %q"});
  cases.push_back({"all", "(%x: tensor<96x40xf32>, %s: tensor<40xf32>) -> (tensor<1x1xf32>)",
                   head + "%r = train.reduce sum %m [0, 1] : tensor<96x40xf32> -> tensor<1x1xf32>\n"
                          "%e = train.sqrt %r : tensor<1x1xf32>\n",
                   test::Types::None, {{1, 2}}, "%e"});
  cases.push_back({"turned", "(%x: tensor<40x96xf32>) -> (tensor<1x40xf32>)",
                   "%t = train.transpose %x [1, 0] : tensor<40x96xf32> -> tensor<96x40xf32>\n"
                   "%a = train.abs %t : tensor<96x40xf32>\n"
                   "%r = train.reduce sum %a [0] : tensor<96x40xf32> -> tensor<1x40xf32>\n",
                   test::Types::None, {{-2, 2}}, "%r"});
  cases.push_back({"normalized", "(%x: tensor<96x40xf32>) -> (tensor<96x40xf32>, tensor<1x40xf32>)",
                   "%r = train.reduce sum %x [0] : tensor<96x40xf32> -> tensor<1x40xf32>\n"
                   "%b = train.broadcast %r : tensor<1x40xf32> -> tensor<96x40xf32>\n"
                   "%d = train.sub %x, %b : tensor<96x40xf32>\n"
                   "%a = train.abs %d : tensor<96x40xf32>\n"
                   "%v = train.reduce sum %a [0] : tensor<96x40xf32> -> tensor<1x40xf32>\n"
                   "%w = train.broadcast %v : tensor<1x40xf32> -> tensor<96x40xf32>\n"
                   "%n = train.div %d, %w : tensor<96x40xf32>\n",
                   test::Types::None, {{-2, 2}}, "%n, %v"});
  cases.push_back({"channels", "(%x: tensor<6x5x4x9xf32>) -> (tensor<1x5x1x1xf32>)",
                   "%r = train.reduce sum %x [0, 2, 3] : tensor<6x5x4x9xf32> -> tensor<1x5x1x1xf32>\n",
                   test::Types::None, {{-2, 2}}, "%r"});
  // Dimensions that become one, with small results, a stored result that the third kernel reads, and one of them of 1.
  cases.push_back({"moments", "(%x: tensor<4x6x4x40xf32>, %s: tensor<1x1x1x40xf32>) -> (tensor<4x6x4x40xf32>, tensor<4x6x4x40xf32>, tensor<1x1x1x40xf32>)",
                   "%z = train.relu %x : tensor<4x6x4x40xf32>\n"
                   "%r = train.reduce sum %z [0, 1, 2] : tensor<4x6x4x40xf32> -> tensor<1x1x1x40xf32>\n"
                   "%k = train.mul %r, %s : tensor<1x1x1x40xf32>\n"
                   "%b = train.broadcast %k : tensor<1x1x1x40xf32> -> tensor<4x6x4x40xf32>\n"
                   "%d = train.sub %z, %b : tensor<4x6x4x40xf32>\n"
                   "%a = train.mul %d, %d : tensor<4x6x4x40xf32>\n"
                   "%v = train.reduce sum %a [0, 1, 2] : tensor<4x6x4x40xf32> -> tensor<1x1x1x40xf32>\n"
                   "%w = train.add %v, %s : tensor<1x1x1x40xf32>\n"
                   "%q = train.broadcast %w : tensor<1x1x1x40xf32> -> tensor<4x6x4x40xf32>\n"
                   "%n = train.mul %d, %q : tensor<4x6x4x40xf32>\n",
                   test::Types::None, {{0, 1}}, "%z, %n, %w"});
  cases.push_back({"one image", "(%x: tensor<1x12x8x40xf32>, %s: tensor<40xf32>) -> (tensor<1x1x1x40xf32>)",
                   "%b = train.broadcast %s : tensor<40xf32> -> tensor<1x12x8x40xf32>\n"
                   "%m = train.mul %x, %b : tensor<1x12x8x40xf32>\n"
                   "%r = train.reduce sum %m [0, 1, 2] : tensor<1x12x8x40xf32> -> tensor<1x1x1x40xf32>\n",
                   test::Types::None, {{0, 1}}, "%r"});
  cases.push_back({"rows vary", "(%x: tensor<4x6x4x40xf32>, %s: tensor<4x1x1x1xf32>) -> (tensor<1x1x1x40xf32>)",
                   "%b = train.broadcast %s : tensor<4x1x1x1xf32> -> tensor<4x6x4x40xf32>\n"
                   "%m = train.mul %x, %b : tensor<4x6x4x40xf32>\n"
                   "%r = train.reduce sum %m [0, 1, 2] : tensor<4x6x4x40xf32> -> tensor<1x1x1x40xf32>\n",
                   test::Types::None, {{0, 1}}, "%r"});
  std::vector<OwningOpRef<ModuleOp>> whole, parted;
  int64_t cut = 0;
  for (const auto &[number, c] : llvm::enumerate(cases)) {
    whole.push_back(test::parseCase(c, ""));
    parted.push_back(test::parseCase(c, ""));
    ASSERT_TRUE(whole.back() && parted.back()) << c.body;
    ASSERT_TRUE(succeeded(fuse(*whole.back())) && succeeded(fuse(*parted.back(), /*parts=*/true))) << c.body;
    int64_t more = kernelsOf(*parted.back()) - kernelsOf(*whole.back());
    EXPECT_TRUE(number < random || more > 0) << c.name << " stayed whole";
    cut += number < random ? more : 0;
    compiled.add(*whole.back());
    compiled.add(*parted.back());
  }
  EXPECT_GE(cut, 20) << "few reductions of random graphs were cut";
  ASSERT_TRUE(compiled.compile());
  for (auto [number, c] : llvm::enumerate(cases)) {
    SCOPED_TRACE(c.name + " " + std::to_string(number) + "\n" + c.signature + "\n" + c.body);
    auto arguments = test::argumentsOf(c, *whole[number]->getOps<func::FuncOp>().begin());
    std::vector<HostTensor> expected = compiled.run(*whole[number], arguments),
                            actual = compiled.run(*parted[number], arguments);
    ASSERT_EQ(actual.size(), expected.size());
    for (auto [got, wanted] : llvm::zip_equal(actual, expected)) {
      if (number < random) {
        test::expectSameBits(got, wanted);
        continue;
      }
      test::Case loose = c;
      loose.slack = 16;
      test::expectEqual(got, wanted, loose);
    }
  }
}

/// A level fixes the bits of results: vectors of 32 lanes give the same bits in AVX2 registers as in AVX-512 registers.
/// On a machine without AVX-512 the other tests of cpu:v4 use AVX2 registers.
TEST(FusedGraphs, OfALevelHaveTheSameBitsOnALesserMachine) {
  if (!test::hasInstructionsOf("cpu:v4"))
    GTEST_SKIP() << "this machine lacks the instructions of cpu:v4";
  test::CompiledFunctions own("cpu:v4"), lesser("cpu:v4", test::Instructions::Avx2);
  std::vector<test::Case> cases;
  std::vector<OwningOpRef<ModuleOp>> graphs, others;
  for (uint64_t seed = 101; seed <= 116; ++seed) {
    cases.push_back(GraphWriter(seed).write(22));
    for (auto *list : {&graphs, &others}) {
      list->push_back(test::parseCase(cases.back(), ""));
      ASSERT_TRUE(list->back() && succeeded(fuse(*list->back()))) << cases.back().body;
    }
    own.add(*graphs.back());
    lesser.add(*others.back());
  }
  ASSERT_TRUE(own.compile() && lesser.compile());
  for (auto [number, c] : llvm::enumerate(cases)) {
    SCOPED_TRACE("graph " + std::to_string(number + 1) + "\n" + c.signature + "\n" + c.body);
    auto arguments = test::argumentsOf(c, *graphs[number]->getOps<func::FuncOp>().begin());
    std::vector<HostTensor> expected = own.run(*graphs[number], arguments), actual = lesser.run(*others[number], arguments);
    ASSERT_EQ(actual.size(), expected.size());
    for (auto [got, wanted] : llvm::zip_equal(actual, expected))
      test::expectSameBits(got, wanted);
  }
}

} // namespace

//===- FusedGraphs.cpp - fused kernels against one kernel an op -*- C++ -*-===//
//
// Random graphs of what fusion merges: chains, broadcasts, reductions that are read again at full size, casts, and what
// moves elements. A value's bits are a property of its op: fused or not, in place or not, every result is the same, bit
// by bit. (That kernels of one op are right is Kernels.cpp's part.)
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
  explicit GraphWriter(uint64_t seed) : random(seed) {
    const int64_t extents[] = {1, 2, 3, 5, 7, 16, 31, 33, 64, 70, 129};
    for (int d = 0; d < 3; ++d)
      full.push_back(extents[pick(std::size(extents))]);
  }

  test::Case write(int ops) {
    std::string arguments;
    for (int i = 0; i < 3; ++i) {
      // The whole space, one number a row, one a column.
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
  size_t pickValue() { // recent ones, so that chains form
    for (;;) {
      size_t back = std::min(pick(values.size()), pick(values.size()));
      if (fits(values[values.size() - 1 - back].shape))
        return values.size() - 1 - back;
    }
  }
  /// False for what a transpose turned.
  bool fits(llvm::ArrayRef<int64_t> shape) const {
    return llvm::all_of(llvm::zip_equal(shape, full),
                        [](auto pair) { return std::get<0>(pair) == 1 || std::get<0>(pair) == std::get<1>(pair); });
  }

  /// A new value `like` with that shape and type.
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
  /// `from` as a value of the whole space.
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
    case 3: { // two values of one shape
      size_t left = widened(first), right = casted(widened(pickValue()), x.element);
      values[left].isRead = values[right].isRead = true;
      const char *ops[] = {"add", "sub", "mul", "max", "min", "div"};
      define(full, x.element,
             std::string(ops[pick(std::size(ops))]) + " " + values[left].name + ", " + values[right].name + " : " +
                 values[left].type());
      return;
    }
    case 4: { // a reduction of the whole space that keeps its dimensions
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
      const char *kinds[] = {"sum", "max", "min", "sum"};
      Written to = values[whole];
      to.shape = shape;
      define(shape, to.element,
             std::string("reduce ") + kinds[pick(std::size(kinds))] + " " + values[whole].name + " [" + list +
                 "] : " + values[whole].type() + " -> " + to.type());
      return;
    }
    case 5: // another type and back
      casted(first, x.element == "f32" ? "bf16" : "f32");
      return;
    case 6: { // a choice between two
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
    default: { // there and back again through a transpose
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
  std::vector<int64_t> full;
  std::vector<Written> values;
  std::string body;
};

LogicalResult fuse(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    function->setAttr(train::names::kEntry, StringAttr::get(module.getContext(), "predict"));
  PassManager passes(module.getContext());
  passes.addNestedPass<func::FuncOp>(train::createFuseKernelsPass());
  return passes.run(module);
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

/// A level is what its results are: vectors of 32 lanes in AVX2's registers have the bits that they have in AVX-512's. On a
/// machine without AVX-512 the other tests of cpu:v4 run so.
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

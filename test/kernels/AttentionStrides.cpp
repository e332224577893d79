//===- AttentionStrides.cpp - attention on strided heads --------*- C++ -*-===//
//
// Attention and its gradient between the slices, transposes and concatenations that exporters put around it.
// fold-strides turns each pass into one kernel that moves no elements. Its results agree with the naive evaluators, and
// have the bits of kernels that move the operands and results of attention.
//
//===----------------------------------------------------------------------===//
#include "test/kernels/FoldedStrides.h"
#include "test/kernels/GraphText.h"

using namespace mlir;
using namespace tcc;

namespace {

enum class Heads {
  Stacked, ///< [samples, positions, 3, heads, features]: one transpose, then slices
  Columns, ///< [samples, positions, 3·heads·features]: slices, then transposes
  Apart,   ///< three tensors, values with positions first
};

struct StridedAttention {
  std::string name;
  Heads form;
  std::vector<int64_t> sizes; ///< samples, heads, heads of keys, queries, keys, features, features of values
  std::string element = "f32", outside = ""; ///< outside: the type of the surrounding tensors, if it is another one
  std::string settings = "";
  bool mask = false;
};

using test::Extents;

class StridedWriter : test::GraphText {
public:
  explicit StridedWriter(const StridedAttention &a) : a(a), outside(a.outside.empty() ? a.element : a.outside) {}

  test::Case write() {
    const int64_t batch = a.sizes[0], heads = a.sizes[1], keyHeads = a.sizes[2], queries = a.sizes[3],
                  keys = a.sizes[4], depth = a.sizes[5], width = a.sizes[6];
    const Extents shapes[] = {
        {batch, heads, queries, depth}, {batch, keyHeads, keys, depth}, {batch, keyHeads, keys, width}};
    const Extents output = {batch, heads, queries, width};
    std::string parts[3], types;
    Extents whole;
    if (a.form == Heads::Stacked) {
      whole = {batch, queries, 3, heads, depth};
      std::string turned = transpose(argument("%x", whole), whole, {2, 0, 3, 1, 4}, outside);
      for (int64_t i = 0; i < 3; ++i)
        parts[i] = inner(reshape(slice(turned, {3, batch, heads, queries, depth}, 0, i, 1),
                                 {1, batch, heads, queries, depth}, shapes[i], outside),
                         shapes[i]);
    } else if (a.form == Heads::Columns) {
      whole = {batch, queries, heads * (2 * depth + width)};
      argument("%x", whole);
      for (int64_t i = 0, first = 0; i < 3; ++i) {
        int64_t features = i < 2 ? depth : width;
        std::string columns = slice("%x", whole, 2, first, heads * features);
        first += heads * features;
        std::string split =
            reshape(columns, {batch, queries, heads * features}, {batch, queries, heads, features}, outside);
        parts[i] = inner(transpose(split, {batch, queries, heads, features}, {0, 2, 1, 3}, outside), shapes[i]);
      }
    } else {
      for (int64_t i = 0; i < 3; ++i) {
        Extents lying = lyingApart(shapes[i], i);
        parts[i] = inner(transpose(argument("%x" + std::to_string(i), lying), lying, order(i), outside), shapes[i]);
      }
    }
    std::string names = parts[0] + ", " + parts[1] + ", " + parts[2], segments = "1, 1, 1, 0", random = "0";
    for (const Extents &shape : shapes)
      types += (types.empty() ? "" : ", ") + type(shape, a.element);
    if (a.mask) {
      names += ", " + argument("%m", {batch, 1, queries, keys}, "i1", {0, 1});
      types += ", " + type({batch, 1, queries, keys}, "i1");
      segments.back() = '0';
    }
    if (a.settings.find("dropout") != std::string::npos) {
      names += ", " + argument("%w", {4}, "ui32", {0, 4e9});
      types += ", tensor<4xui32>";
      random = "1";
    }
    segments += std::string(", ") + (a.mask ? "1" : "0") + ", " + random;
    const Extents rows = {batch, heads, queries, 1};
    const std::string settings = ", scale = 0.4" + a.settings;
    body += "%o, %l, %s = train.attention " + names + " {operandSegmentSizes = array<i32: " + segments + ">" +
            settings + "} : (" + types + ") -> (" + type(output, a.element) + ", " + type(rows, "f32") + ", " +
            type(rows, "f32") + ")\n";
    const Extents lyingOutput = {batch, queries, heads, width};
    std::string result = transpose(outer("%o", output), output, {0, 2, 1, 3}, outside);
    std::string grad = inner(transpose(argument("%g", lyingOutput), lyingOutput, {0, 2, 1, 3}, outside), output);
    body += "%gq, %gk, %gv = train.attention_grad " + names + ", %o, %l, %s, " + grad +
            " {operandSegmentSizes = array<i32: " + segments +
            ", 1, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0>" + settings + "} : (" + types + ", " +
            type(output, a.element) + ", " + type(rows, "f32") + ", " + type(rows, "f32") + ", " +
            type(output, a.element) + ") -> (" + type(shapes[0], a.element) + ", " + type(shapes[1], a.element) + ", " +
            type(shapes[2], a.element) + ")\n";
    std::string returned = result + ", %l", returnedTypes = type(lyingOutput, outside) + ", " + type(rows, "f32");
    const char *grads[] = {"%gq", "%gk", "%gv"};
    if (a.form == Heads::Apart) {
      for (int64_t i = 0; i < 3; ++i) {
        // The transpose back uses the same order, since both orders are their own inverse.
        returned += ", " + transpose(outer(grads[i], shapes[i]), shapes[i], order(i), outside);
        returnedTypes += ", " + type(lyingApart(shapes[i], i), outside);
      }
    } else {
      std::string sum;
      const Extents stacked = {3, batch, heads, queries, depth};
      const Extents &padded = a.form == Heads::Stacked ? stacked : whole;
      // The last part first, in the order in which differentiation adds the parts.
      for (int64_t i = 2; i >= 0; --i) {
        int64_t features = i < 2 ? depth : width;
        std::string part = outer(grads[i], shapes[i]), placed;
        if (a.form == Heads::Stacked) {
          Extents one = {1, batch, heads, queries, depth};
          placed = pad(reshape(part, shapes[i], one, outside), one, padded, 0, i);
        } else {
          Extents split = {batch, queries, heads, features}, columns = {batch, queries, heads * features};
          part = reshape(transpose(part, shapes[i], {0, 2, 1, 3}, outside), split, columns, outside);
          placed = pad(part, columns, padded, 2, i * heads * depth);
        }
        sum = sum.empty() ? placed : define("add " + sum + ", " + placed + " : " + type(padded, outside));
      }
      if (a.form == Heads::Stacked)
        sum = transpose(sum, stacked, {1, 3, 0, 2, 4}, outside);
      returned += ", " + sum;
      returnedTypes += ", " + type(whole, outside);
    }
    test::Case c{a.name, "(" + arguments + ") -> (" + returnedTypes + ")", body, test::Types::None, ranges, returned};
    c.slack = a.element != outside ? 0x1p17 : a.element == "bf16" ? 8 : 64; // 2¹⁷ of f32 are 8 of bf16
    return c;
  }

private:
  /// The transpose of a tensor in memory: queries and keys are stored [samples, positions, heads, features], values
  /// [positions, heads, samples, features].
  static Extents order(int64_t part) { return part < 2 ? Extents{0, 2, 1, 3} : Extents{2, 1, 0, 3}; }
  static Extents lyingApart(const Extents &shape, int64_t part) {
    Extents lying;
    for (int64_t dim : order(part))
      lying.push_back(shape[size_t(dim)]);
    return lying;
  }
  std::string argument(const std::string &name, const Extents &shape, std::string element = "",
                       test::Range range = {-2, 2}) {
    return GraphText::argument(name, shape, element.empty() ? outside : element, range);
  }
  std::string transpose(const std::string &x, const Extents &shape, const Extents &permutation,
                        const std::string &element) {
    return GraphText::transpose({x, shape, element}, permutation).name;
  }
  std::string reshape(const std::string &x, const Extents &from, const Extents &to, const std::string &element) {
    return GraphText::reshape({x, from, element}, to).name;
  }
  std::string slice(const std::string &x, const Extents &shape, size_t dim, int64_t first, int64_t count) {
    return GraphText::slice({x, shape, outside}, dim, first, count).name;
  }
  std::string pad(const std::string &x, const Extents &from, const Extents &to, size_t dim, int64_t low) {
    return GraphText::pad({x, from, outside}, dim, low, to[dim]).name;
  }
  std::string inner(const std::string &x, const Extents &shape) { return cast({x, shape, outside}, a.element).name; }
  std::string outer(const std::string &x, const Extents &shape) { return cast({x, shape, a.element}, outside).name; }

  const StridedAttention &a;
  std::string outside;
};

const std::vector<StridedAttention> kStrided = {
    {"stacked", Heads::Stacked, {1, 3, 3, 70, 70, 32, 32}, "f32", "", ", causal = true"},
    {"stacked_bf16", Heads::Stacked, {2, 2, 2, 67, 67, 6, 6}, "bf16", "", ", causal = true"},
    {"stacked_odd_bf16", Heads::Stacked, {1, 2, 2, 9, 9, 5, 5}, "bf16"},
    {"columns", Heads::Columns, {2, 2, 2, 35, 35, 4, 12}, "f32", "", ", dropout = 0.25, dropoutId = 77", true},
    {"columns_rounded", Heads::Columns, {1, 3, 3, 66, 66, 16, 10}, "bf16", "f32"},
    {"apart_grouped", Heads::Apart, {2, 6, 2, 7, 140, 4, 3}},
};

void checkStrides(const std::string &level, bool bf16Alone) {
  SCOPED_TRACE(level);
  test::CompiledFunctions compiled(level);
  std::vector<test::Case> cases;
  std::vector<OwningOpRef<ModuleOp>> apart, folded;
  for (const StridedAttention &a : kStrided) {
    if (bf16Alone && a.element != "bf16")
      continue;
    SCOPED_TRACE(a.name);
    cases.push_back(StridedWriter(a).write());
    apart.push_back(test::parseCase(cases.back(), ""));
    folded.push_back(test::parseCase(cases.back(), ""));
    ASSERT_TRUE(apart.back() && folded.back()) << cases.back().signature << "\n" << cases.back().body;
    ASSERT_TRUE(succeeded(test::foldStrides(*folded.back()))) << cases.back().body;
    // Only the two kernels, casts and views are left.
    int kernels = 0;
    for (Operation &op : (*folded.back()->getOps<func::FuncOp>().begin()).getBody().front().without_terminator()) {
      kernels += isa<train::FusedOp>(op);
      EXPECT_TRUE((isa<train::FusedOp, train::CastOp>(op)) || op.hasTrait<train::View>())
          << op.getName().getStringRef().str() << " is left";
    }
    EXPECT_EQ(kernels, 2);
    compiled.add(*apart.back());
    compiled.add(*folded.back());
  }
  ASSERT_TRUE(compiled.compile());
  for (auto [number, c] : llvm::enumerate(cases)) {
    SCOPED_TRACE(c.name);
    test::expectFoldedResults(compiled, c, *apart[number], *folded[number]);
  }
}

TEST(AttentionStrides, AreReadAndWrittenInPlace) { checkStrides(test::testedLevels().back(), false); }

TEST(AttentionStrides, AreReadInPairs) {
  if (!test::machineMultipliesPairs())
    GTEST_SKIP() << "this machine has no dot products of bf16";
  checkStrides("cpu:v4-bf16", true);
}

} // namespace

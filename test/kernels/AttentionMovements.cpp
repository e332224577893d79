//===- AttentionMovements.cpp - attention between random movements --------===//
//
// Attention and its gradient between random chains of ops that only move elements: broadcasts along every dimension,
// slices forwards and backwards, transposes, reshapes, pads, concatenations, some with other readers. fold-strides
// absorbs those that its loops can follow, and no others: the results agree with the naive evaluators, and have the
// bits of kernels that move everything first.
//
//===----------------------------------------------------------------------===//
#include "test/kernels/FoldedStrides.h"
#include "test/kernels/GraphText.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace mlir;
using namespace tcc;

namespace {

class MovementWriter : test::GraphText {
public:
  MovementWriter(uint64_t seed, std::string element) : random(seed), element(std::move(element)) {}

  test::Case write() {
    const int64_t batch = 1 + pick(3), keyHeads = 1 + pick(3), heads = keyHeads * (1 + pick(2)),
                  queries = choose({1, 3, 6, 17, 64}), keys = choose({1, 4, 6, 33}),
                  depth = choose({1, 2, 4, 6, 8, 32}), width = choose({1, 2, 5, 6, 32});
    const test::Extents shapes[] = {
        {batch, heads, queries, depth}, {batch, keyHeads, keys, depth}, {batch, keyHeads, keys, width}};
    const test::Extents output = {batch, heads, queries, width}, rows = {batch, heads, queries, 1};
    std::vector<Tensor> parts;
    for (const test::Extents &shape : shapes) {
      // Sometimes one tensor serves as keys and values.
      if (!parts.empty() && parts.back().shape == shape && oneOf(2))
        parts.push_back(parts.back());
      else
        parts.push_back(moved(shape, 1 + pick(3)));
    }
    const std::string settings = std::string(", scale = 0.4") + (oneOf(3) ? ", causal = true" : "");
    std::string names, types;
    for (const Tensor &part : parts) {
      names += (names.empty() ? "" : ", ") + part.name;
      types += (types.empty() ? "" : ", ") + part.type();
    }
    body += "%o, %l, %s = train.attention " + names + " {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>" +
            settings + "} : (" + types + ") -> (" + type(output, element) + ", " + type(rows, "f32") + ", " +
            type(rows, "f32") + ")\n";
    place({"%o", output, element});
    Tensor grad = moved(output, 1 + pick(3));
    body += "%gq, %gk, %gv = train.attention_grad " + names + ", %o, %l, %s, " + grad.name +
            " {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1>, resultSegmentSizes = array<i32: 1, "
            "1, 1, 0>" +
            settings + "} : (" + types + ", " + type(output, element) + ", " + type(rows, "f32") + ", " +
            type(rows, "f32") + ", " + grad.type() + ") -> (" + type(shapes[0], element) + ", " +
            type(shapes[1], element) + ", " + type(shapes[2], element) + ")\n";
    const char *grads[] = {"%gq", "%gk", "%gv"};
    for (int i = 0; i < 3; ++i)
      place({grads[i], shapes[i], element});
    test::Case c{"movements", "(" + arguments + ") -> (" + resultTypes + ")", body, test::Types::None, ranges, results};
    c.slack = element == "f32" ? 256 : 8;
    return c;
  }

private:
  int64_t pick(int64_t count) { return int64_t(random() % uint64_t(count)); }
  bool oneOf(int64_t count) { return pick(count) == 0; }
  int64_t choose(std::initializer_list<int64_t> values) { return values.begin()[pick(int64_t(values.size()))]; }
  size_t pickDim(const test::Extents &shape) { return size_t(pick(int64_t(shape.size()))); }

  test::Extents permutation(size_t rank) {
    test::Extents order(rank);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = rank; i > 1; --i)
      std::swap(order[i - 1], order[size_t(pick(int64_t(i)))]);
    return order;
  }

  /// Other extents with the same number of elements: two adjacent dimensions merged, or one split in two.
  test::Extents regrouped(const test::Extents &shape) {
    test::Extents other = shape;
    size_t dim = pickDim(shape);
    if (dim + 1 < shape.size() && oneOf(2)) {
      other[dim] *= other[dim + 1];
      other.erase(other.begin() + int64_t(dim) + 1);
    } else if (int64_t factor = choose({2, 3}); other[dim] % factor == 0) {
      other[dim] /= factor;
      other.insert(other.begin() + int64_t(dim) + pick(2), factor);
    }
    return other;
  }

  /// A tensor of that shape, made from new arguments by up to `steps` movements.
  Tensor moved(const test::Extents &shape, int64_t steps) {
    if (steps == 0 || shape.empty())
      return {argument("%a" + std::to_string(count++), shape, element), shape, element};
    size_t dim = pickDim(shape);
    test::Extents from = shape;
    switch (pick(8)) {
    case 0:
    case 1: // a broadcast along any dimensions, often along the last one
      for (size_t d = 0; d < shape.size(); ++d)
        if (oneOf(d + 1 == shape.size() ? 2 : 3))
          from[d] = 1;
      return from == shape ? moved(shape, steps) : broadcast(moved(from, steps - 1), shape);
    case 2: {
      int64_t first = pick(3), step = choose({1, 1, 1, 2});
      from[dim] = first + (shape[dim] - 1) * step + 1 + pick(2);
      return slice(moved(from, steps - 1), dim, first, shape[dim], step);
    }
    case 3: {
      from[dim] += pick(2);
      return slice(moved(from, steps - 1), dim, shape[dim] - 1, shape[dim], -1);
    }
    case 4: {
      test::Extents order = permutation(shape.size());
      for (size_t i = 0; i < shape.size(); ++i)
        from[size_t(order[i])] = shape[i];
      return transpose(moved(from, steps - 1), order);
    }
    case 5:
      return reshape(moved(regrouped(shape), steps - 1), shape);
    case 6:
      if (shape[dim] == 1)
        return moved(shape, steps - 1);
      from[dim] -= 1;
      return pad(moved(from, steps - 1), dim, pick(2), shape[dim]);
    default: {
      if (shape[dim] == 1)
        return moved(shape, steps - 1);
      test::Extents rest = shape;
      from[dim] = 1 + pick(shape[dim] - 1);
      rest[dim] -= from[dim];
      Tensor first = moved(from, steps - 1);
      return concat(first, moved(rest, steps - 1), dim);
    }
    }
  }

  /// Makes the function return the tensor after up to three movements, and sometimes also the tensor itself.
  void place(Tensor x) {
    if (oneOf(4))
      give(x);
    for (int64_t steps = pick(4); steps > 0; --steps) {
      size_t dim = pickDim(x.shape);
      switch (pick(6)) {
      case 0: {
        test::Extents wide = x.shape;
        for (int64_t &extent : wide)
          extent = extent == 1 ? 2 : extent;
        wide.insert(wide.begin(), 2);
        if (wide.size() <= 5)
          x = broadcast(x, wide);
        break;
      }
      case 1:
        x = slice(x, dim, pick(x.shape[dim]), 1);
        break;
      case 2:
        x = transpose(x, permutation(x.shape.size()));
        break;
      case 3:
        x = reshape(x, regrouped(x.shape));
        break;
      case 4:
        x = pad(x, dim, pick(3), x.shape[dim] + 2);
        break;
      default:
        x = oneOf(2) ? concat(x, x, dim) : slice(x, dim, x.shape[dim] - 1, x.shape[dim], -1);
      }
    }
    give(x);
  }

  void give(const Tensor &x) {
    results += (results.empty() ? "" : ", ") + x.name;
    resultTypes += (resultTypes.empty() ? "" : ", ") + x.type();
  }

  std::mt19937_64 random;
  std::string element, results, resultTypes;
  int count = 0;
};

/// The number of movements that remain outside the kernels.
int64_t movementsIn(ModuleOp module) {
  int64_t count = 0;
  for (Operation &op : (*module.getOps<func::FuncOp>().begin()).getBody().front())
    count += !isa<train::FusedOp, train::AttentionOp, train::AttentionGradOp, func::ReturnOp>(op);
  return count;
}

void check(const std::string &level, const std::string &element, uint64_t firstSeed, int count) {
  SCOPED_TRACE(level + ", " + element);
  test::CompiledFunctions compiled(level);
  std::vector<test::Case> cases;
  std::vector<OwningOpRef<ModuleOp>> apart, folded;
  int64_t before = 0, after = 0;
  for (int i = 0; i < count; ++i) {
    cases.push_back(MovementWriter(firstSeed + uint64_t(i), element).write());
    SCOPED_TRACE(cases.back().signature + "\n" + cases.back().body);
    apart.push_back(test::parseCase(cases.back(), ""));
    folded.push_back(test::parseCase(cases.back(), ""));
    ASSERT_TRUE(apart.back() && folded.back());
    ASSERT_TRUE(succeeded(test::foldStrides(*folded.back())));
    before += movementsIn(*apart.back());
    after += movementsIn(*folded.back());
    compiled.add(*apart.back());
    compiled.add(*folded.back());
  }
  EXPECT_LT(after, before) << "nothing was folded";
  EXPECT_GT(after, 0) << "everything was folded, broadcast rows as well";
  ASSERT_TRUE(compiled.compile());
  for (auto [number, c] : llvm::enumerate(cases)) {
    SCOPED_TRACE("seed " + std::to_string(firstSeed + number) + "\n" + c.signature + "\n" + c.body);
    test::expectFoldedResults(compiled, c, *apart[number], *folded[number]);
    if (::testing::Test::HasFailure())
      return;
  }
}

TEST(AttentionMovements, AreFollowedOrDone) {
  check(test::testedLevels().back(), "f32", 1, 32);
  check("cpu:v3", "bf16", 101, 12);
}

TEST(AttentionMovements, AreFollowedInPairs) {
  if (!test::machineMultipliesPairs())
    GTEST_SKIP() << "this machine has no dot products of bf16";
  check("cpu:v4-bf16", "bf16", 201, 24);
}

} // namespace

//===- WalkTest.cpp - kernels of rows that also sum columns ---------------===//
//
// A warp, or a block of several, walks over the rows of a part and keeps sums of their columns. The results are those
// of the reference in every order of threads, also where results overwrite operands. Rows have the bits that they have
// without the sums if a warp reduces them. The columns' sums are those of the rows in order, in runs of 128. Passes cut
// rows of two dimensions into parts of both.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/ColumnSums.h"
#include "compiler/target/Target.h"
#include "compiler/target/registry/Targets.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "test/emulation/kernels/EmulatedFunctions.h"
#include "test/kernels/Compare.h"
#include "test/support/Evaluate.h"

#include "mlir/Pass/PassManager.h"

#include <cstring>
#include <gtest/gtest.h>

using namespace tcc;
using tcc::emulation::ThreadOrder;
using tcc::train::HostTensor;

namespace {

/// A region: its operands, ops and results as text. $F stands for the whole type in f32, $N for the same in the narrow
/// type, $R and $C for the types of a row's and a column's number, $S for one row of scales; $r and $c for the
/// dimensions that are reduced for these.
struct Body {
  std::string name, operands, ops, rows, columns;
};

/// Layer norm's gradient with the residual's; sums for scale, shift and a bias. As passes write it.
const Body kLayerNorm{"layer_norm", "%d: $F, %g: $N, %x: $F, %s: $S, %m: $R, %i: $R",
                      R"(%w = train.cast %g : $N -> $F
%sb = train.broadcast %s : $S -> $F
%ws = train.mul %w, %sb : $F
%mb = train.broadcast %m : $R -> $F
%xc = train.sub %x, %mb : $F
%ib = train.broadcast %i : $R -> $F
%xh = train.mul %xc, %ib : $F
%p = train.mul %ws, %xh : $F
%p1 = train.reduce sum %p [$r] : $F -> $R
%p2 = train.reduce sum %ws [$r] : $F -> $R
%b1 = train.broadcast %p1 : $R -> $F
%b2 = train.broadcast %p2 : $R -> $F
%q = train.mul %xh, %b1 : $F
%t = train.sub %ws, %b2 : $F
%u = train.sub %t, %q : $F
%v = train.mul %ib, %u : $F
%y = train.add %d, %v : $F
%n = train.cast %y : $F -> $N
%k = train.mul %w, %xh : $F
)",
                      "%y: $F, %n: $N, %p1: $R", "%k, %w, %y"};

/// Root mean square norm's gradient: one sum.
const Body kRmsNorm{"rms_norm", "%g: $N, %x: $F, %s: $S, %i: $R",
                    R"(%w = train.cast %g : $N -> $F
%sb = train.broadcast %s : $S -> $F
%ws = train.mul %w, %sb : $F
%ib = train.broadcast %i : $R -> $F
%xh = train.mul %x, %ib : $F
%p = train.mul %ws, %xh : $F
%p1 = train.reduce sum %p [$r] : $F -> $R
%b1 = train.broadcast %p1 : $R -> $F
%q = train.mul %xh, %b1 : $F
%u = train.sub %ws, %q : $F
%y = train.mul %ib, %u : $F
%n = train.cast %y : $F -> $N
%k = train.mul %w, %xh : $F
)",
                    "%n: $N", "%k"};

/// A softmax of two levels, with sums of its columns and of a value of the first level.
const Body kSoftmax{"softmax", "%y: $F",
                    R"(%m = train.reduce max %y [$r] : $F -> $R
%mb = train.broadcast %m : $R -> $F
%e = train.sub %y, %mb : $F
%x = train.exp %e : $F
%z = train.reduce sum %x [$r] : $F -> $R
%zb = train.broadcast %z : $R -> $F
%q = train.div %x, %zb : $F
)",
                    "%q: $F, %z: $R", "%q, %e"};

/// The numbers of the rows of each part, in their order. `shape` is that of the rows; `counts` has the parts of each
/// dimension.
std::vector<std::vector<int64_t>> rowsOfParts(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> counts) {
  int64_t rows = 1, parts = 1;
  for (auto [extent, count] : llvm::zip_equal(shape, counts)) {
    rows *= extent;
    parts *= count;
  }
  std::vector<std::vector<int64_t>> found{size_t(parts)};
  for (int64_t row = 0; row < rows; ++row) {
    int64_t part = 0, below = rows, rest = row;
    for (auto [extent, count] : llvm::zip_equal(shape, counts)) {
      below /= extent;
      part = part * count + rest / below / (extent / count);
      rest %= below;
    }
    found[size_t(part)].push_back(row);
  }
  return found;
}

struct Walk {
  std::string name;
  std::vector<int64_t> shape; ///< the last dimension has the columns, those at `parts` count parts
  std::string narrow;         ///< the element type of $N
  Body body;
  std::vector<size_t> parts = {0};

  /// The number of parts along each dimension but the last.
  std::vector<int64_t> counts() const {
    std::vector<int64_t> numbers(shape.size() - 1, 1);
    for (size_t dim : parts)
      numbers[dim] = shape[dim];
    return numbers;
  }

  /// True if a warp reduces a row with and without sums; a block may share a longer one of so few rows.
  bool ofWarps() const { return shape.back() < 512; }

  static std::string typeOf(llvm::ArrayRef<int64_t> shape, const std::string &element) {
    std::string text = "tensor<";
    for (int64_t extent : shape)
      text += std::to_string(extent) + "x";
    return text + element + ">";
  }

  std::string filled(std::string text) const {
    std::vector<int64_t> row = shape, column = shape;
    row.back() = 1;
    std::string dims;
    for (size_t dim = 0; dim + 1 < shape.size(); ++dim)
      if (!llvm::is_contained(parts, dim)) {
        column[dim] = 1;
        dims += (dims.empty() ? "" : ", ") + std::to_string(dim);
      }
    for (auto [sign, value] : {std::pair<std::string, std::string>("$F", typeOf(shape, "f32")),
                               {"$N", typeOf(shape, narrow)},
                               {"$R", typeOf(row, "f32")},
                               {"$C", typeOf(column, "f32")},
                               {"$S", typeOf({shape.back()}, "f32")},
                               {"$r", std::to_string(shape.size() - 1)},
                               {"$c", dims}})
      for (size_t at = text.find(sign); at != std::string::npos; at = text.find(sign, at + value.size()))
        text.replace(at, sign.size(), value);
    return text;
  }

  /// Names and types of a list "%a: $F, %b: $R"; names without type are sums of these values' columns.
  static std::vector<std::pair<std::string, std::string>> parsed(llvm::StringRef list) {
    std::vector<std::pair<std::string, std::string>> items;
    llvm::SmallVector<llvm::StringRef> parts;
    list.split(parts, ", ");
    for (llvm::StringRef part : parts)
      items.push_back({part.split(": ").first.str(), part.split(": ").second.str()});
    return items;
  }

  /// The ops in a region, or for the reference one after the other; with or without sums of columns.
  test::Case of(bool inRegion, bool sums) const {
    std::string ops = body.ops, names, inner, types, operands, operandTypes;
    auto add = [](std::string &list, const std::string &item) { list += (list.empty() ? "" : ", ") + item; };
    auto addResult = [&](const std::string &name, const std::string &type) {
      add(inner, name);
      add(names, "%out" + name.substr(1));
      add(types, type);
    };
    for (const auto &[name, type] : parsed(body.rows))
      addResult(name, type);
    if (sums)
      for (const auto &[name, type] : parsed(body.columns)) {
        const std::string sum = "%sum" + name.substr(1);
        ops += sum + " = train.reduce sum " + name + " [$c] : $F -> $C\n";
        addResult(sum, "$C");
      }
    std::string signature; // a region's arguments have other names than its operands
    for (const auto &[name, type] : parsed(body.operands)) {
      const std::string outer = inRegion ? "%in" + name.substr(1) : name;
      add(signature, outer + ": " + type);
      add(operands, outer);
      add(operandTypes, type);
    }
    if (inRegion)
      ops = names + " = train.fused(" + operands + ") : (" + operandTypes + ") -> (" + types + ") {\n^bb0(" +
            body.operands + "):\n" + ops + "train.yield " + inner + " : " + types + "\n}\n";
    return {name,
            filled("(" + signature + ") -> (" + types + ")"),
            filled(ops),
            test::Types::None,
            {{-1, 1}, {0.5, 1.5}},
            inRegion ? names : inner,
            false,
            8};
  }
};

class Walks : public testing::TestWithParam<Walk> {
protected:
  static mlir::func::FuncOp entryOf(mlir::ModuleOp module) { return *module.getOps<mlir::func::FuncOp>().begin(); }

  static std::vector<HostTensor> launch(const test::Case &c, ThreadOrder order, llvm::ArrayRef<HostTensor> arguments,
                                        test::Placement placement = test::Placement::Aligned) {
    auto module = test::parseCase(c, "");
    test::EmulatedFunctions emulated({true, order, 1});
    if (!module)
      return {};
    emulated.add(*module);
    return emulated.compile() ? emulated.run(*module, arguments, placement) : std::vector<HostTensor>();
  }
};

TEST_P(Walks, GiveRowsAndSumsOfColumns) {
  const Walk &walk = GetParam();
  const test::Case whole = walk.of(true, true), plain = walk.of(false, true);
  auto reference = test::parseCase(plain, "");
  ASSERT_TRUE(reference);
  const std::vector<HostTensor> arguments = test::argumentsOf(plain, entryOf(*reference));
  const std::vector<HostTensor> expected = test::evaluate(entryOf(*reference), arguments);
  const std::vector<HostTensor> results = launch(whole, ThreadOrder::Ascending, arguments);
  ASSERT_EQ(results.size(), expected.size());
  for (auto [got, wanted] : llvm::zip_equal(results, expected))
    test::expectEqual(got, wanted, plain);
  for (auto [order, placement] : {std::pair(ThreadOrder::Descending, test::Placement::Aligned),
                                  std::pair(ThreadOrder::Seeded, test::Placement::InPlace)}) {
    const std::vector<HostTensor> again = launch(whole, order, arguments, placement);
    ASSERT_EQ(again.size(), results.size());
    for (auto [got, wanted] : llvm::zip_equal(again, results))
      test::expectSameBits(got, wanted);
  }
  if (!walk.ofWarps())
    return;
  const std::vector<HostTensor> rows = launch(walk.of(true, false), ThreadOrder::Ascending, arguments);
  for (size_t i = 0; i < rows.size(); ++i)
    test::expectSameBits(results[i], rows[i]);
}

/// The sum of a column: runs of 128 rows in order, then the runs in order.
float sumOfColumn(const float *column, llvm::ArrayRef<int64_t> rows, int64_t stride) {
  constexpr size_t kRun = 128;
  auto runOf = [&](llvm::ArrayRef<int64_t> run) {
    float sum = 0;
    for (int64_t row : run)
      sum += column[row * stride];
    return sum;
  };
  if (rows.size() <= kRun)
    return runOf(rows);
  float sum = 0;
  for (; !rows.empty(); rows = rows.drop_front(std::min(kRun, rows.size())))
    sum += runOf(rows.take_front(kRun));
  return sum;
}

/// Walks that return a tensor whose columns they sum.
class WalksOfResults : public Walks {};

TEST_P(WalksOfResults, AddRowsInOrder) {
  const Walk &walk = GetParam();
  const test::Case whole = walk.of(true, true);
  auto module = test::parseCase(whole, "");
  const std::vector<HostTensor> results =
      launch(whole, ThreadOrder::Seeded, test::argumentsOf(whole, entryOf(*module)));
  ASSERT_FALSE(results.empty());
  const bool norm = walk.body.name == kLayerNorm.name;
  const auto *rows = reinterpret_cast<const float *>(results[0].data());
  const auto *sums = reinterpret_cast<const float *>(results[norm ? results.size() - 1 : results.size() - 2].data());
  const int64_t columns = walk.shape.back();
  for (const auto &[part, own] : llvm::enumerate(rowsOfParts(llvm::ArrayRef(walk.shape).drop_back(), walk.counts())))
    for (int64_t column = 0; column < columns; ++column)
      ASSERT_EQ(sums[int64_t(part) * columns + column], sumOfColumn(rows + column, own, columns))
          << "part " << part << ", column " << column;
}

/// A kernel of rows and its sums, from separate ops through the passes. Some operands vary along one dimension of the
/// rows only; one is a part of a larger tensor.
struct PassedRows {
  std::string name;
  int64_t samples, positions;
  std::vector<int64_t> counts; ///< expected parts along both dimensions

  test::Case plain() const {
    std::string signature = "(%g: $F, %x: $F, %s: tensor<1x40xf32>, %p: tensor<1xPx1xf32>, %c: tensor<Nx1x40xf32>, "
                            "%z: tensor<NxQx40xf32>) -> ($F, $R, $C, $C)",
                ops = R"(%sb = train.broadcast %s : tensor<1x40xf32> -> $F
%pb = train.broadcast %p : tensor<1xPx1xf32> -> $F
%cb = train.broadcast %c : tensor<Nx1x40xf32> -> $F
%zs = train.slice %z starts [0, 1, 0] steps [1, 1, 1] : tensor<NxQx40xf32> -> $F
%a = train.mul %g, %sb : $F
%b = train.mul %a, %pb : $F
%d = train.add %b, %cb : $F
%e = train.add %d, %zs : $F
%m = train.mul %e, %x : $F
%r = train.reduce sum %m [2] : $F -> $R
%rb = train.broadcast %r : $R -> $F
%y = train.sub %e, %rb : $F
%k = train.mul %g, %x : $F
%sum = train.reduce sum %y [0, 1] : $F -> $C
%scale = train.reduce sum %k [0, 1] : $F -> $C
)";
    const std::string samplesText = std::to_string(samples), positionsText = std::to_string(positions);
    for (std::string *text : {&signature, &ops})
      for (auto [sign, value] : {std::pair<std::string, std::string>("$F", "tensor<NxPx40xf32>"),
                                 {"$R", "tensor<NxPx1xf32>"},
                                 {"$C", "tensor<1x1x40xf32>"},
                                 {"<Nx", "<" + samplesText + "x"},
                                 {"xPx", "x" + positionsText + "x"},
                                 {"xQx", "x" + std::to_string(positions + 1) + "x"}})
        for (size_t at = text->find(sign); at != std::string::npos; at = text->find(sign, at + value.size()))
          text->replace(at, sign.size(), value);
    return {name, signature, ops, test::Types::None, {{-1, 1}, {0.5, 1.5}}, "%y, %r, %sum, %scale", false, 8};
  }
};

class WalksByPasses : public testing::TestWithParam<PassedRows> {};

TEST_P(WalksByPasses, GiveRowsAndSumsOfColumns) {
  static const bool registered = (target::registerTargets(), true);
  ASSERT_TRUE(registered);
  const PassedRows &rows = GetParam();
  const test::Case c = rows.plain();
  auto plain = test::parseCase(c, ""), passed = test::parseCase(c, "");
  ASSERT_TRUE(plain && passed);
  auto entryOf = [](mlir::ModuleOp module) { return *module.getOps<mlir::func::FuncOp>().begin(); };
  mlir::MLIRContext *context = passed->getContext();
  entryOf(*passed)->setAttr(train::names::kEntry, mlir::StringAttr::get(context, "predict"));
  (*passed)->setAttr(target::kTargetAttribute, mlir::StringAttr::get(context, "cuda:sm_90"));
  mlir::PassManager passes(context);
  train::FuseColumnSumsPassOptions options;
  options.parts = rows.counts[0] * rows.counts[1];
  options.rows = 2;
  passes.addNestedPass<mlir::func::FuncOp>(train::createFuseKernelsPass());
  passes.addNestedPass<mlir::func::FuncOp>(train::createFuseColumnSumsPass(options));
  passes.addNestedPass<mlir::func::FuncOp>(train::createSplitReductionsPass());
  ASSERT_TRUE(succeeded(passes.run(*passed)));
  int64_t walks = 0, kernels = 0;
  for (auto fused : entryOf(*passed).getOps<train::FusedOp>()) {
    ++kernels;
    walks += int64_t(train::columnSumsOf(fused).size());
  }
  ASSERT_EQ(walks, 2) << "sums of columns beside rows";
  ASSERT_EQ(kernels, 2) << "the walk, and the kernel that adds its parts";
  const std::vector<HostTensor> arguments = test::argumentsOf(c, entryOf(*plain)),
                                expected = test::evaluate(entryOf(*plain), arguments);
  std::vector<HostTensor> results;
  for (ThreadOrder order : {ThreadOrder::Ascending, ThreadOrder::Descending, ThreadOrder::Seeded}) {
    test::EmulatedFunctions emulated({true, order, 1});
    mlir::OwningOpRef<mlir::ModuleOp> own(cast<mlir::ModuleOp>((*passed)->clone()));
    emulated.add(*own);
    ASSERT_TRUE(emulated.compile());
    const std::vector<HostTensor> again = emulated.run(*own, arguments);
    ASSERT_EQ(again.size(), expected.size());
    for (auto [got, wanted] : llvm::zip_equal(again, results.empty() ? again : results))
      test::expectSameBits(got, wanted);
    results = again;
  }
  for (auto [got, wanted] : llvm::zip_equal(results, expected))
    test::expectEqual(got, wanted, c);
  // The sums of the rows that the kernel has written: those of each part, then the parts.
  const auto *written = reinterpret_cast<const float *>(results[0].data());
  const auto *sums = reinterpret_cast<const float *>(results[2].data());
  for (int64_t column = 0; column < 40; ++column) {
    float sum = 0;
    for (const std::vector<int64_t> &part : rowsOfParts({rows.samples, rows.positions}, rows.counts))
      sum += sumOfColumn(written + column, part, 40);
    ASSERT_EQ(sums[column], sum) << "column " << column;
  }
}

/// A block's warps meet twice for each sum of a row: before they read it, and before the next sum or row overwrites it.
TEST(WalkFaults, AMissingBarrierIsFound) {
  const test::Case block = Walk{"of_a_block", {2, 3, 1000}, "f32", kLayerNorm}.of(true, true);
  auto module = test::parseCase(block, "");
  ASSERT_TRUE(module);
  const std::vector<HostTensor> arguments = test::argumentsOf(block, *module->getOps<mlir::func::FuncOp>().begin());
  constexpr std::string_view kBarrier = "bar.sync";
  size_t barriers = 1;
  for (size_t gone = 0; gone < barriers; ++gone) {
    test::EmulatedFunctions emulated({true, ThreadOrder::Ascending, 1});
    emulated.add(*module);
    emulated.rewrite = [&](std::string &text) {
      barriers = 0;
      for (size_t at = text.find(kBarrier); at != std::string::npos; at = text.find(kBarrier, at + 1))
        if (barriers++ == gone)
          text.erase(at, text.find(';', at) + 1 - at);
    };
    ASSERT_TRUE(emulated.compile());
    emulated.tamper = [](std::vector<uint64_t> &) {};
    emulated.run(*module, arguments);
    ASSERT_TRUE(emulated.found) << "without barrier " << gone;
    // Without the first one a warp reads what the other has not written yet.
    EXPECT_EQ(emulated.found->kind, gone == 0 ? emulation::FaultKind::UninitialisedRead : emulation::FaultKind::Race)
        << emulated.found->message();
  }
  EXPECT_EQ(barriers, 4u);
}

std::string nameOf(const testing::TestParamInfo<Walk> &info) { return info.param.body.name + "_" + info.param.name; }

const Walk kOfResults[] = {{"of_a_warp", {3, 7, 96}, "bf16", kLayerNorm},
                           {"of_gpt2", {2, 11, 768}, "bf16", kLayerNorm},
                           {"with_a_tail", {3, 5, 77}, "f32", kLayerNorm},
                           {"of_few_columns", {2, 9, 10}, "bf16", kLayerNorm},
                           {"of_one_row", {5, 1, 64}, "bf16", kLayerNorm},
                           {"of_runs", {2, 300, 40}, "f16", kLayerNorm},
                           {"of_a_block", {2, 5, 1000}, "f32", kLayerNorm},
                           {"of_the_largest_block", {2, 3, 4096}, "bf16", kLayerNorm},
                           {"of_two_levels", {3, 6, 200}, "f32", kSoftmax},
                           {"of_two_levels_in_a_block", {2, 3, 2050}, "f32", kSoftmax},
                           {"across_samples", {3, 2, 5, 64}, "bf16", kLayerNorm, {1}},
                           {"of_parts_of_two_dimensions", {2, 3, 3, 4, 96}, "bf16", kLayerNorm, {0, 2}},
                           {"of_parts_of_two_dimensions_in_a_block", {2, 1, 2, 5, 1000}, "f32", kLayerNorm, {0, 2}},
                           {"of_parts_across_samples", {2, 6, 5, 1, 77}, "f32", kSoftmax, {0, 2}}};
const Walk kOthers[] = {{"with_a_narrow_tail", {3, 5, 97}, "f16", kRmsNorm},
                        {"of_twelve_columns", {2, 4, 1536}, "bf16", kRmsNorm},
                        {"across_samples_of_one_row", {3, 4, 1, 48}, "f32", kRmsNorm, {1}}};
INSTANTIATE_TEST_SUITE_P(Ops, Walks, testing::ValuesIn(kOfResults), nameOf);
INSTANTIATE_TEST_SUITE_P(OtherOps, Walks, testing::ValuesIn(kOthers), nameOf);
INSTANTIATE_TEST_SUITE_P(Ops, WalksOfResults, testing::ValuesIn(kOfResults), nameOf);
// As in BERT, 32 × 512 rows, and in ViT, 64 × 197: 16 rows of one sample, and one row of each of 16 samples.
const PassedRows kPassed[] = {{"of_one_sample", 4, 6, {4, 3}}, {"across_samples", 8, 5, {2, 5}}};
INSTANTIATE_TEST_SUITE_P(Shapes, WalksByPasses, testing::ValuesIn(kPassed),
                         [](const auto &info) { return info.param.name; });

} // namespace

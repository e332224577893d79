//===- PaddingTest.cpp - attention that skips padding, on the machine -----===//
//
// A bias or mask of all queries, [B, 1, 1, keys], lets attention skip keys that are only padding. The same numbers for
// each query, [B, 1, queries, keys], let it skip none: both must give the same bits, near the reference's values, for
// samples whose shown keys begin and end at the borders of blocks and next to them. NaN in skipped keys and values
// reaches no result.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/kernels/EmulatedFunctions.h"
#include "test/kernels/Compare.h"
#include "test/support/Evaluate.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace tcc;
using tcc::emulation::ThreadOrder;
using tcc::train::HostTensor;

namespace {

constexpr double kLowest = -0x1.FEp127; ///< of bf16

/// The keys of a sample that are shown: [first, end).
struct Span {
  int64_t first, end;
};

/// How keys are excluded.
enum class Excludes {
  Mask,        ///< a mask, by −∞
  Fill,        ///< a mask, by the lowest number
  Bias,        ///< a bias of the operands' type
  WideBias,    ///< a bias of f32
  BiasAndMask, ///< a bias before the first key that is shown, a mask behind the last one
  FillAndBias, ///< the same, where the mask has a finite number
};

struct Padding {
  std::string name, type; ///< bf16, f16, tf32 or f32
  int64_t heads, keyHeads, queries, keys, features;
  Excludes excludes;
  double number = kLowest; ///< in an excluding bias
  std::string settings = "";
  bool causal = false;
  int64_t offset = 0;
  bool reference = true; ///< false: rounding errors decide the weights of rows that see only padding

  std::string element() const { return type == "tf32" ? "f32" : type; }
  bool hasMask() const { return excludes != Excludes::Bias && excludes != Excludes::WideBias; }
  bool hasBias() const { return excludes != Excludes::Mask && excludes != Excludes::Fill; }
  bool hasFill() const { return excludes == Excludes::Fill || excludes == Excludes::FillAndBias; }
  std::string biasElement() const { return excludes == Excludes::WideBias ? "f32" : element(); }

  /// Samples without padding, with nothing else, and with padding at either end or both.
  std::vector<Span> spans() const {
    std::vector<Span> all = {{0, keys}, {0, 0}, {0, keys - 1}, {keys - 1, keys}, {17, 18}, {63, 66}};
    for (int64_t border : {1, 16, 17, 32, 33, 63, 64, 65, 127, 128, 129})
      all.push_back({0, border});
    for (int64_t border : {1, 15, 16, 63, 64, 65, 127, 128})
      all.push_back({border, keys});
    return all;
  }

  /// Attention and its gradient; the bias and mask have one row for all queries, or one for `rows` of them.
  test::Case of(int64_t rows) const {
    const auto batch = int64_t(spans().size());
    auto typeOf = [](std::initializer_list<int64_t> shape, const std::string &name) {
      std::string text = "tensor<";
      for (int64_t extent : shape)
        text += std::to_string(extent) + "x";
      return text + name + ">";
    };
    const std::string query = typeOf({batch, heads, queries, features}, element()),
                      key = typeOf({batch, keyHeads, keys, features}, element()),
                      row = typeOf({batch, heads, queries, 1}, "f32"),
                      scores = typeOf({batch, heads, queries, keys}, biasElement()),
                      wide = typeOf({batch, heads, queries, features}, "f32");
    std::string arguments = "%q: " + query + ", %k: " + key + ", %v: " + key + ", %g: " + query, names = "%q, %k, %v",
                types = query + ", " + key + ", " + key, segments = "1, 1, 1";
    auto add = [&](bool there, const std::string &name, const std::string &type) {
      segments += there ? ", 1" : ", 0";
      if (!there)
        return;
      arguments += ", " + name + ": " + type;
      names += ", " + name;
      types += ", " + type;
    };
    add(hasBias(), "%b", typeOf({batch, 1, rows, keys}, biasElement()));
    add(hasMask(), "%m", typeOf({batch, 1, rows, keys}, "i1"));
    add(settings.find("dropout") != std::string::npos, "%w", "tensor<4xui32>");
    std::string all = ", scale = 0.25" + settings;
    if (causal)
      all += ", causal = true, causalOffset = " + std::to_string(offset);
    if (hasFill())
      all += ", maskFill = -3.3895313892515355e+38"; // kLowest
    if (type == "tf32")
      all += ", train.tf32_products";
    const std::string body =
        "%r, %l, %s = train.attention " + names + " {operandSegmentSizes = array<i32: " + segments + ">" + all +
        "} : (" + types + ") -> (" + query + ", " + row + ", " + row + ")\n%r32 = train.cast %r : " + query + " -> " +
        wide + "\n%g32 = train.cast %g : " + query + " -> " + wide + "\n%rg = train.mul %r32, %g32 : " + wide +
        "\n%d = train.reduce sum %rg [3] : " + wide + " -> " + row + "\n%gq, %gk, %gv = train.attention_grad " + names +
        ", %d, %l, %s, %g {operandSegmentSizes = array<i32: " + segments +
        ", 0, 1, 1, 1, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 0>" + all + "} : (" + types + ", " + row + ", " +
        row + ", " + row + ", " + query + ") -> (" + query + ", " + key + ", " + key + ")";
    const double slack = type == "f32" ? 64.0 : type == "tf32" ? 4.0 * 0x1p-10 / 0x1p-21 : 4.0;
    return {name,
            "(" + arguments + ") -> (" + query + ", " + row + ", " + query + ", " + key + ", " + key + ")",
            body,
            test::Types::None,
            {{-1, 1}, {-1, 1}, {-1, 1}, {-1, 1}, {0, 1}},
            "%r, %l, %gq, %gk, %gv",
            false,
            slack};
  }

  /// Writes bias and mask, which have `rows` rows, behind queries, keys, values and gradients.
  void exclude(std::vector<HostTensor> &arguments, int64_t rows) const {
    size_t next = 4;
    HostTensor *bias = hasBias() ? &arguments[next++] : nullptr, *mask = hasMask() ? &arguments[next++] : nullptr;
    const bool both = bias && mask;
    int64_t at = 0;
    for (const Span &span : spans())
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t key = 0; key < keys; ++key, ++at) {
          if (bias)
            bias->setDouble(at, key < span.first || (!both && key >= span.end) ? number : double(key % 7) * 0.25);
          if (mask)
            mask->setInt(at, !(key >= span.end || (!both && key < span.first)));
        }
    if (settings.find("dropout") != std::string::npos)
      for (int64_t i = 0; i < 4; ++i)
        arguments[next].setInt(i, 1234567 * (i + 1));
  }

  /// True if each row sees the first key that is shown, as far as kernels know it: to 16 keys.
  bool rowsSeeShown(const Span &span) const { return !causal || span.first + 15 <= offset; }
};

void PrintTo(const Padding &padding, std::ostream *out) { *out << padding.name; }

func::FuncOp onlyFunctionOf(ModuleOp module) { return *module.getOps<func::FuncOp>().begin(); }

class EmulatedPadding : public testing::TestWithParam<Padding> {};

TEST_P(EmulatedPadding, ChangesNoBit) {
  const Padding &padding = GetParam();
  struct Form {
    int64_t rows;
    OwningOpRef<ModuleOp> module, whole;
    std::vector<HostTensor> arguments;
  };
  std::vector<Form> forms;
  test::EmulatedFunctions emulated({false, ThreadOrder::Ascending, 1});
  for (int64_t rows : {int64_t(1), padding.queries}) {
    const test::Case c = padding.of(rows);
    forms.push_back({rows, test::parseCase(c, ""), test::parseCase(c, ""), {}});
    ASSERT_TRUE(forms.back().module && forms.back().whole);
    forms.back().arguments = test::argumentsOf(c, onlyFunctionOf(*forms.back().whole));
    padding.exclude(forms.back().arguments, rows);
    emulated.add(*forms.back().module);
  }
  ASSERT_TRUE(emulated.compile());
  auto &[rows, skips, whole, arguments] = forms[0];
  std::copy_n(arguments.begin(), 4, forms[1].arguments.begin());
  const std::vector<HostTensor> got = emulated.run(*skips, arguments);
  const std::vector<HostTensor> wanted = emulated.run(*forms[1].module, forms[1].arguments);
  ASSERT_EQ(got.size(), 5u);
  ASSERT_EQ(wanted.size(), 5u);
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE("result " + std::to_string(i));
    test::expectSameBits(got[i], wanted[i]);
  }
  if (padding.reference) {
    const test::Case c = padding.of(1);
    const std::vector<HostTensor> exact = test::evaluate(onlyFunctionOf(*whole), arguments);
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE("result " + std::to_string(i) + " beside the reference's");
      test::expectEqual(got[i], exact[i], c);
    }
  }

  // NaN in whole blocks that are skipped. With a bias of -1e9 none are.
  if (padding.hasBias() && padding.number > -1e30)
    return;
  constexpr int64_t kBlock = 64; // of keys, at most
  const int64_t headElements = padding.keys * padding.features;
  std::vector<HostTensor> poisoned = arguments;
  int64_t blocks = 0;
  for (auto [sample, span] : llvm::enumerate(padding.spans())) {
    if (span.end <= span.first)
      continue;
    const int64_t before = padding.rowsSeeShown(span) ? span.first / kBlock * kBlock : 0,
                  behind = (span.end + kBlock - 1) / kBlock * kBlock;
    for (int64_t head = 0; head < padding.keyHeads; ++head)
      for (int64_t key = 0; key < padding.keys; ++key) {
        if (key >= before && key < behind)
          continue;
        ++blocks;
        for (int64_t feature = 0; feature < padding.features; ++feature)
          for (size_t operand : {1, 2})
            poisoned[operand].setDouble(
                (int64_t(sample) * padding.keyHeads + head) * headElements + key * padding.features + feature, NAN);
      }
  }
  ASSERT_GT(blocks, 0);
  const std::vector<HostTensor> without = emulated.run(*skips, poisoned);
  ASSERT_EQ(without.size(), 5u);
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE("result " + std::to_string(i) + " with NaN in padding");
    test::expectSameBits(without[i], got[i]);
  }
}

std::vector<Padding> paddings() {
  const std::string dropout = ", dropout = 0.25, dropoutId = 81985529216486895";
  std::vector<Padding> all = {
      {"mask", "bf16", 2, 2, 20, 160, 32, Excludes::Mask},
      {"mask_of_odd_keys", "bf16", 1, 1, 19, 151, 64, Excludes::Mask},
      {"mask_and_causal", "bf16", 2, 1, 140, 144, 32, Excludes::Mask, 0, "", true, 10},
      {"mask_of_wide_heads", "bf16", 1, 1, 33, 160, 128, Excludes::Mask},
      {"mask_and_dropout", "f16", 2, 1, 20, 160, 32, Excludes::Mask, 0, dropout},
      {"mask_in_f32", "f32", 1, 1, 20, 160, 32, Excludes::Mask},
      {"fill", "bf16", 1, 1, 20, 160, 64, Excludes::Fill},
      {"fill_and_causal", "f16", 1, 1, 170, 150, 32, Excludes::Fill, 0, "", true, -20},
      {"lowest", "bf16", 1, 1, 20, 160, 64, Excludes::Bias},
      {"lowest_and_causal", "bf16", 2, 2, 140, 144, 32, Excludes::Bias, kLowest, "", true, 10},
      {"lowest_and_causal_and_dropout", "bf16", 2, 1, 150, 136, 32, Excludes::WideBias, kLowest, dropout, true},
      {"lowest_in_f32", "f32", 1, 1, 20, 140, 64, Excludes::Bias},
      {"lowest_in_tf32", "tf32", 1, 1, 20, 139, 128, Excludes::Bias, kLowest, "", true, 130},
      {"wide_lowest", "f16", 1, 1, 20, 160, 64, Excludes::WideBias},
      {"infinity", "f16", 2, 1, 20, 160, 64, Excludes::Bias, -HUGE_VAL},
      {"infinity_and_causal", "bf16", 1, 1, 150, 132, 32, Excludes::WideBias, -HUGE_VAL, "", true},
      {"infinity_of_wide_heads", "f16", 1, 1, 20, 160, 128, Excludes::Bias, -HUGE_VAL},
      {"billion", "bf16", 1, 1, 20, 160, 32, Excludes::Bias, -1e9, "", false, 0, false},
      {"billion_and_causal", "tf32", 1, 1, 140, 144, 32, Excludes::Bias, -1e9, "", true, 0, false},
      {"bias_and_mask", "bf16", 1, 1, 20, 160, 64, Excludes::BiasAndMask},
      {"bias_and_mask_in_f32", "f32", 1, 1, 150, 140, 32, Excludes::BiasAndMask, kLowest, "", true},
      {"fill_and_bias", "bf16", 1, 1, 20, 152, 32, Excludes::FillAndBias},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(Attention, EmulatedPadding, testing::ValuesIn(paddings()),
                         [](const testing::TestParamInfo<Padding> &info) { return info.param.name; });

} // namespace

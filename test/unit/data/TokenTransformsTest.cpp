//===- TokenTransformsTest.cpp - masking, spans and documents -----------------===//
#include "runtime/data/transforms/Tokens.h"
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include <cmath>
#include <map>
#include <numeric>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
/// Fails if `count` successes of `trials` are more than five standard deviations from the share that is expected.
void expectShare(double count, double trials, double share, const char *what) {
  EXPECT_NEAR(count / trials, share, 5 * std::sqrt(share * (1 - share) / trials)) << what;
}

class TokenTransforms : public FolderTest {
protected:
  /// 16-bit tokens, windows of `length`.
  std::string tokens(const std::string &name, const std::vector<uint16_t> &values) {
    return write(name, bytesOf(values));
  }
  Expected<Dataset> open(const std::string &path, int64_t length, const std::string &transform,
                         const std::string &documentEnd = "") {
    DatasetOptions options;
    options.training = true;
    options.windowLength = length;
    if (!transform.empty())
      options.settings["transform"] = "tables = [{ " + transform + " }]";
    if (!documentEnd.empty())
      options.settings["document_end"] = documentEnd;
    return openDataset(path, options);
  }
  template <typename T>
  static std::vector<T> drawn(const Dataset &data, const char *name, uint64_t index, const Draw &draw) {
    const Column &column = *data.find(name);
    std::vector<T> values(column.sampleBytes() / sizeof(T));
    Status status = column.draw(index, draw, reinterpret_cast<std::byte *>(values.data()));
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }
};
} // namespace

TEST(MaskTokens, FollowsBertsDistribution) {
  const TokenMasking masking{0.15, 0.1, 0.1, 103, 1000, -100, {101, 102}};
  std::vector<int64_t> window(400);
  for (size_t i = 0; i < window.size(); ++i)
    window[i] = i % 40 == 0 ? 101 : i % 40 == 39 ? 102 : 200 + int64_t(i) % 100;
  double ordinary = 0, chosen = 0, masked = 0, kept = 0, other = 0;
  std::vector<double> random(1000);
  for (uint64_t sample = 0; sample < 4000; ++sample) {
    TokenSample result;
    Random numbers(Draw{1, 2, 0}, sample, 3);
    maskTokens(masking, window, numbers, result);
    ASSERT_EQ(result.tokens.size(), window.size());
    for (size_t i = 0; i < window.size(); ++i) {
      const bool special = window[i] == 101 || window[i] == 102;
      ordinary += !special;
      if (result.targets[i] == -100) {
        ASSERT_EQ(result.tokens[i], window[i]) << "what is not chosen stays";
        continue;
      }
      ASSERT_FALSE(special);
      ASSERT_EQ(result.targets[i], window[i]);
      ++chosen;
      masked += result.tokens[i] == 103;
      kept += result.tokens[i] == window[i];
      if (result.tokens[i] != 103 && result.tokens[i] != window[i]) {
        ++other;
        ++random[size_t(result.tokens[i])];
      }
    }
  }
  expectShare(chosen, ordinary, 0.15, "chosen");
  // One random token in a thousand is the mask, and one is the original token.
  expectShare(masked, chosen, 0.8 + 0.1 / 1000, "masked");
  expectShare(kept, chosen, 0.1 + 0.1 / 1000, "kept");
  expectShare(other, chosen, 0.1 * (1 - 2.0 / 1000), "random");
  // Random tokens are uniform: chi-square with 998 degrees of freedom, mean 998 and deviation 45.
  double chi = 0, expected = other / 999;
  for (int64_t token = 0; token < 1000; ++token)
    if (token != 103)
      chi += (random[size_t(token)] - expected) * (random[size_t(token)] - expected) / expected;
  EXPECT_NEAR(chi, 998, 5 * 45);
}

/// compute_input_and_target_lengths(512, 0.15, 3.0) of T5's code gives 568 and 114; (1024, …) gives 1137 and 229 by the
/// same formula.
TEST(SpanCorruption, LengthsAreThoseOfT5) {
  const SpanCorruption t5{0.15, 3, 32099, 1};
  EXPECT_EQ(windowFor(t5, 512), 568u);
  EXPECT_EQ(spanCounts(t5, 568).inputs, 512u);
  EXPECT_EQ(spanCounts(t5, 568).targets, 114u);
  for (uint64_t inputs = 3; inputs < 300; ++inputs)
    EXPECT_EQ(spanCounts(t5, windowFor(t5, inputs)).inputs, inputs) << "no length is left out";
}

TEST(SpanCorruption, InputsAndTargetsTogetherAreTheWindow) {
  const SpanCorruption kind{0.3, 2.5, 999, 1};
  std::vector<int64_t> window(57);
  std::iota(window.begin(), window.end(), 100);
  const SpanCounts counts = spanCounts(kind, window.size());
  std::set<std::vector<int64_t>> different;
  for (uint64_t sample = 0; sample < 200; ++sample) {
    TokenSample result;
    Random numbers(Draw{1, 0, 0}, sample, 1);
    ASSERT_TRUE(corruptSpans(kind, window, numbers, result).ok());
    ASSERT_EQ(result.tokens.size(), counts.inputs);
    ASSERT_EQ(result.targets.size(), counts.targets);
    ASSERT_EQ(result.tokens.back(), 1);
    ASSERT_EQ(result.targets.back(), 1);
    // Each sentinel of the inputs stands for the tokens that follow the same sentinel in the targets.
    std::map<int64_t, std::vector<int64_t>> spans;
    int64_t sentinel = 0;
    for (size_t i = 0; i + 1 < result.targets.size(); ++i)
      if (result.targets[i] > 900)
        spans[sentinel = result.targets[i]];
      else
        spans[sentinel].push_back(result.targets[i]);
    std::vector<int64_t> rebuilt;
    int64_t next = 999;
    for (size_t i = 0; i + 1 < result.tokens.size(); ++i)
      if (result.tokens[i] > 900) {
        ASSERT_EQ(result.tokens[i], next--);
        ASSERT_FALSE(spans[result.tokens[i]].empty());
        rebuilt.insert(rebuilt.end(), spans[result.tokens[i]].begin(), spans[result.tokens[i]].end());
      } else {
        rebuilt.push_back(result.tokens[i]);
      }
    ASSERT_EQ(rebuilt, window);
    EXPECT_EQ(spans.size(), counts.spans);
    different.insert(result.tokens);
  }
  EXPECT_GT(different.size(), 195u);
  TokenSample ignored;
  Random numbers(Draw{}, 0, 1);
  window[7] = 998;
  expectError(corruptSpans(kind, window, numbers, ignored), {"token 998 at position 7", "sentinel"});
}

TEST(SpanCorruption, EveryWayToCutIsEquallyLikely) {
  // 10 tokens, 5 of them in 2 spans: 4 ways to cut the spans times 4 ways to cut the rest.
  const SpanCorruption kind{0.5, 2.5, 999, 1};
  std::vector<int64_t> window(10);
  std::iota(window.begin(), window.end(), 0);
  ASSERT_EQ(spanCounts(kind, 10).spans, 2u);
  std::map<std::vector<int64_t>, double> counts;
  constexpr double kTrials = 16000;
  for (uint64_t sample = 0; sample < uint64_t(kTrials); ++sample) {
    TokenSample result;
    Random numbers(Draw{5, 0, 0}, sample, 1);
    ASSERT_TRUE(corruptSpans(kind, window, numbers, result).ok());
    ++counts[result.tokens];
  }
  EXPECT_EQ(counts.size(), 16u);
  for (const auto &[tokens, count] : counts)
    expectShare(count, kTrials, 1.0 / 16, "one way");
}

TEST_F(TokenTransforms, ColumnsOfOneSampleAgree) {
  std::vector<uint16_t> text(40);
  std::iota(text.begin(), text.end(), 10);
  auto data = open(tokens("t.bin", text), 8, "kind = 'mask_tokens', mask = 7, vocabulary = 100, p = 0.5");
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("tokens")->type()), "u16[5x8]");
  EXPECT_EQ(plan::typeName(data->find("targets")->type()), "i64[5x8]");
  bool differs = false;
  for (uint64_t sample = 0; sample < 5; ++sample) {
    const auto masked = drawn<uint16_t>(*data, "tokens", sample, {3, 1, 0});
    const auto targets = drawn<int64_t>(*data, "targets", sample, {3, 1, 0});
    for (size_t i = 0; i < 8; ++i) {
      const int64_t original = text[sample * 8 + i];
      EXPECT_TRUE(targets[i] == original || (targets[i] == -100 && masked[i] == original));
    }
    EXPECT_EQ(masked, drawn<uint16_t>(*data, "tokens", sample, {3, 1, 0})) << "from seed, epoch and sample alone";
    differs |= masked != drawn<uint16_t>(*data, "tokens", sample, {3, 2, 0});
  }
  EXPECT_TRUE(differs) << "another epoch";
  // Span corruption shortens a window, so that inputs of the model's length come from longer windows.
  auto spans = open(tokens("u.bin", std::vector<uint16_t>(400, 5)), 16, "kind = 'span_corruption', sentinel = 99");
  ASSERT_TRUE(spans.ok()) << spans.message();
  const SpanCorruption t5{0.15, 3, 99, 1};
  const uint64_t window = windowFor(t5, 16);
  EXPECT_EQ(spans->find("tokens")->samples(), 400 / window);
  EXPECT_EQ(spans->find("tokens")->type().dims(1), 16);
  const auto targets = drawn<uint16_t>(*spans, "targets", 1, {}),
             decoder = drawn<uint16_t>(*spans, "decoder_tokens", 1, {});
  EXPECT_EQ(decoder.front(), 0);
  EXPECT_TRUE(std::equal(decoder.begin() + 1, decoder.end(), targets.begin())) << "the targets, one later";
}

TEST_F(TokenTransforms, WhatDoesNotFitIsNamed) {
  const std::string path = tokens("t.bin", std::vector<uint16_t>(100, 5));
  expectError(open(path, 8, "kind = 'mask_tokens', mask = 70000, vocabulary = 80000"),
              {"data.transform 1 (mask_tokens)", "mask = 70000", "u16"});
  expectError(open(path, 8, "kind = 'mask_tokens', mask = 50, vocabulary = 50"), {"mask = 50 is no token"});
  expectError(open(path, 8, "kind = 'mask_tokens', mask = 5, vocabulary = 50, random = 0.6, keep = 0.5"),
              {"more than all"});
  expectError(open(path, 8, "kind = 'span_corruption', sentinel = 0, density = 0.5, mean_length = 1"),
              {"sentinel = 0", "below 0"});
  expectError(
      open(path, 8, "kind = 'span_corruption', sentinel = 9 }, { kind = 'mask_tokens', mask = 1, vocabulary = 9"),
      {"data.transform 2 (mask_tokens)", "give one of them"});
  const std::vector<float> values = {1, 2};
  const std::vector<Tensor> tensors = {tensorOf("x", plan::F32, {1, 2}, values)};
  ASSERT_TRUE(writeSafetensors(at("x.safetensors"), tensors).ok());
  expectError(open(at("x.safetensors"), 8, "kind = 'mask_tokens', mask = 1, vocabulary = 9"),
              {"column 'tokens'", "'x'"});
  expectError(open(at("x.safetensors"), 8, "", "3"), {"data.document_end", "no windows"});
  expectError(open(path, 8, "", "70000"), {"data.document_end = 70000", "u16"});
}

TEST_F(TokenTransforms, DocumentsOfPackedWindows) {
  //                                              window 0              window 1
  auto data = open(tokens("t.bin", {4, 5, 0, 6, 0, 0, 7, 8, 9, 9, 9, 0, 1}), 6, "", "0");
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(readSample<int64_t>(*data->find("document"), 0), (std::vector<int64_t>{0, 0, 0, 1, 1, 2}));
  EXPECT_EQ(readSample<int64_t>(*data->find("position"), 0), (std::vector<int64_t>{0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(readSample<int64_t>(*data->find("document"), 1), (std::vector<int64_t>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(readSample<int64_t>(*data->find("position"), 1), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(plan::typeName(data->find("document_mask")->type()), "i1[2x1x6x6]");
  const auto mask = readSample<uint8_t>(*data->find("document_mask"), 0);
  const std::vector<int> documents = {0, 0, 0, 1, 1, 2};
  for (size_t query = 0; query < 6; ++query)
    for (size_t key = 0; key < 6; ++key)
      EXPECT_EQ(mask[query * 6 + key], documents[query] == documents[key]) << query << ", " << key;
  // Masking does not change document numbers.
  auto both = open(at("t.bin"), 6, "kind = 'mask_tokens', mask = 3, vocabulary = 10, p = 1, special = [0]", "0");
  ASSERT_TRUE(both.ok()) << both.message();
  EXPECT_EQ(readSample<int64_t>(*both->find("document"), 0), (std::vector<int64_t>{0, 0, 0, 1, 1, 2}));
  const auto entry = entryOf(2, {{"tokens", plan::I64, {2, 6}, 0}, {"document_mask", plan::I1, {2, 1, 6, 6}, 0}});
  EXPECT_TRUE(BatchReader::bind(entry, *both, {}).ok());
}

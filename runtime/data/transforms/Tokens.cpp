//===- Tokens.cpp - transforms of token windows ------------------------------===//
#include "runtime/data/transforms/Tokens.h"

#include <algorithm>
#include <cmath>

using namespace tcc;
using namespace tcc::runtime;

TokenMasking tcc::runtime::maskingOf(const recipe::TransformSpec &spec) {
  return {spec.real("p"),          spec.real("keep"),          spec.real("random"),
          spec.integer("mask"),    spec.integer("vocabulary"), spec.integer("ignore_index"),
          spec.integers("special")};
}

void tcc::runtime::maskTokens(const TokenMasking &masking, std::span<const int64_t> window, Random &random,
                              TokenSample &sample) {
  sample.tokens.assign(window.begin(), window.end());
  sample.targets.assign(window.size(), masking.ignore);
  for (size_t i = 0; i < window.size(); ++i) {
    if (!random.chance(masking.share) ||
        std::find(masking.special.begin(), masking.special.end(), window[i]) != masking.special.end())
      continue;
    sample.targets[i] = window[i];
    const double kind = random.uniform();
    if (kind < masking.keep)
      continue;
    sample.tokens[i] =
        kind < masking.keep + masking.random ? int64_t(random.below(uint32_t(masking.vocabulary))) : masking.mask;
  }
}

SpanCorruption tcc::runtime::corruptionOf(const recipe::TransformSpec &spec) {
  return {spec.real("density"), spec.real("mean_length"), spec.integer("sentinel"), spec.integer("end")};
}

SpanCounts tcc::runtime::spanCounts(const SpanCorruption &corruption, uint64_t length) {
  // nearbyint rounds halves to even, as numpy's round does.
  const double noise = std::nearbyint(double(length) * corruption.density);
  SpanCounts counts;
  counts.noise = uint64_t(std::clamp(noise, 1.0, double(length - 1)));
  counts.spans = uint64_t(std::max(1.0, std::nearbyint(double(counts.noise) / corruption.meanLength)));
  counts.spans = std::min({counts.spans, counts.noise, length - counts.noise});
  counts.inputs = length - counts.noise + counts.spans + 1;
  counts.targets = counts.noise + counts.spans + 1;
  return counts;
}

uint64_t tcc::runtime::windowFor(const SpanCorruption &corruption, uint64_t inputs) {
  uint64_t length = 2;
  while (spanCounts(corruption, length + 1).inputs <= inputs)
    ++length;
  return length;
}

/// Cuts `count` tokens into `parts` non-empty runs, all ways equally likely, by choosing parts − 1 of the count − 1
/// gaps between tokens (Knuth, The Art of Computer Programming, volume 2, algorithm 3.4.2 S).
static void segment(uint64_t count, uint64_t parts, Random &random, std::vector<uint64_t> &lengths) {
  lengths.assign(1, 1);
  for (uint64_t place = 1; place < count; ++place) {
    const uint64_t wanted = parts - lengths.size(), left = count - place;
    if (random.uniform() * double(left) < double(wanted))
      lengths.push_back(1);
    else
      ++lengths.back();
  }
}

Status tcc::runtime::corruptSpans(const SpanCorruption &corruption, std::span<const int64_t> window, Random &random,
                                  TokenSample &sample) {
  const SpanCounts counts = spanCounts(corruption, window.size());
  const int64_t last = corruption.sentinel - int64_t(counts.spans) + 1;
  for (size_t i = 0; i < window.size(); ++i)
    if (window[i] >= last && window[i] <= corruption.sentinel)
      return error(
          "token {} at position {} is one of the sentinels, {} to {}; use a sentinel that the text does not hold",
          window[i], i, last, corruption.sentinel);
  thread_local std::vector<uint64_t> noise, kept;
  segment(counts.noise, counts.spans, random, noise);
  segment(window.size() - counts.noise, counts.spans, random, kept);
  sample.tokens.clear();
  sample.targets.clear();
  auto at = window.begin();
  for (uint64_t span = 0; span < counts.spans; ++span) {
    sample.tokens.insert(sample.tokens.end(), at, at + int64_t(kept[span]));
    at += int64_t(kept[span]);
    sample.tokens.push_back(corruption.sentinel - int64_t(span));
    sample.targets.push_back(corruption.sentinel - int64_t(span));
    sample.targets.insert(sample.targets.end(), at, at + int64_t(noise[span]));
    at += int64_t(noise[span]);
  }
  sample.tokens.push_back(corruption.end);
  sample.targets.push_back(corruption.end);
  return Status();
}

//===- Tokens.h - transforms of token windows -------------------------------===//
//
// mask_tokens is the masked language modelling of BERT (Devlin and others, arXiv:1810.04805, section 3.1), with each
// token chosen on its own, as Hugging Face's DataCollatorForLanguageModeling does. span_corruption is that of T5
// (Raffel and others, arXiv:1910.10683, section 3.1.4; random_spans_noise_mask in
// google-research/text-to-text-transfer-transformer).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_TOKENS_H
#define TCC_RUNTIME_DATA_TRANSFORMS_TOKENS_H

#include "runtime/data/transforms/Random.h"
#include "support/Status.h"
#include "support/recipe/Transforms.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tcc::runtime {

/// A transformed window.
struct TokenSample {
  std::vector<int64_t> tokens, targets;
};

/// `mask_tokens`: a share of the tokens is chosen. A chosen token is replaced by `mask`, kept (a share `keep` of them)
/// or replaced by a random one below `vocabulary` (a share `random`). Targets are the chosen tokens, elsewhere
/// `ignore`.
struct TokenMasking {
  double share, keep, random;
  int64_t mask, vocabulary, ignore;
  std::vector<int64_t> special; ///< never chosen
};
TokenMasking maskingOf(const recipe::TransformSpec &spec);
void maskTokens(const TokenMasking &masking, std::span<const int64_t> window, Random &random, TokenSample &sample);

/// `span_corruption`: each span of tokens is replaced by a sentinel; targets are the sentinels, each followed by its
/// span. Both end with `end`.
struct SpanCorruption {
  double density, meanLength;
  int64_t sentinel, end; ///< sentinels count down from `sentinel`
};
SpanCorruption corruptionOf(const recipe::TransformSpec &spec);
struct SpanCounts {
  uint64_t noise = 0, spans = 0; ///< number of removed tokens, and of their spans
  uint64_t inputs = 0, targets = 0;
};
/// The counts for a window of `length` ≥ 2 tokens, which do not depend on the random numbers.
SpanCounts spanCounts(const SpanCorruption &corruption, uint64_t length);
/// The longest window whose input has at most `inputs` ≥ 3 tokens.
uint64_t windowFor(const SpanCorruption &corruption, uint64_t inputs);
/// Error: the window holds a sentinel.
Status corruptSpans(const SpanCorruption &corruption, std::span<const int64_t> window, Random &random,
                    TokenSample &sample);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_TOKENS_H

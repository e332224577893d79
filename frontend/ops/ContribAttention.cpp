//===- ContribAttention.cpp - com.microsoft's attention and its relatives -===//
//
// The standard's masks exclude keys; masks of these ops add a number instead: `mask_filter_value` for padded keys,
// −10000 by default.
//
//===----------------------------------------------------------------------===//
#include "frontend/ops/Attention.h"
#include "frontend/ops/Contraction.h"

#include <cmath>
#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace contrib_attention { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

constexpr std::string_view kDomain = "com.microsoft";

Value sliced(NodeImport &n, Value x, int64_t dim, int64_t index) { // without the dimension
  return n.dropDims(n.slice(x, dim, index, 1), {dim});
}
double scaleFor(NodeImport &n, Value query) {
  double given = n.floatAttr("scale", 0);
  return given != 0 ? given : 1 / std::sqrt(double(train::shapeOf(query)[3]));
}

/// i1 [1, 1, L, S]: key j is not later than query i, if `past` keys precede the first query; with `window`, it is also
/// among the last `window` keys up to the query.
Value causalMask(NodeImport &n, int64_t queries, int64_t keys, int64_t past, int64_t window = -1) {
  Expr ahead = n.expr(n.iota({1, 1, queries, 1}, 2)) + double(past) - n.expr(n.iota({1, 1, 1, keys}, 3));
  Expr allowed = ahead.compare(CompareKind::ge, 0);
  if (window < 0)
    return allowed;
  Expr near = ahead.compare(CompareKind::lt, double(window));
  return train::AndOp::create(n.builder, n.loc, allowed.value.getType(), allowed, near);
}

/// The padding mask in input `i`, as a bias: the number of valid keys of each sample [B], or masks [B, T] or [B, L, T].
Expected<Value> paddingBias(NodeImport &n, unsigned i, int64_t batch, int64_t queries, int64_t keys, Type element) {
  Expr mask = n.expr(i);
  Shape shape(n.shape(i));
  Expr counts = mask;
  if (shape == Shape{batch}) {
    Expr position = n.expr(n.iota({1, 1, 1, keys}, 3));
    counts = position.compare(CompareKind::lt, mask.cast(n.i64()).reshape({batch, 1, 1, 1}));
  } else if (shape == Shape{batch, keys}) {
    counts = mask.compare(CompareKind::ne, 0).reshape({batch, 1, 1, keys});
  } else if (shape == Shape{batch, queries, keys}) {
    counts = mask.compare(CompareKind::ne, 0).reshape({batch, 1, queries, keys});
  } else {
    return error(
        "a mask of shape {} for {} samples, {} queries and {} keys is not supported; give [batch], [batch, keys] "
        "or [batch, queries, keys]",
        shapeText(shape), batch, queries, keys);
  }
  Expr zero = n.expr(n.splat({1}, element, 0));
  return counts.select(zero, zero.like(n.floatAttr("mask_filter_value", -10000))).value;
}

/// The common last part: prepends past keys, adds masks, computes attention, returns present keys and values.
Status finish(NodeImport &n, AttentionInputs in, Value pastKey, Value pastValue, std::optional<unsigned> mask,
              std::optional<unsigned> bias, bool causal, std::pair<unsigned, unsigned> present) {
  int64_t past = 0;
  if (!pastKey != !pastValue)
    return error("past keys and past values must be given together");
  if (pastKey) {
    if (train::shapeOf(pastKey).size() != 4 || train::shapeOf(pastValue).size() != 4)
      return error("past keys {} and values {} must have rank 4", typeText(pastKey), typeText(pastValue));
    past = train::shapeOf(pastKey)[2];
    TCC_TRY(key, concatenated(n, pastKey, in.key, 2));
    TCC_TRY(value, concatenated(n, pastValue, in.value, 2));
    in.key = key, in.value = value;
  }
  const Shape query(train::shapeOf(in.query)), key(train::shapeOf(in.key));
  const Type element = train::elementTypeOf(in.query);
  in.scale = scaleFor(n, in.query);
  if (mask) {
    TCC_TRY(padding, paddingBias(n, *mask, query[0], query[2], key[2], element));
    in.bias.push_back(padding);
  }
  if (bias)
    in.bias.push_back(n.in(*bias));
  if (causal)
    in.allowed.push_back(causalMask(n, query[2], key[2], past));
  TCC_TRY(out, attend(n, in));
  (void)n.set(0, joinHeads(n, out.result));
  if (present.first == present.second) { // one tensor [2, B, H, T, D]
    if (!n.wants(present.first))
      return Status::success();
    Shape one(train::shapeOf(in.key));
    one.insert(one.begin(), 1);
    TCC_TRY(both, concatenated(n, n.reshape(in.key, one), n.reshape(in.value, one), 0));
    return n.set(present.first, both);
  }
  if (n.wants(present.first))
    (void)n.set(present.first, in.key);
  if (n.wants(present.second))
    (void)n.set(present.second, in.value);
  if (n.wants(3))
    (void)n.set(3, out.biased);
  return Status::success();
}

Status multiHeadAttention(NodeImport &n) {
  const int64_t heads = n.intAttr("num_heads", 0);
  if (n.has(8) || n.has(9))
    return error("a key cache that is written in place is not supported; export without past_sequence_length and "
                       "cache_indirection");
  AttentionInputs in;
  Value parts[3];
  bool ready[3] = {false, false, false}; // [B, H, T, D] already
  if (n.rank(0) == 5 || (n.has(1) && n.rank(1) == 5)) {
    // Packed: [B, T, heads, 3, D], or keys and values as [B, T, heads, 2, D].
    unsigned from = n.rank(0) == 5 ? 0 : 1;
    if (n.rank(from) != 5 || n.shape(from)[2] != heads || n.shape(from)[3] != 3 - from || n.rank(0) == 0)
      return error("{} is not packed as [batch, sequence, {} heads, 3 or 2, size]", typeText(n.in(from)), heads);
    for (unsigned i = from; i < 3; ++i) {
      Value part = sliced(n, n.in(from), 3, i - from);
      llvm::ArrayRef<int64_t> shape = train::shapeOf(part);
      parts[i] = n.reshape(part, {shape[0], shape[1], shape[2] * shape[3]});
    }
    if (from == 1)
      parts[0] = n.in(0);
  } else {
    if (!n.has(1) || !n.has(2))
      return error("key or value is missing");
    for (unsigned i = 0; i < 3; ++i) {
      if (n.rank(i) != 3 && n.rank(i) != 4)
        return error("{} is neither [batch, sequence, features] nor [batch, heads, sequence, size]", typeText(n.in(i)));
      parts[i] = n.in(i);
      ready[i] = n.rank(i) == 4;
    }
  }
  if (n.has(3)) { // one vector holds the biases of queries, keys and values
    int64_t begin = 0;
    for (unsigned i = 0; i < 3; ++i) {
      if (ready[i])
        return error("a bias cannot be added to {}, whose heads are already split", typeText(parts[i]));
      int64_t width = train::shapeOf(parts[i]).back();
      if (n.rank(3) != 1 || begin + width > n.shape(3)[0])
        return error("bias {} should be a vector with one element for each feature of query, key and value",
                     typeText(n.in(3)));
      parts[i] = n.expr(parts[i]) + n.expr(n.slice(n.in(3), 0, begin, width));
      begin += width;
    }
  }
  Value *targets[] = {&in.query, &in.key, &in.value};
  for (unsigned i = 0; i < 3; ++i) {
    if (ready[i]) {
      *targets[i] = parts[i];
      continue;
    }
    TCC_TRY(split, splitHeads(n, parts[i], heads));
    *targets[i] = split;
  }
  auto optional = [&](unsigned i) { return n.has(i) ? std::optional<unsigned>(i) : std::nullopt; };
  return finish(n, in, n.has(6) ? n.in(6) : Value(), n.has(7) ? n.in(7) : Value(), optional(4), optional(5),
                n.intAttr("unidirectional", 0) != 0, {1, 2});
}

/// The first of these ops: projects its input to queries, keys and values itself.
Status inputAttention(NodeImport &n) {
  const int64_t heads = n.intAttr("num_heads", 0);
  if (n.intAttr("do_rotary", 0) || n.has(6) || n.rank(0) != 3 || n.rank(1) != 2)
    return error(
        "only an input [batch, sequence, features] and a weight matrix are supported, without rotary embedding or "
        "shared caches");
  TCC_TRY(product, matrixProduct(n, n.in(0), n.in(1)));
  if (n.has(2))
    product = n.expr(product) + n.expr(2);
  const int64_t width = train::shapeOf(product)[2];
  Shape sizes = n.intsAttr("qkv_hidden_sizes").value_or(Shape{width / 3, width / 3, width / 3});
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != width)
    return error("the weight computes {} features, but queries, keys and values need {}", width, shapeText(sizes));
  AttentionInputs in;
  int64_t begin = 0;
  Value *targets[] = {&in.query, &in.key, &in.value};
  for (unsigned i = 0; i < 3; ++i) {
    TCC_TRY(split, splitHeads(n, n.slice(product, 2, begin, sizes[i]), heads));
    *targets[i] = split;
    begin += sizes[i];
  }
  Value pastKey, pastValue;
  if (n.has(4)) {
    if (n.rank(4) != 5 || n.shape(4)[0] != 2)
      return error("past {} is not [2, batch, heads, sequence, size]", typeText(n.in(4)));
    pastKey = sliced(n, n.in(4), 0, 0);
    pastValue = sliced(n, n.in(4), 0, 1);
  }
  auto optional = [&](unsigned i) { return n.has(i) ? std::optional<unsigned>(i) : std::nullopt; };
  return finish(n, in, pastKey, pastValue, optional(3), optional(5), n.intAttr("unidirectional", 0) != 0, {1, 1});
}

/// Rows `positions` of the caches; one position is that of the first of `length` tokens.
Expected<Value> angles(NodeImport &n, Value cache, Value positions, int64_t length) {
  Shape ids(train::shapeOf(positions));
  Expr index = n.expr(positions).cast(n.i64());
  if (countOf(ids) == 1 && ids.size() <= 1) {
    index = index.reshape({1, 1}) + n.expr(n.iota({1, length}, 1));
    ids = {1, length};
  }
  if (train::shapeOf(cache).size() != 2 || ids.size() != 2 || ids[1] != length)
    return error("positions {} and the cache {} do not fit {} tokens", typeText(positions), typeText(cache),
                       length);
  Shape shape = {ids[0], ids[1], train::shapeOf(cache)[1]};
  return train::GatherOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(cache)), cache, index, 0)
      .getResult();
}

Status rotaryEmbedding(NodeImport &n) {
  if (n.intAttr("is_packed_batching", 0))
    return error("several sequences in one row (is_packed_batching) are not supported");
  Value x = n.in(0);
  const bool packed = n.rank(0) == 3;
  if (n.rank(2) != 2 || (!packed && n.rank(0) != 4))
    return error("{} must have rank 3 or 4, and the cache {} rank 2", typeText(x), typeText(n.in(2)));
  int64_t heads = n.intAttr("num_heads", 0), dim = n.intAttr("rotary_embedding_dim", 0);
  if (packed) {
    TCC_TRY(split, splitHeads(n, x, heads ? heads : n.shape(0)[2] / std::max<int64_t>(1, n.shape(2)[1] * 2)));
    x = split;
  }
  Shape shape(train::shapeOf(x));
  TCC_TRY(cosine, angles(n, n.in(2), n.in(1), shape[2]));
  TCC_TRY(sine, angles(n, n.in(3), n.in(1), shape[2]));
  TCC_TRY(result, rotated(n, x, cosine, sine, dim ? dim : shape[3], n.intAttr("interleaved", 0) != 0));
  double scale = n.floatAttr("scale", 1);
  Expr value = scaled(n.expr(result), scale);
  return n.result(packed ? joinHeads(n, value) : value.value);
}

Status groupQueryAttention(NodeImport &n) {
  const int64_t heads = n.intAttr("num_heads", 0), groups = n.intAttr("kv_num_heads", 0);
  for (unsigned i : {12u, 13u, 14u, 15u})
    if (n.has(i))
      return error("quantised caches and norms inside the op are not supported");
  if (n.intAttr("sliding_window_cache", 0))
    return error("a cache as long as the window (sliding_window_cache) is not supported");
  Value parts[3];
  AttentionInputs in;
  if (n.has(1) && n.has(2)) {
    for (unsigned i = 0; i < 3; ++i)
      parts[i] = n.in(i);
  } else {
    const int64_t all = heads + 2 * groups;
    if (n.rank(0) != 3 || all < 1 || n.shape(0)[2] % all)
      return error("{} is not [batch, sequence, features] for {} query heads, and {} heads each of keys and values",
                   typeText(n.in(0)), heads, groups);
    const int64_t size = n.shape(0)[2] / all;
    parts[0] = n.slice(n.in(0), 2, 0, heads * size);
    parts[1] = n.slice(n.in(0), 2, heads * size, groups * size);
    parts[2] = n.slice(n.in(0), 2, (heads + groups) * size, groups * size);
  }
  TCC_TRY(query, splitHeads(n, parts[0], heads));
  TCC_TRY(key, splitHeads(n, parts[1], groups));
  TCC_TRY(value, splitHeads(n, parts[2], groups));
  const int64_t tokens = train::shapeOf(query)[2];
  int64_t past = 0;
  if (n.has(3) && n.has(4)) {
    // The tokens' positions in a cache depend on data unless all lengths are known and equal.
    if (n.rank(3) != 4)
      return error("past_key {} must have rank 4", typeText(n.in(3)));
    past = n.shape(3)[2];
    if (past) {
      TCC_TRY(lengths, n.ints(5));
      for (int64_t length : lengths)
        if (length != past + tokens - 1)
          return error(
              "a cache of {} tokens and {} new tokens do not make a sequence of {}; a cache longer than its content is "
              "not supported",
              past, tokens, length + 1);
    }
  }
  if (n.intAttr("do_rotary", 0)) {
    if (!n.has(7) || !n.has(8))
      return error("rotary embedding needs cos_cache and sin_cache");
    Value positions = n.has(9) ? n.in(9) : train::splatInt(n.builder, n.loc, n.type({1}, n.i64()), past);
    const bool interleaved = n.intAttr("rotary_interleaved", 0) != 0;
    TCC_TRY(cosine, angles(n, n.in(7), positions, tokens));
    TCC_TRY(sine, angles(n, n.in(8), positions, tokens));
    const int64_t dim = train::shapeOf(cosine)[2] * 2;
    TCC_TRY(turnedQuery, rotated(n, query, cosine, sine, dim, interleaved));
    TCC_TRY(turnedKey, rotated(n, key, cosine, sine, dim, interleaved));
    query = turnedQuery, key = turnedKey;
  }
  if (past) {
    TCC_TRY(allKeys, concatenated(n, n.in(3), key, 2));
    TCC_TRY(allValues, concatenated(n, n.in(4), value, 2));
    key = allKeys, value = allValues;
  }
  if (n.wants(1))
    (void)n.set(1, key);
  if (n.wants(2))
    (void)n.set(2, value);
  const int64_t keys = train::shapeOf(key)[2];
  in.query = query, in.scale = scaleFor(n, query), in.softcap = n.floatAttr("softcap", 0);
  const bool smooth = n.intAttr("smooth_softmax", 0) != 0 || n.has(11);
  const int64_t window = n.intAttr("local_window_size", -1);
  if (n.intAttr("causal", 1))
    in.allowed.push_back(causalMask(n, tokens, keys, past, window));
  if (n.has(10))
    in.bias.push_back(n.in(10));
  if (smooth) {
    // An additional key with score 0 (or `head_sink`) and value 0, which every query sees.
    const Type element = train::elementTypeOf(query);
    auto longer = [&](Value x) -> Expected<Value> {
      Shape one(train::shapeOf(x));
      one[2] = 1;
      return concatenated(n, x, n.splat(one, element, 0), 2);
    };
    TCC_TRY(withKey, longer(key));
    TCC_TRY(withValue, longer(value));
    key = withKey, value = withValue;
    auto widen = [&](Value x, double fill) -> Expected<Value> {
      Shape one(train::shapeOf(x));
      one.back() = 1;
      return concatenated(n, x, n.splat(one, train::elementTypeOf(x), fill), int64_t(one.size()) - 1);
    };
    for (Value &mask : in.allowed) {
      TCC_TRY(wide, widen(mask, 1));
      mask = wide;
    }
    for (Value &bias : in.bias) {
      TCC_TRY(wide, widen(bias, 0));
      bias = wide;
    }
    if (n.has(11)) {
      Value sink = n.reshape(n.expr(11).cast(element), {1, heads, 1, 1});
      TCC_TRY(bias, concatenated(n, n.splat({1, heads, 1, keys}, element, 0), sink, 3));
      in.bias.push_back(bias);
    }
  }
  in.key = key, in.value = value;
  TCC_TRY(out, attend(n, in));
  if (int64_t mode = n.intAttr("qk_output", 0); mode && n.wants(3))
    (void)n.set(3, n.slice(mode == 1 ? out.biased : out.probabilities, 3, 0, keys));
  return n.result(joinHeads(n, out.result));
}

constexpr OpEntry kTable[] = {
    {"Attention", 2, inputAttention, 1, 1, kDomain},
    {"MultiHeadAttention", 1, multiHeadAttention, 1, 1, kDomain},
    {"GroupQueryAttention", 1, groupQueryAttention, 1, 1, kDomain},
    {"RotaryEmbedding", 4, rotaryEmbedding, 1, 1, kDomain},
};

} // namespace
} // namespace contrib_attention

std::span<const OpEntry> contribAttentionOps() { return contrib_attention::kTable; }

} // namespace tcc::frontend

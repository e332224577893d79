//===- Attention.cpp - Attention, RotaryEmbedding and their relatives -----===//
#include "frontend/ops/Attention.h"

#include "frontend/ops/Contraction.h"
#include "frontend/ops/Modes.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace tcc::frontend {

using train::CompareKind;
using train::Expr;

Expected<Value> splitHeads(NodeImport &n, Value x, int64_t heads) {
  llvm::ArrayRef<int64_t> shape = train::shapeOf(x);
  if (shape.size() != 3 || heads < 1 || shape[2] % heads)
    return error("{} is not [batch, sequence, features] with features that {} heads divide", typeText(x), heads);
  Value split = n.reshape(x, {shape[0], shape[1], heads, shape[2] / heads});
  return train::transpose(n.builder, n.loc, split, {0, 2, 1, 3});
}

Value joinHeads(NodeImport &n, Value x) {
  Value rows = train::transpose(n.builder, n.loc, x, {0, 2, 1, 3});
  llvm::ArrayRef<int64_t> shape = train::shapeOf(rows);
  return n.reshape(rows, {shape[0], shape[1], shape[2] * shape[3]});
}

Expected<Value> concatenated(NodeImport &n, Value x, Value y, int64_t dim) {
  Shape left(train::shapeOf(x)), right(train::shapeOf(y)), shape(left);
  if (left.size() != right.size() || dim >= int64_t(left.size()) || train::elementTypeOf(x) != train::elementTypeOf(y))
    return error("{} cannot be appended to {}: their ranks or element types differ", typeText(y), typeText(x));
  shape[size_t(dim)] += right[size_t(dim)];
  left[size_t(dim)] = right[size_t(dim)];
  if (left != right)
    return error("{} cannot be appended to {} along dimension {}: other dimensions differ", typeText(y), typeText(x),
                 dim);
  return train::ConcatOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(x)), ValueRange{x, y}, dim)
      .getResult();
}

Expected<AttentionOutputs> attend(NodeImport &n, const AttentionInputs &in) {
  Shape q(train::shapeOf(in.query)), k(train::shapeOf(in.key)), v(train::shapeOf(in.value));
  if (q.size() != 4 || k.size() != 4 || v.size() != 4 || q[0] != k[0] || q[0] != v[0] || k[1] != v[1] || k[2] != v[2] ||
      q[3] != k[3] || k[1] == 0 || q[1] % k[1])
    return error("queries {}, keys {} and values {} do not fit together", typeText(in.query), typeText(in.key),
                       typeText(in.value));
  const int64_t batch = q[0], heads = q[1], groups = k[1], rows = heads / groups * q[2];
  auto asRank3 = [&](Value x, int64_t height, int64_t width) { return n.reshape(x, {batch * groups, height, width}); };
  AttentionOutputs out;
  const Shape scoreShape = {batch, heads, q[2], k[2]};
  Expr scores = n.expr(batchProduct(n, asRank3(n.expr(in.query) * in.scale, rows, q[3]), asRank3(in.key, k[2], k[3]),
                                    false, true))
                    .reshape(scoreShape);
  out.raw = scores;
  if (in.softcap > 0)
    scores = (scores / in.softcap).apply<train::TanhOp>() * in.softcap;
  out.capped = scores;
  const Type element = train::elementTypeOf(scores);
  auto fits = [&](Value x) { return train::broadcastShapes(train::shapeOf(x), scoreShape) == scoreShape; };
  for (Value bias : in.bias) {
    if (!fits(bias))
      return error("the mask {} does not broadcast to scores {}", typeText(bias), typeText(scores));
    scores = scores + n.expr(bias).cast(element);
  }
  std::optional<Expr> allowed;
  for (Value mask : in.allowed) {
    if (!fits(mask))
      return error("the mask {} does not broadcast to scores {}", typeText(mask), typeText(scores));
    if (!allowed) {
      allowed = n.expr(mask);
      continue;
    }
    TCC_TRY(both, n.common(*allowed, mask));
    allowed =
        n.expr(train::AndOp::create(n.builder, n.loc, both.first.value.getType(), both.first, both.second).getResult());
  }
  const double infinity = std::numeric_limits<double>::infinity();
  if (allowed)
    scores = allowed->select(scores, scores.like(-infinity));
  out.biased = scores;
  if (in.softmaxType)
    scores = scores.cast(in.softmaxType);
  // The softmax of a row without any key would be NaN, and so would be its gradient.
  std::optional<Expr> empty;
  if (in.rowsMayBeEmpty) {
    empty = scores.max({3}).compare(CompareKind::eq, -infinity);
    scores = empty->select(scores.like(0), scores);
  }
  Expr weights =
      n.expr(train::SoftmaxOp::create(n.builder, n.loc, scores.value.getType(), scores.value, 3).getResult());
  if (empty)
    weights = empty->select(weights.like(0), weights);
  weights = n.expr(droppedWeights(n, weights.cast(element)));
  out.probabilities = weights;
  Value left = asRank3(weights.cast(train::elementTypeOf(in.value)), rows, k[2]);
  Expr result = n.expr(batchProduct(n, left, asRank3(in.value, v[2], v[3]), false, false));
  out.result = result.reshape({batch, heads, q[2], v[3]}).cast(element);
  return out;
}

Expected<Value> rotated(NodeImport &n, Value x, Value cosine, Value sine, int64_t dim, bool interleaved) {
  Shape shape(train::shapeOf(x)), angles(train::shapeOf(cosine));
  if (dim % 2 || dim > shape[3] || angles.size() != 3 || (angles[0] != 1 && angles[0] != shape[0]) ||
      angles[1] != shape[2] || angles[2] != dim / 2 || train::shapeOf(sine) != train::shapeOf(cosine))
    return error("angles {} and {} do not fit {} features of {}", typeText(cosine), typeText(sine), dim,
                       typeText(x));
  const Type element = train::elementTypeOf(x);
  auto spread = [&](Value angle) {
    return n.expr(n.reshape(angle, {angles[0], 1, angles[1], angles[2]})).cast(element);
  };
  Expr c = spread(cosine), s = spread(sine);
  Value turned = n.slice(x, 3, 0, dim);
  Shape half = {shape[0], shape[1], shape[2], dim / 2};
  // The two elements of a pair are neighbours or half the features apart: a dimension of 2 after or before the pairs.
  const int64_t side = interleaved ? 4 : 3;
  Shape pairs = half, one = half;
  pairs.insert(pairs.begin() + side, 2);
  one.insert(one.begin() + side, 1);
  Value split = n.reshape(turned, pairs);
  auto part = [&](int64_t i) { return n.expr(n.reshape(n.slice(split, side, i, 1), half)); };
  Expr first = part(0), second = part(1);
  Expr real = c * first - s * second, imaginary = s * first + c * second;
  TCC_TRY(joined, concatenated(n, n.reshape(real, one), n.reshape(imaginary, one), side));
  Value result = n.reshape(joined, train::shapeOf(turned));
  if (dim == shape[3])
    return result;
  return concatenated(n, result, n.slice(x, 3, dim, shape[3] - dim), 3);
}

namespace attention { // named, since files share a translation unit
namespace {

/// Position of the query [.., L, 1] (or [B, 1, L, 1]) minus that of the key [S]. `past` keys precede the first query,
/// or, with `validKeys`, the last query is at the last of each sample's valid keys.
Expr distance(NodeImport &n, int64_t queries, int64_t keys, int64_t past, std::optional<Expr> validKeys) {
  Expr row = n.expr(n.iota({queries, 1}, 0)), column = n.expr(n.iota({1, keys}, 1));
  if (validKeys) {
    int64_t batch = countOf(train::shapeOf(*validKeys));
    Expr offset = validKeys->reshape({batch, 1, 1, 1}).cast(n.i64()) - double(queries);
    return row.reshape({1, 1, queries, 1}) + offset - column.reshape({1, 1, 1, keys});
  }
  return (past ? row + double(past) : row) - column;
}

Status attention(NodeImport &n) {
  AttentionInputs in;
  in.query = n.in(0), in.key = n.in(1), in.value = n.in(2);
  const bool packed = n.rank(0) == 3;
  if (packed) {
    int64_t heads = n.intAttr("q_num_heads", 0), groups = n.intAttr("kv_num_heads", 0);
    TCC_TRY(query, splitHeads(n, in.query, heads));
    TCC_TRY(key, splitHeads(n, in.key, groups));
    TCC_TRY(value, splitHeads(n, in.value, groups));
    in.query = query, in.key = key, in.value = value;
  }
  if (train::shapeOf(in.query).size() != 4 || train::shapeOf(in.key).size() != 4)
    return error("queries {} and keys {} must have rank 3 or 4", typeText(n.in(0)), typeText(n.in(1)));
  int64_t past = 0;
  if (n.has(4) != n.has(5))
    return error("past_key and past_value must be given together");
  if (n.has(4)) {
    if (n.has(6))
      return error("nonpad_kv_seqlen cannot be given together with past_key");
    if (n.rank(4) != 4)
      return error("past_key {} must have rank 4", typeText(n.in(4)));
    past = n.shape(4)[2];
    TCC_TRY(key, concatenated(n, n.in(4), in.key, 2));
    TCC_TRY(value, concatenated(n, n.in(5), in.value, 2));
    in.key = key, in.value = value;
  }
  const int64_t queries = train::shapeOf(in.query)[2], keys = train::shapeOf(in.key)[2];
  const int64_t size = train::shapeOf(in.query)[3];
  in.scale = n.attribute("scale") ? n.floatAttr("scale", 1) : 1 / std::sqrt(double(size));
  in.softcap = n.floatAttr("softcap", 0);
  if (n.attribute("softmax_precision")) {
    in.softmaxType = n.elementType(int32_t(n.intAttr("softmax_precision", 1)));
    if (!in.softmaxType || !isa<FloatType>(in.softmaxType))
      return error("softmax_precision {} is no floating-point type", n.intAttr("softmax_precision", 1));
  }
  if (n.has(3)) {
    Value mask = n.in(3);
    Shape shape(n.shape(3));
    if (shape.empty() || (shape.back() != keys && shape.back() > keys))
      return error("the last dimension of mask {} must be at most {}, the number of keys", typeText(mask), keys);
    const bool isBool = train::elementTypeOf(mask).isInteger(1);
    // A mask for fewer keys excludes the others; so an extent of 1 does not broadcast along the keys.
    if (shape.back() < keys) {
      Shape low(shape.size(), 0), steps(shape.size(), 1);
      shape.back() = keys;
      mask = train::PadOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(mask)), mask, low, steps,
                                  llvm::APFloat(isBool ? 0.0 : -std::numeric_limits<double>::infinity()));
    }
    (isBool ? in.allowed : in.bias).push_back(mask);
    in.rowsMayBeEmpty = true;
  }
  std::optional<Expr> valid;
  if (n.has(6)) {
    if (n.rank(6) != 1 || n.shape(6)[0] != train::shapeOf(in.query)[0])
      return error("nonpad_kv_seqlen {} must hold one number for each sample", typeText(n.in(6)));
    valid = n.expr(6);
    in.rowsMayBeEmpty = true;
    Expr length = valid->cast(n.i64()).reshape({n.shape(6)[0], 1, 1, 1});
    in.allowed.push_back(n.expr(n.iota({1, 1, 1, keys}, 3)).compare(CompareKind::lt, length));
  }
  const int64_t left = n.intAttr("left_window_size", -1), right = n.intAttr("right_window_size", -1);
  const bool causal = n.intAttr("is_causal", 0) != 0;
  if (left < -1 || right < -1)
    return error("left_window_size is {} and right_window_size is {}; both must be −1 or more", left, right);
  if (causal || left >= 0 || right >= 0) {
    Expr ahead = distance(n, queries, keys, past, valid);
    if (causal)
      in.allowed.push_back(ahead.compare(CompareKind::ge, 0));
    if (left >= 0)
      in.allowed.push_back(ahead.compare(CompareKind::le, double(left)));
    if (right >= 0)
      in.allowed.push_back(ahead.compare(CompareKind::ge, double(-right)));
    // A causal query sees itself, unless a window ends before the first key.
    in.rowsMayBeEmpty |= left >= 0 || right >= 0 || keys == 0;
  }
  TCC_TRY(out, attend(n, in));
  (void)n.set(0, packed ? joinHeads(n, out.result) : out.result);
  if (n.wants(1))
    (void)n.set(1, in.key);
  if (n.wants(2))
    (void)n.set(2, in.value);
  if (n.wants(3)) {
    const Value stages[] = {out.raw, out.capped, out.biased, out.probabilities};
    int64_t mode = n.intAttr("qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
      return error("qk_matmul_output_mode is {}; it must be 0 to 3", mode);
    (void)n.set(3, stages[mode]);
  }
  return Status::success();
}

Status rotaryEmbedding(NodeImport &n) {
  Value x = n.in(0);
  const bool packed = n.rank(0) == 3;
  if (packed) {
    TCC_TRY(split, splitHeads(n, x, n.intAttr("num_heads", 0)));
    x = split;
  }
  if (train::shapeOf(x).size() != 4)
    return error("{} must have rank 3 or 4", typeText(n.in(0)));
  Value angles[2] = {n.in(1), n.in(2)};
  for (Value &cache : angles) {
    if (n.has(3)) {
      if (train::shapeOf(cache).size() != 2 || n.rank(3) != 2)
        return error("with position_ids {}, the cache {} must have rank 2", typeText(n.in(3)), typeText(cache));
      Shape shape = {n.shape(3)[0], n.shape(3)[1], train::shapeOf(cache)[1]};
      cache = train::GatherOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(cache)), cache, n.in(3), 0);
    }
  }
  int64_t dim = n.intAttr("rotary_embedding_dim", 0);
  TCC_TRY(result,
          rotated(n, x, angles[0], angles[1], dim ? dim : train::shapeOf(x)[3], n.intAttr("interleaved", 0) != 0));
  return n.result(packed ? joinHeads(n, result) : result);
}

//===----------------------------------------------------------------------===//
// Linear attention: a state [d_k, d_v] for each head that every token decays, corrects and adds to
//===----------------------------------------------------------------------===//

Status linearAttention(NodeImport &n) {
  const int64_t heads = n.intAttr("q_num_heads", 0), groups = n.intAttr("kv_num_heads", 0);
  const std::string rule = n.stringAttr("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta", corrects = rule == "delta" || rule == "gated_delta";
  if (!gated && !corrects && rule != "linear")
    return error("update_rule is \"{}\"; it must be linear, gated, delta or gated_delta", rule);
  if (groups < 1 || heads % groups)
    return error("q_num_heads is {}; it must be a multiple of kv_num_heads, {}", heads, groups);
  if (gated != n.has(4) || corrects != n.has(5))
    return error("update_rule \"{}\" takes {} decay and {} beta", rule, gated ? "a" : "no",
                       corrects ? "a" : "no");
  const Type element = train::elementTypeOf(n.in(0)), wide = element.isF64() ? element : Type(n.builder.getF32Type());
  TCC_TRY(query, splitHeads(n, n.in(0), heads));
  TCC_TRY(key, splitHeads(n, n.in(1), groups));
  TCC_TRY(value, splitHeads(n, n.in(2), groups));
  Shape q(train::shapeOf(query)), k(train::shapeOf(key)), v(train::shapeOf(value));
  const int64_t batch = q[0], tokens = q[2], dk = q[3], dv = v[3], shared = heads / groups;
  if (k[0] != batch || v[0] != batch || k[2] != tokens || v[2] != tokens || k[3] != dk)
    return error("query {}, key {} and value {} do not fit together", typeText(n.in(0)), typeText(n.in(1)),
                       typeText(n.in(2)));
  if (tokens > kMostUnrolled)
    return error("it is unrolled over {} tokens; at most {} are supported", tokens, kMostUnrolled);
  const Shape stateShape = {batch, groups, dk, dv};
  Type stateType = n.has(3) ? train::elementTypeOf(n.in(3)) : element;
  if (n.has(3) && Shape(n.shape(3)) != stateShape)
    return error("past_state {} is not {}", typeText(n.in(3)), shapeText(stateShape));
  Expr state = n.has(3) ? n.expr(3).cast(wide) : n.expr(n.splat(stateShape, wide, 0));
  std::optional<Expr> decay, beta;
  if (gated) { // [B, G, T, d_k or 1]
    int64_t width = n.rank(4) ? n.shape(4).back() : 0;
    if (n.rank(4) != 3 || (width != groups && width != groups * dk))
      return error("decay {} must be [batch, tokens, size] with a size of {}, the key heads, or {}, their features",
                   typeText(n.in(4)), groups, groups * dk);
    TCC_TRY(split, splitHeads(n, n.in(4), groups));
    decay = n.expr(split).cast(wide).exp();
  }
  if (corrects) { // [B, G or 1, T, 1]
    int64_t width = n.rank(5) ? n.shape(5).back() : 0;
    if (n.rank(5) != 3 || (width != groups && width != 1))
      return error("beta {} must be [batch, tokens, size] with a size of {}, the key heads, or 1", typeText(n.in(5)),
                   groups);
    TCC_TRY(split, splitHeads(n, n.in(5), width));
    beta = n.expr(split).cast(wide);
  }
  const double given = n.floatAttr("scale", 0), scale = given == 0 ? 1 / std::sqrt(double(dk)) : given;
  Expr allQueries = n.expr(query).cast(wide) * scale, allKeys = n.expr(key).cast(wide),
       allValues = n.expr(value).cast(wide);
  auto token = [&](const Expr &x, int64_t t) { return n.expr(n.slice(x, 2, t, 1)); }; // [.., 1, ..]
  // A row times the state, and a column times a row: products of every head.
  auto rowTimes = [&](const Expr &rows, int64_t height, const Expr &matrix) {
    Value left = rows.reshape({batch * groups, height, dk}), right = matrix.reshape({batch * groups, dk, dv});
    return n.expr(batchProduct(n, left, right, false, false)).reshape({batch, groups, height, dv});
  };
  llvm::SmallVector<Value> outputs;
  for (int64_t t = 0; t < tokens; ++t) {
    Expr kt = token(allKeys, t), vt = token(allValues, t), column = kt.reshape({batch, groups, dk, 1});
    if (decay) {
      Expr gate = token(*decay, t);
      state = state * gate.reshape({batch, groups, train::shapeOf(gate)[3], 1});
    }
    if (beta)
      vt = token(*beta, t) * (vt - rowTimes(kt, 1, state));
    state = state + column * vt;
    // Queries that share a key head are rows of one product.
    Expr result = rowTimes(token(allQueries, t).reshape({batch, groups, shared, dk}), shared, state);
    outputs.push_back(result.reshape({batch, 1, heads * dv}));
  }
  const Shape outShape = {batch, tokens, heads * dv};
  Value all = tokens == 1   ? outputs[0]
              : tokens == 0 ? n.splat(outShape, wide, 0)
                            : train::ConcatOp::create(n.builder, n.loc, n.type(outShape, wide), outputs, 1).getResult();
  (void)n.set(0, n.expr(all).cast(element));
  (void)n.set(1, state.cast(stateType));
  return Status::success();
}

constexpr OpEntry kTable[] = {
    {"Attention", 3, attention, 23},
    {"RotaryEmbedding", 3, rotaryEmbedding, 23},
    {"LinearAttention", 3, linearAttention, 27},
};

} // namespace
} // namespace attention

std::span<const OpEntry> attentionOps() { return attention::kTable; }

} // namespace tcc::frontend

//===- Random.cpp - random tensors and draws ------------------------------===//
//
// Every op here draws from the counter-based generator (train.random) under an id of its own. ONNX's attribute `seed`
// distinguishes nodes; the run's seed is the recipe's.
//
//===----------------------------------------------------------------------===//
#include "frontend/NodeImport.h"

#include <bit>

using namespace mlir;

namespace tcc::frontend {
namespace random { // named, since files share a translation unit
namespace {

using train::Expr;
using train::RandomKind;

/// Numbers of `kind`, of a floating-point type.
Expr draw(const NodeImport &n, RandomKind kind, llvm::ArrayRef<int64_t> shape, Type element) {
  // 0 is an ordinary seed, so test for the attribute's presence.
  uint64_t seed = n.attribute("seed") ? uint64_t(1) << 32 | std::bit_cast<uint32_t>(float(n.floatAttr("seed", 0))) : 0;
  return n.expr(
      train::RandomOp::create(n.builder, n.loc, n.type(shape, element), kind, n.randomKey(), n.randomId(seed)));
}

/// The element type by `dtype`, else `otherwise`.
Expected<Type> typeBy(const NodeImport &n, Type otherwise) {
  if (!n.attribute("dtype"))
    return otherwise;
  if (Type type = n.elementType(int32_t(n.intAttr("dtype", 1))))
    return type;
  return error("its dtype {} is not supported", n.intAttr("dtype", 1));
}

/// mean + scale·normal, or low + (high − low)·uniform.
Status fill(NodeImport &n, RandomKind kind, llvm::ArrayRef<int64_t> shape, Type element) {
  if (!isa<FloatType>(element))
    return error("random numbers are floating-point; give a dtype");
  Expr numbers = draw(n, kind, shape, element);
  if (kind == RandomKind::normal)
    return n.result(numbers * n.floatAttr("scale", 1) + n.floatAttr("mean", 0));
  double low = n.floatAttr("low", 0), high = n.floatAttr("high", 1);
  return n.result(low == 0 && high == 1 ? numbers : numbers * (high - low) + low); // Modes.cpp looks for draws as such
}

template <RandomKind kind> Status filled(NodeImport &n) {
  std::optional<Shape> shape = n.intsAttr("shape");
  if (!shape)
    return error("its attribute shape is missing");
  TCC_TRY(element, typeBy(n, n.elementType(1)));
  return fill(n, kind, *shape, element);
}

template <RandomKind kind> Status filledLike(NodeImport &n) {
  TCC_TRY(element, typeBy(n, train::elementTypeOf(n.in(0))));
  return fill(n, kind, n.shape(0), element);
}

/// 1 with the probability that the input gives.
Status bernoulli(NodeImport &n) {
  TCC_TRY(element, typeBy(n, train::elementTypeOf(n.in(0))));
  Expr uniform = draw(n, RandomKind::uniform, n.shape(0), train::elementTypeOf(n.in(0)));
  return n.result(uniform.compare(train::CompareKind::lt, n.expr(0)).cast(element));
}

/// Draws of classes with the probabilities softmax(input): the largest of input + Gumbel noise (Gumbel, 1954).
Status multinomial(NodeImport &n) {
  if (n.rank(0) != 2)
    return error("Multinomial needs an input [batch, classes], not {}", typeText(n.in(0)));
  TCC_TRY(element, typeBy(n, n.elementType(6)));
  int64_t batch = n.shape(0)[0], classes = n.shape(0)[1], samples = n.intAttr("sample_size", 1);
  Expr uniform = draw(n, RandomKind::uniform, {batch, samples, classes}, train::elementTypeOf(n.in(0)));
  Expr gumbel = -(-uniform.log()).log();
  Expr scores = n.expr(0).reshape({batch, 1, classes}).broadcast({batch, samples, classes}) + gumbel;
  Value picked = train::ArgMaxOp::create(n.builder, n.loc, n.type({batch, samples, 1}, n.i64()), scores, 2);
  return n.result(n.expr(picked).reshape({batch, samples}).cast(element));
}

constexpr OpEntry kTable[] = {
    {"RandomNormal", 0, filled<RandomKind::normal>},
    {"RandomUniform", 0, filled<RandomKind::uniform>},
    {"RandomNormalLike", 1, filledLike<RandomKind::normal>},
    {"RandomUniformLike", 1, filledLike<RandomKind::uniform>},
    {"Bernoulli", 1, bernoulli},
    {"Multinomial", 1, multinomial},
};

} // namespace
} // namespace random

std::span<const OpEntry> randomOps() { return random::kTable; }

} // namespace tcc::frontend

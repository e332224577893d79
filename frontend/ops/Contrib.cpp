//===- Contrib.cpp - fused ops that ONNX Runtime's optimiser writes -------===//
//
// The domain com.microsoft: each op is expanded into the ops that it was fused from, and so is its derivative. Ops that
// wrap one of the standard pass their inputs to its importer.
//
//===----------------------------------------------------------------------===//
#include "frontend/ops/Attention.h"
#include "frontend/ops/Contraction.h"

#include <cmath>
#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace contrib { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

constexpr std::string_view kDomain = "com.microsoft";

Expr geluOf(const Expr &x, bool tanh) {
  return x.with(train::GeluOp::create(*x.builder, x.loc, x.value.getType(), x.value, tanh).getResult());
}

/// x + input `i`, if that is present.
Expected<Expr> plus(NodeImport &n, const Expr &x, unsigned i) {
  if (!n.has(i))
    return x;
  TCC_TRY(both, n.common(x, n.in(i)));
  return both.first + both.second;
}

template <bool tanh> Status biasGelu(NodeImport &n) {
  TCC_TRY(sum, plus(n, n.expr(0), 1));
  return n.result(geluOf(sum, tanh));
}
Status quickGelu(NodeImport &n) {
  Expr x = n.expr(0);
  return n.result(x * (x * n.floatAttr("alpha", 1.702)).apply<train::SigmoidOp>());
}
/// The first half of the features times the gelu of the second.
Status biasSplitGelu(NodeImport &n) {
  TCC_TRY(sum, plus(n, n.expr(0), 1));
  Shape shape(train::shapeOf(sum));
  if (shape.empty() || shape.back() % 2)
    return error("{} cannot be halved along its last axis", typeText(n.in(0)));
  int64_t half = shape.back() / 2, last = int64_t(shape.size()) - 1;
  return n.result(n.expr(n.slice(sum, last, 0, half)) * geluOf(n.expr(n.slice(sum, last, half, half)), false));
}
Status biasAdd(NodeImport &n) {
  TCC_TRY(sum, plus(n, n.expr(0), 1));
  TCC_TRY(result, plus(n, sum, 2));
  return n.result(result);
}
Status gemmFastGelu(NodeImport &n) {
  TCC_TRY(product, matrixProduct(n, n.in(0), n.in(1)));
  TCC_TRY(sum, plus(n, n.expr(product), 2));
  return n.result(geluOf(sum, true));
}

/// alpha·A'·B'; a flag for the batch moves dimension 0 behind the other leading ones before the matrices are
/// transposed.
Status fusedMatMul(NodeImport &n) {
  auto read = [&](unsigned i, const char *matrix, const char *batch) {
    Value x = n.in(i);
    int64_t rank = n.rank(i);
    Shape order(static_cast<size_t>(rank), 0);
    std::iota(order.begin(), order.end(), 0);
    if (rank > 2 && n.intAttr(batch, 0))
      std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
    if (rank > 1 && n.intAttr(matrix, 0))
      std::swap(order[size_t(rank - 2)], order[size_t(rank - 1)]);
    return train::transpose(n.builder, n.loc, x, order);
  };
  TCC_TRY(product, matrixProduct(n, read(0, "transA", "transBatchA"), read(1, "transB", "transBatchB")));
  return n.result(scaled(n.expr(product), n.floatAttr("alpha", 1)));
}

/// An activation by name, with its parameters.
Expected<Expr> activated(NodeImport &n, const Expr &x, const std::string &name, llvm::ArrayRef<double> parameters) {
  auto parameter = [&](size_t i, double otherwise) { return i < parameters.size() ? parameters[i] : otherwise; };
  if (name.empty())
    return x;
  if (name == "Relu")
    return x.with(train::ReluOp::create(n.builder, n.loc, x.value.getType(), x.value).getResult());
  if (name == "Sigmoid")
    return x.apply<train::SigmoidOp>();
  if (name == "Tanh")
    return x.apply<train::TanhOp>();
  if (name == "LeakyRelu")
    return x.compare(CompareKind::gt, 0).select(x, x * parameter(0, 0.01));
  auto clamped = [](const Expr &value, double low, double high) {
    Expr raised = value.compare(CompareKind::le, low).select(value.like(low), value);
    return raised.compare(CompareKind::ge, high).select(raised.like(high), raised);
  };
  if (name == "Clip")
    return clamped(x, parameter(0, -HUGE_VAL), parameter(1, HUGE_VAL));
  if (name == "HardSigmoid") {
    Expr line = x * parameter(0, 0.2) + parameter(1, 0.5);
    return line.compare(CompareKind::le, 0).select(x.like(0), line.compare(CompareKind::ge, 1).select(x.like(1), line));
  }
  return error("activation \"{}\" is not supported; export without fused activations", name);
}

Status fusedGemm(NodeImport &n) {
  TCC_TRY(value, gemmValue(n));
  TCC_TRY(result, activated(n, n.expr(value), n.stringAttr("activation", ""),
                            {n.floatAttr("activation_alpha", 0.01), n.floatAttr("activation_beta", 0)}));
  return n.result(result);
}

/// activation(conv(x, w, b) + z).
Status fusedConv(NodeImport &n) {
  Slot addend = n.inputs.size() > 3 ? n.inputs[3] : Slot();
  n.inputs.resize(std::min<size_t>(n.inputs.size(), 3));
  if (Status status = findOp("", "Conv", 11)->import(n); !status.ok())
    return status;
  Expr result = n.expr(n.outputs[0].tensor);
  if (addend.tensor) {
    TCC_TRY(both, n.common(result, addend.tensor));
    result = both.first + both.second;
  }
  llvm::SmallVector<double> parameters;
  if (const onnx::AttributeProto *given = n.attribute("activation_params"))
    parameters.assign(given->floats().begin(), given->floats().end());
  TCC_TRY(value, activated(n, result, n.stringAttr("activation", ""), parameters));
  return n.result(value);
}

/// Layer norm, or with `simplified` division by the root mean square, over the last dimension.
Status normalise(NodeImport &n, const Expr &x, bool simplified, Value scale, Value bias, double epsilon) {
  Shape shape(train::shapeOf(x)), statistics(shape);
  if (shape.empty())
    return error("a scalar has no features to normalise");
  const int64_t last = int64_t(shape.size()) - 1;
  const Type element = train::elementTypeOf(x);
  const Shape features = {shape.back()};
  statistics.back() = 1;
  for (Value parameter : {scale, bias})
    if (parameter && Shape(train::shapeOf(parameter)) != features)
      return error("{} should be a vector of {} elements, one for each feature", typeText(parameter), shape.back());
  Value s = n.expr(scale).cast(element), b = bias ? n.expr(bias).cast(element).value : Value();
  if (!simplified) {
    Type wide = element.isF64() ? element : Type(n.builder.getF32Type());
    auto op = train::LayerNormOp::create(n.builder, n.loc, x.value.getType(), n.type(statistics, wide),
                                         n.type(statistics, wide), x, s, b, uint64_t(last), llvm::APFloat(epsilon));
    (void)n.set(1, op.getMean());
    (void)n.set(2, op.getRstd());
    return n.result(op.getResult());
  }
  Expr wide = element.isF64() ? x : x.cast(n.builder.getF32Type());
  Expr rstd = ((wide * wide).mean({last}) + epsilon).apply<train::RsqrtOp>();
  (void)n.set(2, rstd);
  return n.result((wide * rstd).cast(element) * n.expr(s));
}

/// Norm of input + skip + bias; the sum is the fourth output.
template <bool simplified> Status skipNorm(NodeImport &n) {
  TCC_TRY(sum, plus(n, n.expr(0), 1));
  TCC_TRY(total, plus(n, sum, simplified ? 3 : 4));
  if (train::shapeOf(total) != n.shape(0))
    return error("skip {} and bias do not broadcast to {}", typeText(n.in(1)), typeText(n.in(0)));
  if (n.wants(3))
    (void)n.set(3, total);
  return normalise(n, total, simplified, n.in(2), !simplified && n.has(3) ? n.in(3) : Value(),
                   n.floatAttr("epsilon", 1e-12));
}

/// ONNX Runtime's RMS norm, older than the standard's, with 1/rms as its second output.
Status simplifiedNorm(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", -1), n.rank(0)));
  if (axis != n.rank(0) - 1)
    return error("only the last axis is supported; export RMSNormalization with opset 23");
  if (Status status = normalise(n, n.expr(0), true, n.in(1), Value(), n.floatAttr("epsilon", 1e-5)); !status.ok())
    return status;
  n.outputs[1] = n.outputs[2];
  return Status::success();
}

/// Word, position and segment embeddings, added and normalised; the second output counts each sample's mask.
Status embedNorm(NodeImport &n) {
  if (!n.has(2) || !n.has(3) || !n.has(5))
    return error("the word embedding, the position embedding or gamma is missing");
  if (n.rank(0) != 2)
    return error("input_ids {} are not [batch, sequence]", typeText(n.in(0)));
  auto look = [&](unsigned table, Value ids) {
    Shape shape(train::shapeOf(ids));
    shape.push_back(n.shape(table)[1]);
    Type type = n.type(shape, train::elementTypeOf(n.in(table)));
    return n.expr(train::GatherOp::create(n.builder, n.loc, type, n.in(table), ids, 0).getResult());
  };
  for (unsigned table : {2u, 3u, 4u})
    if (n.has(table) && n.rank(table) != 2)
      return error("embedding {} is no matrix", typeText(n.in(table)));
  const Shape ids(n.shape(0));
  Value positions = n.has(8) ? n.in(8) : n.iota({1, ids[1]}, 1);
  TCC_TRY(words, n.common(look(2, n.in(0)), look(3, positions)));
  Expr sum = words.first + words.second;
  if (n.has(4)) {
    if (!n.has(1))
      return error("it has a segment embedding but no segment_ids");
    sum = sum + look(4, n.in(1));
  }
  if (Status status = normalise(n, sum, false, n.in(5), n.has(6) ? n.in(6) : Value(), n.floatAttr("epsilon", 1e-12));
      !status.ok())
    return status;
  if (n.has(7) && n.rank(7) != 2)
    return error("the mask {} is not [batch, sequence]", typeText(n.in(7)));
  Type i32 = n.builder.getI32Type();
  n.outputs[1] = {n.has(7) ? n.expr(7).cast(i32).sum({1}).reshape({ids[0]}).value : n.splat({ids[0]}, i32, 0),
                  std::nullopt};
  n.outputs[2] = {sum.value, std::nullopt};
  return Status::success();
}

/// The importer of an op of the standard with the same inputs and attributes.
template <const char *const &name, int64_t version> Status standard(NodeImport &n) {
  const OpEntry *entry = findOp("", name, version);
  return entry ? entry->import(n) : error("{} is not supported", name);
}
const char *const kLayerNormalization = "LayerNormalization";
const char *const kTrilu = "Trilu";
const char *const kRange = "Range";
const char *const kUnsqueeze = "Unsqueeze";
const char *const kGatherND = "GatherND";

constexpr OpEntry kTable[] = {
    {"FusedMatMul", 2, fusedMatMul, 1, 1, kDomain},
    {"TransposeMatMul", 2, fusedMatMul, 1, 1, kDomain},
    {"FusedGemm", 2, fusedGemm, 1, 1, kDomain},
    {"FusedConv", 2, fusedConv, 1, 1, kDomain},
    {"GemmFastGelu", 2, gemmFastGelu, 1, 1, kDomain},
    {"BiasGelu", 2, biasGelu<false>, 1, 1, kDomain},
    {"FastGelu", 1, biasGelu<true>, 1, 1, kDomain},
    {"QuickGelu", 1, quickGelu, 1, 1, kDomain},
    {"BiasSplitGelu", 2, biasSplitGelu, 1, 1, kDomain},
    {"BiasAdd", 2, biasAdd, 1, 1, kDomain},
    {"SkipLayerNormalization", 3, skipNorm<false>, 1, 1, kDomain},
    {"SkipSimplifiedLayerNormalization", 3, skipNorm<true>, 1, 1, kDomain},
    {"SimplifiedLayerNormalization", 2, simplifiedNorm, 1, 1, kDomain},
    {"LayerNormalization", 2, standard<kLayerNormalization, 17>, 1, 1, kDomain},
    {"EmbedLayerNormalization", 1, embedNorm, 1, 1, kDomain},
    {"Trilu", 1, standard<kTrilu, 14>, 1, 1, kDomain},
    OpEntry{"Range", 3, standard<kRange, 11>, 1, 1, kDomain}.reading(0, 1, 2),
    {"ExpandDims", 2, standard<kUnsqueeze, 13>, 1, 1, kDomain},
    {"GatherND", 2, standard<kGatherND, 13>, 1, 1, kDomain},
};

} // namespace
} // namespace contrib

std::span<const OpEntry> contribOps() { return contrib::kTable; }

} // namespace tcc::frontend

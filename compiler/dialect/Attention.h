//===- Attention.h - shapes and masks of attention --------------*- C++ -*-===//
#ifndef TCC_DIALECT_ATTENTION_H
#define TCC_DIALECT_ATTENTION_H

#include "compiler/dialect/Builders.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace tcc::train {

namespace names {
/// unit, on attention of f32 and its gradient: products on tiles round their operands to TF32
inline constexpr llvm::StringLiteral kTf32Products = "train.tf32_products";
/// unit, on attention of 16-bit numbers and its gradient: rows that are read in place begin at whole words of 32 bits
inline constexpr llvm::StringLiteral kWordRows = "train.word_rows";
/// unit, on attention with a bias, a mask or a shifted diagonal, and on its gradient: for any data, each query sees a
/// key whose bias is of ordinary size
inline constexpr llvm::StringLiteral kRowsKeepKeys = "train.rows_keep_keys";
} // namespace names

/// The number type of products by lane groups for heads of this type.
TileNumbers tileNumbersFor(mlir::Type element, bool tf32);
/// True if lane groups can multiply heads with these features: rows are whole words, and sums fit into registers.
bool suitsTiles(TileNumbers numbers, int64_t depth, int64_t width);

/// The number type of products by lane groups for this attention or gradient; None if its heads do not suit them.
template <typename OpTy> TileNumbers tileNumbersOf(OpTy op) {
  const TileNumbers numbers = tileNumbersFor(elementTypeOf(op.getQuery()), op->hasAttr(names::kTf32Products));
  return suitsTiles(numbers, shapeOf(op.getQuery())[3], shapeOf(op.getValue())[3]) ? numbers : TileNumbers::None;
}

/// The heads for which a target's library computes attention.
struct AttentionCalls {
  std::string library; ///< its name, for messages; empty: the target has no such calls
  int64_t featureStep = 1, mostFeatures = 0;

  explicit operator bool() const { return !library.empty(); }
  bool suits(int64_t depth, int64_t width) const {
    return depth % featureStep == 0 && width % featureStep == 0 && std::min(depth, width) > 0 &&
           std::max(depth, width) <= mostFeatures;
  }
};

/// Sizes and settings of attention and its gradient, and the numbers of their operands (−1: absent).
struct AttentionShape {
  int64_t batch, heads, keyHeads, queries, keys, depth, width; ///< depth: of query and key; width: of value
  double scale, softcap, dropout;
  bool causal;
  int64_t causalOffset, dropoutId;
  mlir::Type sumType; ///< f32, or f64 for f64

  int bias = -1, mask = -1, randomKey = -1, output = -1, delta = -1, logsumexp = -1, logsumexpRest = -1,
      outputGrad = -1;
  llvm::SmallVector<int64_t> biasShape = {}, maskShape = {}; ///< empty: absent
  mlir::Type biasType = {};                                  ///< of its elements
  std::optional<double> maskFill = {};                       ///< of excluded scores; else they are −∞

  /// True if the derivative of a score by its raw score is not just the scale.
  bool hasSlopes() const { return softcap > 0 || maskFill; }
  int64_t groupSize() const { return heads / keyHeads; }
  /// True if the causal mask's diagonal is shifted.
  bool isShifted() const { return causal && causalOffset != 0; }
  /// Keys that query i may see.
  int64_t seenBy(int64_t i) const { return causal ? std::clamp<int64_t>(i + causalOffset + 1, 0, keys) : keys; }
  /// Scores that the causal mask leaves, over all heads.
  double scores() const {
    double sum = 0;
    for (int64_t i = 0; i < queries; ++i)
      sum += double(seenBy(i));
    return sum * double(batch * heads);
  }
  /// A weight is kept if its 32 random bits are at least this: p·2^32.
  uint64_t dropThreshold() const { return uint64_t(std::llround(std::ldexp(dropout, 32))); }
  /// 1/(1 − p); 0 if nothing is kept.
  double keptScale() const { return dropout < 1 ? 1 / (1 - dropout) : 0; }
};

template <typename OpTy> AttentionShape attentionShapeOf(OpTy op) {
  llvm::ArrayRef<int64_t> query = shapeOf(op.getQuery()), key = shapeOf(op.getKey());
  mlir::Type element = elementTypeOf(op.getQuery());
  AttentionShape s{query[0],
                   query[1],
                   key[1],
                   query[2],
                   key[2],
                   query[3],
                   shapeOf(op.getValue())[3],
                   op.getScale().convertToDouble(),
                   op.getSoftcap().convertToDouble(),
                   op.getDropout().convertToDouble(),
                   op.getCausal(),
                   int64_t(op.getCausalOffset()),
                   int64_t(op.getDropoutId()),
                   element.isF64() ? element : mlir::Type(mlir::Float32Type::get(op.getContext()))};
  int next = 3;
  if (op.getBias()) {
    s.bias = next++;
    s.biasShape = llvm::to_vector(shapeOf(op.getBias()));
    s.biasType = elementTypeOf(op.getBias());
  }
  if (op.getMask()) {
    s.mask = next++;
    s.maskShape = llvm::to_vector(shapeOf(op.getMask()));
    if (op.getMaskFill())
      s.maskFill = op.getMaskFill()->convertToDouble();
  }
  if (op.getRandomKey())
    s.randomKey = next++;
  if constexpr (std::is_same_v<OpTy, AttentionGradOp>) {
    if (op.getOutput())
      s.output = next++;
    if (op.getDelta())
      s.delta = next++;
    s.logsumexp = next++;
    if (op.getLogsumexpRest())
      s.logsumexpRest = next++;
    s.outputGrad = next++;
  }
  return s;
}

/// Sums output times its gradient over the features of each row.
mlir::Value rowSums(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value output, mlir::Value outputGrad);
/// Leaves out operands of a region that nothing in it reads.
void dropUnreadOperands(FusedOp region);

/// The naive evaluators. Operands and results are those of the ops, numbered by the shape. Attention may be evaluated
/// without the result for the rounding error of logsumexp.
void evaluateAttention(const AttentionShape &s, llvm::ArrayRef<HostTensor> operands,
                       llvm::MutableArrayRef<HostTensor> results);
void evaluateAttentionGrad(const AttentionShape &s, llvm::ArrayRef<HostTensor> operands,
                           llvm::MutableArrayRef<HostTensor> results);

/// The reason why a library's calls do not support attention of this form, as text for users; "" if they do. The target
/// checks types and sizes.
template <typename OpTy> std::string callObjection(OpTy op, const AttentionCalls &calls) {
  AttentionShape s = attentionShapeOf(op);
  if (!calls.suits(s.depth, s.width))
    return "its heads have " + std::to_string(s.depth) + " and " + std::to_string(s.width) + " features, " +
           calls.library + " takes multiples of " + std::to_string(calls.featureStep) + " up to " +
           std::to_string(calls.mostFeatures);
  if (s.softcap != 0)
    return "it has a soft cap";
  if (s.dropout != 0)
    return "it has dropout";
  if ((s.bias >= 0 || s.mask >= 0 || s.isShifted()) && !op->hasAttr(names::kRowsKeepKeys))
    return "its mask may exclude all keys of a query, as far as is known without data";
  return "";
}

} // namespace tcc::train

#endif // TCC_DIALECT_ATTENTION_H

//===- AttentionMatch.h - match attention in a graph of core ops --*- C++ -*-===//
#ifndef TCC_PASSES_ATTENTION_ATTENTIONMATCH_H
#define TCC_PASSES_ATTENTION_ATTENTIONMATCH_H

#include "passes/attention/AttentionMask.h"

#include "llvm/ADT/SmallPtrSet.h"

#include <string>

namespace tcc::train {

/// A tensor by which scores, or the result, are multiplied or divided.
struct AttentionFactor {
  Access access;
  bool divides = false;
  mlir::Operation *op = nullptr;
};

/// A term or mask applied to the scores between their product and the softmax; constant factors are kept apart.
struct ScoreTerm {
  enum Kind { Add, Mask } kind;
  Access access;     ///< Add: the term; Mask: i1
  double factor = 1; ///< the factor on it when it reaches the softmax
  llvm::SmallVector<AttentionFactor, 1> tensors;
  bool keepWhen = true;
  double fill = 0; ///< Mask: the number that replaces an excluded score
  mlir::Operation *op = nullptr;
};

/// softmax(query·keyᵀ·scale …)·value as found in the graph.
struct AttentionMatch {
  SoftmaxOp softmax;
  MatMulOp scores, product;
  DropoutOp dropout;
  AxisList batchAxes, queryAxes, keyAxes; ///< batch: samples, heads, and whatever else scores are independent along
  AxisList sampleAxes;                    ///< batch axes that the softmax's shape separates from heads; may be empty
  Access query, key, value;
  AxisList featureAxes, valueAxes;
  AxisLayout resultLayout; ///< of the product's result
  double scale = 1, softcap = 0, resultFactor = 1;
  llvm::SmallVector<ScoreTerm, 0> terms;
  llvm::SmallVector<AttentionFactor> queryFactors, keyFactors, resultFactors;
  llvm::SmallVector<mlir::Operation *> ops; ///< the matched ops, in order
};

/// Why a softmax is not part of an attention that can be fused.
struct AttentionFailure {
  mlir::Operation *op = nullptr; ///< the op that broke the match
  std::string reason;
  bool read = false; ///< the chain matches, but an op outside it reads scores or weights
};

/// Walks from a softmax up to the product of queries and keys and down to the product with the values.
class AttentionMatcher {
public:
  explicit AttentionMatcher(AxisSpace &axes) : axes(axes) {}
  std::optional<AttentionMatch> match(SoftmaxOp softmax, AttentionFailure &failure);

private:
  bool fail(mlir::Operation *op, std::string reason, bool read = false);
  bool walkUp(AxisLayout layout);
  bool walkDown(AxisLayout layout);
  bool binaryStep(mlir::Operation *op, mlir::Value &current, const AxisLayout &layout);
  bool selectStep(SelectOp op, mlir::Value &current, const AxisLayout &layout);
  bool takeRoles(const AxisLayout &softmaxLayout);
  bool takeFactors();
  bool onlyMatchedReads();
  bool isEmptyRow(mlir::Value condition);
  void consume(mlir::Value value);
  Access operandOf(mlir::Value value, AxisLayout layout, double &scale);

  AxisSpace &axes;
  AttentionMatch found;
  AttentionFailure *failure = nullptr;
  AxisLayout scoresLayout, weightsLayout, dropoutLayout;
  AxisList softmaxAxes;
  unsigned weightsOperand = 0;
  double factor = 1;
  llvm::SmallVector<AttentionFactor, 1> tensors;
  llvm::SmallVector<mlir::Value> chain; ///< scores, weights and the values computed from them, in the order of the walk
  llvm::SmallPtrSet<mlir::Operation *, 16> consumed;
};

/// True if `softmax` is between two products, as in attention. Only such a softmax can be a near miss.
bool looksLikeAttention(SoftmaxOp softmax);

/// Names the reader of a value, for messages: "node X", or "the output `name`".
std::string readerText(mlir::Operation *reader, mlir::Value value);

} // namespace tcc::train

#endif // TCC_PASSES_ATTENTION_ATTENTIONMATCH_H

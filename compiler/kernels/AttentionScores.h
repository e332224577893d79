//===- AttentionScores.h - from products to scores and weights --*- C++ -*-===//
#ifndef TCC_KERNELS_ATTENTIONSCORES_H
#define TCC_KERNELS_ATTENTIONSCORES_H

#include "compiler/kernels/AttentionBlock.h"
#include "compiler/kernels/ScoreFormula.h"

namespace tcc::train {

/// Emits scores and weights from products of queries and keys: scale, cap, bias, masks, the exponential and dropout.
class AttentionScores {
public:
  AttentionScores(AttentionCode &code, AttentionBlock &block);

  /// Transposes the part of full biases and masks for the block's current queries and keys into the scratch.
  void bringTerms();

  /// The scores of row `row` from the product's sums; −∞ where excluded. `slope`, if given, is set to the score's
  /// derivative by the scaled product, where the shape hasSlopes().
  Lane score(Lane product, const QueryVector &v, mlir::Value row, bool diagonal, std::optional<Lane> *slope = nullptr);
  /// i1: the weights of row `row` that dropout keeps.
  Lane kept(const QueryVector &v, mlir::Value row);

  const ScoreFormula formula;

private:
  /// A bias or mask.
  struct Term {
    int operand;
    llvm::ArrayRef<int64_t> shape;
    int64_t offset; ///< in the scratch
    ScoreTermForm form;
  };
  MatrixView matrixOf(const Term &term);
  void bring(const Term &term);
  Lane at(const Term &term, const QueryVector &v, mlir::Value row);
  /// i1: the lanes of row `row` that the mask keeps.
  Lane shown(const QueryVector &v, mlir::Value row);

  AttentionCode &c;
  AttentionBlock &block;
  Term bias, mask;
  llvm::SmallVector<Lane> randomWords;
};

} // namespace tcc::train

#endif // TCC_KERNELS_ATTENTIONSCORES_H

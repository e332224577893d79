//===- Ctc.h - shared parts of the two CTC ops ------------------*- C++ -*-===//
#ifndef TCC_DIALECT_CTC_H
#define TCC_DIALECT_CTC_H

#include "compiler/dialect/Builders.h"

namespace tcc::train {

/// Sizes of a batch: N samples of T steps over C classes, with up to S labels.
struct CtcShape {
  int64_t samples, steps, classes, labels, blank;
  /// Labels with a blank before, between and after them.
  int64_t states() const { return 2 * labels + 1; }
};

template <typename OpTy> CtcShape ctcShapeOf(OpTy op) {
  llvm::ArrayRef<int64_t> shape = shapeOf(op.getLogProbs());
  return {shape[0], shape[1], shape[2], shapeOf(op.getTargets())[1], int64_t(op.getBlank())};
}

} // namespace tcc::train

#endif // TCC_DIALECT_CTC_H

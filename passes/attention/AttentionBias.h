//===- AttentionBias.h - what is known of a bias without data ---*- C++ -*-===//
//
// A term that is added to scores may be a mask in disguise: a large negative number where keys are excluded. Where data
// decides which keys, a query may see none, and its row is what such numbers make of it. Terms of trained parameters
// and activations are no masks, nor are constants of ordinary size.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_ATTENTION_ATTENTIONBIAS_H
#define TCC_PASSES_ATTENTION_ATTENTIONBIAS_H

#include "mlir/IR/Value.h"

namespace tcc::train {

/// True for a value computed from the function's arguments and no variable: a mask, while activations have weights.
bool isFromDataAlone(mlir::Value root);

/// True where no addend of `bias`, times `factor`, can exclude a key: each is a constant whose elements are nearer to 0
/// than kMaskFill, or is computed from trained parameters or activations.
bool excludesNoKey(mlir::Value bias, double factor = 1);

} // namespace tcc::train

#endif // TCC_PASSES_ATTENTION_ATTENTIONBIAS_H

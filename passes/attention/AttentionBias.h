//===- AttentionBias.h - static facts about an attention bias ---*- C++ -*-===//
//
// A term that is added to scores may be a mask in disguise: a large negative number excludes a key. If the data decide
// which keys are excluded, a query may see no key, and the softmax of its row then depends on these numbers. Terms
// computed from trained parameters and activations are no masks, nor are constants of ordinary size.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_ATTENTION_ATTENTIONBIAS_H
#define TCC_PASSES_ATTENTION_ATTENTIONBIAS_H

#include "mlir/IR/Value.h"

namespace tcc::train {

/// True if the value is computed from the function's arguments without any variable. Masks are; activations are not,
/// since they depend on weights.
bool isFromDataAlone(mlir::Value root);

/// True if no addend of `bias`, times `factor`, can exclude a key: each is a constant whose elements are nearer to 0
/// than kMaskFill, or is computed from trained parameters or activations.
bool excludesNoKey(mlir::Value bias, double factor = 1);

} // namespace tcc::train

#endif // TCC_PASSES_ATTENTION_ATTENTIONBIAS_H

//===- LossPrediction.h - what a loss is computed from ----------*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_LOSSPREDICTION_H
#define TCC_PASSES_TRAINING_LOSSPREDICTION_H

#include "passes/losses/Loss.h"

#include <string>

namespace tcc::train {

/// A sentence where the op that makes the prediction gives other numbers than the kind takes, a softmax before
/// cross_entropy, say: training would go on with a loss that means nothing. Empty where nothing speaks against it; what
/// is computed otherwise than by the ops looked for is not recognised. `name`: of the prediction, for the message.
std::string doubtfulPrediction(const LossKind &kind, const LossSettings &settings, mlir::Value prediction,
                               const std::string &name);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_LOSSPREDICTION_H

//===- LossPrediction.h - check what numbers a loss reads -------*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_LOSSPREDICTION_H
#define TCC_PASSES_TRAINING_LOSSPREDICTION_H

#include "passes/losses/Loss.h"

#include <string>

namespace tcc::train {

/// A warning if the op that computes the prediction gives other numbers than the kind expects, such as a softmax before
/// cross_entropy: training would run with a meaningless loss. Empty if there is no such op; predictions computed by
/// other ops are not recognised. `name`: of the prediction, for the message.
std::string doubtfulPrediction(const Loss &kind, const LossSettings &settings, mlir::Value prediction,
                               const std::string &name);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_LOSSPREDICTION_H

//===- ParameterGroups.h - assign parameters to optimizer groups --*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_PARAMETERGROUPS_H
#define TCC_PASSES_TRAINING_PARAMETERGROUPS_H

#include "compiler/recipe/Recipe.h"
#include "compiler/dialect/TrainDialect.h"
#include "frontend/Import.h"

#include <map>
#include <string>
#include <vector>

namespace tcc::train {

/// Parameters with one learning rate scale (layer decay included) and one weight decay.
struct ParameterGroup {
  std::string name; ///< "default", "no weight decay", or the recipe's globs
  double lrScale = 1, weightDecay = 0;
  std::vector<std::string> parameters;
};

/// Sorts `parameters` into groups, one for each distinct (lr_scale, weight_decay), the default one first. The first
/// group of the recipe whose globs match decides; decay_exempt sets weight decay to 0 unless that group gives one.
/// `readOrder` names parameters as the model first reads them, for layer_decay.
/// Globs match names among `parameters` and `others` (state that is not updated). Errors: a glob that matches nothing,
/// an unknown selector.
Expected<std::vector<ParameterGroup>>
groupParameters(llvm::ArrayRef<VariableOp> parameters, llvm::ArrayRef<VariableOp> others, const Recipe &recipe,
                const std::map<std::string, frontend::Initializer> *initializers, double weightDecay,
                llvm::ArrayRef<std::string> readOrder = {});

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_PARAMETERGROUPS_H

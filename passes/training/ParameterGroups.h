//===- ParameterGroups.h - assign parameters to optimizer groups --*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_PARAMETERGROUPS_H
#define TCC_PASSES_TRAINING_PARAMETERGROUPS_H

#include "compiler/recipe/Recipe.h"
#include "compiler/dialect/TrainDialect.h"

#include <string>
#include <vector>

namespace tcc::train {

/// Matches a pattern of the recipe with a variable: a glob on the initializer's name, and on its names in the
/// exporter's notes and in torch; a selector (@bias @norm @embedding @1d) on its readers. A variable without
/// WeightFacts has only its own name.
bool matchesPattern(const std::string &pattern, VariableOp variable);
bool matchesAnyPattern(const std::vector<std::string> &patterns, VariableOp variable);
/// The variable's names, its own first.
std::vector<std::string> namesOf(VariableOp variable);

/// Checks that each pattern is a known selector or matches something. `where` is "recipe.toml:3:1: " or empty.
Status checkPatterns(const std::vector<std::string> &patterns, const std::string &where, const std::string &key,
                     llvm::ArrayRef<VariableOp> variables);

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
                double weightDecay, llvm::ArrayRef<std::string> readOrder = {});

/// The `parameters` that a pattern matches. Messages begin with `where` ("recipe.toml:3:1: " or empty) and `key`.
/// Error: a glob that matches nothing, an unknown selector.
Expected<std::vector<VariableOp>> matchingParameters(llvm::ArrayRef<VariableOp> parameters,
                                                     const std::vector<std::string> &patterns, const std::string &where,
                                                     const std::string &key);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_PARAMETERGROUPS_H

//===- ParameterGroups.h - assign parameters to optimizer groups --*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_PARAMETERGROUPS_H
#define TCC_PASSES_TRAINING_PARAMETERGROUPS_H

#include "compiler/recipe/Recipe.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/model/Initializer.h"

#include <map>
#include <string>
#include <vector>

namespace tcc::train {

/// Matches the recipe's patterns with variables: globs on the initializer's name, and on its names in the exporter's notes
/// and in torch; selectors (@bias @norm @embedding @1d) on its readers.
class ParameterMatcher {
public:
  /// `initializers` may be null: then only the variables' own names are known.
  explicit ParameterMatcher(const std::map<std::string, Initializer> *initializers)
      : initializers(initializers) {}

  bool matches(const std::string &pattern, VariableOp variable) const;
  bool matchesAny(const std::vector<std::string> &patterns, VariableOp variable) const;
  /// The variable's own name first.
  std::vector<std::string> namesOf(VariableOp variable) const;
  /// The variable's initializer; null if unknown.
  const Initializer *find(VariableOp variable) const;

  static bool isSelector(const std::string &pattern) { return !pattern.empty() && pattern.front() == '@'; }

private:
  const std::map<std::string, Initializer> *initializers;
};

/// Checks that each pattern is a known selector or matches something. `where` is "recipe.toml:3:1: " or empty.
Status checkPatterns(const std::vector<std::string> &patterns, const std::string &where, const std::string &key,
                     llvm::ArrayRef<VariableOp> variables, const ParameterMatcher &matcher);

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
                const std::map<std::string, Initializer> *initializers, double weightDecay,
                llvm::ArrayRef<std::string> readOrder = {});

/// The `parameters` that a pattern matches. Messages begin with `where` ("recipe.toml:3:1: " or empty) and `key`.
/// Error: a glob that matches nothing, an unknown selector.
Expected<std::vector<VariableOp>> matchingParameters(llvm::ArrayRef<VariableOp> parameters,
                                                     const std::vector<std::string> &patterns, const std::string &where,
                                                     const std::string &key,
                                                     const std::map<std::string, Initializer> *initializers);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_PARAMETERGROUPS_H

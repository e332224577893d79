//===- RecipeStores.h - where a recipe's values go --------------*- C++ -*-===//
//
// The table of keys (support/recipe/Keys.h) says which values a key accepts, and where the plan keeps them. This file
// maps each key that the plan does not keep to its member of Recipe.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_RECIPE_RECIPESTORES_H
#define TCC_COMPILER_RECIPE_RECIPESTORES_H

#include "compiler/recipe/Recipe.h"
#include "support/recipe/Keys.h"
#include "support/recipe/Values.h"

#include <functional>
#include <map>

namespace tcc::recipe {

/// Stores a value whose type and range were checked. Error, without the place: a value of type Other is malformed.
using Store = std::function<Status(Recipe &, const toml::node &)>;

/// By key.
const std::map<std::string, Store, std::less<>> &allStores();

/// Fills in defaults of the optimizer's kind and refuses keys that the kind does not have.
Status finishOptimizer(Recipe &recipe);
/// The same for the loss and the schedule.
Status finishLoss(Recipe &recipe);
Status finishLossAndSchedule(Recipe &recipe);

/// Stores every value of `table` and its tables. Error: an unknown key, a wrong value, with their places.
Status applyTable(Recipe &recipe, const toml::table &table, const std::string &prefix = "");

/// True if entries and metrics may have this name: letters, digits, `_` and `-`, at most kLongestName of them.
bool isName(const std::string &name);
inline constexpr size_t kLongestName = 32;

/// Reads [[loss]] of the merged tables. Error: a key that a loss lacks or repeats, with its place.
Status finishLosses(Recipe &recipe, const toml::table &merged);

/// Reads [[phase]] of the merged tables; recipe.loss and evaluate.metrics become those of evaluations. Error: a key
/// that a phase lacks or repeats, with its place.
Status finishPhases(Recipe &recipe, const toml::table &merged);

/// Reads [[stage]] of the merged tables. Error: a key that a stage lacks, stages out of order, incompatible settings.
Status finishStages(Recipe &recipe, const toml::table &merged);

/// Checks settings of training. Error: keys of train.ema without decay, of evaluate.stop without patience; a metric of
/// other losses.
Status finishTraining(const Recipe &recipe);
/// Sets LossSettings::padsBatches of all losses.
void finishPadding(Recipe &recipe);

// Readers for values inside tables. Each checks type and range and stores the value; its error says what was expected,
// without the place.

Status readNumber(const toml::node &node, Range range, double &out);
Status readString(const toml::node &node, std::string &out);
Status readChoice(const toml::node &node, const std::vector<std::string> &words, std::string &out);
Status readStrings(const toml::node &node, std::vector<std::string> &out);
Status readIntegers(const toml::node &node, int64_t least, std::vector<int64_t> &out);
/// A number, a boolean, nested lists of these, "FILE.safetensors:TENSOR", or { file, tensor }.
Status readFixedValue(const toml::node &node, FixedValue &out);

} // namespace tcc::recipe

#endif // TCC_COMPILER_RECIPE_RECIPESTORES_H

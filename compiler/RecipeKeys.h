//===- RecipeKeys.h - the table of recipe keys ------------------*- C++ -*-===//
//
// Every key a recipe may hold stands in this table once: its name, the setter that checks type and range, and whether this
// version does what it asks. What it does not do is refused, never ignored.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_RECIPEKEYS_H
#define TCC_COMPILER_RECIPEKEYS_H

#include "compiler/Recipe.h"

#include "runtime/plan/Toml.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tcc::recipe {

/// Checks one value and stores it; the error says what was expected, without the place.
using Setter = std::function<plan::Status(Recipe &, const toml::node &)>;

struct Key {
  std::string name;  ///< dotted; a trailing ".*" takes any one name below it, which `set` receives as a table
  Setter set;        ///< null: known, and not supported by this version yet
  std::vector<std::string> elsewhere = {}; ///< what other trainers call it
};

/// All keys, in the order of the documentation.
std::span<const Key> allKeys();

/// "string", "integer", …: a value's type in TOML's words.
std::string_view typeName(const toml::node &node);

/// Fills what the optimizer's kind leaves open and refuses what it does not take.
plan::Status finishOptimizer(Recipe &recipe);
/// The same for the loss and the schedule.
plan::Status finishLossAndSchedule(Recipe &recipe);

} // namespace tcc::recipe

#endif // TCC_COMPILER_RECIPEKEYS_H

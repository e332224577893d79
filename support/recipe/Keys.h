//===- Keys.h - the table of recipe keys ---------------------------------===//
//
// The only list of the keys that a recipe may hold: values, default, whether a change needs recompiling. The checks of
// the recipe (compiler/recipe/) and of `trun --set` (runtime/train/Settings), the names that messages suggest, and the
// table of keys in the recipe's page are derived from it. It is part of support/ because the compiler and the runtime
// both read it, and neither includes the other.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_RECIPE_KEYS_H
#define TCC_SUPPORT_RECIPE_KEYS_H

#include "support/recipe/Values.h"

#include <span>

namespace tcc::recipe {

enum class Change {
  Recompile, ///< compiled into the plan
  RunTime,   ///< `trun --set` changes it, too
  Later      ///< known, and refused by this version
};

struct Key {
  std::string name; ///< dotted
  Values values;
  /// The default: a TOML value if leaving the key out always means that value, else a description in words.
  std::string preset;
  Change change;
  std::string meaning;                     ///< one line, in Markdown
  std::vector<std::string> elsewhere = {}; ///< names in other trainers, which messages translate
};

/// All keys, in the order of the documentation.
std::span<const Key> allKeys();

/// The key of that name, or null.
const Key *findKey(std::string_view name);

/// The key that `name` is an entry of: "data.map" for "data.map.x"; or null.
const Key *findTableOf(std::string_view name);

/// True if some key is inside the table `name`.
bool isSection(std::string_view name);

/// The advice for an unknown key: the nearest key, or all keys of its table.
std::string hintFor(std::string_view name);

/// Parses KEY=VALUE into a table. A value that is not a TOML value is taken as a string. Errors (wrong usage): not of
/// the form KEY=VALUE; invalid TOML, with its column.
Expected<toml::table> parseSetting(const std::string &setting);

/// The rows of the documentation's table, in Markdown.
std::string keysTable();

} // namespace tcc::recipe

#endif // TCC_SUPPORT_RECIPE_KEYS_H

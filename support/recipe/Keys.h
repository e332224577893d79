//===- Keys.h - the table of recipe keys ---------------------------------===//
//
// The only list of the keys that a recipe may hold. A key's record says which values it takes, its default, whether a
// change needs recompiling, where the plan keeps the value, and what a resumed run makes of a change. Reading a recipe
// (compiler/recipe/), writing its settings to the plan and changing them there (runtime/plan/SettingFields), the rules
// of `trun --set` (runtime/train/Settings), what a resume compares (runtime/train/Resume), the names that messages
// suggest, the table of keys in the recipe's page and `tcc keys --json` all follow from it. It is part of support/
// because the compiler and the runtime both read it, and neither includes the other.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_RECIPE_KEYS_H
#define TCC_SUPPORT_RECIPE_KEYS_H

#include "support/recipe/Values.h"

#include <span>

namespace tcc::recipe {

enum class Change {
  Recompile, ///< compiled into the plan
  RunTime    ///< `trun --set` changes it, too
};

/// What a resumed run does about a key whose value differs from that of the run it continues.
enum class Resumed {
  Noted,   ///< reports it
  Refused, ///< refuses: the meaning of the optimizer's state, the goal of training or the position would change
  Kept,    ///< refuses as well: the run continues with its own value, which need not be given again
  Ignored  ///< ignores it: the key changes no result
};

/// `places` are paths in plan.Training ("evaluation.best"), or in plan.DataSettings if they begin with "data."
/// ("data.map"); a path into a map ends with an entry's name ("optimizer.numbers.eps"). A list of numbers has a place
/// for each, or one place whose name ends in "{}" for the number's index.
struct Key {
  std::string name; ///< dotted
  Values values;
  /// The default: a TOML value if leaving the key out always means that value, else a description in words.
  std::string preset;
  Change change;
  std::string meaning;                     ///< one line, in Markdown
  std::vector<std::string> elsewhere = {}; ///< names in other trainers, which messages translate

  std::vector<std::string> places = {}; ///< empty: the compiler alone keeps the value (compiler/recipe/RecipeStores)
  /// Run-time scalars: without any of them the plan's kernels do not read the value, so `trun --set` cannot change it.
  std::vector<std::string> scalars = {};
  std::string lacking = {}; ///< what a plan without these scalars was compiled without: "clipping"
  std::string with = {};    ///< a key that must be given, too; then an example of it: "train.ema.decay, such as 0.999"
  Resumed resumed = Resumed::Noted;

  Key &&at(std::vector<std::string> paths) && { return places = std::move(paths), std::move(*this); }
  Key &&reads(std::vector<std::string> names, std::string without) && {
    return scalars = std::move(names), lacking = std::move(without), std::move(*this);
  }
  Key &&needs(std::string key) && { return with = std::move(key), std::move(*this); }
  Key &&whenResumed(Resumed policy) && { return resumed = policy, std::move(*this); }

  /// "gamma" of schedule.gamma.
  std::string_view lastName() const { return std::string_view(name).substr(name.rfind('.') + 1); }
  /// "train.ema.decay" of `with`.
  std::string neededKey() const { return with.substr(0, with.find(',')); }
  /// The default as a number or boolean. Requires a preset that is one.
  double presetNumber() const;
};

/// All keys, in the order of the documentation.
std::span<const Key> allKeys();

/// The key of that name, or null.
const Key *findKey(std::string_view name);

/// The key of that name. A name that the table lacks is an internal error.
const Key &keyOf(std::string_view name);

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

/// The kinds of loss, optimizer or schedule that take the key; empty if all do, or the key belongs to none of these.
std::vector<std::string> kindsOf(const Key &key);

/// Keys for other programs, which make completions or keyword arguments of them: a JSON array with an object for each
/// key. `key`; `schema`, the values in the words of JSON Schema; `values` and `meaning` in Markdown; `default`, a JSON
/// value, if leaving the key out always means that value, else `default_text`, words; `trun`: whether `trun --set`
/// changes it; `kinds` as kindsOf; `needs`: a key that must be given, too; `elsewhere`: names in other trainers.
std::string keysJson(std::span<const Key *const> keys);

} // namespace tcc::recipe

#endif // TCC_SUPPORT_RECIPE_KEYS_H

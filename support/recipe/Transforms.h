//===- Transforms.h - the table of data transforms -----------------------===//
//
// The only list of the kinds of `[[data.transform]]`: arguments with values, defaults and meanings, and whether a kind
// draws random numbers. The checks of a recipe and of `trun --set`, the transforms that runtime/data creates, and
// docs/guide/transforms.md are derived from it. The arithmetic on samples is in runtime/data/transforms/.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_RECIPE_TRANSFORMS_H
#define TCC_SUPPORT_RECIPE_TRANSFORMS_H

#include "support/recipe/Values.h"

#include <functional>
#include <span>

namespace tcc::recipe {

struct TransformArgument {
  std::string name;
  Values values;
  std::string preset; ///< TOML; empty: none, see `required`
  std::string meaning;
  bool required = false;
};

struct TransformKind {
  enum class Works {
    OnImages, ///< one sample of one column at a time
    OnLabels, ///< likewise, by default of the column `label`
    OnNumbers, ///< likewise, of a column of numbers, which the table names
    OnTokens, ///< a window of tokens and its targets; of training and evaluation alike
    OnBatches ///< a whole batch: the column and its target
  };
  std::string name;
  std::string family; ///< the heading in the documentation
  bool random = false;
  Works works = Works::OnImages;
  std::vector<TransformArgument> arguments;
  std::string meaning; ///< Markdown
  std::vector<std::string> otherNames = {};
};

/// All kinds, in the order of the documentation.
std::span<const TransformKind> transformKinds();

/// The kind of that name or other name, or null.
const TransformKind *findTransformKind(std::string_view name);

/// One table, checked: every argument has a value of its type, or is absent where it has no default.
struct TransformSpec {
  const TransformKind *kind = nullptr;
  size_t number = 0; ///< from 1, in the order of the recipe
  std::string column;
  std::string mask;     ///< a column of masks that moves with it; empty: none
  bool ofMasks = false; ///< `column` is such a column
  bool inTraining = true, inEvaluation = true;
  toml::table arguments;

  bool has(std::string_view name) const { return arguments.contains(name); }
  double real(std::string_view name) const { return *arguments[name].value<double>(); }
  int64_t integer(std::string_view name) const { return *arguments[name].value<int64_t>(); }
  bool flag(std::string_view name) const { return *arguments[name].value<bool>(); }
  std::string word(std::string_view name) const { return arguments[name].value_or(std::string()); }
  /// A number as a list of one; empty where the argument is absent.
  std::vector<double> numbers(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;
  /// The transform of the column `mask`: the same random numbers, the nearest pixel, zeros outside. Requires a `mask`.
  TransformSpec ofMask() const;
  /// "data.transform 2 (random_crop)", for messages.
  std::string place() const;
};

/// Checks the value of `data.transform`. `at` turns a node of it into the beginning of a message: file, line and
/// column.
Expected<std::vector<TransformSpec>> readTransforms(const toml::node &tables,
                                                    const std::function<std::string(const toml::node &)> &at = {});

/// Converts the value to the text that a plan stores, and back. The text is TOML: `tables = [ … ]`.
std::string transformsText(const toml::node &tables);
Expected<std::vector<TransformSpec>> parseTransforms(const std::string &text);

/// The tables of the documentation, in Markdown.
std::string transformsTable();

} // namespace tcc::recipe

#endif // TCC_SUPPORT_RECIPE_TRANSFORMS_H

//===- ColumnRules.h - data.categories, .missing, .columns, .pad -------------===//
//
// Rules for single columns. A plan keeps each as a setting of its own, "categories.species" or "missing.age",
// with the rule as TOML text.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_RECIPE_COLUMNRULES_H
#define TCC_SUPPORT_RECIPE_COLUMNRULES_H

#include "support/Toml.h"

#include <string>
#include <string_view>
#include <vector>

namespace tcc::recipe {

/// How texts become integers: the index in `names`, or, if `names` is empty, in the sorted texts of the training data.
struct CategoryRule {
  std::vector<std::string> names;
};

/// The replacement of a missing value: a number, the mean of the training data, or, in columns of texts, a text.
struct MissingRule {
  bool mean = false;
  double number = 0;
  std::string text;    ///< of a column of texts
  bool isText = false; ///< `text` was given
};

/// True for "categories", "missing", "columns" and "pad": tables whose keys are columns.
bool isColumnTable(std::string_view name);

/// A rule as text for the plan. Error: it is not a rule of that table; the message does not name the column.
Expected<std::string> columnRuleText(std::string_view table, const toml::node &rule);

/// Rules from that text.
Expected<CategoryRule> parseCategoryRule(const std::string &text);
Expected<MissingRule> parseMissingRule(const std::string &text);
/// The element that follows the end of a ragged column's sample.
Expected<double> parsePad(const std::string &text);
/// Names of the columns that `data.columns` joins into one.
Expected<std::vector<std::string>> parseColumnList(const std::string &text);

} // namespace tcc::recipe

#endif // TCC_SUPPORT_RECIPE_COLUMNRULES_H

//===- ColumnRules.cpp - data.categories, .missing, .columns, .pad -----------===//
#include "support/recipe/ColumnRules.h"
#include "support/recipe/Values.h"

#include <set>
#include <sstream>

namespace tcc::recipe {
namespace {

Expected<CategoryRule> readCategories(const toml::node &node) {
  CategoryRule rule;
  if (node.is_string() && *node.value<std::string>() == "sorted")
    return rule;
  const toml::array *names = node.as_array();
  if (!names || names->empty())
    return expected("\"sorted\" or a list of texts, in the order of their numbers", node);
  std::set<std::string> seen;
  for (const toml::node &name : *names) {
    if (!name.is_string())
      return expected("texts", name);
    rule.names.push_back(*name.value<std::string>());
    if (!seen.insert(rule.names.back()).second)
      return error("\"{}\" occurs twice", rule.names.back());
  }
  return rule;
}

Expected<MissingRule> readMissing(const toml::node &node) {
  MissingRule rule;
  if (node.is_number()) {
    rule.number = *node.value<double>();
    return rule;
  }
  if (!node.is_string())
    return expected("a number, \"mean\", or a text", node);
  rule.text = *node.value<std::string>();
  rule.isText = true;
  rule.mean = rule.text == "mean";
  return rule;
}

Expected<std::vector<std::string>> readColumns(const toml::node &node) {
  const toml::array *names = node.as_array();
  std::vector<std::string> columns;
  for (size_t i = 0; names && i < names->size(); ++i)
    if (auto name = (*names)[i].value<std::string>(); name && (*names)[i].is_string())
      columns.push_back(*name);
  if (!names || columns.empty() || columns.size() != names->size())
    return expected("a list of names of columns", node);
  return columns;
}

Expected<double> readPad(const toml::node &node) {
  if (!node.is_number())
    return expected("a number", node);
  return *node.value<double>();
}

template <typename Rule> Expected<Rule> parseRule(const std::string &text, Expected<Rule> (*read)(const toml::node &)) {
  Expected<toml::table> parsed = parseToml("v = " + text);
  if (!parsed || !parsed->get("v"))
    return error("not a rule of a column: {}", text);
  return read(*parsed->get("v"));
}
} // namespace

bool isColumnTable(std::string_view name) {
  return name == "categories" || name == "missing" || name == "columns" || name == "pad";
}

Expected<std::string> columnRuleText(std::string_view table, const toml::node &rule) {
  const Status status = table == "categories" ? readCategories(rule).status()
                        : table == "missing"  ? readMissing(rule).status()
                        : table == "pad"      ? readPad(rule).status()
                                              : readColumns(rule).status();
  if (!status.ok())
    return status;
  std::ostringstream text;
  rule.visit([&](const auto &one) { text << one; });
  return text.str();
}

Expected<CategoryRule> parseCategoryRule(const std::string &text) {
  return parseRule<CategoryRule>(text, readCategories);
}

Expected<MissingRule> parseMissingRule(const std::string &text) { return parseRule<MissingRule>(text, readMissing); }

Expected<double> parsePad(const std::string &text) { return parseRule<double>(text, readPad); }

Expected<std::vector<std::string>> parseColumnList(const std::string &text) {
  return parseRule<std::vector<std::string>>(text, readColumns);
}

} // namespace tcc::recipe

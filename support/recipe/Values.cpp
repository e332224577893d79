//===- Values.cpp - the values that a recipe key takes -------------------===//
#include "support/recipe/Values.h"
#include "support/NearestName.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

namespace tcc::recipe {

std::string Range::text() const {
  if (low == -kInfinity && high == kInfinity)
    return "";
  if (high == kInfinity)
    return fmt::format("{} {}", openLow ? "above" : "at least", low);
  return fmt::format("from {} {}to {}{}", low, openLow ? "(excluded) " : "", high, openHigh ? " (excluded)" : "");
}

using Type = Values::Type;

static Values make(Type type) {
  Values values;
  values.type = type;
  return values;
}

Values flag() { return make(Type::Flag); }
Values text() { return make(Type::Text); }
Values texts() { return make(Type::Texts); }
Values textTable() { return make(Type::TextTable); }

Values integer(int64_t least, int64_t most) {
  Values values = make(Type::Integer);
  values.least = least;
  values.most = most;
  return values;
}

Values number(Range range) {
  Values values = make(Type::Number);
  values.range = range;
  return values;
}

Values numberOr(Range range, double also) {
  Values values = number(range);
  values.also = also;
  return values;
}

Values numberOr(Range range, std::vector<std::string> words) {
  Values values = number(range);
  values.words = std::move(words);
  return values;
}

Values choice(std::vector<std::string> words, std::vector<std::string> later) {
  Values values = make(Type::Choice);
  values.words = std::move(words);
  values.later = std::move(later);
  return values;
}

Values numbers(Range range, size_t count) {
  Values values = make(Type::Numbers);
  values.range = range;
  values.count = count;
  return values;
}

Values integers(int64_t least) {
  Values values = make(Type::Integers);
  values.least = least;
  return values;
}

Values integersOf(int64_t least, int64_t most, std::vector<size_t> counts) {
  Values values = make(Type::Integers);
  values.least = least;
  values.most = most;
  values.counts = std::move(counts);
  return values;
}

Values interval(Range range) {
  Values values = make(Type::Interval);
  values.range = range;
  values.counts = {2};
  return values;
}

Values intervalOrNumber(Range range, size_t pairs) {
  Values values = interval(range);
  values.counts = {1};
  for (size_t pair = 1; pair <= pairs; ++pair)
    values.counts.push_back(2 * pair);
  return values;
}

Values integerTable(int64_t least) {
  Values values = make(Type::IntegerTable);
  values.least = least;
  return values;
}

static Values described(Type type, std::string description) {
  Values values = make(type);
  values.description = std::move(description);
  return values;
}
Values columnRules(std::string description) { return described(Type::ColumnRules, std::move(description)); }
Values transforms() { return described(Type::Transforms, "tables `[[data.transform]]`"); }
Values other(std::string description) { return described(Type::Other, std::move(description)); }

std::string_view typeName(const toml::node &node) {
  switch (node.type()) {
  case toml::node_type::table:
    return "a table";
  case toml::node_type::array:
    return "a list";
  case toml::node_type::string:
    return "a string";
  case toml::node_type::integer:
    return "an integer";
  case toml::node_type::floating_point:
    return "a number with a fraction";
  case toml::node_type::boolean:
    return "a boolean";
  default:
    return "a date or time";
  }
}

Status expected(std::string_view what, const toml::node &node) {
  return error("expected {}, found {}", what, typeName(node));
}

namespace {
Status checkNumber(const Values &values, const toml::node &node) {
  std::optional<double> value;
  if (node.is_floating_point() || node.is_integer())
    value = node.value<double>();
  if (!value)
    return expected("a number", node);
  if (value == values.also || (std::isfinite(*value) && values.range.holds(*value)))
    return Status();
  std::string range = values.range.text();
  return error("{} is out of range: a {}{}{}", *value, range.empty() ? "finite number" : "number ", range,
               values.also ? fmt::format(", or {}", *values.also) : "");
}

Status checkInteger(const Values &values, const toml::node &node) {
  if (!node.is_integer())
    return expected("an integer", node);
  int64_t value = *node.value<int64_t>();
  if (value >= values.least && value <= values.most)
    return Status();
  if (values.most == kMostInteger)
    return error("{} is out of range: an integer, at least {}", value, values.least);
  return error("{} is out of range: an integer from {} to {}", value, values.least, values.most);
}

Status checkWord(const Values &values, const toml::node &node) {
  if (!node.is_string())
    return expected("a string", node);
  std::string value = *node.value<std::string>();
  if (std::find(values.later.begin(), values.later.end(), value) != values.later.end())
    return error("\"{}\" is not supported by this version yet; it does {}", value, fmt::join(values.words, ", "));
  if (std::find(values.words.begin(), values.words.end(), value) != values.words.end())
    return Status();
  std::vector<std::string> known = values.words;
  known.insert(known.end(), values.later.begin(), values.later.end());
  std::string nearest = nearestName(value, known);
  return error("\"{}\" is unknown; {}{}{}", value, nearest.empty() ? "" : "the nearest is \"" + nearest + "\" (",
               fmt::format("known: {}", fmt::join(known, ", ")), nearest.empty() ? "" : ")");
}

Status checkTexts(const toml::node &node) {
  if (node.is_string())
    return Status();
  const toml::array *array = node.as_array();
  if (!array)
    return expected("a list of strings", node);
  for (const toml::node &element : *array)
    if (!element.is_string())
      return error("expected a list of strings, found {} in it", typeName(element));
  return Status();
}

Status checkNumbers(const Values &values, const toml::node &node) {
  constexpr std::string_view kCounts[] = {"", "one number", "two numbers", "three numbers"};
  const toml::array *array = node.as_array();
  if (!array)
    return values.count ? expected(fmt::format("a list of {}", kCounts[values.count]), node)
                        : checkNumber(values, node);
  for (const toml::node &element : *array)
    if (Status status = checkNumber(values, element); !status.ok())
      return status;
  if (values.count && array->size() != values.count)
    return error("expected {}, found {}", kCounts[values.count], array->size());
  return Status();
}

Status checkIntegers(const Values &values, const toml::node &node) {
  const toml::array *array = node.as_array();
  const std::string lists = values.counts.empty()
                                ? "a list of integers"
                                : fmt::format("an integer, or a list of {} of them", fmt::join(values.counts, " or "));
  if (!array)
    return values.counts.empty() ? expected(lists, node) : checkInteger(values, node);
  for (const toml::node &element : *array)
    if (Status status = checkInteger(values, element); !status.ok())
      return status;
  if (!values.counts.empty() &&
      std::find(values.counts.begin(), values.counts.end(), array->size()) == values.counts.end())
    return error("expected {}, found {}", lists, array->size());
  return Status();
}

Status checkInterval(const Values &values, const toml::node &node) {
  auto allows = [&](size_t count) {
    return std::find(values.counts.begin(), values.counts.end(), count) != values.counts.end();
  };
  const toml::array *array = node.as_array();
  if (!array)
    return allows(1) ? checkNumber(values, node) : expected("[least, greatest]", node);
  for (const toml::node &element : *array)
    if (Status status = checkNumber(values, element); !status.ok())
      return status;
  if (array->size() % 2 != 0 || !allows(array->size()))
    return error("expected {}[least, greatest]{}, found {} numbers", allows(1) ? "a number or " : "",
                 allows(4) ? ", or two such pairs in one list" : "", array->size());
  for (size_t i = 0; i < array->size(); i += 2)
    if (double low = *(*array)[i].value<double>(), high = *(*array)[i + 1].value<double>(); low > high)
      return error("[{}, {}] is empty: the least number is above the greatest", low, high);
  return Status();
}

template <typename Check> Status checkTable(const toml::node &node, std::string_view what, Check checkOne) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected(what, node);
  for (const auto &[name, value] : *table)
    if (Status status = checkOne(value); !status.ok())
      return status.withContext(std::string(name.str()));
  return Status();
}
} // namespace

Status check(const Values &values, const toml::node &node) {
  switch (values.type) {
  case Type::Flag:
    return node.is_boolean() ? Status() : expected("true or false", node);
  case Type::Integer:
    return checkInteger(values, node);
  case Type::Number:
    return node.is_string() && !values.words.empty() ? checkWord(values, node) : checkNumber(values, node);
  case Type::Text:
    return node.is_string() ? Status() : expected("a string", node);
  case Type::Choice:
    return checkWord(values, node);
  case Type::Texts:
    return checkTexts(node);
  case Type::Numbers:
    return checkNumbers(values, node);
  case Type::Integers:
    return checkIntegers(values, node);
  case Type::Interval:
    return checkInterval(values, node);
  case Type::IntegerTable:
    return checkTable(node, "a table of integers", [&](const toml::node &one) { return checkInteger(values, one); });
  case Type::TextTable:
    return checkTable(node, "a table of strings",
                      [&](const toml::node &one) { return one.is_string() ? Status() : expected("a string", one); });
  case Type::ColumnRules:
    return node.is_table() ? Status() : expected("a table of columns", node);
  case Type::Transforms:
  case Type::Other:
    return Status();
  }
  return Status();
}

std::string describe(const Values &values) {
  auto ranged = [](std::string what, const std::string &range) { return range.empty() ? what : what + ", " + range; };
  std::string words = values.words.empty() ? "" : fmt::format("`\"{}\"`", fmt::join(values.words, "\"`, `\""));
  std::string integers;
  if (values.most != kMostInteger)
    integers = fmt::format("from {} to {}", values.least, values.most);
  else if (values.least != std::numeric_limits<int64_t>::min())
    integers = fmt::format("at least {}", values.least);
  switch (values.type) {
  case Type::Flag:
    return "`true`, `false`";
  case Type::Integer:
    return ranged("integer", integers);
  case Type::Number: {
    std::string what = ranged("number", values.range.text());
    if (values.also)
      what += fmt::format(", or {}", *values.also);
    return words.empty() ? what : what + "; or " + words;
  }
  case Type::Text:
    return "string";
  case Type::Choice:
    return words;
  case Type::Texts:
    return "list of strings";
  case Type::Numbers:
    return ranged(values.count ? fmt::format("list of {} numbers", values.count) : "number or list of them",
                  values.range.text());
  case Type::Integers:
    return ranged(values.counts.empty() ? "list of integers"
                                        : fmt::format("integer or list of {}", fmt::join(values.counts, " or ")),
                  integers);
  case Type::Interval:
    return ranged(values.counts.front() == 1 ? "number or [least, greatest]" : "[least, greatest]",
                  values.range.text());
  case Type::IntegerTable:
    return ranged("table of integers", integers);
  case Type::TextTable:
    return "table of strings";
  case Type::ColumnRules:
  case Type::Transforms:
  case Type::Other:
    return values.description;
  }
  return "";
}

std::string plainText(const toml::node &node) {
  if (const toml::array *list = node.as_array()) {
    std::string text;
    for (const toml::node &element : *list)
      text += (text.empty() ? "" : "\n") + plainText(element);
    return text;
  }
  return node.is_string()    ? *node.value<std::string>()
         : node.is_boolean() ? fmt::format("{}", *node.value<bool>())
         : node.is_integer() ? fmt::format("{}", *node.value<int64_t>())
                             : fmt::format("{}", *node.value<double>());
}

} // namespace tcc::recipe

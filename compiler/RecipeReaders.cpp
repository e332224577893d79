//===- RecipeReaders.cpp - one value of a recipe, checked -----------------===//
#include "compiler/RecipeReaders.h"
#include "runtime/plan/NearestName.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

namespace tcc::recipe {

Status expected(std::string_view what, const toml::node &node) {
  return plan::error("expected {}, found {}", what, typeName(node));
}

Status readNumber(const toml::node &node, Range range, double &out) {
  std::optional<double> value;
  if (node.is_floating_point() || node.is_integer())
    value = node.value<double>();
  if (!value)
    return expected("a number", node);
  if (!std::isfinite(*value) || !range.holds(*value))
    return plan::error("{} is out of range: a number {}", *value, range.text());
  out = *value;
  return Status::success();
}

Status readInteger(const toml::node &node, int64_t low, int64_t high, int64_t &out) {
  if (!node.is_integer())
    return expected("an integer", node);
  int64_t value = *node.value<int64_t>();
  if (value < low || value > high) {
    if (high == std::numeric_limits<int64_t>::max())
      return plan::error("{} is out of range: an integer, at least {}", value, low);
    return plan::error("{} is out of range: an integer from {} to {}", value, low, high);
  }
  out = value;
  return Status::success();
}

Status readBool(const toml::node &node, bool &out) {
  if (!node.is_boolean())
    return expected("true or false", node);
  out = *node.value<bool>();
  return Status::success();
}

Status readString(const toml::node &node, std::string &out) {
  if (!node.is_string())
    return expected("a string", node);
  out = *node.value<std::string>();
  return Status::success();
}

Status readChoice(const toml::node &node, const std::vector<std::string> &supported,
                  const std::vector<std::string> &later, std::string &out) {
  std::string value;
  if (Status status = readString(node, value); !status.ok())
    return status;
  if (std::find(later.begin(), later.end(), value) != later.end())
    return plan::error("\"{}\" is not supported by this version yet; it does {}", value, fmt::join(supported, ", "));
  if (std::find(supported.begin(), supported.end(), value) == supported.end()) {
    std::vector<std::string> known = supported;
    known.insert(known.end(), later.begin(), later.end());
    std::string nearest = plan::nearestName(value, known);
    return plan::error("\"{}\" is unknown; {}{}{}", value,
                       nearest.empty() ? "" : "the nearest is \"" + nearest + "\" (",
                       fmt::format("known: {}", fmt::join(known, ", ")), nearest.empty() ? "" : ")");
  }
  out = value;
  return Status::success();
}

Status readStrings(const toml::node &node, std::vector<std::string> &out) {
  out.clear();
  if (node.is_string()) {
    out.push_back(*node.value<std::string>());
    return Status::success();
  }
  const toml::array *array = node.as_array();
  if (!array)
    return expected("a list of strings", node);
  for (const toml::node &element : *array) {
    if (!element.is_string())
      return plan::error("expected a list of strings, found {} in it", typeName(element));
    out.push_back(*element.value<std::string>());
  }
  return Status::success();
}

Status readNumbers(const toml::node &node, Range range, std::vector<double> &out) {
  out.clear();
  if (!node.is_array()) {
    double value = 0;
    Status status = readNumber(node, range, value);
    out.push_back(value);
    return status;
  }
  for (const toml::node &element : *node.as_array()) {
    double value = 0;
    if (Status status = readNumber(element, range, value); !status.ok())
      return status;
    out.push_back(value);
  }
  return Status::success();
}

Status readIntegers(const toml::node &node, int64_t low, std::vector<int64_t> &out) {
  out.clear();
  const toml::array *array = node.as_array();
  if (!array)
    return expected("a list of integers", node);
  for (const toml::node &element : *array) {
    int64_t value = 0;
    if (Status status = readInteger(element, low, std::numeric_limits<int64_t>::max(), value); !status.ok())
      return status;
    out.push_back(value);
  }
  return Status::success();
}

Status readIntegerTable(const toml::node &node, int64_t low, std::map<std::string, int64_t> &out) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table of integers", node);
  for (const auto &[name, value] : *table) {
    int64_t number = 0;
    Status status = readInteger(value, low, std::numeric_limits<int64_t>::max(), number);
    if (!status.ok())
      return status.withContext(std::string(name.str()));
    out[std::string(name.str())] = number;
  }
  return Status::success();
}

} // namespace tcc::recipe

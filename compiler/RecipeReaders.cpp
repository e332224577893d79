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

namespace {

constexpr size_t kMostFixedRank = 8;
constexpr std::string_view kTensorFile = ".safetensors";

/// Appends the numbers of nested lists; `depth` lists lie around `node`.
Status readNested(const toml::node &node, size_t depth, FixedValue &out, bool &integral) {
  if (const toml::array *array = node.as_array()) {
    if (depth == kMostFixedRank)
      return plan::error("lists are nested more than {} deep", kMostFixedRank);
    if (depth == out.shape.size() && out.numbers.empty())
      out.shape.push_back(int64_t(array->size()));
    if (depth >= out.shape.size() || out.shape[depth] != int64_t(array->size()))
      return plan::error("its lists are not equally long");
    for (const toml::node &element : *array)
      if (Status status = readNested(element, depth + 1, out, integral); !status.ok())
        return status;
    return Status::success();
  }
  if (depth != out.shape.size())
    return plan::error("its lists are not equally deep");
  if (node.is_boolean() || node.is_integer())
    out.integers.push_back(node.is_boolean() ? int64_t(*node.value<bool>()) : *node.value<int64_t>());
  else if (node.is_floating_point())
    integral = false;
  else
    return expected("a number, true or false, lists of these, or \"FILE.safetensors:TENSOR\"", node);
  out.numbers.push_back(integral || !node.is_floating_point() ? double(out.integers.back()) : *node.value<double>());
  return Status::success();
}

} // namespace

Status readFixedValue(const toml::node &node, FixedValue &out) {
  out = {};
  if (node.is_string()) {
    const std::string text = *node.value<std::string>();
    const size_t end = text.rfind(kTensorFile);
    const size_t after = end == text.npos ? text.npos : end + kTensorFile.size();
    if (after == text.npos || (after < text.size() && text[after] != ':'))
      return plan::error("\"{}\" is no number, list of numbers or \"FILE.safetensors:TENSOR\"", text);
    out.file = text.substr(0, after);
    out.tensor = after < text.size() ? text.substr(after + 1) : "";
    return Status::success();
  }
  if (const toml::table *table = node.as_table()) {
    for (const auto &[key, value] : *table) {
      if (key != "file" && key != "tensor")
        return plan::error("unknown key {}; a tensor is named by file and tensor", std::string(key.str()));
      if (Status status = readString(value, key == "file" ? out.file : out.tensor); !status.ok())
        return status.withContext(std::string(key.str()));
    }
    return out.file.empty() ? plan::error("it names no file") : Status::success();
  }
  bool integral = true;
  if (Status status = readNested(node, 0, out, integral); !status.ok())
    return status;
  if (!integral)
    out.integers.clear();
  return Status::success();
}

} // namespace tcc::recipe

//===- RecipeReaders.cpp - read and check one value of a recipe -----------===//
#include "compiler/recipe/RecipeStores.h"

#include <algorithm>
#include <cctype>

namespace tcc::recipe {

bool isName(const std::string &name) {
  auto isPlain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), isPlain);
}

Status readNumber(const toml::node &node, Range range, double &out) {
  Status status = check(number(range), node);
  if (status.ok())
    out = *node.value<double>();
  return status;
}

Status readString(const toml::node &node, std::string &out) {
  Status status = check(text(), node);
  if (status.ok())
    out = *node.value<std::string>();
  return status;
}

Status readChoice(const toml::node &node, const std::vector<std::string> &words, std::string &out) {
  Status status = check(choice(words), node);
  if (status.ok())
    out = *node.value<std::string>();
  return status;
}

Status readStrings(const toml::node &node, std::vector<std::string> &out) {
  Status status = check(texts(), node);
  out.clear();
  if (status.ok() && node.is_string())
    out.push_back(*node.value<std::string>());
  else if (status.ok())
    for (const toml::node &element : *node.as_array())
      out.push_back(*element.value<std::string>());
  return status;
}

Status readIntegers(const toml::node &node, int64_t least, std::vector<int64_t> &out) {
  Status status = check(integers(least), node);
  out.clear();
  if (status.ok())
    for (const toml::node &element : *node.as_array())
      out.push_back(*element.value<int64_t>());
  return status;
}

namespace {

constexpr size_t kMostFixedRank = 8;
constexpr std::string_view kTensorFile = ".safetensors";

/// Appends the numbers of nested lists; `depth` lists enclose `node`.
Status readNested(const toml::node &node, size_t depth, FixedValue &out, bool &integral) {
  if (const toml::array *array = node.as_array()) {
    if (depth == kMostFixedRank)
      return error("lists are nested more than {} deep", kMostFixedRank);
    if (depth == out.shape.size() && out.numbers.empty())
      out.shape.push_back(int64_t(array->size()));
    if (depth >= out.shape.size() || out.shape[depth] != int64_t(array->size()))
      return error("its lists are not equally long");
    for (const toml::node &element : *array)
      if (Status status = readNested(element, depth + 1, out, integral); !status.ok())
        return status;
    return Status::success();
  }
  if (depth != out.shape.size())
    return error("its lists are not equally deep");
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
      return error("\"{}\" is no number, list of numbers or \"FILE.safetensors:TENSOR\"", text);
    out.file = text.substr(0, after);
    out.tensor = after < text.size() ? text.substr(after + 1) : "";
    return Status::success();
  }
  if (const toml::table *table = node.as_table()) {
    for (const auto &[key, value] : *table) {
      if (key != "file" && key != "tensor")
        return error("unknown key {}; a tensor is named by file and tensor", std::string(key.str()));
      if (Status status = readString(value, key == "file" ? out.file : out.tensor); !status.ok())
        return status.withContext(std::string(key.str()));
    }
    return out.file.empty() ? error("it names no file") : Status::success();
  }
  bool integral = true;
  if (Status status = readNested(node, 0, out, integral); !status.ok())
    return status;
  if (!integral)
    out.integers.clear();
  return Status::success();
}

} // namespace tcc::recipe

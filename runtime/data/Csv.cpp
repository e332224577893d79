//===- Csv.cpp - tables of numbers as text -------------------------------===//
//
// The first line names the columns. A column whose every field is an integer is i64, else f64; being text, it may
// become any element type that holds its values. Columns `x.0`, `x.1`, … together are one column `x` of vectors.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/state/MappedFile.h"

#include <charconv>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Fields of one record (RFC 4180 quoting within one line).
std::vector<std::string> splitLine(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"')
      fields.back() += line[i++];
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  for (std::string &field : fields) {
    size_t first = field.find_first_not_of(" \t"), last = field.find_last_not_of(" \t");
    field = first == std::string::npos ? "" : field.substr(first, last - first + 1);
  }
  return fields;
}

template <typename T> bool parseWhole(const std::string &text, T &value) {
  const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
  auto [stop, code] = std::from_chars(begin, end, value);
  return code == std::errc() && stop == end && begin != end;
}

struct Values {
  std::vector<int64_t> integers;
  std::vector<double> reals;
  bool isReal = false;
};

/// "x.12" → ("x", 12); nothing for other names.
std::optional<std::pair<std::string, size_t>> splitName(const std::string &name) {
  size_t dot = name.rfind('.'), number = 0;
  if (dot == std::string::npos || dot == 0 || !parseWhole(name.substr(dot + 1), number))
    return std::nullopt;
  return std::make_pair(name.substr(0, dot), number);
}

template <typename T> std::vector<T> interleave(const std::vector<const std::vector<T> *> &parts) {
  std::vector<T> values;
  values.reserve(parts.size() * parts.front()->size());
  for (size_t row = 0; row < parts.front()->size(); ++row)
    for (const std::vector<T> *part : parts)
      values.push_back((*part)[row]);
  return values;
}
} // namespace

plan::Expected<Dataset> formats::openCsv(const std::string &path) {
  auto content = readFile(path);
  if (!content)
    return content.status();
  std::vector<std::string> names;
  std::vector<Values> table;
  std::string_view rest = *content;
  if (rest.starts_with("\xef\xbb\xbf"))
    rest.remove_prefix(3);
  uint64_t lineNumber = 0;
  while (!rest.empty()) {
    size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++lineNumber;
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos)
      continue;
    std::vector<std::string> fields = splitLine(line);
    if (names.empty()) {
      names = fields;
      table.resize(names.size());
      continue;
    }
    if (fields.size() != names.size())
      return plan::error("{}:{}: {} fields, the first line names {}", path, lineNumber, fields.size(), names.size());
    for (size_t i = 0; i < fields.size(); ++i) {
      int64_t integer = 0;
      double real = 0;
      if (!parseWhole(fields[i], real))
        return plan::error("{}:{}: column '{}': '{}' is no number; encode categories as integers", path, lineNumber,
                           names[i], fields[i]);
      if (!parseWhole(fields[i], integer))
        table[i].isReal = true;
      table[i].integers.push_back(integer);
      table[i].reals.push_back(real);
    }
  }
  if (table.empty() || table.front().reals.empty())
    return plan::error("{}: it holds no rows; a CSV file needs a line of names and a line for each sample", path);
  Dataset dataset{.path = path, .format = "CSV"};
  auto rows = static_cast<int64_t>(table.front().reals.size());
  std::map<std::string, std::map<size_t, size_t>> vectors;
  for (size_t i = 0; i < names.size(); ++i) {
    if (auto parts = splitName(names[i]))
      vectors[parts->first][parts->second] = i;
    if (table[i].isReal)
      dataset.columns.push_back(ownedColumn<double>(names[i], plan::F64, {rows}, table[i].reals, true));
    else
      dataset.columns.push_back(ownedColumn<int64_t>(names[i], plan::I64, {rows}, table[i].integers, true));
  }
  for (const auto &[name, parts] : vectors) {
    if (parts.rbegin()->first != parts.size() - 1)
      return plan::error("{}: columns '{}.0' … '{}.{}' have gaps", path, name, name, parts.rbegin()->first);
    bool real = false;
    std::vector<const std::vector<double> *> reals;
    std::vector<const std::vector<int64_t> *> integers;
    for (const auto &[number, column] : parts) {
      real |= table[column].isReal;
      reals.push_back(&table[column].reals);
      integers.push_back(&table[column].integers);
    }
    auto width = static_cast<int64_t>(parts.size());
    dataset.columns.push_back(real ? ownedColumn<double>(name, plan::F64, {rows, width}, interleave(reals), true)
                                   : ownedColumn<int64_t>(name, plan::I64, {rows, width}, interleave(integers), true));
  }
  return dataset;
}

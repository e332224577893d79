//===- Csv.cpp - tables of numbers as text -------------------------------===//
//
// The first line names the columns. A column whose every field is an integer is i64, else f64; being text, it may
// become any element type that holds its values. Columns `x.0`, `x.1`, … together are one column `x` of vectors.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/data/Limits.h"

#include <algorithm>
#include <charconv>
#include <set>

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

/// The values of a column: integers, until a field is none.
struct Values {
  std::vector<int64_t> integers;
  std::vector<double> reals;
  bool isReal = false;

  void add(std::optional<int64_t> integer, double real) {
    if (!integer && !isReal) {
      reals.assign(integers.begin(), integers.end());
      integers = {};
      isReal = true;
    }
    if (isReal)
      reals.push_back(real);
    else
      integers.push_back(*integer);
  }
  std::vector<double> asReals() const { return isReal ? reals : std::vector<double>(integers.begin(), integers.end()); }
};

/// "x.12" → ("x", 12); nothing for other names.
std::optional<std::pair<std::string, size_t>> splitName(const std::string &name) {
  size_t dot = name.rfind('.'), number = 0;
  if (dot == std::string::npos || dot == 0 || !parseWhole(name.substr(dot + 1), number))
    return std::nullopt;
  return std::make_pair(name.substr(0, dot), number);
}

template <typename T> std::vector<T> interleave(const std::vector<std::vector<T>> &parts) {
  std::vector<T> values;
  values.reserve(parts.size() * parts.front().size());
  for (size_t row = 0; row < parts.front().size(); ++row)
    for (const std::vector<T> &part : parts)
      values.push_back(part[row]);
  return values;
}

/// The start of a field, for messages: it may be as long as the file.
std::string shown(const std::string &field) { return field.size() > 40 ? field.substr(0, 40) + "…" : field; }

struct Table {
  std::vector<std::string> names;
  std::vector<Values> columns;
  uint64_t rows = 0;
};

Status addNames(const std::string &place, std::vector<std::string> fields, Table &table) {
  std::set<std::string> seen;
  for (const std::string &name : fields)
    if (!seen.insert(name).second)
      return error("{}: two columns are called '{}'", place, shown(name));
  table.names = std::move(fields);
  table.columns.resize(table.names.size());
  return Status();
}

Status addRow(const std::string &place, const std::vector<std::string> &fields, Table &table) {
  if (fields.size() != table.names.size())
    return error("{}: {} fields, the first line names {}", place, fields.size(), table.names.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    int64_t integer = 0;
    double real = 0;
    if (!parseWhole(fields[i], real))
      return error("{}: column '{}': '{}' is no number; encode categories as integers", place,
                         shown(table.names[i]), shown(fields[i]));
    table.columns[i].add(parseWhole(fields[i], integer) ? std::optional(integer) : std::nullopt, real);
  }
  ++table.rows;
  return Status();
}

Expected<Table> readTable(const std::string &path, std::string_view rest, limits::MemoryAllowance &memory) {
  Table table;
  if (rest.starts_with("\xef\xbb\xbf"))
    rest.remove_prefix(3);
  for (uint64_t lineNumber = 1; !rest.empty(); ++lineNumber) {
    size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos)
      continue;
    std::string place = fmt::format("{}:{}", path, lineNumber);
    auto columns = static_cast<size_t>(std::count(line.begin(), line.end(), ',')) + 1;
    if (columns > limits::kMostCsvColumns)
      return error("{}: about {} columns, at most {} are read", place, columns, limits::kMostCsvColumns);
    bool first = table.names.empty();
    if (first) {
      // Each value is kept as 8 bytes, and again where columns form vectors; vectors double as they grow.
      auto values =
          static_cast<uint64_t>(std::count_if(rest.begin(), rest.end(), [](char c) { return c == ',' || c == '\n'; }));
      if (Status status = memory.take(path, 24 * values); !status.ok())
        return status;
    }
    std::vector<std::string> fields = splitLine(line);
    if (Status status = first ? addNames(place, std::move(fields), table) : addRow(place, fields, table);
        !status.ok())
      return status;
  }
  if (table.rows == 0)
    return error(
        "{}: the data set is empty: it holds no rows; a CSV file needs a line of names and a line for each "
        "sample",
        path);
  return table;
}
} // namespace

Expected<Dataset> formats::openCsv(File file, const DatasetOptions &options) {
  const std::string &path = file->path();
  limits::MemoryAllowance memory(options.memoryBytes);
  auto table = readTable(path, file->text(), memory);
  if (!table)
    return table.status();
  Dataset dataset{.path = path, .format = "CSV"};
  auto rows = static_cast<int64_t>(table->rows);
  std::map<std::string, std::map<size_t, size_t>> vectors;
  for (size_t i = 0; i < table->names.size(); ++i)
    if (auto parts = splitName(table->names[i]))
      if (!vectors[parts->first].emplace(parts->second, i).second)
        return error("{}: two columns are element {} of '{}'", path, parts->second, shown(parts->first));
  for (const auto &[name, parts] : vectors) {
    if (std::find(table->names.begin(), table->names.end(), name) != table->names.end())
      continue; // 'x' and 'x.1': not elements of one vector
    if (parts.rbegin()->first != parts.size() - 1)
      return error("{}: columns '{}.0' … '{}.{}' have gaps", path, name, name, parts.rbegin()->first);
    bool real = false;
    for (const auto &[number, column] : parts)
      real |= table->columns[column].isReal;
    std::vector<std::vector<double>> reals;
    std::vector<std::vector<int64_t>> integers;
    for (const auto &[number, column] : parts)
      if (real)
        reals.push_back(table->columns[column].asReals());
      else
        integers.push_back(table->columns[column].integers);
    auto width = static_cast<int64_t>(parts.size());
    dataset.columns.push_back(real ? ownedColumn<double>(name, plan::F64, {rows, width}, interleave(reals), true)
                                   : ownedColumn<int64_t>(name, plan::I64, {rows, width}, interleave(integers), true));
  }
  for (size_t i = 0; i < table->names.size(); ++i) {
    Values &column = table->columns[i];
    dataset.columns.push_back(
        column.isReal ? ownedColumn<double>(table->names[i], plan::F64, {rows}, std::move(column.reals), true)
                      : ownedColumn<int64_t>(table->names[i], plan::I64, {rows}, std::move(column.integers), true));
  }
  return dataset;
}

//===- Csv.cpp - tables of text --------------------------------------------===//
//
// The first record names the columns and determines the separator: comma, semicolon, tab or |. Quoting follows RFC
// 4180: a quoted field may contain separators, line ends and doubled quotes. A column is i64 if all its values are
// integers, and f64 if all are numbers; as it is text, it converts to any element type that can represent its values.
// Other columns are texts.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/data/Limits.h"
#include "runtime/data/Table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <deque>
#include <set>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr std::string_view kBlanks = " \t";

/// Memory of fields that quoting changed; other fields are parts of the file.
struct Fields {
  formats::File file;
  std::deque<std::string> unquoted;
  std::deque<std::string_view> cells; ///< row by row
};

template <typename T> bool parseWhole(std::string_view text, T &value) {
  const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
  auto [stop, code] = std::from_chars(begin, end, value);
  return code == std::errc() && stop == end && begin != end;
}

bool isLineEnd(char c) { return c == '\n' || c == '\r'; }

/// The character that separates the most fields of the first record.
char separatorOf(std::string_view text) {
  static constexpr std::string_view kSeparators = ",;\t|";
  std::array<uint64_t, kSeparators.size()> counts{};
  bool quoted = false;
  for (char c : text) {
    if (c == '"')
      quoted = !quoted;
    else if (quoted)
      continue;
    else if (isLineEnd(c))
      break;
    else if (size_t which = kSeparators.find(c); which != kSeparators.npos)
      ++counts[which];
  }
  return kSeparators[static_cast<size_t>(std::max_element(counts.begin(), counts.end()) - counts.begin())];
}

class Reader {
public:
  Reader(std::string path, std::string_view text, char separator, Fields &fields)
      : path(std::move(path)), text(text), separator(separator), fields(fields) {}

  /// Reads the next record, skipping empty lines, and notes the line in which it begins; false at the end.
  Expected<bool> next(std::vector<std::string_view> &record) {
    record.clear();
    do {
      if (at >= text.size())
        return false;
      begin = line;
    } while (skipEmptyLine());
    for (;;) {
      auto field = nextField();
      if (!field)
        return field.status();
      if (record.size() == limits::kMostCsvColumns)
        return error("{}:{}: more than {} columns, at most {} are read", path, begin, limits::kMostCsvColumns,
                     limits::kMostCsvColumns);
      record.push_back(*field);
      if (at >= text.size())
        return true;
      if (text[at] == separator) {
        if (++at == text.size()) { // an empty last field
          record.push_back({});
          return true;
        }
        continue;
      }
      endLine();
      return true;
    }
  }
  uint64_t beginsIn() const { return begin; }

private:
  bool isBlank(char c) const { return c != separator && kBlanks.find(c) != kBlanks.npos; }
  std::string_view trimmed(std::string_view field) const {
    while (!field.empty() && isBlank(field.front()))
      field.remove_prefix(1);
    while (!field.empty() && isBlank(field.back()))
      field.remove_suffix(1);
    return field;
  }
  void endLine() {
    at += text.substr(at, 2) == "\r\n" ? 2 : 1;
    ++line;
  }
  bool skipEmptyLine() {
    size_t end = at;
    while (end < text.size() && isBlank(text[end]))
      ++end;
    if (end < text.size() && !isLineEnd(text[end]))
      return false;
    at = end;
    if (at < text.size())
      endLine();
    return true;
  }
  /// Reads a field up to the separator or the end of the line.
  Expected<std::string_view> nextField() {
    size_t start = at;
    while (at < text.size() && isBlank(text[at]))
      ++at;
    if (at < text.size() && text[at] == '"')
      return nextQuoted();
    while (at < text.size() && text[at] != separator && !isLineEnd(text[at]))
      ++at;
    return trimmed(text.substr(start, at - start));
  }
  Expected<std::string_view> nextQuoted() {
    const uint64_t from = line;
    const size_t start = ++at;
    std::string *changed = nullptr; ///< a copy of the field, once it contains a doubled quote
    size_t copied = start;
    for (;; ++at) {
      if (at >= text.size())
        return error("{}:{}: the quoted field that begins here has no end: write \" inside it twice", path, from);
      if (text[at] == '\n')
        ++line;
      if (text[at] != '"')
        continue;
      if (at + 1 >= text.size() || text[at + 1] != '"')
        break;
      if (!changed)
        changed = &fields.unquoted.emplace_back();
      changed->append(text, copied, at + 1 - copied);
      copied = ++at + 1;
    }
    const std::string_view rest = text.substr(copied, at - copied);
    ++at;
    const size_t end = at;
    while (at < text.size() && text[at] != separator && !isLineEnd(text[at]))
      ++at;
    if (!trimmed(text.substr(end, at - end)).empty())
      return error("{}:{}: '{}' follows a quoted field; write \" inside it twice", path, line,
                   shown(trimmed(text.substr(end, at - end))));
    if (!changed)
      return rest;
    changed->append(rest);
    return std::string_view(*changed);
  }

  std::string path;
  std::string_view text;
  char separator;
  Fields &fields;
  size_t at = 0;
  uint64_t line = 1, begin = 1;
};

Status checkNames(const std::string &place, const std::vector<std::string_view> &names) {
  std::set<std::string_view> seen;
  for (std::string_view name : names)
    if (!seen.insert(name).second)
      return error("{}: two columns are called '{}'", place, shown(name));
  // 0, 1, 2, … are names that pandas gives.
  bool numbers = true, counted = true;
  for (size_t i = 0; i < names.size(); ++i) {
    double value = 0;
    numbers = numbers && parseWhole(names[i], value);
    counted = counted && names[i] == std::to_string(i);
  }
  if (numbers && !counted)
    return error(
        "{}: the first line holds numbers ('{}'), not the names of the columns; write a line of names above it", place,
        shown(names.front()));
  return Status();
}

/// Integers, else numbers, else texts. `asTexts`: texts in any case.
TableField makeField(std::string_view name, const Fields &fields, size_t column, size_t columns, uint64_t rows,
                     bool asTexts) {
  TableField field{.name = std::string(name), .fromText = true};
  auto cell = [&](uint64_t row) { return fields.cells[row * columns + column]; };
  bool whole = true, numbers = !asTexts;
  auto at = [&](uint64_t row) { return field.numbers.data() + row * 8; };
  field.numbers.resize(numbers ? rows * 8 : 0);
  for (uint64_t row = 0; row < rows; ++row) {
    const std::string_view text = cell(row);
    if (isMissingWord(text)) {
      field.gaps.push_back(row);
      continue;
    }
    if (!numbers)
      continue;
    int64_t integer = 0;
    double real = 0;
    if (whole && parseWhole(text, integer)) {
      std::memcpy(at(row), &integer, 8);
      continue;
    }
    if (!parseWhole(text, real)) {
      numbers = false;
      field.strange = row;
      continue;
    }
    for (uint64_t before = 0; whole && before < row; ++before) {
      std::memcpy(&integer, at(before), 8);
      const auto same = static_cast<double>(integer);
      std::memcpy(at(before), &same, 8);
    }
    whole = false;
    std::memcpy(at(row), &real, 8);
  }
  if (numbers) {
    // Without any value the type is unknown: f64. The zeros of both types have the same bits.
    field.dtype = whole && field.gaps.size() < rows ? plan::I64 : plan::F64;
    return field;
  }
  field.fromText = false;
  field.numbers = {};
  field.texts.resize(rows);
  for (uint64_t row = 0; row < rows; ++row)
    field.texts[row] = cell(row);
  return field;
}

std::string formatName(char separator) {
  switch (separator) {
  case ';':
    return "CSV separated by semicolons";
  case '\t':
    return "CSV separated by tabs";
  case '|':
    return "CSV separated by |";
  default:
    return "CSV";
  }
}
} // namespace

Expected<Dataset> formats::openCsv(File file, const DatasetOptions &options) {
  const std::string &path = file->path();
  auto unmarked = tableText(*file);
  if (!unmarked)
    return unmarked.status();
  std::string_view text = *unmarked;
  const char separator = separatorOf(text);
  auto fields = std::make_shared<Fields>();
  fields->file = file;
  Reader reader(path, text, separator, *fields);
  std::vector<std::string_view> names, record;
  auto more = reader.next(names);
  if (!more)
    return more.status();
  if (Status status = checkNames(fmt::format("{}:{}", path, reader.beginsIn()), names); !status.ok())
    return status;
  // A field takes 16 bytes while the file is read, a value 8, and another 8 if columns form vectors.
  limits::MemoryAllowance memory(options.memoryBytes);
  const auto fieldsAtMost = static_cast<uint64_t>(
      std::count_if(text.begin(), text.end(), [&](char c) { return c == separator || isLineEnd(c); }));
  if (Status status = memory.take(path, 24 * fieldsAtMost); !status.ok())
    return status;
  auto places = std::make_shared<RowPlaces>(path, /*inLines=*/true);
  uint64_t rows = 0;
  for (;; ++rows) {
    more = reader.next(record);
    if (!more)
      return more.status();
    if (!*more)
      break;
    if (record.size() != names.size())
      return error("{}:{}: {} fields, the first line names {}", path, reader.beginsIn(), record.size(), names.size());
    places->add(rows, reader.beginsIn());
    fields->cells.insert(fields->cells.end(), record.begin(), record.end());
  }
  if (rows == 0)
    return error("{}: the data set is empty: it holds no rows; a CSV file needs a line of names and a line for each "
                 "sample",
                 path);
  std::vector<TableField> columns;
  for (size_t i = 0; i < names.size(); ++i)
    columns.push_back(makeField(names[i], *fields, i, names.size(), rows,
                                options.settings.contains("categories." + std::string(names[i]))));
  fields->cells.clear();
  return makeTable(path, formatName(separator), std::move(columns), rows, std::move(places), fields);
}

//===- JsonLines.cpp - a JSON object a line, or a list of objects ----------===//
//
// The objects' keys are columns: numbers, lists of numbers of one shape, booleans and texts. `null` and absent keys are
// missing values. Numbers are treated as in CSV: they convert to any element type that can represent them. Lists of
// different lengths make a ragged column (Ragged.h). Columns of other values (objects, lists that differ within) are
// refused only when an input reads them.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/data/Limits.h"
#include "runtime/data/Table.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr size_t kMostDepth = 64; ///< of lists and objects

/// The values of one key, for the rows that have one.
struct Field {
  std::string name;
  std::vector<uint64_t> rows = {};
  enum class Kind { None, Integers, Reals, Texts } kind = Kind::None;
  std::vector<int64_t> integers = {};
  std::vector<double> reals = {};
  std::vector<std::string_view> texts = {};
  std::vector<uint64_t> gaps = {}; ///< numbers of `null` inside lists
  std::vector<int64_t> dims = {};  ///< -1: not known yet; of lists that differ in length, the longest one's
  std::vector<uint64_t> lengths = {}; ///< of each row's list
  bool isRagged = false;              ///< they differ
  int leafDepth = -1;
  std::optional<uint64_t> lastRow = {}; ///< with the key
  std::string problem = {};             ///< of the column, with its place

  uint64_t count() const { return kind == Kind::Texts ? texts.size() : std::max(integers.size(), reals.size()); }
};

class Handler {
public:
  Handler(std::string path, bool list, std::shared_ptr<RowPlaces> places)
      : path(std::move(path)), objectDepth(list ? 2 : 1), places(std::move(places)) {}

  // Called by nlohmann's parser.
  bool null() {
    return leaf([&](Field &field) { addNull(field); });
  }
  bool boolean(bool value) { return number_integer(value); }
  bool number_integer(int64_t value) {
    return leaf([&](Field &field) {
      if (field.kind == Field::Kind::Reals)
        field.reals.push_back(static_cast<double>(value));
      else if (become(field, Field::Kind::Integers))
        field.integers.push_back(value);
    });
  }
  bool number_unsigned(uint64_t value) {
    return value > uint64_t(std::numeric_limits<int64_t>::max()) ? real(static_cast<double>(value))
                                                                 : number_integer(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string &) { return real(value); }
  bool string(std::string &value) {
    return leaf([&](Field &field) {
      if (arrays != 0)
        setProblem(field, "a list of texts; columns are numbers, lists of numbers, or single texts");
      else if (become(field, Field::Kind::Texts))
        field.texts.push_back(texts->emplace_back(std::move(value)));
    });
  }
  bool binary(nlohmann::json::binary_t &) { return true; }
  bool start_object(size_t) {
    if (++depth > kMostDepth)
      return fail(fmt::format("lists and objects are nested more than {} deep", kMostDepth));
    if (depth == objectDepth && arrays == 0) {
      ++rows;
      return true;
    }
    if (depth < objectDepth)
      return fail("expected an object");
    if (inside == 0 && current)
      setProblem(*current, "an object; columns are numbers, lists of numbers, or texts");
    ++inside;
    return true;
  }
  bool key(std::string &name) {
    if (inside != 0)
      return true;
    auto [found, isNew] = indices.try_emplace(name, fields.size());
    if (isNew && fields.size() == limits::kMostCsvColumns)
      return fail(fmt::format("more than {} keys, at most so many are read", limits::kMostCsvColumns));
    if (isNew)
      fields.push_back({.name = name});
    current = &fields[found->second];
    if (current->lastRow == rows - 1)
      return fail(fmt::format("the key '{}' occurs twice", name.substr(0, 40)));
    current->lastRow = rows - 1;
    return true;
  }
  bool end_object() {
    if (inside != 0)
      --inside;
    --depth;
    if (inside == 0 && depth < objectDepth)
      current = nullptr;
    return true;
  }
  bool start_array(size_t) {
    if (++depth > kMostDepth)
      return fail(fmt::format("lists and objects are nested more than {} deep", kMostDepth));
    if (inside != 0)
      return true;
    if (!current)
      return depth < objectDepth ? true : fail("expected an object");
    if (arrays == limits::kMostTableDims)
      setProblem(*current, fmt::format("lists are nested more than {} deep", limits::kMostTableDims));
    if (arrays != 0)
      ++counts[arrays - 1];
    counts.resize(std::max(counts.size(), arrays + 1));
    counts[arrays++] = 0;
    return true;
  }
  bool end_array() {
    --depth;
    if (inside != 0 || !current || arrays == 0)
      return true;
    Field &field = *current;
    const size_t level = --arrays;
    if (!field.problem.empty())
      return true;
    if (field.dims.size() <= level)
      field.dims.resize(level + 1, -1);
    const bool differs = field.dims[level] >= 0 && field.dims[level] != counts[level];
    if (differs && level != 0) {
      setProblem(field, fmt::format("a list of {} elements, those before have {}; give all inner lists one length",
                                    counts[level], field.dims[level]));
      return true;
    }
    field.dims[level] = std::max(field.dims[level], counts[level]);
    if (level != 0)
      return true;
    field.isRagged |= differs;
    field.lengths.push_back(static_cast<uint64_t>(counts[0]));
    endValue(field);
    return true;
  }
  bool parse_error(size_t, const std::string &, const nlohmann::json::exception &problem) {
    // "[json.exception.parse_error.101] parse error at …: syntax error while parsing …"
    const std::string_view text = problem.what();
    const size_t begin = text.find(": ");
    return fail(fmt::format("no JSON: {}", begin == text.npos ? text : text.substr(begin + 2)));
  }

  /// The table of the rows that were read.
  Expected<Dataset> finish(std::string format, limits::MemoryAllowance &memory);
  uint64_t rowCount() const { return rows; }

  std::string failure; ///< why parsing ended, without the place

private:
  bool fail(std::string reason) {
    failure = std::move(reason);
    return false;
  }
  bool real(double value) {
    return leaf([&](Field &field) {
      if (become(field, Field::Kind::Reals))
        field.reals.push_back(value);
    });
  }
  /// Adds one number, text or null of the current key.
  template <typename Add> bool leaf(Add add) {
    if (inside != 0)
      return true;
    if (!current)
      return fail("expected an object");
    Field &field = *current;
    if (arrays != 0)
      ++counts[arrays - 1];
    if (!field.problem.empty())
      return true;
    const int before = field.leafDepth;
    add(field);
    if (!field.problem.empty())
      return true;
    if (arrays == 0 && nullValue) {
      nullValue = false;
      return true; // the row has no value
    }
    if (before >= 0 && before != static_cast<int>(arrays))
      setProblem(field, "lists are nested otherwise than before");
    field.leafDepth = static_cast<int>(arrays);
    if (arrays == 0)
      endValue(field);
    return true;
  }
  void addNull(Field &field) {
    nullValue = arrays == 0;
    if (nullValue)
      return;
    if (field.kind == Field::Kind::None)
      field.kind = Field::Kind::Integers;
    if (field.kind == Field::Kind::Texts)
      return setProblem(field, "a list where texts are");
    field.gaps.push_back(field.count());
    if (field.kind == Field::Kind::Reals)
      field.reals.push_back(0);
    else
      field.integers.push_back(0);
  }
  /// Sets the kind of a column. False: the column has values of another kind.
  bool become(Field &field, Field::Kind kind) {
    if (field.kind == Field::Kind::Integers && kind == Field::Kind::Reals) {
      field.reals.assign(field.integers.begin(), field.integers.end());
      field.integers = {};
      field.kind = kind;
    }
    if (field.kind == Field::Kind::None)
      field.kind = kind;
    if (field.kind == kind)
      return true;
    setProblem(field, kind == Field::Kind::Texts ? "a text, the values before are numbers"
                                                 : "a number, the values before are texts");
    return false;
  }
  void endValue(Field &field) {
    if (field.leafDepth >= 0 && static_cast<size_t>(field.leafDepth) != field.dims.size())
      return setProblem(field, "lists are nested otherwise than before");
    field.rows.push_back(rows - 1);
  }
  void setProblem(Field &field, const std::string &what) {
    if (!field.problem.empty())
      return;
    std::string name = std::move(field.name);
    std::string problem = fmt::format("{}: column '{}': {}", places->inFile(rows - 1), name, what);
    field = {.name = std::move(name), .lastRow = rows - 1, .problem = std::move(problem)};
  }
  TableField tableField(Field &field);

  std::string path;
  size_t objectDepth; ///< of the objects that are rows
  std::shared_ptr<RowPlaces> places;
  std::vector<Field> fields;
  std::unordered_map<std::string, size_t> indices;
  std::shared_ptr<std::deque<std::string>> texts = std::make_shared<std::deque<std::string>>();
  Field *current = nullptr;
  size_t depth = 0, inside = 0, arrays = 0; ///< inside: objects within a value
  std::vector<int64_t> counts;              ///< elements so far of each open list
  bool nullValue = false;
  uint64_t rows = 0;
};

TableField Handler::tableField(Field &field) {
  TableField result{.name = std::move(field.name), .dims = field.dims, .fromText = true};
  if (!field.problem.empty()) {
    result.problem = std::move(field.problem);
    return result;
  }
  if (field.kind == Field::Kind::Texts) {
    result.fromText = false;
    result.strange = field.rows.empty() ? 0 : field.rows.front();
    result.texts.resize(rows);
    size_t next = 0;
    for (uint64_t row = 0; row < rows; ++row)
      if (next < field.rows.size() && field.rows[next] == row)
        result.texts[row] = field.texts[next++];
      else
        result.gaps.push_back(row);
    return result;
  }
  const bool whole = field.kind == Field::Kind::Integers;
  const auto values = whole ? std::as_bytes(std::span(field.integers)) : std::as_bytes(std::span(field.reals));
  result.dtype = whole ? plan::I64 : plan::F64;
  result.numbers.assign(values.begin(), values.end());
  result.gaps = std::move(field.gaps);
  if (field.isRagged)
    result.lengths = std::move(field.lengths);
  else
    spreadRows(result, field.rows, rows);
  return result;
}

Expected<Dataset> Handler::finish(std::string format, limits::MemoryAllowance &memory) {
  if (rows == 0)
    return error("{}: the data set is empty: it holds no object; a sample is an object, such as {{\"x\": [1.5, 2], "
                 "\"label\": 0}}",
                 path);
  if (fields.empty())
    return error("{}: the objects have no keys", path);
  // Keys that not all rows have get gaps for the others.
  for (const Field &field : fields) {
    const uint64_t width = field.rows.empty() ? 1 : std::max<uint64_t>(field.count() / field.rows.size(), 1);
    const unsigned __int128 bytes = static_cast<unsigned __int128>(rows) * width * 24;
    if (Status status = memory.take(path, static_cast<uint64_t>(std::min<unsigned __int128>(bytes, ~uint64_t(0))));
        !status.ok())
      return status;
  }
  std::vector<TableField> columns;
  for (Field &field : fields)
    columns.push_back(tableField(field));
  return makeTable(path, std::move(format), std::move(columns), rows, places, texts);
}

Status failed(const std::string &path, const Handler &handler, std::optional<uint64_t> line) {
  const std::string place =
      line ? fmt::format("{}:{}", path, *line) : fmt::format("{}, object {}", path, handler.rowCount());
  return error("{}: {}", place, handler.failure.substr(0, 300));
}
} // namespace

Expected<Dataset> formats::openJsonLines(File file, const DatasetOptions &options) {
  const std::string &path = file->path();
  auto unmarked = tableText(*file);
  if (!unmarked)
    return unmarked.status();
  std::string_view text = *unmarked;
  limits::MemoryAllowance memory(options.memoryBytes);
  const auto values = static_cast<uint64_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c == ',' || c == '\n' || c == '['; }));
  if (Status status = memory.take(path, 40 * values + text.size()); !status.ok())
    return status;
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool list = first != text.npos && text[first] == '[';
  auto places = std::make_shared<RowPlaces>(path, !list);
  Handler handler(path, list, places);
  if (list) {
    if (!nlohmann::json::sax_parse(text, &handler))
      return failed(path, handler, std::nullopt);
    return handler.finish("JSON", memory);
  }
  for (uint64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.find_first_not_of(" \t\r") == one.npos)
      continue;
    const uint64_t row = handler.rowCount();
    places->add(row, line);
    if (!nlohmann::json::sax_parse(one, &handler))
      return failed(path, handler, line);
    if (handler.rowCount() != row + 1)
      return error("{}:{}: expected one object a line", path, line);
  }
  return handler.finish("JSON lines", memory);
}

//===- Table.cpp - columns of tables: numbers or texts, with gaps ----------===//
#include "runtime/data/Table.h"
#include "runtime/data/Convert.h"
#include "runtime/data/Ragged.h"
#include "support/Advice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

void RowPlaces::add(uint64_t row, uint64_t line) {
  if (starts.empty() || starts.back().second + (row - starts.back().first) != line)
    starts.emplace_back(row, line);
}

uint64_t RowPlaces::lineOf(uint64_t row) const {
  auto after = std::upper_bound(starts.begin(), starts.end(), std::pair(row, ~uint64_t(0)));
  return after == starts.begin() ? row : std::prev(after)->second + (row - std::prev(after)->first);
}

std::string RowPlaces::of(uint64_t row) const {
  return inLines ? fmt::format("line {}", lineOf(row)) : fmt::format("row {}", row);
}

std::string RowPlaces::inFile(uint64_t row) const {
  return inLines ? fmt::format("{}:{}", path, lineOf(row)) : fmt::format("{}, row {}", path, row);
}

bool tcc::runtime::isMissingWord(std::string_view text) {
  static constexpr std::array<std::string_view, 14> kWords = {"",    "NA",   "N/A",  "n/a",  "#N/A", "<NA>", "NaN",
                                                              "nan", "-NaN", "-nan", "null", "NULL", "None", "?"};
  constexpr size_t kLongest = 4;
  return text.size() <= kLongest && (text.empty() || text[0] < '0' || text[0] > '9') &&
         std::find(kWords.begin(), kWords.end(), text) != kWords.end();
}

std::string tcc::runtime::shown(std::string_view field) {
  constexpr size_t kMost = 40;
  return field.size() > kMost ? std::string(field.substr(0, kMost)) + "…" : std::string(field);
}

std::string tcc::runtime::columnTypeName(const Column &column) {
  if (column.holdsTexts())
    return fmt::format("text[{}]", column.samples());
  return plan::typeName(column.type());
}

namespace {
plan::TensorType typeOf(plan::DType dtype, uint64_t rows, const std::vector<int64_t> &dims) {
  plan::TensorType type;
  type.set_dtype(dtype);
  type.add_dims(static_cast<int64_t>(rows));
  for (int64_t dim : dims)
    type.add_dims(dim);
  return type;
}

class GappyColumn final : public Column {
public:
  GappyColumn(std::string name, plan::TensorType type, std::vector<std::byte> numbers, bool fromText,
              std::vector<uint64_t> gaps, std::shared_ptr<const RowPlaces> places)
      : Column(std::move(name), std::move(type)), numbers(std::move(numbers)), fromText(fromText),
        gaps(std::move(gaps)), places(std::move(places)),
        width(this->numbers.size() / std::max<uint64_t>(samples() * plan::dtypeBytes(this->type().dtype()), 1)) {}

  bool isText() const override { return fromText; }
  std::string place(uint64_t index) const override { return places->of(index); }
  std::span<const std::byte> contiguous() const override {
    return gaps.empty() ? std::span<const std::byte>(numbers) : std::span<const std::byte>();
  }
  uint64_t hostBytes() const override { return numbers.size() + gaps.size() * sizeof(uint64_t); }
  bool mayLack() const override { return !gaps.empty(); }
  bool lacks(uint64_t index) const override {
    auto gap = std::lower_bound(gaps.begin(), gaps.end(), index * width);
    return gap != gaps.end() && *gap < (index + 1) * width;
  }
  Status readPresent(uint64_t index, std::byte *destination, std::vector<uint64_t> &missing) const override {
    missing.clear();
    for (auto gap = std::lower_bound(gaps.begin(), gaps.end(), index * width);
         gap != gaps.end() && *gap < (index + 1) * width; ++gap)
      missing.push_back(*gap - index * width);
    copy(index, destination);
    return Status();
  }
  Status read(uint64_t index, std::byte *destination) const override {
    if (lacks(index)) {
      const uint64_t element = *std::lower_bound(gaps.begin(), gaps.end(), index * width) - index * width;
      return error("{}: column '{}'{}: the value is missing; correct the file, or fill missing values: {} (a "
                   "number, or mean)",
                   places->inFile(index), name(), width == 1 ? "" : fmt::format(", element {}", element),
                   advice::set("data.missing." + name(), "0"));
    }
    copy(index, destination);
    return Status();
  }

private:
  void copy(uint64_t index, std::byte *destination) const {
    if (const uint64_t bytes = sampleBytes())
      std::memcpy(destination, numbers.data() + index * bytes, bytes);
  }

  std::vector<std::byte> numbers;
  bool fromText;
  std::vector<uint64_t> gaps;
  std::shared_ptr<const RowPlaces> places;
  uint64_t width; ///< elements of a sample
};

/// A column of texts, or one with neither texts nor numbers.
class TextColumn final : public Column {
public:
  TextColumn(TableField field, uint64_t rows, std::shared_ptr<const RowPlaces> places,
             std::shared_ptr<const void> owner)
      : Column(field.name, typeOf(plan::DTYPE_NONE, rows, {})), texts(std::move(field.texts)),
        gaps(std::move(field.gaps)), strange(field.strange.value_or(0)), problem(std::move(field.problem)),
        places(std::move(places)), owner(std::move(owner)) {}

  bool holdsTexts() const override { return problem.empty(); }
  std::string_view textOf(uint64_t index) const override { return texts[index]; }
  bool mayLack() const override { return !gaps.empty(); }
  bool lacks(uint64_t index) const override { return std::binary_search(gaps.begin(), gaps.end(), index); }
  std::string place(uint64_t index) const override { return places->of(index); }
  uint64_t hostBytes() const override { return texts.size() * sizeof(std::string_view); }
  Status usable() const override {
    if (!problem.empty())
      return error("{}", problem);
    const std::string_view text = texts[strange];
    if (text.find(',') != text.npos && text.find_first_not_of("0123456789.,+-eE ") == text.npos)
      return error(
          "{}: column '{}': '{}' is a number with a comma; write numbers with a decimal point and without "
          "separators of thousands, e.g. by pandas.read_csv(FILE, sep=';', decimal=',').to_csv(NEW, index=False)",
          places->inFile(strange), name(), shown(text));
    return error("{}: column '{}': '{}' is no number; correct it, or make integers of the column's texts: {}",
                 places->inFile(strange), name(), shown(text), advice::set("data.categories." + name(), "sorted"));
  }
  Status read(uint64_t, std::byte *) const override { return usable(); }

private:
  std::vector<std::string_view> texts;
  std::vector<uint64_t> gaps;
  uint64_t strange;
  std::string problem;
  std::shared_ptr<const RowPlaces> places;
  std::shared_ptr<const void> owner;
};

class ConvertedColumn final : public Column {
public:
  ConvertedColumn(std::unique_ptr<Column> base, plan::TensorType type)
      : Column(base->name(), std::move(type)), base(std::move(base)) {}

  bool isText() const override { return base->isText(); }
  Status usable() const override { return base->usable(); }
  bool mayLack() const override { return base->mayLack(); }
  bool lacks(uint64_t index) const override { return base->lacks(index); }
  std::string place(uint64_t index) const override { return base->place(index); }
  uint64_t hostBytes() const override { return base->hostBytes(); }
  bool isComputed() const override { return base->isComputed(); }
  Status read(uint64_t index, std::byte *destination) const override {
    SampleMemory sample(base->sampleBytes());
    Status status = base->read(index, sample.data());
    return status.ok() ? convert(index, sample.data(), destination) : status;
  }
  Status draw(uint64_t index, const Draw &draw, std::byte *destination) const override {
    SampleMemory sample(base->sampleBytes());
    Status status = base->draw(index, draw, sample.data());
    return status.ok() ? convert(index, sample.data(), destination) : status;
  }
  Status readPresent(uint64_t index, std::byte *destination, std::vector<uint64_t> &missing) const override {
    SampleMemory sample(base->sampleBytes());
    Status status = base->readPresent(index, sample.data(), missing);
    return status.ok() ? convert(index, sample.data(), destination) : status;
  }

private:
  Status convert(uint64_t index, const std::byte *sample, std::byte *destination) const {
    const plan::DType from = base->type().dtype();
    if (auto bad = convertElements(sample, from, destination, type().dtype(),
                                   sampleBytes() / plan::dtypeBytes(type().dtype())))
      return error("column '{}', sample {}: value {} does not fit {}", name(), index, elementText(sample, from, *bad),
                   plan::dtypeName(type().dtype()));
    return Status();
  }

  std::unique_ptr<Column> base;
};

/// "x.12" → ("x", 12); nothing for other names.
std::optional<std::pair<std::string, size_t>> splitName(const std::string &name) {
  size_t dot = name.rfind('.'), number = 0;
  if (dot == std::string::npos || dot == 0 || dot + 1 == name.size())
    return std::nullopt;
  const char *begin = name.data() + dot + 1, *end = name.data() + name.size();
  auto [stop, code] = std::from_chars(begin, end, number);
  return code == std::errc() && stop == end ? std::optional(std::pair(name.substr(0, dot), number)) : std::nullopt;
}

/// Joins the fields `x.0`, `x.1`, …, all scalars, to one field `x`. Numbers of several types get the widest type.
TableField joinFields(const std::string &name, const std::vector<const TableField *> &parts, uint64_t rows) {
  TableField whole{.name = name, .dims = {static_cast<int64_t>(parts.size())}};
  whole.dtype = parts.front()->dtype;
  for (const TableField *part : parts) {
    if (part->dtype == plan::DTYPE_NONE || !part->dims.empty()) {
      whole.dtype = plan::DTYPE_NONE;
      whole.problem = part->problem.empty()
                          ? fmt::format("column '{}' is no vector: its element '{}' holds no number", name, part->name)
                          : part->problem;
      return whole;
    }
    whole.fromText |= part->fromText;
    if (part->dtype != whole.dtype)
      whole.dtype = plan::isFloatingPoint(part->dtype) || plan::isFloatingPoint(whole.dtype) ? plan::F64 : plan::I64;
  }
  const uint64_t bytes = plan::dtypeBytes(whole.dtype), width = parts.size();
  whole.numbers.resize(rows * width * bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t own = plan::dtypeBytes(parts[i]->dtype);
    for (uint64_t row = 0; row < rows; ++row)
      (void)convertElements(parts[i]->numbers.data() + row * own, parts[i]->dtype,
                            whole.numbers.data() + (row * width + i) * bytes, whole.dtype, 1);
    for (uint64_t gap : parts[i]->gaps)
      whole.gaps.push_back(gap * width + i);
  }
  std::sort(whole.gaps.begin(), whole.gaps.end());
  return whole;
}

std::unique_ptr<Column> makeColumn(TableField field, uint64_t rows, const std::shared_ptr<const RowPlaces> &places,
                                   const std::shared_ptr<const void> &owner) {
  if (!field.lengths.empty() && (field.lengths.size() != rows || !field.gaps.empty())) {
    field.problem = fmt::format("{}: column '{}': lists of different lengths, and a row or element without a value; "
                                "leave it out, or write an empty list",
                                places->inFile(0), shown(field.name));
    field.dtype = plan::DTYPE_NONE;
  }
  if (field.dtype == plan::DTYPE_NONE)
    return std::make_unique<TextColumn>(std::move(field), rows, places, owner);
  if (!field.lengths.empty()) {
    std::vector<uint64_t> offsets = {0};
    for (uint64_t length : field.lengths)
      offsets.push_back(offsets.back() + length);
    const std::vector<int64_t> row(field.dims.begin() + 1, field.dims.end());
    auto all = std::make_unique<GappyColumn>(field.name, typeOf(field.dtype, offsets.back(), row),
                                             std::move(field.numbers), field.fromText, std::vector<uint64_t>(), places);
    return raggedColumn(std::move(all), std::move(offsets));
  }
  return std::make_unique<GappyColumn>(field.name, typeOf(field.dtype, rows, field.dims), std::move(field.numbers),
                                       field.fromText, std::move(field.gaps), places);
}
} // namespace

std::unique_ptr<Column> tcc::runtime::convertedColumn(std::unique_ptr<Column> base, plan::DType dtype) {
  if (base->type().dtype() == dtype)
    return base;
  plan::TensorType type = base->type();
  type.set_dtype(dtype);
  return std::make_unique<ConvertedColumn>(std::move(base), std::move(type));
}

Status tcc::runtime::checkTableColumn(const Dataset &dataset, const Column &column, bool gaps) {
  if (Status status = column.usable(); !status.ok() || !gaps || !column.mayLack())
    return status;
  uint64_t count = 0, first = 0;
  for (uint64_t i = column.samples(); i-- > 0;)
    if (column.lacks(i)) {
      ++count;
      first = i;
    }
  if (count == 0)
    return Status();
  std::vector<std::byte> sample(column.sampleBytes());
  const Status status = column.read(first, sample.data());
  return error("{}{}; {} of {} samples lack a value: {} leaves them out",
               status.message().starts_with(dataset.path) ? "" : dataset.path + ": ", status.message(), count,
               column.samples(), advice::set("data.max_bad", std::to_string(count)));
}

void tcc::runtime::spreadRows(TableField &field, const std::vector<uint64_t> &present, uint64_t rows) {
  uint64_t width = 1;
  for (int64_t &dim : field.dims)
    width *= static_cast<uint64_t>(dim = std::max<int64_t>(dim, 0));
  if (present.size() == rows)
    return;
  const uint64_t bytes = width * plan::dtypeBytes(field.dtype);
  std::vector<std::byte> numbers(rows * bytes);
  std::vector<uint64_t> gaps;
  size_t next = 0, gap = 0;
  for (uint64_t row = 0; row < rows; ++row) {
    if (next < present.size() && present[next] == row) {
      if (bytes != 0)
        std::memcpy(numbers.data() + row * bytes, field.numbers.data() + next * bytes, bytes);
      for (; gap < field.gaps.size() && field.gaps[gap] < (next + 1) * width; ++gap)
        gaps.push_back(row * width + field.gaps[gap] - next * width);
      ++next;
      continue;
    }
    for (uint64_t element = 0; element < width; ++element)
      gaps.push_back(row * width + element);
  }
  field.numbers = std::move(numbers);
  field.gaps = std::move(gaps);
}

Expected<std::string_view> tcc::runtime::tableText(const MappedFile &file) {
  std::string_view text = file.text();
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    return error("{}: it is UTF-16; save it as UTF-8", file.path());
  if (text.starts_with("\xef\xbb\xbf"))
    text.remove_prefix(3);
  return text;
}

Expected<Dataset> tcc::runtime::makeTable(const std::string &path, std::string format, std::vector<TableField> fields,
                                          uint64_t rows, std::shared_ptr<const RowPlaces> places,
                                          std::shared_ptr<const void> owner) {
  Dataset dataset{.path = path, .format = std::move(format)};
  std::map<std::string, std::map<size_t, const TableField *>> vectors;
  auto named = [&](const std::string &name) {
    return std::any_of(fields.begin(), fields.end(), [&](const TableField &field) { return field.name == name; });
  };
  for (const TableField &field : fields)
    if (auto parts = splitName(field.name))
      if (!vectors[parts->first].emplace(parts->second, &field).second)
        return error("{}: two columns are element {} of '{}'", path, parts->second, shown(parts->first));
  for (const auto &[name, parts] : vectors) {
    if (named(name))
      continue; // 'x' and 'x.1' are not elements of one vector
    if (parts.rbegin()->first != parts.size() - 1)
      return error("{}: columns '{}.0' … '{}.{}' have gaps", path, name, name, parts.rbegin()->first);
    std::vector<const TableField *> ordered;
    for (const auto &[number, field] : parts)
      ordered.push_back(field);
    TableField whole = joinFields(name, ordered, rows);
    if (whole.dtype == plan::DTYPE_NONE)
      for (const TableField *part : ordered)
        if (part->strange)
          whole.problem = fmt::format("{}: column '{}': '{}' is no number; correct it", places->inFile(*part->strange),
                                      part->name, shown(part->texts[*part->strange]));
    dataset.columns.push_back(makeColumn(std::move(whole), rows, places, owner));
  }
  for (TableField &field : fields)
    dataset.columns.push_back(makeColumn(std::move(field), rows, places, owner));
  return dataset;
}

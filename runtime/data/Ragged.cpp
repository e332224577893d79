//===- Ragged.cpp - columns whose samples differ in length -----------------===//
#include "runtime/data/Ragged.h"
#include "runtime/data/Convert.h"
#include "support/Advice.h"

#include <algorithm>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr std::string_view kOffsets = ".offsets";

uint64_t rowBytesOf(const plan::TensorType &type, int firstAxis) {
  uint64_t bytes = plan::dtypeBytes(type.dtype());
  for (int axis = firstAxis; axis < type.dims_size(); ++axis)
    bytes *= static_cast<uint64_t>(type.dims(axis));
  return bytes;
}

/// Rows of all samples, one after the other.
class OffsetColumn final : public Column {
public:
  OffsetColumn(std::unique_ptr<Column> all, plan::TensorType type, std::vector<uint64_t> offsets)
      : Column(all->name(), std::move(type)), rows(std::move(all)), offsets(std::move(offsets)),
        rowBytes(rowBytesOf(rows->type(), 1)) {}

  bool isText() const override { return rows->isText(); }
  Status usable() const override { return rows->usable(); }
  bool isRagged() const override { return true; }
  uint64_t lengthOf(uint64_t index) const override { return offsets[index + 1] - offsets[index]; }
  Status readRows(uint64_t index, uint64_t count, std::byte *destination) const override {
    const uint64_t first = offsets[index];
    if (const std::span<const std::byte> all = rows->contiguous(); !all.empty()) {
      if (count != 0)
        std::memcpy(destination, all.data() + first * rowBytes, count * rowBytes);
      return Status();
    }
    for (uint64_t row = 0; row < count; ++row)
      if (Status status = rows->read(first + row, destination + row * rowBytes); !status.ok())
        return status;
    return Status();
  }
  Status read(uint64_t index, std::byte *destination) const override {
    const uint64_t own = lengthOf(index) * rowBytes;
    std::memset(destination + own, 0, sampleBytes() - own);
    return readRows(index, lengthOf(index), destination);
  }
  uint64_t hostBytes() const override { return rows->hostBytes() + offsets.size() * sizeof(uint64_t); }

private:
  std::unique_ptr<Column> rows;
  std::vector<uint64_t> offsets;
  uint64_t rowBytes;
};

/// Samples of one length, of which only the first rows count.
class LengthColumn final : public Column {
public:
  LengthColumn(std::unique_ptr<Column> whole, std::shared_ptr<const std::vector<uint64_t>> lengths)
      : Column(whole->name(), whole->type()), whole(std::move(whole)), lengths(std::move(lengths)) {}

  bool isText() const override { return whole->isText(); }
  Status usable() const override { return whole->usable(); }
  bool isRagged() const override { return true; }
  bool storesPadding() const override { return true; }
  uint64_t lengthOf(uint64_t index) const override { return (*lengths)[index]; }
  Status readRows(uint64_t index, uint64_t count, std::byte *destination) const override {
    if (const std::span<const std::byte> all = whole->contiguous(); !all.empty()) {
      std::memcpy(destination, all.data() + index * sampleBytes(), count * rowBytesOf(type(), 2));
      return Status();
    }
    return whole->readRows(index, count, destination);
  }
  Status read(uint64_t index, std::byte *destination) const override { return whole->read(index, destination); }
  uint64_t hostBytes() const override { return whole->hostBytes() + lengths->size() * sizeof(uint64_t); }
  std::string place(uint64_t index) const override { return whole->place(index); }

private:
  std::unique_ptr<Column> whole;
  std::shared_ptr<const std::vector<uint64_t>> lengths;
};

/// All elements of an integer column of rank 1.
Expected<std::vector<int64_t>> integersOf(const Column &column) {
  std::vector<int64_t> values(column.samples());
  std::vector<std::byte> element(column.sampleBytes());
  for (uint64_t i = 0; i < values.size(); ++i) {
    if (Status status = column.read(i, element.data()); !status.ok())
      return status;
    values[i] = integerElement(element.data(), column.type().dtype(), 0);
  }
  return values;
}

bool isIntegers(const plan::TensorType &type, int rank) {
  return type.dims_size() == rank && !plan::isFloatingPoint(type.dtype());
}

Expected<std::vector<uint64_t>> readOffsets(const Dataset &dataset, const Column &rows, const Column &offsets) {
  auto read = integersOf(offsets);
  if (!read)
    return read.status();
  std::vector<uint64_t> made(read->begin(), read->end());
  const auto fall = std::is_sorted_until(read->begin(), read->end());
  if (made.size() < 2 || read->front() != 0 || fall != read->end() || made.back() != rows.samples())
    return error("{}: column '{}' {}: offsets begin with 0, do not fall, and end with the {} rows of '{}'",
                 dataset.path, offsets.name(),
                 made.size() < 2      ? fmt::format("has {} elements", made.size())
                 : read->front() != 0 ? fmt::format("begins with {}", read->front())
                 : fall != read->end()
                     ? fmt::format("falls from {} to {} at sample {}", fall[-1], *fall, fall - read->begin() - 1)
                     : fmt::format("ends with {}", read->back()),
                 rows.samples(), rows.name());
  return made;
}

/// The lengths that a column tells: its numbers, or for each row of a mask the place after the last element that is
/// not 0.
Expected<std::vector<uint64_t>> readLengths(const Dataset &dataset, const Column &column) {
  std::vector<uint64_t> lengths(column.samples());
  if (isIntegers(column.type(), 1)) {
    auto read = integersOf(column);
    if (!read)
      return read.status();
    for (size_t i = 0; i < lengths.size(); ++i) {
      if ((*read)[i] < 0)
        return error("{}: data.lengths: column '{}': sample {} has the length {}", dataset.path, column.name(), i,
                     (*read)[i]);
      lengths[i] = static_cast<uint64_t>((*read)[i]);
    }
    return lengths;
  }
  if (column.type().dims_size() != 2)
    return error("{}: data.lengths: column '{}' is {}; it must hold a length for each sample, or a mask of its rows",
                 dataset.path, column.name(), plan::typeName(column.type()));
  std::vector<std::byte> mask(column.sampleBytes());
  const bool floats = plan::isFloatingPoint(column.type().dtype());
  for (uint64_t i = 0; i < lengths.size(); ++i) {
    if (Status status = column.read(i, mask.data()); !status.ok())
      return status;
    for (auto at = static_cast<uint64_t>(column.type().dims(1)); at > 0 && lengths[i] == 0; --at)
      if (floats ? floatElement(mask.data(), column.type().dtype(), at - 1) != 0
                 : integerElement(mask.data(), column.type().dtype(), at - 1) != 0)
        lengths[i] = at;
  }
  return lengths;
}

/// Gives the columns whose samples have as many rows as the mask, or as the longest sample, the lengths.
Status applyLengths(Dataset &dataset, const std::string &name) {
  const Column *found = dataset.find(name);
  if (!found)
    return error("{}: data.lengths = \"{}\": no such column; the data has {}", dataset.path, name,
                 dataset.describeColumns());
  if (found->isRagged())
    return error("{}: data.lengths = \"{}\": the samples of this column differ in length already, by its offsets or "
                 "lists; leave data.lengths out",
                 dataset.path, name);
  auto read = readLengths(dataset, *found);
  if (!read)
    return read.status();
  const auto lengths = std::make_shared<const std::vector<uint64_t>>(read.take());
  const uint64_t longest = lengths->empty() ? 0 : *std::max_element(lengths->begin(), lengths->end());
  const bool isMask = found->type().dims_size() == 2;
  const int64_t rows = isMask ? found->type().dims(1) : 0;
  bool any = false;
  for (std::unique_ptr<Column> &column : dataset.columns) {
    const plan::TensorType &type = column->type();
    if (type.dims_size() < 2 || column->samples() != lengths->size() || column->isRagged())
      continue;
    if (isMask ? type.dims(1) != rows : static_cast<uint64_t>(type.dims(1)) < longest)
      continue;
    column = std::make_unique<LengthColumn>(std::move(column), lengths);
    any = true;
  }
  return any ? Status()
             : error(
                   "{}: data.lengths = \"{}\": its longest sample has {} rows, and no column has as many; the data has "
                   "{}",
                   dataset.path, name, longest, dataset.describeColumns());
}
} // namespace

std::unique_ptr<Column> tcc::runtime::raggedColumn(std::unique_ptr<Column> rows, std::vector<uint64_t> offsets) {
  uint64_t longest = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    longest = std::max(longest, offsets[i + 1] - offsets[i]);
  plan::TensorType type;
  type.set_dtype(rows->type().dtype());
  type.add_dims(static_cast<int64_t>(offsets.size() - 1));
  type.add_dims(static_cast<int64_t>(longest));
  for (int axis = 1; axis < rows->type().dims_size(); ++axis)
    type.add_dims(rows->type().dims(axis));
  return std::make_unique<OffsetColumn>(std::move(rows), std::move(type), std::move(offsets));
}

Status tcc::runtime::joinRagged(Dataset &dataset, const DatasetOptions &options) {
  for (size_t i = 0; i < dataset.columns.size(); ++i) {
    const std::string name = dataset.columns[i]->name();
    if (!name.ends_with(kOffsets) || !isIntegers(dataset.columns[i]->type(), 1))
      continue;
    const auto rows = std::find_if(dataset.columns.begin(), dataset.columns.end(), [&](const auto &column) {
      return column->name() == name.substr(0, name.size() - kOffsets.size());
    });
    if (rows == dataset.columns.end() || (*rows)->type().dims_size() == 0)
      continue;
    auto offsets = readOffsets(dataset, **rows, *dataset.columns[i]);
    if (!offsets)
      return offsets.status();
    *rows = raggedColumn(std::move(*rows), offsets.take());
    dataset.columns.erase(dataset.columns.begin() + static_cast<std::ptrdiff_t>(i--));
  }
  const std::string lengths = settingText(options.settings, "lengths");
  return lengths.empty() ? Status() : applyLengths(dataset, lengths);
}

static plan::TensorType withLength(plan::TensorType type, uint64_t length) {
  type.set_dims(1, static_cast<int64_t>(length));
  return type;
}

PaddedColumn::PaddedColumn(const Column &ragged, uint64_t length, plan::TensorType type)
    : Column(ragged.name(), std::move(type)), ragged(ragged), length(length), rowBytes(rowBytesOf(this->type(), 2)) {}

Expected<std::unique_ptr<PaddedColumn>> PaddedColumn::create(const Column &ragged, uint64_t length, double value) {
  std::unique_ptr<PaddedColumn> made(new PaddedColumn(ragged, length, withLength(ragged.type(), length)));
  made->padding.resize(made->rowBytes);
  const plan::DType dtype = ragged.type().dtype();
  const auto whole = static_cast<int64_t>(value);
  const bool floats = plan::isFloatingPoint(dtype);
  for (uint64_t at = 0; at < made->rowBytes; at += plan::dtypeBytes(dtype)) {
    std::byte *element = made->padding.data() + at;
    const auto *source = reinterpret_cast<const std::byte *>(floats ? static_cast<const void *>(&value) : &whole);
    if ((!floats && static_cast<double>(whole) != value) ||
        convertElements(source, floats ? plan::F64 : plan::I64, element, dtype, 1))
      return error("data.pad: column '{}' is {}, which does not hold {}", ragged.name(), plan::dtypeName(dtype), value);
  }
  return made;
}

Status PaddedColumn::read(uint64_t index, std::byte *destination) const {
  const uint64_t own = std::min(ragged.lengthOf(index), length);
  if (Status status = ragged.readRows(index, own, destination); !status.ok())
    return status;
  for (uint64_t row = own; row < length; ++row)
    std::memcpy(destination + row * rowBytes, padding.data(), rowBytes);
  return Status();
}

//===- Ragged.cpp - columns whose samples differ in length or size ---------===//
#include "runtime/data/Ragged.h"
#include "runtime/data/Convert.h"
#include "support/Advice.h"

#include <algorithm>
#include <cstring>
#include <fmt/ranges.h>
#include <limits>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr std::string_view kOffsets = ".offsets", kShapes = ".shapes";

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

/// Elements of all samples, one after the other, and the extents of each sample. The type has those of the first.
class SizedColumn final : public Column {
public:
  SizedColumn(std::unique_ptr<Column> all, plan::TensorType type, SampleSizes sizes, std::vector<uint64_t> begins)
      : Column(all->name(), std::move(type)), elements(std::move(all)), extents(std::move(sizes)),
        begins(std::move(begins)), width(plan::dtypeBytes(this->type().dtype())) {}

  Status usable() const override { return elements->usable(); }
  bool isSized() const override { return true; }
  Status extentsOf(uint64_t index, std::span<uint32_t> into) const override {
    std::ranges::copy(extents.of(index), into.begin());
    return Status();
  }
  Status drawTo(uint64_t index, const Draw &, const Frame &frame, std::byte *destination) const override {
    const std::vector<uint64_t> own(extents.of(index).begin(), extents.of(index).end());
    if (const std::span<const std::byte> all = elements->contiguous(); !all.empty()) {
      writeToFrame(all.data() + begins[index] * width, own, frame, destination);
      return Status();
    }
    thread_local std::vector<std::byte> sample;
    sample.resize((begins[index + 1] - begins[index]) * width);
    if (Status status = readElements(index, sample.data()); !status.ok())
      return status;
    writeToFrame(sample.data(), own, frame, destination);
    return Status();
  }
  Status read(uint64_t index, std::byte *destination) const override {
    if (!std::equal(extents.of(index).begin(), extents.of(index).end(), type().dims().begin() + 1))
      return error("column '{}': sample {} is [{}], the first one [{}]: bring all to one size, or say what follows a "
                   "smaller sample with {}",
                   name(), index, fmt::join(extents.of(index), ", "), fmt::join(extents.of(0), ", "),
                   advice::set("data.pad." + name(), "0"));
    return readElements(index, destination);
  }
  Status readImage(uint64_t index, Image &image) const override {
    const ImageShape shape = imageShapeWith(extents.of(index));
    image.reshape(shape.channels, shape.height, shape.width, shape.floats);
    return readElements(index, shape.floats ? reinterpret_cast<std::byte *>(image.values.data())
                                            : reinterpret_cast<std::byte *>(image.bytes.data()));
  }
  uint64_t hostBytes() const override {
    return elements->hostBytes() + extents.hostBytes() + begins.size() * sizeof(uint64_t);
  }

private:
  Status readElements(uint64_t index, std::byte *destination) const {
    if (const std::span<const std::byte> all = elements->contiguous(); !all.empty()) {
      std::memcpy(destination, all.data() + begins[index] * width, (begins[index + 1] - begins[index]) * width);
      return Status();
    }
    for (uint64_t i = begins[index]; i < begins[index + 1]; ++i, destination += width)
      if (Status status = elements->read(i, destination); !status.ok())
        return status;
    return Status();
  }

  std::unique_ptr<Column> elements;
  SampleSizes extents;
  std::vector<uint64_t> begins; ///< the first element of each sample, and the number of all
  uint64_t width;
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

/// The column `elements` with the extents that `shapes` tells for each sample. Error: they do not fit its elements.
Expected<std::unique_ptr<Column>> joinShapes(const Dataset &dataset, std::unique_ptr<Column> elements,
                                             const Column &shapes) {
  const auto rank = static_cast<size_t>(shapes.type().dims(1));
  SampleSizes sizes(shapes.samples(), rank);
  std::vector<uint64_t> begins = {0};
  std::vector<std::byte> row(shapes.sampleBytes());
  for (uint64_t i = 0; i < shapes.samples(); ++i) {
    if (Status status = shapes.read(i, row.data()); !status.ok())
      return status;
    uint64_t product = 1;
    for (size_t axis = 0; axis < rank; ++axis) {
      const int64_t extent = integerElement(row.data(), shapes.type().dtype(), axis);
      if (extent < 0 || (product != 0 && static_cast<uint64_t>(extent) > elements->samples() / product))
        return error(
            "{}: column '{}': sample {} has the extent {} in axis {}: extents are at least 0, and a sample has "
            "at most the {} elements of '{}'",
            dataset.path, shapes.name(), i, extent, axis, elements->samples(), elements->name());
      product *= static_cast<uint64_t>(extent);
      if (extent > std::numeric_limits<uint32_t>::max())
        return error("{}: column '{}': sample {} has the extent {} in axis {}; the most is {}", dataset.path,
                     shapes.name(), i, extent, axis, std::numeric_limits<uint32_t>::max());
      sizes.of(i)[axis] = static_cast<uint32_t>(extent);
    }
    begins.push_back(begins.back() + product);
    if (begins.back() > elements->samples())
      break;
  }
  if (begins.back() != elements->samples())
    return error(
        "{}: column '{}': the samples up to sample {} have {} elements, '{}' has {}: each row holds the extents "
        "of a sample, and '{}' the elements of all samples, one after the other",
        dataset.path, shapes.name(), begins.size() - 2, begins.back(), elements->name(), elements->samples(),
        elements->name());
  plan::TensorType type;
  type.set_dtype(elements->type().dtype());
  type.add_dims(shapes.type().dims(0));
  for (size_t axis = 0; axis < rank; ++axis)
    type.add_dims(shapes.samples() == 0 ? 0 : sizes.of(0)[axis]);
  return std::unique_ptr<Column>(
      std::make_unique<SizedColumn>(std::move(elements), std::move(type), std::move(sizes), std::move(begins)));
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
    const bool isOffsets = name.ends_with(kOffsets) && isIntegers(dataset.columns[i]->type(), 1),
               isShapes = name.ends_with(kShapes) && isIntegers(dataset.columns[i]->type(), 2);
    if (!isOffsets && !isShapes)
      continue;
    const auto rows = std::find_if(dataset.columns.begin(), dataset.columns.end(), [&](const auto &column) {
      return column->name() == name.substr(0, name.size() - (isOffsets ? kOffsets : kShapes).size());
    });
    if (rows == dataset.columns.end() || (*rows)->type().dims_size() == 0)
      continue;
    if (isShapes) {
      if ((*rows)->type().dims_size() != 1 || dataset.columns[i]->type().dims(1) == 0)
        continue;
      auto joined = joinShapes(dataset, std::move(*rows), *dataset.columns[i]);
      if (!joined)
        return joined.status();
      *rows = joined.take();
      dataset.columns.erase(dataset.columns.begin() + static_cast<std::ptrdiff_t>(i--));
      continue;
    }
    auto offsets = readOffsets(dataset, **rows, *dataset.columns[i]);
    if (!offsets)
      return offsets.status();
    *rows = raggedColumn(std::move(*rows), offsets.take());
    dataset.columns.erase(dataset.columns.begin() + static_cast<std::ptrdiff_t>(i--));
  }
  const std::string lengths = settingText(options.settings, "lengths");
  return lengths.empty() ? Status() : applyLengths(dataset, lengths);
}

static plan::TensorType withExtents(plan::TensorType type, const std::vector<uint64_t> &extents) {
  for (size_t axis = 0; axis < extents.size(); ++axis)
    type.set_dims(static_cast<int>(axis) + 1, static_cast<int64_t>(extents[axis]));
  return type;
}

PaddedColumn::PaddedColumn(const Column &base, std::vector<uint64_t> extents, plan::TensorType type)
    : Column(base.name(), std::move(type)), base(base), sizes(base.isSized() ? &base.sizes() : nullptr),
      frame(std::move(extents)) {}

/// The value as one element of the type; empty: the type does not hold it.
static std::vector<std::byte> elementOf(double value, plan::DType dtype) {
  std::vector<std::byte> element(plan::dtypeBytes(dtype));
  const auto whole = static_cast<int64_t>(value);
  const bool floats = plan::isFloatingPoint(dtype);
  const auto *source = reinterpret_cast<const std::byte *>(floats ? static_cast<const void *>(&value) : &whole);
  if ((!floats && static_cast<double>(whole) != value) ||
      convertElements(source, floats ? plan::F64 : plan::I64, element.data(), dtype, 1))
    element.clear();
  return element;
}

Expected<std::unique_ptr<PaddedColumn>> PaddedColumn::create(const Column &base, std::vector<uint64_t> extents,
                                                             double value, plan::DType input) {
  plan::TensorType type = withExtents(base.type(), extents);
  std::vector<std::byte> element = elementOf(value, type.dtype());
  if (element.empty() && input != plan::DTYPE_NONE && mayConvert(type.dtype(), input, base.isText()) &&
      alwaysFits(type.dtype(), input)) {
    type.set_dtype(input);
    element = elementOf(value, input);
  }
  if (element.empty())
    return error("data.pad: column '{}' is {}, which does not hold {}", base.name(),
                 plan::dtypeName(base.type().dtype()), value);
  std::unique_ptr<PaddedColumn> made(new PaddedColumn(base, std::move(extents), std::move(type)));
  made->padding = std::move(element);
  return made;
}

bool PaddedColumn::holds(uint64_t index) const {
  for (size_t axis = 0; axis < frame.size(); ++axis)
    if (extentOf(index, axis) > frame[axis])
      return false;
  return true;
}

uint64_t PaddedColumn::keptElements(uint64_t index) const {
  uint64_t kept = 1;
  for (size_t axis = 0; axis < frame.size(); ++axis)
    kept *= std::min(extentOf(index, axis), frame[axis]);
  return kept;
}

Status PaddedColumn::draw(uint64_t index, const Draw &drawn, std::byte *destination) const {
  if (!converts())
    return drawBase(index, drawn, {frame, padding}, destination);
  const plan::DType from = base.type().dtype();
  constexpr std::byte kZeros[16] = {};
  thread_local std::vector<uint64_t> own;
  own.clear();
  uint64_t elements = 1;
  for (size_t axis = 0; axis < frame.size(); ++axis) {
    own.push_back(std::min(extentOf(index, axis), frame[axis]));
    elements *= own.back();
  }
  thread_local std::vector<std::byte> read, converted;
  read.resize(elements * plan::dtypeBytes(from));
  converted.resize(elements * padding.size());
  if (Status status = drawBase(index, drawn, {own, std::span(kZeros).first(plan::dtypeBytes(from))}, read.data());
      !status.ok())
    return status;
  (void)convertElements(read.data(), from, converted.data(), type().dtype(), elements); // all fit
  writeToFrame(converted.data(), own, {frame, padding}, destination);
  return Status();
}

Status PaddedColumn::drawBase(uint64_t index, const Draw &drawn, const Frame &whole, std::byte *destination) const {
  if (!base.isRagged())
    return base.drawTo(index, drawn, whole, destination);
  thread_local std::vector<uint64_t> rows;
  rows.assign(base.type().dims().begin() + 1, base.type().dims().end());
  rows[0] = std::min(base.lengthOf(index), whole.extents[0]);
  if (Status status = base.readRows(index, rows[0], destination); !status.ok())
    return status;
  writeToFrame(destination, rows, whole, destination);
  return Status();
}

//===- Column.cpp - one named column of a data set -----------------------===//
#include "runtime/data/Column.h"
#include "runtime/plan/PlanFile.h"

#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

uint64_t Column::sampleBytes() const {
  uint64_t bytes = plan::dtypeBytes(tensorType.dtype());
  for (int axis = 1; axis < tensorType.dims_size(); ++axis)
    bytes *= static_cast<uint64_t>(tensorType.dims(axis));
  return bytes;
}

Status Column::readRows(uint64_t index, uint64_t count, std::byte *destination) const {
  const uint64_t rows = lengthOf(index);
  if (count == rows)
    return read(index, destination);
  std::vector<std::byte> sample(sampleBytes());
  if (Status status = read(index, sample.data()); !status.ok())
    return status;
  std::memcpy(destination, sample.data(), sample.size() / rows * count);
  return Status();
}

ImageShape Column::imageShape() const {
  auto dim = [&](int axis) { return axis < tensorType.dims_size() ? static_cast<uint32_t>(tensorType.dims(axis)) : 1; };
  ImageShape shape{dim(1), dim(2), dim(3), tensorType.dtype() == plan::F32, tensorType.dims_size() == 4};
  for (int axis = 4; axis < tensorType.dims_size(); ++axis)
    shape.width *= dim(axis);
  return shape;
}

Status Column::readImage(uint64_t index, Image &image) const {
  const ImageShape shape = imageShape();
  image.reshape(shape.channels, shape.height, shape.width, shape.floats);
  return read(index, shape.floats ? reinterpret_cast<std::byte *>(image.values.data())
                                  : reinterpret_cast<std::byte *>(image.bytes.data()));
}

Status MemoryColumn::read(uint64_t index, std::byte *destination) const {
  uint64_t size = sampleBytes();
  if (size != 0) // without bytes the source may be null, which memcpy does not allow
    std::memcpy(destination, bytes.data() + index * size, size);
  return Status();
}

Expected<std::unique_ptr<Column>> tcc::runtime::memoryColumn(std::string name, plan::TensorType type,
                                                             std::span<const std::byte> bytes,
                                                             std::shared_ptr<const void> owner) {
  const auto needed = plan::tensorBytes(type);
  if (plan::dtypeBytes(type.dtype()) == 0 || !needed)
    return error("column '{}': {} is no type of an array", name, plan::typeName(type));
  if (*needed != bytes.size())
    return error("column '{}': {} takes {} bytes, the array has {}", name, plan::typeName(type), *needed, bytes.size());
  return std::unique_ptr<Column>(
      std::make_unique<MemoryColumn>(std::move(name), std::move(type), bytes, std::move(owner)));
}

static plan::TensorType withSamples(plan::TensorType type, uint64_t samples) {
  type.set_dims(0, static_cast<int64_t>(samples));
  return type;
}

SliceColumn::SliceColumn(std::unique_ptr<Column> whole, uint64_t begin, uint64_t end)
    : Column(whole->name(), withSamples(whole->type(), end - begin)), base(std::move(whole)), begin(begin) {}

SliceColumn::SliceColumn(std::unique_ptr<Column> whole, uint64_t count, Take take)
    : Column(whole->name(), withSamples(whole->type(), take == Take::Rest ? whole->samples() - count : count)),
      base(std::move(whole)), count(count), take(take) {}

uint64_t SliceColumn::of(uint64_t index) const {
  if (take == Take::Range)
    return index + begin;
  if (take == Take::Spread)
    return static_cast<uint64_t>(static_cast<unsigned __int128>(index) * base->samples() / samples());
  if (take == Take::HeldBack)
    return heldBack(index);
  // Count the held-back samples that have at most `index` samples of the rest before them: those precede it.
  uint64_t low = 0, high = count;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    if (heldBack(middle) - middle <= index)
      low = middle + 1;
    else
      high = middle;
  }
  return index + low;
}

std::span<const std::byte> SliceColumn::contiguous() const {
  if (take != Take::Range)
    return {};
  std::span<const std::byte> whole = base->contiguous();
  return whole.empty() ? whole : whole.subspan(begin * sampleBytes(), samples() * sampleBytes());
}

Expected<std::optional<uint64_t>> SliceColumn::contentHash() const {
  auto hash = base->contentHash();
  if (!hash || !*hash)
    return hash;
  const uint64_t parts[] = {**hash, begin, samples(), static_cast<uint64_t>(take)};
  return std::optional(plan::hashBytes(parts, sizeof(parts)));
}

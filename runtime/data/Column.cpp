//===- Column.cpp - one named column of a data set -----------------------===//
#include "runtime/data/Column.h"
#include "runtime/plan/PlanFile.h"
#include "support/Processors.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>

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

void tcc::runtime::writeToFrame(const std::byte *sample, std::span<const uint64_t> extents, const Frame &frame,
                                std::byte *destination) {
  const uint64_t width = frame.padding.size();
  auto elementsFrom = [](std::span<const uint64_t> of, size_t axis) {
    uint64_t elements = 1;
    for (size_t d = axis; d < of.size(); ++d)
      elements *= of[d];
    return elements;
  };
  auto copy = [&](const std::byte *from, std::byte *to, uint64_t elements) {
    if (elements != 0 && from != to)
      std::memcpy(to, from, elements * width);
  };
  auto fill = [&](std::byte *at, uint64_t elements) {
    if (elements != 0)
      std::memcpy(at, frame.padding.data(), width);
    for (uint64_t done = 1; done < elements; done *= 2)
      std::memcpy(at + done * width, at, std::min(done, elements - done) * width);
  };
  auto write = [&](auto &self, size_t axis, const std::byte *from, std::byte *to) -> void {
    // Axes that agree are one block.
    const auto skip = static_cast<std::ptrdiff_t>(axis);
    if (std::equal(extents.begin() + skip, extents.end(), frame.extents.begin() + skip))
      return copy(from, to, elementsFrom(extents, axis));
    const uint64_t ownInner = elementsFrom(extents, axis + 1), inner = elementsFrom(frame.extents, axis + 1),
                   own = std::min(extents[axis], frame.extents[axis]);
    if (std::equal(extents.begin() + skip + 1, extents.end(), frame.extents.begin() + skip + 1))
      copy(from, to, own * inner);
    else
      for (uint64_t i = 0; i < own; ++i)
        self(self, axis + 1, from + i * ownInner * width, to + i * inner * width);
    fill(to + own * inner * width, (frame.extents[axis] - own) * inner);
  };
  write(write, 0, sample, destination);
}

Status Column::extentsOf(uint64_t index, std::span<uint32_t> extents) const {
  (void)index;
  for (size_t axis = 0; axis < extents.size(); ++axis)
    extents[axis] = static_cast<uint32_t>(tensorType.dims(static_cast<int>(axis) + 1));
  return Status();
}

Status Column::drawTo(uint64_t index, const Draw &drawn, const Frame &frame, std::byte *destination) const {
  thread_local std::vector<std::byte> sample;
  sample.resize(sampleBytes());
  if (Status status = draw(index, drawn, sample.data()); !status.ok())
    return status;
  thread_local std::vector<uint64_t> extents;
  extents.assign(tensorType.dims().begin() + 1, tensorType.dims().end());
  writeToFrame(sample.data(), extents, frame, destination);
  return Status();
}

const SampleSizes &Column::sizes() const {
  std::call_once(sized, [&] {
    constexpr uint64_t kBlock = 256;
    auto all = std::make_unique<SampleSizes>(samples(), static_cast<size_t>(tensorType.dims_size()) - 1);
    std::atomic<uint64_t> next{0};
    auto work = [&] {
      for (uint64_t begin; (begin = next.fetch_add(kBlock)) < samples();)
        for (uint64_t i = begin; i < std::min(begin + kBlock, samples()); ++i)
          if (const auto extents = all->of(i);
              !extentsOf(i, extents).ok() || std::ranges::find(extents, 0u) != extents.end())
            std::ranges::fill(extents, 0u);
    };
    std::vector<std::thread> threads;
    try {
      for (uint64_t i = 1; i < std::min<uint64_t>(usableProcessors(), samples() / kBlock); ++i)
        threads.emplace_back(work);
    } catch (const std::system_error &) { // fewer threads do the same
    }
    work();
    for (std::thread &thread : threads)
      thread.join();
    allSizes = std::move(all);
  });
  return *allSizes;
}

ImageShape Column::imageShapeWith(std::span<const uint32_t> extents) const {
  ImageShape shape = imageShape();
  auto of = [&](size_t axis) { return axis < extents.size() ? extents[axis] : 1; };
  shape.channels = of(0);
  shape.height = of(1);
  shape.width = of(2);
  return shape;
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

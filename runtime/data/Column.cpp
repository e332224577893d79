//===- Column.cpp - one named column of a data set -----------------------===//
#include "runtime/data/Column.h"

#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

uint64_t Column::sampleBytes() const {
  uint64_t bytes = plan::dtypeBytes(tensorType.dtype());
  for (int axis = 1; axis < tensorType.dims_size(); ++axis)
    bytes *= static_cast<uint64_t>(tensorType.dims(axis));
  return bytes;
}

plan::Status MemoryColumn::read(uint64_t index, std::byte *destination) const {
  uint64_t size = sampleBytes();
  if (size != 0) // the source of no bytes may be a null pointer, which memcpy must not get
    std::memcpy(destination, bytes.data() + index * size, size);
  return plan::Status();
}

static plan::TensorType withSamples(plan::TensorType type, uint64_t samples) {
  type.set_dims(0, static_cast<int64_t>(samples));
  return type;
}

SliceColumn::SliceColumn(std::unique_ptr<Column> whole, uint64_t begin, uint64_t end)
    : Column(whole->name(), withSamples(whole->type(), end - begin)), base(std::move(whole)), begin(begin) {}

std::span<const std::byte> SliceColumn::contiguous() const {
  std::span<const std::byte> whole = base->contiguous();
  return whole.empty() ? whole : whole.subspan(begin * sampleBytes(), samples() * sampleBytes());
}

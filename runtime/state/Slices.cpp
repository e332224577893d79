//===- Slices.cpp - boxes of tensors -------------------------------------===//
//
// Boxes cover a tensor exactly once if and only if their indicator functions add up to the tensor's. The mixed
// difference of a box's indicator is ±1 at its 2^d corners and 0 elsewhere, and determines a function of bounded
// support. So it is enough that the signed corners of all boxes add up to those of the tensor. That takes time linear
// in the number of boxes, while comparing pairs would be quadratic.
//
//===----------------------------------------------------------------------===//
#include "runtime/state/Manifest.h"

#include <algorithm>
#include <cstring>
#include <fmt/ranges.h>

using namespace tcc;
using namespace tcc::runtime;

bool tcc::runtime::isFlat(const TensorSlice &slice, const std::vector<uint64_t> &shape) {
  return slice.start.size() == 1 && slice.shape.size() == 1 && shape.size() != 1;
}

static uint64_t elementsOf(const std::vector<uint64_t> &shape) {
  uint64_t elements = 1;
  for (uint64_t extent : shape)
    elements *= extent;
  return elements;
}

Status tcc::runtime::checkCoverage(const std::vector<uint64_t> &shape, const std::vector<TensorSlice> &slices) {
  if (!slices.empty() && isFlat(slices[0], shape))
    return checkCoverage(std::vector<uint64_t>{elementsOf(shape)}, slices);
  constexpr size_t kMostSplitAxes = 4;
  std::vector<size_t> split; // axes that some slice does not span
  for (size_t i = 0; i < slices.size(); ++i) {
    const TensorSlice &slice = slices[i];
    if (slice.start.size() != shape.size() || slice.shape.size() != shape.size())
      return error("are wrong: slice {} has {} axes, the tensor {}", i,
                         std::max(slice.start.size(), slice.shape.size()), shape.size());
    for (size_t d = 0; d < shape.size(); ++d) {
      if (slice.start[d] > shape[d] || slice.shape[d] > shape[d] - slice.start[d])
        return error("are wrong: slice {} takes {} elements from {} on of axis {}, which has {}", i,
                           slice.shape[d], slice.start[d], d, shape[d]);
      if (slice.shape[d] != shape[d] && std::find(split.begin(), split.end(), d) == split.end())
        split.push_back(d);
    }
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    return Status();
  if (split.size() > kMostSplitAxes)
    return error("cut it along {} axes; this program reads cuts along {}", split.size(), kMostSplitAxes);
  struct Corner {
    std::array<uint64_t, kMostSplitAxes> at{};
    int sign = 1;
  };
  std::vector<Corner> corners;
  auto add = [&](auto startOf, auto extentOf, int sign) {
    for (size_t mask = 0; mask < (size_t(1) << split.size()); ++mask) {
      Corner corner;
      corner.sign = sign;
      for (size_t k = 0; k < split.size(); ++k) {
        bool end = (mask >> k & 1) != 0;
        corner.at[k] = startOf(split[k]) + (end ? extentOf(split[k]) : 0);
        corner.sign *= end ? -1 : 1;
      }
      corners.push_back(corner);
    }
  };
  for (const TensorSlice &slice : slices)
    if (std::find(slice.shape.begin(), slice.shape.end(), 0) == slice.shape.end())
      add([&](size_t d) { return slice.start[d]; }, [&](size_t d) { return slice.shape[d]; }, 1);
  add([](size_t) { return uint64_t(0); }, [&](size_t d) { return shape[d]; }, -1);
  std::sort(corners.begin(), corners.end(), [](const Corner &a, const Corner &b) { return a.at < b.at; });
  for (size_t i = 0; i < corners.size();) {
    int64_t sum = 0;
    size_t first = i;
    for (; i < corners.size() && corners[i].at == corners[first].at; ++i)
      sum += corners[i].sign;
    if (sum != 0)
      return error("are wrong: they do not cover every element of [{}] exactly once", fmt::join(shape, ", "));
  }
  return Status();
}

plan::TensorType tcc::runtime::sliceType(const plan::TensorType &whole, const TensorSlice &slice) {
  plan::TensorType type;
  type.set_dtype(whole.dtype());
  for (uint64_t extent : slice.shape)
    type.add_dims(static_cast<int64_t>(extent));
  return type;
}

void tcc::runtime::copySlice(const TensorSlice &slice, std::span<const std::byte> from,
                             const std::vector<uint64_t> &shape, uint64_t elementBytes, std::byte *to) {
  if (from.empty())
    return;
  if (isFlat(slice, shape)) {
    std::memcpy(to + slice.start[0] * elementBytes, from.data(), from.size());
    return;
  }
  // The axes after the last one that is cut are contiguous in source and destination.
  size_t rank = shape.size(), outer = rank;
  uint64_t run = elementBytes;
  while (outer > 0 && slice.shape[outer - 1] == shape[outer - 1])
    run *= shape[--outer];
  std::vector<uint64_t> strides(rank, elementBytes), index(rank, 0);
  for (size_t d = rank; d-- > 1;)
    strides[d - 1] = strides[d] * shape[d];
  if (outer > 0)
    run *= slice.shape[--outer];
  for (uint64_t done = 0; done < from.size(); done += run) {
    uint64_t place = 0;
    for (size_t d = 0; d < rank; ++d)
      place += (slice.start[d] + index[d]) * strides[d];
    std::memcpy(to + place, from.data() + done, run);
    for (size_t d = outer; d-- > 0 && ++index[d] == slice.shape[d];)
      index[d] = 0;
  }
}

//===- FourBits.cpp - floating-point tensors in 4 bits an element ---------===//
#include "runtime/plan/FourBits.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/DynamicMap.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tcc::plan {

FourBits fourBitsOf(FourBits::Code code, int64_t block, std::span<const int64_t> dims, std::span<const bool> inRow) {
  FourBits layout;
  layout.set_code(code);
  layout.set_block(block);
  layout.mutable_dims()->Assign(dims.begin(), dims.end());
  layout.mutable_strides()->Resize(static_cast<int>(dims.size()), 0);
  int64_t stride = 1;
  auto place = [&](bool row) {
    for (size_t d = dims.size(); d-- > 0;)
      if (inRow[d] == row) {
        layout.set_strides(static_cast<int>(d), stride);
        stride *= dims[d];
      }
  };
  place(true);
  if (code == FourBits::INT4)
    stride = (stride + block - 1) / block * block;
  place(false);
  return layout;
}

const std::array<float, 16> &numbersOf(FourBits::Code code) {
  static constexpr auto tableFrom = [](int least, int most) {
    std::array<float, 16> numbers{};
    for (int c = 0; c < 16; ++c)
      numbers[static_cast<size_t>(c)] = static_cast<float>(c > most ? c - 16 : c + least);
    return numbers;
  };
  static constexpr std::array<float, 16> int4 = tableFrom(-8, 15), uint4 = tableFrom(0, 15), sint4 = tableFrom(0, 7);
  switch (code) {
  case FourBits::NF4:
    return kNf4Numbers;
  case FourBits::INT4:
    return int4;
  case FourBits::SINT4:
    return sint4;
  default:
    return uint4;
  }
}

namespace {
using Numbers = google::protobuf::RepeatedField<int64_t>;

/// 1 + the largest sum of coordinates times strides; nothing if a number is out of range.
std::optional<uint64_t> countAlong(const Numbers &extents, const Numbers &strides) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  if (extents.size() != strides.size())
    return std::nullopt;
  int64_t last = 0;
  for (int d = 0; d < extents.size(); ++d) {
    const int64_t extent = extents[d], stride = strides[d];
    if (extent < 1 || stride < 0 || (stride > 0 && extent - 1 > (kMost - last) / stride))
      return std::nullopt;
    last += (extent - 1) * stride;
  }
  return static_cast<uint64_t>(last) + 1;
}

/// Blocks along each dim; empty if the grid has other dims, or a block without elements.
Numbers blocksAlong(const FourBits &layout) {
  Numbers counts;
  const BlockGrid &grid = layout.grid();
  if (grid.blocks_size() != layout.dims_size())
    return counts;
  for (int d = 0; d < layout.dims_size(); ++d) {
    const int64_t block = grid.blocks(d), extent = layout.dims(d);
    if (block < 1 || extent < 1)
      return {};
    counts.Add((extent - 1) / block + 1);
  }
  return counts;
}

std::optional<uint64_t> gridCount(const FourBits &layout, const Numbers &strides) {
  return layout.dims_size() ? countAlong(blocksAlong(layout), strides) : std::nullopt;
}

/// Blocks of the dynamic map.
uint64_t dynamicBlocks(uint64_t count) {
  constexpr auto kBlock = static_cast<uint64_t>(kDynamicBlock);
  return (count + kBlock - 1) / kBlock;
}

TensorType flatType(DType dtype, uint64_t count) {
  TensorType type;
  type.set_dtype(dtype);
  type.add_dims(static_cast<int64_t>(count));
  return type;
}
} // namespace

std::optional<uint64_t> codeCount(const FourBits &layout) { return countAlong(layout.dims(), layout.strides()); }

bool isWellFormed(const FourBits &layout) {
  const bool integers =
      layout.code() == FourBits::INT4 || layout.code() == FourBits::UINT4 || layout.code() == FourBits::SINT4;
  if (!codeCount(layout))
    return false;
  if (layout.nested() && (layout.has_grid() || layout.code() != FourBits::NF4))
    return false;
  if (!layout.has_grid())
    return (layout.code() == FourBits::NF4 || layout.code() == FourBits::INT4) && isBlockOfFourBits(layout.block());
  const BlockGrid &grid = layout.grid();
  const bool bytes = layout.code() == FourBits::INT8;
  if (!(integers || bytes) || layout.block() != 0 || !gridCount(layout, grid.scale_strides()))
    return false;
  for (int d = 0; bytes && d < layout.dims_size(); ++d)
    if ((grid.blocks(d) > 1 && grid.blocks(d) < layout.dims(d)) || grid.zeros() != BlockGrid::NONE)
      return false;
  switch (grid.zeros()) {
  case BlockGrid::NONE:
    return grid.zero_strides_size() == 0;
  case BlockGrid::CODES:
  case BlockGrid::NUMBERS:
    return gridCount(layout, grid.zero_strides()).has_value();
  default:
    return false;
  }
}

uint64_t scaleCount(const FourBits &layout) {
  if (layout.has_grid())
    return gridCount(layout, layout.grid().scale_strides()).value_or(0);
  const auto block = static_cast<uint64_t>(std::max<int64_t>(layout.block(), 1));
  return (codeCount(layout).value_or(0) + block - 1) / block;
}

uint64_t zeroCount(const FourBits &layout) {
  return layout.grid().zeros() == BlockGrid::NONE ? 0 : gridCount(layout, layout.grid().zero_strides()).value_or(0);
}

TensorType bytesType(const FourBits &layout) {
  const uint64_t count = codeCount(layout).value_or(0);
  return layout.code() == FourBits::INT8 ? flatType(I8, count) : flatType(U8, (count + 1) / 2);
}
TensorType scalesType(const FourBits &layout) { return flatType(layout.nested() ? U8 : F32, scaleCount(layout)); }
TensorType nestedType(const FourBits &layout) { return flatType(F32, 1 + dynamicBlocks(scaleCount(layout))); }
TensorType zerosType(const FourBits &layout) {
  const uint64_t count = zeroCount(layout);
  return layout.grid().zeros() == BlockGrid::NUMBERS ? flatType(F32, count) : flatType(U8, (count + 1) / 2);
}

namespace {
TensorType typeOf(const FourBits &layout, DType dtype) {
  TensorType type;
  type.set_dtype(dtype);
  *type.mutable_dims() = layout.dims();
  return type;
}

/// Calls visit(element, code number) for all elements in row-major order.
template <typename Visit> void forEachCode(const FourBits &layout, uint64_t count, const Visit &visit) {
  const int last = layout.dims_size() - 1;
  const auto extent = last < 0 ? 1 : static_cast<uint64_t>(layout.dims(last)),
             stride = last < 0 ? 0 : static_cast<uint64_t>(layout.strides(last));
  std::vector<int64_t> index(static_cast<size_t>(layout.dims_size()), 0);
  int64_t at = 0;
  for (uint64_t i = 0; i < count;) {
    for (uint64_t j = 0; j < extent; ++j, ++i)
      visit(i, static_cast<uint64_t>(at) + j * stride);
    for (int d = last; d-- > 0;) {
      at += layout.strides(d);
      if (++index[static_cast<size_t>(d)] < layout.dims(d))
        break;
      at -= layout.strides(d) * layout.dims(d);
      index[static_cast<size_t>(d)] = 0;
    }
  }
}

/// [−1, 1] in equal parts with at most one threshold each, which is not at an end: a part's least code, and the next
/// threshold. So a number that is rounded into the neighbouring part has the same code there.
struct Nf4Part {
  uint8_t code;
  float threshold;
};
constexpr int kNf4Parts = 64;
constexpr std::array<Nf4Part, kNf4Parts + 1> kNf4Table = [] {
  std::array<Nf4Part, kNf4Parts + 1> parts{};
  for (int part = 0; part <= kNf4Parts; ++part) {
    const float begin = 2.0F * static_cast<float>(part) / kNf4Parts - 1.0F;
    unsigned code = 0;
    while (code < kNf4Thresholds.size() && kNf4Thresholds[code] < begin)
      ++code;
    parts[static_cast<size_t>(part)] = {static_cast<uint8_t>(code),
                                        code < kNf4Thresholds.size() ? kNf4Thresholds[code] : 2.0F};
  }
  return parts;
}();

/// The number of thresholds that w · (1 / scale) exceeds. As in bitsandbytes, scales up to 1e-38 count as that, so that
/// 0 stays 0. The product may exceed ±1 by a rounding.
unsigned nf4Code(float value, float scale) {
  constexpr float kLeast = 1e-38F, kMost = 1.0F / kLeast;
  const float number = value * (scale <= kLeast ? kMost : 1.0F / scale);
  const float place = std::clamp((number + 1.0F) * (kNf4Parts / 2), 0.0F, static_cast<float>(kNf4Parts));
  const Nf4Part &part = kNf4Table[static_cast<size_t>(place)];
  return part.code + (number > part.threshold ? 1U : 0U);
}

unsigned int4Code(float value, float scale) {
  const float steps = scale == 0 ? 0.0F : std::nearbyint(value / scale);
  return static_cast<unsigned>(std::clamp(steps, -8.0F, 7.0F) + 8);
}
} // namespace

std::optional<PackedTensor> roundToFourBits(std::span<const std::byte> elements, DType dtype, const FourBits &layout) {
  const auto count = elementCount(typeOf(layout, dtype));
  if (!count || !codeCount(layout) || !isBlockOfFourBits(layout.block()) || !isFloatingPoint(dtype) ||
      elements.size() != *count * dtypeBytes(dtype))
    return std::nullopt;
  const int blockBits = std::countr_zero(static_cast<uint64_t>(layout.block()));
  const bool nf4 = layout.code() == FourBits::NF4;
  auto value = [&](uint64_t i) {
    if (dtype != F32)
      return static_cast<float>(floatElement(elements.data(), dtype, i));
    float number = 0;
    std::memcpy(&number, elements.data() + i * sizeof(float), sizeof(float));
    return number;
  };
  PackedTensor packed{std::vector<uint8_t>(elementCount(bytesType(layout)).value_or(0), 0),
                      std::vector<float>(elementCount(scalesType(layout)).value_or(0), 0.0F),
                      {}};
  bool finite = true;
  forEachCode(layout, *count, [&](uint64_t i, uint64_t at) {
    const float number = value(i);
    float &most = packed.scales[at >> blockBits];
    finite &= std::isfinite(number);
    if (nf4)
      most = std::max(most, std::fabs(number));
    else if (std::fabs(number) > std::fabs(most) || (number < 0 && number == -most))
      most = number;
  });
  if (!finite)
    return std::nullopt;
  if (!nf4)
    for (float &scale : packed.scales)
      scale = scale == 0 ? 0.0F : scale / -8.0F;
  forEachCode(layout, *count, [&](uint64_t i, uint64_t at) {
    const float scale = packed.scales[at >> blockBits];
    const unsigned code = nf4 ? nf4Code(value(i), scale) : int4Code(value(i), scale);
    packed.bytes[at / 2] = static_cast<uint8_t>(packed.bytes[at / 2] | code << bitOfCode(layout.code(), at));
  });
  // As bitsandbytes does, which rounds a 0 behind an odd number of elements.
  if (nf4 && *count % 2 != 0)
    packed.bytes.back() |= nf4Code(0, 1);
  if (layout.nested()) {
    packed.nested = nestScales(packed.scales);
    packed.scales.clear();
  }
  return packed;
}

NestedScales nestScales(std::span<const float> scales) {
  NestedScales nested;
  nested.codes.reserve(scales.size());
  double sum = 0;
  for (float scale : scales)
    sum += scale;
  const float mean = scales.empty() ? 0.0F : static_cast<float>(sum / static_cast<double>(scales.size()));
  nested.numbers.push_back(mean);
  for (size_t begin = 0; begin < scales.size(); begin += kDynamicBlock) {
    const auto block = scales.subspan(begin, std::min<size_t>(kDynamicBlock, scales.size() - begin));
    float magnitude = 0;
    for (float scale : block)
      magnitude = std::max(magnitude, std::fabs(scale - mean));
    nested.numbers.push_back(magnitude);
    const float reciprocal = 1.0F / std::max(magnitude, kLeastDynamicMagnitude);
    for (float scale : block)
      nested.codes.push_back(dynamicCode(DynamicKind::Signed, (scale - mean) * reciprocal));
  }
  return nested;
}

std::vector<float> widenScales(std::span<const std::byte> codes, std::span<const std::byte> numbers) {
  std::vector<float> scales(codes.size());
  auto numberAt = [&](uint64_t at) { return static_cast<float>(floatElement(numbers.data(), F32, at)); };
  if (numbers.size() < (1 + dynamicBlocks(codes.size())) * sizeof(float))
    return scales;
  const float mean = numberAt(0);
  for (size_t i = 0; i < codes.size(); ++i)
    scales[i] = dynamicNumbers(DynamicKind::Signed)[static_cast<uint8_t>(codes[i])] *
                    numberAt(1 + i / static_cast<uint64_t>(kDynamicBlock)) +
                mean;
  return scales;
}

std::vector<std::byte> widenFourBits(std::span<const std::byte> bytes, std::span<const std::byte> scales,
                                     const FourBits &layout, DType dtype, std::span<const std::byte> rest) {
  const uint64_t size = dtypeBytes(dtype), count = elementCount(typeOf(layout, dtype)).value_or(0);
  std::vector<std::byte> wide(count * size);
  // Behind the last element, a file may have padding.
  auto fits = [&](std::span<const std::byte> given, const TensorType &type) {
    const uint64_t needed = tensorBytes(type).value_or(0);
    return layout.has_grid() ? given.size() >= needed : given.size() == needed;
  };
  if (!isWellFormed(layout) || !fits(bytes, bytesType(layout)) || !fits(scales, scalesType(layout)) ||
      !fits(rest, layout.nested() ? nestedType(layout) : zerosType(layout)))
    return wide;
  if (layout.nested()) {
    FourBits plain = layout;
    plain.clear_nested();
    const std::vector<float> flat = widenScales(scales, rest);
    return widenFourBits(bytes, std::as_bytes(std::span(flat)), plain, dtype);
  }
  const std::array<float, 16> &numbers = numbersOf(layout.code());
  auto numberAt = [&](std::span<const std::byte> codes, uint64_t at) {
    if (layout.code() == FourBits::INT8)
      return static_cast<float>(static_cast<int8_t>(codes[at]));
    return numbers[static_cast<unsigned>(codes[at / 2]) >> bitOfCode(layout.code(), at) & 15U];
  };
  auto floatAt = [](std::span<const std::byte> from, uint64_t at) {
    float value = 0;
    std::memcpy(&value, from.data() + at * sizeof(float), sizeof(float));
    return value;
  };
  const BlockGrid &grid = layout.grid();
  /// The sum of an element's block numbers times strides.
  auto inGrid = [&](uint64_t i, const Numbers &strides) {
    uint64_t sum = 0;
    for (int d = layout.dims_size(); d-- > 0;) {
      const auto extent = static_cast<uint64_t>(layout.dims(d));
      sum += i % extent / static_cast<uint64_t>(grid.blocks(d)) * static_cast<uint64_t>(strides[d]);
      i /= extent;
    }
    return sum;
  };
  forEachCode(layout, count, [&](uint64_t i, uint64_t at) {
    float number = numberAt(bytes, at);
    if (grid.zeros() != BlockGrid::NONE) {
      const uint64_t zero = inGrid(i, grid.zero_strides());
      number -= grid.zeros() == BlockGrid::CODES ? numberAt(rest, zero) : floatAt(rest, zero);
    }
    const uint64_t scale =
        layout.has_grid() ? inGrid(i, grid.scale_strides()) : at / static_cast<uint64_t>(layout.block());
    fillElements(wide.data() + i * size, dtype, 1, number * floatAt(scales, scale));
  });
  return wide;
}

const Adapter *unmergeable(const Plan &plan) {
  for (const Adapter &adapter : plan.adapters().list())
    if (adapter.dims_size() != 0)
      return &adapter;
  return nullptr;
}

TensorType valueType(const Variable &variable) {
  TensorType type = variable.type();
  if (variable.has_four_bits())
    *type.mutable_dims() = variable.four_bits().dims();
  if (variable.model_dtype() != DTYPE_NONE)
    type.set_dtype(variable.model_dtype());
  return type;
}

} // namespace tcc::plan

//===- FourBits.cpp - floating-point tensors in 4 bits an element ---------===//
#include "runtime/plan/FourBits.h"
#include "runtime/plan/DType.h"

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

std::optional<uint64_t> codeCount(const FourBits &layout) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  if (layout.dims_size() != layout.strides_size())
    return std::nullopt;
  int64_t last = 0;
  for (int d = 0; d < layout.dims_size(); ++d) {
    const int64_t extent = layout.dims(d), stride = layout.strides(d);
    if (extent < 1 || stride < 0 || (stride > 0 && extent - 1 > (kMost - last) / stride))
      return std::nullopt;
    last += (extent - 1) * stride;
  }
  return static_cast<uint64_t>(last) + 1;
}

TensorType bytesType(const FourBits &layout) {
  TensorType type;
  type.set_dtype(U8);
  type.add_dims(static_cast<int64_t>((codeCount(layout).value_or(0) + 1) / 2));
  return type;
}

TensorType scalesType(const FourBits &layout) {
  TensorType type;
  type.set_dtype(F32);
  const auto block = static_cast<uint64_t>(std::max<int64_t>(layout.block(), 1));
  type.add_dims(static_cast<int64_t>((codeCount(layout).value_or(0) + block - 1) / block));
  return type;
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
                      std::vector<float>(elementCount(scalesType(layout)).value_or(0), 0.0F)};
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
  return packed;
}

std::vector<std::byte> widenFourBits(std::span<const std::byte> bytes, std::span<const std::byte> scales,
                                     const FourBits &layout, DType dtype) {
  const uint64_t size = dtypeBytes(dtype), count = elementCount(typeOf(layout, dtype)).value_or(0);
  std::vector<std::byte> wide(count * size);
  if (bytes.size() != tensorBytes(bytesType(layout)) || scales.size() != tensorBytes(scalesType(layout)))
    return wide;
  forEachCode(layout, count, [&](uint64_t i, uint64_t at) {
    float scale = 0;
    std::memcpy(&scale, scales.data() + at / static_cast<uint64_t>(layout.block()) * sizeof(float), sizeof(float));
    const unsigned code = static_cast<unsigned>(bytes[at / 2]) >> bitOfCode(layout.code(), at) & 15U;
    const float number = layout.code() == FourBits::NF4 ? kNf4Numbers[code] : int4Number(code);
    fillElements(wide.data() + i * size, dtype, 1, number * scale);
  });
  return wide;
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

//===- FourBits.h - floating-point tensors in 4 bits an element -*- C++ -*-===//
//
// The frozen base of adapters may be stored in 4 bits (adapter.base = "nf4" or "int4"), two elements in a byte, with an
// f32 scale for each block of consecutive elements. An element's value is that of its code times the block's scale,
// rounded once to f32.
//
// NF4 is the type of QLoRA (Dettmers et al., "QLoRA: efficient finetuning of quantized LLMs", arXiv:2305.14314), with
// the code book, thresholds and order of bitsandbytes' quantize_4bit: 16 quantiles of a normal distribution in [−1, 1];
// the scale is max|w|, and w · (1 / scale) is compared with 15 thresholds. Blocks run through the whole matrix.
//
// The scales of NF4 may be nested (QLoRA's double quantisation, compress_statistics in bitsandbytes): their mean is
// subtracted, and the rest is in blocks of 256 codes of the dynamic map with an f32 magnitude (DynamicMap.h). A scale
// is number · magnitude + mean, rounded twice.
//
// INT4 has the layout and the values (q − 8) · scale of com.microsoft::MatMulNBits without zero points: a block is of
// one row, whose last block may be shorter. The element of largest magnitude becomes −8, so that the scale may be
// negative; the others become the nearest integer up to 7, ties to even.
//
// Tensors that the model's file stores in 4 bits (MatMulNBits, GatherBlockQuantized, DequantizeLinear) keep its bytes:
// their scales, and zero points if they have any, belong to blocks of a grid (BlockGrid), and their codes are INT4,
// UINT4 (counted from 0) or SINT4 (two's complement). A product reads a matrix in 8 bits (Int8.h) as a grid of INT8.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_FOURBITS_H
#define TCC_RUNTIME_PLAN_FOURBITS_H

#include "runtime/plan/plan.pb.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tcc::plan {

/// The numbers of NF4, by code, ascending.
inline constexpr std::array<float, 16> kNf4Numbers = {-1.0F,
                                                      -0.6961928009986877F,
                                                      -0.5250730514526367F,
                                                      -0.39491748809814453F,
                                                      -0.28444138169288635F,
                                                      -0.18477343022823334F,
                                                      -0.09105003625154495F,
                                                      0.0F,
                                                      0.07958029955625534F,
                                                      0.16093020141124725F,
                                                      0.24611230194568634F,
                                                      0.33791524171829224F,
                                                      0.44070982933044434F,
                                                      0.5626170039176941F,
                                                      0.7229568362236023F,
                                                      1.0F};

/// Code c + 1 begins above threshold c. They are the literals of bitsandbytes' CUDA kernel (dQuantizeNF4), the middles
/// between the numbers; four of these are ties of f32, which C++ rounds by the literal's digits.
inline constexpr std::array<float, 15> kNf4Thresholds = {
    -0.8480964004993439F,  -0.6106329262256622F,   -0.4599952697753906F, -0.33967943489551544F, -0.23460740596055984F,
    -0.13791173323988914F, -0.045525018125772476F, 0.03979014977812767F, 0.1202552504837513F,   0.2035212516784668F,
    0.2920137718319893F,   0.3893125355243683F,    0.5016634166240692F,  0.6427869200706482F,   0.8614784181118011F};

/// The number that code `code` of INT4 stands for.
constexpr float int4Number(unsigned code) { return static_cast<float>(static_cast<int>(code) - 8); }

/// The numbers of a code in 4 bits, by its 16 values; those of UINT4 for a code that is none.
const std::array<float, 16> &numbersOf(FourBits::Code code);

/// The bit of a byte at which code number `index` begins.
constexpr unsigned bitOfCode(FourBits::Code code, uint64_t index) {
  return (index % 2 == 0) == (code == FourBits::NF4) ? 4 : 0;
}

/// The block sizes of bitsandbytes and MatMulNBits that are supported.
constexpr bool isBlockOfFourBits(int64_t block) { return block == 32 || block == 64 || block == 128 || block == 256; }

/// How a tensor of `dims` is stored: its elements in row-major order of [all other dims, dims with `inRow`].
FourBits fourBitsOf(FourBits::Code code, int64_t block, std::span<const int64_t> dims, std::span<const bool> inRow);

/// True if `layout` is complete and not too large: a known code, and either a block or a grid for each dim.
bool isWellFormed(const FourBits &layout);

/// The number of codes up to the last element's; nothing if the message is malformed or too large.
std::optional<uint64_t> codeCount(const FourBits &layout);
/// The numbers of scales and of zero points up to the last block's, of a well-formed layout.
uint64_t scaleCount(const FourBits &layout);
uint64_t zeroCount(const FourBits &layout);

/// The types of the bytes (I8 for INT8), of the scales (U8 if nested) and of the zero points (U8 if they are codes).
TensorType bytesType(const FourBits &layout);
TensorType scalesType(const FourBits &layout);
TensorType zerosType(const FourBits &layout);
/// The type of the numbers of nested scales: their mean, then the magnitude of each block of codes.
TensorType nestedType(const FourBits &layout);

/// Scales as codes of the dynamic map, and the numbers of nestedType.
struct NestedScales {
  std::vector<uint8_t> codes;
  std::vector<float> numbers;
};
NestedScales nestScales(std::span<const float> scales);
/// The scales again; of as many numbers as the codes need.
std::vector<float> widenScales(std::span<const std::byte> codes, std::span<const std::byte> numbers);

struct PackedTensor {
  std::vector<uint8_t> bytes;
  std::vector<float> scales; ///< empty if they are nested
  NestedScales nested;       ///< empty if they are not

  std::span<const std::byte> scaleBytes() const {
    return scales.empty() ? std::as_bytes(std::span(nested.codes)) : std::as_bytes(std::span(scales));
  }
};
/// Rounds `elements`, of `dtype` and the layout's dims. Nothing if one of them is infinite or NaN, or if their number
/// is another.
std::optional<PackedTensor> roundToFourBits(std::span<const std::byte> elements, DType dtype, const FourBits &layout);

/// The values as elements of `dtype`, a floating-point type; zeros if the layout needs other numbers of bytes, scales
/// or zero points (with a grid: more of them). `rest`: the zero points, or the numbers of nested scales.
std::vector<std::byte> widenFourBits(std::span<const std::byte> bytes, std::span<const std::byte> scales,
                                     const FourBits &layout, DType dtype, std::span<const std::byte> rest = {});

/// The first adapter of a matrix that the model's file stores in 4 bits, to which no export can add it; null without
/// one.
const Adapter *unmergeable(const Plan &plan);

/// The type of the model's tensor that a variable holds: of a value in 8 or 4 bits, the type that it is rounded from.
TensorType valueType(const Variable &variable);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_FOURBITS_H

//===- DataChecksum.cpp - do ranks read the same data? ---------------------===//
#include "runtime/train/DataChecksum.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/PlanFile.h"

#include <algorithm>
#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr uint64_t kMostBytes = 256 << 20, kPiece = 4096;
constexpr uint64_t kMostCopied = 32 << 20, kMostSamples = 1 << 16, kMostComputed = 64, kMostFiles = 4096;

/// Calls `take` with `most` numbers below `count`, or with all if there are fewer: one from each of `most` equal parts,
/// at a pseudorandom position, so that periodic data is not always sampled at the same phase. The first and the last
/// number are included.
template <typename Take> void forEachOf(uint64_t count, uint64_t most, Take take) {
  if (count <= most) {
    for (uint64_t i = 0; i < count; ++i)
      take(i);
    return;
  }
  for (uint64_t i = 0; i < most; ++i) {
    const auto begin = static_cast<uint64_t>(static_cast<unsigned __int128>(i) * count / most);
    const auto end = static_cast<uint64_t>(static_cast<unsigned __int128>(i + 1) * count / most);
    take(i == 0 ? 0 : i + 1 == most ? count - 1 : begin + mixedChecksum(i, count) % (end - begin));
  }
}

uint64_t checksumOf(std::span<const std::byte> bytes, uint64_t most) {
  if (bytes.size() <= most)
    return plan::hashBytes(bytes.data(), bytes.size());
  uint64_t sum = bytes.size();
  const uint64_t pieces = (bytes.size() + kPiece - 1) / kPiece;
  forEachOf(pieces, std::max<uint64_t>(most / kPiece, 2), [&](uint64_t i) {
    const auto piece = bytes.subspan(i * kPiece, std::min<uint64_t>(kPiece, bytes.size() - i * kPiece));
    sum = mixedChecksum(sum, plan::hashBytes(piece.data(), piece.size()));
  });
  return sum;
}

uint64_t checksumOf(const Column &column) {
  uint64_t sum = 0;
  const uint64_t bytes = std::max<uint64_t>(column.sampleBytes(), 1);
  const uint64_t most =
      column.isComputed() ? kMostComputed : std::clamp<uint64_t>(kMostCopied / bytes, 2, kMostSamples);
  std::vector<std::byte> sample(column.sampleBytes());
  forEachOf(column.samples(), most, [&](uint64_t i) {
    // A sample that cannot be read is reported when a batch needs it.
    const bool read = column.read(i, sample.data()).ok();
    sum = mixedChecksum(sum, read ? plan::hashBytes(sample.data(), sample.size()) : 0);
  });
  if (column.isComputed())
    forEachOf(column.samples(), kMostFiles, [&](uint64_t i) {
      std::error_code code;
      if (const std::string place = column.place(i); !place.empty())
        if (const uintmax_t size = std::filesystem::file_size(place, code); !code)
          sum = mixedChecksum(sum, size);
    });
  return sum;
}
} // namespace

uint64_t tcc::runtime::mixedChecksum(uint64_t before, uint64_t next) {
  const uint64_t pair[2] = {before, next};
  return plan::hashBytes(pair, sizeof(pair));
}

uint64_t tcc::runtime::dataChecksum(const std::vector<std::pair<std::string, const Column *>> &columns) {
  uint64_t sum = columns.size(), bytesInAll = 0;
  for (const auto &[input, column] : columns)
    bytesInAll += column->contiguous().size();
  const uint64_t share = bytesInAll <= kMostBytes ? kMostBytes : kMostBytes / columns.size();
  for (const auto &[input, column] : columns) {
    const std::string type = plan::typeName(column->type());
    sum = mixedChecksum(sum, plan::hashBytes(type.data(), type.size()));
    const std::span<const std::byte> bytes = column->contiguous();
    sum = mixedChecksum(sum, bytes.empty() ? checksumOf(*column) : checksumOf(bytes, share));
  }
  return sum;
}

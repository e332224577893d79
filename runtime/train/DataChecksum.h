//===- DataChecksum.h - do ranks read the same data? -----------------------===//
#ifndef TCC_RUNTIME_TRAIN_DATACHECKSUM_H
#define TCC_RUNTIME_TRAIN_DATACHECKSUM_H

#include "runtime/data/Column.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tcc::runtime {

/// A checksum of the columns that a reader reads (BatchReader::columns), at a bounded cost. It covers each column's
/// type and
/// - for columns in memory or in mapped files: all bytes, if they have at most 256 MiB together; else an equal share of
///   256 MiB for each, in evenly spread pieces of 4 KiB if that is less than the column;
/// - for columns whose samples are copied: all samples, or at most 65,536 samples and 32 MiB of them, evenly spread;
/// - for columns whose samples are decoded or transformed: 64 samples, and the sizes of up to 4,096 of their files.
/// It depends on values alone, not on paths or times, so copies of the data on several machines have the same checksum.
uint64_t dataChecksum(const std::vector<std::pair<std::string, const Column *>> &columns);

/// Combines the checksum so far with the next one.
uint64_t mixedChecksum(uint64_t before, uint64_t next);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_DATACHECKSUM_H

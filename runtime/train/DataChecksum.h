//===- DataChecksum.h - do ranks read the same data? -----------------------===//
#ifndef TCC_RUNTIME_TRAIN_DATACHECKSUM_H
#define TCC_RUNTIME_TRAIN_DATACHECKSUM_H

#include "runtime/data/Column.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tcc::runtime {

/// A checksum of the columns that a reader reads (BatchReader::columns), at a bounded cost: of each column its type,
/// and
/// - all bytes of columns in memory or in mapped files, if these have at most 256 MiB together; else of each an equal
///   share of 256 MiB, in evenly spread pieces of 4 KiB where that is not all of it;
/// - of columns whose samples are copied, all samples up to 32 MiB and 65,536 of them, else so many, evenly spread;
/// - of columns whose samples are decoded or transformed, 64 samples, and the sizes of up to 4,096 of their files.
/// It depends on values alone, not on paths or times, so copies of the data on several machines have the same.
uint64_t dataChecksum(const std::vector<std::pair<std::string, const Column *>> &columns);

/// One checksum of those before and the next.
uint64_t mixedChecksum(uint64_t before, uint64_t next);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_DATACHECKSUM_H

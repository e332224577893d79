//===- DataChecksum.h - do ranks read the same data? -----------------------===//
#ifndef TCC_RUNTIME_TRAIN_DATACHECKSUM_H
#define TCC_RUNTIME_TRAIN_DATACHECKSUM_H

#include "runtime/data/BatchReader.h"

#include <cstdint>

namespace tcc::runtime {

/// A checksum of what a reader reads, at a bounded cost: of each column its type, and
/// - all bytes of a column in memory or in a mapped file, as far as the columns together have at most 256 MiB; of
/// larger
///   ones pieces of 4 KiB, evenly spread, 256 MiB in all;
/// - of columns whose samples are copied, all samples up to 32 MiB and 65,536 of them, else so many, evenly spread;
/// - of columns whose samples are decoded or transformed, 64 samples, and the sizes of up to 4,096 of their files.
/// It depends on values alone, not on paths or times, so copies of the data on several machines have the same.
uint64_t dataChecksum(const BatchReader &reader);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_DATACHECKSUM_H

//===- Epochs.h - the samples of an epoch in a sampler's order ------------===//
#ifndef TCC_TEST_UNIT_DATA_EPOCHS_H
#define TCC_TEST_UNIT_DATA_EPOCHS_H

#include "runtime/data/Sampler.h"

#include <cstdint>
#include <vector>

namespace tcc::test {

inline std::vector<uint64_t> epochOf(const runtime::Sampler &sampler, uint64_t epoch) {
  std::vector<uint64_t> all, indices;
  for (uint64_t batch = 0; batch < sampler.batchesPerEpoch(); ++batch) {
    sampler.batchOf(epoch, batch, indices);
    all.insert(all.end(), indices.begin(), indices.end());
  }
  return all;
}

} // namespace tcc::test

#endif // TCC_TEST_UNIT_DATA_EPOCHS_H

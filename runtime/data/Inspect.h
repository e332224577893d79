//===- Inspect.h - trun data: contents and damaged samples ----------------===//
#ifndef TCC_RUNTIME_DATA_INSPECT_H
#define TCC_RUNTIME_DATA_INSPECT_H

#include "runtime/data/BatchReader.h"

#include <functional>

namespace tcc::runtime {

/// The values of one column.
struct ColumnSummary {
  std::string name;
  plan::TensorType type;
  double least = 0, greatest = 0; ///< of the finite values; 0 where there is none
  bool anyFinite = false;
  uint64_t nans = 0, infinities = 0;
  uint64_t missing = 0;                    ///< samples without a value
  std::vector<uint64_t> smallest = {}, largest = {}; ///< extents by axis, of samples that may differ in size
  std::string unusable = {};               ///< why it holds no numbers; empty for texts
  bool texts = false;
  std::vector<std::string> distinct = {}; ///< the distinct texts, sorted, up to a limit
  bool manyDistinct = false;               ///< there are more than that limit
};

/// A sample that cannot be used, and why.
struct DamagedSample {
  uint64_t sample = 0;
  std::string problem;
};

struct DataSummary {
  std::vector<ColumnSummary> columns;
  uint64_t samples = 0, damaged = 0; ///< `samples`: most of any column
};

/// Reads every sample of every column once and calls `report` for each that is damaged: it cannot be decoded, or holds
/// NaN. With readers, one for each shape of an entry, its inputs are checked too, as training reads them: conversions,
/// indices, classes.
DataSummary inspectData(const Dataset &dataset, std::span<BatchReader *const> readers,
                        const std::function<void(const DamagedSample &)> &report);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_INSPECT_H

//===- SampleWeights.h - how often samples are drawn -----------------------===//
#ifndef TCC_RUNTIME_DATA_SAMPLEWEIGHTS_H
#define TCC_RUNTIME_DATA_SAMPLEWEIGHTS_H

#include "runtime/data/Dataset.h"

namespace tcc::runtime {

/// Cumulative weights of all samples, for a Sampler. Balanced: each class of `column` (default `label`) has the same sum;
/// a row of class probabilities counts for its largest. Else the values of `column` (default `weight`), one a sample.
Expected<std::vector<double>> sampleWeights(const Dataset &dataset, bool balanced, std::string column);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_SAMPLEWEIGHTS_H

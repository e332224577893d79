//===- SampleWeights.h - how often samples are drawn -----------------------===//
#ifndef TCC_RUNTIME_DATA_SAMPLEWEIGHTS_H
#define TCC_RUNTIME_DATA_SAMPLEWEIGHTS_H

#include "runtime/data/Dataset.h"

namespace tcc::runtime {

/// Cumulative weights of all samples, for a Sampler. `balanced`: each class of `column` (default `label`) gets the same
/// total weight; a row of class probabilities counts as its largest class. Else the weights are the values of `column`
/// (default `weight`), one per sample.
Expected<std::vector<double>> sampleWeights(const Dataset &dataset, bool balanced, std::string column);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_SAMPLEWEIGHTS_H

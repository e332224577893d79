//===- SampleWeights.cpp - how often samples are drawn ---------------------===//
#include "runtime/data/SampleWeights.h"
#include "runtime/data/Convert.h"
#include "runtime/data/Sampler.h"
#include "support/Advice.h"

#include <algorithm>

using namespace tcc;
using namespace tcc::runtime;

Expected<std::vector<double>> tcc::runtime::sampleWeights(const Dataset &dataset, bool balanced, std::string name) {
  if (name.empty())
    name = balanced ? "label" : "weight";
  const Column *column = dataset.find(name);
  if (!column)
    return error("{}: data.sampler = \"{}\" reads the column '{}', but the data has {}; name the right one with {}",
                 dataset.path, balanced ? "balanced" : "weighted", name, dataset.describeColumns(),
                 advice::set("data.weights", "COLUMN"));
  const plan::TensorType &type = column->type();
  const bool floating = plan::isFloatingPoint(type.dtype()), rows = balanced && floating && type.dims_size() == 2;
  if (!rows && (type.dims_size() != 1 || (balanced && floating)))
    return error("{}: column '{}' is {}; data.sampler = \"{}\" needs one {} a sample", dataset.path, name,
                 plan::typeName(type), balanced ? "balanced" : "weighted", balanced ? "class, an integer" : "number");
  std::vector<double> values(column->samples());
  std::vector<std::byte> sample(column->sampleBytes());
  for (uint64_t i = 0; i < values.size(); ++i) {
    if (Status status = column->read(i, sample.data()); !status.ok())
      return status;
    if (!rows) {
      values[i] = floating ? floatElement(sample.data(), type.dtype(), 0)
                           : static_cast<double>(integerElement(sample.data(), type.dtype(), 0));
      continue;
    }
    uint64_t best = 0;
    for (uint64_t k = 1; k < static_cast<uint64_t>(type.dims(1)); ++k)
      if (floatElement(sample.data(), type.dtype(), k) > floatElement(sample.data(), type.dtype(), best))
        best = k;
    values[i] = static_cast<double>(best);
  }
  if (balanced) {
    std::map<double, double> counts;
    for (double value : values)
      ++counts[value];
    for (double &value : values)
      value = 1 / counts[value];
  }
  auto sums = cumulativeWeights(values);
  return sums ? sums : sums.status().withContext(fmt::format("{}: column '{}'", dataset.path, name));
}

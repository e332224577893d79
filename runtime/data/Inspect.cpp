//===- Inspect.cpp - trun data: contents and damaged samples --------------===//
#include "runtime/data/Inspect.h"
#include "runtime/data/Convert.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Adds the values of one sample to the summary; true if one is NaN.
bool addValues(ColumnSummary &summary, std::span<const std::byte> values) {
  plan::DType dtype = summary.type.dtype();
  uint64_t count = values.size() / std::max<uint64_t>(plan::dtypeBytes(dtype), 1), nans = summary.nans;
  bool floating = plan::isFloatingPoint(dtype);
  for (uint64_t i = 0; i < count; ++i) {
    double value =
        floating ? floatElement(values.data(), dtype, i) : static_cast<double>(integerElement(values.data(), dtype, i));
    if (std::isnan(value)) {
      ++summary.nans;
    } else if (std::isinf(value)) {
      ++summary.infinities;
    } else {
      summary.least = summary.anyFinite ? std::min(summary.least, value) : value;
      summary.greatest = summary.anyFinite ? std::max(summary.greatest, value) : value;
      summary.anyFinite = true;
    }
  }
  return summary.nans != nans;
}

void addTexts(ColumnSummary &summary, const Column &column) {
  constexpr size_t kMost = 100;
  std::set<std::string_view> distinct;
  for (uint64_t sample = 0; sample < column.samples(); ++sample) {
    if (column.lacks(sample))
      ++summary.missing;
    else if (!summary.manyDistinct)
      distinct.insert(column.textOf(sample));
    summary.manyDistinct |= distinct.size() > kMost;
  }
  if (!summary.manyDistinct)
    summary.distinct.assign(distinct.begin(), distinct.end());
}
} // namespace

DataSummary tcc::runtime::inspectData(const Dataset &dataset, std::span<BatchReader *const> readers,
                                      const std::function<void(const DamagedSample &)> &report) {
  DataSummary result;
  for (const auto &column : dataset.columns) {
    result.columns.push_back({.name = column->name(), .type = column->type()});
    ColumnSummary &summary = result.columns.back();
    summary.texts = column->holdsTexts();
    if (summary.texts)
      addTexts(summary, *column);
    else
      summary.unusable = column->usable().message();
    if (column->sampleBytes() != 0 || summary.texts ||
        column->isSized()) // a shape such as [10^15, 0] has no values to inspect
      result.samples = std::max(result.samples, column->samples());
  }
  std::vector<std::byte> space;
  std::vector<uint32_t> own;
  std::vector<uint64_t> extents;
  constexpr std::byte kZeros[16] = {};
  /// Reads a sample whose size need not be that of the others.
  auto readSized = [&](const Column &column, ColumnSummary &summary, uint64_t sample) -> Status {
    own.resize(static_cast<size_t>(column.type().dims_size()) - 1);
    if (Status status = column.extentsOf(sample, own); !status.ok())
      return status;
    extents.assign(own.begin(), own.end());
    uint64_t bytes = plan::dtypeBytes(column.type().dtype());
    const std::span<const std::byte> zero = std::span(kZeros).first(bytes);
    for (uint64_t extent : extents)
      bytes *= extent;
    space.resize(bytes);
    if (summary.smallest.empty())
      summary.smallest = summary.largest = extents;
    for (size_t axis = 0; axis < extents.size(); ++axis) {
      summary.smallest[axis] = std::min(summary.smallest[axis], extents[axis]);
      summary.largest[axis] = std::max(summary.largest[axis], extents[axis]);
    }
    return column.drawTo(sample, {}, {extents, zero}, space.data());
  };
  for (uint64_t sample = 0; sample < result.samples; ++sample) {
    std::string problem;
    if (!readers.empty() && sample < readers.front()->samples()) {
      const auto holder = std::ranges::find_if(readers, [&](const BatchReader *one) { return one->holds(sample); });
      problem = (holder == readers.end() ? readers.back() : *holder)->check(sample).message();
    }
    for (size_t i = 0; i < dataset.columns.size(); ++i) {
      const Column &column = *dataset.columns[i];
      if (sample >= column.samples() || (column.sampleBytes() == 0 && !column.isSized()))
        continue;
      if (column.lacks(sample)) {
        ++result.columns[i].missing;
        continue;
      }
      // Images must have one size for a plan that does not pad them.
      const bool anySize =
          column.isSized() && (!column.isComputed() || readers.empty() ||
                               std::ranges::any_of(readers, [&](const BatchReader *one) { return one->pads(column); }));
      space.resize(anySize ? 0 : column.sampleBytes());
      Status status = anySize ? readSized(column, result.columns[i], sample) : column.read(sample, space.data());
      if (status.ok() && addValues(result.columns[i], space))
        status = error("{}: column '{}', sample {}: NaN", dataset.path, column.name(), sample);
      if (problem.empty())
        problem = status.message();
    }
    if (problem.empty())
      continue;
    ++result.damaged;
    report({sample, problem});
  }
  return result;
}

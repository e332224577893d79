//===- Standardise.cpp - columns of mean 0 and deviation 1 -----------------===//
//
// Mean and deviation are computed in one pass over the training data in the order of its samples (Welford's recurrence,
// in f64), so they are the same with any number of threads. A run keeps them (ColumnFacts).
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Convert.h"
#include "runtime/data/Formats.h"
#include "runtime/data/Table.h"
#include "support/Advice.h"

#include <cmath>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

namespace {
class StandardisedColumn final : public Column {
public:
  StandardisedColumn(std::unique_ptr<Column> base, plan::TensorType type, ColumnFacts::Standard standard,
                     uint64_t inner)
      : Column(base->name(), std::move(type)), base(std::move(base)), standard(std::move(standard)), inner(inner) {}

  bool mayLack() const override { return base->mayLack(); }
  bool lacks(uint64_t index) const override { return base->lacks(index); }
  std::string place(uint64_t index) const override { return base->place(index); }
  uint64_t hostBytes() const override { return base->hostBytes(); }
  bool isComputed() const override { return base->isComputed(); }
  Status read(uint64_t index, std::byte *destination) const override { return draw(index, {}, destination); }
  Status draw(uint64_t index, const Draw &draw, std::byte *destination) const override {
    SampleMemory sample(base->sampleBytes());
    Status status = base->draw(index, draw, sample.data());
    const plan::DType dtype = base->type().dtype();
    for (uint64_t i = 0, count = sampleBytes() / sizeof(float); status.ok() && i < count; ++i) {
      const size_t which = standard.mean.size() == 1 ? 0 : i / inner;
      const double value = numberElement(sample.data(), dtype, i);
      const auto result = static_cast<float>((value - standard.mean[which]) / standard.deviation[which]);
      if (std::isfinite(value) && !std::isfinite(result))
        return error("column '{}', sample {}: value {} standardised does not fit f32", name(), index, value);
      std::memcpy(destination + i * sizeof(float), &result, sizeof(float));
    }
    return status;
  }

private:
  std::unique_ptr<Column> base;
  ColumnFacts::Standard standard;
  uint64_t inner; ///< consecutive elements that share constants, if there are several constants
};

/// Measures `constants` runs of `inner` elements in each sample. If `tolerant`, unusable samples are left out.
Expected<ColumnFacts::Standard> measure(const Dataset &dataset, const Column &column, uint64_t constants,
                                        uint64_t inner, bool tolerant) {
  ColumnFacts::Standard standard{std::vector<double>(constants), std::vector<double>(constants)};
  std::vector<uint64_t> counts(constants);
  std::vector<std::byte> sample(column.sampleBytes());
  const plan::DType dtype = column.type().dtype();
  for (uint64_t index = 0; index < column.samples(); ++index) {
    Status status = column.read(index, sample.data());
    if (status.ok())
      if (auto bad = firstNonFinite(sample.data(), dtype, constants * inner, /*infinities=*/true))
        status = error("{}: column '{}', sample {}: {} has no mean; correct the data", dataset.path, column.name(),
                       index, elementText(sample.data(), dtype, *bad));
    if (!status.ok() && tolerant)
      continue;
    if (!status.ok())
      return status;
    for (uint64_t i = 0; i < constants * inner; ++i) {
      const size_t which = i / inner;
      const double value = numberElement(sample.data(), dtype, i), before = value - standard.mean[which];
      standard.mean[which] += before / static_cast<double>(++counts[which]);
      standard.deviation[which] += before * (value - standard.mean[which]);
    }
  }
  for (size_t which = 0; which < constants; ++which) {
    const double deviation =
        counts[which] == 0 ? 0 : std::sqrt(standard.deviation[which] / static_cast<double>(counts[which]));
    if (!std::isfinite(deviation) || !std::isfinite(standard.mean[which]))
      return error("{}: column '{}': its values are too large to standardise", dataset.path, column.name());
    // Constant elements become 0 with any deviation; avoid a division by 0.
    standard.deviation[which] = deviation > 0 ? deviation : 1;
  }
  return standard;
}
} // namespace

Status formats::standardise(std::unique_ptr<Column> &column, const recipe::TransformSpec &spec, int number,
                            Dataset &dataset, const DatasetOptions &options) {
  if (Status status = column->usable(); !status.ok())
    return status.withContext(spec.place());
  plan::TensorType type = column->type();
  const int rank = type.dims_size();
  if (rank == 0)
    return error("{}: column '{}' is {}; it needs a column of samples", spec.place(), column->name(),
                 columnTypeName(*column));
  uint64_t elements = 1;
  for (int axis = 1; axis < rank; ++axis)
    elements *= static_cast<uint64_t>(type.dims(axis));
  std::string per = spec.word("per");
  if (per.empty())
    per = rank <= 2 ? "element" : "channel";
  if (per == "channel" && rank < 2)
    return error("{}: column '{}' is {}: a sample has no channels; leave `per` out", spec.place(), column->name(),
                 columnTypeName(*column));
  const uint64_t constants = per == "element" ? elements : per == "channel" ? static_cast<uint64_t>(type.dims(1)) : 1;
  const std::string key = number == 1 ? column->name() : fmt::format("{}#{}", column->name(), number);
  auto known = options.facts.standards.find(key);
  if (known == options.facts.standards.end() && !options.learnsFacts)
    return error(
        "{}: mean and deviation of column '{}' come from the training data, and none are known here: evaluate and "
        "predict with {}, which keeps them, or write them into the recipe: kind = \"normalise\"",
        spec.place(), column->name(), advice::option("from", "RUN"));
  if (known != options.facts.standards.end()) {
    if (known->second.mean.size() != constants)
      return error("{}: column '{}' is {}, the run was trained with {} means of it", spec.place(), column->name(),
                   columnTypeName(*column), known->second.mean.size());
    dataset.facts.standards[key] = known->second;
  } else if (elements == 0 || constants == 0) {
    dataset.facts.standards[key] = {};
  } else {
    const bool tolerant = std::strtoull(settingText(options.settings, "max_bad").c_str(), nullptr, 10) != 0;
    auto measured = measure(dataset, *column, constants, elements / constants, tolerant);
    if (!measured)
      return measured.status();
    dataset.facts.standards[key] = measured.take();
  }
  type.set_dtype(plan::F32);
  column = std::make_unique<StandardisedColumn>(std::move(column), std::move(type), dataset.facts.standards[key],
                                                constants == 0 ? 1 : elements / constants);
  return Status();
}

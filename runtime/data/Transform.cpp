//===- Transform.cpp - what happens to a column before the model sees it -===//
//
// `[[data.transform]]` tables, applied in order, each to one floating-point column, one sample at a time:
//   normalise  mean, std   (x - mean[c]) / std[c]; c is the first axis of the sample; one number serves all channels
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

using namespace tcc;
using namespace tcc::runtime;
using nlohmann::json;

namespace {
/// (x[c, …] - mean[c]) / std[c] in f32.
class NormalisedColumn : public Column {
public:
  NormalisedColumn(std::unique_ptr<Column> whole, std::vector<float> mean, std::vector<float> deviation)
      : Column(whole->name(), whole->type()), base(std::move(whole)), mean(std::move(mean)),
        deviation(std::move(deviation)) {}

  plan::Status read(uint64_t index, std::byte *destination) const override {
    plan::Status status = base->read(index, destination);
    if (!status.ok())
      return status;
    auto *values = reinterpret_cast<float *>(destination);
    uint64_t count = sampleBytes() / 4, channels = mean.size(), plane = count / channels;
    for (uint64_t c = 0; c < channels; ++c)
      for (uint64_t i = 0; i < plane; ++i)
        values[c * plane + i] = (values[c * plane + i] - mean[c]) / deviation[c];
    return plan::Status();
  }
  std::string place(uint64_t index) const override { return base->place(index); }
  uint64_t hostBytes() const override { return base->hostBytes(); }

private:
  std::unique_ptr<Column> base;
  std::vector<float> mean, deviation;
};

/// A number, or an array of them, as one value a channel; empty where it is neither.
std::vector<float> numbersOf(const json &value) {
  std::vector<float> numbers;
  if (value.is_number())
    numbers.push_back(value.get<float>());
  if (value.is_array())
    for (const json &item : value) {
      if (!item.is_number())
        return {};
      numbers.push_back(item.get<float>());
    }
  return numbers;
}

plan::Status applyOne(Dataset &dataset, const json &table, size_t number) {
  std::string where = fmt::format("data.transform {}", number);
  if (!table.is_object() || !table.contains("column") || !table.contains("kind") || !table["column"].is_string() ||
      !table["kind"].is_string())
    return plan::error("{}: it needs `column` and `kind`", where);
  std::string name = table["column"].get<std::string>(), kind = table["kind"].get<std::string>();
  std::unique_ptr<Column> *column = nullptr;
  for (auto &candidate : dataset.columns)
    if (candidate->name() == name)
      column = &candidate;
  if (!column)
    return plan::error("{}: {} has no column '{}'; it has {}", where, dataset.path, name, dataset.describeColumns());
  if ((*column)->type().dtype() != plan::F32 || (*column)->type().dims_size() < 1)
    return plan::error("{}: column '{}' is {}; only f32 columns can be transformed", where, name,
                       plan::typeName((*column)->type()));
  std::vector<float> mean, deviation;
  std::vector<std::string> known;
  if (kind == "normalise" || kind == "normalize") {
    known = {"column", "kind", "mean", "std"};
    if (table.contains("mean"))
      mean = numbersOf(table["mean"]);
    if (table.contains("std"))
      deviation = numbersOf(table["std"]);
  } else {
    return plan::error("{}: kind '{}' is unknown; known is normalise", where, kind);
  }
  for (const auto &[key, value] : table.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return plan::error("{}: {} has no argument '{}'", where, kind, key);
  size_t channels = std::max(mean.size(), deviation.size());
  if (mean.size() == 1)
    mean.resize(channels, mean.front());
  if (deviation.size() == 1)
    deviation.resize(channels, deviation.front());
  int64_t axis = (*column)->type().dims_size() > 1 ? (*column)->type().dims(1) : 1;
  if (channels == 0 || mean.size() != deviation.size() || (channels != 1 && int64_t(channels) != axis))
    return plan::error("{}: {} needs one number, or one for each of the {} channels of '{}'", where, kind, axis, name);
  for (float value : deviation)
    if (!(value != 0.0f) || !(value - value == 0.0f))
      return plan::error("{}: {} divides by {}", where, kind, value);
  *column = std::make_unique<NormalisedColumn>(std::move(*column), std::move(mean), std::move(deviation));
  return plan::Status();
}
} // namespace

plan::Status formats::applyTransforms(Dataset &dataset, const std::string &transforms) {
  json tables = json::parse(transforms, nullptr, false);
  if (!tables.is_array())
    return plan::error("data.transform: not an array of tables: {}", transforms);
  for (size_t i = 0; i < tables.size(); ++i)
    if (plan::Status status = applyOne(dataset, tables[i], i + 1); !status.ok())
      return status;
  return plan::Status();
}

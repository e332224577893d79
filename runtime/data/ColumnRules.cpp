//===- ColumnRules.cpp - data.categories, data.missing, data.columns ---------===//
//
// Texts of a column become integers, and missing values are filled in. The parameters that depend on the training data
// (sorted categories, means) are facts, which a run keeps and applies to later data.
//
//===----------------------------------------------------------------------===//
#include "support/recipe/ColumnRules.h"
#include "runtime/data/Convert.h"
#include "runtime/data/Table.h"
#include "support/Advice.h"
#include "support/TerminalText.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/ranges.h>
#include <set>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr std::string_view kCategories = "categories.", kMissing = "missing.", kColumns = "columns.";
constexpr int64_t kNone = -1;

/// A column's texts as integers; kNone for a missing value.
class CategoryColumn final : public Column {
public:
  CategoryColumn(std::unique_ptr<Column> texts, plan::TensorType type, std::vector<int64_t> given)
      : Column(texts->name(), std::move(type)), texts(std::move(texts)), numbers(std::move(given)),
        gaps(std::find(numbers.begin(), numbers.end(), kNone) != numbers.end()) {}

  bool isText() const override { return true; }
  bool mayLack() const override { return gaps; }
  bool lacks(uint64_t index) const override { return numbers[index] == kNone; }
  std::string place(uint64_t index) const override { return texts->place(index); }
  uint64_t hostBytes() const override { return texts->hostBytes() + numbers.size() * sizeof(int64_t); }
  std::span<const std::byte> contiguous() const override {
    return gaps ? std::span<const std::byte>() : std::as_bytes(std::span(numbers));
  }
  Status read(uint64_t index, std::byte *destination) const override {
    if (lacks(index))
      return error("column '{}', {}: the value is missing ('{}'); correct the file, or name the category that stands "
                   "for missing values: {}",
                   name(), place(index), texts->textOf(index), advice::set("data.missing." + name(), "TEXT"));
    std::memcpy(destination, &numbers[index], sizeof(int64_t));
    return Status();
  }

private:
  std::unique_ptr<Column> texts;
  std::vector<int64_t> numbers;
  bool gaps;
};

/// A column whose missing values are replaced by `fills`, one for each element of a sample.
class FilledColumn final : public Column {
public:
  FilledColumn(std::unique_ptr<Column> base, std::vector<double> fills)
      : Column(base->name(), base->type()), base(std::move(base)), fills(std::move(fills)) {}

  bool isText() const override { return base->isText(); }
  std::string place(uint64_t index) const override { return base->place(index); }
  uint64_t hostBytes() const override { return base->hostBytes(); }
  Status read(uint64_t index, std::byte *destination) const override {
    std::vector<uint64_t> missing;
    Status status = base->readPresent(index, destination, missing);
    const uint64_t width = plan::dtypeBytes(type().dtype());
    for (uint64_t element : missing)
      plan::fillElements(destination + element * width, type().dtype(), 1, fills[element]);
    return status;
  }

private:
  std::unique_ptr<Column> base;
  std::vector<double> fills;
};

/// Several columns concatenated to one vector per sample. They belong to the same data set, which outlives this column.
class SideBySideColumn final : public Column {
public:
  SideBySideColumn(std::string name, plan::TensorType type, std::vector<const Column *> parts)
      : Column(std::move(name), std::move(type)), parts(std::move(parts)) {}

  bool isText() const override {
    return std::all_of(parts.begin(), parts.end(), [](const Column *part) { return part->isText(); });
  }
  bool mayLack() const override {
    return std::any_of(parts.begin(), parts.end(), [](const Column *part) { return part->mayLack(); });
  }
  bool lacks(uint64_t index) const override {
    return std::any_of(parts.begin(), parts.end(), [&](const Column *part) { return part->lacks(index); });
  }
  std::string place(uint64_t index) const override { return parts.front()->place(index); }
  Status read(uint64_t index, std::byte *destination) const override {
    const plan::DType dtype = type().dtype();
    for (const Column *part : parts) {
      const uint64_t bytes = part->sampleBytes();
      SampleMemory memory(bytes);
      if (Status status = part->read(index, memory.data()); !status.ok())
        return status;
      const plan::DType from = part->type().dtype();
      const uint64_t count = bytes / std::max<uint64_t>(plan::dtypeBytes(from), 1);
      if (auto bad = convertElements(memory.data(), from, destination, dtype, count))
        return error("column '{}', sample {}: value {} does not fit the {} of column '{}'", part->name(), index,
                     elementText(memory.data(), from, *bad), plan::dtypeName(dtype), name());
      destination += count * plan::dtypeBytes(dtype);
    }
    return Status();
  }

private:
  std::vector<const Column *> parts;
};

std::string listed(const std::vector<std::string> &names) {
  constexpr size_t kMost = 10;
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + std::min(names.size(), kMost), ", "));
  return names.size() <= kMost ? text : text + fmt::format(" and {} more", names.size() - kMost);
}

class Rules {
public:
  Rules(Dataset &dataset, const DatasetOptions &options) : dataset(dataset), options(options) {}

  Status apply() {
    for (const auto &[key, text] : options.settings) {
      const bool categories = key.starts_with(kCategories);
      if (!categories && !key.starts_with(kMissing))
        continue;
      const std::string name = key.substr((categories ? kCategories : kMissing).size());
      const bool all = !categories && name == "*";
      if (!all && !dataset.find(name)) {
        if (options.training) // other data may lack targets
          return error("data.{}: {} has no such column; it has {}", key, dataset.path, dataset.describeColumns());
        continue;
      }
      if (categories) {
        auto rule = recipe::parseCategoryRule(text);
        Status status = rule ? makeCategories(name, *rule) : rule.status();
        if (!status.ok())
          return status;
      }
    }
    for (auto &column : dataset.columns) {
      if (!column->mayLack() || !column->usable().ok())
        continue;
      auto rule = missingRule(column->name());
      if (!rule)
        return rule.status();
      if (*rule && dataset.facts.categories.contains(column->name()) == false)
        if (Status status = fill(column, **rule); !status.ok())
          return status;
    }
    for (const auto &[key, text] : options.settings)
      if (key.starts_with(kColumns))
        if (Status status = joinColumns(key.substr(kColumns.size()), text); !status.ok())
          return status.withContext("data." + key);
    return Status();
  }

private:
  Expected<std::optional<recipe::MissingRule>> missingRule(const std::string &column) const {
    for (const std::string &name : {column, std::string("*")}) {
      auto found = options.settings.find(std::string(kMissing) + name);
      if (found == options.settings.end())
        continue;
      auto rule = recipe::parseMissingRule(found->second);
      if (!rule)
        return rule.status().withContext("data.missing." + name);
      return std::optional(rule.take());
    }
    return std::optional<recipe::MissingRule>();
  }

  /// The error that a fact is not known, because only training data determines it.
  Status unknown(const std::string &key, const char *what) const {
    return error("data.{}: {} comes from the training data, and none is known here; evaluate and predict with {}, "
                 "which keeps it",
                 key, what, advice::option("from", "RUN"));
  }

  Status makeCategories(const std::string &name, const recipe::CategoryRule &rule) {
    auto place = std::find_if(dataset.columns.begin(), dataset.columns.end(),
                              [&](const auto &column) { return column->name() == name; });
    Column &column = **place;
    if (!column.holdsTexts())
      return error("data.categories.{}: {}: the column holds no texts, but {}; leave the key out", name, dataset.path,
                   columnTypeName(column));
    auto missing = missingRule(name);
    if (!missing)
      return missing.status();
    const std::optional<std::string> fill =
        *missing && (*missing)->isText ? std::optional((*missing)->text) : std::nullopt;
    std::vector<std::string> names = rule.names;
    if (auto known = options.facts.categories.find(name); known != options.facts.categories.end()) {
      if (!names.empty() && names != known->second)
        return error("data.categories.{}: the list differs from the one that the run was trained with: {}; give the "
                     "same list, leave the key out, or start anew from weights that {} writes",
                     name, listed(known->second), advice::command("export"));
      names = known->second;
    } else if (names.empty() && !options.learnsFacts) {
      return unknown("categories." + name, "the list");
    }
    const uint64_t samples = column.samples();
    auto lacks = [&](uint64_t index) {
      return column.lacks(index) && std::find(names.begin(), names.end(), column.textOf(index)) == names.end();
    };
    if (names.empty()) {
      std::set<std::string_view> sorted;
      for (uint64_t i = 0; i < samples; ++i)
        if (!column.lacks(i))
          sorted.insert(column.textOf(i));
        else if (fill)
          sorted.insert(*fill);
      names.assign(sorted.begin(), sorted.end());
    }
    std::map<std::string_view, int64_t> numberOf;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!isUtf8(names[i]))
        return error("{}: column '{}': '{}' is no UTF-8; save the file as UTF-8", dataset.path, name, names[i]);
      numberOf[names[i]] = static_cast<int64_t>(i);
    }
    std::vector<int64_t> numbers(samples, kNone);
    for (uint64_t i = 0; i < samples; ++i) {
      if (lacks(i) && !fill)
        continue;
      const std::string_view text = lacks(i) ? std::string_view(*fill) : column.textOf(i);
      auto found = numberOf.find(text);
      if (found == numberOf.end())
        return error(
            "{}: column '{}', sample {} ({}): '{}' is none of its categories: {}; correct it, or train with it "
            "in data.categories.{}",
            dataset.path, name, i, column.place(i), text.substr(0, 60), listed(names), name);
      numbers[i] = found->second;
    }
    plan::TensorType type;
    type.set_dtype(plan::I64);
    type.add_dims(static_cast<int64_t>(samples));
    *place = std::make_unique<CategoryColumn>(std::move(*place), std::move(type), std::move(numbers));
    dataset.facts.categories[name] = std::move(names);
    return Status();
  }

  Status fill(std::unique_ptr<Column> &column, const recipe::MissingRule &rule) {
    const std::string &name = column->name();
    const uint64_t width = column->sampleBytes() / std::max<uint64_t>(plan::dtypeBytes(column->type().dtype()), 1);
    std::vector<double> fills(width, rule.number);
    if (rule.isText && !rule.mean)
      return error("data.missing.{}: \"{}\": the column holds numbers; give a number, or \"mean\"", name, rule.text);
    if (rule.mean) {
      auto known = options.facts.fills.find(name);
      if (known == options.facts.fills.end() && !options.learnsFacts)
        return unknown("missing." + name, "the mean");
      auto means = known == options.facts.fills.end() ? meansOf(*column, width) : Expected(known->second);
      if (!means)
        return means.status();
      fills = means.take();
      if (fills.size() != width)
        return error("{}: column '{}' has {} elements a sample, the run was trained with {}", dataset.path, name, width,
                     fills.size());
      dataset.facts.fills[name] = fills;
    }
    // A mean is in general not an integer.
    constexpr double kExact = 9007199254740992; // 2^53
    const bool whole = std::all_of(fills.begin(), fills.end(),
                                   [](double value) { return value == std::trunc(value) && std::abs(value) < kExact; });
    if (!plan::isFloatingPoint(column->type().dtype()) && (rule.mean || !whole)) {
      if (!column->isText())
        return error("data.missing.{}: the column is {}: give a whole number", name, columnTypeName(*column));
      column = convertedColumn(std::move(column), plan::F64);
    } else if (!plan::isFloatingPoint(column->type().dtype())) {
      const auto number = static_cast<int64_t>(rule.number);
      std::byte space[8];
      if (convertElements(reinterpret_cast<const std::byte *>(&number), plan::I64, space, column->type().dtype(), 1))
        return error("data.missing.{}: {} does not fit the column, which is {}", name, number, columnTypeName(*column));
    }
    column = std::make_unique<FilledColumn>(std::move(column), std::move(fills));
    return Status();
  }

  Status joinColumns(const std::string &name, const std::string &text) {
    auto names = recipe::parseColumnList(text);
    if (!names)
      return names.status();
    if (dataset.find(name))
      return error("{} has such a column already; take another name, and data.map for the input", dataset.path);
    std::vector<const Column *> parts;
    plan::TensorType type;
    int64_t width = 0;
    for (const std::string &part : *names) {
      const Column *column = dataset.find(part);
      if (!column)
        return error("{} has no column '{}'; it has {}", dataset.path, part, dataset.describeColumns());
      if (Status status = column->usable(); !status.ok())
        return status;
      const plan::TensorType &own = column->type();
      if (own.dims_size() < 1 || own.dims_size() > 2 ||
          (!parts.empty() && own.dims(0) != parts.front()->type().dims(0)))
        return error("column '{}' is {}; numbers and vectors of the same samples can stand side by side", part,
                     columnTypeName(*column));
      if (parts.empty())
        type.set_dtype(own.dtype());
      else if (own.dtype() != type.dtype())
        type.set_dtype(plan::isFloatingPoint(own.dtype()) || plan::isFloatingPoint(type.dtype()) ? plan::F64
                                                                                                 : plan::I64);
      width += own.dims_size() == 2 ? own.dims(1) : 1;
      parts.push_back(column);
    }
    type.add_dims(parts.front()->type().dims(0));
    type.add_dims(width);
    dataset.columns.push_back(std::make_unique<SideBySideColumn>(name, std::move(type), std::move(parts)));
    return Status();
  }

  Expected<std::vector<double>> meansOf(const Column &column, uint64_t width) const {
    std::vector<double> sums(width);
    std::vector<uint64_t> counts(width), missing;
    std::vector<std::byte> sample(column.sampleBytes());
    const plan::DType dtype = column.type().dtype();
    for (uint64_t i = 0; i < column.samples(); ++i) {
      if (Status status = column.readPresent(i, sample.data(), missing); !status.ok())
        return status;
      for (uint64_t element = 0, gap = 0; element < width; ++element) {
        if (gap < missing.size() && missing[gap] == element) {
          ++gap;
          continue;
        }
        sums[element] += numberElement(sample.data(), dtype, element);
        ++counts[element];
      }
    }
    for (uint64_t element = 0; element < width; ++element) {
      if (counts[element] == 0)
        return error("data.missing.{}: {}: the column has no value to take the mean of{}; give a number", column.name(),
                     dataset.path, width == 1 ? "" : fmt::format(", at element {}", element));
      sums[element] /= static_cast<double>(counts[element]);
    }
    return sums;
  }

  Dataset &dataset;
  const DatasetOptions &options;
};
} // namespace

Status tcc::runtime::applyColumnRules(Dataset &dataset, const DatasetOptions &options) {
  return Rules(dataset, options).apply();
}

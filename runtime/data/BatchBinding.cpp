//===- BatchBinding.cpp - which column feeds which input ------------------===//
#include "runtime/data/BatchReader.h"
#include "runtime/data/Convert.h"
#include "runtime/data/Ragged.h"
#include "runtime/data/Table.h"
#include "support/Advice.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

using namespace tcc;
using namespace tcc::runtime;

namespace {
bool isIntegerMatrix(const plan::TensorType &type) {
  return type.dims_size() == 2 && !plan::isFloatingPoint(type.dtype()) && type.dtype() != plan::I1;
}

bool sameDims(const plan::TensorType &a, const plan::TensorType &b) {
  return std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
}

/// The shape of one sample: the input's without its sample axis.
plan::TensorType sampleType(const plan::TensorType &type, int axis) {
  plan::TensorType sample;
  sample.set_dtype(type.dtype());
  for (int i = 0; i < type.dims_size(); ++i)
    if (i != axis)
      sample.add_dims(type.dims(i));
  return sample;
}

/// The shape of the input with its samples first.
plan::TensorType samplesFirst(const plan::TensorType &type, int axis) {
  plan::TensorType moved;
  moved.set_dtype(type.dtype());
  moved.add_dims(type.dims(axis));
  for (int i = 0; i < type.dims_size(); ++i)
    if (i != axis)
      moved.add_dims(type.dims(i));
  return moved;
}

/// True if the column's shape is [samples] followed by the sample's shape. With one number per sample all shapes are
/// equivalent: [N] is [N, 1] and [N, 1, 1].
bool hasSamplesOf(const plan::TensorType &column, const plan::TensorType &sample) {
  if (column.dims_size() == 0)
    return false;
  auto isOne = [](int64_t extent) { return extent == 1; };
  return std::equal(sample.dims().begin(), sample.dims().end(), column.dims().begin() + 1, column.dims().end()) ||
         (std::all_of(sample.dims().begin(), sample.dims().end(), isOne) &&
          std::all_of(column.dims().begin() + 1, column.dims().end(), isOne));
}

/// The setting by which a user declares a constant.
std::string constantKey(const std::string &input) {
  return advice::set("data.constant", fmt::format("[\"{}\"]", input));
}

/// A column as an input reads it.
struct View {
  const Column *column;
  uint32_t number; ///< from 0; random transforms draw separately for each view
};

/// "image#2" is the second view of the column `image`, unless a column has this very name.
std::optional<View> findView(const Dataset &dataset, const std::string &name) {
  if (const Column *column = dataset.find(name))
    return View{column, 0};
  const size_t mark = name.rfind('#');
  uint16_t number = 0;
  if (mark == std::string::npos)
    return std::nullopt;
  const char *end = name.data() + name.size();
  if (auto [stop, code] = std::from_chars(name.data() + mark + 1, end, number);
      code != std::errc() || stop != end || number == 0)
    return std::nullopt;
  const Column *column = dataset.find(name.substr(0, mark));
  return column ? std::optional(View{column, number - 1u}) : std::nullopt;
}

/// The input of a loss that says which slots of a batch have a sample: 1 for every sample.
class PresenceColumn final : public Column {
public:
  using Column::Column;
  Status read(uint64_t, std::byte *destination) const override {
    plan::fillElements(destination, type().dtype(), 1, 1);
    return Status();
  }
};

/// The column of an input, or the error that lists the columns.
Expected<View> columnOf(const plan::Entry &entry, const plan::Port &port, const Dataset &dataset,
                        const BindOptions &options) {
  std::string wanted = port.name();
  if (auto mapped = options.map.find(port.name()); mapped != options.map.end()) {
    wanted = mapped->second;
  } else if (!dataset.find(wanted) && (dataset.format == "token" || dataset.format == "text")) {
    int others = 0;
    for (const plan::Port &other : entry.inputs())
      others += other.name() != options.target && other.sample_axis() >= 0 &&
                isIntegerMatrix(entry.buffers(static_cast<int>(other.buffer())).type());
    if (port.name() == options.target)
      wanted = "targets";
    else if (others == 1 && isIntegerMatrix(entry.buffers(static_cast<int>(port.buffer())).type()))
      wanted = "tokens";
  }
  // An .npy file has no name for its array.
  if (dataset.format == "npy" && entry.inputs_size() == 1 && !options.map.contains(port.name()))
    wanted = dataset.columns.front()->name();
  if (std::optional<View> view = findView(dataset, wanted))
    return *view;
  return error("{}: no column '{}' for the model's input '{}' {}; the data has {}; name the right one with {}",
                     dataset.path, wanted, port.name(),
                     plan::typeName(entry.buffers(static_cast<int>(port.buffer())).type()), dataset.describeColumns(),
                     advice::set("data.map." + port.name(), "COLUMN"));
}
} // namespace

Expected<BatchReader::Input> BatchReader::bindInput(const plan::Entry &entry, const plan::Port &port,
                                                    const Dataset &dataset, const Column &column,
                                                    const BindOptions &options) {
  const plan::TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type(), &have = column.type();
  Input input;
  input.name = port.name();
  input.column = &column;
  input.dtype = type.dtype();
  if (Status status = checkTableColumn(dataset, column, options.maxBad == 0); !status.ok())
    return status;
  const bool casts = dataset.castsToF32 && type.dtype() == plan::F32 && have.dtype() != plan::U8;
  if (!mayConvert(have.dtype(), type.dtype(), column.isText() || casts))
    return error(
        "{}: column '{}' is {}, the model's input '{}' {}: {} does not become {} silently; convert the "
        "data{}",
        dataset.path, column.name(), plan::typeName(have), port.name(), plan::typeName(type),
        plan::dtypeName(have.dtype()), plan::dtypeName(type.dtype()),
        have.dtype() == plan::U8 && type.dtype() == plan::F32
            ? fmt::format(", or let [[data.transform]] with kind = \"to_float\" and column = \"{}\" divide it by 255",
                          column.name())
        : type.dtype() == plan::F32
            ? fmt::format(", or let trun round its values to f32: {}", advice::set("data.cast", "f32"))
            : "");
  int axis = port.sample_axis();
  const bool canSample = axis >= 0 && axis < type.dims_size() && type.dims(axis) == entry.batch() &&
                         !options.constants.contains(port.name());
  plan::TensorType sample = sampleType(type, canSample ? axis : -1);
  input.sampled = canSample && hasSamplesOf(have, sample);
  if (!input.sampled && !sameDims(have, type)) {
    if (canSample)
      return error("{}: column '{}' is {}, but a sample of the model's input '{}' is {}: the column must be "
                   "[samples]{}{}{}",
                   dataset.path, column.name(), plan::typeName(have), port.name(), plan::typeName(sample),
                   sample.dims_size() ? " followed by that shape" : "",
                   options.raggedInputs.contains(port.name()) && have.dims_size() == sample.dims_size()
                       ? fmt::format(", or '{}.offsets' must be a list of integers that says where each sample begins",
                                     column.name())
                       : "",
                   port.name() == options.target && have.dims_size() > 1 ? options.targetHint : "");
    return error("{}: column '{}' is {}, but the model's input '{}' is the constant {}: the shapes must be equal",
                       dataset.path, column.name(), plan::typeName(have), port.name(), plan::typeName(type));
  }
  for (int i = 0; i < type.dims_size(); ++i) {
    input.elements *= static_cast<uint64_t>(type.dims(i));
    if (canSample && i != axis)
      (i < axis ? input.outer : input.inner) *= static_cast<uint64_t>(type.dims(i));
  }
  // Check as much as possible now, rather than after an hour of training.
  std::span<const std::byte> all = column.contiguous();
  if (options.maxBad == 0 && !all.empty() && !alwaysFits(have.dtype(), type.dtype())) {
    uint64_t width = plan::dtypeBytes(have.dtype()), count = all.size() / width;
    std::byte value[8];
    for (uint64_t i = 0; i < count; ++i)
      if (convertElements(all.data() + i * width, have.dtype(), value, type.dtype(), 1))
        return error("{}: column '{}': value {} of sample {} does not fit the {} of the model's input '{}'",
                           dataset.path, column.name(), elementText(all.data(), have.dtype(), i),
                           have.dims_size() ? i / std::max<uint64_t>(count / std::max<uint64_t>(column.samples(), 1), 1)
                                            : 0,
                           plan::dtypeName(type.dtype()), port.name());
  }
  return input;
}

/// True for the column of an input whose samples differ among shapes, if all its samples have extents other than the
/// input's there, and the input's elsewhere.
static bool isOfOtherSize(const Column &column, const plan::Entry &entry, const plan::Port &port,
                          const BindOptions &options) {
  const plan::TensorType sample =
      sampleType(entry.buffers(static_cast<int>(port.buffer())).type(), port.sample_axis());
  const plan::TensorType &have = column.type();
  const auto axes = options.paddedAxes.find(port.name());
  if (axes == options.paddedAxes.end() || have.dims_size() != sample.dims_size() + 1)
    return false;
  bool differs = false;
  for (int d = 0; d < sample.dims_size(); ++d)
    if (const int64_t extent = have.dims(d + 1); extent != sample.dims(d)) {
      if (extent == 0 || std::ranges::find(axes->second, d) == axes->second.end())
        return false;
      differs = true;
    }
  return differs;
}

Expected<const Column *> BatchReader::pad(const plan::Entry &entry, const plan::Port &port, const Column &column,
                                          const BindOptions &options) {
  const plan::TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type();
  const plan::TensorType sample = sampleType(type, port.sample_axis());
  if (sample.dims_size() == 0 || sample.dims_size() + 1 != column.type().dims_size())
    return &column; // refused by bindInput, with the shapes
  double value = port.name() == options.target && options.ignoreIndex ? static_cast<double>(*options.ignoreIndex) : 0;
  const auto given = options.pad.find(column.name());
  if (given != options.pad.end())
    value = given->second;
  std::vector<uint64_t> extents(sample.dims().begin(), sample.dims().end());
  const auto differs = options.raggedInputs.find(port.name());
  const bool isImage = column.isSized() && column.isComputed();
  auto mayPad = [&](int axis) {
    if (axis == 0 && isImage && sample.dims_size() == 3)
      return false; // channels
    return given != options.pad.end() ||
           (differs != options.raggedInputs.end() && std::ranges::find(differs->second, axis) != differs->second.end());
  };
  for (int axis = 0; axis < sample.dims_size(); ++axis)
    if (const bool isFixed = isImage || (column.isRagged() && axis > 0);
        isFixed && !mayPad(axis) && sample.dims(axis) != column.type().dims(axis + 1))
      return &column; // likewise
  for (uint64_t i = 0; column.isRagged() && !mayPad(0) && i < column.samples(); ++i)
    if (column.lengthOf(i) < extents.front())
      return error(
          "{}: column '{}': sample {} has {} rows, the model's input '{}' takes {}: say what follows a shorter "
          "sample with {}, or compile a plan of several shapes ({})",
          path, column.name(), i, column.lengthOf(i), port.name(), extents.front(),
          advice::set("data.pad." + column.name(), "0"), advice::compile("dim", "NAME=N,M"));
  for (int axis = 0; column.isSized() && axis < sample.dims_size(); ++axis)
    for (uint64_t i = 0; !mayPad(axis) && i < column.samples(); ++i)
      if (const std::span<const uint32_t> own = column.sizes().of(i);
          own.front() != 0 && own[static_cast<size_t>(axis)] != extents[static_cast<size_t>(axis)])
        return error(
            "{}: column '{}': sample {} is [{}], and a sample of the model's input '{}' [{}], whose axis {} is "
            "the same in all shapes; say what follows a smaller sample with {}",
            path, column.name(), i, fmt::join(own, ", "), port.name(), fmt::join(extents, ", "), axis,
            advice::set("data.pad." + column.name(), "0"));
  auto padded = PaddedColumn::create(column, std::move(extents), value, type.dtype());
  if (!padded)
    return padded.status();
  ragged.push_back({inputs.size(), padded.take()});
  return ragged.back().column.get();
}

Expected<BatchReader> BatchReader::bind(const plan::Entry &entry, const Dataset &dataset,
                                              const BindOptions &options) {
  BatchReader reader;
  reader.path = dataset.path;
  reader.maxBad = options.maxBad;
  reader.batchSize = static_cast<uint64_t>(std::max<int64_t>(entry.batch(), 1));
  for (const auto &[input, column] : options.map) {
    bool known = false;
    for (const plan::Port &port : entry.inputs())
      known |= port.name() == input;
    // Other entries may have inputs that this one lacks: `predict` has no target.
    if (!known && !findView(dataset, column) && input != options.target)
      return error("{}: data.map.{} = \"{}\": no such column; the data has {}", dataset.path, input, column,
                         dataset.describeColumns());
  }
  for (const plan::Port &port : entry.inputs()) {
    if (port.presence()) {
      plan::TensorType type = entry.buffers(static_cast<int>(port.buffer())).type();
      Input input;
      input.name = port.name();
      input.dtype = type.dtype();
      input.sampled = input.presence = true;
      input.elements = reader.batchSize;
      reader.presence = std::make_unique<PresenceColumn>(port.name(), std::move(type));
      input.column = reader.presence.get();
      reader.inputs.push_back(std::move(input));
      continue;
    }
    auto column = columnOf(entry, port, dataset, options);
    if (!column)
      return column.status();
    const Column *read = column->column;
    // A mask's length may also be the width of other columns: those are read whole, with what they store.
    const bool mayEnd = options.raggedInputs.contains(port.name()) || options.pad.contains(read->name());
    if ((read->isRagged() && (mayEnd || !read->storesPadding())) || (read->isSized() && mayEnd) ||
        isOfOtherSize(*read, entry, port, options)) {
      auto padded = reader.pad(entry, port, *read, options);
      if (!padded)
        return padded.status();
      read = *padded;
    }
    auto input = bindInput(entry, port, dataset, *read, options);
    if (!input)
      return input.status();
    reader.inputs.push_back(input.take());
    reader.inputs.back().view = column->number;
  }
  if (Status status = reader.countSamples(entry, options); !status.ok())
    return status;
  for (const Input &input : reader.inputs)
    if (input.sampled && !input.presence && input.column->samples() == 0)
      return error("{}: the data set is empty: column '{}' is {}, without a sample", dataset.path,
                         input.column->name(), plan::typeName(input.column->type()));
  for (size_t i = 0; i < reader.inputs.size(); ++i) {
    Input &input = reader.inputs[i];
    if (input.presence)
      continue;
    uint64_t count = input.sampled ? input.outer * input.inner : input.elements;
    const plan::Port &port = entry.inputs(static_cast<int>(i));
    const plan::TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type(), &have = input.column->type();
    for (int d = 0; d < type.dims_size(); ++d)
      if (!input.sampled || d != port.sample_axis())
        input.dims.push_back(type.dims(d));
    bool integer = !plan::isFloatingPoint(input.dtype);
    if (integer)
      bindRanges(input, port, type, options);
    if (options.maxBad == 0 || !input.sampled)
      if (Status status = reader.checkRangesNow(input); !status.ok())
        return status;
    input.weighs = options.sampleWeights.contains(input.name) && !integer;
    if (input.weighs)
      if (Status status = reader.checkWeightsNow(input); !status.ok())
        return status;
    // A target that the loss ignores is ignored by metrics, too.
    const bool isTarget = input.name == options.target && integer && options.ignoreIndex;
    const bool isWeight = input.name == options.maskingWeight && reader.maskedInput < 0;
    if (input.sampled && (isTarget || isWeight)) {
      std::byte probe[8];
      const int64_t value = isTarget ? *options.ignoreIndex : 0;
      if (!convertElements(reinterpret_cast<const std::byte *>(&value), plan::I64, probe, input.dtype, 1)) {
        reader.maskedInput = static_cast<int>(i);
        reader.maskedValue = value;
      }
    }
    if (input.sampled && integer && have.dims_size() >= 2 && (reader.tokens == 0 || input.name == options.target)) {
      reader.tokens = count;
      reader.tokensInput = i;
    }
  }
  for (const RaggedInput &one : reader.ragged)
    if (const auto given = options.pad.find(one.column->name()); given != options.pad.end())
      if (Status status = reader.checkPadding(reader.inputs[one.input], given->first, given->second); !status.ok())
        return status;
  if (Status status = reader.checkSameLengths(entry); !status.ok())
    return status;
  if (Status status = reader.checkTargetSizes(options.target); !status.ok())
    return status;
  if (Status status = reader.bindBatchTransforms(dataset); !status.ok())
    return status;
  reader.own = reader.makeScratch();
  return reader;
}

Status BatchReader::checkSameLengths(const plan::Entry &entry) const {
  std::map<std::string, const RaggedInput *> first; // by dimension
  for (const RaggedInput &one : ragged) {
    const std::string &dim = entry.inputs(static_cast<int>(one.input)).length();
    const Column &own = one.column->unpadded();
    if (dim.empty() || (!own.isRagged() && !own.isSized()) || own.storesPadding())
      continue;
    const PaddedColumn &other = *first.try_emplace(dim, &one).first->second->column;
    for (uint64_t sample = 0; sample < std::min(other.samples(), own.samples()); ++sample)
      if (const uint64_t rows = one.column->extentOf(sample, 0), others = other.extentOf(sample, 0);
          others != rows && !one.column->isUnknown(sample) && !other.isUnknown(sample))
        return error("{}: sample {} has {} rows in column '{}' and {} in column '{}', but both are the model's "
                     "dimension {}: correct the data, or name the right column with {}",
                     path, sample, others, other.name(), rows, own.name(), dim,
                     advice::set("data.map." + inputs[one.input].name, "COLUMN"));
  }
  return Status();
}

Status BatchReader::checkTargetSizes(const std::string &target) const {
  const auto found = std::ranges::find_if(ragged, [&](const RaggedInput &one) {
    return inputs[one.input].name == target && one.column->unpadded().isSized();
  });
  if (found == ragged.end())
    return Status();
  // The axes of the other input, from the last on, that the target has, too.
  auto alike = [&](const PaddedColumn &other, auto extentOf) {
    const size_t rank = std::min(found->column->extents().size(), other.extents().size());
    for (size_t back = 1; back <= std::min<size_t>(rank, 2); ++back)
      if (extentOf(*found->column, found->column->extents().size() - back) !=
          extentOf(other, other.extents().size() - back))
        return false;
    return true;
  };
  std::vector<const PaddedColumn *> others;
  for (const RaggedInput &one : ragged)
    if (one.input != found->input && one.column->unpadded().isSized() &&
        alike(*one.column, [](const PaddedColumn &column, size_t axis) { return column.extents()[axis]; }))
      others.push_back(one.column.get());
  auto sizeText = [](const PaddedColumn &column, uint64_t sample) {
    const size_t rank = column.extents().size();
    return rank == 1 ? fmt::format("{} elements", column.extentOf(sample, 0))
                     : fmt::format("{}x{}", column.extentOf(sample, rank - 1), column.extentOf(sample, rank - 2));
  };
  for (uint64_t sample = 0; !others.empty() && sample < found->column->samples(); ++sample)
    if (!found->column->isUnknown(sample) && std::ranges::none_of(others, [&](const PaddedColumn *other) {
          return sample >= other->samples() || other->isUnknown(sample) ||
                 alike(*other, [&](const PaddedColumn &column, size_t axis) { return column.extentOf(sample, axis); });
        }))
      return error(
          "{}: sample {} is {} in column '{}' and {} in column '{}', but the target is as large as its sample: "
          "correct the data, or name the right column with {}",
          path, sample, sizeText(*others.front(), sample), others.front()->name(), sizeText(*found->column, sample),
          found->column->name(), advice::set("data.map." + target, "COLUMN"));
  return Status();
}

Status BatchReader::checkPadding(const Input &input, const std::string &column, double value) const {
  for (const Range &range : input.ranges)
    if (const auto whole = static_cast<int64_t>(value);
        range.begin.empty() && static_cast<double>(whole) == value && (whole < range.low || whole > range.high) &&
        std::find(range.exceptions.begin(), range.exceptions.end(), whole) == range.exceptions.end())
      return error("{}: data.pad.{} = {}: the value {}", path, column, whole, range.what);
  return Status();
}

Status BatchReader::countSamples(const plan::Entry &entry, const BindOptions &options) {
  auto portOf = [&](size_t i) -> const plan::Port & { return entry.inputs(static_cast<int>(i)); };
  auto isExact = [&](size_t i) {
    return sameDims(inputs[i].column->type(), entry.buffers(static_cast<int>(portOf(i).buffer())).type());
  };
  const Input *first = nullptr; // preferably one whose column cannot be a constant
  for (bool sure : {true, false})
    for (size_t i = 0; i < inputs.size() && !first; ++i)
      if (inputs[i].sampled && !inputs[i].presence && (!sure || !isExact(i)))
        first = &inputs[i];
  const uint64_t count = first ? first->column->samples() : batchSize;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Input &input = inputs[i];
    if (input.presence)
      continue;
    const int axis = portOf(i).sample_axis();
    const std::string shown = fmt::format("column '{}' {}", input.column->name(), plan::typeName(input.column->type()));
    if (!input.sampled || input.column->samples() != count) {
      if (options.constants.contains(input.name) || axis < 0 || !isExact(i)) {
        if (!input.sampled)
          continue;
        return error("{}: column '{}' has {} samples, '{}' has {}; all must have the same number", path,
                     first->column->name(), count, input.column->name(), input.column->samples());
      }
      const plan::TensorType &type = entry.buffers(static_cast<int>(portOf(i).buffer())).type();
      if (axis >= type.dims_size() || type.dims(axis) != entry.batch())
        continue; // no axis of samples
      if (axis > 0 && !input.sampled && count == batchSize)
        return error(
            "{}: {} has the shape of the model's input '{}', whose samples lie along axis {}; the first axis of a "
            "column is the sample, so give it as {}; if it is no samples, say so with {}",
            path, shown, input.name, axis, plan::typeName(samplesFirst(type, axis)), constantKey(input.name));
      const bool weighs = options.sampleWeights.contains(input.name);
      if (weighs || input.name == options.target)
        return error("{}: {} is the {} of a single batch, but other columns have {} samples: each batch would be "
                     "{} the same values; give {} rows, or, if a constant is meant, {}",
                     path, shown, weighs ? "weight" : "target", count, weighs ? "weighted by" : "compared with", count,
                     constantKey(input.name));
      input.sampled = false;
      notesOfBinding.push_back(Message::warning(
          "{}: {} has the shape of the model's input '{}', and other columns have {} samples: every batch gets "
          "the same values; if samples are meant, give {} rows; if a constant is meant, {} says so",
          path, shown, input.name, count, count, constantKey(input.name)));
    } else if (axis > 0 && isExact(i) && count == batchSize) {
      notesOfBinding.push_back(Message::warning(
          "{}: {} could be one batch as the model's input '{}' has it, samples along axis {}, but the first axis "
          "of a column is the sample: its rows are the samples; {} takes it as it is",
          path, shown, input.name, axis, constantKey(input.name)));
    }
  }
  sampleCount = count;
  return Status();
}

void BatchReader::bindRanges(Input &input, const plan::Port &port, const plan::TensorType &type,
                             const BindOptions &options) {
  auto exceptionsText = [](const std::vector<int64_t> &values) {
    return values.empty() ? "" : fmt::format(", and {} does not count", fmt::join(values, ", "));
  };
  if (input.name == options.target && options.classes) {
    Range range;
    range.high = *options.classes - 1;
    if (options.ignoreIndex)
      range.exceptions.push_back(*options.ignoreIndex);
    range.what = fmt::format("names no class of the model's input '{}': classes are 0 to {}{}", input.name, range.high,
                             exceptionsText(range.exceptions));
    input.ranges.push_back(std::move(range));
  }
  int axis = input.sampled ? port.sample_axis() : -1;
  for (const plan::IndexRange &given : port.index_ranges()) {
    Range range{given.low(), given.high(), {given.exceptions().begin(), given.exceptions().end()}, {}, {}, ""};
    bool whole = given.begin().empty(), usable = whole || given.begin_size() == given.end_size();
    for (int d = 0; usable && d < given.begin_size(); ++d)
      if (d == axis) {
        usable = given.begin(d) == 0 && d < type.dims_size() && given.end(d) == type.dims(d); // of every sample
      } else {
        range.begin.push_back(given.begin(d));
        range.end.push_back(given.end(d));
      }
    usable = usable && (whole || range.begin.size() == input.dims.size());
    for (size_t d = 0; usable && d < range.begin.size(); ++d)
      usable = range.begin[d] >= 0 && range.begin[d] <= range.end[d] && range.end[d] <= input.dims[d];
    if (!usable)
      continue; // the range covers only some slots of a batch; the verifier refuses ranges of other shapes
    // ONNX counts negative indices from the end, torch's embedding refuses them. A constant that is added to the
    // indices shifts both ends of the range.
    const bool ofRows = !given.table().empty() && given.axis() == 0 && given.extent() > 0;
    const bool both = ofRows && static_cast<uint64_t>(range.high) - static_cast<uint64_t>(range.low) + 1 ==
                                    2 * static_cast<uint64_t>(given.extent());
    const bool wraps = both && !options.negativeIndices;
    if (wraps)
      range.low = range.high - given.extent() + 1;
    std::string table =
        given.table().empty() ? fmt::format("the {} entries that node '{}' looks up", given.extent(), given.node())
        : given.axis() == 0   ? fmt::format("{}'s {} rows", given.table(), given.extent())
                            : fmt::format("{}'s {} entries along axis {}", given.table(), given.extent(), given.axis());
    constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
    std::string legal = range.low == kLeast   ? fmt::format("up to {}", range.high)
                        : range.high == kMost ? fmt::format("from {} on", range.low)
                                              : fmt::format("from {} to {}", range.low, range.high);
    const std::string takes = fmt::format("the model's input '{}' takes values {}{}: correct the data", input.name,
                                          legal, exceptionsText(range.exceptions));
    range.what = given.meaning().empty()
                     ? fmt::format("is no index of {}; {}, or compile a model whose table is larger{}", table, takes,
                                   wraps ? "; data.negative_indices = true counts negative ones from the end" : "")
                     : fmt::format("is no {}; {}", given.meaning(), takes);
    input.ranges.push_back(std::move(range));
  }
}

Status BatchReader::bindBatchTransforms(const Dataset &dataset) {
  for (const recipe::TransformSpec &spec : dataset.batchTransforms) {
    auto indexOf = [&](const std::string &column) {
      return static_cast<size_t>(std::find_if(inputs.begin(), inputs.end(), [&](const Input &input) {
                                   return input.column->name() == column;
                                 }) - inputs.begin());
    };
    BatchTransform bound{spec, indexOf(spec.column), indexOf(spec.word("target")), 0, 0};
    for (const auto &[name, place] :
         {std::pair(spec.column, bound.input), std::pair(spec.word("target"), bound.target)})
      if (place == inputs.size())
        return error(
            "{}: no input of the model reads the column '{}'; set `column` and `target` to those that it mixes",
            spec.place(), name);
    const Input &image = inputs[bound.input], &target = inputs[bound.target];
    for (const Input *input : {&image, &target})
      if (input->dtype != plan::F32 || !input->sampled || input->outer != 1)
        return error("{}: the model's input '{}' is {}{}; it mixes f32 inputs whose first axis is the sample{}",
                     spec.place(), input->name, plan::dtypeName(input->dtype), input->sampled ? "" : " and constant",
                     input == &target
                         ? fmt::format(": the loss must take probabilities of classes, and the column needs "
                                       "{{ column = \"{}\", kind = \"one_hot\", classes = N }}",
                                       target.column->name())
                         : std::string());
    if (spec.kind->name != "mixup") {
      if (image.dims.size() != 3)
        return error(
            "{}: a sample of the model's input '{}' has {} dimensions; cutmix needs channels, height and width",
            spec.place(), image.name, image.dims.size());
      bound.height = static_cast<uint32_t>(image.dims[1]);
      bound.width = static_cast<uint32_t>(image.dims[2]);
    }
    batchTransforms.push_back(std::move(bound));
  }
  return Status();
}

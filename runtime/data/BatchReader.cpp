//===- BatchReader.cpp - columns become the inputs of an entry -----------===//
#include "runtime/data/BatchReader.h"
#include "runtime/data/Convert.h"
#include "runtime/data/transforms/Mix.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
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

bool hasSamplesOf(const plan::TensorType &column, const plan::TensorType &sample) {
  return column.dims_size() == sample.dims_size() + 1 &&
         std::equal(sample.dims().begin(), sample.dims().end(), column.dims().begin() + 1);
}

/// A column as an input reads it.
struct View {
  const Column *column;
  uint32_t number; ///< from 0: random transforms draw for each view anew
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
  if (std::optional<View> view = findView(dataset, wanted))
    return *view;
  return error("{}: no column '{}' for the model's input '{}' {}; the data has {}; name the right one with "
                     "--set data.map.{}=COLUMN",
                     dataset.path, wanted, port.name(),
                     plan::typeName(entry.buffers(static_cast<int>(port.buffer())).type()), dataset.describeColumns(),
                     port.name());
}
} // namespace

Expected<BatchReader::Input> BatchReader::bindInput(const plan::Entry &entry, const plan::Port &port,
                                                          const Dataset &dataset, const Column &column, bool eager) {
  const plan::TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type(), &have = column.type();
  Input input;
  input.name = port.name();
  input.column = &column;
  input.dtype = type.dtype();
  if (!mayConvert(have.dtype(), type.dtype(), column.isText()))
    return error(
        "{}: column '{}' is {}, the model's input '{}' {}: {} does not become {} silently; convert the "
        "data{}",
        dataset.path, column.name(), plan::typeName(have), port.name(), plan::typeName(type),
        plan::dtypeName(have.dtype()), plan::dtypeName(type.dtype()),
        have.dtype() == plan::U8 && type.dtype() == plan::F32
            ? fmt::format(", or let [[data.transform]] with kind = \"to_float\" and column = \"{}\" divide it by 255",
                          column.name())
            : "");
  int axis = port.sample_axis();
  bool canSample = axis >= 0 && axis < type.dims_size() && type.dims(axis) == entry.batch();
  plan::TensorType sample = sampleType(type, canSample ? axis : -1);
  input.sampled = canSample && hasSamplesOf(have, sample);
  if (!input.sampled && !sameDims(have, type)) {
    if (canSample)
      return error("{}: column '{}' is {}, but a sample of the model's input '{}' is {}: the column must be "
                         "[samples]{}",
                         dataset.path, column.name(), plan::typeName(have), port.name(), plan::typeName(sample),
                         sample.dims_size() ? " followed by that shape" : "");
    return error("{}: column '{}' is {}, but the model's input '{}' is the constant {}: the shapes must be equal",
                       dataset.path, column.name(), plan::typeName(have), port.name(), plan::typeName(type));
  }
  for (int i = 0; i < type.dims_size(); ++i) {
    input.elements *= static_cast<uint64_t>(type.dims(i));
    if (canSample && i != axis)
      (i < axis ? input.outer : input.inner) *= static_cast<uint64_t>(type.dims(i));
  }
  // Checks as much as possible now: an error after an hour of training would be unkind.
  std::span<const std::byte> all = column.contiguous();
  if (eager && !all.empty() && !alwaysFits(have.dtype(), type.dtype())) {
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

Expected<BatchReader> BatchReader::bind(const plan::Entry &entry, const Dataset &dataset,
                                              const BindOptions &options) {
  BatchReader reader;
  reader.path = dataset.path;
  reader.ignoreIndex = options.ignoreIndex;
  reader.maxBad = options.maxBad;
  reader.batchSize = static_cast<uint64_t>(std::max<int64_t>(entry.batch(), 1));
  for (const auto &[input, column] : options.map) {
    bool known = false;
    for (const plan::Port &port : entry.inputs())
      known |= port.name() == input;
    // Entries differ in their inputs: `predict` has no target.
    if (!known && !findView(dataset, column) && input != options.target)
      return error("{}: data.map.{} = \"{}\": no such column; the data has {}", dataset.path, input, column,
                         dataset.describeColumns());
  }
  for (const plan::Port &port : entry.inputs()) {
    auto column = columnOf(entry, port, dataset, options);
    if (!column)
      return column.status();
    auto input = bindInput(entry, port, dataset, *column->column, options.maxBad == 0);
    if (!input)
      return input.status();
    reader.inputs.push_back(input.take());
    reader.inputs.back().view = column->number;
  }
  // A column of exactly the input's shape is a constant, unless it has as many samples as the others.
  auto isExact = [&](size_t i) {
    return sameDims(reader.inputs[i].column->type(),
                    entry.buffers(static_cast<int>(entry.inputs(static_cast<int>(i)).buffer())).type());
  };
  const Input *first = nullptr;
  for (size_t i = 0; i < reader.inputs.size(); ++i)
    if (reader.inputs[i].sampled && !isExact(i) && !first)
      first = &reader.inputs[i];
  for (size_t i = 0; i < reader.inputs.size(); ++i) {
    Input &input = reader.inputs[i];
    if (!input.sampled)
      continue;
    if (!first)
      reader.sampleCount = input.column->samples();
    else if (input.column->samples() != first->column->samples() && isExact(i))
      input.sampled = false;
    else if (input.column->samples() != first->column->samples())
      return error("{}: column '{}' has {} samples, '{}' has {}; all must have the same number", dataset.path,
                         first->column->name(), first->column->samples(), input.column->name(),
                         input.column->samples());
  }
  for (const Input &input : reader.inputs)
    if (input.sampled && input.column->samples() == 0)
      return error("{}: the data set is empty: column '{}' is {}, without a sample", dataset.path,
                         input.column->name(), plan::typeName(input.column->type()));
  if (first)
    reader.sampleCount = first->column->samples();
  else if (reader.sampleCount == 0)
    reader.sampleCount = reader.batchSize;
  for (size_t i = 0; i < reader.inputs.size(); ++i) {
    Input &input = reader.inputs[i];
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
    if (input.name == options.target && input.sampled && integer && options.ignoreIndex) {
      std::byte probe[8];
      if (!convertElements(reinterpret_cast<const std::byte *>(&*options.ignoreIndex), plan::I64, probe, input.dtype,
                           1)) {
        reader.maskedInput = static_cast<int>(i);
      }
    }
    if (input.sampled && integer && have.dims_size() >= 2 && (reader.tokens == 0 || input.name == options.target))
      reader.tokens = count;
  }
  if (Status status = reader.bindBatchTransforms(dataset); !status.ok())
    return status;
  reader.own = reader.makeScratch();
  return reader;
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
      continue; // of some slots of a batch alone, or of another shape, which the verifier refuses
    std::string table =
        given.table().empty() ? fmt::format("the {} entries that node '{}' looks up", given.extent(), given.node())
        : given.axis() == 0   ? fmt::format("{}'s {} rows", given.table(), given.extent())
                            : fmt::format("{}'s {} entries along axis {}", given.table(), given.extent(), given.axis());
    constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
    std::string legal = range.low == kLeast   ? fmt::format("up to {}", range.high)
                        : range.high == kMost ? fmt::format("from {} on", range.low)
                                              : fmt::format("from {} to {}", range.low, range.high);
    const std::string takes = fmt::format("the model's input '{}' takes values {}{}: correct the data", input.name, legal,
                                          exceptionsText(range.exceptions));
    range.what = given.meaning().empty()
                     ? fmt::format("is no index of {}; {}, or compile a model whose table is larger", table, takes)
                     : fmt::format("is no {}; {}", given.meaning(), takes);
    input.ranges.push_back(std::move(range));
  }
}

std::string BatchReader::placeOf(const Input &input, std::optional<uint64_t> sample,
                                 std::optional<uint64_t> element) const {
  std::string text = fmt::format("column '{}'", input.column->name());
  if (sample) {
    text += fmt::format(", sample {}", *sample);
    if (std::string place = input.column->place(*sample); !place.empty())
      text += fmt::format(" ({})", place);
  }
  if (!element || input.dims.empty())
    return text;
  std::vector<int64_t> coordinates(input.dims.size());
  for (size_t d = input.dims.size(); d-- > 0; *element /= static_cast<uint64_t>(input.dims[d]))
    coordinates[d] = static_cast<int64_t>(*element % static_cast<uint64_t>(input.dims[d]));
  return text + fmt::format(", position {}", fmt::join(coordinates, ", "));
}

Status BatchReader::checkRanges(const Input &input, const std::byte *values, plan::DType dtype,
                                      std::optional<uint64_t> sample) const {
  uint64_t width = plan::dtypeBytes(dtype), total = input.sampled ? input.outer * input.inner : input.elements;
  for (const Range &range : input.ranges) {
    // Runs of elements that lie together: all, or the innermost dimension of a box.
    size_t outer = range.begin.empty() ? 0 : range.begin.size() - 1;
    uint64_t run = range.begin.empty() ? total : static_cast<uint64_t>(range.end[outer] - range.begin[outer]), runs = 1;
    for (size_t d = 0; d < outer; ++d)
      runs *= static_cast<uint64_t>(range.end[d] - range.begin[d]);
    for (uint64_t number = 0; number < runs; ++number) {
      uint64_t start = range.begin.empty() ? 0 : static_cast<uint64_t>(range.begin[outer]), rest = number;
      uint64_t stride = range.begin.empty() ? 0 : static_cast<uint64_t>(input.dims[outer]);
      for (size_t d = outer; d-- > 0; stride *= static_cast<uint64_t>(input.dims[d])) {
        auto extent = static_cast<uint64_t>(range.end[d] - range.begin[d]);
        start += (static_cast<uint64_t>(range.begin[d]) + rest % extent) * stride;
        rest /= extent;
      }
      for (uint64_t done = 0; done < run;) {
        auto bad = firstOutside(values + (start + done) * width, dtype, run - done, range.low, range.high);
        if (!bad)
          break;
        uint64_t element = start + done + *bad;
        int64_t value = integerElement(values, dtype, element);
        if (std::find(range.exceptions.begin(), range.exceptions.end(), value) == range.exceptions.end())
          return error("{}: {}: value {} {}", path, placeOf(input, sample, element),
                             elementText(values, dtype, element), range.what);
        done += *bad + 1;
      }
    }
  }
  return Status();
}

Status BatchReader::checkRangesNow(Input &input) const {
  constexpr uint64_t kMostBytes = uint64_t(1) << 28; // more would delay the start; batches are checked as they are read
  std::span<const std::byte> all = input.column->contiguous();
  plan::DType dtype = input.column->type().dtype();
  if (input.ranges.empty() || all.empty() || all.size() > kMostBytes)
    return Status();
  input.checked = true;
  if (!input.sampled)
    return checkRanges(input, all.data(), dtype, std::nullopt);
  uint64_t bytes = input.outer * input.inner * plan::dtypeBytes(dtype);
  for (uint64_t sample = 0; sample < input.column->samples(); ++sample)
    if (Status status = checkRanges(input, all.data() + sample * bytes, dtype, sample); !status.ok())
      return status;
  return Status();
}

Status BatchReader::bindBatchTransforms(const Dataset &dataset) {
  for (const recipe::TransformSpec &spec : dataset.batchTransforms) {
    auto indexOf = [&](const std::string &column) {
      return static_cast<size_t>(std::find_if(inputs.begin(), inputs.end(), [&](const Input &input) {
                                   return input.column->name() == column;
                                 }) - inputs.begin());
    };
    BatchTransform bound{spec, indexOf(spec.column), indexOf(spec.word("target")), 0, 0};
    for (const auto &[name, place] : {std::pair(spec.column, bound.input), std::pair(spec.word("target"), bound.target)})
      if (place == inputs.size())
        return error("{}: no input of the model reads the column '{}'; set `column` and `target` to those that it mixes",
                     spec.place(), name);
    const Input &image = inputs[bound.input], &target = inputs[bound.target];
    for (const Input *input : {&image, &target})
      if (input->dtype != plan::F32 || !input->sampled || input->outer != 1)
        return error("{}: the model's input '{}' is {}{}; it mixes f32 inputs whose first axis is the sample{}", spec.place(),
                     input->name, plan::dtypeName(input->dtype), input->sampled ? "" : " and constant",
                     input == &target ? fmt::format(": the loss must take probabilities of classes, and the column needs "
                                                    "{{ column = \"{}\", kind = \"one_hot\", classes = N }}",
                                                    target.column->name())
                                      : std::string());
    if (spec.kind->name != "mixup") {
      if (image.dims.size() != 3)
        return error("{}: a sample of the model's input '{}' has {} dimensions; cutmix needs channels, height and width",
                     spec.place(), image.name, image.dims.size());
      bound.height = static_cast<uint32_t>(image.dims[1]);
      bound.width = static_cast<uint32_t>(image.dims[2]);
    }
    batchTransforms.push_back(std::move(bound));
  }
  return Status();
}

void BatchReader::mix(std::span<const std::span<std::byte>> given, uint64_t count, const BatchDraw &draw,
                      std::vector<float> &spare) const {
  auto samplesOf = [&](size_t input) {
    std::span<std::byte> bytes = given[input];
    return std::span(reinterpret_cast<float *>(bytes.data()), bytes.size() / sizeof(float) / batchSize * count);
  };
  for (const BatchTransform &transform : batchTransforms) {
    Random random(draw.draw, draw.number, static_cast<uint32_t>(transform.spec.number));
    auto mixture = chooseMixture(transform.spec, transform.height, transform.width, random);
    if (!mixture)
      continue;
    if (mixture->box)
      moveBoxes(samplesOf(transform.input), count, transform.height, transform.width, *mixture->box, spare);
    else
      blendSamples(samplesOf(transform.input), count, mixture->share, spare);
    blendSamples(samplesOf(transform.target), count, mixture->share, spare);
  }
}

std::vector<uint64_t> BatchReader::inputBytes() const {
  std::vector<uint64_t> bytes;
  for (const Input &input : inputs)
    bytes.push_back(input.elements * plan::dtypeBytes(input.dtype));
  return bytes;
}

BatchReader::Scratch BatchReader::makeScratch() const {
  Scratch scratch;
  for (const Input &input : inputs) {
    const uint64_t count = input.sampled ? input.outer * input.inner : input.elements;
    scratch.raw.emplace_back(count * plan::dtypeBytes(input.column->type().dtype()));
    scratch.converted.emplace_back(count * plan::dtypeBytes(input.dtype));
  }
  return scratch;
}

void BatchReader::ignoreTarget(const Input &input, std::byte *converted) const {
  for (uint64_t i = 0; i < input.outer * input.inner; ++i)
    (void)convertElements(reinterpret_cast<const std::byte *>(&*ignoreIndex), plan::I64,
                          converted + i * plan::dtypeBytes(input.dtype), input.dtype, 1);
}

Status BatchReader::readSample(const Input &input, uint64_t index, const Draw &draw, std::byte *raw,
                               std::byte *converted) const {
  const uint64_t count = input.outer * input.inner;
  const plan::DType from = input.column->type().dtype();
  const bool direct = from == input.dtype && from != plan::I1;
  std::byte *values = direct ? converted : raw;
  if (Status status = input.column->draw(index, draw.ofView(input.view), values); !status.ok())
    return status;
  if (!input.ranges.empty() && !input.checked)
    if (Status status = checkRanges(input, values, from, index); !status.ok())
      return status;
  if (!direct)
    if (auto bad = convertElements(values, from, converted, input.dtype, count))
      return error("{}: column '{}': value {} of sample {} does not fit the {} of the model's input '{}'", path,
                   input.column->name(), elementText(values, from, *bad), index, plan::dtypeName(input.dtype),
                   input.name);
  if (maxBad != 0)
    if (auto bad = firstNonFinite(converted, input.dtype, count, /*infinities=*/false))
      return error("{}: {}: NaN", path, placeOf(input, index, *bad));
  return Status();
}

Status BatchReader::readSlot(uint64_t sample, uint64_t slot, std::span<const std::span<std::byte>> given,
                             const Draw &draw, Scratch &scratch) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input &input = inputs[i];
    if (given[i].empty() || !input.sampled)
      continue;
    assert(given[i].size() == input.elements * plan::dtypeBytes(input.dtype) && "memory of another input");
    const uint64_t block = input.inner * plan::dtypeBytes(input.dtype);
    // One block a sample is its place in the batch; several are gathered first.
    std::byte *place = given[i].data() + slot * block;
    std::byte *converted = input.outer == 1 ? place : scratch.converted[i].data();
    if (Status status = readSample(input, sample, draw, scratch.raw[i].data(), converted); !status.ok())
      return status;
    for (uint64_t outer = 0; input.outer != 1 && outer < input.outer; ++outer)
      std::memcpy(place + outer * batchSize * block, converted + outer * block, block);
  }
  return Status();
}

Status BatchReader::finish(std::span<const std::span<std::byte>> given, uint64_t count, bool mask,
                           const BatchDraw &draw, Scratch &scratch) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input &input = inputs[i];
    if (given[i].empty())
      continue;
    if (!input.sampled) {
      std::span<const std::byte> all = input.column->contiguous();
      if (all.empty() && input.elements != 0)
        return error("{}: column '{}' cannot be a constant", path, input.column->name());
      if (auto bad = convertElements(all.data(), input.column->type().dtype(), given[i].data(), input.dtype,
                                     input.elements))
        return error("{}: column '{}': value {} does not fit the {} of the model's input '{}'", path,
                     input.column->name(), elementText(all.data(), input.column->type().dtype(), *bad),
                     plan::dtypeName(input.dtype), input.name);
      continue;
    }
    const uint64_t block = input.inner * plan::dtypeBytes(input.dtype);
    const bool ignore = mask && static_cast<int>(i) == maskedInput;
    if (ignore && count < batchSize)
      ignoreTarget(input, scratch.converted[i].data());
    for (uint64_t outer = 0; outer < input.outer; ++outer) {
      std::byte *slots = given[i].data() + outer * batchSize * block;
      const std::byte *source = ignore ? scratch.converted[i].data() + outer * block : slots + (count - 1) * block;
      for (uint64_t slot = count; slot < batchSize; ++slot)
        std::memcpy(slots + slot * block, source, block);
    }
  }
  mix(given, count, draw, scratch.mixed);
  return Status();
}

Status BatchReader::fill(std::span<const uint64_t> indices, bool mask, std::span<const std::span<std::byte>> given,
                         const BatchDraw &draw) {
  static constexpr uint64_t kFirst[] = {0};
  if (indices.empty())
    indices = kFirst;
  faulty.reset();
  rememberDraw(draw);
  for (uint64_t slot = 0; slot < std::min<uint64_t>(indices.size(), batchSize); ++slot)
    if (Status status = readSlot(indices[slot], slot, given, draw.of(slot, batchSize), own); !status.ok()) {
      faulty = indices[slot];
      return status;
    }
  return finish(given, std::min<uint64_t>(indices.size(), batchSize), mask, draw, own);
}

Status BatchReader::fillSound(std::vector<uint64_t> &indices, Damaged policy, bool mask,
                              std::span<const std::span<std::byte>> given, const BatchDraw &draw) {
  for (;;) {
    if (policy == Damaged::Drop && !damaged.empty())
      std::erase_if(indices, [&](uint64_t index) { return damaged.contains(index); });
    if (policy == Damaged::Replace && !damaged.empty() && damaged.size() < sampleCount)
      for (uint64_t &index : indices)
        while (damaged.contains(index))
          index = (index + 1) % sampleCount;
    if (indices.empty())
      return Status();
    Status status = fill(indices, mask, given, draw);
    if (status.ok() || !faulty)
      return status;
    if (Status tooMany = noteDamaged(*faulty, status); !tooMany.ok())
      return tooMany;
  }
}

Status BatchReader::noteDamaged(uint64_t sample, const Status &problem) {
  if (damaged.contains(sample))
    return Status();
  if (damaged.size() >= maxBad)
    return Status(
        maxBad == 0
            ? fmt::format("{}; `trun data` lists every damaged sample, --set data.max_bad=N leaves up to N out",
                          problem.message())
            : fmt::format("{}; {} damaged {} left out before, as many as data.max_bad allows", problem.message(),
                          damaged.size(), damaged.size() == 1 ? "sample was" : "samples were"),
        problem.exitCode());
  if (damaged.size() + 1 == sampleCount)
    return error("{}; every other sample is damaged, too", problem.message());
  damaged.emplace(sample, problem.message());
  return Status();
}

void BatchReader::knowDamaged(std::span<const uint64_t> samples) {
  for (uint64_t sample : samples)
    if (sample < sampleCount)
      damaged.emplace(sample, "");
}

Status BatchReader::check(uint64_t sample) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const Input &input = inputs[i]; input.sampled) {
      std::byte *converted = own.converted[i].data();
      if (Status status = readSample(input, sample, {}, own.raw[i].data(), converted); !status.ok())
        return status;
      if (auto bad = firstNonFinite(converted, input.dtype, input.outer * input.inner, false))
        return error("{}: {}: NaN", path, placeOf(input, sample, *bad));
    }
  return Status();
}

std::string BatchReader::describeNonFinite(std::span<const uint64_t> indices, bool infinities) {
  auto look = [&](const Input &input, const std::byte *values, uint64_t count, std::optional<uint64_t> sample) {
    auto bad = firstNonFinite(values, input.dtype, count, infinities);
    return bad ? fmt::format("{}: {}", placeOf(input, sample, *bad), elementText(values, input.dtype, *bad)) : "";
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input &input = inputs[i];
    std::byte *raw = own.raw[i].data(), *converted = own.converted[i].data();
    if (!plan::isFloatingPoint(input.dtype))
      continue;
    if (!input.sampled) {
      std::span<const std::byte> all = input.column->contiguous();
      if (!all.empty() &&
          !convertElements(all.data(), input.column->type().dtype(), converted, input.dtype, input.elements))
        if (std::string text = look(input, converted, input.elements, std::nullopt); !text.empty())
          return text;
      continue;
    }
    for (uint64_t slot = 0; slot < indices.size(); ++slot)
      if (input.column->draw(indices[slot], lastDraw.of(slot, batchSize).ofView(input.view), raw).ok() &&
          !convertElements(raw, input.column->type().dtype(), converted, input.dtype, input.outer * input.inner))
        if (std::string text = look(input, converted, input.outer * input.inner, indices[slot]); !text.empty())
          return text;
  }
  return "";
}

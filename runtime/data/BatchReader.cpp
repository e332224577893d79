//===- BatchReader.cpp - columns become the inputs of an entry -----------===//
#include "runtime/data/BatchReader.h"
#include "runtime/data/Convert.h"
#include "runtime/data/transforms/Mix.h"
#include "support/Advice.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace tcc;
using namespace tcc::runtime;

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
    // Contiguous runs of elements: all of them, or the innermost dimension of a box.
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
    if (!holds(sample)) // it goes to another shape, which may allow more, or is cut and checked when it is read
      input.checked = false;
    else if (Status status = checkRanges(input, all.data() + sample * bytes, dtype, sample); !status.ok())
      return status;
  return Status();
}

Status BatchReader::checkWeights(const Input &input, const std::byte *converted, uint64_t sample) const {
  for (uint64_t i = 0; i < input.outer * input.inner; ++i)
    if (const double weight = floatElement(converted, input.dtype, i); !(weight >= 0) || std::isinf(weight))
      return error(
          "{}: {}: {} is no weight of a sample: weights are finite and at least 0; correct the column, or name "
          "another one with {}",
          path, placeOf(input, sample, i), elementText(converted, input.dtype, i),
          advice::set("data.map." + input.name, "COLUMN"));
  return Status();
}

Status BatchReader::checkWeightsNow(const Input &input) const {
  std::span<const std::byte> all = input.column->contiguous();
  const plan::DType from = input.column->type().dtype();
  const uint64_t count = input.outer * input.inner;
  if (!input.sampled || all.empty())
    return Status();
  std::vector<std::byte> converted(count * plan::dtypeBytes(input.dtype));
  bool any = false;
  for (uint64_t sample = 0; sample < input.column->samples(); ++sample) {
    if (convertElements(all.data() + sample * count * plan::dtypeBytes(from), from, converted.data(), input.dtype,
                        count))
      continue; // bindInput has reported it, or it is a damaged sample
    if (Status status = checkWeights(input, converted.data(), sample); maxBad == 0 && !status.ok())
      return status;
    for (uint64_t i = 0; i < count; ++i)
      any |= floatElement(converted.data(), input.dtype, i) > 0;
  }
  if (!any)
    return error(
        "{}: column '{}': all weights of samples are 0, so the loss would be 0/0; give some sample a weight above 0",
        path, input.column->name());
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

std::string BatchReader::shapeText() const {
  std::string text;
  for (const Input &input : inputs)
    text += fmt::format("{}{} {}[{}{}{}]", text.empty() ? "" : ", ", input.name, plan::dtypeName(input.dtype),
                        input.sampled ? std::to_string(batchSize) : "", input.sampled && !input.dims.empty() ? "x" : "",
                        fmt::join(input.dims, "x"));
  return text;
}

std::vector<std::pair<std::string, const Column *>> BatchReader::columns() const {
  std::vector<std::pair<std::string, const Column *>> result;
  for (const Input &input : inputs)
    if (!input.presence)
      result.emplace_back(input.name, input.column);
  return result;
}

std::vector<std::string> BatchReader::inputNames() const {
  std::vector<std::string> names;
  for (const Input &input : inputs)
    names.push_back(input.name);
  return names;
}

uint64_t BatchReader::sampleBytes() const {
  uint64_t bytes = 0;
  for (const Input &input : inputs)
    if (input.sampled)
      bytes += input.outer * input.inner * plan::dtypeBytes(input.dtype);
  return bytes;
}

bool BatchReader::takesSamplesOf(const BatchReader &other) const {
  return std::equal(inputs.begin(), inputs.end(), other.inputs.begin(), other.inputs.end(),
                    [](const Input &a, const Input &b) { return a.name == b.name && a.dims == b.dims; });
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

void BatchReader::writeMask(const Input &input, std::byte *converted) const {
  const int64_t value = input.presence ? 0 : maskedValue;
  for (uint64_t i = 0; i < input.outer * input.inner; ++i)
    (void)convertElements(reinterpret_cast<const std::byte *>(&value), plan::I64,
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
  if (input.weighs)
    if (Status status = checkWeights(input, converted, index); !status.ok())
      return status;
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
    // A sample that is one block of the batch is written in place; several blocks are gathered first.
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
    const bool ignore = mask && (input.presence || static_cast<int>(i) == maskedInput);
    if (ignore && count < batchSize)
      writeMask(input, scratch.converted[i].data());
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
    if (policy == Damaged::Drop && !damaged->empty())
      std::erase_if(indices, [&](uint64_t index) { return damaged->contains(index); });
    if (policy == Damaged::Replace && !damaged->empty())
      for (uint64_t &index : indices)
        if (damaged->contains(index))
          index = nextSound(index);
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
  if (damaged->contains(sample))
    return Status();
  if (damaged->size() >= maxBad)
    return Status(
        maxBad == 0
            ? fmt::format("{}; `{}` lists every damaged sample, {} leaves up to N out", problem.message(),
                          advice::command("data"), advice::set("data.max_bad", "N"))
            : fmt::format("{}; {} damaged {} left out before, as many as data.max_bad allows", problem.message(),
                          damaged->size(), damaged->size() == 1 ? "sample was" : "samples were"),
        problem.code());
  damaged->emplace(sample, problem.message());
  if (nextSound(sample) == sample) {
    damaged->erase(sample);
    return error("{}; every other sample {}is damaged, too", problem.message(),
                 isRagged() ? "that is no larger than the shape " : "");
  }
  return Status();
}

uint64_t BatchReader::nextSound(uint64_t sample) const {
  for (uint64_t next = (sample + 1) % sampleCount; next != sample; next = (next + 1) % sampleCount)
    if (!damaged->contains(next) && holds(next))
      return next;
  return sample;
}

bool BatchReader::holds(uint64_t sample) const {
  return std::ranges::all_of(ragged, [&](const RaggedInput &one) { return one.column->holds(sample); });
}

uint64_t BatchReader::keptBytes(uint64_t sample) const {
  uint64_t bytes = 0;
  for (const RaggedInput &one : ragged)
    bytes += one.column->keptElements(sample) * plan::dtypeBytes(inputs[one.input].dtype);
  return bytes;
}

static bool isSizedImages(const Column &column) {
  return column.isSized() && column.isComputed() && column.type().dims_size() == 4;
}

/// "300x200" of an image (width and height), "[3, 5]" of another array.
static std::string extentsText(const Column &column, const std::vector<uint64_t> &extents) {
  return isSizedImages(column) ? fmt::format("{}x{}", extents[2], extents[1])
                               : fmt::format("[{}]", fmt::join(extents, ", "));
}

std::string BatchReader::describeLarger(uint64_t sample, std::span<const std::unique_ptr<BatchReader>> shapes) const {
  for (const RaggedInput &one : ragged) {
    if (one.column->holds(sample))
      continue;
    const Column &column = one.column->unpadded();
    const std::string &input = inputs[one.input].name;
    std::vector<uint64_t> own;
    for (size_t axis = 0; axis < one.column->extents().size(); ++axis)
      own.push_back(one.column->extentOf(sample, axis));
    if (std::equal(own.begin() + 1, own.end(), one.column->extents().begin() + 1) && !column.isSized())
      return fmt::format("column '{}': sample {} has {} rows, the model's input '{}' takes {}", column.name(), sample,
                         own.front(), input, one.column->extents().front());
    std::vector<std::string> takes;
    for (const auto &shape : shapes)
      for (const RaggedInput &other : shape->ragged)
        if (const std::string text = extentsText(column, other.column->extents());
            shape->inputs[other.input].name == input && std::ranges::find(takes, text) == takes.end())
          takes.push_back(text);
    constexpr size_t kMost = 6;
    const std::string more = takes.size() > kMost ? fmt::format(" and {} other shapes", takes.size() - kMost) : "";
    takes.resize(std::min(takes.size(), kMost));
    const std::string place = column.place(sample);
    const char *unit = isSizedImages(column) ? " pixels" : "";
    return fmt::format("column '{}': sample {}{} {} {}{}, the model's input '{}' takes {}{}{}", column.name(), sample,
                       place.empty() ? "" : fmt::format(" ({})", place), *unit ? "has" : "is", extentsText(column, own),
                       unit, input, fmt::join(takes, " or "), unit, more);
  }
  return "";
}

bool BatchReader::padsImages() const {
  return std::ranges::any_of(ragged, [](const RaggedInput &one) { return isSizedImages(one.column->unpadded()); });
}

bool BatchReader::pads(const Column &column) const {
  bool any = false;
  for (const Input &input : inputs) {
    const bool padded = std::ranges::any_of(ragged, [&](const RaggedInput &one) {
      return one.column.get() == input.column && &one.column->unpadded() == &column;
    });
    any |= padded;
    if (!padded && input.column == &column)
      return false;
  }
  return any;
}

uint64_t BatchReader::extentOf(const std::string &name, size_t axis, uint64_t sample) const {
  for (const RaggedInput &one : ragged)
    if (inputs[one.input].name == name)
      return std::min(one.column->extentOf(sample, axis), one.column->extents()[axis]);
  for (const Input &input : inputs)
    if (input.name == name)
      return static_cast<uint64_t>(input.dims[axis]);
  return 0;
}

uint64_t BatchReader::tokensOf(uint64_t sample) const {
  for (const RaggedInput &one : ragged)
    if (tokensInput == one.input)
      return one.column->keptElements(sample);
  return tokens;
}

void BatchReader::knowDamaged(std::span<const uint64_t> samples) {
  for (uint64_t sample : samples)
    if (sample < sampleCount)
      damaged->emplace(sample, "");
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

//===- BatchReader.cpp - columns become the inputs of an entry -----------===//
#include "runtime/data/BatchReader.h"
#include "runtime/data/Convert.h"

#include <cstring>

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

/// The column of an input, or the error that lists what there is.
plan::Expected<const Column *> columnOf(const plan::Entry &entry, const plan::Port &port, const Dataset &dataset,
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
  if (const Column *column = dataset.find(wanted))
    return column;
  return plan::error("{}: no column '{}' for the model's input '{}' {}; the data has {}; name the right one with "
                     "--set data.map.{}=COLUMN",
                     dataset.path, wanted, port.name(),
                     plan::typeName(entry.buffers(static_cast<int>(port.buffer())).type()), dataset.describeColumns(),
                     port.name());
}
} // namespace

plan::Expected<BatchReader::Input> BatchReader::bindInput(const plan::Entry &entry, const plan::Port &port,
                                                          const Dataset &dataset, const Column &column) {
  const plan::TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type(), &have = column.type();
  Input input;
  input.name = port.name();
  input.column = &column;
  input.dtype = type.dtype();
  if (!mayConvert(have.dtype(), type.dtype(), column.isText()))
    return plan::error("{}: column '{}' is {}, the model's input '{}' {}: {} does not become {} silently; convert the "
                       "data",
                       dataset.path, column.name(), plan::typeName(have), port.name(), plan::typeName(type),
                       plan::dtypeName(have.dtype()), plan::dtypeName(type.dtype()));
  int axis = port.sample_axis();
  bool canSample = axis >= 0 && axis < type.dims_size() && type.dims(axis) == entry.batch();
  plan::TensorType sample = sampleType(type, canSample ? axis : -1);
  input.sampled = canSample && hasSamplesOf(have, sample);
  if (!input.sampled && !sameDims(have, type)) {
    if (canSample)
      return plan::error("{}: column '{}' is {}, but a sample of the model's input '{}' is {}: the column must be "
                         "[samples]{}",
                         dataset.path, column.name(), plan::typeName(have), port.name(), plan::typeName(sample),
                         sample.dims_size() ? " followed by that shape" : "");
    return plan::error("{}: column '{}' is {}, but the model's input '{}' is the constant {}: the shapes must be equal",
                       dataset.path, column.name(), plan::typeName(have), port.name(), plan::typeName(type));
  }
  for (int i = 0; i < type.dims_size(); ++i) {
    input.elements *= static_cast<uint64_t>(type.dims(i));
    if (canSample && i != axis)
      (i < axis ? input.outer : input.inner) *= static_cast<uint64_t>(type.dims(i));
  }
  // What can be checked now is: an error after an hour of training would be unkind.
  std::span<const std::byte> all = column.contiguous();
  if (!all.empty() && !alwaysFits(have.dtype(), type.dtype())) {
    uint64_t width = plan::dtypeBytes(have.dtype()), count = all.size() / width;
    std::byte value[8];
    for (uint64_t i = 0; i < count; ++i)
      if (convertElements(all.data() + i * width, have.dtype(), value, type.dtype(), 1))
        return plan::error("{}: column '{}': value {} of sample {} does not fit the {} of the model's input '{}'",
                           dataset.path, column.name(), elementText(all.data(), have.dtype(), i),
                           have.dims_size() ? i / std::max<uint64_t>(count / std::max<uint64_t>(column.samples(), 1), 1)
                                            : 0,
                           plan::dtypeName(type.dtype()), port.name());
  }
  return input;
}

plan::Expected<BatchReader> BatchReader::bind(const plan::Entry &entry, const Dataset &dataset,
                                              const BindOptions &options) {
  BatchReader reader;
  reader.path = dataset.path;
  reader.ignoreIndex = options.ignoreIndex;
  reader.batchSize = static_cast<uint64_t>(std::max<int64_t>(entry.batch(), 1));
  for (const auto &[input, column] : options.map) {
    bool known = false;
    for (const plan::Port &port : entry.inputs())
      known |= port.name() == input;
    // Entries differ in their inputs: `predict` has no target.
    if (!known && !dataset.find(column) && input != options.target)
      return plan::error("{}: data.map.{} = \"{}\": no such column; the data has {}", dataset.path, input, column,
                         dataset.describeColumns());
  }
  for (const plan::Port &port : entry.inputs()) {
    auto column = columnOf(entry, port, dataset, options);
    if (!column)
      return column.status();
    auto input = bindInput(entry, port, dataset, **column);
    if (!input)
      return input.status();
    reader.inputs.push_back(input.take());
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
      return plan::error("{}: column '{}' has {} samples, '{}' has {}; all must have the same number", dataset.path,
                         first->column->name(), first->column->samples(), input.column->name(),
                         input.column->samples());
  }
  if (first)
    reader.sampleCount = first->column->samples();
  else if (reader.sampleCount == 0)
    reader.sampleCount = reader.batchSize;
  for (size_t i = 0; i < reader.inputs.size(); ++i) {
    Input &input = reader.inputs[i];
    uint64_t count = input.sampled ? input.outer * input.inner : input.elements;
    input.raw.resize(count * plan::dtypeBytes(input.column->type().dtype()));
    input.converted.resize(count * plan::dtypeBytes(input.dtype));
    bool integer = !plan::isFloatingPoint(input.dtype);
    if (input.name == options.target && integer && options.classes) {
      input.classes = *options.classes;
      std::span<const std::byte> all = input.column->contiguous();
      plan::DType dtype = input.column->type().dtype();
      input.checked = !all.empty();
      if (plan::Status status = reader.checkClasses(input, all.data(), dtype, all.size() / plan::dtypeBytes(dtype), 0);
          !status.ok())
        return status;
    }
    if (input.name == options.target && input.sampled && integer && options.ignoreIndex) {
      std::byte probe[8];
      if (!convertElements(reinterpret_cast<const std::byte *>(&*options.ignoreIndex), plan::I64, probe, input.dtype,
                           1)) {
        reader.maskedInput = static_cast<int>(i);
      }
    }
    const plan::TensorType &type = input.column->type();
    if (input.sampled && integer && type.dims_size() >= 2 && (reader.tokens == 0 || input.name == options.target))
      reader.tokens = count;
  }
  return reader;
}

plan::Status BatchReader::checkClasses(const Input &input, const std::byte *values, plan::DType dtype, uint64_t count,
                                       uint64_t sample) const {
  uint64_t perSample = input.sampled ? input.outer * input.inner : count;
  for (uint64_t i = 0; i < count; ++i) {
    int64_t value = integerElement(values, dtype, i);
    if ((value < 0 || value >= input.classes) && value != ignoreIndex)
      return plan::error(
          "{}: column '{}': value {} of sample {} names no class of the model's input '{}': classes are 0 "
          "to {}{}",
          path, input.column->name(), value, sample + i / std::max<uint64_t>(perSample, 1), input.name,
          input.classes - 1, ignoreIndex ? fmt::format(", and {} is not counted", *ignoreIndex) : "");
  }
  return plan::Status();
}

plan::Status BatchReader::readSample(Input &input, uint64_t index, bool ignore) {
  uint64_t count = input.outer * input.inner;
  plan::DType from = input.column->type().dtype();
  if (ignore) {
    for (uint64_t i = 0; i < count; ++i)
      (void)convertElements(reinterpret_cast<const std::byte *>(&*ignoreIndex), plan::I64,
                            input.converted.data() + i * plan::dtypeBytes(input.dtype), input.dtype, 1);
    return plan::Status();
  }
  bool direct = from == input.dtype && from != plan::I1;
  if (plan::Status status = input.column->read(index, direct ? input.converted.data() : input.raw.data()); !status.ok())
    return status;
  if (input.classes != 0 && !input.checked)
    if (plan::Status status =
            checkClasses(input, direct ? input.converted.data() : input.raw.data(), from, count, index);
        !status.ok())
      return status;
  if (direct)
    return plan::Status();
  if (auto bad = convertElements(input.raw.data(), from, input.converted.data(), input.dtype, count))
    return plan::error("{}: column '{}': value {} of sample {} does not fit the {} of the model's input '{}'", path,
                       input.column->name(), elementText(input.raw.data(), from, *bad), index,
                       plan::dtypeName(input.dtype), input.name);
  return plan::Status();
}

plan::Status BatchReader::fill(std::span<const uint64_t> indices, bool mask, std::span<void *const> buffers) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    Input &input = inputs[i];
    auto *destination = static_cast<std::byte *>(buffers[i]);
    if (!destination)
      continue;
    if (!input.sampled) {
      std::span<const std::byte> all = input.column->contiguous();
      if (all.empty() && input.elements != 0)
        return plan::error("{}: column '{}' cannot be a constant", path, input.column->name());
      if (auto bad =
              convertElements(all.data(), input.column->type().dtype(), destination, input.dtype, input.elements))
        return plan::error("{}: column '{}': value {} does not fit the {} of the model's input '{}'", path,
                           input.column->name(), elementText(all.data(), input.column->type().dtype(), *bad),
                           plan::dtypeName(input.dtype), input.name);
      continue;
    }
    uint64_t block = input.inner * plan::dtypeBytes(input.dtype);
    for (uint64_t slot = 0; slot < batchSize; ++slot) {
      bool padded = slot >= indices.size(), ignore = padded && mask && static_cast<int>(i) == maskedInput;
      if (!padded || slot == indices.size())
        if (plan::Status status = readSample(input,
                                             indices.empty() ? 0
                                             : padded        ? indices.back()
                                                             : indices[slot],
                                             ignore);
            !status.ok())
          return status;
      for (uint64_t outer = 0; outer < input.outer; ++outer)
        std::memcpy(destination + (outer * batchSize + slot) * block, input.converted.data() + outer * block, block);
    }
  }
  return plan::Status();
}

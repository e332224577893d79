//===- CheckInputs.cpp - inputs of the gradient check ---------------------===//
#include "tools/tcc/CheckInputs.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/tensors/Safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

namespace tcc::gradcheck {

namespace {

bool isInteger(plan::DType type) {
  return !plan::isFloatingPoint(type) && type != plan::I1 && type != plan::DTYPE_NONE;
}

/// A value of any element type; integers beyond 2^53 lose their last bits, which no index has.
double load(const std::byte *data, plan::DType type) {
  auto as = [&](auto value) {
    std::memcpy(&value, data, sizeof value);
    return double(value);
  };
  auto bits = [&] {
    uint16_t value;
    std::memcpy(&value, data, sizeof value);
    return value;
  };
  switch (type) {
  case plan::F64:
    return as(double());
  case plan::F32:
    return as(float());
  case plan::BF16: {
    uint32_t wide = uint32_t(bits()) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  case plan::F16: {
    uint16_t half = bits();
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                 : std::ldexp(fraction, -24);
    return half >> 15 ? -size : size;
  }
  case plan::I64:
    return as(int64_t());
  case plan::I32:
    return as(int32_t());
  case plan::I16:
    return as(int16_t());
  case plan::I8:
    return as(int8_t());
  case plan::U64:
    return as(uint64_t());
  case plan::U32:
    return as(uint32_t());
  case plan::U16:
    return as(uint16_t());
  case plan::U8:
  case plan::I1:
    return as(uint8_t());
  default:
    return NAN;
  }
}

std::vector<std::byte> bytesFor(const plan::TensorType &type) {
  return std::vector<std::byte>(plan::tensorBytes(type).value_or(0));
}

/// The loader's check: each range holds for the elements of its box, or for all elements.
Status checkIndices(const plan::Port &port, const plan::TensorType &type, const std::vector<double> &values,
                    const std::string &where) {
  for (const plan::IndexRange &range : port.index_ranges())
    for (size_t i = 0; i < values.size(); ++i) {
      bool inside = true;
      size_t rest = i;
      for (int d = type.dims_size(); d-- > 0 && range.begin_size() == type.dims_size();
           rest /= size_t(std::max<int64_t>(1, type.dims(d)))) {
        const int64_t at = int64_t(rest % size_t(std::max<int64_t>(1, type.dims(d))));
        inside &= at >= range.begin(d) && at < range.end(d);
      }
      const auto value = values[i];
      const bool excepted = std::any_of(range.exceptions().begin(), range.exceptions().end(),
                                        [&](int64_t other) { return double(other) == value; });
      if (inside && !excepted && (value < double(range.low()) || value > double(range.high())))
        return error("{}: value {:.0f} is outside of its legal range, {} to {}{}", where, value, range.low(),
                     range.high(),
                     range.node().empty() ? "" : fmt::format(" (node {} takes it as an index)", range.node()));
    }
  return Status::success();
}

/// Bounds of the values to draw: those of the plan's checks, from 0 on if 0 passes; without checks those of `ranges`.
std::pair<int64_t, int64_t> boundsOf(const plan::Port &port, const std::map<std::string, IndexRange> &ranges) {
  int64_t low = INT64_MIN, high = INT64_MAX;
  for (const plan::IndexRange &range : port.index_ranges()) {
    low = std::max(low, range.low());
    high = std::min(high, range.high());
  }
  if (high == INT64_MAX) {
    high = low == INT64_MIN || low < 0 ? 1 : low < INT64_MAX - 1 ? low + 1 : low;
    if (auto range = ranges.find(port.name()); range != ranges.end())
      high = std::min(range->second.rows.value_or(INT64_MAX), range->second.classes.value_or(INT64_MAX)) - 1;
  }
  if (low < 0 && high >= 0)
    low = 0;
  return {std::min(low, high), high};
}

/// What the runtime gives a loss that can leave samples out: every slot has one.
std::vector<std::byte> samplesThere(const plan::TensorType &type) {
  std::vector<std::byte> bytes = bytesFor(type);
  plan::fillElements(bytes.data(), type.dtype(), plan::elementCount(type).value_or(0), 1);
  return bytes;
}

} // namespace

InputValues drawInputs(const plan::Entry &entry, const std::map<std::string, IndexRange> &ranges, uint64_t seed,
                       bool positive) {
  InputValues values;
  for (const plan::Port &port : entry.inputs()) {
    const plan::TensorType &type = entry.buffers(int(port.buffer())).type();
    std::mt19937_64 random(seed ^ plan::hashBytes(port.name().data(), port.name().size()));
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(0.05, 0.95);
    auto [low, high] = boundsOf(port, ranges);
    if (plan::dtypeBytes(type.dtype()) == 1) // every integer type holds 127
      high = std::max<int64_t>(low, std::min<int64_t>(high, 127));
    std::uniform_int_distribution<int64_t> integer(low, std::max(low, high));
    std::vector<std::byte> bytes = bytesFor(type);
    if (port.presence()) {
      values.push_back(samplesThere(type));
      continue;
    }
    uint64_t size = plan::dtypeBytes(type.dtype()), count = plan::elementCount(type).value_or(0);
    for (uint64_t i = 0; i < count; ++i) {
      double value = isInteger(type.dtype())    ? double(integer(random))
                     : type.dtype() == plan::I1 ? double(random() & 1)
                     : positive                 ? uniform(random)
                                                : normal(random);
      plan::fillElements(bytes.data() + i * size, type.dtype(), 1, value);
    }
    values.push_back(std::move(bytes));
  }
  return values;
}

Expected<InputValues> readInputs(const plan::Entry &entry, const std::string &path,
                                 const std::map<std::string, std::string> &columns) {
  Expected<runtime::SafetensorsFile> file = runtime::SafetensorsFile::open(path);
  if (!file)
    return file.status();
  InputValues values;
  for (const plan::Port &port : entry.inputs()) {
    const plan::TensorType &type = entry.buffers(int(port.buffer())).type();
    if (port.presence()) {
      values.push_back(samplesThere(type));
      continue;
    }
    auto mapped = columns.find(port.name());
    const std::string &column = mapped == columns.end() ? port.name() : mapped->second;
    std::string where = fmt::format("{}: '{}'", path, column);
    const runtime::Tensor *tensor = file->find(column);
    if (!tensor)
      return error("{} is missing; the model's input '{}' needs {}", where, port.name(), plan::typeName(type));
    // As many samples as the program takes, from the front: the sample axis is the first.
    bool fits = tensor->type.dims_size() == type.dims_size();
    for (int i = 0; fits && i < type.dims_size(); ++i)
      fits = i == 0 && port.sample_axis() == 0 ? tensor->type.dims(i) >= type.dims(i)
                                               : tensor->type.dims(i) == type.dims(i);
    bool floats = plan::isFloatingPoint(type.dtype());
    if (!fits || floats != plan::isFloatingPoint(tensor->type.dtype()))
      return error("{} is {}, the model's input '{}' takes {}", where, plan::typeName(tensor->type), port.name(),
                         plan::typeName(type));
    std::vector<std::byte> bytes = bytesFor(type);
    std::vector<double> all;
    uint64_t from = plan::dtypeBytes(tensor->type.dtype()), to = plan::dtypeBytes(type.dtype());
    for (uint64_t i = 0; i < plan::elementCount(type).value_or(0); ++i) {
      double value = load(tensor->bytes.data() + i * from, tensor->type.dtype());
      if (!floats) {
        all.push_back(value);
        // If the value changes when converted to double and back, the type is too narrow.
        plan::fillElements(bytes.data() + i * to, type.dtype(), 1, value);
        if (load(bytes.data() + i * to, type.dtype()) != value)
          return error("{}: value {:.0f} does not fit the input's {}", where, value,
                             plan::dtypeName(type.dtype()));
        continue;
      }
      plan::fillElements(bytes.data() + i * to, type.dtype(), 1, value);
    }
    if (Status status = checkIndices(port, type, all, where); !status.ok())
      return status;
    values.push_back(std::move(bytes));
  }
  return values;
}

} // namespace tcc::gradcheck

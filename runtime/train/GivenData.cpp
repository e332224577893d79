//===- GivenData.cpp - a caller's tensors as the inputs of an entry --------===//
#include "runtime/train/GivenData.h"
#include "runtime/plan/Shapes.h"
#include "runtime/train/Metrics.h"
#include "support/Advice.h"
#include "support/NearestName.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <cstring>
#include <fmt/ranges.h>
#include <limits>
#include <numeric>

using namespace tcc;
using namespace tcc::runtime;

/// The rows of one tensor: its samples, wherever the sample axis is.
class GivenData::Rows final : public Column {
public:
  Rows(std::string name, plan::TensorType type) : Column(std::move(name), std::move(type)) {}

  /// `rowDims`, `strides`: those of one sample, in elements.
  void take(const void *from, int64_t rowStride, std::vector<int64_t> rowDims, std::vector<int64_t> strides) {
    data = static_cast<const std::byte *>(from);
    width = static_cast<int64_t>(plan::dtypeBytes(type().dtype()));
    stride = rowStride * width;
    dims = std::move(rowDims);
    steps = std::move(strides);
    isDense = true;
    int64_t inner = 1;
    for (size_t d = dims.size(); d-- > 0; inner *= dims[d])
      isDense = isDense && (dims[d] == 1 || steps[d] == inner);
  }
  void take(const void *from) { data = static_cast<const std::byte *>(from); }

  Status read(uint64_t index, std::byte *to) const override {
    copy(data + static_cast<int64_t>(index) * stride, 0, to);
    return Status();
  }

  /// A constant is read whole; samples are checked as they are read, since the next tensors have other values.
  std::span<const std::byte> contiguous() const override {
    return constant.empty() ? std::span<const std::byte>() : std::span<const std::byte>(constant);
  }
  /// Copies the whole tensor, which is a constant.
  void copyConstant() {
    constant.resize(sampleBytesOf(dims));
    std::byte *to = constant.data();
    copy(data, 0, to);
  }

private:
  uint64_t sampleBytesOf(const std::vector<int64_t> &of) const {
    return static_cast<uint64_t>(std::accumulate(of.begin(), of.end(), width, std::multiplies<>()));
  }
  void copy(const std::byte *from, size_t axis, std::byte *to) const {
    if (isDense || axis == dims.size()) {
      std::memcpy(to, from, isDense ? sampleBytesOf(dims) : static_cast<size_t>(width));
      return;
    }
    copyAxis(from, axis, to);
  }
  /// Returns the address behind the last byte written.
  std::byte *copyAxis(const std::byte *from, size_t axis, std::byte *to) const {
    for (int64_t i = 0; i < dims[axis]; ++i, from += steps[axis] * width)
      if (axis + 1 == dims.size()) {
        std::memcpy(to, from, static_cast<size_t>(width));
        to += width;
      } else {
        to = copyAxis(from, axis + 1, to);
      }
    return to;
  }

  const std::byte *data = nullptr;
  int64_t width = 1, stride = 0; ///< bytes
  std::vector<int64_t> dims, steps;
  bool isDense = true;
  std::vector<std::byte> constant;
};

static std::vector<int64_t> denseStrides(const std::vector<int64_t> &dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;)
    strides[d - 1] = strides[d] * dims[d];
  return strides;
}

bool GivenData::fits(std::span<const GivenTensor> tensors) const {
  return std::equal(bound.begin(), bound.end(), tensors.begin(), tensors.end(),
                    [](const Bound &have, const GivenTensor &given) {
                      return have.name == given.name && have.dtype == given.dtype && have.dims == given.dims &&
                             have.strides == given.strides;
                    });
}

void GivenData::take(std::span<const GivenTensor> tensors) {
  for (size_t i = 0; i < bound.size(); ++i) {
    bound[i].rows->take(tensors[i].data);
    if (!bound[i].rows->contiguous().empty())
      bound[i].rows->copyConstant();
  }
}

namespace {
const plan::Port *portOf(const plan::Entry &entry, const std::string &name) {
  const auto found = std::ranges::find_if(entry.inputs(), [&](const plan::Port &port) { return port.name() == name; });
  return found == entry.inputs().end() ? nullptr : &*found;
}

const plan::TensorType &typeOf(const plan::Entry &entry, const plan::Port &port) {
  return entry.buffers(static_cast<int>(port.buffer())).type();
}

using PaddedAxes = std::map<std::string, std::vector<int>>;

/// The axes of an input along which samples may be shorter.
std::vector<int> paddedAxesOf(const PaddedAxes &padded, const plan::Entry &entry, const plan::Port &port) {
  const auto found = padded.find(port.name());
  std::vector<int> axes = found == padded.end() ? std::vector<int>() : found->second;
  for (int &axis : axes)
    axis += axis >= plan::sampleAxisOf(entry, port); // axes of a sample are counted without that of the samples
  return axes;
}

/// The number of samples of the first tensor that has any; 0: none has.
int64_t rowsOf(const plan::Entry &entry, std::span<const GivenTensor> tensors) {
  for (const GivenTensor &tensor : tensors)
    if (const plan::Port *port = portOf(entry, tensor.name))
      if (const int axis = plan::sampleAxisOf(entry, *port);
          axis >= 0 && static_cast<size_t>(axis) < tensor.dims.size())
        return tensor.dims[static_cast<size_t>(axis)];
  return 0;
}

/// True if the input takes the tensor, padded where that may be.
bool holds(const PaddedAxes &paddedAxes, const plan::Entry &entry, const plan::Port &port, const GivenTensor &tensor) {
  const plan::TensorType &type = typeOf(entry, port);
  const int samples = plan::sampleAxisOf(entry, port);
  const std::vector<int> padded = paddedAxesOf(paddedAxes, entry, port);
  if (static_cast<int>(tensor.dims.size()) != type.dims_size())
    return false;
  for (int d = 0; d < type.dims_size(); ++d)
    if (const int64_t given = tensor.dims[static_cast<size_t>(d)];
        given != type.dims(d) && d != samples &&
        !(given < type.dims(d) && std::ranges::find(padded, d) != padded.end()))
      return false;
  return true;
}
} // namespace

Expected<std::unique_ptr<GivenData>> GivenData::bind(const Session &session,
                                                     const std::vector<const plan::Entry *> &shapes, bool trains,
                                                     std::span<const GivenTensor> tensors, uint64_t microBatches) {
  auto sampleElementsOf = [](const plan::Entry &entry) {
    int64_t elements = 0;
    for (const plan::Port &port : entry.inputs())
      if (plan::sampleAxisOf(entry, port) >= 0)
        elements += static_cast<int64_t>(plan::elementCount(typeOf(entry, port)).value_or(0)) / entry.batch();
    return elements;
  };
  const int64_t rows = rowsOf(*shapes.front(), tensors),
                each = (rows + static_cast<int64_t>(microBatches) - 1) / static_cast<int64_t>(microBatches);
  // Batches that take the rows come first, the smallest before the others, then the largest of those that do not.
  auto excess = [&](const plan::Entry &entry) {
    return entry.batch() >= each ? entry.batch() - each : std::numeric_limits<int64_t>::max() - entry.batch();
  };
  std::vector<size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::stable_sort(order, {}, [&](size_t shape) { return excess(*shapes[shape]); });
  std::ranges::stable_sort(order, {}, [&](size_t shape) { return sampleElementsOf(*shapes[shape]); });
  const PaddedAxes paddedAxes = plan::paddedAxes(shapes);
  const auto found = std::ranges::find_if(order, [&](size_t shape) {
    return std::ranges::all_of(tensors, [&](const GivenTensor &tensor) {
      const plan::Port *port = portOf(*shapes[shape], tensor.name);
      return port && holds(paddedAxes, *shapes[shape], *port, tensor);
    });
  });
  // Where none holds them, the largest shape's message says what it takes.
  return bindShape(session, shapes, found == order.end() ? order.back() : *found, trains, tensors);
}

Expected<std::unique_ptr<GivenData>> GivenData::bindShape(const Session &session,
                                                          const std::vector<const plan::Entry *> &shapes, size_t shape,
                                                          bool trains, std::span<const GivenTensor> tensors) {
  const plan::Entry &entry = *shapes[shape];
  std::unique_ptr<GivenData> made(new GivenData);
  made->chosen = shape;
  made->allShapes = shapes;
  if (trains)
    made->batchStatistics = session.training.batch_statistics();
  made->dataset.path = "the tensors";
  made->dataset.format = "tensors";
  const auto cast = session.data.settings().find("cast");
  made->dataset.castsToF32 = cast != session.data.settings().end() && cast->second == "f32";
  std::vector<std::string> inputs;
  for (const plan::Port &port : entry.inputs())
    if (!port.presence())
      inputs.push_back(port.name());
  BindOptions options = bindOptionsOf(session, trains);
  options.map.clear(); // names are those of inputs
  options.paddedAxes = options.raggedInputs = plan::paddedAxes(shapes);
  options.constants.clear();
  std::vector<Rows *> constants;
  std::map<std::string, std::pair<std::string, int64_t>> lengths; // by dimension: a tensor, and its rows
  const GivenTensor *first = nullptr; // of the sampled ones
  int64_t count = 0;
  for (const GivenTensor &tensor : tensors) {
    const auto found = std::find(inputs.begin(), inputs.end(), tensor.name);
    if (found == inputs.end())
      return Status(fmt::format("'{}' is no input of '{}'; {}", tensor.name, entry.name(),
                                nearestOrSome(tensor.name, inputs)),
                    StatusCode::Usage);
    if (made->dataset.find(tensor.name))
      return Status(fmt::format("'{}' is given twice", tensor.name), StatusCode::Usage);
    if (!tensor.data && std::find(tensor.dims.begin(), tensor.dims.end(), 0) == tensor.dims.end())
      return Status(fmt::format("'{}': the tensor has no data", tensor.name), StatusCode::Usage);
    if (!tensor.strides.empty() && tensor.strides.size() != tensor.dims.size())
      return Status(fmt::format("'{}': {} strides for {} dimensions", tensor.name, tensor.strides.size(),
                                tensor.dims.size()),
                    StatusCode::Usage);
    const plan::Port &port = *portOf(entry, tensor.name);
    const plan::TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type();
    std::vector<int64_t> dims = tensor.dims, strides = tensor.strides.empty() ? denseStrides(dims) : tensor.strides;
    const int axis = plan::sampleAxisOf(entry, port), lengthAxis = axis == 0 ? 1 : 0;
    const std::vector<int> padded = paddedAxesOf(options.paddedAxes, entry, port);
    const bool sampled = axis >= 0;
    if (std::ranges::find(padded, lengthAxis) != padded.end() && !port.length().empty() &&
        tensor.dims.size() > static_cast<size_t>(lengthAxis)) {
      const int64_t length = tensor.dims[static_cast<size_t>(lengthAxis)];
      const auto [known, fresh] = lengths.try_emplace(port.length(), tensor.name, length);
      if (known->second.second != length)
        return Status(fmt::format("'{}' has {} rows and '{}' {} along the model's dimension {}; give both the same "
                                  "length",
                                  known->second.first, known->second.second, tensor.name, length, port.length()),
                      StatusCode::Usage);
    }
    if (!holds(options.paddedAxes, entry, port, tensor)) {
      plan::TensorType have;
      have.set_dtype(tensor.dtype);
      for (int64_t dim : dims)
        have.add_dims(dim);
      return Status(
          fmt::format("'{}' is {}, the model's input is {}{}{}", tensor.name, plan::typeName(have),
                      plan::typeName(type),
                      sampled ? fmt::format("; only axis {}, the samples, may have another length", axis) : "",
                      padded.empty() ? ""
                                     : fmt::format(", and {} {} may be shorter", padded.size() == 1 ? "axis" : "axes",
                                                   fmt::join(padded, ", "))),
          StatusCode::Usage);
    }
    if (sampled) { // samples first
      const int64_t samples = dims[static_cast<size_t>(axis)];
      if (first && samples != count)
        return Status(fmt::format("'{}' has {} rows, '{}' has {}", tensor.name, samples, first->name, count),
                      StatusCode::Usage);
      first = &tensor;
      count = samples;
      std::rotate(dims.begin(), dims.begin() + axis, dims.begin() + axis + 1);
      std::rotate(strides.begin(), strides.begin() + axis, strides.begin() + axis + 1);
    }
    plan::TensorType columnType;
    columnType.set_dtype(tensor.dtype);
    for (int64_t dim : dims)
      columnType.add_dims(dim);
    auto rows = std::make_unique<Rows>(tensor.name, columnType);
    const size_t first = sampled ? 1 : 0;
    rows->take(tensor.data, sampled ? strides[0] : 0, {dims.begin() + static_cast<std::ptrdiff_t>(first), dims.end()},
               {strides.begin() + static_cast<std::ptrdiff_t>(first), strides.end()});
    made->bound.push_back({tensor.name, tensor.dtype, tensor.dims, tensor.strides, rows.get()});
    if (!sampled)
      constants.push_back(rows.get());
    made->dataset.columns.push_back(std::move(rows));
  }
  for (const plan::Port &port : entry.inputs())
    if (!port.presence() && !made->dataset.find(port.name()))
      return Status(fmt::format("no tensor for the model's input '{}' {}", port.name(),
                                plan::typeName(entry.buffers(static_cast<int>(port.buffer())).type())),
                    StatusCode::Usage);
  auto reader = BatchReader::bind(entry, made->dataset, options);
  if (!reader) // a type that is not converted, or a value out of range
    return Status(reader.status().message(), StatusCode::Usage);
  for (Rows *rows : constants)
    rows->copyConstant();
  made->batch.emplace(reader.take());
  made->names = made->batch->inputNames();
  return made;
}

Status GivenData::checkPadding() const {
  if (batch->maskable() && batchStatistics.empty())
    return Status();
  const uint64_t rows = batch->samples(), left = rows % batch->batch();
  const std::string shape = plan::batchesAdvice(allShapes, fmt::format("{},{}", batch->batch(), left));
  return Status(batch->maskable()
                    ? fmt::format("{} rows are no multiple of the plan's batch of {}, and node '{}' computes "
                                  "statistics over a batch, which padding would change; leave {} of the rows out, or "
                                  "{}",
                                  rows, batch->batch(), batchStatistics, left, shape)
                    : fmt::format("{} rows are no multiple of the plan's batch of {}, and its loss cannot leave rows "
                                  "out; compile with {}, or, for a shape of the last {}, {}",
                                  rows, batch->batch(), advice::compileSet("data.last", "pad"), left, shape),
                StatusCode::Usage);
}

Status GivenBatches::give(EntryRunner &runner, TrainingPosition &, uint64_t number) {
  const double begin = monotonicSeconds();
  const uint64_t first = firstRow(number);
  indices.resize(std::min(batch(), rows() - first));
  std::iota(indices.begin(), indices.end(), first);
  if (indices.size() < batch())
    if (Status status = data->checkPadding(); !status.ok())
      return status;
  // The entry of one of several alternating optimizers may read fewer inputs than the tensors are for, in another
  // order.
  const std::vector<std::string> &names = data->inputs();
  Status status = runner.giveInputs([&](std::span<const std::span<std::byte>> inputs) {
    places.assign(names.size(), {});
    for (size_t j = 0; j < names.size(); ++j)
      for (size_t i = 0; i < inputs.size(); ++i)
        if (runner.entry().inputs(static_cast<int>(i)).name() == names[j])
          places[j] = inputs[i];
    return data->reader().fill(indices, data->reader().maskable(), places);
  });
  taken += monotonicSeconds() - begin;
  // A value that the model cannot take (a class out of range) is the caller's, as a shape is.
  return status.code() == StatusCode::Fault ? Status(status.message(), StatusCode::Usage) : status;
}

std::string GivenBatches::describeNonFinite(bool infinities) const {
  return data->reader().describeNonFinite(indices, infinities);
}

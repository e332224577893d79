//===- JoinedOutputs.cpp - outputs of several batches as whole arrays -----===//
#include "runtime/train/JoinedOutputs.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Shapes.h"

#include <algorithm>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

Expected<JoinedOutputs> JoinedOutputs::create(const plan::Entry &entry, uint64_t samples, uint64_t batch,
                                              std::string_view prefix) {
  JoinedOutputs made;
  made.count = samples;
  made.batch = batch;
  for (int i = 0; i < entry.outputs_size(); ++i) {
    const plan::Port &port = entry.outputs(i);
    if (!port.name().starts_with(prefix))
      continue;
    const std::string name = port.name().substr(prefix.size());
    plan::TensorType type = entry.buffers(static_cast<int>(port.buffer())).type();
    const int axis = port.sample_axis();
    if (samples != batch) {
      if (axis < 0 || axis >= type.dims_size() || type.dims(axis) != static_cast<int64_t>(batch))
        return error(
            "output '{}' is {}: it has no sample axis, so only one batch of {} samples can be given, not {}{}", name,
            plan::typeName(type), batch, samples,
            type.dims_size() > 0 && type.dims(0) == static_cast<int64_t>(batch)
                ? "; where the batch is fixed in the file, export it with dynamic_shapes"
                : "");
      type.set_dims(axis, static_cast<int64_t>(samples));
    }
    made.specs.push_back({name, type, axis});
    made.indices.push_back(i);
  }
  return made;
}

/// The extents of one axis in every shape.
static std::vector<int64_t> extentsIn(const std::vector<const plan::Entry *> &shapes, int output, int axis) {
  std::vector<int64_t> extents;
  for (const plan::Entry *shape : shapes)
    extents.push_back(shape->buffers(static_cast<int>(shape->outputs(output).buffer())).type().dims(axis));
  return extents;
}
static std::vector<int64_t> extentsIn(const std::vector<const plan::Entry *> &shapes, const std::string &input,
                                      int axis) {
  std::vector<int64_t> extents;
  for (const plan::Entry *shape : shapes)
    for (const plan::Port &port : shape->inputs())
      if (port.name() == input)
        extents.push_back(plan::sampleExtents(*shape, port)[static_cast<size_t>(axis)]);
  return extents;
}

std::vector<JoinedOutputs::PaddedAxis> JoinedOutputs::paddedAxesOf(const std::vector<const plan::Entry *> &shapes,
                                                                   int output) {
  const plan::Port &port = shapes.front()->outputs(output);
  const plan::TensorType &type = shapes.front()->buffers(static_cast<int>(port.buffer())).type();
  std::vector<PaddedAxis> axes;
  for (int d = 0; d < type.dims_size(); ++d)
    if (const std::vector<int64_t> extents = extentsIn(shapes, output, d);
        d != port.sample_axis() && std::ranges::any_of(extents, [&](int64_t one) { return one != extents.front(); }))
      axes.push_back({d, {}});
  const std::map<std::string, std::vector<int>> inputs = plan::paddedAxes(shapes);
  // Height and width are as long in square shapes: where all axes of an input agree in their order, they correspond.
  for (const auto &[input, own] : inputs) {
    bool agrees = own.size() == axes.size();
    for (size_t k = 0; agrees && k < own.size(); ++k)
      agrees = extentsIn(shapes, input, own[k]) == extentsIn(shapes, output, axes[k].axis);
    for (size_t k = 0; agrees && k < own.size(); ++k)
      axes[k].inputs.push_back({input, own[k]});
  }
  for (PaddedAxis &axis : axes)
    if (axis.inputs.empty())
      for (const auto &[input, own] : inputs)
        for (int d : own)
          if (extentsIn(shapes, input, d) == extentsIn(shapes, output, axis.axis))
            axis.inputs.push_back({input, d});
  return axes;
}

Expected<JoinedOutputs> JoinedOutputs::create(const std::vector<const plan::Entry *> &shapes, uint64_t samples) {
  JoinedOutputs made;
  made.count = samples;
  for (int i = 0; i < shapes.front()->outputs_size(); ++i) {
    const plan::Port &port = shapes.front()->outputs(i);
    plan::TensorType whole = shapes.front()->buffers(static_cast<int>(port.buffer())).type();
    const int axis = port.sample_axis();
    for (const plan::Entry *shape : shapes) {
      const plan::TensorType &type = shape->buffers(static_cast<int>(shape->outputs(i).buffer())).type();
      if (axis < 0 || axis >= type.dims_size() || type.dims(axis) != shape->batch() ||
          type.dims_size() != whole.dims_size())
        return error("output '{}' is {}: it has no sample axis", port.name(), plan::typeName(type));
      for (int d = 0; d < type.dims_size(); ++d)
        whole.set_dims(d, std::max(whole.dims(d), type.dims(d)));
    }
    whole.set_dims(axis, static_cast<int64_t>(samples));
    made.specs.push_back({port.name(), whole, axis});
    made.indices.push_back(i);
    made.paddedAxes.push_back(paddedAxesOf(shapes, i));
  }
  return made;
}

void JoinedOutputs::allocate() {
  if (bytes.empty())
    for (const ArraySpec &array : specs)
      bytes.emplace_back(plan::tensorBytes(array.type).value_or(0));
}

namespace {
/// One sample of an output, copied between arrays of different extents.
struct SampleCopy {
  const plan::TensorType &from, &to;
  int sampleAxis;
  uint64_t slot, sample;
  std::span<const uint64_t> extents; ///< by axis: what is copied
  int lastAxis = 0;                  ///< the axes after it are copied whole

  void run(const std::byte *source, std::byte *destination) {
    lastAxis = sampleAxis;
    for (int d = 0; d < from.dims_size(); ++d)
      if (d != sampleAxis && (extentOf(from, d) != extents[size_t(d)] || from.dims(d) != to.dims(d)))
        lastAxis = std::max(lastAxis, d);
    axis(0, source, destination);
  }

private:
  void axis(int d, const std::byte *source, std::byte *destination) const {
    const uint64_t fromBytes = innerBytes(from, d), toBytes = innerBytes(to, d);
    if (d > lastAxis) {
      std::memcpy(destination, source, fromBytes * extentOf(from, d));
    } else if (d == sampleAxis) {
      axis(d + 1, source + slot * fromBytes, destination + sample * toBytes);
    } else {
      for (uint64_t i = 0; i < extents[size_t(d)]; ++i)
        axis(d + 1, source + i * fromBytes, destination + i * toBytes);
    }
  }
  static uint64_t extentOf(const plan::TensorType &type, int d) {
    return d < type.dims_size() ? static_cast<uint64_t>(type.dims(d)) : 1;
  }
  /// Bytes of the axes after `d`.
  static uint64_t innerBytes(const plan::TensorType &type, int d) {
    uint64_t size = plan::dtypeBytes(type.dtype());
    for (int k = d + 1; k < type.dims_size(); ++k)
      size *= static_cast<uint64_t>(type.dims(k));
    return size;
  }
};
} // namespace

Status JoinedOutputs::take(const EntryRunner &runner, std::span<const uint64_t> samples, const BatchReader &reader) {
  allocate();
  std::vector<uint64_t> extents;
  for (size_t i = 0; i < specs.size(); ++i) {
    const plan::TensorType &type = runner.outputType(indices[i]);
    call.resize(plan::tensorBytes(type).value_or(0));
    if (Status status = runner.readOutput(indices[i], 0, call); !status.ok())
      return status;
    for (size_t slot = 0; slot < samples.size() && !call.empty(); ++slot) {
      extents.assign(type.dims().begin(), type.dims().end());
      for (const PaddedAxis &axis : paddedAxes[i]) {
        uint64_t end = axis.inputs.empty() ? extents[size_t(axis.axis)] : 0;
        for (const InputAxis &of : axis.inputs)
          end = std::max(end, reader.extentOf(of.input, static_cast<size_t>(of.axis), samples[slot]));
        extents[size_t(axis.axis)] = std::min(extents[size_t(axis.axis)], end);
      }
      SampleCopy{type, specs[i].type, specs[i].sampleAxis, slot, samples[slot], extents}.run(call.data(),
                                                                                             bytes[i].data());
    }
  }
  return Status();
}

Status JoinedOutputs::take(const EntryRunner &runner, uint64_t begin, uint64_t taken) {
  allocate();
  for (size_t i = 0; i < specs.size(); ++i) {
    std::vector<std::byte> &whole = bytes[i];
    if (count == batch) {
      if (Status status = runner.readOutput(indices[i], 0, whole); !status.ok())
        return status;
      continue;
    }
    const plan::TensorType &type = specs[i].type;
    uint64_t outer = 1, inner = plan::dtypeBytes(type.dtype()); // blocks around the samples, bytes of a sample in one
    for (int k = 0; k < type.dims_size(); ++k)
      if (k != specs[i].sampleAxis)
        (k < specs[i].sampleAxis ? outer : inner) *= static_cast<uint64_t>(type.dims(k));
    if (outer == 1) {
      if (Status status = runner.readOutput(indices[i], 0, std::span(whole).subspan(begin * inner, taken * inner));
          !status.ok())
        return status;
      continue;
    }
    call.resize(outer * batch * inner);
    if (Status status = runner.readOutput(indices[i], 0, call); !status.ok())
      return status;
    for (uint64_t block = 0; inner > 0 && block < outer; ++block)
      std::memcpy(whole.data() + (block * count + begin) * inner, call.data() + block * batch * inner, taken * inner);
  }
  return Status();
}

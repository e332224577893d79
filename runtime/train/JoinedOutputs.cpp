//===- JoinedOutputs.cpp - outputs of several batches as whole arrays -----===//
#include "runtime/train/JoinedOutputs.h"
#include "runtime/plan/DType.h"

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

Expected<JoinedOutputs> JoinedOutputs::create(const std::vector<const plan::Entry *> &shapes, uint64_t samples) {
  JoinedOutputs made;
  made.count = samples;
  for (int i = 0; i < shapes.front()->outputs_size(); ++i) {
    const plan::Port &port = shapes.front()->outputs(i);
    plan::TensorType whole = shapes.front()->buffers(static_cast<int>(port.buffer())).type();
    const int axis = port.sample_axis();
    int lengthAxis = -1;
    for (const plan::Entry *shape : shapes) {
      const plan::TensorType &type = shape->buffers(static_cast<int>(shape->outputs(i).buffer())).type();
      if (axis < 0 || axis >= type.dims_size() || type.dims(axis) != shape->batch() ||
          type.dims_size() != whole.dims_size())
        return error("output '{}' is {}: it has no sample axis", port.name(), plan::typeName(type));
      for (int d = 0; d < type.dims_size(); ++d) {
        if (d == axis || type.dims(d) == whole.dims(d))
          continue;
        if (lengthAxis >= 0 && lengthAxis != d)
          return error("output '{}' has shapes that differ in axes {} and {}", port.name(), lengthAxis, d);
        lengthAxis = d;
        whole.set_dims(d, std::max(whole.dims(d), type.dims(d)));
      }
    }
    whole.set_dims(axis, static_cast<int64_t>(samples));
    made.specs.push_back({port.name(), whole, axis});
    made.indices.push_back(i);
    made.lengthAxes.push_back(lengthAxis);
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
  int sampleAxis, lengthAxis;
  uint64_t slot, sample, rows; ///< rows of the length axis that are copied

  void run(const std::byte *source, std::byte *destination) const { axis(0, source, destination); }

private:
  void axis(int d, const std::byte *source, std::byte *destination) const {
    const uint64_t fromBytes = innerBytes(from, d), toBytes = innerBytes(to, d);
    if (d > std::max(sampleAxis, lengthAxis)) {
      std::memcpy(destination, source, fromBytes * extentOf(from, d));
    } else if (d == sampleAxis) {
      axis(d + 1, source + slot * fromBytes, destination + sample * toBytes);
    } else {
      const uint64_t count = d == lengthAxis ? rows : static_cast<uint64_t>(from.dims(d));
      for (uint64_t i = 0; i < count; ++i)
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

Status JoinedOutputs::take(const EntryRunner &runner, std::span<const uint64_t> samples, std::optional<uint64_t> padded,
                           std::span<const uint64_t> lengths) {
  allocate();
  for (size_t i = 0; i < specs.size(); ++i) {
    const plan::TensorType &type = runner.outputType(indices[i]);
    call.resize(plan::tensorBytes(type).value_or(0));
    if (Status status = runner.readOutput(indices[i], 0, call); !status.ok())
      return status;
    const int lengthAxis = lengthAxes[i];
    for (size_t slot = 0; slot < samples.size() && !call.empty(); ++slot) {
      uint64_t rows = lengthAxis < 0 ? 0 : static_cast<uint64_t>(type.dims(lengthAxis));
      if (rows == padded)
        rows = std::min(rows, lengths[slot]);
      SampleCopy{type, specs[i].type, specs[i].sampleAxis, lengthAxis, slot, samples[slot], rows}.run(call.data(),
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

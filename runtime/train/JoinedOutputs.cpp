//===- JoinedOutputs.cpp - outputs of several batches as whole arrays -----===//
#include "runtime/train/JoinedOutputs.h"
#include "runtime/plan/DType.h"

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

Status JoinedOutputs::take(const EntryRunner &runner, uint64_t begin, uint64_t taken) {
  if (bytes.empty())
    for (const ArraySpec &array : specs)
      bytes.emplace_back(plan::tensorBytes(array.type).value_or(0));
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

//===- Evaluate.cpp - loss and accuracy over a whole data set ------------===//
#include "runtime/train/Evaluate.h"
#include "runtime/state/Safetensors.h"

#include <array>
#include <cstring>
#include <numeric>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// The sums that an evaluation adds up: loss, weight, correct, counted.
using Sums = std::array<double, 4>;
constexpr std::array<const char *, 4> kSumNames = {"loss_sum", "loss_weight", "correct", "counted"};

std::vector<uint64_t> indicesOf(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}
} // namespace

plan::Expected<Evaluation> tcc::runtime::evaluate(EntryRunner &runner, BatchReader &reader,
                                                  const std::function<bool()> &stop) {
  std::array<int, 4> outputs;
  for (size_t i = 0; i < outputs.size(); ++i)
    outputs[i] = runner.outputIndex(kSumNames[i]);
  if (outputs[0] < 0 || outputs[1] < 0)
    return plan::error("the plan's entry 'evaluate' gives no loss; compile again");
  uint64_t samples = reader.samples(), batch = reader.batch();
  // Leaves damaged samples out of `indices`.
  auto call = [&](std::vector<uint64_t> &indices, bool mask) -> plan::Expected<Sums> {
    runner.setCounters(0, indices.front() / batch);
    plan::Status status = reader.fillSound(indices, BatchReader::Damaged::Drop, mask, runner.inputs());
    if (status.ok() && indices.empty())
      return Sums{};
    if (status.ok())
      status = runner.run();
    if (!status.ok())
      return status;
    Sums sums;
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = runner.scalarOutput(outputs[i]);
    return sums;
  };
  Sums total{};
  uint64_t counted = 0;
  Evaluation result;
  for (uint64_t begin = 0; begin < samples; begin += batch) {
    if (stop && stop()) {
      result.complete = false;
      return result;
    }
    std::vector<uint64_t> indices = indicesOf(begin, std::min(begin + batch, samples));
    auto sums = call(indices, reader.maskable());
    if (!sums)
      return sums.status();
    counted += indices.size();
    if (!indices.empty() && indices.size() < batch && !reader.maskable()) {
      std::vector<uint64_t> last = {indices.back()};
      auto copies = call(last, false);
      if (!copies)
        return copies.status();
      double share = static_cast<double>(batch - indices.size()) / static_cast<double>(batch);
      for (size_t i = 0; i < sums->size(); ++i)
        (*sums)[i] -= share * (*copies)[i];
    }
    for (size_t i = 0; i < total.size(); ++i)
      total[i] += (*sums)[i];
  }
  result.loss = total[0] / total[1];
  if (outputs[2] >= 0 && outputs[3] >= 0)
    result.accuracy = total[2] / total[3];
  result.samples = counted;
  return result;
}

plan::Status tcc::runtime::predict(EntryRunner &runner, BatchReader &reader, const std::string &outputPath) {
  const plan::Entry &entry = runner.entry();
  uint64_t samples = reader.samples(), batch = reader.batch();
  bool single = samples == batch;
  std::vector<std::vector<std::byte>> values(static_cast<size_t>(entry.outputs_size()));
  std::vector<plan::TensorType> types;
  for (int i = 0; i < entry.outputs_size(); ++i) {
    plan::TensorType type = entry.buffers(static_cast<int>(entry.outputs(i).buffer())).type();
    int axis = entry.outputs(i).sample_axis();
    if (!single) {
      if (axis < 0 || axis >= type.dims_size() || type.dims(axis) != static_cast<int64_t>(batch))
        return plan::error(
            "output '{}' is {}: it has no sample axis, so only one batch of {} samples can be given, not {}",
            entry.outputs(i).name(), plan::typeName(type), batch, samples);
      type.set_dims(axis, static_cast<int64_t>(samples));
    }
    values[static_cast<size_t>(i)].resize(plan::tensorBytes(type).value_or(0));
    types.push_back(type);
  }
  for (uint64_t begin = 0; begin < samples; begin += batch) {
    std::vector<uint64_t> indices = indicesOf(begin, std::min(begin + batch, samples));
    runner.setCounters(0, begin / batch);
    plan::Status status = reader.fill(indices, false, runner.inputs());
    if (status.ok())
      status = runner.run();
    if (!status.ok())
      return status;
    for (int i = 0; i < entry.outputs_size(); ++i) {
      std::span<const std::byte> bytes = runner.outputBytes(i);
      std::vector<std::byte> &whole = values[static_cast<size_t>(i)];
      if (bytes.empty())
        continue;
      if (single) {
        std::memcpy(whole.data(), bytes.data(), bytes.size());
        continue;
      }
      const plan::TensorType &type = types[static_cast<size_t>(i)];
      int axis = entry.outputs(i).sample_axis();
      uint64_t outer = 1, inner = plan::dtypeBytes(type.dtype());
      for (int k = 0; k < type.dims_size(); ++k)
        if (k != axis)
          (k < axis ? outer : inner) *= static_cast<uint64_t>(type.dims(k));
      for (uint64_t block = 0; block < outer; ++block)
        std::memcpy(whole.data() + (block * samples + begin) * inner, bytes.data() + block * batch * inner,
                    indices.size() * inner);
    }
  }
  std::vector<Tensor> tensors;
  for (int i = 0; i < entry.outputs_size(); ++i)
    tensors.push_back({entry.outputs(i).name(), types[static_cast<size_t>(i)], values[static_cast<size_t>(i)]});
  return writeSafetensors(outputPath, std::move(tensors)).status();
}

plan::Status tcc::runtime::writeGradients(EntryRunner &runner, BatchReader &reader, const std::string &outputPath) {
  if (reader.samples() != reader.batch())
    return plan::error("--inputs holds {} samples; gradients are of one batch: give exactly {}", reader.samples(),
                       reader.batch());
  plan::Status status = reader.fill(indicesOf(0, reader.batch()), false, runner.inputs());
  if (status.ok())
    status = runner.run();
  if (!status.ok())
    return status;
  const plan::Entry &entry = runner.entry();
  constexpr std::string_view kPrefix = "gradient:";
  std::vector<Tensor> tensors;
  for (int i = 0; i < entry.outputs_size(); ++i) {
    std::string name = entry.outputs(i).name();
    if (name.starts_with(kPrefix))
      name = name.substr(kPrefix.size());
    std::span<const std::byte> bytes = runner.outputBytes(i);
    if (!bytes.empty() || reader.batch() == 0)
      tensors.push_back({name, entry.buffers(static_cast<int>(entry.outputs(i).buffer())).type(), bytes});
  }
  return writeSafetensors(outputPath, std::move(tensors)).status();
}

//===- CheckpointTensors.cpp - a rank's tensors of a checkpoint -----------===//
#include "runtime/plan/Shards.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/state/Weights.h"

#include <algorithm>

using namespace tcc;
using namespace tcc::runtime;

std::vector<CheckpointedVariable> tcc::runtime::checkpointedVariables(const plan::Plan &plan) {
  std::vector<bool> written = writtenVariables(plan);
  std::vector<CheckpointedVariable> result;
  for (int i = 0; i < plan.variables_size(); ++i) {
    plan::VariableRole role = plan.variables(i).role();
    if (role == plan::PARAMETER)
      result.push_back({i, TensorRole::Parameter});
    else if (role == plan::OPTIMIZER)
      result.push_back({i, TensorRole::Optimizer});
    else if (role == plan::EMA)
      result.push_back({i, TensorRole::Ema});
    else if (role != plan::ACCUMULATOR && written[static_cast<size_t>(i)])
      result.push_back({i, TensorRole::Buffer});
  }
  return result;
}

/// The first `bytes` of a stream.
static std::function<Status(const ByteSink &)> clipped(std::function<Status(const ByteSink &)> stream, uint64_t bytes) {
  return [stream = std::move(stream), bytes](const ByteSink &sink) {
    uint64_t left = bytes;
    return stream([&](std::span<const std::byte> piece) {
      piece = piece.first(std::min<uint64_t>(piece.size(), left));
      left -= piece.size();
      return piece.empty() ? Status() : sink(piece);
    });
  };
}

std::vector<CheckpointTensor> tcc::runtime::checkpointTensors(const plan::Plan &plan, Device &device,
                                                              std::span<const HostState> hostState,
                                                              std::span<const int> replaced, uint32_t rank) {
  std::vector<CheckpointTensor> tensors;
  const uint64_t ranks = plan.training().parallel().ranks();
  // Padding of shards is not written. If each node has all shards, only the first node writes.
  auto add = [&](CheckpointTensor tensor) {
    if (tensor.whole) {
      const uint64_t count = plan::shardOf(plan::elementCount(*tensor.whole).value_or(0), ranks, rank).count;
      if (count == 0 || rank >= ranks)
        return;
      tensor.shards = ranks;
      tensor.type.set_dims(0, static_cast<int64_t>(count));
      tensor.stream = clipped(std::move(tensor.stream), plan::tensorBytes(tensor.type).value_or(0));
    } else if (rank != 0) {
      return;
    }
    tensors.push_back(std::move(tensor));
  };
  std::vector<CheckpointedVariable> variables = checkpointedVariables(plan);
  for (int index : replaced)
    variables.push_back({index, TensorRole::Buffer});
  for (auto [index, role] : variables) {
    const plan::Variable &variable = plan.variables(index);
    Place place = Place::variable(static_cast<uint32_t>(index));
    CheckpointTensor tensor{{variable.name(), variable.type(),
                             [&device, place](const ByteSink &sink) { return device.readPieces(place, sink); }},
                            role};
    tensor.variable = static_cast<uint32_t>(index);
    if (variable.has_shard())
      tensor.whole = plan::wholeType(variable);
    add(std::move(tensor));
  }
  for (const HostState &one : hostState)
    add({{one.name, one.type, [bytes = one.bytes](const ByteSink &sink) { return sink(bytes); }}, one.role, one.whole});
  std::sort(tensors.begin(), tensors.end(), comesBefore);
  return tensors;
}

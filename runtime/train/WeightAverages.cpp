//===- WeightAverages.cpp - moving averages of the trained parameters ----===//
#include "runtime/train/WeightAverages.h"
#include "runtime/plan/Shards.h"
#include "support/Advice.h"

#include <algorithm>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr uint64_t kPieceBytes = 1 << 20;

/// The loop has no exit and no alias, so that it is vectorised; -ffp-contract=off keeps its three roundings.
template <typename T>
void average(std::byte *averages, const std::byte *weights, uint64_t bytes, double decay) {
  auto *__restrict e = reinterpret_cast<T *>(averages);
  const auto *__restrict w = reinterpret_cast<const T *>(weights);
  const T d = static_cast<T>(decay), rest = static_cast<T>(1 - decay);
  for (uint64_t i = 0; i < bytes / sizeof(T); ++i)
    e[i] = d * e[i] + rest * w[i];
}
} // namespace

WeightAverages::WeightAverages(const plan::Plan &plan, const plan::Training &training, Device &device)
    : plan(plan), device(device), rule(training.ema()) {
  std::vector<AveragedParameter> parameters = averagedParameters(plan, training);
  memory.resize(hostMemoryOf(plan, training, {}).averages);
  uint64_t used = 0;
  // Wide elements first, so that every part is aligned to its element size.
  std::stable_sort(parameters.begin(), parameters.end(), [](const auto &a, const auto &b) {
    return a.type.dtype() == plan::F64 && b.type.dtype() != plan::F64;
  });
  for (const AveragedParameter &parameter : parameters) {
    Average &made = averages.emplace_back(Average{parameter, {}, {}, true});
    uint64_t bytes = plan::tensorBytes(made.type).value_or(0);
    const plan::TensorType &type = plan.variables(static_cast<int>(made.parameter)).type();
    made.sameType = type.dtype() == made.type.dtype();
    if (!made.sameType)
      made.aside.resize(plan::tensorBytes(type).value_or(0));
    if (made.device)
      continue;
    made.host = std::span(memory).subspan(used, bytes);
    used += bytes;
    state.push_back({made.name, made.type, TensorRole::Ema, made.host, made.whole});
  }
  piece.resize(kPieceBytes);
  other.resize(kPieceBytes);
}

Status WeightAverages::write(const Average &average, uint64_t offset, std::span<const std::byte> bytes) {
  if (average.device)
    return device.write(Place::variable(*average.device), offset, bytes);
  std::memcpy(average.host.data() + offset, bytes.data(), bytes.size());
  return Status();
}

Status WeightAverages::read(const Average &average, uint64_t offset, std::span<std::byte> bytes) {
  if (average.device)
    return device.read(Place::variable(*average.device), offset, bytes);
  std::memcpy(bytes.data(), average.host.data() + offset, bytes.size());
  return Status();
}

Status WeightAverages::forWeights(const Average &average,
                                  const std::function<Status(uint64_t, std::span<const std::byte>)> &then) {
  uint64_t offset = 0;
  const plan::DType dtype = plan.variables(static_cast<int>(average.parameter)).type().dtype();
  return device.readPieces(average.weight(), [&](std::span<const std::byte> bytes) {
    if (average.sameType) {
      Status status = then(offset, bytes);
      offset += bytes.size();
      return status;
    }
    // Widen 16-bit weights to f32.
    auto *converted = reinterpret_cast<float *>(piece.data());
    for (uint64_t done = 0, count = bytes.size() / 2; done < count;) {
      uint64_t now = std::min<uint64_t>(count - done, kPieceBytes / sizeof(float));
      for (uint64_t i = 0; i < now; ++i)
        converted[i] = static_cast<float>(plan::floatElement(bytes.data(), dtype, done + i));
      if (Status status = then(offset, std::span(piece).first(now * sizeof(float))); !status.ok())
        return status;
      offset += now * sizeof(float);
      done += now;
    }
    return Status();
  });
}

Status WeightAverages::start() {
  for (Average &one : averages)
    if (Status status = forWeights(one, [&](uint64_t offset, auto bytes) { return write(one, offset, bytes); });
        !status.ok())
      return status;
  return Status();
}

Expected<bool> WeightAverages::load(Checkpoint &checkpoint, uint32_t rank) {
  const auto &tensors = checkpoint.manifest().tensors;
  if (std::none_of(tensors.begin(), tensors.end(),
                   [](const ManifestTensor &tensor) { return tensor.role == TensorRole::Ema; }))
    return false;
  NameList missing, different;
  for (const Average &one : averages) {
    const ManifestTensor *tensor = checkpoint.find(one.name);
    if (!tensor || tensor->role != TensorRole::Ema)
      missing.add(one.name);
    else if (const std::string type = plan::typeName(one.whole.value_or(one.type));
             plan::typeName(tensor->type) != type)
      different.add(one.name, fmt::format("{} there, {} in the plan", plan::typeName(tensor->type), type));
  }
  if (!missing.empty() || !different.empty())
    return error(
        "{}: its averages are not those of the plan's parameters: {}{}{}; resume with the plan that the run was "
        "made with, or start a new run from its weights with {}",
        checkpoint.folder(), missing.empty() ? "" : "missing are " + missing.text(),
        missing.empty() || different.empty() ? "" : "; ", different.empty() ? "" : "these differ: " + different.text(),
        advice::option("init"));
  std::vector<std::byte> own;
  for (Average &one : averages) {
    const ManifestTensor &tensor = *checkpoint.find(one.name);
    own.assign(plan::tensorBytes(one.type).value_or(0), std::byte(0));
    if (one.whole) {
      auto [begin, count] =
          plan::shardOf(plan::elementCount(tensor.type).value_or(0), plan.training().parallel().ranks(), rank);
      checkpoint.copyTo(tensor, begin, count, own.data());
    } else {
      checkpoint.copyTo(tensor, own.data());
    }
    if (Status status = write(one, 0, own); !status.ok())
      return status;
  }
  return true;
}

Status WeightAverages::update(uint64_t update) {
  std::optional<double> decay = rule.decayAt(update);
  if (!decay)
    return Status();
  for (Average &one : averages) {
    if (one.device)
      continue;
    Status status = forWeights(one, [&](uint64_t offset, std::span<const std::byte> bytes) {
      auto *function = one.type.dtype() == plan::F64 ? &average<double> : &average<float>;
      function(one.host.data() + offset, bytes.data(), bytes.size(), *decay);
      return Status();
    });
    if (!status.ok())
      return status;
  }
  return Status();
}

/// Swaps piece by piece, so that no second set of weights is needed.
Status WeightAverages::exchangeWide(Average &average) {
  uint64_t bytes = plan::tensorBytes(average.type).value_or(0);
  for (uint64_t offset = 0; offset < bytes; offset += kPieceBytes) {
    uint64_t size = std::min(kPieceBytes, bytes - offset);
    std::span<std::byte> weights = std::span(piece).first(size), averaged = std::span(other).first(size);
    Status status = device.read(average.weight(), offset, weights);
    if (status.ok())
      status = read(average, offset, averaged);
    if (status.ok())
      status = device.write(average.weight(), offset, averaged);
    if (status.ok())
      status = write(average, offset, weights);
    if (!status.ok())
      return status;
  }
  return Status();
}

/// The average has more bits than the parameter, so it cannot be swapped: the weights are saved in `aside` and
/// overwritten by the rounded average.
Status WeightAverages::exchangeNarrow(Average &average) {
  if (exchanged)
    return device.write(average.weight(), 0, average.aside);
  if (Status status = device.read(average.weight(), 0, average.aside); !status.ok())
    return status;
  const plan::DType dtype = plan.variables(static_cast<int>(average.parameter)).type().dtype();
  uint64_t count = plan::elementCount(average.type).value_or(0);
  constexpr uint64_t kMost = kPieceBytes / sizeof(float);
  for (uint64_t done = 0; done < count; done += kMost) {
    uint64_t now = std::min(kMost, count - done);
    if (Status status = read(average, done * sizeof(float), std::span(piece).first(now * sizeof(float))); !status.ok())
      return status;
    for (uint64_t i = 0; i < now; ++i)
      plan::fillElements(other.data() + 2 * i, dtype, 1, plan::floatElement(piece.data(), plan::F32, i));
    if (Status status = device.write(average.weight(), 2 * done, std::span(other).first(2 * now)); !status.ok())
      return status;
  }
  return Status();
}

Status WeightAverages::exchange() {
  for (Average &one : averages)
    if (Status status = one.sameType ? exchangeWide(one) : exchangeNarrow(one); !status.ok())
      return status;
  exchanged = !exchanged;
  return Status();
}

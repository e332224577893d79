//===- TrainingBatches.cpp - the micro-batches of a run ------------------===//
#include "runtime/train/TrainingBatches.h"
#include "runtime/train/Metrics.h"
#include "support/Advice.h"

#include <algorithm>
#include <cstring>
#include <system_error>

using namespace tcc;
using namespace tcc::runtime;

TrainingBatches::TrainingBatches(EntryData given, Sampler order, uint64_t maxBad, unsigned workers)
    : data(std::move(given)), sampler(std::move(order)), maxBad(maxBad), workers(workers) {
  for (const auto &reader : data.readers)
    indices.reserve(reader->batch());
}

void TrainingBatches::keep(uint64_t count) {
  kept.resize(count);
  keptNames = data.reader().inputNames();
  for (Kept &one : kept) {
    one.memory.resize(keptNames.size());
    for (const auto &reader : data.readers) {
      const std::vector<uint64_t> bytes = reader->inputBytes();
      for (size_t i = 0; i < bytes.size(); ++i)
        one.memory[i].resize(std::max<uint64_t>(one.memory[i].size(), bytes[i]));
      one.indices.reserve(reader->batch());
    }
    one.given.assign(one.memory.begin(), one.memory.end());
  }
}

uint64_t TrainingBatches::tokens(uint64_t epoch, uint64_t number) const {
  if (std::ranges::none_of(data.readers, [](const auto &reader) { return reader->isRagged(); }))
    return samples(epoch, number) * data.reader().tokensPerSample();
  sampler.globalBatchOf(epoch, number, counted);
  const BatchReader &reader = *data.readers[sampler.shapeOfBatch(epoch, number)];
  uint64_t sum = 0;
  for (uint64_t sample : counted)
    sum += reader.tokensOf(sample);
  return sum;
}

Status TrainingBatches::give(EntryRunner &runner, TrainingPosition &position, uint64_t number) {
  if (!kept.empty())
    return giveKept(runner, position, number);
  return read(position, number, [&](auto fill) { return runner.giveInputs(fill); });
}

Status TrainingBatches::giveKept(EntryRunner &runner, TrainingPosition &position, uint64_t number) {
  Kept &one = kept[number % kept.size()];
  if (!one.filled || one.epoch != position.epoch || one.number != number) {
    one.filled = false;
    one.shape = shapeOf(position, number);
    const std::vector<uint64_t> bytes = data.readers[one.shape]->inputBytes();
    for (size_t i = 0; i < bytes.size(); ++i)
      one.given[i] = std::span(one.memory[i]).first(bytes[i]);
    Status status =
        read(position, number, [&](auto fill) { return fill(std::span<const std::span<std::byte>>(one.given)); });
    if (!status.ok())
      return status;
    one.filled = true;
    one.epoch = position.epoch;
    one.number = number;
    one.indices = indices;
  }
  indices = one.indices;
  lastShape = one.shape;
  return runner.giveInputs([&](std::span<const std::span<std::byte>> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      for (size_t j = 0; j < keptNames.size(); ++j)
        if (!inputs[i].empty() && keptNames[j] == runner.entry().inputs(static_cast<int>(i)).name())
          std::memcpy(inputs[i].data(), one.given[j].data(), std::min(inputs[i].size(), one.given[j].size()));
    return Status();
  });
}

template <typename Sink> Status TrainingBatches::read(TrainingPosition &position, uint64_t number, Sink &&sink) {
  if (workers != 0 && !loader)
    try {
      loader =
          std::make_unique<Loader>(data.allReaders(), sampler, position.seed, position.epoch, number, workers, trace);
    } catch (const std::system_error &problem) {
      return error("cannot start {} threads that read data ahead: {}; use fewer: {}", workers,
                   std::strerror(problem.code().value()), advice::set("data.workers", "0"));
    }
  // A batch that is read again, for a diagnosis, is not in the loader's sequence: read it on this thread.
  const bool ahead = loader && loader->isNext(position.epoch, number);
  if (!ahead)
    sampler.batchOf(position.epoch, number, indices);
  lastShape = shapeOf(position, number);
  BatchReader &reader = *data.readers[lastShape];
  const std::map<uint64_t, std::string> &damaged = reader.damagedSamples();
  size_t before = damaged.size();
  Status status = sink([&](std::span<const std::span<std::byte>> inputs) -> Status {
    TraceScope span(own, ahead ? "wait for data" : "read data", "batch", number);
    const double begin = monotonicSeconds();
    Status read =
        ahead ? loader->take(indices, inputs)
              : reader.fillSound(
                    indices, BatchReader::Damaged::Replace, reader.maskable(), inputs,
                    {{position.seed, position.epoch}, sampler.drawNumber(position.epoch, number), sampler.repeats()});
    taken += monotonicSeconds() - begin;
    return read;
  });
  if (damaged.size() == before)
    return status;
  std::vector<uint64_t> &known = position.damagedSamples;
  for (const auto &[sample, text] : damaged)
    if (std::find(known.begin(), known.end(), sample) == known.end()) {
      known.push_back(sample);
      if (warn)
        warn(fmt::format("damaged sample {} is left out ({} of data.max_bad = {}): {}", sample, known.size(), maxBad,
                         text));
    }
  return status;
}

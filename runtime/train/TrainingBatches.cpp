//===- TrainingBatches.cpp - the micro-batches of a run ------------------===//
#include "runtime/train/TrainingBatches.h"
#include "runtime/train/Metrics.h"

#include <algorithm>
#include <system_error>

using namespace tcc;
using namespace tcc::runtime;

TrainingBatches::TrainingBatches(EntryData given, Sampler order, uint64_t maxBad, unsigned workers)
    : data(std::move(given)), sampler(std::move(order)), maxBad(maxBad), workers(workers) {
  indices.reserve(data.reader->batch());
}

Status TrainingBatches::give(EntryRunner &runner, TrainingPosition &position, uint64_t number) {
  if (workers != 0 && !loader)
    try {
      loader = std::make_unique<Loader>(*data.reader, sampler, position.seed, position.epoch, number, workers, trace);
    } catch (const std::system_error &problem) {
      return error("cannot start {} threads that read data ahead: {}; use fewer: --set data.workers=0", workers,
                   problem.what());
    }
  // What is read again, for a diagnosis, is read here.
  const bool ahead = loader && loader->isNext(position.epoch, number);
  if (!ahead)
    sampler.batchOf(position.epoch, number, indices);
  const std::map<uint64_t, std::string> &damaged = data.reader->damagedSamples();
  size_t before = damaged.size();
  Status status = runner.giveInputs([&](auto inputs) {
    TraceScope span(own, ahead ? "wait for data" : "read data", "batch", number);
    const double begin = monotonicSeconds();
    Status read = ahead ? loader->take(indices, inputs)
                        : data.reader->fillSound(indices, BatchReader::Damaged::Replace, data.reader->maskable(), inputs,
                                                 {{position.seed, position.epoch}, number, sampler.repeats()});
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

//===- TrainingBatches.h - the micro-batches of a run --------------------===//
#ifndef TCC_RUNTIME_TRAIN_TRAININGBATCHES_H
#define TCC_RUNTIME_TRAIN_TRAININGBATCHES_H

#include "runtime/data/Loader.h"
#include "runtime/train/Batches.h"
#include "runtime/train/Session.h"

#include <functional>

namespace tcc::runtime {

/// Gives micro-batches of a data set to entries, in the sampler's order. Counts the damaged samples that are left out.
class TrainingBatches : public Batches {
public:
  /// `maxBad`: damaged samples that may be left out, for messages. `workers` threads read ahead; 0: none.
  TrainingBatches(EntryData data, Sampler sampler, uint64_t maxBad, unsigned workers);

  const Dataset &dataset() const { return *data.dataset; }
  const BatchReader &reader() const { return data.reader(); }
  /// Samples of a batch, by the plan's shapes.
  std::vector<uint64_t> sizes() const {
    std::vector<uint64_t> sizes;
    for (const auto &reader : data.readers)
      sizes.push_back(reader->batch());
    return sizes;
  }
  uint64_t perEpoch() const override { return sampler.batchesPerEpoch(); }
  /// Sets the global batch at which the windows of this epoch begin.
  void beginAt(uint64_t epoch, uint64_t number) { sampler.beginAt(epoch, number); }

  /// `hearer` is called for each damaged sample when it is first left out.
  void onDamaged(std::function<void(const std::string &)> hearer) { warn = std::move(hearer); }

  /// `track`: of the thread that calls give(); the loader's threads get tracks of their own.
  void traceTo(Trace *whole, Trace::Track *track) {
    trace = whole;
    own = track;
  }

  /// Keeps the last `count` micro-batches in memory, for alternating optimizers, whose entries each read some of the
  /// inputs.
  void keep(uint64_t count);

  Status give(EntryRunner &runner, TrainingPosition &position, uint64_t number) override;

  /// Seconds that steps have waited for workers.
  double waitedSeconds() const { return loader ? loader->waitedSeconds() : 0; }
  double dataSeconds() const override { return taken; }
  /// Memory of batches that were read ahead.
  uint64_t hostBytes() const {
    uint64_t bytes = workers ? Loader::hostBytes(data.allReaders()) : 0;
    for (const Kept &one : kept)
      for (const auto &input : one.memory)
        bytes += input.size();
    return bytes;
  }

  size_t shapeOf(const TrainingPosition &position, uint64_t number) const override {
    return sampler.shapeOf(position.epoch, number);
  }
  uint64_t samples(uint64_t epoch, uint64_t number) const override { return sampler.globalSamples(epoch, number); }
  uint64_t tokens(uint64_t epoch, uint64_t number) const override;

  std::string describeNonFinite(bool infinities) const override {
    return data.readers[lastShape]->describeNonFinite(indices, infinities);
  }

private:
  /// A micro-batch in memory.
  struct Kept {
    bool filled = false;
    uint64_t epoch = 0, number = 0;
    size_t shape = 0;
    std::vector<std::vector<std::byte>> memory; ///< by input of the reader, enough for every shape
    std::vector<std::span<std::byte>> given;    ///< of `memory`, the part of the shape
    std::vector<uint64_t> indices;
  };
  /// Reads micro-batch `number` to the inputs for which `sink(fill)` calls `fill(inputs)`.
  template <typename Sink> Status read(TrainingPosition &position, uint64_t number, Sink &&sink);
  Status giveKept(EntryRunner &runner, TrainingPosition &position, uint64_t number);

  std::vector<Kept> kept;
  std::vector<std::string> keptNames; ///< of the reader's inputs
  EntryData data;
  Sampler sampler;
  uint64_t maxBad;
  unsigned workers;
  std::unique_ptr<Loader> loader; ///< from the first batch on
  std::vector<uint64_t> indices;
  mutable std::vector<uint64_t> counted; ///< scratch memory of tokens()
  size_t lastShape = 0;                  ///< of the last micro-batch
  double taken = 0;
  Trace *trace = nullptr;
  Trace::Track *own = nullptr;
  std::function<void(const std::string &)> warn;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TRAININGBATCHES_H

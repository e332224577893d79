//===- Loader.h - threads that read batches ahead --------------------------===//
//
// Workers claim samples in the order in which training takes them, and read each into its slot of one of a few batches
// in memory. The worker that finishes a batch's last sample mixes the batch. Workers pause while all batches are ready
// and not taken (back-pressure). A sample's values depend only on its number and its draw, so the number of workers
// changes no bit; damaged samples are counted when their batch is taken, in the order of its slots.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_LOADER_H
#define TCC_RUNTIME_DATA_LOADER_H

#include "runtime/data/BatchReader.h"
#include "runtime/data/Sampler.h"
#include "support/Trace.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace tcc::runtime {

class Loader {
public:
  /// Starts at read `number` of `epoch`, as counted by the sampler. There is a reader for each shape of the sampler;
  /// they outlive the loader, share the damaged samples, and know those of a resumed run. Each worker has a track of
  /// `trace`, if there is one. Throws std::system_error if the system cannot start a thread.
  Loader(std::vector<BatchReader *> readers, const Sampler &sampler, uint64_t seed, uint64_t epoch, uint64_t number,
         unsigned workers, Trace *trace = nullptr);
  ~Loader();
  Loader(const Loader &) = delete;
  Loader &operator=(const Loader &) = delete;

  /// True if this is the batch that take() returns next.
  bool isNext(uint64_t epoch, uint64_t number) const { return epoch == nextEpoch && number == nextNumber; }
  /// Waits for the next batch and writes it to `given`, as BatchReader::fillSound does; `indices` are its samples.
  /// Error: as fillSound.
  Status take(std::vector<uint64_t> &indices, std::span<const std::span<std::byte>> given);

  /// Seconds that take() has waited.
  double waitedSeconds() const { return waited; }
  /// Memory of the batches of a loader for these readers.
  static uint64_t hostBytes(std::span<BatchReader *const> readers);

private:
  struct Finding {
    uint64_t slot, sample;
    std::string problem;
  };
  struct Batch {
    std::vector<std::vector<std::byte>> memory; ///< by input, enough for every shape
    std::vector<std::span<std::byte>> given;    ///< the part of the batch's shape
    BatchReader *reader = nullptr;
    std::vector<uint64_t> indices;
    BatchDraw draw;
    std::vector<Finding> findings;
    Status status; ///< result of finishing the batch
    uint64_t claimed = 0, done = 0;
    bool ready = false;
  };

  void stop();
  void work(Trace::Track *track);
  /// A batch with an unclaimed sample; null if there is none.
  Batch *unclaimed();
  void readSlot(Batch &batch, uint64_t slot, BatchReader::Scratch &scratch);
  /// If a worker has already found this sample damaged, adds a finding and returns true.
  bool noteBad(Batch &batch, uint64_t slot, uint64_t sample);
  void moveOn(uint64_t &epoch, uint64_t &number) const;

  const std::vector<BatchReader *> readers;     ///< by shape
  std::vector<std::vector<uint64_t>> inputBytes; ///< of each
  const Sampler sampler;
  uint64_t seed;
  uint64_t nextEpoch, nextNumber, openEpoch, openNumber; ///< of the next batch to take, and of the next to open
  double waited = 0;
  std::mutex mutex;
  std::condition_variable mayRead, mayTake;
  std::vector<Batch> ring;
  uint64_t opened = 0, taken = 0; ///< batches since the start
  std::map<uint64_t, std::string> bad; ///< damaged samples that a worker has found
  std::atomic<bool> anyBad{false};
  bool stopping = false;
  std::vector<std::thread> threads;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_LOADER_H

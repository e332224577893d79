//===- Batches.h - where the micro-batches of updates come from ------------===//
#ifndef TCC_RUNTIME_TRAIN_BATCHES_H
#define TCC_RUNTIME_TRAIN_BATCHES_H

#include "runtime/state/Manifest.h"
#include "runtime/train/EntryRunner.h"

#include <string>

namespace tcc::runtime {

class Batches {
public:
  virtual ~Batches() = default;
  /// Global batches of an epoch.
  virtual uint64_t perEpoch() const = 0;
  /// Gives `runner` the micro-batch of read `number` (Sampler::setShare) in the epoch of `position`, and adds damaged
  /// samples to the list in `position`. Allocates nothing if no sample is damaged.
  virtual Status give(EntryRunner &runner, TrainingPosition &position, uint64_t number) = 0;
  /// Seconds that give() has taken: waiting for threads that read ahead, or reading.
  virtual double dataSeconds() const = 0;
  /// The plan's shape (Shapes.h) of the micro-batch of read `number`.
  virtual size_t shapeOf(const TrainingPosition &position, uint64_t number) const = 0;
  /// Samples and tokens, without padding, of global batch `number` of an epoch.
  virtual uint64_t samples(uint64_t epoch, uint64_t number) const = 0;
  virtual uint64_t tokens(uint64_t epoch, uint64_t number) const = 0;
  /// Describes the first NaN (with `infinities`, also infinity) in the last micro-batch; empty if there is none.
  virtual std::string describeNonFinite(bool infinities) const = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_BATCHES_H

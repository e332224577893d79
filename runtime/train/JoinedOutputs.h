//===- JoinedOutputs.h - outputs of several batches as whole arrays -------===//
//
// A plan computes batches of some sizes. JoinedOutputs copies the outputs of each call into arrays with one entry for
// each sample, along the outputs' axes of samples, and drops the padding of a last, shorter batch. Where outputs of an
// entry's shapes differ in other axes, the array has the largest extents, and zeros after a sample's end.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_JOINEDOUTPUTS_H
#define TCC_RUNTIME_TRAIN_JOINEDOUTPUTS_H

#include "runtime/data/BatchReader.h"
#include "runtime/state/ArrayFiles.h"
#include "runtime/train/EntryRunner.h"

#include <span>
#include <string_view>
#include <vector>

namespace tcc::runtime {

class JoinedOutputs {
public:
  /// Arrays of `samples` entries from calls of `batch` samples each, for every output of the entry whose name begins
  /// with `prefix`; the array has the rest of the name. Error: such an output has no axis of samples, and the samples
  /// are not one batch.
  static Expected<JoinedOutputs> create(const plan::Entry &entry, uint64_t samples, uint64_t batch,
                                        std::string_view prefix = "");

  /// The same from calls of an entry in several shapes, for every output. Error: an output has no axis of samples in
  /// some shape.
  static Expected<JoinedOutputs> create(const std::vector<const plan::Entry *> &shapes, uint64_t samples);

  const std::vector<ArraySpec> &arrays() const { return specs; }
  uint64_t samples() const { return count; }

  /// Copies the outputs of the runner's latest run, whose first `taken` samples are the samples from `begin` on.
  /// Allocates in the first call alone.
  Status take(const EntryRunner &runner, uint64_t begin, uint64_t taken);
  /// Copies the outputs of the runner's latest run, in one of the shapes, whose slots hold these samples of `reader`.
  /// An axis that is as long as a padded input's in every shape ends where the sample does.
  Status take(const EntryRunner &runner, std::span<const uint64_t> samples, const BatchReader &reader);
  /// The bytes of arrays()[i], after the last take().
  std::vector<std::byte> &values(size_t i) { return bytes[i]; }
  const std::vector<std::byte> &values(size_t i) const { return bytes[i]; }

private:
  void allocate();

  std::vector<ArraySpec> specs;
  std::vector<int> indices; ///< outputs of the entry
  /// An axis of an input's samples.
  struct InputAxis {
    std::string input;
    int axis;
  };
  /// An axis of an array in which shapes differ, and those of inputs that are as long in every shape.
  struct PaddedAxis {
    int axis;
    std::vector<InputAxis> inputs;
  };
  static std::vector<PaddedAxis> paddedAxesOf(const std::vector<const plan::Entry *> &shapes, int output);
  std::vector<std::vector<PaddedAxis>> paddedAxes; ///< by array
  uint64_t count = 0, batch = 0;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::byte> call; ///< one output of one call
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_JOINEDOUTPUTS_H

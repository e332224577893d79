//===- JoinedOutputs.h - outputs of several batches as whole arrays -------===//
//
// A plan computes batches of some sizes. JoinedOutputs copies the outputs of each call into arrays with one entry for
// each sample, along the outputs' axes of samples, and drops the padding of a last, shorter batch. Where outputs of an
// entry's shapes differ in a second axis, the length, the array has the largest, and zeros after a sample's end.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_JOINEDOUTPUTS_H
#define TCC_RUNTIME_TRAIN_JOINEDOUTPUTS_H

#include "runtime/state/ArrayFiles.h"
#include "runtime/train/EntryRunner.h"

#include <optional>
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

  /// The same from calls of an entry in several shapes, for every output. Error: as above, or shapes of an output
  /// differ in more than its batch and one other axis.
  static Expected<JoinedOutputs> create(const std::vector<const plan::Entry *> &shapes, uint64_t samples);

  const std::vector<ArraySpec> &arrays() const { return specs; }
  uint64_t samples() const { return count; }

  /// Copies the outputs of the runner's latest run, whose first `taken` samples are the samples from `begin` on.
  /// Allocates in the first call alone.
  Status take(const EntryRunner &runner, uint64_t begin, uint64_t taken);
  /// Copies the outputs of the runner's latest run, in one of the shapes, whose slots hold these samples. An axis of
  /// length `padded` has `lengths[i]` rows for slot i.
  Status take(const EntryRunner &runner, std::span<const uint64_t> samples, std::optional<uint64_t> padded,
              std::span<const uint64_t> lengths);
  /// The bytes of arrays()[i], after the last take().
  std::vector<std::byte> &values(size_t i) { return bytes[i]; }
  const std::vector<std::byte> &values(size_t i) const { return bytes[i]; }

private:
  void allocate();

  std::vector<ArraySpec> specs;
  std::vector<int> indices; ///< outputs of the entry
  std::vector<int> lengthAxes; ///< of arrays: the axis in which shapes differ; -1: none
  uint64_t count = 0, batch = 0;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::byte> call; ///< one output of one call
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_JOINEDOUTPUTS_H

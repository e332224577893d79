//===- GivenData.h - a caller's tensors as the inputs of an entry ----------===//
//
// Tensors in memory, in the shapes and layouts of the graph's inputs, go through the same conversions and checks as the
// columns of a file (BatchReader.h), but through no transform of data.…: they are final. Binding looks up types and
// shapes; the next tensors of the same types and shapes only replace the addresses.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_GIVENDATA_H
#define TCC_RUNTIME_TRAIN_GIVENDATA_H

#include "runtime/train/Batches.h"
#include "runtime/train/Session.h"

namespace tcc::runtime {

/// A tensor of the caller, which must stay valid during the call.
struct GivenTensor {
  std::string name; ///< of the graph's input
  const void *data = nullptr;
  plan::DType dtype = plan::F32;
  std::vector<int64_t> dims;    ///< of the input, except that the sample axis may be of another length
  std::vector<int64_t> strides; ///< in elements, by axis; empty: dense, the last axis first in memory
};

class GivenData {
public:
  /// Binds the tensors to the smallest of the entry's shapes that holds them: axes of a sample in which shapes differ
  /// are padded as data.pad says; of shapes that differ in the batch, to the smallest that takes the rows in
  /// `microBatches` batches. Error: a name that is no input of the entry, an input without a tensor, another type or
  /// shape.
  static Expected<std::unique_ptr<GivenData>> bind(const Session &session,
                                                   const std::vector<const plan::Entry *> &shapes, bool trains,
                                                   std::span<const GivenTensor> tensors, uint64_t microBatches = 1);

  /// Error: slots without a sample would change the result: the loss cannot leave a sample out, or the entry computes
  /// statistics over a batch.
  Status checkPadding() const;

  /// True if the tensors have the names, types and shapes of those that were bound, in the same order.
  bool fits(std::span<const GivenTensor> tensors) const;
  /// Takes the addresses of other tensors. Requires fits().
  void take(std::span<const GivenTensor> tensors);

  /// The number of the shape.
  size_t shape() const { return chosen; }
  BatchReader &reader() { return *batch; }
  const BatchReader &reader() const { return *batch; }
  /// Names of the reader's inputs.
  const std::vector<std::string> &inputs() const { return names; }

private:
  class Rows;
  GivenData() = default;
  static Expected<std::unique_ptr<GivenData>> bindShape(const Session &session,
                                                        const std::vector<const plan::Entry *> &shapes, size_t shape,
                                                        bool trains, std::span<const GivenTensor> tensors);

  struct Bound {
    std::string name;
    plan::DType dtype;
    std::vector<int64_t> dims, strides;
    Rows *rows; ///< of `dataset`
  };
  std::vector<Bound> bound;
  std::vector<std::string> names;
  std::string batchStatistics; ///< the node that computes them; empty: none
  std::vector<const plan::Entry *> allShapes; ///< the entry in all of the plan's shapes
  size_t chosen = 0;
  Dataset dataset;
  std::optional<BatchReader> batch;
};

/// The micro-batches of one update, which the caller gives as one set of tensors: `accumulate` batches of rows, fewer
/// in the last, or one batch. With V virtual ranks a global batch has V batches of rows, one after the other. Every
/// update is an epoch of its own for the order of the data.
class GivenBatches final : public Batches {
public:
  explicit GivenBatches(uint64_t virtualRanks = 1) : virtualRanks(virtualRanks) {}

  /// `data` outlives the object, or the next call.
  void give(GivenData &next) { data = &next; }

  uint64_t perEpoch() const override { return (rows() + batch() * virtualRanks - 1) / (batch() * virtualRanks); }
  Status give(EntryRunner &runner, TrainingPosition &position, uint64_t number) override;
  double dataSeconds() const override { return taken; }
  size_t shapeOf(const TrainingPosition &, uint64_t) const override { return data->shape(); }
  uint64_t samples(uint64_t, uint64_t number) const override {
    return std::min(batch() * virtualRanks, rows() - number * batch() * virtualRanks);
  }
  /// The first row of the micro-batch of read `number`: the reads of one virtual rank follow each other.
  uint64_t firstRow(uint64_t number) const {
    return (number % perEpoch() * virtualRanks + number / perEpoch()) * batch();
  }
  uint64_t tokens(uint64_t epoch, uint64_t number) const override {
    return samples(epoch, number) * data->reader().tokensPerSample();
  }
  std::string describeNonFinite(bool infinities) const override;

private:
  uint64_t rows() const { return data->reader().samples(); }
  uint64_t batch() const { return data->reader().batch(); }

  uint64_t virtualRanks;
  GivenData *data = nullptr;
  std::vector<uint64_t> indices; ///< of the last micro-batch
  /// Of the reader's inputs in a runner's memory; empty: it does not read them.
  std::vector<std::span<std::byte>> places;
  double taken = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_GIVENDATA_H

//===- Sampler.h - the order of samples in batches ------------------------===//
//
// The order of an epoch is a function of (seed, epoch), not of a stream of random numbers: any batch can be computed
// from its number, and a resumed run continues where it stopped.
//   Shuffled: a permutation of [0, n) by a Feistel network of six rounds over the smallest even number of bits that
//     holds n - 1; an image ≥ n is mapped again until it is smaller ("cycle walking": Black and Rogaway, Ciphers with
//     arbitrary finite domains, 2002). The round function is SplitMix64's finaliser of key, round and half. No memory.
//   Windowed: the files are concatenated in an order drawn by (seed, epoch); then each run of `window` samples of that
//   sequence is permuted. Reads stay within a window and the files that it overlaps.
//   Random: draw i of an epoch is the same hash of (seed, epoch, i), scaled to [0, n) by the high half of a product;
//     with weights it is scaled to [0, sum) and looked up among their cumulative sums.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_SAMPLER_H
#define TCC_RUNTIME_DATA_SAMPLER_H

#include "runtime/data/Dataset.h"
#include "support/Status.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tcc::runtime {

/// SplitMix64's finaliser: a bijection of 64-bit words (Steele, Lea, Flood, Fast splittable pseudorandom number
/// generators, 2014).
uint64_t mixBits(uint64_t value);

/// A permutation of [0, count), count ≥ 1, chosen by the key.
class Permutation {
public:
  Permutation(uint64_t count, uint64_t key);
  uint64_t operator()(uint64_t index) const;

private:
  uint64_t count, key;
  unsigned halfBits;
};

enum class SampleOrder { Ordered, Shuffled, Windowed, Random };

/// What becomes of the samples at the end of an epoch that fill no batch: data.last.
enum class LastBatch {
  Drop, ///< they are left out
  Pad,  ///< they are a batch with slots without a sample
  Exact ///< they are a batch of another shape, which they fill; where there is none, they are left out
};

/// Inclusive prefix sums of the weights. Error: a negative or non-finite weight, or no positive one.
Expected<std::vector<double>> cumulativeWeights(std::span<const double> weights);

class Sampler {
public:
  /// `samples`: number of samples; `epochSamples`: samples per epoch (the same except for random windows); `batch`:
  /// samples per call. With `weights`, from cumulativeWeights, Random draws samples in proportion to their weights.
  Sampler(uint64_t samples, uint64_t epochSamples, uint64_t batch, SampleOrder order, uint64_t seed, LastBatch last,
          std::vector<double> weights = {});

  /// Batches of several shapes: sample i is in those of shape `ofSamples[i]`, which take `batches[shape]` samples for
  /// each rank. The samples of an epoch gather by shape, in its order; a batch stands where its last sample does. At
  /// the end, the samples of a shape that fill no batch go to the smallest of the shapes `smaller[shape]` that holds
  /// them; these take the same samples in smaller batches. Samples that differ in shape are not for Random.
  void setShapes(std::vector<uint8_t> ofSamples, std::vector<uint64_t> batches,
                 std::vector<std::vector<uint8_t>> smaller);
  /// The shape of the batch of read number `read`; 0 without setShapes.
  size_t shapeOf(uint64_t epoch, uint64_t read) const;

  /// For Windowed: the samples of each file, whose sum is `samples` (empty: one file), and the window, at least 1.
  void setWindow(std::vector<uint64_t> shards, uint64_t window);

  /// For rank `rank` of a job of `ranks`: a batch number then denotes a global batch of `batch` samples for each rank,
  /// of which this rank gets the rank-th part. Without padding, a last, shorter global batch is dropped; with padding,
  /// its samples are spread evenly over the ranks, unless there are fewer samples than ranks: then they are dropped.
  /// With exact batches, each rank gets the same number of samples; a remainder smaller than the number of ranks is
  /// dropped.
  void setRanks(uint64_t rank, uint64_t ranks);
  /// Makes this sampler read for `count` consecutive ranks, the first of which is the rank given to setRanks: first the
  /// batches of a window of `window` global batches for the first rank, then the same window for the next rank. Reads
  /// are numbered in this order; an epoch has count × batchesPerEpoch().
  void setShare(uint64_t count, uint64_t window);
  /// Windows of this epoch begin at this global batch, those of other epochs at 0.
  void beginAt(uint64_t epoch, uint64_t number);
  uint64_t readsPerEpoch() const { return batches * count; }

  /// The shape of global batch `number`.
  size_t shapeOfBatch(uint64_t epoch, uint64_t number) const { return spanOf(epoch, number).shape; }
  /// Samples at the end of an epoch that are in no batch.
  uint64_t dropped() const;
  /// By shape: those samples for each rank, which an exact batch could hold.
  std::vector<uint64_t> unheld() const;
  /// Samples of global batch `number`.
  uint64_t globalSamples(uint64_t epoch, uint64_t number) const;
  /// The samples of global batch `number`, those of all ranks.
  void globalBatchOf(uint64_t epoch, uint64_t number, std::vector<uint64_t> &indices) const;
  /// A number for the batch of a read that is unique among all ranks.
  uint64_t drawNumber(uint64_t epoch, uint64_t read) const;

  /// True if a sample may be drawn several times in an epoch.
  bool repeats() const { return order == SampleOrder::Random; }

  uint64_t batchesPerEpoch() const { return batches; }

  /// The samples of read number `read` < readsPerEpoch() of an epoch (without setShare, of this rank's part of that
  /// batch); fewer than `batch` only in a padded last batch. Allocates nothing if `indices` has capacity for a batch.
  void batchOf(uint64_t epoch, uint64_t read, std::vector<uint64_t> &indices) const;

private:
  /// A global batch, and the rank whose part of it is read.
  struct Part {
    uint64_t number, rank;
  };
  Part partOf(uint64_t epoch, uint64_t read) const;
  /// Where the samples of a global batch are in the order of the epoch; where samples differ in shape, in that of
  /// `gathered`.
  struct Span {
    uint64_t first, count;
    uint8_t shape;
  };
  Span spanOf(uint64_t epoch, uint64_t number) const;
  /// Appends the samples at these places of the epoch's order, or of `gathered`.
  void append(uint64_t epoch, uint64_t begin, uint64_t end, std::vector<uint64_t> &indices) const;
  uint64_t sampleAt(uint64_t epoch, uint64_t key, const Permutation &permutation, uint64_t place) const;
  void gather(uint64_t epoch) const;
  void countBatches();
  /// The batch of the `left` samples of a shape at the end of an epoch; without samples: there is none.
  Span restOf(size_t shape, uint64_t left) const;
  uint64_t windowed(uint64_t epoch, uint64_t key, uint64_t place) const;

  uint64_t samples, epochSamples, batches, seed;
  uint64_t rank = 0, ranks = 1, count = 1, readWindow = 1, firstEpoch = 0, firstBatch = 0;
  LastBatch last;
  SampleOrder order;
  std::vector<double> weights; ///< cumulative; empty: all are equal
  std::vector<uint64_t> shardBegins; ///< first sample of each file, and `samples`
  uint64_t window = 1;
  /// For epoch `placedEpoch`: the file at each position of the order, and the position of its first sample. Only one
  /// thread at a time uses them.
  mutable std::vector<uint64_t> fileAt, placeOf;
  mutable uint64_t placedEpoch = ~uint64_t(0);
  std::shared_ptr<const std::vector<uint8_t>> shapes; ///< by sample; null: all are in those of shape `onlyShape`
  uint8_t onlyShape = 0;
  std::vector<uint64_t> shapeBatches;        ///< samples of a batch, by shape
  std::vector<uint64_t> shapeSamples;        ///< samples of an epoch, by shape
  /// By shape: the shapes with smaller batches that may take its last samples, the smallest batch first.
  std::vector<std::vector<uint8_t>> smaller;
  /// For epoch `gatheredEpoch`: its samples batch by batch, and the batches. Only one thread at a time uses them.
  mutable std::vector<uint64_t> gathered;
  mutable std::vector<Span> spans;
  mutable uint64_t gatheredEpoch = ~uint64_t(0);
};

/// Cumulative weights of all samples, for a Sampler. `balanced`: each class of `column` (default `label`) gets the same
/// total weight; a row of class probabilities counts as its largest class. Else the weights are the values of `column`
/// (default `weight`), one per sample.
Expected<std::vector<double>> sampleWeights(const Dataset &dataset, bool balanced, std::string column);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_SAMPLER_H

//===- BatchReader.h - columns become the inputs of an entry -------------===//
//
// Binds each input of an entry to a column of a data set, checks types and shapes once, and then fills the input
// buffers of one call after the other without allocating.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_BATCHREADER_H
#define TCC_RUNTIME_DATA_BATCHREADER_H

#include "runtime/data/Ragged.h"
#include "runtime/plan/plan.pb.h"

#include <set>
#include <span>

namespace tcc::runtime {

/// The inputs of a batch's random transforms.
struct BatchDraw {
  Draw draw;
  uint64_t number = 0;  ///< of the batch in its epoch
  bool repeats = false; ///< the sampler may draw a sample several times in an epoch

  /// The draw of the sample in `slot`, with `batch` samples per batch.
  Draw of(uint64_t slot, uint64_t batch) const {
    return {draw.seed, draw.epoch, repeats ? number * batch + slot + 1 : 0};
  }
};

struct BindOptions {
  /// Graph input → column, where the names differ.
  std::map<std::string, std::string> map;
  /// The recipe's target input, empty if there is none.
  std::string target;
  /// The recipe's inputs of sample weights: finite numbers of at least 0, not all 0.
  std::set<std::string> sampleWeights = {};
  /// The input of `weights` whose value 0 excludes a sample from everything that the entry computes; empty: none.
  std::string maskingWeight = {};
  /// The target value that the loss ignores, if it has one and the target is an integer.
  std::optional<int64_t> ignoreIndex;
  /// Classes that the target may name, from 0; a value outside would make the kernels read outside their buffers.
  std::optional<int64_t> classes;
  /// Damaged samples that are left out before one is an error: `data.max_bad`.
  uint64_t maxBad = 0;
  /// Inputs whose columns are constants: `data.constant`.
  std::set<std::string> constants = {};
  /// By column: what follows the end of a sample that is shorter than the input: `data.pad`. Default: the ignored
  /// target for the target, else 0.
  std::map<std::string, double> pad = {};
  /// The axes in which an input's samples differ among the shapes of any entry: columns whose samples differ there are
  /// padded although `pad` does not name them.
  std::map<std::string, std::vector<int>> raggedInputs = {};
  /// The axes in which an input's samples differ among the shapes of the entry (plan::paddedAxes): columns are padded
  /// there also if all samples are alike.
  std::map<std::string, std::vector<int>> paddedAxes = {};
  /// Indices of a weight's rows may be negative: `data.negative_indices`.
  bool negativeIndices = false;
  /// Appended to the message about a target of another shape, if the recipe may be the cause.
  std::string targetHint = {};
};

class BatchReader {
public:
  /// Each input must find its column: by `map`, by its own name, or in a token file by its role (the target gets
  /// `targets`, the only other integer input of rank 2 `tokens`). The first axis of a column is the sample axis,
  /// whatever axis the input has for it; a column with one number per sample fits every input with one number per
  /// sample. A column of exactly the input's shape is a constant, passed to every call, if `constants` names it, if the
  /// input has no sample axis, or if other columns have another number of samples (a note reports that); a target
  /// becomes one only by `constants`. Every error lists the columns. The data set must outlive the reader.
  static Expected<BatchReader> bind(const plan::Entry &entry, const Dataset &dataset, const BindOptions &options);

  /// Number of samples of every sampled column; that of a batch if no column is sampled.
  uint64_t samples() const { return sampleCount; }
  /// Samples per call.
  uint64_t batch() const { return batchSize; }
  /// True if no input is smaller than the sample in any axis. A damaged sample is held: it has no size.
  bool holds(uint64_t sample) const;
  /// The bytes of the sample in padded inputs that are not cut.
  uint64_t keptBytes(uint64_t sample) const;
  /// The input that is smaller than the sample: "column 'x': sample 7 has 300 rows, the model's input 'x' takes 256",
  /// or for images "…: sample 7 (a.jpg) has 300x200 pixels, …", with the extents of the input in all of `shapes`.
  /// Requires !holds().
  std::string describeLarger(uint64_t sample, std::span<const std::unique_ptr<BatchReader>> shapes) const;
  /// True if some input's samples are padded.
  bool isRagged() const { return !ragged.empty(); }
  /// True if some of them are images of several sizes.
  bool padsImages() const;
  /// True if the column is read by padded inputs alone.
  bool pads(const Column &column) const;
  /// True if a slot of the batch without a sample can be given zero weight.
  bool maskable() const { return maskedInput >= 0 || presence; }
  /// True if the samples of both have the same shapes.
  bool takesSamplesOf(const BatchReader &other) const;
  /// The extent of a sample in an axis of this input, without padding.
  uint64_t extentOf(const std::string &input, size_t axis, uint64_t sample) const;
  /// Elements of the target, or else of the first integer input of rank ≥ 2, in one sample: tokens; 0: no tokens.
  uint64_t tokensPerSample() const { return tokens; }
  /// The same without the padding of a sample that is smaller than the input.
  uint64_t tokensOf(uint64_t sample) const;

  /// Notes for the user on how columns were bound.
  const std::vector<Message> &notes() const { return notesOfBinding; }

  /// The columns of the data that are read, each with its input's name.
  std::vector<std::pair<std::string, const Column *>> columns() const;
  /// The names of all inputs, in the order of entry.inputs.
  std::vector<std::string> inputNames() const;

  /// "ids i64[8x16], mask f32[8x16]": the inputs of a call.
  std::string shapeText() const;
  /// Bytes of each input of a call.
  std::vector<uint64_t> inputBytes() const;
  /// Bytes of one sample in all inputs.
  uint64_t sampleBytes() const;

  /// Writes the inputs of one call to `given`, in the order of entry.inputs; empty ones are skipped. Slots after the
  /// last index repeat its sample, with `mask` with the ignored target or weight 0. Error: a sample that cannot be read
  /// or converted.
  Status fill(std::span<const uint64_t> indices, bool mask, std::span<const std::span<std::byte>> given,
              const BatchDraw &draw = {});

  /// Memory of one thread that reads.
  struct Scratch {
    std::vector<std::vector<std::byte>> raw, converted; ///< one sample of each input
    std::vector<float> mixed;                           ///< one sample, while a batch is mixed
  };
  Scratch makeScratch() const;
  /// The parts of fill(), for several threads: readSlot writes a sample to its slot; finish does the rest, once all
  /// slots below `count` are written.
  Status readSlot(uint64_t sample, uint64_t slot, std::span<const std::span<std::byte>> given, const Draw &draw,
                  Scratch &scratch) const;
  Status finish(std::span<const std::span<std::byte>> given, uint64_t count, bool mask, const BatchDraw &draw,
                Scratch &scratch) const;

  /// What to do with a damaged sample (it cannot be decoded or converted, an index or class is outside its range, or a
  /// floating-point input holds NaN) as long as there are at most BindOptions::maxBad of them.
  enum class Damaged {
    Replace, ///< use the next sample that is not damaged, which depends on the data alone
    Drop     ///< leave it out
  };
  /// Like fill(), and sets `indices` to the samples that were read; if samples are dropped, none may be left. Error:
  /// more damaged samples than allowed.
  Status fillSound(std::vector<uint64_t> &indices, Damaged damaged, bool mask,
                   std::span<const std::span<std::byte>> given, const BatchDraw &draw = {});

  /// Counts a damaged sample that is to be left out. Error: more than allowed, or all.
  Status noteDamaged(uint64_t sample, const Status &problem);
  /// BindOptions::maxBad.
  uint64_t mostDamaged() const { return maxBad; }
  /// The draw of the batch that describeNonFinite() reads again.
  void rememberDraw(const BatchDraw &draw) { lastDraw = draw; }

  /// Damaged samples found so far, each with its problem.
  const std::map<uint64_t, std::string> &damagedSamples() const { return *damaged; }
  /// Makes this reader and `other`, of the same data in another shape, count damaged samples together.
  void shareDamaged(const BatchReader &other) { damaged = other.damaged; }
  /// The sample that replaces a damaged one: the next that is not damaged and no larger than the inputs.
  uint64_t nextSound(uint64_t sample) const;
  /// Adds the damaged samples that the run had found before it was resumed.
  void knowDamaged(std::span<const uint64_t> samples);

  /// Reads one sample of every column and checks all of it, for `trun data`. Error: it is damaged.
  Status check(uint64_t sample);
  /// The first NaN (with `infinities`, also infinity) among the floating-point inputs of these samples and the
  /// constants, as "column 'x', sample 17, position 2, 5: NaN"; empty if there is none. For diagnosis: it reads them
  /// again.
  std::string describeNonFinite(std::span<const uint64_t> indices, bool infinities);

private:
  /// Values that elements of an integer input may have.
  struct Range {
    int64_t low = 0, high = 0;
    std::vector<int64_t> exceptions;
    std::vector<int64_t> begin, end; ///< coordinates within one sample (a constant: within the input); empty: all
    std::string what;                ///< the rest of the message, after the value
  };
  struct Input {
    std::string name;
    const Column *column = nullptr;
    uint32_t view = 0; ///< of the column
    plan::DType dtype = plan::DTYPE_NONE;
    bool sampled = false;
    uint64_t outer = 1;        ///< blocks before the sample axis
    uint64_t inner = 1;        ///< elements after it
    uint64_t elements = 1;     ///< of the whole input
    std::vector<int64_t> dims; ///< of one sample; a constant: of the input
    std::vector<Range> ranges;
    bool presence = false; ///< Port.presence
    bool weighs = false;  ///< sample weights
    bool checked = false; ///< all values were checked when the column was bound
    std::vector<std::byte> raw, converted;
  };

  /// A transform of whole batches, and the inputs that it changes.
  struct BatchTransform {
    recipe::TransformSpec spec;
    size_t input = 0, target = 0;
    uint32_t height = 0, width = 0;
  };

  static Expected<Input> bindInput(const plan::Entry &entry, const plan::Port &port, const Dataset &dataset,
                                   const Column &column, const BindOptions &options);
  /// Error: samples of two ragged columns differ in length, whose inputs have the same dimension there.
  Status checkSameLengths(const plan::Entry &entry) const;
  /// Error: a sample of the target is of another size than those of each input in whose shapes it is.
  Status checkTargetSizes(const std::string &target) const;
  /// Error: data.pad gives a value that the ragged input does not take.
  Status checkPadding(const Input &input, const std::string &column, double value) const;
  /// The column, padded to the extents of the input that is bound next.
  Expected<const Column *> pad(const plan::Entry &entry, const plan::Port &port, const Column &column,
                               const BindOptions &options);
  /// Decides which columns are sampled, and the number of samples.
  Status countSamples(const plan::Entry &entry, const BindOptions &options);
  static void bindRanges(Input &input, const plan::Port &port, const plan::TensorType &type,
                         const BindOptions &options);
  /// Error: a value outside its range. `sample` is the number of the sample that `values` are; nothing: a constant.
  Status checkRanges(const Input &input, const std::byte *values, plan::DType dtype,
                           std::optional<uint64_t> sample) const;
  Status checkRangesNow(Input &input) const;
  /// Error: a weight of a sample that is negative or not finite. `converted`: in the input's type.
  Status checkWeights(const Input &input, const std::byte *converted, uint64_t sample) const;
  /// The same for all samples, if they are in memory. Error also if all weights are 0.
  Status checkWeightsNow(const Input &input) const;
  std::string placeOf(const Input &input, std::optional<uint64_t> sample, std::optional<uint64_t> element) const;
  /// Reads and checks one sample of one input to `converted`; `raw` is scratch memory.
  Status readSample(const Input &input, uint64_t index, const Draw &draw, std::byte *raw, std::byte *converted) const;
  /// Writes what the input has in slots without a sample.
  void writeMask(const Input &input, std::byte *converted) const;
  Status bindBatchTransforms(const Dataset &dataset);
  void mix(std::span<const std::span<std::byte>> given, uint64_t count, const BatchDraw &draw,
           std::vector<float> &spare) const;

  std::string path;
  std::vector<Message> notesOfBinding;
  std::vector<Input> inputs;
  std::vector<BatchTransform> batchTransforms;
  Scratch own;   ///< of the thread that calls fill()
  BatchDraw lastDraw;            ///< of the last batch
  uint64_t sampleCount = 0, batchSize = 1, tokens = 0;
  std::unique_ptr<Column> presence; ///< of the input that says which slots have a sample; null: there is none
  int maskedInput = -1; ///< the target, or the sample weights
  int64_t maskedValue = 0; ///< of a padded sample
  uint64_t maxBad = 0;
  std::shared_ptr<std::map<uint64_t, std::string>> damaged = std::make_shared<std::map<uint64_t, std::string>>();
  /// An input whose samples are padded.
  struct RaggedInput {
    size_t input;
    std::unique_ptr<PaddedColumn> column;
  };
  std::vector<RaggedInput> ragged;
  std::optional<size_t> tokensInput; ///< that `tokens` counts
  std::optional<uint64_t> faulty; ///< the sample that made the last fill fail
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_BATCHREADER_H

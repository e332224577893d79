//===- Dataset.h - reading data sets of every format ---------------------===//
//
// `openDataset` detects the format by name and content, and returns named columns. Formats: safetensors, npz, npy and
// folders of npy, token files (.bin, .txt), IDX, CIFAR binary, CSV, JSON lines, Parquet, Arrow, folders or tars of
// class folders. `openDatasetColumns` takes columns that the program has in memory.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_DATASET_H
#define TCC_RUNTIME_DATA_DATASET_H

#include "runtime/data/Column.h"
#include "support/Message.h"
#include "support/recipe/Transforms.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// The `data.*` settings of a plan, as text: tokens, windows, last, eval_split, format, transform, …
using DataMap = std::map<std::string, std::string>;

/// Parameters of columns that are derived from the training data. A run keeps them and applies them to later data.
struct ColumnFacts {
  /// By column: its categories, in the order of their numbers.
  std::map<std::string, std::vector<std::string>> categories;
  /// By column: the replacement of missing values, one number for each element of a sample.
  std::map<std::string, std::vector<double>> fills;
  /// By column ("x#2" for a second `standardise` of x): one mean and deviation, or one for each element or channel.
  struct Standard {
    std::vector<double> mean, deviation;
    bool operator==(const Standard &) const = default;
  };
  std::map<std::string, Standard> standards;

  bool empty() const { return categories.empty() && fills.empty() && standards.empty(); }
  bool operator==(const ColumnFacts &) const = default;
};

struct DatasetOptions {
  DataMap settings;
  /// Tokens of one window: the model's sequence length; 0: no input of the model has one.
  int64_t windowLength = 0;
  /// The target of a token window is the window itself: the graph shifts (`loss.shift`).
  bool sameWindow = false;
  /// Windows start at every token, for random drawing; else each starts at the end of the previous one.
  bool overlappingWindows = false;
  /// The data is for training: transforms of training apply, else those of evaluation.
  bool training = false;
  /// The data is for prediction: windows of tokens are not transformed.
  bool predicting = false;
  /// The part of the data: all of it, the part that `data.eval_split` leaves for training, or the evaluation part.
  enum class Part { All, Head, Tail } part = Part::All;
  double evalSplit = 0;
  /// Samples that are used, spread evenly over the part; 0: all.
  uint64_t limit = 0;
  /// Memory that the data may take; mapped files are not counted.
  uint64_t memoryBytes = std::numeric_limits<uint64_t>::max();
  /// The run's vocabulary (code points, sorted), for text read after the training data.
  std::optional<std::vector<uint32_t>> vocabulary;
  /// Facts that are known: those of the run, or of the training data.
  ColumnFacts facts;
  /// Facts that are not known are derived from this data; otherwise their absence is an error.
  bool learnsFacts = false;
  /// Called with the progress of a scan of several files: files done, files, samples so far.
  std::function<void(uint64_t, uint64_t, uint64_t)> scanning;
  /// Called with notes for the user: a cache was written, or cannot be.
  MessageSink note;
};

struct Dataset {
  std::string path;
  std::string format; ///< for messages: "safetensors", "text", …
  std::vector<std::unique_ptr<Column>> columns = {};
  std::vector<uint32_t> vocabulary = {}; ///< of a character text: code point of token i
  std::vector<std::string> classes = {}; ///< of class folders: name of label i
  ColumnFacts facts = {};                ///< with which its columns were read
  /// data.cast: f64 and integers are converted to f32 for inputs of that type.
  bool castsToF32 = false;
  /// Transforms of whole batches, in order.
  std::vector<recipe::TransformSpec> batchTransforms = {};
  /// Samples of each file, in order, if the data set consists of several.
  std::vector<uint64_t> shards = {};
  /// Samples per epoch, if that differs from the number of samples: random windows.
  uint64_t epochSamples = 0;

  const Column *find(const std::string &name) const;
  /// "'image' f32[64x1x28x28], 'label' i64[64]", for messages.
  std::string describeColumns() const;
  uint64_t hostBytes() const;
};

/// Errors, each with file and place: the file is missing or truncated, or its format is not the one that its name says.
Expected<Dataset> openDataset(const std::string &path, const DatasetOptions &options);

/// The same for one file's bytes in memory; `name` selects the format like the last part of a path. Files that belong
/// to it (an IDX file's labels) are looked up relative to `name`.
Expected<Dataset> openDatasetBytes(const std::string &name, std::string bytes, const DatasetOptions &options);

/// The same for columns in memory, such as memoryColumn(). Settings apply as to a file's columns, except settings of
/// tokens. `name` stands for the path in messages. Error: two columns of one name.
Expected<Dataset> openDatasetColumns(const std::string &name, std::vector<std::unique_ptr<Column>> columns,
                                     const DatasetOptions &options);

/// A setting's text without surrounding quotes; empty if it is absent.
std::string settingText(const DataMap &settings, const std::string &key);

/// UTF-8 of a code point.
std::string encodeUtf8(uint32_t codePoint);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_DATASET_H

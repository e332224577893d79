//===- BatchReader.h - columns become the inputs of an entry -------------===//
//
// Binds each input of an entry to a column of a data set, checks types and shapes once, and then fills the input
// buffers of one call after the other without allocating.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_BATCHREADER_H
#define TCC_RUNTIME_DATA_BATCHREADER_H

#include "runtime/data/Dataset.h"
#include "runtime/plan/plan.pb.h"

#include <span>

namespace tcc::runtime {

struct BindOptions {
  /// Graph input → column, where the names differ.
  std::map<std::string, std::string> map;
  /// The recipe's target input, empty if there is none.
  std::string target;
  /// The target value that the loss does not count, where the loss has one and the target is an integer.
  std::optional<int64_t> ignoreIndex;
  /// Classes that the target may name, from 0; a value outside would make the kernels read outside their buffers.
  std::optional<int64_t> classes;
};

class BatchReader {
public:
  /// Each input must find its column: by `map`, by its own name, or in a token file by its role (the target gets
  /// `targets`, the only other integer input of rank 2 `tokens`). Columns must have the input's sample shape, or
  /// exactly the input's: then it is a constant, given to every call. Every error says which columns there are. The
  /// data set must outlive the reader.
  static plan::Expected<BatchReader> bind(const plan::Entry &entry, const Dataset &dataset, const BindOptions &options);

  /// Samples that all sampled columns have; a call's batch where no column is sampled.
  uint64_t samples() const { return sampleCount; }
  /// Samples a call takes.
  uint64_t batch() const { return batchSize; }
  /// Can a padded sample be made to weigh nothing?
  bool maskable() const { return maskedInput >= 0; }
  /// Elements of the target, or else of the first integer input of rank ≥ 2, in one sample: tokens; 0: no tokens.
  uint64_t tokensPerSample() const { return tokens; }

  /// The columns that are read, each with its input's name.
  std::vector<std::pair<std::string, const Column *>> columns() const {
    std::vector<std::pair<std::string, const Column *>> result;
    for (const Input &input : inputs)
      result.emplace_back(input.name, input.column);
    return result;
  }

  /// Writes the inputs of one call. `buffers` follow entry.inputs; a null one is skipped. Slots after the last index
  /// repeat it, and if `mask` its target is the ignored value. Error: a sample that cannot be read or converted.
  plan::Status fill(std::span<const uint64_t> indices, bool mask, std::span<void *const> buffers);

private:
  struct Input {
    std::string name;
    const Column *column = nullptr;
    plan::DType dtype = plan::DTYPE_NONE;
    bool sampled = false;
    uint64_t outer = 1;    ///< blocks before the sample axis
    uint64_t inner = 1;    ///< elements after it
    uint64_t elements = 1; ///< of the whole input
    int64_t classes = 0;   ///< values must be below; 0: any
    bool checked = false;  ///< all values were checked when the column was bound
    std::vector<std::byte> raw, converted;
  };

  static plan::Expected<Input> bindInput(const plan::Entry &entry, const plan::Port &port, const Dataset &dataset,
                                         const Column &column);
  /// Error: a value that names no class. `sample` is the first one's number.
  plan::Status checkClasses(const Input &input, const std::byte *values, plan::DType dtype, uint64_t count,
                            uint64_t sample) const;
  plan::Status readSample(Input &input, uint64_t index, bool ignore);

  std::string path;
  std::vector<Input> inputs;
  uint64_t sampleCount = 0, batchSize = 1, tokens = 0;
  int maskedInput = -1;
  std::optional<int64_t> ignoreIndex;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_BATCHREADER_H

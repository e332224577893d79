//===- Ragged.h - columns whose samples differ in length -------------------===//
//
// A ragged column's samples have any number of rows of one shape: the tokens of a sentence, the frames of a recording.
// In a file it is two arrays: the rows of all samples, one after the other, and `NAME.offsets`, whose element i is the
// first row of sample i, with the number of all rows at its end. Rows that were padded to one length become ragged by
// data.lengths, which names their mask.
//
// An entry takes samples of one length: PaddedColumn gives it those.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_RAGGED_H
#define TCC_RUNTIME_DATA_RAGGED_H

#include "runtime/data/Dataset.h"

#include <vector>

namespace tcc::runtime {

/// Joins `NAME` and `NAME.offsets` to a ragged column, and makes columns as long as data.lengths says. Error: offsets
/// that do not fit the rows, or a column that tells no lengths.
Status joinRagged(Dataset &dataset, const DatasetOptions &options);

/// The rows of lists of different lengths as a ragged column: `offsets` as in a file, without the name's ending.
std::unique_ptr<Column> raggedColumn(std::unique_ptr<Column> rows, std::vector<uint64_t> offsets);

/// A ragged column with `length` rows for each sample: shorter ones are padded with a value, longer ones are cut.
class PaddedColumn : public Column {
public:
  /// `ragged` outlives the column. Error: its element type does not hold the value.
  static Expected<std::unique_ptr<PaddedColumn>> create(const Column &ragged, uint64_t length, double value);

  bool isText() const override { return ragged.isText(); }
  Status usable() const override { return ragged.usable(); }
  Status read(uint64_t index, std::byte *destination) const override;
  std::string place(uint64_t index) const override { return ragged.place(index); }

private:
  PaddedColumn(const Column &ragged, uint64_t length, plan::TensorType type);

  const Column &ragged;
  uint64_t length, rowBytes;
  std::vector<std::byte> padding; ///< one row
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_RAGGED_H

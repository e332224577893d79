//===- Ragged.h - columns whose samples differ in length or size -----------===//
//
// A ragged column's samples have any number of rows of one shape: the tokens of a sentence, the frames of a recording.
// In a file it is two arrays: the rows of all samples, one after the other, and `NAME.offsets`, whose element i is the
// first row of sample i, with the number of all rows at its end. Rows that were padded to one length become ragged by
// data.lengths, which names their mask.
//
// A sized column's samples differ in any axis. Images of several sizes are one; in a file of arrays `NAME` holds the
// elements of all samples, one after the other, and row i of `NAME.shapes` the extents of sample i.
//
// An entry takes samples of one shape: PaddedColumn gives it those.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_RAGGED_H
#define TCC_RUNTIME_DATA_RAGGED_H

#include "runtime/data/Dataset.h"

#include <vector>

namespace tcc::runtime {

/// Joins `NAME` and `NAME.offsets` to a ragged column, `NAME` and `NAME.shapes` to a sized one, and makes columns as
/// long as data.lengths says. Error: offsets or shapes that do not fit the elements, or a column that tells no lengths.
Status joinRagged(Dataset &dataset, const DatasetOptions &options);

/// The rows of lists of different lengths as a ragged column: `offsets` as in a file, without the name's ending.
std::unique_ptr<Column> raggedColumn(std::unique_ptr<Column> rows, std::vector<uint64_t> offsets);

/// A column whose samples all have these extents: smaller ones are padded with a value, larger ones are cut.
class PaddedColumn : public Column {
public:
  /// `base` outlives the column; `extents` has one for each axis of its samples. If only the type `input` holds the
  /// value (the ignored class −100 after masks of u8) and all elements, they become that type. Error: neither type
  /// holds the value.
  static Expected<std::unique_ptr<PaddedColumn>> create(const Column &base, std::vector<uint64_t> extents, double value,
                                                        plan::DType input = plan::DTYPE_NONE);

  const Column &unpadded() const { return base; }
  /// True if the size of sample `index` cannot be read, because it is damaged. It has no elements then.
  bool isUnknown(uint64_t index) const { return sizes && sizes->of(index)[0] == 0; }
  /// The extent of sample `index` in an axis before it is padded or cut.
  uint64_t extentOf(uint64_t index, size_t axis) const {
    return sizes                          ? sizes->of(index)[axis]
           : axis == 0 && base.isRagged() ? base.lengthOf(index)
                                          : static_cast<uint64_t>(base.type().dims(static_cast<int>(axis) + 1));
  }
  const std::vector<uint64_t> &extents() const { return frame; }
  /// True if sample `index` is cut in no axis.
  bool holds(uint64_t index) const;
  /// The elements of sample `index` that are not cut.
  uint64_t keptElements(uint64_t index) const;

  bool isText() const override { return base.isText() && !converts(); }
  Status usable() const override { return base.usable(); }
  bool isComputed() const override { return base.isComputed(); }
  Status read(uint64_t index, std::byte *destination) const override { return draw(index, {}, destination); }
  Status draw(uint64_t index, const Draw &draw, std::byte *destination) const override;
  std::string place(uint64_t index) const override { return base.place(index); }

private:
  PaddedColumn(const Column &base, std::vector<uint64_t> extents, plan::TensorType type);
  bool converts() const { return type().dtype() != base.type().dtype(); }
  /// As draw(), in the base's element type, to another frame.
  Status drawBase(uint64_t index, const Draw &draw, const Frame &whole, std::byte *destination) const;

  const Column &base;
  const SampleSizes *sizes; ///< of a sized column
  std::vector<uint64_t> frame;
  std::vector<std::byte> padding; ///< one element
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_RAGGED_H

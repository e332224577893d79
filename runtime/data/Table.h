//===- Table.h - columns of tables: numbers or texts, with gaps -----------===//
//
// CSV, JSON lines, Parquet and Arrow are rows of named fields. Their readers return fields; makeTable turns these into
// the columns of a data set: `x.0`, `x.1`, … together are also one column `x` of vectors. A field may be missing in a
// row; that is an error when an input reads the column, unless data.missing defines a replacement.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_TABLE_H
#define TCC_RUNTIME_DATA_TABLE_H

#include "runtime/data/Dataset.h"
#include "support/MappedFile.h"

namespace tcc::runtime {

/// Memory for one sample of a column that another column reads. It reuses a buffer of the thread, unless a nested
/// column already uses that.
class SampleMemory {
public:
  explicit SampleMemory(uint64_t bytes) : memory(std::move(spare())) { memory.resize(bytes); }
  ~SampleMemory() { spare() = std::move(memory); }
  SampleMemory(const SampleMemory &) = delete;
  SampleMemory &operator=(const SampleMemory &) = delete;
  std::byte *data() { return memory.data(); }

private:
  static std::vector<std::byte> &spare() {
    thread_local std::vector<std::byte> kept;
    return kept;
  }
  std::vector<std::byte> memory;
};

/// The positions of a table's rows in their file.
class RowPlaces {
public:
  /// `inLines`: rows have line numbers, set by add(); else they are counted from 0.
  RowPlaces(std::string path, bool inLines) : path(std::move(path)), inLines(inLines) {}
  /// Sets the line of row `row`; for rows on consecutive lines, the first is enough.
  void add(uint64_t row, uint64_t line);
  uint64_t lineOf(uint64_t row) const;
  /// "line 17", "row 16".
  std::string of(uint64_t row) const;
  /// The same with the file in front: "d.csv:17", "d.parquet, row 16".
  std::string inFile(uint64_t row) const;

private:
  std::string path;
  bool inLines;
  std::vector<std::pair<uint64_t, uint64_t>> starts; ///< row, line
};

/// One column as returned by a reader.
struct TableField {
  std::string name;
  plan::DType dtype = plan::DTYPE_NONE; ///< none: texts, or `problem`
  std::vector<int64_t> dims = {};       ///< of one row
  std::vector<uint64_t> lengths = {};   ///< of each row's list, if they differ; `dims` has the longest one's
  std::vector<std::byte> numbers = {};
  std::vector<std::string_view> texts = {};
  std::vector<uint64_t> gaps = {}; ///< elements without a value, ascending; 0 in `numbers`, as written in `texts`
  bool fromText = false;           ///< numbers from text, without a type of their own
  std::optional<uint64_t> strange =
      {}; ///< the first row whose text is no number, if the column is read as texts for that reason
  std::string problem = {};             ///< why a column that has neither numbers nor texts cannot be read
};

/// The text of a table's file, without a byte-order mark. Error: it is UTF-16.
Expected<std::string_view> tableText(const MappedFile &file);

/// `owner` keeps the texts alive.
Expected<Dataset> makeTable(const std::string &path, std::string format, std::vector<TableField> fields, uint64_t rows,
                            std::shared_ptr<const RowPlaces> places, std::shared_ptr<const void> owner);

/// Spreads a field that has numbers only for the rows `present` over `rows` rows; the others become gaps.
void spreadRows(TableField &field, const std::vector<uint64_t> &present, uint64_t rows);

/// True for a text that denotes a missing value: empty, NA, NaN, null, None, ?, …
bool isMissingWord(std::string_view text);

/// A column in memory in which some elements have no value.
std::unique_ptr<Column> gappyColumn(const std::string &name, plan::TensorType type, std::vector<std::byte> numbers,
                                    bool fromText, std::vector<uint64_t> gaps, std::shared_ptr<const RowPlaces> places);

/// The column's numbers as elements of a floating-point type.
std::unique_ptr<Column> convertedColumn(std::unique_ptr<Column> base, plan::DType dtype);

/// Checks a column that an input reads. Error: it holds no numbers; with `gaps`, also if a sample lacks a value.
Status checkTableColumn(const Dataset &dataset, const Column &column, bool gaps);

/// The start of a field, for messages: it may be as long as the file.
std::string shown(std::string_view field);

/// "f32[10x3]", "text[10]".
std::string columnTypeName(const Column &column);

/// Applies data.categories and data.missing: texts become numbers, missing values are filled in. Uses and adds facts.
Status applyColumnRules(Dataset &dataset, const DatasetOptions &options);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TABLE_H

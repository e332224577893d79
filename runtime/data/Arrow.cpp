//===- Arrow.cpp - Parquet and Arrow files ----------------------------------===//
//
// A plug-in (arrow/Plugin.h) reads the file with Arrow's library and passes batches of rows through Arrow's C data
// interface; their arrays are copied into columns here. Columns keep their element types. Lists of equal length become
// vectors, lists of different lengths a ragged column (Ragged.h).
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/data/Limits.h"
#include "runtime/data/Table.h"
#include "runtime/data/arrow/Plugin.h"
#include "support/Plugins.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Advice that has been tested: the first way for numbers and texts, the second for lists.
std::string wayOut(const std::string &path) {
  return fmt::format(
      "or convert the file in Python: import numpy, pandas; t = pandas.read_parquet(\"{0}\") (read_feather for Arrow "
      "files); then t.to_csv(\"data.csv\", index=False), or where columns hold lists numpy.savez(\"data.npz\", **{{c: "
      "numpy.stack(t[c]) for c in t}})",
      path);
}

Expected<const TrunArrow *> openPlugin(const std::string &path) {
  const std::string library = pluginPath("trun-arrow.so");
  if (::access(library.c_str(), R_OK) != 0)
    return error(
        "{}: Parquet and Arrow files are read through {}, which is missing: trun was built without Arrow; install "
        "pyarrow into .venv and build again, {}",
        path, library, wayOut(path));
  // Never closed, because libraries below it keep threads running.
  void *const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *reason = ::dlerror();
    return error("{}: {}; install pyarrow of that version and set LD_LIBRARY_PATH to its folder, {}", path,
                 reason ? reason : library, wayOut(path));
  }
  auto find = reinterpret_cast<const TrunArrow *(*)()>(::dlsym(handle, "trunArrow"));
  const TrunArrow *arrow = find ? find() : nullptr;
  if (!arrow || arrow->version != TRUN_ARROW_VERSION)
    return error("{} was built for another version of trun; build both again", library);
  return arrow;
}

/// An object from the plug-in, released by the destructor.
template <typename T> struct Released {
  T value{};
  Released() = default;
  Released(const Released &) = delete;
  Released &operator=(const Released &) = delete;
  ~Released() {
    if (value.release)
      value.release(&value);
  }
};

plan::DType dtypeOf(std::string_view format) {
  static constexpr std::pair<char, plan::DType> kTable[] = {
      {'b', plan::I1},  {'c', plan::I8},  {'C', plan::U8},  {'s', plan::I16}, {'S', plan::U16}, {'i', plan::I32},
      {'I', plan::U32}, {'l', plan::I64}, {'L', plan::U64}, {'e', plan::F16}, {'f', plan::F32}, {'g', plan::F64}};
  for (const auto &[letter, dtype] : kTable)
    if (format == std::string_view(&letter, 1))
      return dtype;
  return plan::DTYPE_NONE;
}

bool isTextFormat(std::string_view format) { return format == "u" || format == "U" || format == "vu"; }

/// A type in words, for messages.
std::string_view typeWords(std::string_view format) {
  static constexpr std::pair<std::string_view, std::string_view> kTable[] = {
      {"ts", "timestamps"}, {"td", "dates"},    {"tt", "times"},    {"tD", "durations"}, {"ti", "intervals"},
      {"d:", "decimals"},   {"+s", "structs"},  {"+m", "maps"},     {"+u", "unions"},    {"+v", "list views"},
      {"+r", "run ends"},   {"z", "raw bytes"}, {"Z", "raw bytes"}, {"vz", "raw bytes"}, {"w:", "raw bytes"}};
  for (const auto &[start, words] : kTable)
    if (format.starts_with(start))
      return words;
  return "values of another kind";
}

bool isNull(const ArrowArray &array, int64_t index) {
  const auto *bits = array.n_buffers > 0 ? static_cast<const uint8_t *>(array.buffers[0]) : nullptr;
  const int64_t at = index + array.offset;
  return bits && array.null_count != 0 && !(bits[at / 8] >> (at % 8) & 1);
}

std::string_view textAt(const ArrowArray &array, std::string_view format, int64_t index) {
  const int64_t at = index + array.offset;
  if (format == "vu") {
    // 16 bytes: the length, then the text if it has at most 12 bytes, else its start, a buffer and a place in it.
    const auto *view = static_cast<const char *>(array.buffers[1]) + at * 16;
    int32_t length = 0, buffer = 0, place = 0;
    std::memcpy(&length, view, 4);
    if (length <= 12)
      return {view + 4, static_cast<size_t>(length)};
    std::memcpy(&buffer, view + 8, 4);
    std::memcpy(&place, view + 12, 4);
    return {static_cast<const char *>(array.buffers[2 + buffer]) + place, static_cast<size_t>(length)};
  }
  auto between = [&](const auto *offsets) {
    const auto *text = static_cast<const char *>(array.buffers[2]);
    return text ? std::string_view(text + offsets[at], static_cast<size_t>(offsets[at + 1] - offsets[at]))
                : std::string_view();
  };
  return format == "u" ? between(static_cast<const int32_t *>(array.buffers[1]))
                       : between(static_cast<const int64_t *>(array.buffers[1]));
}

int64_t integerAt(const ArrowArray &array, std::string_view format, int64_t index) {
  const int64_t at = index + array.offset;
  auto load = [&](auto value) {
    std::memcpy(&value, static_cast<const std::byte *>(array.buffers[1]) + at * int64_t(sizeof(value)), sizeof(value));
    return static_cast<int64_t>(value);
  };
  switch (format[0]) {
  case 'c':
    return load(int8_t());
  case 'C':
    return load(uint8_t());
  case 's':
    return load(int16_t());
  case 'S':
    return load(uint16_t());
  case 'i':
    return load(int32_t());
  case 'I':
    return load(uint32_t());
  default:
    return load(int64_t());
  }
}

/// One column while its batches arrive.
class Builder {
public:
  Builder(const RowPlaces &places, std::string name, std::deque<std::string> &texts) : places(places), texts(texts) {
    field.name = std::move(name);
  }

  /// Adds the first `length` rows of `array`, which are the table's rows from `row` on.
  Status add(const ArrowSchema &schema, const ArrowArray &array, int64_t length, uint64_t row,
             limits::MemoryAllowance &memory) {
    allowance = &memory;
    first = row;
    for (int64_t i = 0; i < length && field.problem.empty(); ++i) {
      begin = field.numbers.size();
      gapsBefore = field.gaps.size();
      current = row + static_cast<uint64_t>(i);
      if (Status status = addValue(schema, array, i, 0); !status.ok())
        return status;
    }
    if (!field.problem.empty()) {
      field.numbers = {};
      field.texts = {};
      field.gaps = {};
      present = {};
    }
    return Status();
  }

  TableField finish(uint64_t rows) {
    if (!field.problem.empty())
      return std::move(field);
    if (kind == Kind::Texts)
      return std::move(field);
    if (kind == Kind::None) { // all are null
      field.dtype = plan::F64;
      field.fromText = true;
    }
    if (isRagged)
      field.lengths = std::move(lengths);
    else
      spreadRows(field, present, rows);
    return std::move(field);
  }

private:
  enum class Kind { None, Numbers, Texts } kind = Kind::None;

  void fail(std::string what) {
    if (field.problem.empty())
      field.problem = fmt::format("{}: column '{}': {}", places.inFile(current), field.name, what);
    field.dtype = plan::DTYPE_NONE;
    kind = Kind::None;
  }

  Status addValue(const ArrowSchema &schema, const ArrowArray &array, int64_t index, size_t depth) {
    const std::string_view format = schema.format;
    if (format == "n" || isNull(array, index)) {
      addNull(format, depth);
      return Status();
    }
    if (schema.dictionary) {
      const int64_t which = integerAt(array, format, index);
      return addValue(*schema.dictionary, *array.dictionary, which, depth);
    }
    if (format.starts_with("+l") || format.starts_with("+L") || format.starts_with("+w:"))
      return addList(schema, array, index, depth);
    if (isTextFormat(format)) {
      if (depth != 0 || kind == Kind::Numbers) {
        fail("a list of texts; columns are numbers, lists of numbers, or single texts");
        return Status();
      }
      kind = Kind::Texts;
      const std::string_view text = textAt(array, format, index);
      if (Status status = allowance->take(field.name, text.size() + sizeof(std::string)); !status.ok())
        return status;
      fillTexts();
      field.texts.push_back(texts.emplace_back(text));
      field.strange = field.strange.value_or(current);
      return Status();
    }
    const plan::DType dtype = dtypeOf(format);
    if (dtype == plan::DTYPE_NONE) {
      fail(fmt::format("it holds {}; columns are numbers, lists of numbers, booleans or texts", typeWords(format)));
      return Status();
    }
    return addNumber(dtype, array, index, depth);
  }

  Status addNumber(plan::DType dtype, const ArrowArray &array, int64_t index, size_t depth) {
    kind = Kind::Numbers;
    field.dtype = dtype;
    if (leafDepth >= 0 && leafDepth != static_cast<int>(depth)) {
      fail("lists are nested otherwise than before");
      return Status();
    }
    leafDepth = static_cast<int>(depth);
    const uint64_t width = plan::dtypeBytes(dtype);
    std::byte value[8];
    const int64_t at = index + array.offset;
    if (dtype == plan::I1)
      value[0] = std::byte(static_cast<const uint8_t *>(array.buffers[1])[at / 8] >> (at % 8) & 1);
    else
      std::memcpy(value, static_cast<const std::byte *>(array.buffers[1]) + at * static_cast<int64_t>(width), width);
    if (Status status = allowance->take(field.name, 2 * width); !status.ok())
      return status;
    field.numbers.insert(field.numbers.end(), value, value + width);
    if (depth == 0)
      present.push_back(current);
    return Status();
  }

  void addNull(std::string_view format, size_t depth) {
    if (depth == 0) {
      if (isTextFormat(format) || kind == Kind::Texts) {
        kind = Kind::Texts;
        fillTexts();
        field.texts.emplace_back();
        field.gaps.push_back(current);
      }
      return;
    }
    const plan::DType dtype = dtypeOf(format);
    if (dtype == plan::DTYPE_NONE)
      return fail("a missing list or text inside a list");
    kind = Kind::Numbers;
    field.dtype = dtype;
    leafDepth = static_cast<int>(depth);
    field.gaps.push_back(field.numbers.size() / plan::dtypeBytes(dtype));
    field.numbers.resize(field.numbers.size() + plan::dtypeBytes(dtype));
  }

  /// Adds empty texts for the rows that were null before the column was known to hold texts.
  void fillTexts() {
    while (field.texts.size() < current) {
      field.gaps.push_back(field.texts.size());
      field.texts.emplace_back();
    }
  }

  Status addList(const ArrowSchema &schema, const ArrowArray &array, int64_t index, size_t depth) {
    const std::string_view format = schema.format;
    int64_t from = 0, to = 0;
    const int64_t at = index + array.offset;
    if (format.starts_with("+w:")) {
      int64_t size = 0;
      (void)std::from_chars(format.data() + 3, format.data() + format.size(), size);
      from = at * size;
      to = from + size;
    } else if (format == "+l") {
      const auto *offsets = static_cast<const int32_t *>(array.buffers[1]);
      from = offsets[at];
      to = offsets[at + 1];
    } else {
      const auto *offsets = static_cast<const int64_t *>(array.buffers[1]);
      from = offsets[at];
      to = offsets[at + 1];
    }
    if (depth == limits::kMostTableDims) {
      fail(fmt::format("lists are nested more than {} deep", limits::kMostTableDims));
      return Status();
    }
    if (field.dims.size() <= depth)
      field.dims.resize(depth + 1, -1);
    const bool differs = field.dims[depth] >= 0 && field.dims[depth] != to - from;
    if (differs && depth != 0) {
      fail(fmt::format("a list of {} elements, those before have {}; give all inner lists one length", to - from,
                       field.dims[depth]));
      return Status();
    }
    field.dims[depth] = std::max(field.dims[depth], to - from);
    if (depth == 0) {
      isRagged |= differs;
      lengths.push_back(static_cast<uint64_t>(to - from));
    }
    for (int64_t i = from; i < to && field.problem.empty(); ++i)
      if (Status status = addValue(*schema.children[0], *array.children[0], i, depth + 1); !status.ok())
        return status;
    if (depth == 0 && field.problem.empty()) {
      if (leafDepth >= 0 && static_cast<size_t>(leafDepth) != field.dims.size())
        fail("lists are nested otherwise than before");
      else
        present.push_back(current);
    }
    return Status();
  }

  const RowPlaces &places;
  std::deque<std::string> &texts;
  limits::MemoryAllowance *allowance = nullptr;
  TableField field;
  std::vector<uint64_t> present; ///< rows with a value
  uint64_t first = 0, current = 0;
  size_t begin = 0, gapsBefore = 0;
  int leafDepth = -1;
  std::vector<uint64_t> lengths; ///< of each row's list
  bool isRagged = false;         ///< they differ
};
} // namespace

Expected<Dataset> formats::openArrow(File file, const DatasetOptions &options) {
  const std::string &path = file->path();
  auto plugin = openPlugin(path);
  if (!plugin)
    return plugin.status();
  Released<ArrowArrayStream> stream;
  const std::span<const std::byte> bytes = file->bytes();
  if (const char *problem = (*plugin)->open(bytes.data(), bytes.size(), options.memoryBytes, &stream.value))
    return error("{}: cannot read: {}", path, problem);
  auto failed = [&](const char *what) {
    const char *reason = stream.value.get_last_error(&stream.value);
    return error("{}: {}: {}", path, what, reason ? reason : "Arrow gives no reason");
  };
  Released<ArrowSchema> schema;
  if (stream.value.get_schema(&stream.value, &schema.value) != 0)
    return failed("cannot read its columns");
  const auto columns = static_cast<size_t>(schema.value.n_children);
  if (columns > limits::kMostCsvColumns)
    return error("{}: {} columns, at most {} are read", path, columns, limits::kMostCsvColumns);
  limits::MemoryAllowance memory(options.memoryBytes);
  auto places = std::make_shared<RowPlaces>(path, /*inLines=*/false);
  auto texts = std::make_shared<std::deque<std::string>>();
  std::vector<Builder> builders;
  for (size_t i = 0; i < columns; ++i) {
    const char *name = schema.value.children[i]->name;
    for (size_t k = 0; name && k < i; ++k)
      if (std::string_view(schema.value.children[k]->name) == name)
        return error("{}: two columns are called '{}'", path, std::string_view(name).substr(0, 40));
    builders.emplace_back(*places, name ? name : "", *texts);
  }
  uint64_t rows = 0;
  for (;;) {
    Released<ArrowArray> batch;
    if (stream.value.get_next(&stream.value, &batch.value) != 0)
      return failed("cannot be read whole");
    if (!batch.value.release)
      break;
    for (size_t i = 0; i < columns; ++i) {
      Status status =
          builders[i].add(*schema.value.children[i], *batch.value.children[i], batch.value.length, rows, memory);
      if (!status.ok())
        return status.withContext(path);
    }
    rows += static_cast<uint64_t>(batch.value.length);
  }
  if (rows == 0 || columns == 0)
    return error("{}: the data set is empty: it holds no rows", path);
  std::vector<TableField> fields;
  for (Builder &builder : builders)
    fields.push_back(builder.finish(rows));
  return makeTable(path, bytes.size() >= 4 && std::memcmp(bytes.data(), "PAR1", 4) == 0 ? "Parquet" : "Arrow",
                   std::move(fields), rows, std::move(places), texts);
}

//===- ArrayFiles.cpp - predictions and gradients as files -----------------===//
#include "runtime/state/ArrayFiles.h"
#include "runtime/plan/DType.h"
#include "support/AtomicFile.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/ranges.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr std::pair<std::string_view, ArrayFormat> kSuffixes[] = {{".safetensors", ArrayFormat::Safetensors},
                                                                  {".npz", ArrayFormat::Npz},
                                                                  {".npy", ArrayFormat::Npy},
                                                                  {".csv", ArrayFormat::Csv}};
/// The most columns of a CSV file, equal to the reader's limit.
constexpr uint64_t kMostCsvColumns = uint64_t(1) << 20;

/// NumPy's name of an element type; empty if it has none.
std::string_view descriptorOf(plan::DType dtype) {
  switch (dtype) {
  case plan::F64:
    return "<f8";
  case plan::F32:
    return "<f4";
  case plan::F16:
    return "<f2";
  case plan::I64:
    return "<i8";
  case plan::I32:
    return "<i4";
  case plan::I16:
    return "<i2";
  case plan::I8:
    return "|i1";
  case plan::U64:
    return "<u8";
  case plan::U32:
    return "<u4";
  case plan::U16:
    return "<u2";
  case plan::U8:
    return "|u1";
  case plan::I1:
    return "|b1";
  default:
    return "";
  }
}

/// NEP 1: magic, version 1.0, the length of a dictionary, padded so that the elements begin at a multiple of 64.
std::string npyHeader(const plan::TensorType &type) {
  std::string shape = fmt::format("{}", fmt::join(type.dims(), ", "));
  if (type.dims_size() == 1)
    shape += ",";
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descriptorOf(type.dtype()), shape);
  constexpr size_t kBefore = 10, kAlignment = 64;
  text.append((kAlignment - (kBefore + text.size() + 1) % kAlignment) % kAlignment, ' ');
  text += '\n';
  const auto length = static_cast<uint16_t>(text.size());
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(length & 0xff);
  header += static_cast<char>(length >> 8);
  return header + text;
}

Status streamExactly(const std::string &path, const StreamedValue &value, const ByteSink &sink) {
  uint64_t bytes = 0;
  Status status = value.stream([&](std::span<const std::byte> piece) {
    bytes += piece.size();
    return sink(piece);
  });
  if (status.ok() && bytes != plan::tensorBytes(value.type))
    return error("{}: array '{}' of type {} has {} bytes", path, value.name, plan::typeName(value.type), bytes);
  return status;
}

Status writeNpy(AtomicFile &file, const std::string &path, const StreamedValue &value) {
  Status status = file.write(npyHeader(value.type));
  return status.ok()
             ? streamExactly(path, value,
                             [&](std::span<const std::byte> piece) { return file.write(piece.data(), piece.size()); })
             : status;
}

/// A zip with uncompressed members, as numpy.savez writes it.
class Npz {
public:
  Npz(AtomicFile &file, const std::string &path)
      : file(file), path(path), writer(archive_write_new(), archive_write_free) {}

  Status write(const std::vector<StreamedValue> &arrays) {
    archive *zip = writer.get();
    bool good = archive_write_set_format_zip(zip) == ARCHIVE_OK &&
                archive_write_set_options(zip, "zip:compression=store,zip:hdrcharset=UTF-8") == ARCHIVE_OK &&
                archive_write_set_bytes_per_block(zip, 0) == ARCHIVE_OK &&
                archive_write_open(zip, this, nullptr, &Npz::take, nullptr) == ARCHIVE_OK;
    for (const StreamedValue &value : arrays) {
      if (!good)
        break;
      const std::string header = npyHeader(value.type);
      std::unique_ptr<archive_entry, void (*)(archive_entry *)> entry(archive_entry_new(), archive_entry_free);
      archive_entry_set_pathname_utf8(entry.get(), (value.name + ".npy").c_str());
      archive_entry_set_filetype(entry.get(), AE_IFREG);
      archive_entry_set_perm(entry.get(), 0644);
      archive_entry_set_mtime(entry.get(), 315532800, 0); // 1980, the earliest time in a zip
      archive_entry_set_size(entry.get(),
                             static_cast<int64_t>(header.size() + plan::tensorBytes(value.type).value_or(0)));
      good = archive_write_header(zip, entry.get()) == ARCHIVE_OK && put(header.data(), header.size());
      if (!good)
        break;
      Status status = streamExactly(path, value, [&](std::span<const std::byte> piece) {
        return put(piece.data(), piece.size()) ? Status() : problem();
      });
      if (!status.ok())
        return status;
    }
    good = good && archive_write_close(zip) == ARCHIVE_OK;
    return good ? Status() : problem();
  }

private:
  static la_ssize_t take(archive *, void *self, const void *data, size_t bytes) {
    auto &npz = *static_cast<Npz *>(self);
    npz.failed = npz.file.write(data, bytes);
    return npz.failed.ok() ? static_cast<la_ssize_t>(bytes) : -1;
  }
  bool put(const void *data, size_t bytes) {
    return bytes == 0 || archive_write_data(writer.get(), data, bytes) == static_cast<la_ssize_t>(bytes);
  }
  Status problem() const {
    const char *reason = archive_error_string(writer.get());
    return failed.ok() ? error("{}: cannot write: {}", path, reason ? reason : "libarchive gives no reason") : failed;
  }

  AtomicFile &file;
  const std::string &path;
  std::unique_ptr<archive, int (*)(archive *)> writer;
  Status failed;
};

/// An element of a floating-point array.
double scoreOf(const std::byte *bytes, plan::DType dtype, uint64_t index) {
  auto load = [&](auto value) {
    std::memcpy(&value, bytes + index * sizeof(value), sizeof(value));
    return value;
  };
  return dtype == plan::F64   ? load(double())
         : dtype == plan::F32 ? load(float())
                              : std::bit_cast<float>(uint32_t(load(uint16_t())) << 16);
}

/// The text of an element; floats are written so that they read back exactly.
std::string elementText(const std::byte *bytes, plan::DType dtype, uint64_t index) {
  auto load = [&](auto value) {
    std::memcpy(&value, bytes + index * sizeof(value), sizeof(value));
    return value;
  };
  switch (dtype) {
  case plan::F64:
    return fmt::format("{}", load(double()));
  case plan::F32:
    return fmt::format("{}", load(float()));
  case plan::I64:
    return fmt::format("{}", load(int64_t()));
  case plan::I32:
    return fmt::format("{}", load(int32_t()));
  case plan::I16:
    return fmt::format("{}", load(int16_t()));
  case plan::I8:
    return fmt::format("{}", int(load(int8_t())));
  case plan::U64:
    return fmt::format("{}", load(uint64_t()));
  case plan::U32:
    return fmt::format("{}", load(uint32_t()));
  case plan::U16:
    return fmt::format("{}", load(uint16_t()));
  case plan::BF16:
    return fmt::format("{}", float(scoreOf(bytes, dtype, index)));
  default: // bytes and booleans; f16 is refused
    return fmt::format("{}", unsigned(load(uint8_t())));
  }
}

std::string quoted(const std::string &name) {
  if (name.find_first_of(",;\t|\"\r\n ") == name.npos)
    return name;
  std::string text = "\"";
  for (char c : name)
    text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

uint64_t widthOf(const plan::TensorType &type) {
  uint64_t width = 1;
  for (int axis = 1; axis < type.dims_size(); ++axis)
    width *= static_cast<uint64_t>(type.dims(axis));
  return width;
}

bool holdsScores(const plan::TensorType &type, const std::vector<std::string> &classes) {
  const bool floats = type.dtype() == plan::F32 || type.dtype() == plan::F64 || type.dtype() == plan::BF16;
  return floats && classes.size() > 1 && type.dims_size() == 2 && type.dims(1) == static_cast<int64_t>(classes.size());
}

/// The index of the largest of `count` scores from `first` on; the first one if several are equal.
size_t largestOf(const std::byte *bytes, plan::DType dtype, uint64_t first, uint64_t count) {
  size_t best = 0;
  for (size_t i = 1; i < count; ++i)
    if (scoreOf(bytes, dtype, first + i) > scoreOf(bytes, dtype, first + best))
      best = i;
  return best;
}

Status writeCsv(AtomicFile &file, const std::string &path, const std::vector<StreamedValue> &arrays,
                const std::vector<std::string> &classes) {
  std::vector<std::vector<std::byte>> values;
  std::string line;
  for (const StreamedValue &value : arrays) {
    std::vector<std::byte> &bytes = values.emplace_back();
    Status status = streamExactly(path, value, [&](std::span<const std::byte> piece) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
      return Status();
    });
    if (!status.ok())
      return status;
    for (uint64_t i = 0, width = widthOf(value.type); i < width; ++i)
      line += (line.empty() ? "" : ",") +
              quoted(value.type.dims_size() > 1 ? fmt::format("{}.{}", value.name, i) : value.name);
    if (holdsScores(value.type, classes))
      line += "," + quoted(value.name + ".class");
  }
  Status status = file.write(line + "\n");
  for (int64_t row = 0; status.ok() && row < arrays.front().type.dims(0); ++row) {
    line.clear();
    for (size_t k = 0; k < arrays.size(); ++k) {
      const uint64_t width = widthOf(arrays[k].type), first = static_cast<uint64_t>(row) * width;
      for (uint64_t i = 0; i < width; ++i) {
        line += line.empty() ? "" : ",";
        line += elementText(values[k].data(), arrays[k].type.dtype(), first + i);
      }
      if (holdsScores(arrays[k].type, classes))
        line += "," + quoted(classes[largestOf(values[k].data(), arrays[k].type.dtype(), first, width)]);
    }
    status = file.write(line + "\n");
  }
  return status;
}
} // namespace

Expected<ArrayFormat> tcc::runtime::arrayFormatOf(const std::string &path, std::span<const ArrayFormat> allowed) {
  std::string lower = path;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  std::vector<std::string_view> known;
  for (const auto &[suffix, format] : kSuffixes) {
    if (std::find(allowed.begin(), allowed.end(), format) == allowed.end())
      continue;
    if (lower.ends_with(suffix))
      return format;
    known.push_back(suffix);
  }
  std::error_code code;
  const auto place = std::filesystem::status(path, code);
  if (std::filesystem::exists(place) && !std::filesystem::is_regular_file(place) &&
      !std::filesystem::is_directory(place))
    return ArrayFormat::Safetensors;
  return Status(
      fmt::format("{}: its suffix names no format that is written here; known are {}", path, fmt::join(known, ", ")),
      StatusCode::Usage);
}

Status tcc::runtime::checkPlace(const std::string &path, ArrayFormat format) {
  return AtomicFile::check(path, format == ArrayFormat::Safetensors ? OwnFile::Weights : OwnFile::Arrays);
}

Status tcc::runtime::checkArrays(const std::string &path, ArrayFormat format, const std::vector<ArraySpec> &arrays) {
  if (format == ArrayFormat::Safetensors)
    return Status();
  if (format == ArrayFormat::Npy && arrays.size() != 1)
    return error("{}: an .npy file holds one array, and there are {}; write an .npz file", path, arrays.size());
  uint64_t columns = 0;
  for (const ArraySpec &array : arrays) {
    const std::string type = fmt::format("'{}' is {}", array.name, plan::typeName(array.type));
    if (format != ArrayFormat::Csv) {
      if (descriptorOf(array.type.dtype()).empty())
        return error("{}: {}, a type that NumPy lacks; write a .safetensors file", path, type);
      continue;
    }
    if (array.type.dtype() == plan::F16)
      return error("{}: {}; write an .npz or a .safetensors file", path, type);
    if (array.sampleAxis != 0 || array.type.dims_size() == 0 || array.type.dims(0) != arrays.front().type.dims(0))
      return error(
          "{}: a row of a CSV file is a sample, and {}, whose first axis is not the sample; write an .npz file", path,
          type);
    columns += widthOf(array.type);
    if (columns > kMostCsvColumns)
      return error("{}: {} gives more than {} columns; write an .npz file", path, type, kMostCsvColumns);
  }
  if (format == ArrayFormat::Csv && columns == 0)
    return error("{}: there is no value to write", path);
  return Status();
}

Status tcc::runtime::writeArrays(const std::string &path, ArrayFormat format, std::vector<StreamedValue> arrays,
                                 const std::vector<std::string> &classes) {
  if (format == ArrayFormat::Safetensors)
    return writeSafetensors(path, std::move(arrays)).status();
  auto file = AtomicFile::create(path, OwnFile::Arrays);
  if (!file)
    return file.status();
  Status status = format == ArrayFormat::Npy   ? writeNpy(*file, path, arrays.front())
                  : format == ArrayFormat::Npz ? Npz(*file, path).write(arrays)
                                               : writeCsv(*file, path, arrays, classes);
  return status.ok() ? file->commit() : status;
}

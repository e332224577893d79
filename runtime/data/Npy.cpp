//===- Npy.cpp - NumPy's .npy and .npz -----------------------------------===//
//
// An .npy file is "\x93NUMPY", two version bytes, a header length (u16, from version 2 on u32), a Python dictionary as
// text, then the elements (NEP 1). An .npz is a zip of them.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/state/Safetensors.h"

#include <archive.h>
#include <archive_entry.h>
#include <charconv>
#include <cstring>
#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr std::string_view kMagic("\x93NUMPY", 6);

plan::DType dtypeOfDescriptor(std::string_view text) {
  static constexpr std::pair<std::string_view, plan::DType> kTable[] = {
      {"f8", plan::F64}, {"f4", plan::F32}, {"f2", plan::F16}, {"i8", plan::I64}, {"i4", plan::I32}, {"i2", plan::I16},
      {"i1", plan::I8},  {"u8", plan::U64}, {"u4", plan::U32}, {"u2", plan::U16}, {"u1", plan::U8},  {"b1", plan::I1}};
  for (const auto &[name, dtype] : kTable)
    if (text == name)
      return dtype;
  return plan::DTYPE_NONE;
}

/// The text after `'key':` in the header's dictionary.
std::string_view valueOf(std::string_view header, std::string_view key) {
  size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos)
    return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
}

/// Parses one array; `where` names file and member.
plan::Expected<std::unique_ptr<Column>> parse(const std::string &where, std::string name,
                                              std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                              bool owned) {
  std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  if (text.size() < 10 || text.substr(0, 6) != kMagic)
    return plan::error("{}: not an .npy file: it does not start with NumPy's magic", where);
  size_t lengthBytes = text[6] == 1 ? 2 : 4, headerLength = 0, start = 8 + lengthBytes;
  if (text.size() < start)
    return plan::error("{}: truncated in the header", where);
  std::memcpy(&headerLength, text.data() + 8, lengthBytes);
  if (headerLength > text.size() - start)
    return plan::error("{}: truncated in the header", where);
  std::string_view header = text.substr(start, headerLength), descriptor = valueOf(header, "descr"),
                   order = valueOf(header, "fortran_order"), shape = valueOf(header, "shape");
  if (descriptor.size() < 5 || descriptor[0] != '\'' || order.empty() || shape.empty() || shape[0] != '(')
    return plan::error("{}: its header is no plain array: structured types are not supported; save the fields apart",
                       where);
  std::string_view element = descriptor.substr(1, descriptor.find('\'', 1) - 1);
  plan::TensorType type;
  type.set_dtype(dtypeOfDescriptor(element.substr(1)));
  if (element[0] == '>' || type.dtype() == plan::DTYPE_NONE)
    return plan::error("{}: element type '{}' is not supported; convert it in NumPy, e.g. with astype('<f4')", where,
                       element);
  if (order.substr(0, 4) == "True")
    return plan::error("{}: the array is in Fortran order; save numpy.ascontiguousarray(array)", where);
  for (size_t at = 1; at < shape.size() && shape[at] != ')';) {
    int64_t dim = 0;
    auto [end, code] = std::from_chars(shape.data() + at, shape.data() + shape.size(), dim);
    if (code == std::errc()) {
      type.add_dims(dim);
      at = static_cast<size_t>(end - shape.data());
    } else if (shape[at] == ',' || shape[at] == ' ') {
      ++at;
    } else {
      return plan::error("{}: its shape cannot be read: {}", where, shape.substr(0, shape.find(')') + 1));
    }
  }
  auto expected = plan::tensorBytes(type);
  std::span<const std::byte> data = bytes.subspan(start + headerLength);
  if (!expected || data.size() < *expected)
    return plan::error("{}: truncated: {} takes {} bytes, the file holds {}", where, plan::typeName(type),
                       expected.value_or(0), data.size());
  return std::unique_ptr<Column>(
      std::make_unique<MemoryColumn>(std::move(name), type, data.first(*expected), std::move(owner), false, owned));
}

std::string stem(const std::string &path) { return std::filesystem::path(path).stem().string(); }

plan::Status addFile(Dataset &dataset, const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  auto column = parse(path, stem(path), (*file)->bytes(), *file, false);
  if (!column)
    return column.status();
  dataset.columns.push_back(column.take());
  return plan::Status();
}
} // namespace

plan::Expected<Dataset> formats::openNpy(const std::string &path) {
  Dataset dataset{.path = path, .format = "npy"};
  if (plan::Status status = addFile(dataset, path); !status.ok())
    return status;
  return dataset;
}

plan::Expected<Dataset> formats::openNpyFolder(const std::string &folder, const std::vector<std::string> &files) {
  Dataset dataset{.path = folder, .format = "folder of npy"};
  for (const std::string &file : files)
    if (plan::Status status = addFile(dataset, file); !status.ok())
      return status;
  return dataset;
}

plan::Expected<Dataset> formats::openNpz(const std::string &path) {
  std::unique_ptr<archive, int (*)(archive *)> reader(archive_read_new(), archive_read_free);
  archive_read_support_format_zip(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), 1 << 16) != ARCHIVE_OK)
    return plan::error("{}: cannot read as .npz: {}", path, archive_error_string(reader.get()));
  Dataset dataset{.path = path, .format = "npz"};
  archive_entry *entry = nullptr;
  int result;
  while ((result = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    const char *raw = archive_entry_pathname(entry);
    std::string member = raw ? raw : "";
    auto content = std::make_shared<std::vector<std::byte>>();
    std::byte block[65536];
    la_ssize_t count;
    while ((count = archive_read_data(reader.get(), block, sizeof(block))) > 0)
      content->insert(content->end(), block, block + count);
    if (count < 0)
      return plan::error("{}: member {}: damaged or truncated: {}", path, member, archive_error_string(reader.get()));
    if (!member.ends_with(".npy"))
      continue;
    auto column =
        parse(fmt::format("{}: member {}", path, member), member.substr(0, member.size() - 4), *content, content, true);
    if (!column)
      return column.status();
    dataset.columns.push_back(column.take());
  }
  if (result != ARCHIVE_EOF)
    return plan::error("{}: cannot read as .npz: {}", path, archive_error_string(reader.get()));
  if (dataset.columns.empty())
    return plan::error("{}: it holds no .npy arrays; write it with numpy.savez", path);
  return dataset;
}

plan::Expected<Dataset> formats::openSafetensors(const std::string &path) {
  auto file = SafetensorsFile::open(path);
  if (!file)
    return file.status();
  Dataset dataset{.path = path, .format = "safetensors"};
  for (const Tensor &tensor : file->tensors())
    dataset.columns.push_back(std::make_unique<MemoryColumn>(tensor.name, tensor.type, tensor.bytes, file->file()));
  return dataset;
}

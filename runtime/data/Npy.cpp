//===- Npy.cpp - NumPy's .npy and .npz -----------------------------------===//
//
// An .npy file is "\x93NUMPY", two version bytes, a header length (u16, from version 2 on u32), a Python dictionary as
// text, then the elements (NEP 1). An .npz is a zip of them.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Archive.h"
#include "runtime/data/Formats.h"
#include "runtime/data/Limits.h"
#include "runtime/tensors/Safetensors.h"

#include <charconv>
#include <cstring>
#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr std::string_view kNpyMagic("\x93NUMPY", 6);

plan::DType dtypeOfDescriptor(std::string_view text) {
  static constexpr std::pair<std::string_view, plan::DType> kTable[] = {
      {"f8", plan::F64}, {"f4", plan::F32}, {"f2", plan::F16}, {"i8", plan::I64}, {"i4", plan::I32}, {"i2", plan::I16},
      {"i1", plan::I8},  {"u8", plan::U64}, {"u4", plan::U32}, {"u2", plan::U16}, {"u1", plan::U8},  {"b1", plan::I1}};
  for (const auto &[name, dtype] : kTable)
    if (text == name)
      return dtype;
  return plan::DTYPE_NONE;
}

/// Advice on converting an array of an unsupported element type.
std::string adviceOn(std::string_view element) {
  const char kind = element.size() > 1 ? element[1] : '?';
  switch (kind) {
  case 'O':
    return "it holds Python objects; save numbers: numpy.array(array.tolist(), dtype=\"float32\")";
  case 'U':
  case 'S':
    return "it holds texts; save integers in their place: numpy.unique(array, return_inverse=True)[1]";
  case 'c':
    return "it holds complex numbers; save numpy.stack([array.real, array.imag], axis=-1)";
  case 'M':
  case 'm':
    return "it holds dates or times; save array.astype(\"int64\")";
  case 'V':
    return "it holds structures or raw bytes; save each field as an array of its own";
  default:
    return element.starts_with(">")
               ? "its bytes are in big-endian order; save array.astype(array.dtype.newbyteorder(\"<\"))"
               : "save array.astype(\"float32\")";
  }
}

/// The text after `'key':` in the header's dictionary.
std::string_view valueOf(std::string_view header, std::string_view key) {
  size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos)
    return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
}

struct NpyHeader {
  plan::TensorType type;
  uint64_t bytes = 0; ///< of the elements
};

/// Offset and length of the header's text, from the first 12 bytes of the file (or fewer, if the file is shorter).
Expected<std::pair<size_t, uint64_t>> headerExtent(const std::string &where, std::string_view text) {
  if (text.size() < 10 || text.substr(0, 6) != kNpyMagic)
    return error("{}: not an .npy file: it does not start with NumPy's magic", where);
  size_t lengthBytes = text[6] == 1 ? 2 : 4, start = 8 + lengthBytes;
  uint32_t length = 0;
  if (text.size() < start)
    return error("{}: truncated in the header", where);
  std::memcpy(&length, text.data() + 8, lengthBytes);
  if (length > limits::kMostNpyHeaderBytes)
    return error("{}: damaged: its header takes {} bytes, at most {} are read", where, length,
                       limits::kMostNpyHeaderBytes);
  return std::pair(start, uint64_t(length));
}

/// Parses the dictionary before an array; `where` names file and member.
Expected<NpyHeader> parseHeader(const std::string &where, std::string_view header) {
  std::string_view descriptor = valueOf(header, "descr"), order = valueOf(header, "fortran_order"),
                   shape = valueOf(header, "shape");
  if (descriptor.size() < 5 || descriptor[0] != '\'' || order.empty() || shape.empty() || shape[0] != '(')
    return error("{}: its header is no plain array: structured types are not supported; save each field as an array of "
                 "its own, e.g. numpy.savez(FILE, **{{name: array[name] for name in array.dtype.names}})",
                 where);
  std::string_view element = descriptor.substr(1, descriptor.find('\'', 1) - 1);
  NpyHeader result;
  result.type.set_dtype(element.empty() ? plan::DTYPE_NONE : dtypeOfDescriptor(element.substr(1)));
  if (result.type.dtype() == plan::DTYPE_NONE || (element[0] == '>' && element.back() != '1'))
    return error("{}: element type '{}' is not supported: {}", where, element.substr(0, 40), adviceOn(element));
  if (order.substr(0, 4) == "True")
    return error("{}: the array is in Fortran order; save numpy.ascontiguousarray(array)", where);
  size_t close = shape.find(')');
  bool good = order.substr(0, 5) == "False" && close != std::string_view::npos;
  for (size_t at = 1; good && at < close;) {
    uint64_t dim = 0; // unsigned, so that a sign is refused
    auto [end, code] = std::from_chars(shape.data() + at, shape.data() + close, dim);
    if (code == std::errc()) {
      good = dim <= uint64_t(1) << 62 && result.type.dims_size() < static_cast<int>(limits::kMostNpyDims);
      result.type.add_dims(static_cast<int64_t>(dim));
      at = static_cast<size_t>(end - shape.data());
    } else {
      good = shape[at] == ',' || shape[at] == ' ';
      ++at;
    }
  }
  auto bytes = good ? plan::tensorBytes(result.type) : std::nullopt;
  if (!bytes)
    return error("{}: damaged: its shape cannot be read: {}", where,
                       shape.substr(0, std::min<size_t>(close, 80) + 1));
  result.bytes = *bytes;
  return result;
}

Status truncated(const std::string &where, const NpyHeader &header, uint64_t bytes) {
  return error("{}: truncated: {} takes {} bytes, the file holds {}", where, plan::typeName(header.type),
                     header.bytes, bytes);
}

std::string stem(const std::string &path) { return std::filesystem::path(path).stem().string(); }

Status addFile(Dataset &dataset, const formats::File &file) {
  const std::string &path = file->path();
  std::string_view text = file->text();
  auto extent = headerExtent(path, text);
  if (!extent)
    return extent.status();
  auto [start, length] = *extent;
  if (length > text.size() - start)
    return error("{}: truncated in the header", path);
  auto header = parseHeader(path, text.substr(start, length));
  if (!header)
    return header.status();
  std::span<const std::byte> data = file->bytes().subspan(start + length);
  if (data.size() < header->bytes)
    return truncated(path, *header, data.size());
  dataset.columns.push_back(std::make_unique<MemoryColumn>(stem(path), header->type, data.first(header->bytes), file));
  return Status();
}

/// Reads one member of an .npz. Memory is allocated only after its header has been checked.
Status addMember(Dataset &dataset, Archive &archive, uint64_t fileBytes, limits::MemoryAllowance &memory) {
  std::string where = fmt::format("{}: member {}", dataset.path, archive.member());
  std::string name = archive.member().substr(0, archive.member().size() - 4), text(12, 0);
  if (dataset.find(name))
    return error("{}: the name occurs twice", where);
  auto readText = [&](size_t begin) {
    return archive.read(reinterpret_cast<std::byte *>(text.data()) + begin, text.size() - begin);
  };
  auto count = readText(0);
  if (!count)
    return count.status();
  text.resize(*count);
  auto extent = headerExtent(where, text);
  if (!extent)
    return extent.status();
  auto [start, length] = *extent;
  // An array of one byte is longer than what was read ahead of a header of version 1.
  size_t ahead = text.size();
  text.resize(std::max<uint64_t>(start + length, ahead));
  if (count = readText(ahead); !count)
    return count.status();
  if (*count != text.size() - ahead)
    return error("{}: truncated in the header", where);
  auto header = parseHeader(where, std::string_view(text).substr(start, length));
  if (!header)
    return header.status();
  if (header->bytes > limits::mostInflatedBytes(fileBytes))
    return error("{}: its header claims {} of {} bytes; the file has {}, which inflate to {} at most", where,
                       plan::typeName(header->type), header->bytes, fileBytes, limits::mostInflatedBytes(fileBytes));
  if (Status status = memory.take(where, header->bytes); !status.ok())
    return status;
  auto content = std::make_shared<std::vector<std::byte>>(header->bytes);
  count = archive.read(content->data(), content->size());
  if (!count)
    return count.status();
  if (*count != content->size())
    return truncated(where, *header, *count);
  dataset.columns.push_back(
      std::make_unique<MemoryColumn>(std::move(name), header->type, *content, content, false, true));
  return Status();
}
} // namespace

Expected<Dataset> formats::openNpy(File file) {
  Dataset dataset{.path = file->path(), .format = "npy"};
  if (Status status = addFile(dataset, file); !status.ok())
    return status;
  return dataset;
}

Expected<Dataset> formats::openNpyFolder(const std::string &folder, const std::vector<std::string> &files) {
  Dataset dataset{.path = folder, .format = "folder of npy"};
  for (const std::string &path : files) {
    auto file = MappedFile::open(path);
    Status status = file ? addFile(dataset, *file) : file.status();
    if (!status.ok())
      return status;
  }
  return dataset;
}

Expected<Dataset> formats::openNpz(File file, const DatasetOptions &options) {
  Dataset dataset{.path = file->path(), .format = "npz"};
  auto archive = Archive::open(file, Archive::Kind::Zip);
  if (!archive)
    return archive.status();
  limits::MemoryAllowance memory(options.memoryBytes);
  for (;;) {
    auto more = archive->next();
    if (!more)
      return more.status();
    if (!*more)
      break;
    if (!archive->member().ends_with(".npy"))
      continue;
    if (Status status = addMember(dataset, *archive, file->bytes().size(), memory); !status.ok())
      return status;
  }
  if (dataset.columns.empty())
    return error("{}: it holds no .npy arrays; write it with numpy.savez", dataset.path);
  return dataset;
}

Expected<Dataset> formats::openSafetensors(File mapped) {
  auto file = SafetensorsFile::parse(std::move(mapped));
  if (!file)
    return file.status();
  Dataset dataset{.path = file->file()->path(), .format = "safetensors"};
  for (const Tensor &tensor : file->tensors())
    dataset.columns.push_back(std::make_unique<MemoryColumn>(tensor.name, tensor.type, tensor.bytes, file->file()));
  return dataset;
}

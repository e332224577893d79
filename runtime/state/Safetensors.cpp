//===- Safetensors.cpp - the tensor format of data, weights and checkpoints -===//
#include "runtime/state/Safetensors.h"
#include "runtime/state/AtomicFile.h"
#include "runtime/state/SealedJson.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

using namespace tcc;
using namespace tcc::runtime;
using nlohmann::json;

namespace {
constexpr std::array<std::pair<std::string_view, plan::DType>, 13> kNames = {{
    {"F64", plan::F64},
    {"F32", plan::F32},
    {"BF16", plan::BF16},
    {"F16", plan::F16},
    {"I64", plan::I64},
    {"I32", plan::I32},
    {"I16", plan::I16},
    {"I8", plan::I8},
    {"U64", plan::U64},
    {"U32", plan::U32},
    {"U16", plan::U16},
    {"U8", plan::U8},
    {"BOOL", plan::I1},
}};

std::optional<plan::DType> dtypeOf(std::string_view name) {
  for (const auto &[text, dtype] : kNames)
    if (text == name)
      return dtype;
  return std::nullopt;
}

std::string_view nameOf(plan::DType dtype) {
  for (const auto &[text, candidate] : kNames)
    if (candidate == dtype)
      return text;
  return "";
}

std::optional<uint64_t> asUnsigned(const json &value) {
  if (value.is_number_unsigned())
    return value.get<uint64_t>();
  return std::nullopt;
}

/// One entry of the header. `data` are the bytes after the header.
plan::Expected<Tensor> parseTensor(const std::string &path, const std::string &name, const json &entry,
                                   std::span<const std::byte> data) {
  Tensor tensor;
  tensor.name = name;
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets") ||
      !entry["dtype"].is_string() || !entry["shape"].is_array() || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2)
    return plan::error("{}: tensor '{}': its header entry lacks dtype, shape or data_offsets; write the file anew",
                       path, name);
  std::string dtypeText = entry["dtype"].get<std::string>();
  auto dtype = dtypeOf(dtypeText);
  if (!dtype)
    return plan::error("{}: tensor '{}': element type {} is not supported; convert it, e.g. to F32", path, name,
                       dtypeText);
  tensor.type.set_dtype(*dtype);
  for (const json &dim : entry["shape"]) {
    auto size = asUnsigned(dim);
    if (!size || *size > (1ull << 62))
      return plan::error("{}: tensor '{}': a dimension of its shape is no size", path, name);
    tensor.type.add_dims(static_cast<int64_t>(*size));
  }
  auto bytes = plan::tensorBytes(tensor.type);
  auto begin = asUnsigned(entry["data_offsets"][0]), end = asUnsigned(entry["data_offsets"][1]);
  if (!bytes || !begin || !end || *begin > *end || *end - *begin != *bytes)
    return plan::error("{}: tensor '{}': data_offsets do not match {}", path, name, plan::typeName(tensor.type));
  if (*end > data.size())
    return plan::error("{}: truncated: tensor '{}' ends at byte {} of the data, the file holds {}", path, name, *end,
                       data.size());
  tensor.bytes = data.subspan(*begin, *bytes);
  return tensor;
}
} // namespace

/// The format wants every byte to belong to exactly one tensor.
static plan::Status checkGaps(const std::string &path, const std::vector<Tensor> &tensors,
                              std::span<const std::byte> data) {
  std::vector<std::span<const std::byte>> parts;
  for (const Tensor &tensor : tensors)
    if (!tensor.bytes.empty())
      parts.push_back(tensor.bytes);
  std::sort(parts.begin(), parts.end(), [](auto &a, auto &b) { return a.data() < b.data(); });
  uint64_t covered = 0;
  for (std::span<const std::byte> part : parts) {
    auto begin = static_cast<uint64_t>(part.data() - data.data());
    if (begin != covered)
      return plan::error("{}: damaged: {} of its tensors' bytes, at offset {}", path,
                         begin < covered ? "two tensors share some" : "no tensor has some", std::min(begin, covered));
    covered += part.size();
  }
  if (covered != data.size())
    return plan::error("{}: damaged: the tensors take {} bytes, the file holds {}", path, covered, data.size());
  return plan::Status();
}

plan::Expected<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  auto mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.status();
  SafetensorsFile file;
  file.mapped = mapped.take();
  std::span<const std::byte> bytes = file.mapped->bytes();
  uint64_t headerBytes = 0;
  if (bytes.size() < 8)
    return plan::error("{}: not a safetensors file, or truncated: {} bytes", path, bytes.size());
  std::memcpy(&headerBytes, bytes.data(), 8);
  constexpr uint64_t kMostHeaderBytes = 100'000'000; // the format's own limit
  const char *text = reinterpret_cast<const char *>(bytes.data()) + 8;
  if (headerBytes > kMostHeaderBytes || headerBytes < 2 || (bytes.size() > 8 && text[0] != '{'))
    return plan::error("{}: not a safetensors file: it does not start with a JSON header", path);
  if (headerBytes > bytes.size() - 8)
    return plan::error("{}: truncated: the header takes {} bytes, the file holds {}", path, headerBytes,
                       bytes.size() - 8);
  auto parsed = parseObject({text, headerBytes}, path + ": header");
  if (!parsed)
    return parsed.status();
  const json &header = *parsed;
  std::span<const std::byte> data = bytes.subspan(8 + headerBytes);
  for (const auto &[name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (entry.is_object())
        for (const auto &[key, value] : entry.items())
          if (value.is_string())
            file.notes[key] = value.get<std::string>();
      continue;
    }
    auto tensor = parseTensor(path, name, entry, data);
    if (!tensor)
      return tensor.status();
    file.all.push_back(tensor.take());
  }
  if (plan::Status status = checkGaps(path, file.all, data); !status.ok())
    return status;
  std::sort(file.all.begin(), file.all.end(), [](const Tensor &a, const Tensor &b) { return a.name < b.name; });
  return file;
}

const Tensor *SafetensorsFile::find(std::string_view name) const {
  auto found = std::lower_bound(all.begin(), all.end(), name,
                                [](const Tensor &tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

plan::Expected<uint64_t> tcc::runtime::writeSafetensors(const std::string &path, std::vector<Tensor> tensors,
                                                        const std::map<std::string, std::string> &metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const Tensor &a, const Tensor &b) {
    uint64_t widthA = plan::dtypeBytes(a.type.dtype()), widthB = plan::dtypeBytes(b.type.dtype());
    return widthA != widthB ? widthA > widthB : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const Tensor &tensor : tensors) {
    auto bytes = plan::tensorBytes(tensor.type);
    if (!bytes || *bytes != tensor.bytes.size() || nameOf(tensor.type.dtype()).empty())
      return plan::error("{}: tensor '{}' of type {} has {} bytes", path, tensor.name, plan::typeName(tensor.type),
                         tensor.bytes.size());
    if (header.contains(tensor.name))
      return plan::error("{}: two tensors are called '{}'", path, tensor.name);
    std::vector<int64_t> dims(tensor.type.dims().begin(), tensor.type.dims().end());
    header[tensor.name] = {
        {"dtype", nameOf(tensor.type.dtype())}, {"shape", dims}, {"data_offsets", {offset, offset + *bytes}}};
    offset += *bytes;
  }
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  uint64_t headerBytes = text.size();
  auto file = AtomicFile::create(path);
  if (!file)
    return file.status();
  plan::Status status = file->write(&headerBytes, 8);
  if (status.ok())
    status = file->write(text);
  for (const Tensor &tensor : tensors)
    if (status.ok())
      status = file->write(tensor.bytes.data(), tensor.bytes.size());
  if (!status.ok())
    return status;
  uint64_t hash = file->hash();
  if (status = file->commit(); !status.ok())
    return status;
  return hash;
}

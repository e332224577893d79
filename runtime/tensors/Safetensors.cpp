//===- Safetensors.cpp - the tensor format of data, weights and checkpoints -===//
#include "runtime/tensors/Safetensors.h"
#include "support/AtomicFile.h"
#include "support/OwnFiles.h"

#include <algorithm>
#include <array>
#include <cstring>
#include "support/Json.h"
#include <optional>
#include <set>

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

constexpr uint64_t kMostHeaderBytes = 100'000'000; // the format's own limit
constexpr size_t kMostDims = 64;

/// Reads the header as a stream of events: no document is built, so memory is proportional to the tensors found, and a
/// header of a million brackets costs nothing. The shape is {"NAME": {"dtype": "", "shape": [], "data_offsets": [,]}},
/// and {"__metadata__": {"KEY": "TEXT"}}; unknown members of an entry are skipped.
class HeaderReader : public nlohmann::json_sax<json> {
public:
  struct Entry {
    std::string name, dtype;
    std::vector<uint64_t> dims, offsets;
    bool hasDtype = false, hasShape = false, hasOffsets = false;
  };
  std::vector<Entry> entries;
  std::map<std::string, std::string> notes;
  std::string problem; ///< empty: none

  bool start_object(size_t) override {
    if (depth == 0 || (depth == 1 && !inArray)) {
      ++depth;
      return true;
    }
    return nested();
  }
  bool end_object() override {
    if (skipped != 0)
      return leave();
    if (--depth == 1 && !inNotes)
      finishEntry();
    return problem.empty();
  }
  bool start_array(size_t) override {
    if (depth == 2 && !inNotes && !inArray && skipped == 0 && (field == "shape" || field == "data_offsets")) {
      inArray = true;
      return true;
    }
    return nested();
  }
  bool end_array() override {
    if (skipped != 0)
      return leave();
    inArray = false;
    return true;
  }
  bool key(std::string &text) override {
    if (skipped != 0)
      return true;
    if (depth == 2) {
      field = text;
      return inNotes ? unique(notes.emplace(text, "").second, "the note", text) : markField();
    }
    inNotes = text == "__metadata__";
    if (!unique(names.insert(text).second, inNotes ? "the entry" : "tensor", text))
      return false;
    if (!inNotes)
      entries.push_back({text, "", {}, {}});
    return true;
  }
  bool string(std::string &text) override {
    if (skipped != 0)
      return true;
    if (depth == 2 && inNotes)
      notes[field] = text;
    else if (depth == 2 && !inArray && field == "dtype")
      entries.back().dtype = text;
    else
      return noSize();
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (skipped != 0 || !inArray)
      return skipped != 0 || noSize();
    std::vector<uint64_t> &list = field == "shape" ? entries.back().dims : entries.back().offsets;
    if (list.size() == kMostDims)
      return fail(fmt::format("tensor '{}': more than {} numbers in '{}'", entries.back().name, kMostDims, field));
    list.push_back(value);
    return true;
  }
  bool number_integer(int64_t) override { return skipped != 0 || noSize(); }
  bool number_float(double, const std::string &) override { return skipped != 0 || noSize(); }
  bool boolean(bool) override { return skipped != 0 || noSize(); }
  bool null() override { return skipped != 0 || noSize(); }
  bool binary(json::binary_t &) override { return false; }
  bool parse_error(size_t position, const std::string &, const json::exception &) override {
    return fail(fmt::format("not a safetensors file: its header is no JSON object (byte {} of it)", position));
  }

private:
  bool fail(std::string text) {
    if (problem.empty())
      problem = std::move(text);
    return false;
  }
  bool unique(bool first, const char *what, const std::string &name) {
    return first || fail(fmt::format("{} '{}' occurs twice", what, name));
  }
  /// Handles a value of a wrong type: an error, except inside members of an entry that the format does not know.
  bool noSize() {
    if (depth == 2 && inNotes)
      return fail(fmt::format("__metadata__ '{}' is no text", field));
    if (depth == 2 && inArray && field == "shape")
      return fail(fmt::format("tensor '{}': a dimension of its shape is no size", entries.back().name));
    if (depth == 2 && field != "shape" && field != "data_offsets" && field != "dtype")
      return true;
    if (depth == 1 && inNotes)
      return fail("__metadata__ is no object of texts");
    if (depth == 0)
      return fail("not a safetensors file: its header is no JSON object");
    return fail(fmt::format("tensor '{}': its header entry lacks dtype, shape or data_offsets; write the file anew",
                            entries.empty() ? "" : entries.back().name));
  }
  /// Handles a nested object or array, which is allowed only inside a skipped member.
  bool nested() {
    if (skipped == 0 && !noSize())
      return false;
    ++skipped;
    return true;
  }
  bool leave() {
    --skipped;
    return true;
  }
  bool markField() {
    Entry &entry = entries.back();
    bool *seen = field == "dtype"          ? &entry.hasDtype
                 : field == "shape"        ? &entry.hasShape
                 : field == "data_offsets" ? &entry.hasOffsets
                                           : nullptr;
    bool first = !seen || !*seen;
    if (seen)
      *seen = true;
    return unique(first, ("tensor '" + entry.name + "':").c_str(), field);
  }
  void finishEntry() {
    const Entry &entry = entries.back();
    if (!entry.hasDtype || !entry.hasShape || !entry.hasOffsets || entry.offsets.size() != 2)
      fail(fmt::format("tensor '{}': its header entry lacks dtype, shape or data_offsets; write the file anew",
                       entry.name));
  }

  std::set<std::string> names;
  std::string field;
  int depth = 0;        ///< number of open objects: the header, an entry
  uint64_t skipped = 0; ///< number of open objects and arrays inside a skipped member
  bool inNotes = false, inArray = false;
};

/// One entry of the header. `data` are the bytes after the header.
Expected<Tensor> makeTensor(const std::string &path, const HeaderReader::Entry &entry,
                            std::span<const std::byte> data) {
  Tensor tensor;
  tensor.name = entry.name;
  auto dtype = dtypeOf(entry.dtype);
  if (!dtype)
    return error("{}: tensor '{}': element type {} is not supported; convert it, e.g. to F32", path, entry.name,
                 entry.dtype);
  tensor.type.set_dtype(*dtype);
  for (uint64_t size : entry.dims) {
    if (size > (1ull << 62))
      return error("{}: tensor '{}': a dimension of its shape is no size", path, entry.name);
    tensor.type.add_dims(static_cast<int64_t>(size));
  }
  auto bytes = plan::tensorBytes(tensor.type);
  uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (!bytes || begin > end || end - begin != *bytes)
    return error("{}: tensor '{}': data_offsets do not match {}", path, entry.name, plan::typeName(tensor.type));
  if (end > data.size())
    return error("{}: truncated: tensor '{}' ends at byte {} of the data, the file holds {}", path, entry.name, end,
                 data.size());
  tensor.bytes = data.subspan(begin, *bytes);
  return tensor;
}

/// Tensors must be contiguous without gaps: otherwise two could share bytes, or bytes could be hidden.
Status checkCover(const std::string &path, const std::vector<Tensor> &tensors, std::span<const std::byte> data) {
  std::vector<const Tensor *> order;
  for (const Tensor &tensor : tensors)
    order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const Tensor *a, const Tensor *b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  const std::byte *at = data.data();
  for (size_t i = 0; i < order.size(); ++i) {
    const Tensor &tensor = *order[i];
    if (tensor.bytes.data() < at)
      return error("{}: damaged: tensors '{}' and '{}' share bytes, at offset {} of the data", path, order[i - 1]->name,
                   tensor.name, tensor.bytes.data() - data.data());
    if (tensor.bytes.data() > at)
      return error("{}: damaged: no tensor has the {} bytes at offset {} of the data", path, tensor.bytes.data() - at,
                   at - data.data());
    at += tensor.bytes.size();
  }
  uint64_t covered = static_cast<uint64_t>(at - data.data());
  if (covered != data.size())
    return error("{}: damaged: the tensors take {} bytes, the file holds {}", path, covered, data.size());
  return Status();
}
} // namespace

Expected<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  auto mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.status();
  return parse(mapped.take());
}

Expected<SafetensorsFile> SafetensorsFile::parse(std::shared_ptr<const MappedFile> mapped) {
  SafetensorsFile file;
  file.mapped = std::move(mapped);
  const std::string &path = file.mapped->path();
  std::span<const std::byte> bytes = file.mapped->bytes();
  uint64_t headerBytes = 0;
  if (bytes.size() < 8)
    return error("{}: not a safetensors file, or truncated: {} bytes", path, bytes.size());
  std::memcpy(&headerBytes, bytes.data(), 8);
  const char *text = reinterpret_cast<const char *>(bytes.data()) + 8;
  if (headerBytes > kMostHeaderBytes || headerBytes < 2 || (bytes.size() > 8 && text[0] != '{'))
    return error("{}: not a safetensors file: it does not start with a JSON header of at most {} bytes", path,
                 kMostHeaderBytes);
  if (headerBytes > bytes.size() - 8)
    return error("{}: truncated: the header takes {} bytes, the file holds {}", path, headerBytes, bytes.size() - 8);
  HeaderReader header;
  if (!json::sax_parse(text, text + headerBytes, &header) || !header.problem.empty())
    return error("{}: {}", path,
                 header.problem.empty() ? "not a safetensors file: its header is no JSON object" : header.problem);
  file.notes = std::move(header.notes);
  std::span<const std::byte> data = bytes.subspan(8 + headerBytes);
  file.all.reserve(header.entries.size());
  for (const HeaderReader::Entry &entry : header.entries) {
    auto tensor = makeTensor(path, entry, data);
    if (!tensor)
      return tensor.status();
    file.all.push_back(tensor.take());
  }
  if (Status status = checkCover(path, file.all, data); !status.ok())
    return status;
  std::sort(file.all.begin(), file.all.end(), [](const Tensor &a, const Tensor &b) { return a.name < b.name; });
  return file;
}

const Tensor *SafetensorsFile::find(std::string_view name) const {
  auto found = std::lower_bound(all.begin(), all.end(), name,
                                [](const Tensor &tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

bool tcc::runtime::comesBefore(const StreamedValue &a, const StreamedValue &b) {
  uint64_t widthA = plan::dtypeBytes(a.type.dtype()), widthB = plan::dtypeBytes(b.type.dtype());
  return widthA != widthB ? widthA > widthB : a.name < b.name;
}

const std::map<std::string, std::string> tcc::runtime::kShardMetadata = {
    {"producer", std::string(kCheckpointProducer)}};

/// The header's text, of tensors in the order of the file; adds up their bytes.
static Expected<std::string> headerOf(const std::string &path, const std::vector<StreamedValue> &tensors,
                                      std::map<std::string, std::string> metadata, uint64_t &total) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  metadata.try_emplace("producer", kWeightsProducer);
  header["__metadata__"] = metadata;
  total = 0;
  for (const StreamedValue &tensor : tensors) {
    auto bytes = plan::tensorBytes(tensor.type);
    if (!bytes || nameOf(tensor.type.dtype()).empty())
      return error("{}: tensor '{}': {} has no name in this format", path, tensor.name, plan::typeName(tensor.type));
    if (header.contains(tensor.name))
      return error("{}: two tensors are called '{}'", path, tensor.name);
    std::vector<int64_t> dims(tensor.type.dims().begin(), tensor.type.dims().end());
    header[tensor.name] = {
        {"dtype", nameOf(tensor.type.dtype())}, {"shape", dims}, {"data_offsets", {total, total + *bytes}}};
    total += *bytes;
  }
  std::string text = jsonText(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

uint64_t tcc::runtime::safetensorsDataOffset(std::vector<StreamedValue> tensors) {
  std::sort(tensors.begin(), tensors.end(), comesBefore);
  uint64_t total = 0;
  auto text = headerOf("", tensors, kShardMetadata, total);
  return text ? 8 + text->size() : 8;
}

Expected<uint64_t> tcc::runtime::writeSafetensors(const std::string &path, std::vector<StreamedValue> tensors,
                                                  const std::map<std::string, std::string> &metadata) {
  std::sort(tensors.begin(), tensors.end(), comesBefore);
  uint64_t total = 0;
  auto made = headerOf(path, tensors, metadata, total);
  if (!made)
    return made.status();
  const std::string text = made.take();
  uint64_t headerBytes = text.size();
  // Copying gigabytes into the page cache takes processor time, and memory that other processes use.
  constexpr uint64_t kLargeBytes = uint64_t(1) << 20;
  const OwnFile kind = metadata == kShardMetadata ? OwnFile::Checkpoint : OwnFile::Weights;
  auto file =
      AtomicFile::create(path, kind, total < kLargeBytes ? AtomicFile::Through::Cache : AtomicFile::Through::Disk);
  if (!file)
    return file.status();
  Status status = file->write(&headerBytes, 8);
  if (status.ok())
    status = file->write(text);
  for (const StreamedValue &tensor : tensors) {
    uint64_t bytes = 0;
    if (status.ok())
      status = tensor.stream([&](std::span<const std::byte> piece) {
        bytes += piece.size();
        return file->write(piece.data(), piece.size());
      });
    if (status.ok() && bytes != plan::tensorBytes(tensor.type))
      status = error("{}: tensor '{}' of type {} has {} bytes", path, tensor.name, plan::typeName(tensor.type), bytes);
  }
  if (!status.ok())
    return status;
  uint64_t hash = file->hash();
  if (status = file->commit(); !status.ok())
    return status;
  return hash;
}

Expected<uint64_t> tcc::runtime::writeSafetensors(const std::string &path, const std::vector<Tensor> &tensors,
                                                  const std::map<std::string, std::string> &metadata) {
  std::vector<StreamedValue> values;
  for (const Tensor &tensor : tensors)
    values.push_back({tensor.name, tensor.type, [&tensor](const ByteSink &sink) { return sink(tensor.bytes); }});
  return writeSafetensors(path, std::move(values), metadata);
}

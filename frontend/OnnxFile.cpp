//===- OnnxFile.cpp - read an ONNX file, and locate its weights -----------===//
#include "frontend/OnnxFile.h"

#include "frontend/InnerWeights.h"

#include "frontend/Limits.h"
#include "frontend/Quantization.h"
#include "support/RegularFile.h"
#include "support/TerminalText.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <limits>
#include <optional>
#include <sys/mman.h>
#include <unistd.h>

namespace tcc::frontend {
namespace {

using onnx::TensorProto;
namespace fs = std::filesystem;

/// Initializers up to this size stay inside a stripped model.
constexpr uint64_t kSmallBytes = 1024;

/// A file mapped for reading.
class Mapping {
public:
  ~Mapping() {
    if (address != MAP_FAILED && size)
      munmap(address, size);
  }
  Status open(const std::string &path) {
    std::error_code code;
    if (fs::is_directory(path, code))
      return error("{}: is a folder; give the .onnx file in it", path);
    Expected<RegularFile> file = RegularFile::open(path, RegularFile::Accept::RegularFiles, "the model");
    if (!file)
      return file.status();
    size = size_t(file->bytes());
    if (size == 0)
      return error("{}: the file is empty; export the model again", path);
    address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file->descriptor(), 0);
    if (address == MAP_FAILED)
      return error("{}: cannot map the model: {}", path, std::strerror(errno));
    return Status::success();
  }
  const char *data() const { return static_cast<const char *>(address); }
  size_t size = 0;

private:
  void *address = MAP_FAILED;
};

template <typename Stored, typename Field> std::string packed(const Field &field) {
  std::string bytes(size_t(field.size()) * sizeof(Stored), '\0');
  char *out = bytes.data();
  for (auto value : field) {
    Stored stored = static_cast<Stored>(value);
    std::memcpy(out, &stored, sizeof stored);
    out += sizeof stored;
  }
  return bytes;
}

/// The typed fields of a tensor as raw bytes.
std::string packTyped(const TensorProto &tensor) {
  switch (tensor.data_type()) {
  case TensorProto::FLOAT: return packed<float>(tensor.float_data());
  case TensorProto::DOUBLE: return packed<double>(tensor.double_data());
  case TensorProto::INT64: return packed<int64_t>(tensor.int64_data());
  case TensorProto::INT32: return packed<int32_t>(tensor.int32_data());
  case TensorProto::UINT64: return packed<uint64_t>(tensor.uint64_data());
  case TensorProto::UINT32: return packed<uint32_t>(tensor.uint64_data());
  case TensorProto::INT16: case TensorProto::UINT16: case TensorProto::FLOAT16: case TensorProto::BFLOAT16:
    return packed<uint16_t>(tensor.int32_data());
  default: return packed<uint8_t>(tensor.int32_data());
  }
}

/// The extents for a message; of a long list only the first ones.
std::string shortShape(const std::vector<int64_t> &dims) {
  const size_t shown = std::min<size_t>(dims.size(), 8);
  return fmt::format("{}{}", fmt::join(dims.begin(), dims.begin() + ptrdiff_t(shown), ", "),
                     shown < dims.size() ? ", …" : "");
}

/// The checked type and size of a tensor; `packs`: of 4-bit integers, too.
Expected<OnnxInitializer> describe(const TensorProto &tensor, bool packs = false) {
  OnnxInitializer result;
  result.type = tensor.data_type();
  result.dims.assign(tensor.dims().begin(), tensor.dims().end());
  if (packs && (result.type == TensorProto::INT4 || result.type == TensorProto::UINT4)) {
    if (std::string problem = tensorProblem(result.dims, 1); !problem.empty())
      return error("its shape [{}] is not valid: {}", shortShape(result.dims), problem);
    result.packedType = std::exchange(result.type, TensorProto::UINT8);
    result.bytes = (saturatingProduct(result.dims) + 1) / 2;
    result.elements = std::exchange(result.dims, {int64_t(result.bytes)});
    return result;
  }
  uint64_t element = onnxElementBytes(result.type);
  if (std::string unread = unreadQuantizedType(result.type); !element && !unread.empty())
    return error("{}", unread);
  if (!element)
    return error("its element type {} is not supported; convert it to float, or another numeric type",
                       onnxTypeName(result.type));
  if (std::string problem = tensorProblem(result.dims, element); !problem.empty())
    return error("its shape [{}] is not valid: {}", shortShape(result.dims), problem);
  result.bytes = saturatingProduct(result.dims) * element;
  return result;
}

/// Finds the file of an external tensor, which must be inside the model's folder and long enough.
Status resolveExternal(const TensorProto &tensor, const std::string &folder, bool absent, OnnxInitializer &result) {
  std::string location;
  std::optional<uint64_t> length;
  for (const onnx::StringStringEntryProto &entry : tensor.external_data()) {
    auto number = [&](uint64_t &out) {
      char *end = nullptr;
      errno = 0;
      out = std::strtoull(entry.value().c_str(), &end, 10);
      return !entry.value().empty() && entry.value()[0] != '-' && !*end && !errno;
    };
    uint64_t value = 0;
    if (entry.key() == "location") {
      location = entry.value();
    } else if (entry.key() == "offset") {
      if (!number(result.offset))
        return error("external data: offset \"{}\" is not a number of bytes", entry.value());
    } else if (entry.key() == "length") {
      if (!number(value))
        return error("external data: length \"{}\" is not a number of bytes", entry.value());
      length = value;
    }
  }
  if (location.empty())
    return error("its external data has no location");
  fs::path relative(location);
  if (relative.is_absolute())
    return error("external data at the absolute path {}; only files in the model's folder are read: move it there and "
                 "save the model with the path relative to it",
                 location);
  for (const fs::path &part : relative)
    if (part == "..")
      return error(
          "external data at {}, which leads out of the model's folder; only files in that folder are read: move "
          "it there and save the model with the new path",
          location);
  fs::path file = fs::path(folder.empty() ? "." : folder) / relative;
  std::error_code problem;
  const bool exists = fs::exists(file, problem);
  if (!exists && absent) {
    result.file = file.string();
    result.absent = true;
    return Status::success();
  }
  if (!exists)
    return error("external data {} is missing; put it beside the model", file.string());
  fs::path realFile = fs::canonical(file, problem);
  fs::path realFolder = problem ? fs::path() : fs::canonical(folder.empty() ? "." : folder, problem);
  if (problem)
    return error("external data {}: {}", file.string(), problem.message());
  auto [folderEnd, rest] = std::mismatch(realFolder.begin(), realFolder.end(), realFile.begin(), realFile.end());
  if (folderEnd != realFolder.end())
    return error("external data {} is a link that leads out of the model's folder; put the file itself there",
                 file.string());
  if (!fs::is_regular_file(realFile, problem))
    return error("external data {} is not a regular file", file.string());
  uint64_t fileBytes = fs::file_size(realFile, problem);
  if (problem)
    return error("external data {}: {}", file.string(), problem.message());
  if (length && *length != result.bytes)
    return error("external data {}: its length is {} bytes, its shape needs {}", file.string(), *length,
                       result.bytes);
  if (result.offset > fileBytes || result.bytes > fileBytes - result.offset)
    return error("external data {}: it ends at byte {}, the file at {}; copy the file again", file.string(),
                       result.offset + result.bytes, fileBytes);
  result.file = file.string();
  return Status::success();
}

Status wrongSize(uint64_t found, uint64_t needed) {
  return error("it holds {} bytes, its shape needs {}; the file may be truncated", found, needed);
}

/// Moves the bytes of one initializer into the side table.
Status takeInitializer(TensorProto &tensor, OnnxFile &file, bool absent) {
  Expected<OnnxInitializer> taken = takeTensor(tensor, file.folder, absent);
  if (!taken)
    return taken.status();
  if (!file.initializers.emplace(tensor.name(), taken.take()).second)
    return error("the name occurs twice");
  return Status::success();
}

constexpr const char *kKindNote = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr const char *kValueNote = "pkg.torch.onnx.original_node_name";
constexpr const char *kSignatureNote = "pkg.torch.export.ExportedProgram.graph_signature";

template <typename Container> const std::string *noteOf(const Container &properties, const char *key) {
  for (const onnx::StringStringEntryProto &property : properties)
    if (property.key() == key)
      return &property.value();
  return nullptr;
}

/// Reads the module's state from "p_fc_weight: PARAMETER target='fc.weight'", a line for each input of torch.export's
/// graph up to "# outputs". If that list is missing, from the notes at initializers.
void readState(OnnxFile &file) {
  const onnx::GraphProto &graph = file.model.graph();
  const std::string *signature = noteOf(graph.metadata_props(), kSignatureNote);
  file.stateIsWhole = signature != nullptr;
  std::istringstream lines(signature ? *signature : std::string());
  for (std::string line; std::getline(lines, line) && line != "# outputs";) {
    const size_t colon = line.find(": ");
    const std::vector<std::string> target = quotedNames(line);
    if (colon == line.npos || target.empty())
      continue;
    const std::string rest = line.substr(colon + 2);
    file.state[line.substr(0, colon)] = {target.front(), rest.substr(0, rest.find(' '))};
  }
  if (!signature)
    for (const onnx::ValueInfoProto &value : graph.value_info()) {
      const std::string *kind = noteOf(value.metadata_props(), kKindNote);
      const std::string *name = noteOf(value.metadata_props(), kValueNote);
      if (kind && name && file.initializers.count(value.name()))
        file.state[*name] = {value.name(), *kind};
    }
  for (const auto &[value, state] : file.state)
    file.stateKinds[state.name] = state.kind;
}

template <typename Container> void readNotes(const Container &properties, OnnxInitializer &initializer) {
  for (const onnx::StringStringEntryProto &property : properties) {
    if (property.key() == kKindNote)
      initializer.kind = property.value();
    else if (property.key() == "pkg.torch.export.graph_signature.InputSpec.persistent")
      initializer.persistent = property.value();
    else if (property.key() == kFoldedFromNote)
      initializer.foldedFrom = quotedNames(property.value());
  }
}

} // namespace

Expected<OnnxInitializer> takeTensor(TensorProto &tensor, const std::string &folder, bool absent) {
  Expected<OnnxInitializer> described = describe(tensor, /*packs=*/true);
  if (!described)
    return described.status();
  if (tensor.data_location() == TensorProto::EXTERNAL) {
    if (Status status = resolveExternal(tensor, folder, absent, *described); !status.ok())
      return status;
  } else {
    if (tensor.has_raw_data())
      described->data.swap(*tensor.mutable_raw_data());
    else
      described->data = packTyped(tensor);
    if (described->data.size() != described->bytes)
      return wrongSize(described->data.size(), described->bytes);
  }
  TensorProto bare;
  bare.set_name(tensor.name());
  bare.set_data_type(tensor.data_type());
  *bare.mutable_dims() = tensor.dims();
  bare.set_doc_string(tensor.doc_string());
  *bare.mutable_metadata_props() = tensor.metadata_props();
  tensor.Swap(&bare);
  return described;
}

std::vector<std::string> quotedNames(const std::string &text) {
  std::vector<std::string> names;
  for (size_t begin = text.find('\''); begin != text.npos; begin = text.find('\'', begin)) {
    size_t end = text.find('\'', begin + 1);
    if (end == text.npos)
      break;
    names.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return names;
}

uint64_t onnxElementBytes(int32_t type) {
  switch (type) {
  case TensorProto::DOUBLE: case TensorProto::INT64: case TensorProto::UINT64: return 8;
  case TensorProto::FLOAT: case TensorProto::INT32: case TensorProto::UINT32: return 4;
  case TensorProto::FLOAT16: case TensorProto::BFLOAT16: case TensorProto::INT16: case TensorProto::UINT16: return 2;
  case TensorProto::INT8: case TensorProto::UINT8: case TensorProto::BOOL: return 1;
  default: return 0;
  }
}

plan::DType storedType(int32_t onnxType) {
  switch (onnxType) {
  case TensorProto::DOUBLE: return plan::F64;
  case TensorProto::FLOAT: return plan::F32;
  case TensorProto::BFLOAT16: return plan::BF16;
  case TensorProto::FLOAT16: return plan::F16;
  case TensorProto::INT64: return plan::I64;
  case TensorProto::INT32: return plan::I32;
  case TensorProto::INT16: return plan::I16;
  case TensorProto::INT8: return plan::I8;
  case TensorProto::UINT64: return plan::U64;
  case TensorProto::UINT32: return plan::U32;
  case TensorProto::UINT16: return plan::U16;
  case TensorProto::UINT8: return plan::U8;
  case TensorProto::BOOL: return plan::I1;
  default: return plan::DTYPE_NONE;
  }
}

std::string onnxTypeName(int32_t type) {
  if (!onnx::TensorProto_DataType_IsValid(type))
    return fmt::format("type {}", type);
  return onnx::TensorProto_DataType_Name(onnx::TensorProto_DataType(type));
}

Expected<std::string> tensorBytes(const TensorProto &tensor) {
  Expected<OnnxInitializer> described = describe(tensor);
  if (!described)
    return described.status();
  if (tensor.data_location() == TensorProto::EXTERNAL)
    return error("a constant inside a node with external data is not supported; make it an initializer");
  std::string bytes = tensor.has_raw_data() ? tensor.raw_data() : packTyped(tensor);
  if (bytes.size() != described->bytes)
    return wrongSize(bytes.size(), described->bytes);
  return bytes;
}

Expected<TensorProto> denseTensor(const onnx::SparseTensorProto &sparse, uint64_t mostBytes) {
  TensorProto dense;
  dense.set_name(sparse.values().name());
  dense.set_data_type(sparse.values().data_type());
  *dense.mutable_dims() = sparse.dims();
  Expected<OnnxInitializer> described = describe(dense);
  if (!described)
    return described.status();
  if (described->bytes > mostBytes)
    return error("its shape [{}] takes {} bytes with its zeros; sparse tensors may take {} MiB together: store it as "
                       "a dense initializer",
                       shortShape(described->dims), described->bytes, kMostDenseBytes >> 20);
  Expected<std::string> values = tensorBytes(sparse.values());
  if (!values)
    return values.status();
  Expected<std::string> indexBytes = tensorBytes(sparse.indices());
  if (!indexBytes)
    return indexBytes.status();
  const size_t element = size_t(onnxElementBytes(dense.data_type())), rank = described->dims.size();
  const size_t count = values->size() / element;
  const auto &indexShape = sparse.indices().dims();
  const bool linear = indexShape.size() == 1;
  if (sparse.indices().data_type() != TensorProto::INT64 ||
      indexBytes->size() != count * (linear ? 1 : rank) * sizeof(int64_t) ||
      !(linear || (indexShape.size() == 2 && size_t(indexShape.Get(1)) == rank)))
    return error("its indices must be INT64, one position for each of its {} values", count);
  std::string bytes(size_t(described->bytes), '\0');
  for (size_t i = 0; i < count; ++i) {
    uint64_t position = 0;
    for (size_t k = 0; k < (linear ? 1 : rank); ++k) {
      int64_t index = 0;
      std::memcpy(&index, indexBytes->data() + (linear ? i : i * rank + k) * sizeof index, sizeof index);
      const uint64_t extent = linear ? described->bytes / element : uint64_t(described->dims[k]);
      if (index < 0 || uint64_t(index) >= extent)
        return error("its index {} is outside of its shape [{}]", index, fmt::join(described->dims, ", "));
      position = linear ? uint64_t(index) : position * extent + uint64_t(index);
    }
    std::memcpy(&bytes[size_t(position) * element], values->data() + i * element, element);
  }
  dense.set_raw_data(std::move(bytes));
  return dense;
}

/// Checks that names of inputs, outputs and initializers are UTF-8, since a plan stores them.
static Status checkNames(const std::string &path, const onnx::GraphProto &graph) {
  auto check = [&](const char *kind, const auto &items) -> Status {
    for (const auto &item : items)
      if (!isUtf8(item.name()))
        return error("{}: {} \"{}\": its name is not UTF-8; rename it", path, kind, oneLine(item.name()));
    return Status::success();
  };
  for (Status status : {check("graph input", graph.input()), check("graph output", graph.output()),
                        check("initializer", graph.initializer())})
    if (!status.ok())
      return status;
  return Status::success();
}

Expected<OnnxFile> readOnnxFile(const std::string &path, bool absent) {
  OnnxFile file;
  file.path = path;
  file.folder = fs::path(path).parent_path().string();
  file.name = fs::path(path).filename().string();
  {
    Mapping mapping;
    if (Status status = mapping.open(path); !status.ok())
      return status;
    if (mapping.size > size_t(std::numeric_limits<int>::max()))
      return error("{}: larger than 2 GiB, protobuf's limit; export the weights as external data", path);
    google::protobuf::io::ArrayInputStream array(mapping.data(), int(mapping.size));
    google::protobuf::io::CodedInputStream stream(&array);
    stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
    if (!file.model.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
      return error("{}: not an ONNX model, or truncated: its protobuf does not parse", path);
  }
  if (!file.model.has_graph())
    return error("{}: not an ONNX model, or truncated: it has no graph", path);
  if (file.model.opset_import_size() == 0)
    return error("{}: it imports no operator set; the file may be truncated", path);
  onnx::GraphProto &graph = *file.model.mutable_graph();
  uint64_t room = kMostDenseBytes;
  for (const onnx::SparseTensorProto &sparse : graph.sparse_initializer()) {
    Expected<TensorProto> dense = denseTensor(sparse, room);
    if (!dense)
      return error("{}: sparse initializer \"{}\": {}", path, sparse.values().name(), dense.message());
    room -= dense->raw_data().size();
    *graph.add_initializer() = dense.take();
  }
  graph.clear_sparse_initializer();
  if (Status status = checkNames(path, graph); !status.ok())
    return status;
  for (TensorProto &tensor : *graph.mutable_initializer())
    if (Status status = takeInitializer(tensor, file, absent); !status.ok())
      return error("{}: initializer \"{}\": {}", path, tensor.name(), status.message());
  auto notes = [&](const auto &values) {
    for (const onnx::ValueInfoProto &value : values)
      if (auto found = file.initializers.find(value.name()); found != file.initializers.end())
        readNotes(value.metadata_props(), found->second);
  };
  notes(graph.value_info());
  notes(graph.input());
  readState(file);
  return file;
}

Expected<std::string> initializerBytes(const OnnxInitializer &initializer) {
  if (!initializer.external())
    return initializer.data;
  if (initializer.absent)
    return error(
        "external data {} is missing, and a constant in it is needed; store constants inside the model, or put "
        "the file beside it",
        initializer.file);
  std::string bytes(initializer.bytes, '\0');
  Expected<RegularFile> file = RegularFile::open(initializer.file, RegularFile::Accept::RegularFiles, "external data");
  if (!file)
    return file.status();
  if (Status status = file->readAt(initializer.offset, bytes.data(), bytes.size()); !status.ok())
    return error("{}: cannot read external data: {}", initializer.file, status.message());
  return bytes;
}

Expected<std::string> strippedModel(const OnnxFile &file, const std::set<std::string> &variables) {
  onnx::ModelProto model = file.model;
  for (TensorProto &tensor : *model.mutable_graph()->mutable_initializer()) {
    if (file.ties.count(tensor.name()))
      continue;
    auto quantized = file.quantized.find(tensor.name());
    const OnnxInitializer &initializer =
        quantized == file.quantized.end() ? file.initializers.at(tensor.name()) : quantized->second.stored;
    if (initializer.absent || (variables.count(tensor.name()) && initializer.bytes > kSmallBytes))
      continue;
    Expected<std::string> bytes = initializerBytes(initializer);
    if (!bytes)
      return bytes.status();
    tensor.set_raw_data(bytes.take());
  }
  if (Status status = restoreInnerWeights(file, variables, kSmallBytes, model); !status.ok())
    return status;
  std::string out;
  if (!model.SerializeToString(&out))
    return error("{}: cannot write the model without its weights", file.path);
  return out;
}

} // namespace tcc::frontend

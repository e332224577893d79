//===- Export.cpp - trained weights as ONNX and safetensors --------------===//
//
// The plan keeps the model as it was imported, without the bytes of large initializers. Every initializer that is a
// variable gets its value back, trained or initial; the rest of the model is unchanged. Quantised weights are rounded
// to integers again.
//
//===----------------------------------------------------------------------===//
#include "runtime/state/Export.h"
#include "runtime/plan/FourBits.h"
#include "runtime/plan/ModelNotes.h"
#include "runtime/state/ModelValues.h"
#include "runtime/state/Quantization.h"
#include "runtime/state/Weights.h"
#include "support/Advice.h"
#include "support/AtomicFile.h"
#include "support/Json.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <limits>
#include <map>
#include <onnx/onnx-ml.pb.h>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

namespace {
// Serialising a whole model would hold its bytes in memory twice. Here large initializers stay empty until they are
// written: their sizes are known, and protobuf's length prefixes follow from sizes
// (https://protobuf.dev/programming-guides/encoding, "Length-Delimited Records"; fields may come in any order).

/// The raw bytes of one initializer, streamed piece by piece when they are written.
struct StreamedTensor {
  uint64_t bytes = 0;
  /// Calls its argument with one piece after the other, `bytes` in total; a piece must be valid only during that call.
  std::function<Status(const ByteSink &)> make;
};

/// The tag and length that precede a field of `bytes` bytes.
std::string head(int field, uint64_t bytes) {
  uint8_t text[2 * 10];
  uint8_t *end = CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), text);
  end = CodedOutputStream::WriteVarint64ToArray(bytes, end);
  return {reinterpret_cast<char *>(text), reinterpret_cast<char *>(end)};
}

Status writeMessage(const google::protobuf::MessageLite &message, AtomicFile &file) {
  std::string bytes;
  if (!message.SerializePartialToString(&bytes))
    return error("the model is too large for one file");
  return file.write(bytes);
}

/// Writes `model` to `file` (not committed yet); initializer number i of its graph gets the bytes of `tensors[i]`.
/// Needs memory only for the model without these. Empties `model`. Error: a stream's, a full disk, 2 GiB or more
/// (protobuf's limit).
Status writeOnnx(onnx::ModelProto &model, const std::map<int, StreamedTensor> &tensors,
                 AtomicFile &file) {
  onnx::GraphProto graph;
  graph.Swap(model.mutable_graph());
  model.clear_graph();
  google::protobuf::RepeatedPtrField<onnx::TensorProto> initializers;
  initializers.Swap(graph.mutable_initializer());

  auto streamed = [&](int i) {
    auto found = tensors.find(i);
    return found == tensors.end() ? nullptr : &found->second;
  };
  auto tensorBytes = [&](int i) {
    uint64_t bytes = initializers.Get(i).ByteSizeLong();
    if (const StreamedTensor *source = streamed(i))
      bytes += head(onnx::TensorProto::kRawDataFieldNumber, source->bytes).size() + source->bytes;
    return bytes;
  };
  uint64_t graphBytes = graph.ByteSizeLong();
  for (int i = 0; i < initializers.size(); ++i) {
    uint64_t bytes = tensorBytes(i);
    graphBytes += head(onnx::GraphProto::kInitializerFieldNumber, bytes).size() + bytes;
  }
  if (model.ByteSizeLong() + graphBytes + 16 > uint64_t(std::numeric_limits<int32_t>::max()))
    return error("the model is too large for one file of 2 GiB, protobuf's limit");

  Status status = writeMessage(model, file);
  if (status.ok())
    status = file.write(head(onnx::ModelProto::kGraphFieldNumber, graphBytes));
  if (status.ok())
    status = writeMessage(graph, file);
  for (int i = 0; status.ok() && i < initializers.size(); ++i) {
    status = file.write(head(onnx::GraphProto::kInitializerFieldNumber, tensorBytes(i)));
    if (status.ok())
      status = writeMessage(initializers.Get(i), file);
    const StreamedTensor *source = streamed(i);
    if (!status.ok() || !source)
      continue;
    status = file.write(head(onnx::TensorProto::kRawDataFieldNumber, source->bytes));
    uint64_t written = 0;
    if (status.ok())
      status = source->make([&](std::span<const std::byte> piece) {
        written += piece.size();
        return file.write(piece.data(), piece.size());
      });
    if (status.ok() && written != source->bytes)
      status = error("internal error: initializer '{}' has {} bytes, not {}", initializers.Get(i).name(), written,
                           source->bytes);
  }
  return status;
}

// The layout is that of peft 0.21 (https://github.com/huggingface/peft, utils/save_and_load.py, tuners/lora/config.py):
// base_model.model.MODULE.lora_A.weight is [rank, inputs] and lora_B.weight [outputs, rank], whatever the orientation
// of the module's own weight; of a convolution [rank, channels, kernel] and [channels, rank, 1, …]; an embedding has
// parameters lora_embedding_A and lora_embedding_B.

/// "a.b.weight" → "a.b"; empty if the parameter belongs to the root itself.
std::string moduleOf(const std::string &parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == parameter.npos ? std::string() : parameter.substr(0, dot);
}

/// "model" if every weight of the model is inside this only member of the root; else empty.
std::string moduleAround(const plan::Plan &plan) {
  std::string around;
  for (const plan::Variable &variable : plan.variables()) {
    if (!isModelValue(variable) || variable.computed())
      continue;
    const std::string &known = torchName(variable);
    const std::string &name = known.find('.') == known.npos && !variable.display().empty() ? variable.display() : known;
    const size_t dot = name.find('.');
    if (dot == name.npos)
      continue; // the exporter computed it and chose its name
    if (!around.empty() && name.substr(0, dot) != around)
      return {};
    around = name.substr(0, dot);
  }
  return around;
}

class AdapterExport {
public:
  AdapterExport(const plan::Plan &plan, ModelValues &values, const std::string &root)
      : plan(plan), values(values), root(root) {}

  Status write(const std::string &path) {
    if (!plan.has_adapters())
      return Status(
          fmt::format("{0}: the run of {1} trained no adapter; leave {0} out to export its weights, or compile with "
                      "[adapter] in the recipe",
                      advice::flag("adapter"), plan.model()),
          StatusCode::Usage);
    for (const plan::Adapter &adapter : plan.adapters().list())
      if (Status status = addAdapter(adapter); !status.ok())
        return status;
    for (const plan::Variable &variable : plan.variables())
      if (variable.role() == plan::PARAMETER && !values.isAdapter(variable))
        if (Status status = addModule(variable); !status.ok())
          return status;
    const bool isFile = path.ends_with(".safetensors");
    const fs::path folder = isFile ? fs::path(path).parent_path() : fs::path(path);
    std::error_code code;
    // A path with the suffix of a file is probably not meant to be a folder.
    static constexpr std::string_view kFiles[] = {".onnx", ".npz", ".npy", ".csv", ".pt", ".bin", ".json"};
    const bool means = std::any_of(std::begin(kFiles), std::end(kFiles), [&](auto end) { return path.ends_with(end); });
    if (!isFile && !fs::is_directory(folder, code) && (means || fs::exists(folder, code)))
      return Status(
          fmt::format("{}: {} writes a folder, or NAME.safetensors and adapter_config.json beside it", path,
                      advice::flag("adapter")),
          StatusCode::Usage);
    if (!isFile)
      if (Status status = makeFolders(folder.string()); !status.ok())
        return status;
    auto hash = writeSafetensors(isFile ? path : (folder / "adapter_model.safetensors").string(), std::move(tensors),
                                 {{"format", "pt"}});
    if (!hash)
      return hash.status();
    return writeFileAtomically((folder / "adapter_config.json").string(), jsonText(config(), 2) + "\n",
                               OwnFile::AdapterConfig);
  }

private:
  Expected<std::string> inside(const std::string &name) {
    if (std::optional<std::string> found = insideRoot(name, root))
      return *found;
    return Status(
        fmt::format("{}: '{}' was trained and is outside; give a root that holds all that was trained, or none",
                    advice::option("root", root), name),
        StatusCode::Usage);
  }

  void add(const std::string &name, const plan::Variable &variable) {
    tensors.push_back({std::string(kPeftPrefix) + name, torchType(variable, values.typeOf(variable)),
                       [this, &variable](const ByteSink &sink) { return values.streamTorch(variable, sink); }});
  }

  Status addAdapter(const plan::Adapter &adapter) {
    const plan::Variable &base = values.variable(adapter.of());
    for (const std::string &part : {adapter.a(), adapter.b()}) {
      auto name = inside(part);
      if (!name)
        return name.status();
      add(*name, values.variable(part));
    }
    auto name = inside(torchName(base));
    if (!name)
      return name.status();
    // The module of a matrix that the file stores in 4 bits may be called as the matrix.
    const bool stored = adapter.dims_size() != 0;
    if (!name->ends_with(".weight") && !stored)
      return error("'{}' is adapted, and is not the weight of a module: peft has no name for its adapter; export the "
                   "whole model, in which the adapter is merged: -o model.onnx",
                   *name);
    if (!adapter.not_peft().empty())
      return error("'{}' is adapted, and peft computes its adapter otherwise: {}; export the whole model, in which the "
                   "adapter is merged: -o model.onnx",
                   *name, adapter.not_peft());
    targets.push_back(name->ends_with(".weight") ? moduleOf(*name) : *name);
    // nn.Linear has [outputs, inputs], transformers' Conv1D the transpose; filters and tables have only one
    // orientation.
    if (plan::valueType(base).dims_size() == 2 && adapter.a().ends_with(".lora_A.weight")) {
      ++matrices;
      inputFirst += adapter.input_first() != base.torch().transposed();
    }
    return Status();
  }

  std::string wayOut() const {
    return plan::unmergeable(plan) ? "compile without it in adapter.train" : "export the whole model: -o model.onnx";
  }

  Status addModule(const plan::Variable &variable) {
    auto name = inside(torchName(variable));
    if (!name)
      return name.status();
    const std::string module = moduleOf(*name);
    if (module.empty())
      return error(
          "'{}' was trained beside the adapter, and is a parameter of the root module: peft has no place for it; {}",
          *name, wayOut());
    if (std::find(targets.begin(), targets.end(), module) != targets.end())
      return error("'{}' was trained beside the adapter of its own module: peft has no place for it; {}", *name,
                   wayOut());
    add(*name, variable);
    if (std::find(modules.begin(), modules.end(), module) == modules.end())
      modules.push_back(module);
    return Status();
  }

  nlohmann::ordered_json config() const {
    const plan::Adapters &adapters = plan.adapters();
    nlohmann::ordered_json config;
    config["peft_type"] = "LORA";
    config["base_model_name_or_path"] = nullptr;
    config["task_type"] = nullptr;
    config["inference_mode"] = true;
    config["r"] = adapters.rank();
    if (adapters.alpha() == std::floor(adapters.alpha()))
      config["lora_alpha"] = static_cast<int64_t>(adapters.alpha());
    else
      config["lora_alpha"] = adapters.alpha();
    config["lora_dropout"] = adapters.dropout();
    config["use_rslora"] = adapters.rank_stabilized();
    config["target_modules"] = targets;
    config["modules_to_save"] = modules.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(modules);
    config["fan_in_fan_out"] = matrices != 0 && inputFirst == matrices;
    config["bias"] = "none";
    config["init_lora_weights"] = true;
    return config;
  }

  const plan::Plan &plan;
  ModelValues &values;
  const std::string &root;
  std::vector<StreamedValue> tensors;
  std::vector<std::string> targets, modules;
  size_t matrices = 0, inputFirst = 0;
};

/// Writes an adapter for PeftModel.from_pretrained. `path` is a new or existing folder, which gets
/// adapter_model.safetensors and adapter_config.json; or it is NAME.safetensors, for the former, with the latter in the
/// same folder. Names are relative to the submodule `root` (empty: the module). Other trained parameters become
/// modules_to_save. `note` is called if all names share an outer module, which peft's model may not have. Errors: no
/// adapter in the plan, an adapter outside `root`, a parameter that peft's format cannot hold.
Status exportAdapter(const plan::Plan &plan, ModelValues &values, const std::string &path,
                     const std::string &root, const std::function<void(const std::string &)> &note) {
  Status status = AdapterExport(plan, values, root).write(path);
  if (const std::string wrapper = moduleAround(plan); status.ok() && root.empty() && !wrapper.empty())
    note(
        fmt::format("{}: every name begins with '{}.': if that is a module around the one that peft gets, export again "
                    "with {}",
                    path, wrapper, advice::option("root", wrapper)));
  return status;
}
plan::DType dtypeOf(int onnxType) {
  switch (onnxType) {
  case onnx::TensorProto::DOUBLE:
    return plan::F64;
  case onnx::TensorProto::FLOAT:
    return plan::F32;
  case onnx::TensorProto::BFLOAT16:
    return plan::BF16;
  case onnx::TensorProto::FLOAT16:
    return plan::F16;
  case onnx::TensorProto::INT64:
    return plan::I64;
  case onnx::TensorProto::INT32:
    return plan::I32;
  case onnx::TensorProto::INT16:
    return plan::I16;
  case onnx::TensorProto::INT8:
    return plan::I8;
  case onnx::TensorProto::UINT64:
    return plan::U64;
  case onnx::TensorProto::UINT32:
    return plan::U32;
  case onnx::TensorProto::UINT16:
    return plan::U16;
  case onnx::TensorProto::UINT8:
    return plan::U8;
  case onnx::TensorProto::BOOL:
    return plan::I1;
  default:
    return plan::DTYPE_NONE;
  }
}

bool hasBytes(const onnx::TensorProto &tensor) {
  bool empty = false;
  for (int64_t dim : tensor.dims())
    empty |= dim == 0;
  return empty || (tensor.data_location() != onnx::TensorProto::EXTERNAL &&
                   (!tensor.raw_data().empty() || tensor.float_data_size() || tensor.int32_data_size() ||
                    tensor.int64_data_size() || tensor.double_data_size() || tensor.uint64_data_size() ||
                    tensor.string_data_size()));
}

void clearBytes(onnx::TensorProto &tensor) {
  tensor.clear_raw_data();
  tensor.clear_float_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_double_data();
  tensor.clear_uint64_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
}

/// Calls `visit(tensor, inNode)` for the tensors of Constant nodes (`inNode`) and of the graphs inside nodes.
template <typename Nodes>
void forEachInnerTensor(Nodes &nodes, const std::function<void(onnx::TensorProto &, bool)> &visit) {
  for (onnx::NodeProto &node : nodes)
    for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      if (attribute.has_t())
        visit(*attribute.mutable_t(), true);
      if (!attribute.has_g())
        continue;
      for (onnx::TensorProto &tensor : *attribute.mutable_g()->mutable_initializer())
        visit(tensor, false);
      forEachInnerTensor(*attribute.mutable_g()->mutable_node(), visit);
    }
}

/// Removes and returns the note that names a tensor's variable; empty if it has none.
std::string takeWeightNote(onnx::TensorProto &tensor) {
  auto &notes = *tensor.mutable_metadata_props();
  for (int i = 0; i < notes.size(); ++i)
    if (notes[i].key() == plan::kWeightNote) {
      std::string name = notes[i].value();
      notes.DeleteSubrange(i, 1);
      return name;
    }
  return {};
}

/// Calls `visit` for a graph and the bodies inside its nodes.
void forEachGraph(onnx::GraphProto &graph, const std::function<void(onnx::GraphProto &)> &visit) {
  visit(graph);
  for (onnx::NodeProto &node : *graph.mutable_node())
    for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      if (attribute.has_g())
        forEachGraph(*attribute.mutable_g(), visit);
      for (onnx::GraphProto &inner : *attribute.mutable_graphs())
        forEachGraph(inner, visit);
    }
}

bool isStandard(const onnx::NodeProto &node) { return node.domain().empty() || node.domain() == "ai.onnx"; }

/// In inference mode, BatchNormalization does not change its statistics: readers of the output statistics get the
/// inputs.
void passStatistics(onnx::GraphProto &graph, const onnx::NodeProto &node) {
  for (int i = 1; i < node.output_size(); ++i) {
    if (node.output(i).empty() || node.input_size() < 5)
      continue;
    onnx::NodeProto &identity = *graph.add_node();
    identity.set_op_type("Identity");
    identity.set_name(node.name() + "/statistic_" + std::to_string(i));
    *identity.add_input() = node.input(i == 1 || i == 3 ? 3 : 4);
    *identity.add_output() = node.output(i);
  }
}

/// Sets BatchNormalization and Dropout to inference mode: removes training_mode = 1, the training_mode input and,
/// before opset 14, the additional outputs that imply training.
void setInferenceMode(onnx::GraphProto &graph) {
  std::set<std::string> used;
  forEachGraph(graph, [&](onnx::GraphProto &part) {
    for (const onnx::NodeProto &node : part.node())
      used.insert(node.input().begin(), node.input().end());
    for (const onnx::ValueInfoProto &output : part.output())
      used.insert(output.name());
  });
  forEachGraph(graph, [&](onnx::GraphProto &part) {
    onnx::GraphProto made;
    bool statisticsRead = false;
    for (onnx::NodeProto &node : *part.mutable_node()) {
      if (node.op_type() == "Dropout" && isStandard(node) && node.input_size() == 3)
        node.mutable_input()->DeleteSubrange(2, 1);
      if (node.op_type() == "BiasDropout" && node.domain() == "com.microsoft" && node.input_size() == 5)
        node.mutable_input()->DeleteSubrange(4, 1);
      *made.add_node() = node;
      if (node.op_type() != "BatchNormalization" || !isStandard(node))
        continue;
      onnx::NodeProto &copy = *made.mutable_node()->rbegin();
      for (onnx::AttributeProto &attribute : *copy.mutable_attribute())
        if (attribute.name() == "training_mode")
          attribute.set_i(0);
      while (copy.output_size() > 1)
        copy.mutable_output()->RemoveLast();
      bool read = false;
      for (int i = 1; i < node.output_size(); ++i)
        read |= used.count(node.output(i)) != 0;
      if (read)
        passStatistics(made, node);
      statisticsRead |= read;
      if (!read)
        node = copy;
    }
    if (statisticsRead)
      part.mutable_node()->Swap(made.mutable_node());
  });
}

/// Writes a .safetensors file.
Status exportSafetensors(const plan::Plan &plan, ModelValues &values, const std::string &path,
                         const ExportOptions &options) {
  std::vector<StreamedValue> tensors;
  for (const plan::Variable &variable : plan.variables()) {
    if (!isModelValue(variable) || values.isAdapter(variable))
      continue;
    if (options.names == WeightNames::Onnx) {
      tensors.push_back({variable.name(), values.typeOf(variable),
                         [&values, &variable](const ByteSink &sink) { return values.stream(variable, sink); }});
    } else if (!variable.computed()) {
      std::optional<std::string> name = insideRoot(torchName(variable), options.root);
      if (name)
        tensors.push_back({*name, torchType(variable, values.typeOf(variable)),
                           [&values, &variable](const ByteSink &sink) { return values.streamTorch(variable, sink); }});
    }
  }
  for (const plan::Tie &tie : plan.ties()) {
    // A transposed copy was made by the exporter; the module does not have it.
    std::optional<std::string> name = tie.name();
    if (options.names == WeightNames::Torch)
      name = tie.permutation().empty() ? insideRoot(tie.name(), options.root) : std::nullopt;
    if (name)
      tensors.push_back({*name, tie.type(), [&values, &tie](const ByteSink &sink) {
                           auto bytes = values.ofTie(tie);
                           return bytes ? sink(*bytes) : bytes.status();
                         }});
  }
  if (tensors.empty() && !options.root.empty())
    return noNameInside(plan, options.root);
  std::string guessed;
  for (const plan::Variable &variable : plan.variables())
    if (options.names == WeightNames::Torch && variable.torch().by_node())
      guessed += fmt::format("{}{} as {}", guessed.empty() ? "" : ", ", variable.name(), variable.torch().name());
  if (!guessed.empty())
    options.note(
        fmt::format("{}: written by the names of the nodes that read them, since this export notes no parameters: "
                    "{}; without {} a file has the graph's names",
                    path, guessed, advice::option("names", "torch")));
  auto hash = writeSafetensors(path, std::move(tensors), {{"format", "pt"}});
  return hash.status();
}

Expected<onnx::ModelProto> readModel(const plan::PlanReader &reader) {
  const plan::Plan &plan = reader.plan();
  if (plan.model_payload() < 0 || plan.payloads_size() == 0)
    return error("{}: the plan holds no model to export; export to .safetensors instead", reader.path());
  std::span<const std::byte> bytes = reader.payload(static_cast<uint32_t>(plan.model_payload()));
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(std::numeric_limits<int>::max());
  onnx::ModelProto model;
  if (!model.ParseFromCodedStream(&coded) || !model.has_graph())
    return error("{}: the model inside the plan cannot be read; compile it again", reader.path());
  return model;
}

/// Marks the model as written by trun, so that a later export may replace the file.
void markExport(onnx::ModelProto &model) {
  for (const onnx::StringStringEntryProto &note : model.metadata_props())
    if (note.key() == kModelMark)
      return;
  onnx::StringStringEntryProto *note = model.add_metadata_props();
  note->set_key(kModelMark.data());
  note->set_value("trun");
}

/// Error: an output would replace a file that holds initial values of the plan.
Status checkInputs(const plan::Plan &plan, const std::string &folder, const std::string &path) {
  for (const plan::Variable &variable : plan.variables())
    if (variable.has_external())
      for (const std::string &output : {path, path + ".data"})
        if (isSameFile((std::filesystem::path(folder) / variable.external().path()).string(), output))
          return Status(fmt::format("{}: the plan reads initial values from this file; give another name", output),
                        StatusCode::Usage);
  return Status();
}

Status checkInitializer(const onnx::TensorProto &tensor, const plan::TensorType &held, const std::string &path) {
  plan::TensorType type;
  type.set_dtype(dtypeOf(tensor.data_type()));
  for (int64_t dim : tensor.dims())
    type.add_dims(dim);
  // The plan holds the bytes of 4-bit integers, two in each.
  if (tensor.data_type() == onnx::TensorProto::INT4 || tensor.data_type() == onnx::TensorProto::UINT4) {
    type.set_dtype(plan::U8);
    const int64_t bytes = static_cast<int64_t>((plan::elementCount(type).value_or(0) + 1) / 2);
    type.clear_dims();
    type.add_dims(bytes);
  }
  if (plan::typeName(type) != plan::typeName(held))
    return error("{}: initializer '{}' is {} in the model, but {} in the plan; compile the model again", path,
                       tensor.name(), plan::typeName(type), plan::typeName(held));
  return Status();
}

Status exportOnnx(const plan::PlanReader &reader, ModelValues &values, const std::string &path,
                        const ExportOptions &options) {
  const plan::Plan &plan = reader.plan();
  auto model = readModel(reader);
  if (!model)
    return model.status();
  std::map<std::string, const plan::Variable *> byName;
  std::map<std::string, const plan::Tie *> ties;
  for (const plan::Tie &tie : plan.ties())
    ties[tie.name()] = &tie;
  uint64_t total = 0;
  for (const plan::Variable &variable : plan.variables())
    if (isModelValue(variable) && !values.isAdapter(variable)) {
      byName[variable.name()] = &variable;
      total += plan::tensorBytes(values.typeOf(variable)).value_or(0);
    }
  bool external = total > options.externalAbove;
  std::string dataPath = path + ".data";
  std::optional<AtomicFile> data;
  if (external) {
    auto created = AtomicFile::create(dataPath, OwnFile::ModelData);
    if (!created)
      return created.status();
    data.emplace(created.take());
    if (Status marked = data->write(kModelDataMark); !marked.ok())
      return marked;
  }
  Requantization integers(plan, model->graph(), [&](const std::string &name, const ByteSink &sink) {
    auto found = byName.find(name);
    return found == byName.end() ? error("the plan has no variable '{}'; compile the model again", name)
                                 : values.stream(*found->second, sink);
  });
  if (Status prepared = integers.prepare(); !prepared.ok())
    return prepared.withContext(path);
  std::set<std::string> exported;
  std::map<int, StreamedTensor> streamed;
  Status status;
  // `place` is the initializer's number in the model's graph; kInner: it belongs to the graph of a node; kInNode: it is
  // the value of a Constant node, whose bytes are always inside the model.
  constexpr int kInner = -1, kInNode = -2;
  auto store = [&](onnx::TensorProto &tensor, int place, StreamedTensor source) -> Status {
    clearBytes(tensor);
    constexpr uint64_t kSmall = 1024; // small tensors stay inside the model, because shape inference reads them
    if (!data && place >= 0) {
      streamed[place] = std::move(source);
      return Status();
    }
    if (!data || source.bytes <= kSmall || place == kInNode) {
      std::string &bytes = *tensor.mutable_raw_data();
      return source.make([&](std::span<const std::byte> piece) {
        bytes.append(reinterpret_cast<const char *>(piece.data()), piece.size());
        return Status();
      });
    }
    static constexpr char kZeros[4096] = {};
    if (uint64_t rest = data->bytesWritten() % sizeof(kZeros))
      if (Status padded = data->write(kZeros, sizeof(kZeros) - rest); !padded.ok())
        return padded;
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    auto note = [&](const char *key, const std::string &value) {
      onnx::StringStringEntryProto *entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    note("location", std::filesystem::path(dataPath).filename().string());
    note("offset", std::to_string(data->bytesWritten()));
    note("length", std::to_string(source.bytes));
    return source.make([&](std::span<const std::byte> piece) { return data->write(piece.data(), piece.size()); });
  };
  auto put = [&](onnx::TensorProto &tensor, int place, const std::string &name) -> Status {
    auto found = byName.find(name);
    if (auto tie = ties.find(name); tie != ties.end()) {
      const plan::Tie &copy = *tie->second;
      return store(tensor, place, {plan::tensorBytes(copy.type()).value_or(0), [&values, &copy](const ByteSink &sink) {
                                     auto bytes = values.ofTie(copy);
                                     return bytes ? sink(*bytes) : bytes.status();
                                   }});
    }
    if (integers.makes(tensor.name())) {
      if (found != byName.end())
        exported.insert(tensor.name());
      onnx::TensorProto type; // a copy of name, type and shape, as the tensor itself moves while the model is written
      type.set_name(tensor.name());
      type.set_data_type(tensor.data_type());
      *type.mutable_dims() = tensor.dims();
      plan::TensorType stored;
      stored.set_dtype(dtypeOf(tensor.data_type()));
      stored.mutable_dims()->Assign(tensor.dims().begin(), tensor.dims().end());
      return store(tensor, place, {plan::tensorBytes(stored).value_or(0), [&integers, type](const ByteSink &sink) {
                                     auto made = integers.bytesOf(type);
                                     return made ? sink(*made) : made.status();
                                   }});
    }
    if (found == byName.end())
      return hasBytes(tensor) ? Status()
                              : error("{}: the plan has no value for the model's initializer '{}'; compile the "
                                            "model again",
                                            path, name);
    const plan::Variable &variable = *found->second;
    exported.insert(variable.name());
    if (hasBytes(tensor) && !values.isChanged(variable))
      return Status();
    const plan::TensorType type = values.typeOf(variable);
    if (Status checked = checkInitializer(tensor, type, path); !checked.ok())
      return checked;
    return store(tensor, place, {plan::tensorBytes(type).value_or(0),
                                 [&values, &variable](const ByteSink &sink) { return values.stream(variable, sink); }});
  };
  for (int i = 0; i < model->graph().initializer_size() && status.ok(); ++i) {
    onnx::TensorProto &tensor = *model->mutable_graph()->mutable_initializer(i);
    status = put(tensor, i, tensor.name());
  }
  auto putInner = [&](onnx::TensorProto &tensor, bool inNode) {
    if (std::string name = takeWeightNote(tensor); !name.empty() && status.ok())
      status = put(tensor, inNode ? kInNode : kInner, name);
  };
  forEachInnerTensor(*model->mutable_graph()->mutable_node(), putInner);
  for (onnx::FunctionProto &function : *model->mutable_functions())
    forEachInnerTensor(*function.mutable_node(), putInner);
  if (!status.ok())
    return status;
  for (const auto &[name, variable] : byName)
    if (variable->role() == plan::PARAMETER && !exported.count(name))
      return error("{}: parameter '{}' is no initializer of the model inside the plan; export to .safetensors "
                         "instead",
                         path, name);
  if (!options.keepMode)
    setInferenceMode(*model->mutable_graph());
  markExport(*model);
  auto file = AtomicFile::create(path, OwnFile::Model);
  if (!file)
    return file.status();
  if (status = writeOnnx(*model, streamed, *file); !status.ok())
    return status.withContext(path);
  if (data)
    if (status = data->commit(); !status.ok())
      return status;
  return file->commit();
}
} // namespace

Status tcc::runtime::exportWeights(const plan::PlanReader &reader, const TrainedValues &trained,
                                         const std::string &path, const ExportOptions &options) {
  const bool safetensors = path.ends_with(".safetensors"), onnx = path.ends_with(".onnx");
  if (Status status = checkInputs(reader.plan(), options.planFolder, path); !status.ok())
    return status;
  ModelValues values(reader, trained, options.planFolder);
  if (options.adapter)
    return exportAdapter(reader.plan(), values, path, options.root, options.note);
  if (const plan::Adapter *adapter = plan::unmergeable(reader.plan()))
    return error("{}: '{}' is adapted, and the model's file stores it in 4 bits, which cannot hold the sum: export the "
                 "adapter alone, {}, which peft and runtimes of 4-bit models read beside the base",
                 path, adapter->of(), advice::flag("adapter"));
  if (options.merge && !reader.plan().has_adapters())
    return Status(fmt::format("{0}: the run of {1} trained no adapter; leave {0} out", advice::flag("merge"),
                              reader.plan().model()),
                  StatusCode::Usage);
  if (onnx && !options.root.empty())
    return Status(fmt::format("{}: a model keeps its graph's names; give it with .safetensors",
                              advice::option("root", options.root)),
                  StatusCode::Usage);
  if (onnx && options.names == WeightNames::Torch)
    return Status(fmt::format("{}: a model keeps its graph's names; give it with .safetensors",
                              advice::option("names", "torch")),
                  StatusCode::Usage);
  if (safetensors)
    return exportSafetensors(reader.plan(), values, path, options);
  if (onnx)
    return exportOnnx(reader, values, path, options);
  return Status(fmt::format("{}: unknown release format; use .onnx or .safetensors", path), StatusCode::Usage);
}

//===- ExportAdapter.cpp - a trained adapter as peft writes it ------------===//
//
// The layout is that of peft 0.21 (https://github.com/huggingface/peft, utils/save_and_load.py, tuners/lora/config.py):
// base_model.model.MODULE.lora_A.weight is [rank, inputs] and lora_B.weight [outputs, rank], whatever the orientation
// of the module's own weight; of a convolution [rank, channels, kernel] and [channels, rank, 1, …]; an embedding has
// parameters lora_embedding_A and lora_embedding_B.
//
//===----------------------------------------------------------------------===//
#include "runtime/state/ExportAdapter.h"
#include "support/Advice.h"
#include "support/AtomicFile.h"

#include "support/Json.h"
#include <algorithm>
#include <cmath>
#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;

namespace {
namespace fs = std::filesystem;

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
    if (!name->ends_with(".weight"))
      return error("'{}' is adapted, and is not the weight of a module: peft has no name for its adapter; export the "
                   "whole model, in which the adapter is merged: -o model.onnx",
                   *name);
    if (!adapter.not_peft().empty())
      return error("'{}' is adapted, and peft computes its adapter otherwise: {}; export the whole model, in which the "
                   "adapter is merged: -o model.onnx",
                   *name, adapter.not_peft());
    targets.push_back(moduleOf(*name));
    // nn.Linear has [outputs, inputs], transformers' Conv1D the transpose; filters and tables have only one
    // orientation.
    if (base.type().dims_size() == 2 && adapter.a().ends_with(".lora_A.weight")) {
      ++matrices;
      inputFirst += adapter.input_first() != base.torch().transposed();
    }
    return Status();
  }

  Status addModule(const plan::Variable &variable) {
    auto name = inside(torchName(variable));
    if (!name)
      return name.status();
    const std::string module = moduleOf(*name);
    if (module.empty())
      return error(
          "'{}' was trained beside the adapter, and is a parameter of the root module: peft has no place for it; "
          "export the whole model: -o model.onnx",
          *name);
    if (std::find(targets.begin(), targets.end(), module) != targets.end())
      return error("'{}' was trained beside the adapter of its own module: peft has no place for it; export the whole "
                   "model: -o model.onnx",
                   *name);
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
} // namespace

Status tcc::runtime::exportAdapter(const plan::Plan &plan, ModelValues &values, const std::string &path,
                                   const std::string &root, const std::function<void(const std::string &)> &note) {
  Status status = AdapterExport(plan, values, root).write(path);
  if (const std::string wrapper = moduleAround(plan); status.ok() && root.empty() && !wrapper.empty())
    note(
        fmt::format("{}: every name begins with '{}.': if that is a module around the one that peft gets, export again "
                    "with {}",
                    path, wrapper, advice::option("root", wrapper)));
  return status;
}

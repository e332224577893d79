//===- Checkpoint.cpp - a run's state on the disk ------------------------===//
#include "runtime/state/Checkpoint.h"
#include "runtime/state/AtomicFile.h"
#include "runtime/state/Weights.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {
constexpr int kCheckpointVersion = 1;

std::string folderOf(const std::string &run) { return run + "/checkpoints"; }
std::string bestFileOf(const std::string &run) { return folderOf(run) + "/best.json"; }

bool parseNumber(std::string_view text, uint64_t &value) {
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && !text.empty();
}

plan::Expected<json> readJson(const std::string &path) {
  auto text = readFile(path);
  if (!text)
    return text.status();
  json value = json::parse(*text, nullptr, false);
  if (!value.is_object())
    return plan::error("{}: damaged: no JSON object", path);
  return value;
}

/// What training changes and a resumed run needs: gradient accumulators start anew with each window.
bool isCheckpointed(const plan::Variable &variable, bool written) {
  return variable.role() == plan::PARAMETER || variable.role() == plan::OPTIMIZER ||
         (written && variable.role() != plan::ACCUMULATOR);
}
} // namespace

RunReference tcc::runtime::parseRunReference(const std::string &text) {
  RunReference reference{text, "last"};
  size_t at = text.rfind('@');
  if (at == std::string::npos || at + 1 == text.size())
    return reference;
  std::string selector = text.substr(at + 1);
  uint64_t step = 0;
  if (selector == "last" || selector == "best" || parseNumber(selector, step))
    reference = {text.substr(0, at), selector};
  return reference;
}

std::vector<uint64_t> tcc::runtime::checkpointSteps(const std::string &run) {
  std::vector<uint64_t> steps;
  std::error_code code;
  for (fs::directory_iterator entry(folderOf(run), code), end; !code && entry != end; entry.increment(code)) {
    std::string name = entry->path().filename().string();
    uint64_t step = 0;
    if (name.starts_with("step-") && parseNumber(std::string_view(name).substr(5), step))
      steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

plan::Expected<std::string> tcc::runtime::findCheckpoint(const RunReference &reference) {
  if (!fs::is_directory(reference.run))
    return plan::error("{}: no such run folder", reference.run);
  std::vector<uint64_t> steps = checkpointSteps(reference.run);
  if (steps.empty())
    return plan::error("{}: the run has no checkpoint", reference.run);
  uint64_t step = steps.back();
  if (reference.selector == "best") {
    if (!fs::exists(bestFileOf(reference.run)))
      return plan::error("{}: the run has no best checkpoint: it was never evaluated; use @last, or train with "
                         "--eval-data",
                         reference.run);
    auto best = readJson(bestFileOf(reference.run));
    if (!best)
      return best.status();
    step = best->value("step", uint64_t(0));
  } else if (reference.selector != "last") {
    parseNumber(reference.selector, step);
  }
  if (std::find(steps.begin(), steps.end(), step) == steps.end())
    return plan::error("{}: no checkpoint of step {}; there are {}", reference.run, step, fmt::join(steps, ", "));
  return fmt::format("{}/step-{}", folderOf(reference.run), step);
}

std::string tcc::runtime::stateFileOf(const std::string &checkpoint) { return checkpoint + "/state.safetensors"; }

plan::Status tcc::runtime::writeCheckpoint(const std::string &run, const plan::Plan &plan, Device &device,
                                           const TrainingPosition &position) {
  std::vector<bool> written = writtenVariables(plan);
  std::vector<Tensor> tensors;
  for (int i = 0; i < plan.variables_size(); ++i) {
    const plan::Variable &variable = plan.variables(i);
    const auto *data = static_cast<const std::byte *>(device.variableData(static_cast<uint32_t>(i)));
    if (data && isCheckpointed(variable, written[static_cast<size_t>(i)]))
      tensors.push_back({variable.name(), variable.type(), {data, plan::tensorBytes(variable.type()).value_or(0)}});
  }
  std::string place = fmt::format("{}/step-{}", folderOf(run), position.step);
  std::string temporary = fmt::format("{}/.step-{}.tmp", folderOf(run), position.step);
  std::error_code code;
  fs::remove_all(temporary, code);
  if (plan::Status status = makeFolders(temporary); !status.ok())
    return status;
  auto finish = [&]() -> plan::Status {
    auto hash = writeSafetensors(stateFileOf(temporary), tensors);
    if (!hash)
      return hash.status();
    json manifest = {{"version", kCheckpointVersion},
                     {"step", position.step},
                     {"epoch", position.epoch},
                     {"batch", position.batch},
                     {"seed", position.seed},
                     {"shuffle", position.shuffle},
                     {"schedule_total", position.scheduleTotal},
                     {"settings", position.settings},
                     {"best_step", position.bestStep},
                     {"best_loss", position.bestLoss},
                     {"model", plan.model()},
                     {"files", {{"state.safetensors", {{"xxh3", fmt::format("{:016x}", *hash)}}}}}};
    if (plan::Status status = writeFileAtomically(temporary + "/manifest.json", manifest.dump(2) + "\n"); !status.ok())
      return status;
    // A checkpoint of the same step (a resumed run's) gives way to the new one.
    fs::remove_all(place, code);
    if (std::rename(temporary.c_str(), place.c_str()) != 0)
      return plan::error("{}: cannot write: {}", place, std::strerror(errno));
    syncFolder(folderOf(run));
    return plan::Status();
  };
  plan::Status status = finish();
  if (!status.ok())
    fs::remove_all(temporary, code);
  return status.withContext(fmt::format("checkpoint of step {}", position.step));
}

plan::Status tcc::runtime::markBest(const std::string &run, uint64_t step, double loss) {
  return writeFileAtomically(bestFileOf(run), json{{"step", step}, {"eval_loss", loss}}.dump() + "\n");
}

plan::Expected<TrainingPosition> tcc::runtime::readPosition(const std::string &checkpoint) {
  std::string path = checkpoint + "/manifest.json";
  auto manifest = readJson(path);
  if (!manifest)
    return manifest.status();
  auto has = [&](const char *key) { return manifest->contains(key) && (*manifest)[key].is_number(); };
  if (!has("version") || !has("step") || !has("epoch") || !has("batch") || !has("seed") ||
      !(*manifest).value("settings", json()).is_array())
    return plan::error("{}: damaged: step, epoch, batch, seed or settings are missing", path);
  if ((*manifest)["version"].get<int>() > kCheckpointVersion)
    return plan::error("{}: checkpoint version {} is newer than {}, the newest this program reads; update it", path,
                       (*manifest)["version"].get<int>(), kCheckpointVersion);
  TrainingPosition position;
  position.step = (*manifest)["step"].get<uint64_t>();
  position.epoch = (*manifest)["epoch"].get<uint64_t>();
  position.batch = (*manifest)["batch"].get<uint64_t>();
  position.seed = (*manifest)["seed"].get<uint64_t>();
  position.shuffle = !manifest->contains("shuffle") || (*manifest)["shuffle"] == true;
  position.scheduleTotal = has("schedule_total") ? (*manifest)["schedule_total"].get<double>() : 0;
  position.bestStep = has("best_step") ? (*manifest)["best_step"].get<uint64_t>() : 0;
  position.bestLoss = has("best_loss") ? (*manifest)["best_loss"].get<double>() : 0;
  for (const json &setting : (*manifest)["settings"])
    if (setting.is_string())
      position.settings.push_back(setting.get<std::string>());
  return position;
}

plan::Status tcc::runtime::loadCheckpoint(const std::string &checkpoint, const plan::Plan &plan, Device &device,
                                          bool modelValuesOnly) {
  auto manifest = readJson(checkpoint + "/manifest.json");
  if (!manifest)
    return manifest.status();
  auto file = SafetensorsFile::open(stateFileOf(checkpoint));
  if (!file)
    return file.status();
  std::string wanted;
  if (auto files = manifest->find("files"); files != manifest->end() && files->is_object())
    if (auto state = files->find("state.safetensors"); state != files->end() && state->is_object())
      wanted = state->value("xxh3", "");
  std::span<const std::byte> bytes = file->file()->bytes();
  if (wanted != fmt::format("{:016x}", plan::hashBytes(bytes.data(), bytes.size())))
    return plan::error("{}: damaged: its checksum is not the manifest's; use an earlier checkpoint",
                       stateFileOf(checkpoint));
  std::vector<bool> written = writtenVariables(plan);
  std::vector<std::pair<int, const Tensor *>> found;
  for (int i = 0; i < plan.variables_size(); ++i) {
    const plan::Variable &variable = plan.variables(i);
    if (!isCheckpointed(variable, written[static_cast<size_t>(i)]) || (modelValuesOnly && !isModelValue(variable)))
      continue;
    const Tensor *tensor = file->find(variable.name());
    // A plan without training entries (other frozen values, no optimizer) may still take a run's weights.
    if (!tensor && modelValuesOnly)
      continue;
    if (!tensor)
      return plan::error("{}: it has no '{}', which the plan needs; resume with the plan that the run was made with",
                         checkpoint, variable.name());
    if (plan::typeName(tensor->type) != plan::typeName(variable.type()))
      return plan::error("{}: '{}' is {}, the plan's is {}; use the plan that the run was made with", checkpoint,
                         variable.name(), plan::typeName(tensor->type), plan::typeName(variable.type()));
    found.emplace_back(i, tensor);
  }
  if (found.empty() && !file->tensors().empty())
    return plan::error("{}: none of its values belongs to the plan's model '{}'", checkpoint, plan.model());
  for (const auto &[variable, tensor] : found)
    if (void *destination = device.variableData(static_cast<uint32_t>(variable)))
      std::memcpy(destination, tensor->bytes.data(), tensor->bytes.size());
  return plan::Status();
}

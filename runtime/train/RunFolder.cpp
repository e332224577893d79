//===- RunFolder.cpp - the folder that a training run leaves -------------===//
#include "runtime/train/RunFolder.h"
#include "runtime/state/AtomicFile.h"
#include "runtime/state/Checkpoint.h"

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;
using nlohmann::json;

plan::Status tcc::runtime::createRunFolder(const std::string &run, const plan::PlanReader &reader) {
  if (fs::exists(fs::symlink_status(run)))
    return plan::error("{}: exists already; give another --out, or go on with it by --resume {}", run, run);
  if (plan::Status status = makeFolders(run + "/checkpoints"); !status.ok())
    return status;
  std::error_code code;
  std::string copy = run + "/plan.tplan";
  fs::create_hard_link(reader.path(), copy, code);
  if (code) {
    code.clear();
    fs::copy_file(reader.path(), copy, fs::copy_options::overwrite_existing, code);
  }
  if (code)
    return plan::error("{}: cannot write: {}", copy, code.message());
  fs::path folder = fs::absolute(reader.folder()).lexically_normal();
  json source = {{"plan_folder", folder.string()},
                 {"plan_folder_relative", fs::proximate(folder, fs::absolute(run), code).string()},
                 {"plan", fs::path(reader.path()).filename().string()}};
  return writeFileAtomically(run + "/source.json", source.dump(2) + "\n");
}

plan::Status tcc::runtime::writeDataNotes(const std::string &run, const Dataset &dataset) {
  if (!dataset.vocabulary.empty()) {
    json characters = json::array();
    for (uint32_t point : dataset.vocabulary)
      characters.push_back(encodeUtf8(point));
    json notes = {{"tokens", "chars"}, {"characters", characters}, {"code_points", dataset.vocabulary}};
    if (plan::Status status = writeFileAtomically(run + "/vocabulary.json", notes.dump() + "\n"); !status.ok())
      return status;
  }
  if (!dataset.classes.empty())
    return writeFileAtomically(run + "/classes.json",
                               json(dataset.classes).dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  return plan::Status();
}

plan::Expected<std::optional<std::vector<uint32_t>>> tcc::runtime::readVocabulary(const std::string &run) {
  std::string path = run + "/vocabulary.json";
  if (!fs::exists(path))
    return std::optional<std::vector<uint32_t>>();
  auto text = readFile(path);
  if (!text)
    return text.status();
  json notes = json::parse(*text, nullptr, false);
  std::vector<uint32_t> points;
  if (notes.is_object() && notes.contains("code_points") && notes["code_points"].is_array())
    for (const json &point : notes["code_points"])
      if (point.is_number_unsigned())
        points.push_back(point.get<uint32_t>());
  if (points.empty() || !std::is_sorted(points.begin(), points.end()))
    return plan::error("{}: damaged: no list of code points", path);
  return std::optional<std::vector<uint32_t>>(std::move(points));
}

std::string tcc::runtime::planFolderOf(const std::string &run) {
  auto text = readFile(run + "/source.json");
  json source = text ? json::parse(*text, nullptr, false) : json();
  if (source.is_object()) {
    std::string relative = run + "/" + source.value("plan_folder_relative", std::string("."));
    std::string absolute = source.value("plan_folder", std::string());
    // A run moved together with its model is found by the relative path, a run moved alone by the absolute one.
    if (!absolute.empty() && fs::is_directory(absolute) && !fs::exists(relative))
      return absolute;
    return fs::exists(relative) ? relative : absolute.empty() ? run : absolute;
  }
  return run;
}

bool tcc::runtime::isPlanOfRun(const std::string &run, const plan::PlanReader &reader) {
  std::string copy = run + "/plan.tplan";
  std::error_code code;
  if (fs::equivalent(copy, reader.path(), code))
    return true;
  auto a = MappedFile::open(copy), b = MappedFile::open(reader.path());
  if (!a || !b)
    return false;
  std::span<const std::byte> first = (*a)->bytes(), second = (*b)->bytes();
  return first.size() == second.size() && std::memcmp(first.data(), second.data(), first.size()) == 0;
}

plan::Status tcc::runtime::exportRun(const std::string &text, const std::string &path, bool keepMode) {
  RunReference reference = parseRunReference(text);
  auto checkpoint = findCheckpoint(reference);
  if (!checkpoint)
    return checkpoint.status();
  auto reader = plan::PlanReader::open(reference.run + "/plan.tplan");
  if (!reader)
    return reader.status();
  auto state = SafetensorsFile::open(stateFileOf(*checkpoint));
  if (!state)
    return state.status();
  ExportOptions options;
  options.planFolder = planFolderOf(reference.run);
  options.keepMode = keepMode;
  for (const plan::Variable &variable : reader->plan().variables()) {
    const Tensor *tensor = state->find(variable.name());
    if (variable.role() == plan::PARAMETER && !tensor)
      return plan::error("{}: damaged: parameter '{}' is missing", stateFileOf(*checkpoint), variable.name());
    if (tensor && plan::typeName(tensor->type) != plan::typeName(variable.type()))
      return plan::error("{}: '{}' is {}, the run's plan says {}", stateFileOf(*checkpoint), variable.name(),
                         plan::typeName(tensor->type), plan::typeName(variable.type()));
  }
  auto trained = [&](const plan::Variable &variable) {
    const Tensor *tensor = state->find(variable.name());
    return tensor ? tensor->bytes : std::span<const std::byte>();
  };
  return exportWeights(*reader, trained, path, options);
}

std::string tcc::runtime::freeRunName(const std::string &planPath) {
  std::string base = fs::path(planPath).stem().string() + ".run", name = base;
  for (int i = 2; fs::exists(name); ++i)
    name = fmt::format("{}-{}", base, i);
  return name;
}

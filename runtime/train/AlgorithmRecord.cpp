//===- AlgorithmRecord.cpp - the algorithms that a run's library chose ---===//
#include "runtime/train/AlgorithmRecord.h"
#include "runtime/state/SealedJson.h"
#include "support/AtomicFile.h"

#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;
using nlohmann::json;

namespace {
constexpr const char *kFormat = "tcc algorithms";

std::string pathOf(const std::string &run) { return fmt::format("{}/algorithms.json", run); }
} // namespace

Status tcc::runtime::writeAlgorithms(const std::string &run, const Algorithms &algorithms) {
  if (algorithms.empty())
    return Status();
  nlohmann::ordered_json calls = nlohmann::ordered_json::array();
  for (const auto &[call, algorithm] : algorithms.calls) {
    nlohmann::ordered_json entry = {{"call", call}, {"algorithm", algorithm.code}, {"about", algorithm.about}};
    if (algorithm.seconds > 0)
      entry["seconds"] = algorithm.seconds;
    calls.push_back(std::move(entry));
  }
  return writeFileAtomically(pathOf(run), sealObject({{"format", kFormat},
                                                      {"library", algorithms.library},
                                                      {"machine", algorithms.machine},
                                                      {"calls", std::move(calls)}},
                                                     {"calls"}),
                             OwnFile::Sealed);
}

Expected<Algorithms> tcc::runtime::readAlgorithms(const std::string &run) {
  const std::string path = pathOf(run);
  std::error_code code;
  if (!std::filesystem::exists(path, code))
    return Algorithms();
  auto object = readSealed(path);
  if (!object)
    return object.status();
  Algorithms result;
  result.source = path;
  auto text = [](const json &from, const char *key, std::string &to) {
    auto found = from.find(key);
    return found != from.end() && found->is_string() && (to = found->get<std::string>(), !to.empty());
  };
  std::string format;
  auto calls = object->find("calls");
  bool good = text(*object, "format", format) && format == kFormat && text(*object, "library", result.library) &&
              text(*object, "machine", result.machine) && calls != object->end() && calls->is_array();
  for (size_t i = 0; good && i < calls->size(); ++i) {
    const json &entry = (*calls)[i];
    std::string call;
    Algorithm algorithm;
    good = entry.is_object() && text(entry, "call", call) && text(entry, "algorithm", algorithm.code) &&
           text(entry, "about", algorithm.about);
    if (auto seconds = good ? entry.find("seconds") : entry.end(); good && seconds != entry.end())
      good = seconds->is_number() && (algorithm.seconds = seconds->get<double>()) >= 0;
    if (good)
      result.calls[call] = std::move(algorithm);
  }
  if (!good)
    return error(
        "{}: damaged: no record of algorithms; bring the run's file back, or delete it: trun then takes the library's "
        "first ones",
        path);
  return result;
}

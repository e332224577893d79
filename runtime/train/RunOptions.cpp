//===- RunOptions.cpp - the options that a run was started with ----------===//
#include "runtime/train/RunOptions.h"
#include "runtime/state/SealedJson.h"
#include "support/AtomicFile.h"
#include "support/Json.h"

#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {
constexpr const char *kFile = "run.json", *kFormat = "tcc run";

std::string pathOf(const std::string &run) { return fmt::format("{}/{}", run, kFile); }

/// Calls `visit(key, member)` for each option, so that reading, writing and merging agree on them.
template <typename Options, typename Visit> void forEach(Options &options, Visit visit) {
  visit("data", options.data);
  visit("eval_data", options.evalData);
  visit("steps", options.steps);
  visit("epochs", options.epochs);
  visit("eval_every", options.evalEvery);
  visit("checkpoint_every", options.checkpointEvery);
  visit("log_every", options.logEvery);
  visit("release", options.release);
  visit("max_seconds", options.maxSeconds);
  visit("target", options.target);
  visit("device", options.device);
  visit("threads", options.threads);
  visit("memory_budget", options.budgetBytes);
  visit("nproc", options.processes);
}

template <typename T> bool isGiven(const T &value) { return value != T(); }

json toJson(const std::optional<EvaluationInterval> &value) {
  return value->epoch ? json(value->text()) : json(value->updates);
}
template <typename T> json toJson(const std::optional<T> &value) { return *value; }
template <typename T> json toJson(const T &value) { return value; }

bool read(const json &from, std::string &into) {
  return from.is_string() && (into = from.get<std::string>(), true);
}
bool read(const json &from, bool &into) { return from.is_boolean() && (into = from.get<bool>(), true); }
bool read(const json &from, uint64_t &into) {
  return from.is_number_unsigned() && (into = from.get<uint64_t>(), true);
}
bool read(const json &from, unsigned &into) {
  return from.is_number_unsigned() && from.get<uint64_t>() <= 4096 && (into = from.get<unsigned>(), true);
}
bool read(const json &from, EvaluationInterval &into) {
  if (from.is_string() && from.get<std::string>() == EvaluationInterval::epochs().text())
    return into = EvaluationInterval::epochs(), true;
  return read(from, into.updates);
}
bool read(const json &from, double &into) {
  return from.is_number() && from.get<double>() >= 0 && (into = from.get<double>(), true);
}
template <typename T> bool read(const json &from, std::optional<T> &into) { return read(from, into.emplace()); }
} // namespace

EvaluationInterval tcc::runtime::EvaluationInterval::epochs() {
  EvaluationInterval each;
  each.epoch = true;
  return each;
}

std::string tcc::runtime::EvaluationInterval::text() const { return epoch ? "epoch" : std::to_string(updates); }

void tcc::runtime::fillFrom(RunOptions &given, const RunOptions &run) {
  const bool length = given.steps || given.epochs; // one replaces the other
  RunOptions merged = run;
  if (length)
    merged.steps = merged.epochs = std::nullopt;
  forEach(given, [&](std::string_view key, auto &value) {
    if (!isGiven(value))
      forEach(merged, [&](std::string_view other, auto &stored) {
        if constexpr (std::is_same_v<decltype(value), decltype(stored)>)
          if (key == other)
            value = stored;
      });
  });
}

std::vector<std::pair<std::string, std::string>> tcc::runtime::givenOptions(const RunOptions &options) {
  std::vector<std::pair<std::string, std::string>> given;
  forEach(options, [&](const char *key, const auto &value) {
    if (!isGiven(value))
      return;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, double>)
      return (void)given.emplace_back(key, fmt::format("{}", value));
    const json text = toJson(value);
    given.emplace_back(key, text.is_string() ? text.template get<std::string>() : jsonText(text));
  });
  return given;
}

Status tcc::runtime::writeRunOptions(const std::string &run, const RunOptions &options) {
  nlohmann::ordered_json object = {{"format", kFormat}};
  std::error_code code;
  forEach(options, [&](const char *key, const auto &value) {
    if (isGiven(value))
      object[key] = toJson(value);
  });
  for (const char *key : {"data", "eval_data"})
    if (object.contains(key))
      object[key] = fs::absolute(object[key].get<std::string>(), code).lexically_normal().string();
  return writeFileAtomically(pathOf(run), sealObject(object), OwnFile::Sealed);
}

Expected<std::optional<RunOptions>> tcc::runtime::readRunOptions(const std::string &run) {
  std::error_code code;
  if (!fs::exists(pathOf(run), code))
    return std::optional<RunOptions>();
  auto object = readSealed(pathOf(run));
  if (!object)
    return object.status();
  if (auto format = object->find("format"); format == object->end() || *format != kFormat)
    return error("{}: damaged: its format is not '{}'", pathOf(run), kFormat);
  RunOptions options;
  Status status;
  forEach(options, [&](const char *key, auto &value) {
    if (auto found = object->find(key); found != object->end() && !read(*found, value) && status.ok())
      status = error("{}: damaged: {} is no value of that option; give the options of the run again", pathOf(run), key);
  });
  if (!status.ok())
    return status;
  return std::optional(std::move(options));
}

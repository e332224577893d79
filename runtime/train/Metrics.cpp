//===- Metrics.cpp - metrics of a run --------------------------------------===//
#include "runtime/train/Metrics.h"
#include "runtime/train/RunText.h"
#include "support/Json.h"
#include "support/MappedFile.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <sstream>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Members of a JSON object.
class Line : public TextLine {
public:
  /// Writes the shortest text that reads back exactly; null if not finite, since JSON has no infinity or NaN.
  void number(const char *key, double value) { number(key, "", value); }
  void number(const char *prefix, std::string_view name, double value) {
    if (std::isfinite(value))
      add(",\"{}{}\":{}", prefix, name, value);
    else
      add(",\"{}{}\":null", prefix, name);
  }
};
} // namespace

double tcc::runtime::monotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::optional<double> EvaluationRecord::find(std::string_view key) const {
  for (const auto &[name, value] : values)
    if (name == key)
      return value;
  return std::nullopt;
}

EvaluationRecord tcc::runtime::recordOf(const Evaluation &evaluation, const Evaluation *averaged) {
  EvaluationRecord record;
  for (auto [one, prefix] : {std::pair(&evaluation, ""), std::pair(averaged, "ema_")}) {
    if (!one)
      continue;
    record.values.emplace_back(prefix + std::string("eval_loss"), one->loss);
    if (one->accuracy)
      record.values.emplace_back(prefix + std::string("eval_accuracy"), *one->accuracy);
    for (const auto &[name, value] : one->others)
      record.values.emplace_back(fmt::format("{}eval_{}", prefix, name), value);
  }
  return record;
}

/// Reads a line of metrics.jsonl; null is a number that was not finite.
static EvaluationRecord recordOfLine(const nlohmann::json &line) {
  EvaluationRecord record;
  for (const auto &[key, value] : line.items())
    if ((key.starts_with("eval_") || key.starts_with("ema_eval_")) && (value.is_number() || value.is_null()))
      record.values.emplace_back(key, value.is_number() ? value.get<double>() : NAN);
  return record;
}

Expected<MetricsFile> MetricsFile::open(const std::string &path) {
  std::vector<std::pair<uint64_t, EvaluationRecord>> past;
  if (std::filesystem::exists(path)) {
    auto text = readFile(path);
    if (!text)
      return text.status();
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json entry = parseJsonOrNull(line);
      if (entry.is_object() && entry.contains("eval_loss") && entry.contains("step") &&
          entry["step"].is_number_unsigned())
        past.emplace_back(entry["step"].get<uint64_t>(), recordOfLine(entry));
    }
  }
  auto records = RecordFile::open(path, /*append=*/true);
  if (!records)
    return records.status();
  MetricsFile metrics(records.take());
  metrics.past = std::move(past);
  return metrics;
}

void MetricsFile::update(const UpdateMetrics &metrics) {
  Line line;
  line.add("{{\"step\":{},\"epoch\":{}", metrics.step, metrics.epoch);
  line.number("loss", metrics.loss);
  for (const LossPart &part : metrics.losses)
    line.number("loss/", part.name, part.loss());
  line.number("lr", metrics.learningRate);
  line.number("grad_norm", metrics.gradientNorm);
  for (const PhaseMetrics &phase : metrics.phases)
    if (phase.ran) {
      line.number("loss.", phase.name, phase.loss);
      line.number("lr.", phase.name, phase.learningRate);
      line.number("grad_norm.", phase.name, phase.gradientNorm);
    }
  line.number("seconds", metrics.seconds);
  line.number("data_seconds", metrics.dataSeconds);
  if (metrics.communicationSeconds)
    line.number("communication_seconds", *metrics.communicationSeconds);
  if (metrics.exposedSeconds)
    line.number("exposed_seconds", *metrics.exposedSeconds);
  line.number("samples_per_s", static_cast<double>(metrics.samples) / metrics.seconds);
  line.number("tokens_per_s", metrics.tokens ? static_cast<double>(metrics.tokens) / metrics.seconds : NAN);
  if (metrics.lossScale > 0) {
    line.number("loss_scale", metrics.lossScale);
    line.add(",\"skipped_updates\":{}", metrics.skippedUpdates);
    for (const PhaseMetrics &phase : metrics.phases)
      line.add(",\"skipped_updates.{}\":{}", phase.name, phase.skippedUpdates);
  }
  if (metrics.damaged)
    line.add(",\"damaged_samples\":{}", metrics.damaged);
  if (metrics.resumed)
    line.add(",\"resumed\":true");
  line.add("}}\n");
  records.add(line.view());
}

/// Quotes names of metrics and messages, which may contain any characters.
static std::string quoted(const std::string &text) {
  return jsonText(nlohmann::json(text));
}

void MetricsFile::checkpoint(uint64_t step, uint64_t bytes, double waitedSeconds, double seconds) {
  Line line;
  line.add("{{\"step\":{},\"checkpoint_bytes\":{}", step, bytes);
  line.number("checkpoint_waited_seconds", waitedSeconds);
  line.number("checkpoint_seconds", seconds);
  line.add("}}\n");
  records.add(line.view());
}

void MetricsFile::end(uint64_t step, const std::string &reason) {
  records.add(fmt::format("{{\"step\":{},\"end\":{}}}\n", step, quoted(reason)));
}

void MetricsFile::evaluation(uint64_t step, uint64_t epoch, const EvaluationRecord &evaluation, double seconds) {
  std::string text = fmt::format("{{\"step\":{},\"epoch\":{}", step, epoch);
  auto add = [&](const std::string &key, double value) {
    text += fmt::format(",{}:{}", quoted(key), std::isfinite(value) ? fmt::format("{}", value) : "null");
  };
  for (const auto &[key, value] : evaluation.values)
    add(key, value);
  if (!evaluation.find("eval_accuracy"))
    add("eval_accuracy", NAN);
  add("seconds", seconds);
  records.add(text + "}\n");
}

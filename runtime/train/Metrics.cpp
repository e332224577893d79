//===- Metrics.cpp - metrics and progress of a run ------------------------===//
#include "runtime/train/Metrics.h"
#include "support/Json.h"
#include "support/MappedFile.h"
#include "support/TerminalWidth.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <sstream>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// A line in a fixed buffer.
class Line {
public:
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    auto result = fmt::format_to_n(text + length, sizeof(text) - length, format, std::forward<Args>(args)...);
    length = std::min(sizeof(text), length + result.size);
  }
  /// Writes the shortest text that reads back exactly; null if not finite, since JSON has no infinity or NaN.
  void number(const char *key, double value) {
    if (std::isfinite(value))
      add(",\"{}\":{}", key, value);
    else
      add(",\"{}\":null", key);
  }
  void number(const char *prefix, std::string_view name, double value) {
    if (std::isfinite(value))
      add(",\"{}{}\":{}", prefix, name, value);
    else
      add(",\"{}{}\":null", prefix, name);
  }
  std::string_view view() const { return {text, length}; }

private:
  char text[4096];
  size_t length = 0;
};

/// 3:07, 1:02:03.
void addDuration(Line &line, double seconds) {
  auto whole = static_cast<uint64_t>(std::max(0.0, seconds) + 0.5);
  if (whole >= 3600)
    line.add("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  else
    line.add("{}:{:02}", whole / 60, whole % 60);
}
} // namespace

namespace {
constexpr size_t kUsualColumns = 80;

/// Levels of detail of a progress line; each includes those before it.
enum class Part { Loss, Time, Speed, All };

Line progressLine(const UpdateMetrics &metrics, uint64_t total, double secondsLeft, Part most) {
  Line line;
  line.add("step {}/{}", metrics.step, total);
  for (const PhaseMetrics &phase : metrics.phases)
    if (phase.ran)
      line.add("  loss.{} {:.5g}", phase.name, phase.loss);
  if (metrics.phases.empty())
    line.add("  loss {:.5g}", metrics.loss);
  if (most == Part::All)
    line.add("  lr {:.3g}", metrics.learningRate);
  if (most >= Part::Speed)
    line.add("  {:.0f} {}/s", static_cast<double>(metrics.tokens ? metrics.tokens : metrics.samples) / metrics.seconds,
             metrics.tokens ? "tokens" : "samples");
  if (most == Part::All && metrics.skippedUpdates)
    line.add("  {} skipped, loss scale {}", metrics.skippedUpdates, metrics.lossScale);
  if (most >= Part::Time) {
    line.add("  ");
    addDuration(line, secondsLeft);
    line.add(" left");
  }
  return line;
}
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

Progress::Progress(uint64_t totalSteps, uint64_t firstStep, uint64_t every, bool terminal, std::FILE *out, bool quiet)
    : total(totalSteps), first(firstStep), every(every), terminal(terminal), quiet(quiet), out(out),
      startTime(monotonicSeconds()) {
  if (every == 0 && !terminal)
    this->every = std::max<uint64_t>(1, (totalSteps - std::min(firstStep, totalSteps)) / 20);
}

Status Progress::openLog(const std::string &path) {
  auto opened = RecordFile::open(path, /*append=*/true);
  if (!opened)
    return opened.status();
  log.emplace(opened.take());
  return Status();
}

void Progress::show(std::string_view text) {
  if (!out)
    return;
  errno = 0;
  bool good = std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0;
  if (good)
    return;
  std::clearerr(out);
  if (errno == EPIPE || errno == EIO || errno == ENXIO || errno == EBADF)
    out = nullptr;
}

void Progress::update(const UpdateMetrics &metrics) {
  std::lock_guard lock(*mutex);
  double now = monotonicSeconds();
  bool last = metrics.step == total || metrics.step == first + 1;
  bool due = every != 0 ? metrics.step % every == 0 : now - lastShown >= 0.1;
  if (!due && !last)
    return;
  lastShown = now;
  double perStep = (now - startTime) / static_cast<double>(std::max<uint64_t>(metrics.step - first, 1));
  const double left = perStep * static_cast<double>(total - std::min(metrics.step, total));
  Line line = progressLine(metrics, total, left, Part::All);
  if (terminal && !quiet) {
    // Drop the least important parts until the line fits: a line that wraps cannot be rewritten.
    const size_t columns = columnsOf(::fileno(out ? out : stderr)).value_or(kUsualColumns);
    Line shown = line;
    for (Part most : {Part::Speed, Part::Time, Part::Loss})
      if (characters(shown.view()) >= columns)
        shown = progressLine(metrics, total, left, most);
    Line again;
    again.add("\r\033[K{}", shown.view().substr(0, columns - 1));
    show(again.view());
  }
  lineOpen = terminal && !quiet;
  line.add("\n");
  if (!terminal && !quiet)
    show(line.view());
  if (log) {
    log->add(line.view());
    (void)log->flush();
  }
}

void Progress::evaluating(uint64_t done, uint64_t samples) {
  std::lock_guard lock(*mutex);
  double now = monotonicSeconds();
  if (!terminal || quiet || now - lastShown < 0.1)
    return;
  lastShown = now;
  lineOpen = true;
  show(fmt::format("\r\033[Kevaluating: {} of {} samples", done, samples));
}

void Progress::clear() {
  std::lock_guard lock(*mutex);
  if (lineOpen)
    show("\r\033[K");
  lineOpen = false;
}

void Progress::noteInLog(const std::string &text) {
  std::lock_guard lock(*mutex);
  if (!log)
    return;
  log->add(text + "\n");
  (void)log->flush();
}

void Progress::note(const std::string &text) {
  std::lock_guard lock(*mutex);
  finish();
  if (!quiet || text.starts_with("warning:"))
    show(text + "\n");
  noteInLog(text);
}

void Progress::finish() {
  std::lock_guard lock(*mutex);
  if (lineOpen)
    show("\n");
  lineOpen = false;
}

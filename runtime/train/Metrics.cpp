//===- Metrics.cpp - what a run says while it goes on --------------------===//
#include "runtime/train/Metrics.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

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
  /// The shortest text that reads back the same; JSON has no word for what is not finite.
  void number(const char *key, double value) {
    if (std::isfinite(value))
      add(",\"{}\":{}", key, value);
    else
      add(",\"{}\":null", key);
  }
  const char *data() const { return text; }
  size_t size() const { return length; }

private:
  char text[1024];
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

double tcc::runtime::monotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

plan::Expected<MetricsFile> MetricsFile::open(const std::string &path) {
  MetricsFile metrics;
  metrics.path = path;
  metrics.file.reset(std::fopen(path.c_str(), "a"));
  if (!metrics.file)
    return plan::error("{}: cannot write: {}", path, std::strerror(errno));
  return metrics;
}

plan::Status MetricsFile::put(const char *text, size_t length) {
  if (std::fwrite(text, 1, length, file.get()) != length)
    return plan::error("{}: cannot write: {}", path, std::strerror(errno));
  return plan::Status();
}

plan::Status MetricsFile::flush() {
  return std::fflush(file.get()) == 0 ? plan::Status()
                                      : plan::error("{}: cannot write: {}", path, std::strerror(errno));
}

plan::Status MetricsFile::update(const UpdateMetrics &metrics) {
  Line line;
  line.add("{{\"step\":{},\"epoch\":{}", metrics.step, metrics.epoch);
  line.number("loss", metrics.loss);
  line.number("lr", metrics.learningRate);
  line.number("grad_norm", metrics.gradientNorm);
  line.number("seconds", metrics.seconds);
  line.number("samples_per_s", static_cast<double>(metrics.samples) / metrics.seconds);
  line.number("tokens_per_s", metrics.tokens ? static_cast<double>(metrics.tokens) / metrics.seconds : NAN);
  if (metrics.damaged)
    line.add(",\"damaged_samples\":{}", metrics.damaged);
  line.add("}}\n");
  return put(line.data(), line.size());
}

plan::Status MetricsFile::evaluation(uint64_t step, uint64_t epoch, double loss, std::optional<double> accuracy,
                                     double seconds) {
  Line line;
  line.add("{{\"step\":{},\"epoch\":{}", step, epoch);
  line.number("eval_loss", loss);
  line.number("eval_accuracy", accuracy.value_or(NAN));
  line.number("seconds", seconds);
  line.add("}}\n");
  return put(line.data(), line.size());
}

Progress::Progress(uint64_t totalSteps, uint64_t firstStep, uint64_t every, bool terminal, std::FILE *out)
    : total(totalSteps), first(firstStep), every(every), terminal(terminal), out(out), startTime(monotonicSeconds()) {
  if (every == 0 && !terminal)
    this->every = std::max<uint64_t>(1, (totalSteps - std::min(firstStep, totalSteps)) / 20);
}

plan::Status Progress::openLog(const std::string &path) {
  log.reset(std::fopen(path.c_str(), "a"));
  return log ? plan::Status() : plan::error("{}: cannot write: {}", path, std::strerror(errno));
}

void Progress::update(const UpdateMetrics &metrics) {
  double now = monotonicSeconds();
  bool last = metrics.step == total || metrics.step == first + 1;
  bool due = every != 0 ? metrics.step % every == 0 : now - lastShown >= 0.1;
  if (!due && !last)
    return;
  lastShown = now;
  double perStep = (now - startTime) / static_cast<double>(std::max<uint64_t>(metrics.step - first, 1));
  Line line;
  line.add("step {}/{}  loss {:.5g}  lr {:.3g}  ", metrics.step, total, metrics.loss, metrics.learningRate);
  if (metrics.tokens)
    line.add("{:.0f} tokens/s  ", static_cast<double>(metrics.tokens) / metrics.seconds);
  else
    line.add("{:.0f} samples/s  ", static_cast<double>(metrics.samples) / metrics.seconds);
  addDuration(line, perStep * static_cast<double>(total - std::min(metrics.step, total)));
  line.add(" left");
  if (terminal)
    std::fprintf(out, "\r\033[K%.*s", static_cast<int>(line.size()), line.data());
  else
    std::fprintf(out, "%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(out);
  lineOpen = terminal;
  if (log) {
    std::fprintf(log.get(), "%.*s\n", static_cast<int>(line.size()), line.data());
    std::fflush(log.get());
  }
}

void Progress::note(const std::string &text) {
  finish();
  std::fprintf(out, "%s\n", text.c_str());
  if (log) {
    std::fprintf(log.get(), "%s\n", text.c_str());
    std::fflush(log.get());
  }
}

void Progress::finish() {
  if (lineOpen)
    std::fputc('\n', out);
  lineOpen = false;
}

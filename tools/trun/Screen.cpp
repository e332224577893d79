//===- Screen.cpp - show the events of a run on a terminal ------------------===//
#include "tools/trun/Screen.h"
#include "support/TerminalText.h"
#include "tools/common/CommandLineWording.h"
#include "tools/common/StandardStreams.h"

#include <cerrno>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;

static constexpr double kRewriteSeconds = 0.1;
static constexpr size_t kUsualColumns = 80;

void Screen::print(std::string_view text) {
  if (!options.out)
    return;
  errno = 0;
  const bool good =
      std::fwrite(text.data(), 1, text.size(), options.out) == text.size() && std::fflush(options.out) == 0;
  if (good)
    return;
  std::clearerr(options.out);
  if (errno == EPIPE || errno == EIO || errno == ENXIO || errno == EBADF)
    options.out = nullptr;
}

void Screen::clear() {
  std::lock_guard lock(mutex);
  if (lineOpen)
    print("\r\033[K");
  lineOpen = false;
}

void Screen::line(const std::string &text) {
  std::lock_guard lock(mutex);
  if (lineOpen)
    print("\n");
  lineOpen = false;
  print(shownText(text) + "\n");
}

void Screen::rewrite(const std::string &text) {
  std::lock_guard lock(mutex);
  const double now = monotonicSeconds();
  if (!options.terminal || options.quiet || now - lastShown < kRewriteSeconds)
    return;
  lastShown = now;
  lineOpen = true;
  print("\r\033[K" + text);
}

void Screen::message(const Message &message) {
  if (!options.quiet || message.tone == Message::Tone::Warning)
    line(message.line());
}

void Screen::scanning(uint64_t done, uint64_t files, uint64_t samples) {
  rewrite(fmt::format("reading data: {} of {}{}", done, files, samples ? fmt::format(", {} samples", samples) : ""));
}

void Screen::evaluating(uint64_t done, uint64_t samples) {
  rewrite(fmt::format("evaluating: {} of {} samples", done, samples));
}

void Screen::begins(const RunFacts &facts) {
  pace = ProgressPace(facts, options.logEvery);
  folder = facts.folder;
  if (!options.quiet)
    for (const std::string &text : linesOf(facts))
      line(text);
}

void Screen::update(const UpdateMetrics &update) {
  if (options.quiet)
    return;
  std::lock_guard lock(mutex);
  const double now = monotonicSeconds();
  const bool rewrites = options.terminal && options.logEvery == 0;
  if (rewrites ? now - lastShown < kRewriteSeconds && !pace.isEnd(update.step) : !pace.isDue(update.step))
    return;
  lastShown = now;
  const double left = pace.secondsLeft(update.step);
  TextLine shown = progressLine(update, pace.totalSteps(), left, Detail::All);
  if (!options.terminal) {
    shown.add("\n");
    print(shown.view());
    return;
  }
  // Drop the least important parts until the line fits: a line that wraps cannot be rewritten.
  const size_t columns = columnsOf(::fileno(options.out ? options.out : stderr)).value_or(kUsualColumns);
  for (Detail most : {Detail::Speed, Detail::Time, Detail::Loss})
    if (characters(shown.view()) >= columns)
      shown = progressLine(update, pace.totalSteps(), left, most);
  TextLine again;
  again.add("\r\033[K{}", shown.view().substr(0, columns - 1));
  print(again.view());
  lineOpen = true;
}

void Screen::evaluated(const EvaluatedStep &evaluated) {
  clear();
  if (!options.quiet)
    line(lineOf(evaluated));
}

void Screen::ends(const RunEnd &end) {
  if (!options.quiet)
    for (const std::string &text : linesOf(end, folder))
      line(text);
}

void TrainScreen::tellTo(TrainOptions &train) {
  train.events = this;
  train.control = &control;
  train.wording = &commandLineWording();
}

//===- Screen.h - show the events of a run on a terminal ---------*- C++ -*-===//
//
// Progress is one rewritten line on a terminal, and plain lines elsewhere. A broken pipe, a closed terminal or a full
// disk ends the output, but not the run.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TRUN_SCREEN_H
#define TCC_TOOLS_TRUN_SCREEN_H

#include "runtime/train/RunText.h"
#include "runtime/train/Train.h"
#include "tools/trun/Signals.h"

#include <cstdio>
#include <mutex>
#include <optional>

namespace tcc::tools {

/// Where and how messages are shown.
struct ScreenOptions {
  std::FILE *out = stderr; ///< null: no output
  bool terminal = false;   ///< `out` is a terminal: a line may be rewritten
  bool quiet = false;      ///< show only warnings
  uint64_t logEvery = 0;   ///< updates between progress lines; 0: ten a second on a terminal, else about twenty in all
};

class Screen : public runtime::RunEvents {
public:
  explicit Screen(const ScreenOptions &options) : options(options) {}
  ~Screen() override { clear(); }
  Screen(const Screen &) = delete;
  Screen &operator=(const Screen &) = delete;

  void message(const Message &message) override;
  void scanning(uint64_t done, uint64_t files, uint64_t samples) override;
  void scanned() override { clear(); }
  void begins(const runtime::RunFacts &facts) override;
  void update(const runtime::UpdateMetrics &update) override;
  void evaluating(uint64_t done, uint64_t samples) override;
  void evaluated(const runtime::EvaluatedStep &evaluated) override;
  void ends(const runtime::RunEnd &end) override;

  /// Erases the rewritten line.
  void clear();

private:
  void print(std::string_view text);
  /// A line of its own, below the last progress line.
  void line(const std::string &text);
  /// Rewrites the line, at most ten times a second.
  void rewrite(const std::string &text);

  ScreenOptions options;
  std::recursive_mutex mutex; ///< messages come from any thread
  runtime::ProgressPace pace;
  std::string folder;
  bool lineOpen = false;
  double lastShown = -1;
};

/// The screen of a training run. From the moment the run writes files, signals stop it through RunControl.
class TrainScreen final : public Screen {
public:
  explicit TrainScreen(const ScreenOptions &options)
      : Screen(options), descriptor(options.out ? ::fileno(options.out) : -1) {}
  void opening() override { signals.emplace(control, descriptor); }
  /// Connects a run to this screen, which outlives it: its events, and the signals of the process.
  void tellTo(runtime::TrainOptions &train);

private:
  runtime::RunControl control;
  int descriptor;
  std::optional<SignalWatch> signals;
};

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_SCREEN_H

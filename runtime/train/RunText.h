//===- RunText.h - the events of a run in words ----------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RUNTEXT_H
#define TCC_RUNTIME_TRAIN_RUNTEXT_H

#include "runtime/train/RunEvents.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::runtime {

/// A line in a fixed buffer: writing it allocates nothing.
class TextLine {
public:
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    auto result = fmt::format_to_n(text + length, sizeof(text) - length, format, std::forward<Args>(args)...);
    length = std::min(sizeof(text), length + result.size);
  }
  std::string_view view() const { return {text, length}; }

private:
  char text[4096];
  size_t length = 0;
};

/// Levels of detail of a progress line; each includes those before it.
enum class Detail { Loss, Time, Speed, All };

/// "step 10/100  loss 0.123  lr 0.001  512 samples/s  0:12 left".
TextLine progressLine(const UpdateMetrics &metrics, uint64_t totalSteps, double secondsLeft, Detail most);

/// When a progress line is due: every so many updates, after the first update, and after the last.
class ProgressPace {
public:
  ProgressPace() = default;
  /// `every`: updates between two lines; 0: about twenty lines in all.
  ProgressPace(const RunFacts &facts, uint64_t every);
  bool isDue(uint64_t step) const { return isEnd(step) || (every != 0 && step % every == 0); }
  /// True for the first update and the last.
  bool isEnd(uint64_t step) const { return step == total || step == first + 1; }
  /// By the mean time of the updates since this object was made.
  double secondsLeft(uint64_t step) const;
  uint64_t totalSteps() const { return total; }

private:
  uint64_t total = 0, first = 0, every = 1;
  double begun = 0;
};

/// Data, length, choices and memory of a run, a line each.
std::vector<std::string> linesOf(const RunFacts &facts);
/// "step 10/100  eval_loss 0.5  eval_accuracy 0.7500".
std::string lineOf(const EvaluatedStep &evaluated);
/// "checkpoint of update 10: 1.2 MiB, training waited 0.001 s, durable after 0.010 s".
std::string lineOf(const WrittenCheckpoint &checkpoint);
/// "100 updates in 12.3 s; RUN".
std::vector<std::string> linesOf(const RunEnd &end, const std::string &folder);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RUNTEXT_H

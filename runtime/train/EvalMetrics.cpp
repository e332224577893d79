//===- EvalMetrics.cpp - metrics of predictions, computed on the host ----===//
#include "runtime/train/EvalMetrics.h"
#include "runtime/plan/DType.h"
#include "support/Advice.h"
#include "support/PlanNames.h"
#include "support/recipe/Kinds.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace tcc;
using namespace tcc::runtime;

static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

Expected<EvalMetrics> EvalMetrics::create(const EntryRunner &runner, const std::vector<std::string> &names,
                                          const std::string &lossKind, std::optional<int64_t> ignoreIndex, bool pairs) {
  EvalMetrics made;
  for (const std::string &name : names)
    if (const MetricKind *metric = findMetricKind(name);
        metric && (metric->fromPrediction || (name == "accuracy" && !isGivenByLoss(*metric, lossKind))))
      made.tasks.push_back(name);
  const LossKind *loss = findLossKind(lossKind);
  const bool ofLabels = loss && loss->target == LossTargetForm::Labels;
  if (pairs && !isClassification(lossKind) && !ofLabels)
    return Status("a confusion matrix needs a loss over classes: cross_entropy, nll, or bce and bce_with_logits of one "
                  "label",
                  StatusCode::Usage);
  if (made.tasks.empty() && !pairs)
    return made;
  made.prediction = runner.outputIndex(outputs::kPrediction);
  made.target = runner.outputIndex(outputs::kPredictionTarget);
  if (pairs && (made.prediction < 0 || made.target < 0))
    return Status(fmt::format("a confusion matrix is made of predictions, which evaluations of this plan do not give; "
                              "compile with {}",
                              advice::compileSet("evaluate.metrics", "[\"f1\"]")),
                  StatusCode::Usage);
  if (made.prediction < 0 || made.target < 0)
    return error("the plan's entry 'evaluate' gives no prediction, which the metric {} is computed from; compile again",
                 made.tasks.front());
  made.form = isClassification(lossKind) ? Form::Classes : ofLabels ? Form::Labels : Form::Numbers;
  made.logits = loss && loss->logits;
  made.ignoreIndex = ignoreIndex;
  made.batch = static_cast<uint64_t>(std::max<int64_t>(runner.entry().batch(), 1));
  const plan::TensorType &scores = runner.outputType(made.prediction), &targets = runner.outputType(made.target);
  uint64_t elements = plan::elementCount(scores).value_or(0), goals = plan::elementCount(targets).value_or(0);
  // A row of scores belongs to one target for classes, and to one sample for labels and numbers.
  uint64_t rows = made.form == Form::Classes ? goals : made.batch;
  bool fits =
      scores.dtype() == plan::F32 && rows != 0 && elements % rows == 0 && rows % made.batch == 0 &&
      (made.form == Form::Classes ? targets.dtype() == plan::I64 : targets.dtype() == plan::F32 && goals == elements);
  if (!fits)
    return error("the plan's entry 'evaluate' gives a prediction of {} and a target of {}; compile again",
                 plan::typeName(scores), plan::typeName(targets));
  made.columns = elements / rows;
  made.predictionBytes.resize(plan::tensorBytes(scores).value_or(0));
  made.targetBytes.resize(plan::tensorBytes(targets).value_or(0));
  constexpr uint64_t kMostClasses = 4096;
  if (pairs && made.columns > kMostClasses)
    return error("a confusion matrix of {} classes would have {} numbers; the most classes are {}", made.columns,
                 made.columns * made.columns, kMostClasses);
  if (pairs && ofLabels && made.columns != 1)
    return Status(
        fmt::format("a confusion matrix has one class for each sample, and here a sample has {} labels of its "
                    "own; f1 and auroc are metrics of them",
                    made.columns),
        StatusCode::Usage);
  const uint64_t classes = ofLabels ? 2 : made.columns; // a label is absent or present
  if (pairs)
    made.classPairs.resize(classes * classes);
  if (made.wants("f1"))
    made.confusion.resize(made.columns);
  if (made.wants("auroc"))
    made.rankings.resize(made.form == Form::Classes && made.columns == 2 ? 1 : made.columns);
  if (made.wants("r2"))
    made.regressions.resize(made.columns);
  return made;
}

bool EvalMetrics::wants(const char *name) const { return std::find(tasks.begin(), tasks.end(), name) != tasks.end(); }

Status EvalMetrics::add(const EntryRunner &runner, uint64_t samples) {
  if (prediction < 0)
    return Status();
  Status status = runner.readOutput(prediction, 0, predictionBytes);
  if (status.ok())
    status = runner.readOutput(target, 0, targetBytes);
  if (!status.ok())
    return status;
  auto part = [&]<typename T>(std::vector<std::byte> &bytes, T) {
    std::span<const T> all(reinterpret_cast<const T *>(bytes.data()), bytes.size() / sizeof(T));
    return all.first(all.size() / batch * samples);
  };
  std::span<const float> scores = part(predictionBytes, float());
  if (form == Form::Classes)
    addClasses(scores, part(targetBytes, int64_t()));
  else if (form == Form::Labels)
    addLabels(scores, part(targetBytes, float()));
  else
    addNumbers(scores, part(targetBytes, float()));
  return Status();
}

void EvalMetrics::addClasses(std::span<const float> scores, std::span<const int64_t> targets) {
  for (size_t row = 0; row < targets.size(); ++row) {
    int64_t label = targets[row];
    if (label == ignoreIndex || label < 0 || static_cast<uint64_t>(label) >= columns)
      continue;
    ++counted;
    std::span<const float> line = scores.subspan(row * columns, columns);
    auto goal = static_cast<size_t>(label);
    // Equal scores are ranked by class number, as in the accuracy.
    uint64_t before = 0;
    size_t best = 0;
    float most = line[0];
    for (size_t c = 0; c < columns; ++c) {
      before += line[c] > line[goal] || (line[c] == line[goal] && c < goal);
      if (line[c] > line[best])
        best = c;
      most = std::max(most, line[c]);
    }
    top5 += before < 5;
    if (!classPairs.empty())
      ++classPairs[goal * columns + best];
    if (!confusion.empty()) {
      ++confusion[best].predicted;
      ++confusion[goal].present;
      confusion[goal].hit += best == goal;
    }
    if (rankings.size() == 1) {
      rankings[0].scores.emplace_back(line[1] - line[0], label == 1);
    } else if (!rankings.empty()) {
      double sum = 0;
      for (float score : line)
        sum += std::exp(static_cast<double>(score) - most);
      for (size_t c = 0; c < columns; ++c)
        rankings[c].scores.emplace_back(static_cast<float>(std::exp(static_cast<double>(line[c]) - most) / sum),
                                        c == goal);
    }
  }
}

void EvalMetrics::addLabels(std::span<const float> scores, std::span<const float> targets) {
  const float threshold = logits ? 0.0f : 0.5f;
  for (size_t i = 0; i < scores.size(); ++i) {
    bool present = targets[i] > 0.5f, predicted = scores[i] > threshold;
    ++counted;
    correct += present == predicted;
    if (!classPairs.empty())
      ++classPairs[size_t(present) * 2 + size_t(predicted)];
    if (!confusion.empty()) {
      confusion[i % columns].predicted += predicted;
      confusion[i % columns].present += present;
      confusion[i % columns].hit += present && predicted;
    }
    if (!rankings.empty())
      rankings[i % columns].scores.emplace_back(scores[i], present);
  }
}

void EvalMetrics::addNumbers(std::span<const float> predictions, std::span<const float> targets) {
  for (size_t i = 0; i < predictions.size(); ++i) {
    double goal = targets[i], miss = static_cast<double>(predictions[i]) - goal;
    ++counted;
    absolute += std::abs(miss);
    if (regressions.empty())
      continue;
    Regression &column = regressions[i % columns];
    double away = goal - column.mean;
    column.mean += away / static_cast<double>(++column.count);
    column.squares += away * (goal - column.mean);
    column.errors += miss * miss;
  }
}

/// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
void EvalMetrics::Regression::merge(const Regression &other) {
  if (other.count == 0)
    return;
  const auto before = static_cast<double>(count), added = static_cast<double>(other.count);
  const double away = other.mean - mean, share = added / (before + added);
  count += other.count;
  mean += away * share;
  squares += other.squares + away * away * before * share;
  errors += other.errors;
}

std::string EvalMetrics::take() {
  std::string bytes;
  auto append = [&](auto &value) {
    bytes.append(reinterpret_cast<const char *>(&value), sizeof(value));
    value = {};
  };
  append(counted), append(top5), append(correct), append(absolute);
  for (Confusion &one : confusion)
    append(one);
  for (uint64_t &one : classPairs)
    append(one);
  for (Regression &one : regressions)
    append(one);
  for (Ranking &one : rankings) {
    uint64_t count = one.scores.size();
    append(count);
    for (auto [score, present] : one.scores)
      append(score), append(present);
    one.scores.clear();
  }
  return bytes;
}

Expected<std::string_view> EvalMetrics::merge(std::string_view sums) {
  bool whole = true;
  auto next = [&]<typename T>(T value) {
    whole = whole && sums.size() >= sizeof(T);
    if (whole) {
      std::memcpy(&value, sums.data(), sizeof(T));
      sums.remove_prefix(sizeof(T));
    }
    return value;
  };
  counted += next(uint64_t(0));
  top5 += next(uint64_t(0));
  correct += next(uint64_t(0));
  absolute += next(0.0);
  for (Confusion &one : confusion) {
    const Confusion other = next(Confusion());
    one.hit += other.hit, one.predicted += other.predicted, one.present += other.present;
  }
  for (uint64_t &one : classPairs)
    one += next(uint64_t(0));
  for (Regression &one : regressions)
    one.merge(next(Regression()));
  for (Ranking &one : rankings)
    for (uint64_t count = next(uint64_t(0)); count != 0 && whole; --count) {
      const float score = next(0.0f);
      one.scores.emplace_back(score, next(false));
    }
  return whole ? Expected<std::string_view>(sums) : error("internal error: the sums of an evaluation are cut short");
}

/// Mann and Whitney's statistic: the share of pairs (positive, negative) in which the positive has the larger score;
/// equal scores count half.
double EvalMetrics::Ranking::area() const {
  if (std::any_of(scores.begin(), scores.end(), [](const auto &one) { return std::isnan(one.first); }))
    return kNone;
  std::vector<std::pair<float, bool>> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  double wins = 0;
  uint64_t negatives = 0, positives = 0;
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    uint64_t same[2] = {};
    for (end = begin; end < sorted.size() && sorted[end].first == sorted[begin].first; ++end)
      ++same[sorted[end].second];
    wins += static_cast<double>(same[1]) * (static_cast<double>(negatives) + static_cast<double>(same[0]) / 2);
    negatives += same[0];
    positives += same[1];
  }
  return negatives == 0 || positives == 0
             ? kNone
             : wins / (static_cast<double>(negatives) * static_cast<double>(positives));
}

double EvalMetrics::valueOf(const std::string &name) const {
  const auto all = static_cast<double>(counted);
  double sum = 0;
  uint64_t count = 0;
  auto add = [&](double value) {
    sum += value;
    ++count;
  };
  if (name == "top5")
    return static_cast<double>(top5) / all;
  if (name == "accuracy")
    return static_cast<double>(correct) / all;
  if (name == "mae")
    return absolute / all;
  if (name == "f1")
    for (const Confusion &one : confusion)
      if (one.predicted + one.present != 0)
        add(2.0 * static_cast<double>(one.hit) / static_cast<double>(one.predicted + one.present));
  if (name == "auroc")
    for (const Ranking &one : rankings)
      if (double area = one.area(); !std::isnan(area))
        add(area);
  if (name == "r2")
    for (const Regression &one : regressions)
      add(one.squares != 0 ? 1 - one.errors / one.squares : one.errors == 0 ? 1 : 0);
  return sum / static_cast<double>(count);
}

std::vector<std::pair<std::string, double>> EvalMetrics::values() const {
  std::vector<std::pair<std::string, double>> result;
  for (const std::string &name : tasks)
    result.emplace_back(name, valueOf(name));
  return result;
}

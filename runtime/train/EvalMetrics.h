//===- EvalMetrics.h - metrics of predictions, computed on the host ------===//
//
// The entry `evaluate` of a plan with evaluate.metrics outputs the prediction, with classes as the last axis, and its
// target. Each batch has its own sums, which are added in the order of the batches; only AUROC keeps every score. All
// arithmetic is in f64, in the order of the samples, so the number of threads or ranks changes no bit.
// docs/guide/evaluation.md has the formulas.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_EVALMETRICS_H
#define TCC_RUNTIME_TRAIN_EVALMETRICS_H

#include "runtime/train/EntryRunner.h"

namespace tcc::runtime {

/// The sums of the metrics that one evaluation computes.
class EvalMetrics {
public:
  /// `names`: evaluate.metrics; those that need no prediction are skipped. `ignoreIndex`: the target that does not
  /// count. Error: the entry lacks an output that a metric needs. With `pairs`, pairs of target class and predicted
  /// class are counted; for one label (bce) the classes are absent (0) and present (1). It is an error if there are no
  /// classes.
  static Expected<EvalMetrics> create(const EntryRunner &runner, const std::vector<std::string> &names,
                                      const std::string &lossKind, std::optional<int64_t> ignoreIndex,
                                      bool pairs = false);

  /// Adds the first `samples` of the runner's last batch. Error: the device's.
  Status add(const EntryRunner &runner, uint64_t samples);

  /// Returns the sums so far as bytes, for exchange between ranks, and resets them to 0.
  std::string take();
  /// Adds the result of take() for the same metrics; returns the bytes after it. Error: they are cut short.
  Expected<std::string_view> merge(std::string_view sums);

  /// Metric → value, in the order of the names, without "eval_"; NaN if no sample determines it.
  std::vector<std::pair<std::string, double>> values() const;

  /// At i · classes + j: how often class j was predicted for a target of class i (one label: 2 classes). Empty if pairs
  /// are not counted.
  const std::vector<uint64_t> &pairs() const { return classPairs; }

private:
  /// Scores of one label against the others, and whether the target is that label.
  struct Ranking {
    std::vector<std::pair<float, bool>> scores;
    double area() const;
  };
  struct Confusion {
    uint64_t hit = 0, predicted = 0, present = 0;
  };
  struct Regression {
    uint64_t count = 0;
    double mean = 0, squares = 0, errors = 0; ///< of the targets: Welford's sums; of the prediction: Σ (p − t)²
    void merge(const Regression &other);
  };
  void addClasses(std::span<const float> scores, std::span<const int64_t> targets);
  void addLabels(std::span<const float> scores, std::span<const float> targets);
  void addNumbers(std::span<const float> predictions, std::span<const float> targets);
  double valueOf(const std::string &name) const;
  bool wants(const char *name) const;

  std::vector<std::string> tasks;
  enum class Form { Classes, Labels, Numbers } form = Form::Numbers;
  bool logits = false; ///< Labels: above 0 is positive, else above 1/2
  std::optional<int64_t> ignoreIndex;
  int prediction = -1, target = -1; ///< outputs of the entry
  uint64_t batch = 1, columns = 1;  ///< samples of a call; classes, labels or numbers of a row
  std::vector<std::byte> predictionBytes, targetBytes;

  uint64_t counted = 0, top5 = 0, correct = 0;
  double absolute = 0;
  std::vector<Confusion> confusion;
  std::vector<uint64_t> classPairs;
  std::vector<Ranking> rankings;
  std::vector<Regression> regressions;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_EVALMETRICS_H

//===- Evaluate.cpp - loss and accuracy over a whole data set ------------===//
#include "runtime/train/Evaluate.h"
#include "runtime/plan/DType.h"
#include "runtime/train/EvalMetrics.h"
#include "runtime/train/Settings.h"
#include "support/Advice.h"
#include "support/PlanNames.h"
#include "support/recipe/Kinds.h"
#include "support/recipe/MetricGoal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// The sums of an evaluation: loss, weight, correct, counted; then loss and weight of each of several losses.
using Sums = std::vector<double>;
constexpr std::array<const char *, 4> kSumNames = {outputs::kLossSum, outputs::kLossWeight, outputs::kCorrect,
                                                   outputs::kCounted};

bool hasCollectives(const plan::Entry &entry) {
  return std::any_of(entry.instructions().begin(), entry.instructions().end(),
                     [](const plan::Instruction &one) { return one.has_collective(); });
}

std::vector<uint64_t> indicesOf(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}
} // namespace

/// The texts of all ranks, of any length.
static Expected<std::vector<std::string>> gatherLongTexts(Communicator &ranks, const std::string &own) {
  constexpr uint64_t kPiece = uint64_t(4) << 20;
  auto lengths = ranks.gatherTexts(std::to_string(own.size()));
  if (!lengths)
    return lengths.status();
  uint64_t longest = 0;
  for (const std::string &length : *lengths)
    longest = std::max<uint64_t>(longest, std::strtoull(length.c_str(), nullptr, 10));
  std::vector<std::string> texts(ranks.size());
  for (uint64_t at = 0; at < longest; at += kPiece) {
    auto pieces = ranks.gatherTexts(at < own.size() ? own.substr(at, kPiece) : std::string());
    if (!pieces)
      return pieces.status();
    for (size_t rank = 0; rank < texts.size(); ++rank)
      texts[rank] += (*pieces)[rank];
  }
  return texts;
}

namespace {
/// A graph output that is averaged over the samples.
struct Averaged {
  std::string name;
  double sum = 0, total = 0; ///< of a batch; of all
};

/// The entry in one of the plan's shapes.
struct Shape {
  EntryRunner *runner;
  BatchReader *reader;
  std::vector<int> outputs; ///< in the order of Sums
  EvalMetrics metrics;      ///< of a batch
  /// Of each Averaged: the output, or -1, and whether it has an element for each sample.
  std::vector<std::pair<int, bool>> averages;

  uint64_t batch() const { return reader->batch(); }
};

struct ShapeRun {
  EntryRunner *runner;
  BatchReader *reader;
};

/// One pass over a data set.
class Pass {
public:
  Pass(std::span<const ShapeRun> runs, Sampler order, const EvaluateOptions &options)
      : sampler(std::move(order)), options(options),
        together(options.ranks && options.ranks->size() > 1 && hasCollectives(runs.front().runner->entry())) {
    for (const ShapeRun &run : runs)
      shapes.push_back({run.runner, run.reader, {}, {}, {}});
  }

  Expected<Evaluation> run() {
    for (const std::string &name : options.metrics)
      if (!findMetricKind(name))
        averages.push_back({name});
    for (Shape &shape : shapes)
      if (Status status = bind(shape); !status.ok())
        return status;
    numbers.sums.resize(shapes.front().outputs.size());
    total.resize(numbers.sums.size());
    totals = shapes.front().metrics;
    const bool counts = shapes.front().outputs[2] >= 0 && shapes.front().outputs[3] >= 0;
    Evaluation result;
    auto complete = options.ranks && options.ranks->size() > 1 ? runShare() : runAll();
    if (!complete)
      return complete.status();
    if (!*complete) {
      result.complete = false;
      return result;
    }
    result.loss = options.losses.empty() ? total[0] / total[1] : addLosses(result);
    if (counts)
      result.accuracy = total[2] / total[3];
    result.samples = counted;
    result.confusion = totals.pairs();
    for (const std::string &name : options.metrics)
      addValue(name, result);
    return result;
  }

private:
  /// The sums of one batch.
  struct Numbers {
    Sums sums;
    uint64_t counted = 0;
  };

  /// Finds what the evaluation reads of the entry in this shape.
  Status bind(Shape &shape) {
    const EntryRunner &runner = *shape.runner;
    for (const char *name : kSumNames)
      shape.outputs.push_back(runner.outputIndex(name));
    for (const auto &[name, scale] : options.losses)
      for (std::string_view prefix : {outputs::kTermSum, outputs::kTermWeight})
        shape.outputs.push_back(runner.outputIndex(std::string(prefix) + name));
    for (size_t i = 0; i < shape.outputs.size(); ++i)
      if (shape.outputs[i] < 0 && i != 2 && i != 3)
        return error("the plan's entry 'evaluate' gives no loss; compile again");
    auto made =
        EvalMetrics::create(*shape.runner, options.metrics, options.lossKind, options.ignoreIndex, options.confusion);
    if (!made)
      return made.status();
    shape.metrics = made.take();
    for (const Averaged &one : averages) {
      const int output = runner.outputIndex(std::string(outputs::kAveragedPrefix) + one.name);
      shape.averages.emplace_back(output, output >= 0 && runner.entry().outputs(output).sample_axis() == 0);
    }
    return Status();
  }

  uint64_t samples() const { return shapes.front().reader->samples(); }

  /// Adds the several losses to the result; returns their scaled sum. A loss whose weight is 0 adds nothing.
  double addLosses(Evaluation &result) const {
    double sum = 0;
    for (size_t i = 0; i < options.losses.size(); ++i) {
      const auto &[name, scale] = options.losses[i];
      const double numerator = total[4 + 2 * i], weight = total[5 + 2 * i];
      sum += weight != 0 ? scale * (numerator / weight) : 0;
      result.others.emplace_back("loss/" + name, numerator / weight);
    }
    return sum;
  }

  /// Runs every `ranks`-th batch from `rank` on; `take` gets the sums of each. False: it was ended early.
  template <typename Take> Expected<bool> runBatches(uint64_t rank, uint64_t ranks, Take &&take) {
    uint64_t done = 0; // by all ranks
    for (uint64_t n = 0, count = sampler.batchesPerEpoch(); n < count; ++n) {
      const uint64_t before = done;
      done += sampler.globalSamples(0, n);
      if (n % ranks != rank)
        continue;
      if (options.goesOn && !options.goesOn(before))
        return false;
      std::vector<uint64_t> indices;
      sampler.batchOf(0, n, indices);
      number = n;
      if (Status status = runBatch(shapes[sampler.shapeOf(0, n)], indices); !status.ok())
        return status;
      if (Status status = take(takeSums(shapes[sampler.shapeOf(0, n)])); !status.ok())
        return status;
    }
    return true;
  }

  Expected<bool> runAll() {
    return runBatches(0, 1, [&](const std::string &sums) {
      std::string_view left = sums;
      return addSums(left);
    });
  }

  /// Runs this rank's batches, then adds the sums of all ranks' batches in their order.
  Expected<bool> runShare() {
    const uint64_t ranks = options.ranks->size();
    std::string own(1, '\1');
    auto complete = runBatches(options.ranks->rank(), ranks, [&](const std::string &sums) {
      own += sums;
      return Status();
    });
    if (!complete)
      return complete.status();
    own[0] = *complete ? '\1' : '\0';
    const BatchReader &reader = *shapes.front().reader;
    const uint64_t damaged = reader.damagedSamples().size();
    if (together)
      if (Status status = runAlong(); !status.ok())
        return status;
    own.append(reinterpret_cast<const char *>(&damaged), sizeof(damaged));
    auto texts = gatherLongTexts(*options.ranks, own);
    if (!texts)
      return texts.status();
    std::vector<std::string_view> left(texts->begin(), texts->end());
    uint64_t allDamaged = 0;
    for (std::string_view &text : left) {
      if (text.size() < 1 + sizeof(uint64_t))
        return error("internal error: the sums of an evaluation are cut short");
      if (text[0] == '\0')
        return false;
      uint64_t count = 0;
      std::memcpy(&count, text.data() + text.size() - sizeof(count), sizeof(count));
      allDamaged += count;
      text = text.substr(1, text.size() - 1 - sizeof(count));
    }
    if (allDamaged > reader.mostDamaged())
      return error("the ranks found {} damaged samples in the evaluation data, data.max_bad allows {}; `{}` lists "
                   "them, {} leaves "
                   "up to N out",
                   allDamaged, reader.mostDamaged(), advice::command("data"), advice::set("data.max_bad", "N"));
    for (uint64_t n = 0; n < sampler.batchesPerEpoch(); ++n)
      if (Status status = addSums(left[n % ranks]); !status.ok())
        return status;
    return true;
  }

  /// Once this rank has no batch left, runs the entry as often as the other ranks do, so that its collectives match.
  Status runAlong() {
    for (;;) {
      auto others = options.ranks->anyOf(0);
      if (!others || *others == 0)
        return others.status();
      for (uint64_t n = 0; spare.empty() && n < sampler.batchesPerEpoch(); ++n) {
        sampler.batchOf(0, n, spare);
        spareShape = sampler.shapeOf(0, n);
        if (Status status = fill(shapes[spareShape], spare); !status.ok())
          return status;
      }
      std::vector<uint64_t> again = spare;
      Status status = fill(shapes[spareShape], again);
      if (status.ok())
        status = shapes[spareShape].runner->run();
      if (!status.ok())
        return status;
    }
  }

  /// Gives the entry the samples; removes damaged ones from `indices`.
  Status fill(Shape &shape, std::vector<uint64_t> &indices, bool mask) {
    return shape.runner->giveInputs(
        [&](auto inputs) { return shape.reader->fillSound(indices, BatchReader::Damaged::Drop, mask, inputs); });
  }
  Status fill(Shape &shape, std::vector<uint64_t> &indices) { return fill(shape, indices, shape.reader->maskable()); }

  /// Returns the sums of the last batch, in this shape, as bytes, and resets them to 0.
  std::string takeSums(Shape &shape) {
    const size_t sums = numbers.sums.size() * sizeof(double);
    std::string bytes(reinterpret_cast<const char *>(numbers.sums.data()), sums);
    bytes.append(reinterpret_cast<const char *>(&numbers.counted), sizeof(numbers.counted));
    numbers = {Sums(numbers.sums.size()), 0};
    for (Averaged &one : averages) {
      bytes.append(reinterpret_cast<const char *>(&one.sum), sizeof(one.sum));
      one.sum = 0;
    }
    return bytes + shape.metrics.take();
  }

  /// Adds a result of takeSums() to the total; `bytes` is advanced behind it.
  Status addSums(std::string_view &bytes) {
    Numbers more{Sums(total.size()), 0};
    std::vector<double> means(averages.size());
    const size_t sums = total.size() * sizeof(double);
    if (bytes.size() < sums + sizeof(more.counted) + means.size() * sizeof(double))
      return error("internal error: the sums of an evaluation are cut short");
    std::memcpy(more.sums.data(), bytes.data(), sums);
    std::memcpy(&more.counted, bytes.data() + sums, sizeof(more.counted));
    bytes.remove_prefix(sums + sizeof(more.counted));
    if (!means.empty())
      std::memcpy(means.data(), bytes.data(), means.size() * sizeof(double));
    bytes.remove_prefix(means.size() * sizeof(double));
    for (size_t i = 0; i < total.size(); ++i)
      total[i] += more.sums[i];
    counted += more.counted;
    for (size_t i = 0; i < means.size(); ++i)
      averages[i].total += means[i];
    auto left = totals.merge(bytes);
    if (left)
      bytes = *left;
    return left.status();
  }

  /// Runs the samples; removes damaged ones from `indices`.
  Status call(Shape &shape, std::vector<uint64_t> &indices, bool mask, Sums &sums) {
    sums.assign(shape.outputs.size(), 0);
    shape.runner->setCounters(0, number);
    Status status = fill(shape, indices, mask);
    if (status.ok() && indices.empty())
      return status;
    if (status.ok() && together) {
      spare = indices;
      spareShape = static_cast<size_t>(&shape - shapes.data());
      status = options.ranks->anyOf(1).status(); // ranks without a batch run the entry, too
    }
    if (status.ok())
      status = shape.runner->run();
    for (size_t i = 0; i < sums.size() && status.ok(); ++i)
      status = shape.runner->addScalar(shape.outputs[i], sums[i]);
    return status;
  }

  Status runBatch(Shape &shape, std::vector<uint64_t> &indices) {
    Sums &sums = numbers.sums;
    const uint64_t batch = shape.batch();
    const bool maskable = shape.reader->maskable();
    Status status = call(shape, indices, maskable, sums);
    numbers.counted = indices.size();
    if (!status.ok() || indices.empty())
      return status;
    if (status = shape.metrics.add(*shape.runner, indices.size()); !status.ok())
      return status;
    bool padded = indices.size() < batch, unsampled = false;
    for (size_t i = 0; i < averages.size(); ++i) {
      const bool sampled = shape.averages[i].second;
      if (status = addAverage(shape, i, sampled ? indices.size() : batch, static_cast<double>(batch)); !status.ok())
        return status;
      unsampled |= !sampled;
    }
    if (padded && (!maskable || unsampled)) {
      std::vector<uint64_t> last = {indices.back()};
      Sums copies;
      if (status = call(shape, last, false, copies); !status.ok())
        return status;
      auto padding = static_cast<double>(batch - indices.size());
      for (size_t i = 0; i < sums.size() && !maskable; ++i)
        sums[i] -= padding / static_cast<double>(batch) * copies[i];
      for (size_t i = 0; i < averages.size(); ++i)
        if (!shape.averages[i].second)
          if (status = addAverage(shape, i, batch, -padding); !status.ok())
            return status;
    }
    return status;
  }

  /// Adds `weight` times the mean of an output, or of a sampled one the sum of its samples' means.
  Status addAverage(const Shape &shape, size_t which, uint64_t samples, double weight) {
    Averaged &one = averages[which];
    const auto [output, sampled] = shape.averages[which];
    if (output < 0)
      return error("the plan's entry 'evaluate' gives no output '{}', which evaluate.metrics names; compile again",
                   one.name);
    std::vector<float> values(plan::elementCount(shape.runner->outputType(output)).value_or(0));
    if (Status status = shape.runner->readOutput(output, 0, std::as_writable_bytes(std::span(values))); !status.ok())
      return status;
    const size_t perSample = values.size() / (sampled ? shape.batch() : 1),
                 count = sampled ? perSample * samples : perSample;
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
      sum += values[i];
    one.sum += sum / static_cast<double>(perSample) * (sampled ? 1 : weight);
    return Status();
  }

  /// Adds a metric to `others`; loss and accuracy have members of their own.
  void addValue(const std::string &name, Evaluation &result) const {
    if (name == "perplexity") // metrics belong to the first of several losses
      result.others.emplace_back(name, std::exp(options.losses.empty() ? result.loss : total[4] / total[5]));
    for (const auto &[known, value] : totals.values())
      if (known == name)
        result.others.emplace_back(name, value);
    for (const Averaged &one : averages)
      if (one.name == name)
        result.others.emplace_back(name, one.total / static_cast<double>(counted));
  }

  std::vector<Shape> shapes;
  const Sampler sampler; ///< the batches, in the order of the samples
  const EvaluateOptions &options;
  uint64_t number = 0, counted = 0; ///< of the batch; samples of all
  /// The entry gathers parameters, so all ranks must run it together.
  const bool together;
  std::vector<uint64_t> spare; ///< readable samples for runs whose results are discarded
  size_t spareShape = 0;
  Numbers numbers; ///< of a batch
  Sums total;
  EvalMetrics totals; ///< of all batches
  std::vector<Averaged> averages;
};
} // namespace

EvaluateOptions tcc::runtime::evaluateOptionsOf(const Session &session) {
  const auto &metrics = session.training.evaluation().metrics();
  EvaluateOptions options;
  options.metrics.assign(metrics.begin(), metrics.end());
  options.lossKind = session.training.loss_kind();
  options.ignoreIndex = ignoreIndexOf(session.plan().training());
  for (const plan::LossTerm &term : session.training.losses())
    options.losses.emplace_back(term.name(), term.scale());
  return options;
}

bool tcc::runtime::predictsClasses(const Session &session) { return isClassification(session.training.loss_kind()); }

std::vector<std::string> tcc::runtime::evaluationKeys(const Session &session) {
  const auto &metrics = session.training.evaluation().metrics();
  std::vector<std::string> keys =
      tcc::evaluationKeys(session.training.loss_kind(), {metrics.begin(), metrics.end()}, session.training.has_ema());
  for (const plan::LossTerm &term : session.training.losses())
    for (const char *prefix : {"", "ema_"})
      if (*prefix == 0 || session.training.has_ema())
        keys.push_back(std::string(prefix) + "eval_loss/" + term.name());
  return keys;
}

/// The samples in their order, the last batch of each shape padded.
static Sampler inOrder(const BatchReader &first) {
  return {first.samples(), first.samples(), first.batch(), SampleOrder::Ordered, 0, LastBatch::Pad};
}

Expected<Evaluation> tcc::runtime::evaluate(EntryRunner &runner, BatchReader &reader, const EvaluateOptions &options) {
  const ShapeRun run{&runner, &reader};
  return Pass({&run, 1}, inOrder(reader), options).run();
}

Expected<Evaluation> tcc::runtime::evaluate(std::span<EntryRunner> runners, const EntryData &data,
                                            const EvaluateOptions &options) {
  std::vector<ShapeRun> runs;
  for (size_t shape = 0; shape < runners.size(); ++shape)
    runs.push_back({&runners[shape], data.readers[shape].get()});
  Sampler sampler = inOrder(data.reader());
  if (Status status = gatherByShape(data, /*drawsAtRandom=*/false, sampler); !status.ok())
    return status;
  return Pass(runs, std::move(sampler), options).run();
}

Expected<JoinedOutputs> tcc::runtime::predictedOutputs(const EntryRunner &runner, const BatchReader &reader) {
  return JoinedOutputs::create(runner.entry(), reader.samples(), reader.batch());
}

Status tcc::runtime::predict(EntryRunner &runner, BatchReader &reader, JoinedOutputs &outputs) {
  const uint64_t samples = reader.samples(), batch = reader.batch();
  for (uint64_t begin = 0; begin < samples; begin += batch) {
    std::vector<uint64_t> indices = indicesOf(begin, std::min(begin + batch, samples));
    runner.setCounters(0, begin / batch);
    Status status = runner.giveInputs([&](auto inputs) { return reader.fill(indices, false, inputs); });
    if (status.ok())
      status = runner.run();
    if (status.ok())
      status = outputs.take(runner, begin, indices.size());
    if (!status.ok())
      return status;
  }
  return Status();
}

/// In several shapes. `outputs` takes the samples of all.
static Status predictByShape(std::span<EntryRunner> runners, const EntryData &data, JoinedOutputs &outputs) {
  Sampler sampler = inOrder(data.reader());
  if (Status status = gatherByShape(data, /*drawsAtRandom=*/false, sampler); !status.ok())
    return status;
  std::vector<uint64_t> indices;
  for (uint64_t n = 0; n < sampler.batchesPerEpoch(); ++n) {
    sampler.batchOf(0, n, indices);
    EntryRunner &runner = runners[sampler.shapeOf(0, n)];
    BatchReader &reader = *data.readers[sampler.shapeOf(0, n)];
    runner.setCounters(0, n);
    Status status = runner.giveInputs([&](auto inputs) { return reader.fill(indices, false, inputs); });
    if (status.ok())
      status = runner.run();
    if (status.ok())
      status = outputs.take(runner, indices, reader);
    if (!status.ok())
      return status;
  }
  return Status();
}

Status tcc::runtime::writePredictions(std::span<EntryRunner> runners, const EntryData &data,
                                      const std::string &outputPath, ArrayFormat format,
                                      const std::vector<std::string> &classes) {
  std::vector<const plan::Entry *> shapes;
  for (const EntryRunner &runner : runners)
    shapes.push_back(&runner.entry());
  const size_t shape = data.shapeOfAll();
  auto bySample = JoinedOutputs::create(shapes, data.reader().samples());
  const bool together = shapes.size() == 1 || !bySample; // then all samples take the shape that holds all of them
  auto outputs = together ? predictedOutputs(runners[shape], *data.readers[shape]) : std::move(bySample);
  if (!outputs)
    return outputs.status();
  if (Status status = checkArrays(outputPath, format, outputs->arrays()); !status.ok())
    return status;
  if (Status status =
          together ? predict(runners[shape], *data.readers[shape], *outputs) : predictByShape(runners, data, *outputs);
      !status.ok())
    return status;
  std::vector<StreamedValue> tensors;
  for (size_t i = 0; i < outputs->arrays().size(); ++i)
    tensors.push_back({outputs->arrays()[i].name, outputs->arrays()[i].type,
                       [&whole = outputs->values(i)](const ByteSink &sink) { return sink(whole); }});
  return writeArrays(outputPath, format, std::move(tensors), classes);
}

Status tcc::runtime::writeGradients(EntryRunner &runner, BatchReader &reader, const std::string &outputPath,
                                    ArrayFormat format) {
  std::vector<ArraySpec> arrays;
  for (int i = 0; i < runner.entry().outputs_size(); ++i)
    arrays.push_back({runner.entry().outputs(i).name(), runner.outputType(i)});
  if (Status status = checkArrays(outputPath, format, arrays); !status.ok())
    return status;
  if (reader.samples() != reader.batch())
    return error("{} holds {} samples; gradients are of one batch: give exactly {}", advice::option("inputs"),
                 reader.samples(), reader.batch());
  Status status =
      runner.giveInputs([&](auto inputs) { return reader.fill(indicesOf(0, reader.batch()), false, inputs); });
  if (status.ok())
    status = runner.run();
  if (!status.ok())
    return status;
  const plan::Entry &entry = runner.entry();
  std::vector<StreamedValue> tensors;
  for (int i = 0; i < entry.outputs_size(); ++i) {
    std::string name = entry.outputs(i).name();
    if (name.starts_with(outputs::kGradientPrefix))
      name = name.substr(outputs::kGradientPrefix.size());
    tensors.push_back(
        {name, runner.outputType(i), [&runner, i](const ByteSink &sink) { return runner.streamOutput(i, sink); }});
  }
  return writeArrays(outputPath, format, std::move(tensors));
}

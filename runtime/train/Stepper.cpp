//===- Stepper.cpp - training in a loop of the caller's --------------------===//
#include "runtime/train/Stepper.h"
#include "runtime/plan/Shapes.h"
#include "runtime/state/Weights.h"
#include "runtime/train/LossScale.h"
#include "runtime/train/Resume.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Settings.h"
#include "support/Advice.h"
#include "support/NearestName.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;

Expected<std::unique_ptr<Stepper>> Stepper::create(Session session, const StepperOptions &options) {
  std::unique_ptr<Stepper> made(new Stepper);
  made->opened = std::make_unique<Session>(std::move(session));
  Session &own = *made->opened;
  if (Status status = requireRanks(own); !status.ok())
    return status;
  auto updates = UpdateRunner::create(own);
  if (!updates)
    return updates.status();
  made->updates = updates.take();
  made->batches = GivenBatches(own.virtualRanks().count);
  made->training.shapes = made->updates->dataEntries();
  made->training.trains = true;
  made->at.seed = options.seed.value_or(own.training.seed());
  made->at.scheduleTotal = options.totalSteps.value_or(0);
  made->updates->setSeed(made->at.seed);
  if (Status status = made->schedule(); !status.ok())
    return status;
  for (const plan::Port &port : made->training.entry().outputs())
    made->returnsOutputs |= port.name().starts_with(outputs::kTrainingPrefix);
  if (made->returnsOutputs)
    made->updates->observe([stepper = made.get()](const EntryRunner &runner, uint64_t number) {
      const uint64_t batch = static_cast<uint64_t>(runner.entry().batch()), begin = stepper->batches.firstRow(number);
      return stepper->joined->take(runner, begin, std::min(batch, stepper->joined->samples() - begin));
    });
  if (own.training.has_ema() && own.computes()) {
    made->averages = std::make_shared<WeightAverages>(own.plan(), own.training, *own.device);
    if (Status status = made->averages->start(); !status.ok())
      return status;
  }
  return made;
}

Status Stepper::schedule() {
  auto rates = LearningSchedule::create(opened->training.schedule(), at.scheduleTotal);
  return rates ? updates->setSchedule(rates.take()) : rates.status();
}

Expected<GivenData *> Stepper::bind(Binding &binding, std::span<const GivenTensor> tensors) {
  if (binding.data && binding.data->fits(tensors)) {
    binding.data->take(tensors);
    return binding.data.get();
  }
  const uint64_t microBatches = binding.trains ? rowsOf(1) : 1;
  auto bound = GivenData::bind(*opened, binding.shapes, binding.trains, tensors, microBatches);
  if (!bound)
    return bound.status();
  binding.data = bound.take();
  return binding.data.get();
}

Status Stepper::step(std::span<const GivenTensor> tensors, UpdateMetrics &metrics) {
  if (spoiled)
    return error("the last update left values that are not finite; load a state, or write one, before the next update");
  node.clear();
  auto data = bind(training, tensors);
  if (!data)
    return data.status();
  const uint64_t most = rowsOf((*data)->reader().batch());
  if (const uint64_t given = (*data)->reader().samples(); given > most || given == 0)
    return Status(fmt::format("{} rows; an update takes {}, or fewer", given, most), StatusCode::Usage);
  const uint64_t ranks = opened->virtualRanks().count;
  if (const uint64_t given = (*data)->reader().samples(), all = (*data)->reader().batch() * ranks;
      ranks > 1 && given % all != 0)
    return Status(
        fmt::format("{} rows; each of {} virtual ranks takes a batch of {}, so give {}, or a multiple of that", given,
                    ranks, (*data)->reader().batch(), all),
        StatusCode::Usage);
  if (returnsOutputs) {
    returned = false;
    const uint64_t samples = (*data)->reader().samples();
    if (!joined || joined->samples() != samples || training.shapes.size() > 1) {
      auto made = JoinedOutputs::create(training.entry(), samples, (*data)->reader().batch(), outputs::kTrainingPrefix);
      if (!made)
        return made.status();
      joined = made.take();
    }
  }
  batches.give(**data);
  bool finite = true;
  at.batch = 0;
  Status status = updates->run(at, batches, metrics, finite);
  if (status.ok() && finite)
    status = updates->complete(metrics, finite);
  if (!status.ok()) {
    spoiled = !updates->settle();
    return status;
  }
  if (!finite) {
    updates->settle();
    spoiled = !updates->keepsState(metrics);
    UpdateRunner::Cause cause = updates->findNonFinite(at, batches);
    node = cause.node;
    const std::string what = std::isfinite(metrics.loss)
                                 ? fmt::format("the gradient's norm is {}", metrics.gradientNorm)
                                 : fmt::format("the loss is {}", metrics.loss);
    const std::string where = !cause.nanInput.empty() ? ", because a tensor holds a NaN: " + cause.nanInput
                              : node.empty()          ? ""
                                                      : fmt::format(", first seen at node '{}'", node);
    return Status(fmt::format("update {}: {}{}; the state is {}", metrics.step, what, where,
                              spoiled ? "lost: load one" : "that before the update"),
                  StatusCode::NonFinite);
  }
  ++at.step;
  returned = returnsOutputs;
  if (!metrics.skipped && averages)
    if (status = averages->update(appliedUpdates(at.step, at.lossScale)); !status.ok())
      return status.withContext(fmt::format("update {}: train.ema", at.step));
  return Status();
}

Expected<const JoinedOutputs *> Stepper::lastOutputs() const {
  if (!returnsOutputs)
    return Status(fmt::format("updates of this plan return no graph outputs; compile with {}",
                              advice::compileSet("train.outputs", "[\"NAME\"]")),
                  StatusCode::Usage);
  if (!returned)
    return Status("no update has returned graph outputs: none was made, or the last one failed", StatusCode::Usage);
  return &*joined;
}

Expected<Stepper::Binding *> Stepper::bindingOf(const std::string &name) {
  Binding &binding = others[name];
  if (!binding.runners.empty())
    return &binding;
  std::vector<const plan::Entry *> shapes = plan::shapesOf(opened->plan(), name);
  // A trained model predicts in inference mode, whatever mode the graph was exported in.
  if (name == entries::kPredict)
    if (auto inference = plan::shapesOf(opened->plan(), entries::kPredictInference); !inference.empty())
      shapes = std::move(inference);
  if (shapes.empty())
    return error("{}: the plan has no entry '{}'; compile with {}", opened->reader.path(), name,
                 advice::compile("entry", "train," + name));
  binding.shapes = std::move(shapes);
  for (const plan::Entry *shape : binding.shapes)
    binding.runners.emplace_back(*opened->device, *shape).setSeed(at.seed);
  return &binding;
}

Expected<Evaluation> Stepper::evaluate(std::span<const GivenTensor> tensors, bool averaged) {
  if (averaged && !averages)
    return error("the plan keeps no averaged weights; compile with {}", advice::compileSet("train.ema.decay", "0.999"));
  auto binding = bindingOf(entries::kEvaluate);
  if (!binding)
    return binding.status();
  auto data = bind(**binding, tensors);
  if (!data)
    return data.status();
  if (averaged)
    if (Status status = averages->exchange(); !status.ok())
      return status;
  auto result = runtime::evaluate((*binding)->runners[(*data)->shape()], (*data)->reader(), evaluateOptionsOf(*opened));
  Status back = averaged ? averages->exchange() : Status();
  return back.ok() ? std::move(result) : Expected<Evaluation>(back);
}

Expected<JoinedOutputs> Stepper::run(const std::string &name, std::span<const GivenTensor> tensors) {
  auto binding = bindingOf(name);
  if (!binding)
    return binding.status();
  auto data = bind(**binding, tensors);
  if (!data)
    return data.status();
  EntryRunner &runner = (*binding)->runners[(*data)->shape()];
  auto outputs = predictedOutputs(runner, (*data)->reader());
  if (!outputs) // the entry takes another number of rows
    return Status(outputs.status().message(), StatusCode::Usage);
  if (Status status = predict(runner, (*data)->reader(), *outputs); !status.ok())
    return status;
  return outputs;
}

Status Stepper::set(const std::string &setting) {
  if (Status status = applySettings({setting}, opened->training, opened->data); !status.ok())
    return status;
  at.settings.push_back(setting);
  training.data.reset(); // data.… settings decide how tensors are bound
  others.clear();
  return schedule();
}

Status Stepper::setRate(double rate) {
  if (!std::isfinite(rate) || rate < 0)
    return Status(fmt::format("a learning rate of {}: it must be a number of at least 0", rate), StatusCode::Usage);
  (*opened->training.mutable_optimizer()->mutable_numbers())["lr"] = rate;
  return schedule();
}

Expected<Place> Stepper::placeOf(const std::string &name) const {
  std::vector<std::string> known;
  for (int i = 0; i < opened->plan().variables_size(); ++i) {
    if (opened->plan().variables(i).name() == name)
      return Place::variable(static_cast<uint32_t>(i));
    known.push_back(opened->plan().variables(i).name());
  }
  return Status(fmt::format("the plan has no variable '{}'; {}", name, nearestOrSome(name, known)), StatusCode::Usage);
}

/// Error: `bytes` is not the size of the variable.
static Status checkSize(Device &device, Place place, const std::string &name, size_t bytes) {
  auto size = device.bytesOf(place);
  if (size && *size != bytes)
    return Status(fmt::format("'{}' takes {} bytes, not {}", name, *size, bytes), StatusCode::Usage);
  return size.status();
}

Status Stepper::read(const std::string &name, std::span<std::byte> bytes) {
  auto place = placeOf(name);
  if (!place)
    return place.status();
  Status status = checkSize(*opened->device, *place, name, bytes.size());
  return status.ok() ? opened->device->read(*place, 0, bytes) : status;
}

Status Stepper::write(const std::string &name, std::span<const std::byte> bytes) {
  auto place = placeOf(name);
  if (!place)
    return place.status();
  Status status = checkSize(*opened->device, *place, name, bytes.size());
  if (status.ok())
    status = opened->device->write(*place, 0, bytes);
  if (!status.ok())
    return status;
  spoiled = false;
  const int index = static_cast<int>(place->index);
  if (opened->plan().variables(index).role() != plan::PARAMETER &&
      std::find(opened->replaced.begin(), opened->replaced.end(), index) == opened->replaced.end())
    opened->replaced.push_back(index);
  return Status();
}

Status Stepper::save(const std::string &run) {
  if (spoiled)
    return error("the state holds values that are not finite, and is not written");
  std::error_code code;
  const bool exists = std::filesystem::exists(run, code);
  auto lock = exists ? RunLock::acquire(run) : createRunFolder(run);
  if (!lock)
    return lock.status();
  // A checkpoint of another model would stand among the run's own, and could not be told from them.
  if (exists && run != savedTo && !checkpointSteps(run).empty()) {
    auto folder = findCheckpoint({run});
    auto last = folder ? Checkpoint::open(*folder) : Expected<Checkpoint>(folder.status());
    if (!last)
      return last.status();
    if (Status status = checkState(*last, opened->plan()); !status.ok())
      return Status(status.message() + "; give another folder, or one of this model", StatusCode::Usage);
  }
  if (Status status = keepPlan(run, opened->reader); !status.ok())
    return status;
  auto bytes =
      writeCheckpoint(run, makeRunRecord(*opened), at,
                      checkpointTensors(opened->plan(), *opened->device,
                                        averages ? std::span(averages->hostState()) : std::span<const HostState>(),
                                        opened->replaced, opened->rank()));
  if (bytes)
    savedTo = run;
  return bytes.status();
}

Status Stepper::load(const std::string &reference) {
  auto folder = findCheckpoint(parseRunReference(reference));
  if (!folder)
    return folder.status();
  auto checkpoint = Checkpoint::open(*folder);
  if (!checkpoint)
    return checkpoint.status();
  if (Status status = loadState(*checkpoint, opened->plan(), *opened->device, &opened->replaced, opened->rank());
      !status.ok())
    return status;
  const double total = at.scheduleTotal;
  at = checkpoint->manifest().position;
  at.batch = 0;
  if (at.scheduleTotal == 0)
    at.scheduleTotal = total;
  updates->setSeed(at.seed);
  others.clear();
  spoiled = false;
  if (averages) {
    auto loaded = averages->load(*checkpoint, opened->rank());
    if (!loaded)
      return loaded.status();
    if (!*loaded)
      if (Status status = averages->start(); !status.ok())
        return status;
  }
  return schedule();
}

Status Stepper::fit(TrainOptions options) {
  if (spoiled)
    return error("the state holds values that are not finite; load a state, or write one, before training goes on");
  const bool resumes = !options.resume.empty();
  if (!resumes) {
    options.from = at;
    options.averages = averages;
    if (options.steps)
      options.steps = at.step + *options.steps;
    else
      options.epochs = at.epoch + options.epochs.value_or(1);
  }
  RunResult reached;
  Status status = train(*opened, options, &reached);
  spoiled = status.code() == StatusCode::NonFinite;
  if (reached.position.step != 0) {
    at = reached.position;
    if (at.batch != 0) // an epoch that was ended early
      ++at.epoch;
    at.batch = 0;
  }
  updates->setSeed(at.seed);
  if (resumes && averages && status.ok())
    status = averages->start();
  return status.ok() ? schedule() : status;
}

Status Stepper::exportTo(const std::string &path, ExportOptions options) {
  if (options.planFolder.empty())
    options.planFolder = opened->reader.folder();
  return exportWeights(opened->reader, trainedValuesOf(*opened), path, options);
}

//===- StagedRunner.cpp - updates of a run in stages ---------------------===//
#include "runtime/train/StagedRunner.h"

using namespace tcc;
using namespace tcc::runtime;

/// The plan's settings, with those of the stage in place of the plan's.
static plan::Training trainingOf(const plan::Training &whole, const plan::Stage &stage) {
  plan::Training training = whole;
  *training.mutable_scalars() = stage.training().scalars();
  *training.mutable_optimizer() = stage.training().optimizer();
  double &rate = (*training.mutable_optimizer()->mutable_numbers())["lr"];
  rate *= stage.lr_scale();
  return training;
}

Expected<std::unique_ptr<UpdateRunner>> StagedRunner::create(const Session &session) {
  std::unique_ptr<StagedRunner> made(new StagedRunner(session));
  for (const plan::Stage &stage : session.training.stages())
    made->trainings.push_back(trainingOf(session.training, stage));
  auto inputsOf = [](const plan::Entry &entry) {
    std::vector<std::string> names;
    for (const plan::Port &port : entry.inputs())
      names.push_back(port.name());
    return names;
  };
  for (int i = 0; i < session.training.stages_size(); ++i) {
    const std::string &name = session.training.stages(i).name();
    auto runner = UpdateRunner::create(session, made->trainings[static_cast<size_t>(i)], {name});
    if (!runner)
      return runner.status();
    made->stages.push_back(runner.take());
    // One reader fills the inputs of all stages, so they must be the same, in the same order.
    if (inputsOf(made->stages.back()->dataEntry()) != inputsOf(made->dataEntry()))
      return error("{}: the entries of {} read other inputs than those of {}; compile again", session.reader.path(),
                   name, session.training.stages(0).name());
  }
  return std::unique_ptr<UpdateRunner>(std::move(made));
}

void StagedRunner::setSeed(uint64_t seed) {
  for (const auto &stage : stages)
    stage->setSeed(seed);
}

void StagedRunner::traceTo(Trace::Track *track) {
  for (const auto &stage : stages)
    stage->traceTo(track);
}

Status StagedRunner::setSchedule(LearningSchedule schedule) {
  for (const auto &stage : stages)
    if (Status status = stage->setSchedule(schedule); !status.ok())
      return status;
  return Status();
}

Status StagedRunner::run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite) {
  current = 0;
  while (current + 1 < stages.size() && position.step >= session.training.stages(static_cast<int>(current)).until())
    ++current;
  return stages[current]->run(position, batches, metrics, finite);
}

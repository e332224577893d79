//===- Api.cpp - the C interface of include/trun/trun.h --------------------===//
//
// Each function turns its arguments into those of the C++ library, and Status into an error object. No exception
// leaves: libraries throw when memory runs out.
//
//===----------------------------------------------------------------------===//
#include "trun/trun.h"

#include "runtime/plan/Parallelism.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/Targets.h"
#include "runtime/plan/Variants.h"
#include "runtime/registry/DeviceRegistry.h"
#include "runtime/train/Stepper.h"
#include "runtime/train/Train.h"
#include "support/Advice.h"
#include "support/Processors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Options by the names that they have in C and Python: eval_data, not eval-data.
class ApiWording : public Wording {
public:
  std::string option(std::string_view name, std::string_view value) const override {
    return name == "set" && !value.empty() ? std::string(value) : Wording::option(underscored(name), value);
  }
  std::string flag(std::string_view name, bool value) const override { return Wording::flag(underscored(name), value); }
  std::string compile(std::string_view name, std::string_view value) const override {
    return "tcc --" + std::string(name) + (value.empty() ? "" : " ") + std::string(value);
  }
  std::string compileSet(std::string_view key, std::string_view value) const override {
    return "tcc --set " + std::string(key) + "=" + std::string(value);
  }

private:
  static std::string underscored(std::string_view name) {
    std::string text(name);
    std::replace(text.begin(), text.end(), '-', '_');
    return text;
  }
};

const ApiWording kWording;

constexpr unsigned kMostThreads = 4096;

/// What an info points to.
struct Described {
  std::string name;
  trun_role role = TRUN_BUFFER;
  trun_dtype dtype = TRUN_F32;
  std::vector<int64_t> dims;
  int sampleAxis = -1;
  uint64_t bytes = 0;

  Described(std::string name, trun_role role, const plan::TensorType &type, int sampleAxis = -1)
      : name(std::move(name)), role(role), dtype(static_cast<trun_dtype>(type.dtype())),
        dims(type.dims().begin(), type.dims().end()), sampleAxis(sampleAxis),
        bytes(plan::tensorBytes(type).value_or(0)) {}

  void to(trun_info &info) const;
};
} // namespace

struct trun_error {
  trun_code code;
  std::string message, node;
};

struct trun_results {
  struct One {
    std::string name;
    double number = 0;
    std::optional<Described> array;
    std::vector<std::byte> values;
  };
  std::vector<One> all;
};

struct trun_plan {
  std::string path;
  std::shared_ptr<const std::string> bytes; ///< null: the plan is the file
  plan::PlanReader reader;
  std::string target; ///< empty: none runs here
  std::map<std::string, std::vector<Described>> values; ///< by entry
  std::vector<Described> variables;
};

struct trun_trainer {
  std::unique_ptr<Stepper> stepper;
  RunControl control;
  pid_t process = ::getpid();
  std::vector<GivenTensor> given; ///< of the last call
  UpdateMetrics metrics;
};

static_assert(TRUN_BOOL == static_cast<int>(plan::I1) && TRUN_F64 == static_cast<int>(plan::F64) &&
              TRUN_U8 == static_cast<int>(plan::U8) && TRUN_I64 == static_cast<int>(plan::I64));

namespace {
template <typename T> T sized() {
  T made{};
  made.size = sizeof(T);
  return made;
}

/// Copies as many bytes as the caller's version of the struct has.
template <typename T> void fill(T &to, T from) {
  from.size = std::min(to.size, sizeof(T));
  std::memcpy(&to, &from, from.size);
}

/// The caller's struct, with `defaults` for the fields that its version lacks.
template <typename T> T taken(const T *given, T defaults) {
  if (given)
    std::memcpy(&defaults, given, std::min(given->size, sizeof(T)));
  return defaults;
}

trun_error *made(const Status &status, const std::string &node = {}) {
  if (status.ok())
    return nullptr;
  return new trun_error{static_cast<trun_code>(status.code()), worded(status.message(), kWording), node};
}

/// Calls `body`, which returns a Status.
template <typename Body> trun_error *guarded(Body body) {
  try {
    return made(body());
  } catch (const std::bad_alloc &) {
    return made(error("out of memory"));
  } catch (const std::exception &problem) {
    return made(error("internal error: {}; please report it", problem.what()));
  }
}

/// The same for calls of a trainer.
template <typename Body> trun_error *guarded(trun_trainer *trainer, Body body) {
  return guarded([&]() -> Status {
    if (trainer->process != ::getpid())
      return error("the trainer belongs to process {}, and does not survive a fork; make one in this process",
                   trainer->process);
    return body(*trainer->stepper);
  });
}

Status usage(std::string text) { return Status(std::move(text), StatusCode::Usage); }

Status read(std::vector<GivenTensor> &into, const trun_tensor *tensors, size_t count) {
  into.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const trun_tensor tensor = taken(&tensors[i], trun_tensor{});
    if (!tensor.name || tensor.rank < 0 || (tensor.rank > 0 && !tensor.dims) || !plan::DType_IsValid(tensor.dtype) ||
        static_cast<plan::DType>(tensor.dtype) == plan::DTYPE_NONE)
      return usage(fmt::format("tensor {}: it needs a name, a dtype, and as many dims as its rank", i));
    GivenTensor &given = into[i];
    given.name = tensor.name;
    given.data = tensor.data;
    given.dtype = static_cast<plan::DType>(tensor.dtype);
    given.dims.assign(tensor.dims, tensor.dims + tensor.rank);
    given.strides.clear();
    if (tensor.strides)
      given.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  }
  return Status();
}

trun_step stepOf(const UpdateMetrics &metrics) {
  trun_step step = sized<trun_step>();
  step.step = metrics.step;
  step.loss = metrics.loss;
  step.learning_rate = metrics.learningRate;
  step.gradient_norm = metrics.gradientNorm;
  step.samples = metrics.samples;
  step.tokens = metrics.tokens;
  step.loss_scale = metrics.lossScale;
  step.skipped = metrics.skipped;
  return step;
}

trun_results resultsOf(const EvaluationRecord &record) {
  trun_results results;
  for (const auto &[name, value] : record.values)
    results.all.push_back({name, value, std::nullopt, {}});
  return results;
}

trun_role roleOf(const plan::Variable &variable) {
  switch (variable.role()) {
  case plan::PARAMETER:
    return TRUN_PARAMETER;
  case plan::FROZEN:
  case plan::CONSTANT:
    return TRUN_BUFFER;
  default:
    return TRUN_STATE;
  }
}

/// Lists what the plan holds, for the target that would run.
Status describe(trun_plan &plan) {
  auto chosen = chooseTarget(plan.reader, "", "");
  if (chosen) {
    plan.reader.selectTarget(*chosen);
    plan.target = plan.reader.plan().target();
  }
  const plan::Plan &content = plan.reader.plan();
  for (const plan::Entry &entry : content.entries()) {
    std::vector<Described> &values = plan.values[entry.name()];
    if (!values.empty()) // of another variant
      continue;
    for (auto [ports, role] : {std::pair(&entry.inputs(), TRUN_INPUT), std::pair(&entry.outputs(), TRUN_OUTPUT)})
      for (const plan::Port &port : *ports)
        if (!port.presence())
          values.emplace_back(port.name(), role, entry.buffers(static_cast<int>(port.buffer())).type(),
                              port.sample_axis());
  }
  for (const plan::Variable &variable : content.variables())
    if (variable.role() != plan::ACCUMULATOR)
      plan.variables.emplace_back(variable.name(), roleOf(variable), variable.type());
  return Status();
}

Status opened(plan::PlanReader reader, std::string path, std::shared_ptr<const std::string> bytes, trun_plan **into) {
  auto plan = std::make_unique<trun_plan>(trun_plan{std::move(path), std::move(bytes), std::move(reader), {}, {}, {}});
  Status status = describe(*plan);
  if (status.ok())
    *into = plan.release();
  return status;
}

/// Passes a run's events to the caller's function.
class Events : public RunEvents {
public:
  explicit Events(const trun_fit_options &options) : options(options) {}
  void message(const Message &message) override {
    const std::string text = worded(message.line(), kWording);
    tell(TRUN_EVENT_MESSAGE, 0, text);
  }
  void begins(const RunFacts &facts) override {
    total = facts.totalSteps;
    tell(TRUN_EVENT_BEGIN, facts.doneSteps, "");
  }
  void update(const UpdateMetrics &update) override {
    done = update.step;
    const trun_step step = stepOf(update);
    tell(TRUN_EVENT_UPDATE, update.step, "", &step);
  }
  void evaluated(const EvaluatedStep &evaluated) override {
    const trun_results results = resultsOf(evaluated.record);
    tell(TRUN_EVENT_EVALUATION, evaluated.step, "", nullptr, &results);
  }
  void checkpoint(const WrittenCheckpoint &checkpoint) override {
    tell(TRUN_EVENT_CHECKPOINT, checkpoint.step, checkpoint.path);
  }
  void ends(const RunEnd &end) override {
    done = end.step;
    tell(TRUN_EVENT_END, end.step, worded(end.reason, kWording));
  }

private:
  void tell(trun_event_kind kind, uint64_t step, const std::string &text, const trun_step *update = nullptr,
            const trun_results *results = nullptr) {
    if (!options.on_event)
      return;
    const trun_event event{sizeof(trun_event), kind, step, total, text.c_str(), update, results};
    options.on_event(options.user, &event);
  }

  const trun_fit_options &options;
  uint64_t total = 0, done = 0;
};

/// A data set in the caller's memory, which is dense.
Expected<DatasetSource> sourceOf(const trun_tensor *tensors, size_t count) {
  std::vector<GivenTensor> given;
  if (Status status = read(given, tensors, count); !status.ok())
    return status;
  for (const GivenTensor &tensor : given)
    if (!tensor.strides.empty())
      return usage(fmt::format("'{}': rows of a data set must be dense", tensor.name));
  return DatasetSource([given](const DatasetOptions &how) {
    std::vector<std::unique_ptr<Column>> columns;
    for (const GivenTensor &tensor : given) {
      plan::TensorType type;
      type.set_dtype(tensor.dtype);
      for (int64_t dim : tensor.dims)
        type.add_dims(dim);
      const std::span<const std::byte> bytes(static_cast<const std::byte *>(tensor.data),
                                             plan::tensorBytes(type).value_or(0));
      columns.push_back(std::make_unique<MemoryColumn>(tensor.name, type, bytes, nullptr));
    }
    return openDatasetColumns("the rows", std::move(columns), how);
  });
}
} // namespace

void Described::to(trun_info &info) const {
  fill(info, trun_info{sizeof(trun_info), name.c_str(), role, dtype, static_cast<int>(dims.size()), dims.data(),
                       sampleAxis, bytes});
}

const char *trun_version(void) { return TCC_VERSION; }

trun_code trun_error_code(const trun_error *error) { return error->code; }
const char *trun_error_message(const trun_error *error) { return error->message.c_str(); }
const char *trun_error_node(const trun_error *error) { return error->node.c_str(); }
void trun_error_free(trun_error *error) { delete error; }

trun_error *trun_plan_open(const char *path, trun_plan **plan) {
  *plan = nullptr;
  return guarded([&] {
    auto reader = plan::PlanReader::open(path);
    return reader ? opened(reader.take(), path, nullptr, plan) : reader.status();
  });
}

trun_error *trun_plan_open_memory(const void *bytes, size_t count, const char *name, trun_plan **plan) {
  *plan = nullptr;
  return guarded([&] {
    auto copy = std::make_shared<const std::string>(static_cast<const char *>(bytes), count);
    const std::string path = name ? name : "plan in memory";
    auto reader = plan::PlanReader::fromBuffer(*copy, path);
    return reader ? opened(reader.take(), path, copy, plan) : reader.status();
  });
}

void trun_plan_close(trun_plan *plan) { delete plan; }

const char *trun_plan_model(const trun_plan *plan) { return plan->reader.plan().model().c_str(); }
const char *trun_plan_target(const trun_plan *plan) { return plan->target.c_str(); }

const char *trun_plan_entry(const trun_plan *plan, size_t index) {
  return index < plan->values.size()
             ? std::next(plan->values.begin(), static_cast<std::ptrdiff_t>(index))->first.c_str()
             : nullptr;
}

size_t trun_plan_values(const trun_plan *plan, const char *entry) {
  const auto found = plan->values.find(entry);
  return found == plan->values.end() ? 0 : found->second.size();
}

trun_error *trun_plan_value(const trun_plan *plan, const char *entry, size_t index, trun_info *info) {
  return guarded([&] {
    const auto found = plan->values.find(entry);
    if (found == plan->values.end())
      return usage(fmt::format("{}: the plan has no entry '{}'", plan->path, entry));
    if (index >= found->second.size())
      return usage(fmt::format("entry '{}' has {} inputs and outputs", entry, found->second.size()));
    found->second[index].to(*info);
    return Status();
  });
}

size_t trun_plan_variables(const trun_plan *plan) { return plan->variables.size(); }

trun_error *trun_plan_variable(const trun_plan *plan, size_t index, trun_info *info) {
  return guarded([&] {
    if (index >= plan->variables.size())
      return usage(fmt::format("the plan has {} variables", plan->variables.size()));
    plan->variables[index].to(*info);
    return Status();
  });
}

trun_error *trun_plan_memory(const trun_plan *plan, unsigned threads, trun_memory *memory) {
  return guarded([&] {
    const plan::Plan &content = plan->reader.plan();
    const uint32_t workers = plan::runsOnGrids(content) ? content.max_workers()
                             : threads                  ? threads
                                                        : usableProcessors();
    const uint64_t all = plan::variantBytes(content, plan::smallestVariant(content, workers), workers);
    const uint64_t resident = plan::spaceBytes(content, plan::RESIDENT);
    fill(*memory, trun_memory{sizeof(trun_memory), resident, all - std::min(all, resident)});
    return Status();
  });
}

trun_trainer_options trun_trainer_defaults(void) {
  trun_trainer_options options = sized<trun_trainer_options>();
  options.seed = -1;
  return options;
}

trun_error *trun_trainer_create(const trun_plan *plan, const trun_trainer_options *given, trun_trainer **trainer) {
  *trainer = nullptr;
  return guarded([&]() -> Status {
    const trun_trainer_options options = taken(given, trun_trainer_defaults());
    if (options.threads > kMostThreads)
      return usage(fmt::format("threads = {}: at most {}; 0: as many as this process may use", options.threads,
                               kMostThreads));
    SessionOptions how;
    how.planPath = plan->path;
    how.planBytes = plan->bytes;
    how.target = options.target ? options.target : "";
    how.device = options.device ? options.device : "";
    how.threads = options.threads;
    how.budgetBytes = options.memory_budget;
    for (size_t i = 0; i < options.setting_count; ++i)
      how.settings.emplace_back(options.settings[i]);
    auto session = openSession(how);
    if (!session)
      return session.status();
    StepperOptions stepping;
    if (options.seed >= 0)
      stepping.seed = static_cast<uint64_t>(options.seed);
    if (options.schedule_steps > 0)
      stepping.totalSteps = options.schedule_steps;
    auto stepper = Stepper::create(session.take(), stepping);
    if (!stepper)
      return stepper.status();
    auto created = std::make_unique<trun_trainer>();
    created->stepper = stepper.take();
    *trainer = created.release();
    return Status();
  });
}

void trun_trainer_free(trun_trainer *trainer) {
  // The threads and the mapped memory of a forked child's parent are not the child's.
  if (trainer && trainer->process != ::getpid())
    (void)trainer->stepper.release();
  delete trainer;
}

trun_error *trun_trainer_step(trun_trainer *trainer, const trun_tensor *tensors, size_t count, trun_step *step) {
  std::string node;
  trun_error *problem = guarded(trainer, [&](Stepper &stepper) -> Status {
    if (Status status = read(trainer->given, tensors, count); !status.ok())
      return status;
    Status status = stepper.step(trainer->given, trainer->metrics);
    if (status.ok() && step)
      fill(*step, stepOf(trainer->metrics));
    node = stepper.nonFiniteNode();
    return status;
  });
  if (problem)
    problem->node = node;
  return problem;
}

static trun_results *arraysOf(JoinedOutputs outputs) {
  auto all = std::make_unique<trun_results>();
  for (size_t i = 0; i < outputs.arrays().size(); ++i) {
    const ArraySpec &array = outputs.arrays()[i];
    all->all.push_back({array.name, 0, Described(array.name, TRUN_OUTPUT, array.type, array.sampleAxis),
                        std::move(outputs.values(i))});
  }
  return all.release();
}

trun_error *trun_trainer_outputs(trun_trainer *trainer, trun_results **results) {
  *results = nullptr;
  return guarded(trainer, [&](Stepper &stepper) -> Status {
    auto outputs = stepper.lastOutputs();
    if (outputs)
      *results = arraysOf(**outputs);
    return outputs.status();
  });
}

uint64_t trun_trainer_rows(const trun_trainer *trainer) { return trainer->stepper->rows(); }
uint64_t trun_trainer_steps(const trun_trainer *trainer) { return trainer->stepper->position().step; }

trun_error *trun_trainer_set_rate(trun_trainer *trainer, double rate) {
  return guarded(trainer, [&](Stepper &stepper) { return stepper.setRate(rate); });
}

trun_error *trun_trainer_set(trun_trainer *trainer, const char *setting) {
  return guarded(trainer, [&](Stepper &stepper) { return stepper.set(setting); });
}

trun_error *trun_trainer_next_epoch(trun_trainer *trainer) {
  return guarded(trainer, [](Stepper &stepper) {
    stepper.nextEpoch();
    return Status();
  });
}

size_t trun_results_count(const trun_results *results) { return results->all.size(); }
const char *trun_results_name(const trun_results *results, size_t index) {
  return index < results->all.size() ? results->all[index].name.c_str() : nullptr;
}
double trun_results_number(const trun_results *results, size_t index) {
  return index < results->all.size() ? results->all[index].number : NAN;
}
void trun_results_info(const trun_results *results, size_t index, trun_info *info) {
  if (index < results->all.size() && results->all[index].array)
    results->all[index].array->to(*info);
}
const void *trun_results_data(const trun_results *results, size_t index) {
  return index < results->all.size() ? results->all[index].values.data() : nullptr;
}
void trun_results_free(trun_results *results) { delete results; }

trun_error *trun_trainer_evaluate(trun_trainer *trainer, const trun_tensor *tensors, size_t count, int averages,
                                  trun_results **results) {
  *results = nullptr;
  return guarded(trainer, [&](Stepper &stepper) -> Status {
    if (Status status = read(trainer->given, tensors, count); !status.ok())
      return status;
    auto evaluation = stepper.evaluate(trainer->given, averages != 0);
    if (!evaluation)
      return evaluation.status();
    *results = new trun_results(resultsOf(recordOf(*evaluation, nullptr)));
    return Status();
  });
}

trun_error *trun_trainer_run(trun_trainer *trainer, const char *entry, const trun_tensor *tensors, size_t count,
                             trun_results **results) {
  *results = nullptr;
  return guarded(trainer, [&](Stepper &stepper) -> Status {
    if (Status status = read(trainer->given, tensors, count); !status.ok())
      return status;
    auto outputs = stepper.run(entry, trainer->given);
    if (!outputs)
      return outputs.status();
    *results = arraysOf(outputs.take());
    return Status();
  });
}

trun_error *trun_trainer_read(trun_trainer *trainer, const char *name, void *to, size_t bytes) {
  return guarded(trainer, [&](Stepper &stepper) { return stepper.read(name, {static_cast<std::byte *>(to), bytes}); });
}

trun_error *trun_trainer_write(trun_trainer *trainer, const char *name, const void *from, size_t bytes) {
  return guarded(trainer, [&](Stepper &stepper) {
    return stepper.write(name, {static_cast<const std::byte *>(from), bytes});
  });
}

trun_error *trun_trainer_save(trun_trainer *trainer, const char *run) {
  return guarded(trainer, [&](Stepper &stepper) { return stepper.save(run); });
}

trun_error *trun_trainer_load(trun_trainer *trainer, const char *run) {
  return guarded(trainer, [&](Stepper &stepper) { return stepper.load(run); });
}

trun_error *trun_trainer_export(trun_trainer *trainer, const char *path) {
  return guarded(trainer, [&](Stepper &stepper) { return stepper.exportTo(path); });
}

trun_error *trun_trainer_export_adapter(trun_trainer *trainer, const char *folder) {
  return guarded(trainer, [&](Stepper &stepper) {
    ExportOptions options;
    options.adapter = true;
    return stepper.exportTo(folder, options);
  });
}

trun_fit_options trun_fit_defaults(void) {
  trun_fit_options options = sized<trun_fit_options>();
  options.steps = options.epochs = options.checkpoint_every = -1;
  options.shuffle = 1;
  return options;
}

trun_error *trun_trainer_fit(trun_trainer *trainer, const trun_fit_options *given) {
  return guarded(trainer, [&](Stepper &stepper) -> Status {
    const trun_fit_options fit = taken(given, trun_fit_defaults());
    TrainOptions options;
    options.data = fit.data ? fit.data : "";
    options.evalData = fit.eval_data ? fit.eval_data : "";
    if (!fit.data && fit.row_count == 0)
      return usage("fit: it needs data, a path, or rows in memory");
    if (!fit.data) {
      auto source = sourceOf(fit.rows, fit.row_count);
      if (!source)
        return source.status();
      options.data = "the rows";
      options.dataSource = source.take();
    }
    if (!fit.eval_data && fit.eval_row_count != 0) {
      auto source = sourceOf(fit.eval_rows, fit.eval_row_count);
      if (!source)
        return source.status();
      options.evalData = "the rows of evaluation";
      options.evalDataSource = source.take();
    }
    if (fit.steps >= 0)
      options.steps = static_cast<uint64_t>(fit.steps);
    if (fit.epochs >= 0)
      options.epochs = static_cast<uint64_t>(fit.epochs);
    if (fit.eval_every > 0)
      options.evalEvery = static_cast<uint64_t>(fit.eval_every);
    if (fit.checkpoint_every >= 0)
      options.checkpointEvery = static_cast<uint64_t>(fit.checkpoint_every);
    options.keepsFiles = fit.out || fit.resume;
    options.out = fit.out ? fit.out : "";
    options.resume = fit.resume ? fit.resume : "";
    if (!fit.resume) {
      options.shuffle = fit.shuffle != 0;
      options.seed = stepper.position().seed;
    }
    options.settings = stepper.position().settings;
    options.wording = &kWording;
    Events events(fit);
    options.events = &events;
    trainer->control.reset();
    options.control = &trainer->control;
    return stepper.fit(options);
  });
}

void trun_trainer_stop(trun_trainer *trainer) { trainer->control.stop("a call of trun_trainer_stop"); }

//===- Gradcheck.cpp - tcc gradcheck --------------------------------------===//
//
// The gradients program of the model, compiled in f64 with generated kernels, provides the gradients to be checked. The
// instructions that the loss depends on are a program of their own, which gives the loss at moved parameters. Stopped
// values are state of both: the first run writes them, the others hold them fixed (passes/training/HoldStops.cpp).
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/EntryShapes.h"
#include "compiler/recipe/Recipe.h"
#include "mlir/IR/MLIRContext.h"
#include "passes/Common.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Verifier.h"
#include "runtime/registry/DeviceRegistry.h"
#include "support/PlanNames.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/CheckInputs.h"
#include "tools/tcc/Commands.h"
#include "tools/tcc/GradientCheck.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <map>

namespace tcc::gradcheck {

struct ModelSettings {
  Settings check;
  std::string data;                    ///< .safetensors with a tensor for each input; empty: random inputs
  std::vector<std::string> parameters; ///< globs; empty: all
};

struct ModelResults {
  double loss = 0;
  std::vector<ParameterResult> parameters;
  std::vector<std::string> notes;
  plan::Plan plan; ///< of the f64 program; decisions.unused_parameters lists parameters without a gradient, and why
};

namespace {

constexpr const char *kLossEntry = "loss";

const plan::Port &lossOf(const plan::Entry &gradients) {
  return *std::find_if(gradients.outputs().begin(), gradients.outputs().end(),
                       [](auto &port) { return !port.name().starts_with(outputs::kGradientPrefix); });
}

/// Adds the instructions of the gradients program that the loss depends on as a program of their own.
void addLossEntry(plan::Plan &plan, const plan::Entry &gradients) {
  std::vector<bool> needed(size_t(gradients.buffers_size()));
  needed[lossOf(gradients).buffer()] = true;
  std::vector<int> kept; // latest first
  for (int i = gradients.instructions_size(); i-- > 0;) {
    const auto &operands = gradients.instructions(i).operands();
    if (std::none_of(operands.begin(), operands.end(),
                     [&](auto &operand) { return operand.write() && needed[operand.buffer()]; }))
      continue;
    kept.push_back(i);
    for (const plan::Operand &operand : operands)
      needed[operand.buffer()] = true;
  }
  plan::Entry entry = gradients;
  entry.set_name(kLossEntry);
  entry.clear_instructions();
  for (size_t i = kept.size(); i-- > 0;)
    *entry.add_instructions() = gradients.instructions(kept[i]);
  // Buffers that no instruction names are gone; the others keep their places in the arena.
  auto keptBefore = [&](int instruction) {
    return int(std::lower_bound(kept.rbegin(), kept.rend(), instruction) - kept.rbegin());
  };
  entry.clear_buffers();
  std::vector<uint32_t> numbers;
  for (size_t number = 0; number < needed.size(); ++number) {
    plan::Buffer buffer = gradients.buffers(int(number));
    numbers.push_back(uint32_t(entry.buffers_size()));
    if (!needed[number] && buffer.first() >= 0)
      continue;
    buffer.set_first(buffer.first() < 0 ? -1 : keptBefore(buffer.first()));
    const bool atExit = buffer.last() == gradients.instructions_size();
    buffer.set_last(atExit ? int(kept.size()) : keptBefore(buffer.last() + 1) - 1);
    *entry.add_buffers() = std::move(buffer);
  }
  for (plan::Instruction &instruction : *entry.mutable_instructions())
    for (plan::Operand &operand : *instruction.mutable_operands())
      operand.set_buffer(numbers[operand.buffer()]);
  entry.clear_outputs();
  *entry.add_outputs() = lossOf(gradients);
  for (auto *ports : {entry.mutable_inputs(), entry.mutable_outputs()})
    for (plan::Port &port : *ports)
      port.set_buffer(numbers[port.buffer()]);
  if (entry.scalars() >= 0)
    entry.set_scalars(int32_t(numbers[size_t(entry.scalars())]));
  if (entry.has_counters())
    entry.set_counters(int32_t(numbers[size_t(entry.counters())]));
  entry.set_transient_bytes(plan::transientBytes(entry, plan.max_workers()));
  *plan.add_entries() = std::move(entry);
}

/// The gradients program and that of its loss on a device.
class Program {
public:
  Program(runtime::Device &device, uint32_t gradients, uint32_t loss)
      : device(device), entry(device.plan().entries(int(gradients))), number(gradients), lossNumber(loss) {}

  void setInputs(InputValues given) { values = std::move(given); }

  /// Runs the gradients program and returns the loss.
  Expected<double> gradients() { return lossBy(number); }
  /// The loss alone.
  Expected<double> loss() { return lossBy(lossNumber); }

  /// Holds stopped values at those of the last run from the next run on. Returns their number.
  Expected<size_t> holdStops() {
    size_t held = 0;
    for (int i = 0; i < device.plan().variables_size(); ++i) {
      const std::string &name = device.plan().variables(i).name();
      held += name.starts_with(train::names::kHeld.str()) && name != train::names::kHoldStops.str();
      const double hold = 1;
      if (name == train::names::kHoldStops.str())
        if (Status status = device.write(runtime::Place::variable(uint32_t(i)), 0, std::as_bytes(std::span(&hold, 1)));
            !status.ok())
          return status;
    }
    return held;
  }

  /// The outputs of the last run.
  Expected<std::vector<Parameter>> parameters() {
    const plan::Plan &plan = device.plan();
    std::map<std::string, int> variables;
    for (int i = 0; i < plan.variables_size(); ++i)
      variables[plan.variables(i).name()] = i;
    std::vector<Parameter> list;
    for (const plan::Port &port : entry.outputs()) {
      if (!port.name().starts_with(outputs::kGradientPrefix))
        continue;
      std::string name = port.name().substr(outputs::kGradientPrefix.size());
      auto found = variables.find(name);
      const plan::TensorType &type = entry.buffers(int(port.buffer())).type();
      if (found == variables.end() || type.dtype() != plan::F64 ||
          plan.variables(found->second).type().dtype() != plan::F64)
        return error("internal error: `{}` is not f64 in the program to be checked", name);
      const plan::Variable &variable = plan.variables(found->second);
      runtime::Place state = runtime::Place::variable(uint32_t(found->second));
      uint64_t count = plan::elementCount(type).value_or(0);
      Parameter parameter{name, variable.node(), {type.dims().begin(), type.dims().end()}, {}, {}, {}};
      for (auto [from, to] :
           {std::pair(state, &parameter.values), std::pair(place(port.buffer()), &parameter.gradient)}) {
        to->resize(count);
        if (Status status = device.read(from, 0, std::as_writable_bytes(std::span(*to))); !status.ok())
          return status;
      }
      parameter.set = [this, state](std::span<const double> given) {
        return device.write(state, 0, std::as_bytes(given));
      };
      list.push_back(std::move(parameter));
    }
    return list;
  }

private:
  /// Inputs are written before each run, since a run reuses their memory.
  Expected<double> lossBy(uint32_t program) {
    const plan::Entry &entry = device.plan().entries(int(program));
    auto place = [&](uint32_t buffer) { return runtime::Place::buffer(program, buffer); };
    for (int i = 0; i < entry.inputs_size(); ++i)
      if (Status status = device.write(place(entry.inputs(i).buffer()), 0, values[size_t(i)]); !status.ok())
        return status;
    // Counters of zero: the same masks in every run.
    for (int64_t buffer : {int64_t(entry.scalars()), entry.has_counters() ? int64_t(entry.counters()) : -1})
      if (buffer >= 0)
        if (Status status = device.fill(place(uint32_t(buffer)), std::byte(0)); !status.ok())
          return status;
    double value = 0;
    Status status = device.run(program);
    if (status.ok())
      status = device.read(place(lossOf(entry).buffer()), 0, std::as_writable_bytes(std::span(&value, 1)));
    return status.ok() ? Expected<double>(value) : status;
  }

  runtime::Place place(uint32_t buffer) const { return runtime::Place::buffer(number, buffer); }

  runtime::Device &device;
  const plan::Entry &entry;
  uint32_t number, lossNumber;
  InputValues values;
};

Expected<InputValues> chooseInputs(mlir::MLIRContext &context, const CompileOptions &options,
                                         const plan::Plan &plan, const plan::Entry &entry,
                                         const ModelSettings &settings, bool positive) {
  if (!settings.data.empty()) {
    std::map<std::string, std::string> columns(plan.data().map().begin(), plan.data().map().end());
    return readInputs(entry, settings.data, columns);
  }
  Expected<std::map<std::string, IndexRange>> ranges = findIndexRanges(context, options);
  if (!ranges)
    return ranges.status();
  return drawInputs(entry, *ranges, settings.check.seed, positive);
}

bool isWanted(const std::vector<std::string> &globs, const std::string &name) {
  return globs.empty() || std::any_of(globs.begin(), globs.end(), [&](auto &glob) { return matchesGlob(glob, name); });
}

} // namespace

/// Compiles the gradients of a model in f64, runs them on the CPU, and checks each of them. Errors: the model or
/// recipe is at fault, the data does not fit, the loss is not finite.
static Expected<ModelResults> checkModel(mlir::MLIRContext &context, CompileOptions options,
                                         const ModelSettings &settings) {
  options.forceF64 = true;
  options.embedWeights = true;
  options.entries = {entries::kGradients};
  Expected<CompiledModel> compiled = compileModel(context, options);
  if (!compiled)
    return compiled.status();
  const auto gradients = std::find_if(compiled->plan.entries().begin(), compiled->plan.entries().end(),
                                      [](auto &entry) { return entry.name() == entries::kGradients; });
  if (gradients == compiled->plan.entries().end())
    return error("{}: the loss reaches no trainable parameter; see model.trainable and model.frozen",
                 options.modelPath);
  addLossEntry(compiled->plan, *gradients);
  Expected<std::string> bytes = compiled->writer.toBuffer(compiled->plan);
  if (!bytes)
    return bytes.status();
  Expected<plan::PlanReader> reader = plan::PlanReader::fromBuffer(bytes.take(), options.modelPath);
  if (!reader)
    return reader.status();
  const plan::Plan &plan = reader->plan();
  auto device = runtime::createDevice(*reader);
  if (!device)
    return device.status();
  Expected<uint32_t> number = (*device)->findEntry(entries::kGradients);
  if (!number)
    return number.status();
  Expected<uint32_t> lossNumber = (*device)->findEntry(kLossEntry);
  if (!lossNumber)
    return lossNumber.status();
  const plan::Entry &entry = plan.entries(int(*number));
  Program program(**device, *number, *lossNumber);
  ModelResults results;
  results.plan = plan;
  if (auto recipe = readRecipe(options.recipePath, options.settings))
    if (auto shapes = trainingShapes(options, *recipe); shapes && shapes->size() > 1)
      results.notes.push_back(fmt::format("checked for the first of {} shapes: {}", shapes->size(),
                                          EntryShape{shapes->front(), {}, {}}.text()));
  for (bool positive : {false, true}) {
    Expected<InputValues> inputs = chooseInputs(context, options, plan, entry, settings, positive);
    if (!inputs)
      return inputs.status();
    program.setInputs(inputs.take());
    Expected<double> loss = program.gradients();
    if (!loss)
      return loss.status();
    results.loss = *loss;
    if (std::isfinite(*loss) || !settings.data.empty())
      break;
    if (!positive)
      results.notes.push_back("the loss is not finite on normal inputs: inputs are drawn from [0.05, 0.95)");
  }
  if (!std::isfinite(results.loss))
    return error("{}: the loss is {} on {}; give data on which it is finite with --data FILE.safetensors",
                       options.modelPath, results.loss, settings.data.empty() ? "random inputs" : settings.data);
  Expected<std::vector<Parameter>> parameters = program.parameters();
  if (!parameters)
    return parameters.status();
  Expected<size_t> held = program.holdStops();
  if (!held)
    return held.status();
  if (*held)
    results.notes.push_back(fmt::format("{} {} held fixed in the differences: tcc inspect lists what stops gradients",
                                        *held, *held == 1 ? "stopped value is" : "stopped values are"));
  for (const Parameter &parameter : *parameters) {
    if (!isWanted(settings.parameters, parameter.name))
      continue;
    Expected<ParameterResult> result = checkParameter(
        parameter, [&] { return program.loss(); }, results.loss, settings.check);
    if (!result)
      return result.status();
    results.parameters.push_back(result.take());
  }
  if (results.parameters.empty())
    return Status(
        fmt::format("--parameter {}: no trained parameter matches", fmt::join(settings.parameters, " ")),
        StatusCode::Usage);
  return results;
}

} // namespace tcc::gradcheck

namespace tcc::tools {

namespace {

/// Prints the table, the parameters without a gradient, and the verdict; returns the exit status.
int printResults(const gradcheck::ModelResults &results, const gradcheck::ModelSettings &settings) {
  for (const std::string &note : results.notes)
    printResult("note: {}\n", note);
  printResult("loss {:.15g} on {}, seed {}\n\n{}", results.loss,
             settings.data.empty() ? "random inputs" : settings.data, settings.check.seed,
             gradcheck::resultsText(results.parameters));
  for (const plan::Decisions::Unused &unused : results.plan.decisions().unused_parameters())
    printResult("no gradient: {} (node {}): {}\n", unused.name(), unused.node(), unused.reason());
  size_t wrong = 0;
  double worst = 0;
  for (const gradcheck::ParameterResult &result : results.parameters) {
    wrong += !result.agrees;
    worst = std::max(worst, result.worst.error);
  }
  printResult("\n{} of {} gradients agree to {:g}; the largest relative error is {:.1e}\n",
             results.parameters.size() - wrong, results.parameters.size(), settings.check.tolerance, worst);
  std::fflush(stdout);
  for (const gradcheck::ParameterResult &result : results.parameters)
    if (!result.agrees)
      printError(error("the gradient of `{}` (node {}) is wrong along {}: its slope is {:.9e}, differences give {:.9e}",
                             result.name, result.node, result.worst.where, result.worst.claimed,
                             result.worst.measured));
  return wrong ? kExitFault : kExitDone;
}

} // namespace

int gradcheckCommand(int argc, char **argv) {
  CLI::App app(
      "Checks the gradients that tcc derives: the model is compiled in f64, and for each parameter the slope of the\n"
      "loss by its gradient is compared with the slope by central differences, along the gradient, random directions\n"
      "and single elements. Exit status 1 if any disagrees.\n"
      "\n"
      "Inputs are random: floats normal (uniform in [0.05, 0.95) where the loss would not be finite), integers from 0\n"
      "to the smallest axis that the model indexes with them, 0 or 1 where it indexes nothing. If the model needs\n"
      "other inputs, give a batch with --data.",
      "tcc gradcheck");
  ModelArguments model;
  model.add(app, /*several=*/true);
  gradcheck::ModelSettings settings;
  app.add_option("--data", settings.data,
                 "FILE.safetensors with a tensor for each input: its first samples are the batch");
  app.add_option("--parameter", settings.parameters, "GLOB: check only these parameters; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--seed", settings.check.seed, "seed of inputs and directions; default 0");
  app.add_option("--directions", settings.check.directions, "number of random directions for each parameter; default 3")
      ->check(CLI::Range(0, 1000));
  app.add_option("--elements", settings.check.elements, "number of single elements for each parameter; default 3")
      ->check(CLI::Range(0, 100000));
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  CompileOptions options;
  if (Status status = model.fill(options); !status.ok())
    return printError(status);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  int exitStatus = kExitDone;
  for (const std::string &path : model.models) {
    options.modelPath = path;
    mlir::MLIRContext context(registry);
    if (model.models.size() > 1)
      printResult("{}:\n", path);
    Expected<gradcheck::ModelResults> results = gradcheck::checkModel(context, options, settings);
    exitStatus = std::max(exitStatus, results ? printResults(*results, settings) : printError(results.status()));
  }
  return exitStatus;
}

} // namespace tcc::tools

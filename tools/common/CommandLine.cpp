//===- CommandLine.cpp - options and usage errors that commands share -----===//
#include "tools/common/CommandLine.h"
#include "support/AtomicFile.h"
#include "support/Json.h"
#include "support/NearestName.h"
#include "support/ShortText.h"
#include "support/TerminalText.h"
#include "support/recipe/Keys.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>
#include <vector>

namespace tcc::tools {

namespace {

/// Columns of a --help that goes to a file or a pipe.
constexpr size_t kPipedColumns = 100;

Status wrongUsage(const CLI::App &app, const std::string &text) {
  return Status(fmt::format("{}; see {} --help", text, app.get_name()), StatusCode::Usage);
}

/// "--stepz" → the known option nearest to it.
std::string nearestOption(const CLI::App &app, const std::string &given) {
  std::vector<std::string> known;
  for (const CLI::Option *option : app.get_options())
    for (const std::string &name : option->get_lnames())
      known.push_back("--" + name);
  return nearestName(given.substr(0, given.find('=')), known);
}

/// Advice for an option that other trainers have under another name; empty: there is none.
std::string adviceFor(const CLI::App &app, const std::string &given) {
  const std::string option = given.substr(0, given.find('='));
  const bool compiles = app.get_name() == "tcc";
  auto is = [&](std::initializer_list<const char *> names) {
    return std::find(names.begin(), names.end(), option) != names.end();
  };
  if (is({"--batch", "--batch-size", "--batch_size", "-b"}))
    return compiles ? "give --batch N" : "the batch is compiled into the plan: give tcc --batch N";
  if (is({"--lr", "--learning-rate", "--learning_rate"}))
    return "give --set optimizer.lr=RATE";
  if (is({"--weight-decay", "--weight_decay"}))
    return "give --set optimizer.weight_decay=W";
  if (compiles && is({"--epochs", "--steps", "--data", "--eval-data"}))
    return fmt::format("it belongs to the run: give trun {}", option);
  if (is({"--gpu", "--gpus", "--cuda"}))
    return compiles ? "give --target cuda:sm_90" : "give --device cuda, with a plan for a card";
  return {};
}

/// The keys that `--set` of the command takes; a table's name stands for its entries.
std::vector<std::string> settableKeys(std::string_view command) {
  std::vector<std::string> names;
  for (const recipe::Key &key : recipe::allKeys())
    if (key.change == recipe::Change::RunTime ||
        (command.starts_with("tcc") && key.change == recipe::Change::Recompile))
      names.push_back(key.name);
  return names;
}

nlohmann::ordered_json optionJson(const CLI::App &app, const CLI::Option &option) {
  nlohmann::ordered_json json;
  json["names"] = nlohmann::ordered_json::array();
  for (const std::string &name : option.get_snames())
    json["names"].push_back("-" + name);
  for (const std::string &name : option.get_lnames())
    json["names"].push_back("--" + name);
  if (option.get_positional())
    json["word"] = option.get_name(true);
  // "TEXT:{torch,onnx}", "INT:INT in [0 - 4096]"; empty for a flag.
  json["value"] = option.get_items_expected_max() > 0 ? option.get_type_name() : "";
  json["required"] = option.get_required();
  json["repeats"] = option.get_expected_max() > 1;
  json["help"] = option.get_description();
  if (option.check_lname("set"))
    json["keys"] = settableKeys(app.get_name());
  return json;
}

} // namespace

bool asksForDescription(int argc, char **argv) { return argc == 2 && argv[1] == kDescribe; }

void describe(const std::string &command, const std::string &about, const CLI::App *app) {
  nlohmann::ordered_json json;
  json["command"] = command;
  json["about"] = about;
  json["exit_statuses"] = kExitMeanings;
  json["options"] = nlohmann::ordered_json::array();
  if (app)
    for (const CLI::Option *option : app->get_options())
      json["options"].push_back(optionJson(*app, *option));
  printResult("{}\n", jsonText(json));
}

Arguments readArguments(CLI::App &app, int argc, char **argv) {
  app.allow_extras();
  Arguments arguments;
  if (asksForDescription(argc, argv)) {
    describe(app.get_name(), app.get_description(), &app);
    arguments.answered = true;
    return arguments;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &problem) {
    if (problem.get_exit_code() == 0) {
      if (problem.get_name() == "CallForHelp") // no cast: LLVM's objects have no type information
        printResult("{}", wrapped(app.help(), columnsOf(STDOUT_FILENO).value_or(kPipedColumns)));
      else
        app.exit(problem);
      arguments.answered = true;
      return arguments;
    }
    // An unknown option explains a missing argument better than the parser does.
    std::vector<std::string> extras = app.remaining();
    if (std::none_of(extras.begin(), extras.end(), [](const std::string &text) { return text.starts_with("-"); })) {
      arguments.status = wrongUsage(app, problem.what());
      return arguments;
    }
  }
  std::vector<std::string> extras = app.remaining();
  // Words that follow an unknown option are most likely its values: report the option.
  auto option =
      std::find_if(extras.begin(), extras.end(), [](const std::string &text) { return text.starts_with("-"); });
  if (option != extras.end()) {
    std::string advice = adviceFor(app, *option);
    if (!advice.empty())
      advice = ": " + advice;
    else if (std::string nearest = nearestOption(app, *option); !nearest.empty())
      advice = fmt::format(", did you mean '{}'?", nearest);
    arguments.status = wrongUsage(app, fmt::format("unknown option '{}'{}", *option, advice));
  } else if (!extras.empty()) {
    arguments.status = wrongUsage(app, fmt::format("unexpected argument '{}'", extras.front()));
  } else {
    // An option with an empty value, as from a script's unset variable.
    const std::vector<CLI::Option *> options = app.get_options();
    const auto given = std::find_if(options.begin(), options.end(), [](const CLI::Option *one) {
      return std::any_of(one->results().begin(), one->results().end(),
                         [](const std::string &value) { return value.empty(); });
    });
    if (given != options.end())
      arguments.status = wrongUsage(app, fmt::format("{}: the value is empty: give one{}", (*given)->get_name(),
                                                     (*given)->get_required() ? "" : ", or leave the option out"));
  }
  return arguments;
}

static std::string checkNumber(const std::string &text, bool zeroToo) {
  char *end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool good = !text.empty() && *end == 0 && std::isfinite(value) && (zeroToo ? value >= 0 : value > 0);
  return good ? "" : fmt::format("must be a number {}, not {}", zeroToo ? "of at least 0" : "above 0", shortened(text));
}
std::string checkPositive(const std::string &text) { return checkNumber(text, false); }
std::string checkNotNegative(const std::string &text) { return checkNumber(text, true); }

Status checkOutputs(const CLI::App &app, const std::vector<Output> &outputs) {
  struct Named {
    std::string option, path;
    const Output *output;
  };
  std::vector<Named> all;
  for (const CLI::Option *option : app.get_options())
    for (const std::string &value : option->results()) {
      auto found = std::find_if(outputs.begin(), outputs.end(),
                                [&](const Output &one) { return option->check_name(one.option); });
      all.push_back({option->get_name(), value, found == outputs.end() ? nullptr : &*found});
    }
  std::error_code code;
  for (const Named &one : all) {
    if (!one.output || !std::filesystem::is_regular_file(one.path, code))
      continue;
    for (const Named &other : all)
      if (&one != &other && isSameFile(one.path, other.path))
        return wrongUsage(
            app, fmt::format("{} {}: {} names this file, too; give another name", one.option, one.path, other.option));
    if (one.output->kind)
      if (Status status = AtomicFile::check(one.path, *one.output->kind); !status.ok())
        return status;
  }
  return Status();
}

} // namespace tcc::tools

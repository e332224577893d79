//===- CommandLine.cpp - options and usage errors that commands share -----===//
#include "tools/common/CommandLine.h"
#include "support/NearestName.h"
#include "support/TerminalWidth.h"
#include "tools/common/StandardStreams.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <unistd.h>
#include <vector>

namespace tcc::tools {

namespace {

/// Columns of a --help that goes to a file or a pipe.
constexpr size_t kPipedColumns = 100;

Status wrongUsage(const CLI::App &app, const std::string &text) {
  return Status(fmt::format("{}; see {} --help", text, app.get_name()), kExitUsage);
}

/// "--stepz" → the known option nearest to it.
std::string nearestOption(const CLI::App &app, const std::string &given) {
  std::vector<std::string> known;
  for (const CLI::Option *option : app.get_options())
    for (const std::string &name : option->get_lnames())
      known.push_back("--" + name);
  return nearestName(given.substr(0, given.find('=')), known);
}

} // namespace

Arguments readArguments(CLI::App &app, int argc, char **argv) {
  app.allow_extras();
  Arguments arguments;
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
  // Words that follow an unknown option are most likely its values: the option is what is wrong.
  auto option =
      std::find_if(extras.begin(), extras.end(), [](const std::string &text) { return text.starts_with("-"); });
  if (option != extras.end()) {
    std::string nearest = nearestOption(app, *option);
    arguments.status =
        wrongUsage(app, fmt::format("unknown option '{}'{}", *option,
                                    nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest)));
  } else if (!extras.empty()) {
    arguments.status = wrongUsage(app, fmt::format("unexpected argument '{}'", extras.front()));
  }
  return arguments;
}

} // namespace tcc::tools

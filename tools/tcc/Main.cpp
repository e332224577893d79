//===- Main.cpp - the tcc command -----------------------------------------===//
#include "support/NearestName.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"

#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

using namespace tcc;

namespace {

constexpr std::pair<const char *, int (*)(int, char **)> kCommands[] = {{"report", tools::reportCommand},
                                                                        {"gradcheck", tools::gradcheckCommand},
                                                                        {"inspect", tools::inspectCommand},
                                                                        {"ops", tools::opsCommand},
                                                                        {"frontier", tools::frontierCommand},
                                                                        {"predict-scale", tools::predictScaleCommand}};

/// The command that a first word means, if it is neither a file nor an option; else empty.
std::string misspelt(const std::string &word) {
  if (word.starts_with("-") || word.find_first_of("./") != std::string::npos || std::filesystem::exists(word))
    return "";
  std::vector<std::string> names;
  for (auto [name, run] : kCommands)
    names.push_back(name);
  return nearestName(word, names);
}

int runCommand(int argc, char **argv) {
  // Libraries may throw where memory ends: the user gets a message, not a crash.
  try {
    for (auto [name, run] : kCommands)
      if (argc > 1 && std::string(argv[1]) == name)
        return run(argc - 1, argv + 1);
    if (std::string meant = argc > 1 ? misspelt(argv[1]) : ""; !meant.empty())
      return tools::printError(Status(
          fmt::format("unknown command '{}', did you mean '{}'? See tcc --help", argv[1], meant), kExitUsage));
    return tools::compileCommand(argc, argv);
  } catch (const std::bad_alloc &) {
    return tools::printError(error("out of memory"));
  } catch (const std::exception &problem) {
    return tools::printError(error("{}", problem.what()));
  }
}

} // namespace

int main(int argc, char **argv) {
  tools::reserveStandardStreams();
  int exitStatus = runCommand(argc, argv);
  Status printed = tools::finishStandardStreams();
  return exitStatus == kExitDone && !printed.ok() ? tools::printError(printed) : exitStatus;
}

//===- Main.cpp - the tcc command -----------------------------------------===//
#include "support/NearestName.h"
#include "tools/common/CommandLine.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/OutOfMemory.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"

#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <cstdlib>
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
                                                                        {"keys", tools::keysCommand},
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
  // Libraries may throw when memory runs out: print a message instead of crashing.
  try {
    if (tools::asksForDescription(argc, argv)) {
      int exitStatus = tools::compileCommand(argc, argv);
      for (auto [name, run] : kCommands)
        exitStatus = std::max(exitStatus, run(argc, argv));
      return exitStatus;
    }
    for (auto [name, run] : kCommands)
      if (argc > 1 && std::string(argv[1]) == name)
        return run(argc - 1, argv + 1);
    if (std::string meant = argc > 1 ? misspelt(argv[1]) : ""; !meant.empty())
      return tools::printError(Status(
          fmt::format("unknown command '{}', did you mean '{}'? See tcc --help", argv[1], meant), StatusCode::Usage));
    return tools::compileCommand(argc, argv);
  } catch (const std::exception &problem) {
    tools::endIfOutOfMemory(problem);
    return tools::printError(error("internal error: {}; please report it with the model", problem.what()));
  }
}

/// LLVM's handler of fatal errors; a thread that cannot be started counts as a lack of memory.
void ended(void *, const char *reason, bool) {
  if (std::string_view(reason).find("pthread") != std::string_view::npos ||
      std::string_view(reason).find("memory") != std::string_view::npos)
    tools::endOutOfMemory();
  tools::printMessage("error: internal error in LLVM: {}; please report it with the model\n", reason);
  std::_Exit(tools::kExitFault);
}
} // namespace

int main(int argc, char **argv) {
  tools::reserveStandardStreams();
  tools::endOnLackOfMemory("error: ");
  llvm::install_bad_alloc_error_handler([](void *, const char *, bool) { tools::endOutOfMemory(); });
  llvm::install_fatal_error_handler(ended);
  int exitStatus = runCommand(argc, argv);
  Status printed = tools::finishStandardStreams();
  return exitStatus == tools::kExitDone && !printed.ok() ? tools::printError(printed) : exitStatus;
}

//===- Main.cpp - the tcc command -----------------------------------------===//
#include "tools/tcc/Commands.h"

#include <exception>
#include <new>
#include <string>

using namespace tcc;

namespace {

int frontierCommand(int, char **) {
  return tools::printError(plan::Status("tcc frontier is not in this version: nothing is recomputed to save memory yet. "
                                        "`tcc report` says what a plan takes and its lower bound",
                                        plan::kExitUsage));
}

constexpr std::pair<const char *, int (*)(int, char **)> kCommands[] = {{"report", tools::reportCommand},
                                                                       {"gradcheck", tools::gradcheckCommand},
                                                                       {"inspect", tools::inspectCommand},
                                                                       {"frontier", frontierCommand}};

} // namespace

int main(int argc, char **argv) {
  // Libraries may throw where memory ends: the user gets a message, not a crash.
  try {
    for (auto [name, run] : kCommands)
      if (argc > 1 && std::string(argv[1]) == name)
        return run(argc - 1, argv + 1);
    return tools::compileCommand(argc, argv);
  } catch (const std::bad_alloc &) {
    return tools::printError(plan::error("out of memory"));
  } catch (const std::exception &problem) {
    return tools::printError(plan::error("{}", problem.what()));
  }
}

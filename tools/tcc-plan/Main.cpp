//===- Main.cpp - the tcc-plan command ------------------------------------===//
#include "tools/common/CommandLine.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/OutOfMemory.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc-plan/Commands.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>

using namespace tcc;

namespace {

constexpr std::string_view kUsage =
    "Runs the compiler's planning algorithms on a problem file.\n"
    "Usage: tcc-plan pack PROBLEM.csv [--capacity BYTES] [-o ANSWER.csv]    offsets for buffers of known lifetime\n"
    "       tcc-plan remat GRAPH.json (--budget BYTES | --frontier)         a schedule within a budget of memory\n"
    "`tcc-plan pack --help` and `tcc-plan remat --help` have the details.\n";

} // namespace

int tools::printError(const Status &status) {
  printMessage("error: {}\n", status.message());
  return tools::exitStatusOf(status);
}

void tools::SearchLimits::addTo(CLI::App &app, const std::string &unit, const std::string &usual) {
  app.add_option("--work", work, "limit on the search, in " + unit + "; default: " + usual)->check(checkPositive);
  app.add_option("--deadline", deadline, "stop after this many seconds: the answer may differ from run to run")
      ->check(checkPositive);
}

double tools::SearchLimits::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::function<bool()> tools::SearchLimits::stop() const {
  if (!hasDeadline())
    return nullptr;
  return [this] { return seconds() > deadline; };
}

static int runCommand(int argc, char **argv) {
  std::string_view command = argc > 1 ? argv[1] : "";
  try {
    if (command == tools::kDescribe && argc == 2) {
      tools::describe("tcc-plan", std::string(kUsage.substr(0, kUsage.find('\n'))));
      return std::max(tools::packCommand(argc, argv), tools::rematCommand(argc, argv));
    }
    if (command == "pack")
      return tools::packCommand(argc - 1, argv + 1);
    if (command == "remat")
      return tools::rematCommand(argc - 1, argv + 1);
    if (command == "--version") {
      tools::printResult("tcc-plan {}\n", TCC_VERSION);
      return tools::kExitDone;
    }
    if (command == "--help" || command == "-h") {
      tools::printResult("{}", kUsage);
      return tools::kExitDone;
    }
    return tools::printError(
        Status(command.empty()
                   ? std::string("a command is missing: pack, remat; see tcc-plan --help")
                   : fmt::format("unknown command '{}': this version has pack, remat; see tcc-plan --help", command),
               StatusCode::Usage));
  } catch (const std::exception &problem) {
    tools::endIfOutOfMemory(problem);
    return tools::printError(error("internal error: {}; please report it", problem.what()));
  }
}

int main(int argc, char **argv) {
  tools::reserveStandardStreams();
  tools::endOnLackOfMemory("error: ");
  int exitStatus = runCommand(argc, argv);
  Status printed = tools::finishStandardStreams();
  return exitStatus == tools::kExitDone && !printed.ok() ? tools::printError(printed) : exitStatus;
}

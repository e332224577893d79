//===- Main.cpp - trun: runs plans ---------------------------------------===//
#include "support/MachineMemory.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/OutOfMemory.h"
#include "tools/common/StandardStreams.h"
#include "tools/trun/Commands.h"

#include <csignal>
#include <exception>

using tcc::tools::printMessage;

static int run(int argc, char **argv) {
  uint64_t processBytes = tcc::processMemoryBytes();
  tcc::tools::Parsed parsed = tcc::tools::parseCommandLine(argc, argv);
  if (parsed.exitStatus)
    return *parsed.exitStatus;
  parsed.options.processBytes = processBytes;
  // Libraries may throw when memory runs out: print a message instead of crashing.
  try {
    tcc::Status status = tcc::tools::runCommand(parsed.options);
    // The message is empty if another rank prints the failure.
    if (!status.ok() && !status.message().empty())
      printMessage("trun: error: {}\n", status.message());
    return tcc::tools::exitStatusOf(status);
  } catch (const std::exception &problem) {
    tcc::tools::endIfOutOfMemory(problem);
    printMessage("trun: error: internal error: {}; please report it\n", problem.what());
  }
  return tcc::tools::kExitFault;
}

int main(int argc, char **argv) {
  tcc::tools::reserveStandardStreams();
  tcc::tools::endOnLackOfMemory("trun: error: ");
  std::signal(SIGXFSZ, SIG_IGN); // a limit on file sizes is an error of the write, with a message
  int exitStatus = run(argc, argv);
  tcc::Status printed = tcc::tools::finishStandardStreams();
  if (exitStatus != tcc::tools::kExitDone || printed.ok())
    return exitStatus;
  printMessage("trun: error: {}\n", printed.message());
  return tcc::tools::exitStatusOf(printed);
}

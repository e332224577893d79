//===- Main.cpp - trun: runs plans ---------------------------------------===//
#include "runtime/cpu/MachineMemory.h"
#include "tools/trun/Commands.h"

#include <exception>

int main(int argc, char **argv) {
  uint64_t processBytes = tcc::runtime::processMemoryBytes();
  tcc::tools::Parsed parsed = tcc::tools::parseCommandLine(argc, argv);
  if (parsed.exitStatus)
    return *parsed.exitStatus;
  parsed.options.processBytes = processBytes;
  // Libraries may throw where memory ends: the user gets a message, not a crash.
  try {
    tcc::plan::Status status = tcc::tools::runCommand(parsed.options);
    if (!status.ok())
      fmt::print(stderr, "trun: error: {}\n", status.message());
    return status.exitCode();
  } catch (const std::bad_alloc &) {
    fmt::print(stderr, "trun: error: out of memory\n");
  } catch (const std::exception &problem) {
    fmt::print(stderr, "trun: error: {}\n", problem.what());
  }
  return tcc::plan::kExitFault;
}

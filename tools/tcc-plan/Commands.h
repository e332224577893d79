//===- Commands.h - the commands of tcc-plan --------------------*- C++ -*-===//
#ifndef TCC_TOOLS_TCCPLAN_COMMANDS_H
#define TCC_TOOLS_TCCPLAN_COMMANDS_H

#include "runtime/plan/Status.h"

namespace CLI {
class App;
} // namespace CLI

namespace tcc::tools {

// Each reads its own command line, writes results to standard output and messages to standard error, and returns the
// exit status: 3 where nothing fits.
int packCommand(int argc, char **argv);
int rematCommand(int argc, char **argv);

/// "error: MESSAGE" on standard error; returns the exit status.
int printError(const plan::Status &status);

} // namespace tcc::tools

#endif // TCC_TOOLS_TCCPLAN_COMMANDS_H

//===- CommandLine.h - options and usage errors that commands share --*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_COMMANDLINE_H
#define TCC_TOOLS_COMMON_COMMANDLINE_H

#include "support/Status.h"

#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace tcc::tools {

/// The outcome of parsing a command line.
struct Arguments {
  bool answered = false; ///< --help or --version: printed, nothing is left to do
  Status status;   ///< wrong usage: one line that says what, and where help is
};

/// Reads a command line that `app` describes. An unknown option is answered with the nearest known one.
Arguments readArguments(CLI::App &app, int argc, char **argv);

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_COMMANDLINE_H

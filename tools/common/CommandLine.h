//===- CommandLine.h - options and usage errors that commands share --*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_COMMANDLINE_H
#define TCC_TOOLS_COMMON_COMMANDLINE_H

#include "support/OwnFiles.h"
#include "support/Status.h"

#include <optional>
#include <string>
#include <vector>

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

/// Checks of options: what is wrong with the number, or empty.
std::string checkPositive(const std::string &text);
std::string checkNotNegative(const std::string &text);

/// An option that names a file to write, and what it will hold; nothing: a folder, or what follows from the name.
struct Output {
  std::string option; ///< its long name, "--html"
  std::optional<OwnFile> kind;
};

/// Checks before any work is done that these options name no file that the command line names elsewhere, and none that
/// another program wrote.
Status checkOutputs(const CLI::App &app, const std::vector<Output> &outputs);

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_COMMANDLINE_H

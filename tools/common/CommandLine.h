//===- CommandLine.h - options and usage errors that commands share --*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_COMMANDLINE_H
#define TCC_TOOLS_COMMON_COMMANDLINE_H

#include "support/OwnFiles.h"
#include "support/Status.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
} // namespace CLI

namespace tcc::tools {

/// The outcome of parsing a command line.
struct Arguments {
  bool answered = false; ///< --help, --version or --describe was answered; the command is done
  Status status;   ///< wrong usage: one line that names the fault and where help is
};

/// The word after a command that makes it print its options for programs: a JSON object in a line. Man pages and
/// completions are made of it (tools/manual.py). After a program's own name it prints a line for each of its commands.
constexpr std::string_view kDescribe = "--describe";

/// True if the command line is `PROGRAM --describe`.
bool asksForDescription(int argc, char **argv);

/// Prints that line. `command`: its name; `about`: what it does, in lines; `options`: those of `app`, if it has one.
void describe(const std::string &command, const std::string &about, const CLI::App *app = nullptr);

/// Reads a command line that `app` describes. An unknown option is answered with the nearest known one.
Arguments readArguments(CLI::App &app, int argc, char **argv);

/// Checks of options: the fault of the number, or empty.
std::string checkPositive(const std::string &text);
std::string checkNotNegative(const std::string &text);

/// An option that names a file to write, and the file's kind; no kind: a folder, or the kind follows from the name.
struct Output {
  std::string option; ///< its long name, "--html"
  std::optional<OwnFile> kind;
};

/// Checks, before any work is done, that these options name neither a file that another option names nor a file that
/// another program wrote.
Status checkOutputs(const CLI::App &app, const std::vector<Output> &outputs);

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_COMMANDLINE_H

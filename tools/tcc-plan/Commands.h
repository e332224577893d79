//===- Commands.h - the commands of tcc-plan --------------------*- C++ -*-===//
#ifndef TCC_TOOLS_TCCPLAN_COMMANDS_H
#define TCC_TOOLS_TCCPLAN_COMMANDS_H

#include "support/Status.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace tcc::tools {

// Each reads its own command line, writes results to standard output and messages to standard error, and returns the
// exit status: 3 where nothing fits.
int packCommand(int argc, char **argv);
int rematCommand(int argc, char **argv);

/// Limits of a search: work and time.
class SearchLimits {
public:
  /// The options --work and --deadline.
  void addTo(CLI::App &app, const std::string &unit, const std::string &usual);

  uint64_t work = 0; ///< 0: the usual
  bool hasDeadline() const { return deadline > 0; }
  double seconds() const; ///< since construction
  /// Tells a search to stop; empty without a deadline. Must not outlive this object.
  std::function<bool()> stop() const;

private:
  double deadline = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

/// "error: MESSAGE" on standard error; returns the exit status.
int printError(const Status &status);

} // namespace tcc::tools

#endif // TCC_TOOLS_TCCPLAN_COMMANDS_H

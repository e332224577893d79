//===- Commands.h - the commands of trun ---------------------------------===//
#ifndef TCC_TOOLS_TRUN_COMMANDS_H
#define TCC_TOOLS_TRUN_COMMANDS_H

#include "runtime/state/Export.h"
#include "runtime/train/LrFind.h"
#include "runtime/train/Profile.h"
#include "runtime/train/Train.h"
#include "tools/trun/OnRanks.h"
#include "tools/trun/Screen.h"

#include <string>

namespace tcc::tools {

/// The options of all commands; each uses its part.
struct Options {
  enum class Command {
    Train,
    Eval,
    Predict,
    Gradients,
    Export,
    Verify,
    Memory,
    Profile,
    Data,
    LrFind,
    Sweep,
    Report,
    Quantize
  } command = Command::Train;
  runtime::SessionOptions session;
  runtime::TrainOptions train;
  ScreenOptions screen;
  JobOptions job;
  std::string from, inputs, outputs; ///< eval, predict, gradients; quantize: the weights
  std::string run, output;           ///< export, report, quantize
  std::string confusion;             ///< eval: file to write; empty: none
  std::string html;                  ///< report: file to write; empty: none
  bool ema = false;
  runtime::ExportOptions exporting; ///< export
  uint32_t variant = 0;      ///< memory: of a plan with several
  uint64_t processBytes = 0; ///< memory: of the process as it started
  runtime::ProfileOptions profile;
  runtime::LrFindOptions lrFind;
  uint64_t seeds = 1; ///< sweep
  std::string trace;                                    ///< profile: file to write; empty: none
  bool json = false, allKernels = false, noRoofline = false; ///< profile; json: report, too
};

/// `trun data PATH`: prints columns and every damaged sample. Error: there are damaged samples.
Status dataCommand(const Options &options);

/// `trun lr-find PLAN`: prints the loss by learning rate, and rates to start from. Error: the loss never fell.
Status lrFindCommand(const Options &options);

/// `trun sweep PLAN`: trains once for each combination of settings and seed; prints the runs, best first.
Status sweepCommand(const Options &options);

/// `trun report RUN`: a run as text, JSON or a page. Error: no run, or the page cannot be written.
Status reportCommand(const Options &options);

/// Runs the command; messages go to standard error, results to standard output.
Status runCommand(const Options &options);

/// The options of a run as they would be typed: "--data /data/cifar --steps 100".
std::string optionsText(const runtime::RunOptions &options);

/// Reads the command line. If the exit status is set, the program ends with it: help, version, wrong usage.
struct Parsed {
  Options options;
  std::optional<int> exitStatus;
};
Parsed parseCommandLine(int argc, char **argv);

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_COMMANDS_H

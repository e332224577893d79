//===- ReportCommand.cpp - tcc report -------------------------------------===//
#include "tools/tcc/Commands.h"
#include "tools/tcc/Report.h"

#include <CLI/CLI.hpp>

namespace tcc::tools {

int reportCommand(int argc, char **argv) {
  CLI::App app("Says what a plan decided, and why: memory, buffers, parameters, kernels.", "tcc report");
  std::string path, html;
  bool json = false;
  app.add_option("PLAN", path, "the plan that tcc wrote")->required();
  auto *asJson = app.add_flag("--json", json, "for programs; docs/report.md lists the keys");
  app.add_option("--html", html, "not in this version")->excludes(asJson);
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  if (!html.empty())
    return printError(plan::Status("--html is not in this version: use the text, or --json", plan::kExitUsage));
  plan::Expected<plan::PlanReader> reader = plan::PlanReader::open(path);
  if (!reader)
    return printError(reader.status());
  report::Report report = report::analyzePlan(reader->plan(), reader->fileBytes());
  std::string text =
      json ? report::reportJson(report).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
           : report::reportText(report);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return printError(plan::error("standard output: cannot be written"));
  return plan::kExitDone;
}

} // namespace tcc::tools

//===- ReportCommand.cpp - tcc report -------------------------------------===//
#include "runtime/state/AtomicFile.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"
#include "runtime/plan/Verifier.h"
#include "tools/tcc/Report.h"
#include "tools/tcc/ReportDiff.h"

#include <CLI/CLI.hpp>

namespace tcc::tools {

namespace {

plan::Expected<report::Report> analyzed(const plan::PlanReader &reader, const std::string &path, uint32_t variant) {
  int variants = std::max(1, reader.plan().variants_size());
  if (variant >= uint32_t(variants))
    return plan::Status(fmt::format("--variant {}: {} holds {} plan{}, counted from 0", variant, path, variants,
                                    variants == 1 ? "" : "s"),
                        plan::kExitUsage);
  if (auto problems = plan::verifyPlan(reader.plan(), 1); !problems.empty())
    return plan::error("{}: the plan is not sound: {}", path, problems.front());
  return report::analyzePlan(reader.plan(), reader.fileBytes(), variant);
}

/// What only a running trun can tell.
void measure(report::Report &report, const std::string &path) {
  report.process = report::measureProcess(path, report.variant);
  if (report.process)
    report.hostBytes = report.process->hostBytes;
}

} // namespace

int reportCommand(int argc, char **argv) {
  CLI::App app("Says what a plan decided, and why: memory, buffers, parameters, kernels.", "tcc report");
  std::string path, other, html;
  bool json = false;
  uint32_t variant = 0;
  app.add_option("PLAN", path, "the plan that tcc wrote")->required();
  app.add_option("--diff", other, "a second plan: what changed from PLAN to it");
  auto *asJson = app.add_flag("--json", json, "for programs; docs/report.md lists the keys");
  app.add_option("--html", html, "writes one page for a browser, which needs nothing else")->excludes(asJson);
  app.add_option("--variant", variant, "of a plan file with several: which, from 0 (most memory)")->type_name("N");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  if (!html.empty() && !other.empty())
    return printError(plan::Status("--html shows one plan: compare two with the text, or --json", plan::kExitUsage));

  plan::Expected<plan::PlanReader> reader = plan::PlanReader::open(path);
  if (!reader)
    return printError(reader.status());
  plan::Expected<report::Report> report = analyzed(*reader, path, variant);
  if (!report)
    return printError(report.status());
  if (!html.empty()) {
    plan::Status status = runtime::writeFileAtomically(html, report::reportHtml(*report));
    return status.ok() ? plan::kExitDone : printError(status);
  }

  auto dump = [](const nlohmann::ordered_json &object) {
    return object.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  };
  std::string text;
  if (!other.empty()) {
    plan::Expected<plan::PlanReader> second = plan::PlanReader::open(other);
    if (!second)
      return printError(second.status());
    // A file with one plan has no second: what a budget changed is seen against it.
    plan::Expected<report::Report> after = analyzed(*second, other, second->plan().variants_size() ? variant : 0);
    if (!after)
      return printError(after.status());
    nlohmann::ordered_json difference = report::diffJson(*report, *after);
    text = json ? dump(difference) : report::diffText(difference);
  } else {
    measure(*report, path);
    text = json ? dump(report::reportJson(*report)) : report::reportText(*report);
  }
  printResult("{}", text);
  return plan::kExitDone;
}

} // namespace tcc::tools

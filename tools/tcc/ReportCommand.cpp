//===- ReportCommand.cpp - the command tcc report -------------------------===//
#include "support/AtomicFile.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"
#include "runtime/plan/Verifier.h"
#include "tools/tcc/Report.h"
#include "tools/tcc/ReportDiff.h"

#include <CLI/CLI.hpp>

namespace tcc::tools {

namespace {

Expected<report::Report> analyzed(const plan::PlanReader &reader, const std::string &path, uint32_t variant) {
  int variants = std::max(1, reader.plan().variants_size());
  if (variant >= uint32_t(variants))
    return Status(fmt::format("--variant {}: {} holds {} plan{}, counted from 0", variant, path, variants,
                                    variants == 1 ? "" : "s"),
                        kExitUsage);
  if (auto problems = plan::verifyPlan(reader.plan(), 1); !problems.empty())
    return error("{}: the plan is not sound: {}", path, problems.front());
  return report::analyzePlan(reader.plan(), reader.fileBytes(), variant);
}

/// What only a running trun can tell.
void measure(report::Report &report, const std::string &path) {
  report.process = report::measureProcess(path, report.variant);
  if (report.process)
    report.hostBytes = report.process->hostBytes + report.hostMemory.total();
}

} // namespace

int reportCommand(int argc, char **argv) {
  CLI::App app("Reports a plan's decisions and their reasons: memory, buffers, parameters, kernels.", "tcc report");
  std::string path, other, html, code;
  bool json = false;
  uint32_t variant = 0;
  app.add_option("PLAN", path, "the plan that tcc wrote")->required();
  app.add_option("--diff", other, "compare with a second plan: list the changes from PLAN to it");
  auto *asJson = app.add_flag("--json", json, "print JSON for programs; docs/guide/report.md lists the keys");
  app.add_option("--html", html, "write one self-contained page for a browser")->excludes(asJson);
  app.add_option("--code", code, "write the generated code to this file: an ELF shared object, or PTX");
  app.add_option("--variant", variant, "variant to report, counted from 0 (most memory)")->type_name("N");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  if (!html.empty() && !other.empty())
    return printError(Status("--html shows one plan: compare two with the text, or --json", kExitUsage));

  Expected<plan::PlanReader> reader = plan::PlanReader::open(path);
  if (!reader)
    return printError(reader.status());
  Expected<report::Report> report = analyzed(*reader, path, variant);
  if (!report)
    return printError(report.status());
  if (!code.empty()) {
    if (reader->plan().code_objects().empty())
      return printError(error("--code {}: {} has no generated code", code, path));
    std::span<const std::byte> bytes = reader->payload(reader->plan().code_objects(0).payload());
    Status status = tcc::writeFileAtomically(code, {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
    return status.ok() ? kExitDone : printError(status);
  }
  if (!html.empty()) {
    Status status = tcc::writeFileAtomically(html, report::reportHtml(*report));
    return status.ok() ? kExitDone : printError(status);
  }

  auto dump = [](const nlohmann::ordered_json &object) {
    return object.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  };
  std::string text;
  if (!other.empty()) {
    Expected<plan::PlanReader> second = plan::PlanReader::open(other);
    if (!second)
      return printError(second.status());
    // A file with one plan has no second: what a budget changed is seen against it.
    Expected<report::Report> after = analyzed(*second, other, second->plan().variants_size() ? variant : 0);
    if (!after)
      return printError(after.status());
    nlohmann::ordered_json difference = report::diffJson(*report, *after);
    text = json ? dump(difference) : report::diffText(difference);
  } else {
    measure(*report, path);
    text = json ? dump(report::reportJson(*report)) : report::reportText(*report);
  }
  printResult("{}", text);
  return kExitDone;
}

} // namespace tcc::tools

//===- ReportCommand.cpp - the command tcc report -------------------------===//
#include "support/AtomicFile.h"
#include "support/Json.h"
#include "tools/common/CommandLine.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"
#include "runtime/plan/Targets.h"
#include "runtime/plan/Verifier.h"
#include "tools/tcc/Report.h"
#include "tools/tcc/ReportDiff.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

namespace tcc::tools {

namespace {

/// The plan with one of its targets. Error: it has several, and none is named.
Expected<plan::PlanReader> openTarget(const std::string &path, const std::string &target, const char *option) {
  Expected<plan::PlanReader> reader = plan::PlanReader::open(path);
  if (!reader)
    return reader.status();
  const std::vector<std::string> names = plan::targetNames(reader->plan());
  if (names.size() > 1 && target.empty())
    return Status(fmt::format("{}: {} is for {}; choose one with --target {}", option, path, fmt::join(names, ", "),
                              names.front()),
                  StatusCode::Usage);
  if (target.empty())
    return reader;
  Expected<uint32_t> index = plan::findTarget(*reader, target);
  if (!index)
    return index.status();
  reader->selectTarget(*index);
  return reader;
}

Expected<report::Report> analyzed(const plan::PlanReader &reader, const std::string &path, uint32_t variant) {
  int variants = std::max(1, reader.plan().variants_size());
  if (variant >= uint32_t(variants))
    return Status(fmt::format("--variant {}: {} holds {} plan{}, counted from 0", variant, path, variants,
                                    variants == 1 ? "" : "s"),
                        StatusCode::Usage);
  if (auto problems = plan::verifyPlan(reader.plan(), 1); !problems.empty())
    return error("{}: the plan is not sound: {}", path, problems.front());
  report::Report report = report::analyzePlan(reader.plan(), reader.fileBytes(), variant);
  report.kernelWorks = report::countWork(reader);
  return report;
}

/// Adds the memory that only a running trun can measure.
void measure(report::Report &report, const std::string &path) {
  report.process = report::measureProcess(path, report.plan->target(), report.variant);
  if (report.process)
    report.hostBytes = report.process->hostBytes + report.hostMemory.total();
}

std::string dump(const nlohmann::ordered_json &object) {
  return jsonText(object, 1) + "\n";
}

/// The reports of these targets of a plan, one after the other.
Status printReports(const std::string &path, const std::vector<std::string> &targets, uint32_t variant, bool json,
                    bool summary) {
  nlohmann::ordered_json all = {{"version", 1}, {"targets", nlohmann::ordered_json::array()}};
  std::string text;
  for (const std::string &target : targets) {
    Expected<plan::PlanReader> reader = openTarget(path, target, "--target");
    if (!reader)
      return reader.status();
    Expected<report::Report> report = analyzed(*reader, path, variant);
    if (!report)
      return report.status();
    measure(*report, path);
    if (!json)
      text += (text.empty() ? "" : "\n") + (summary ? report::summaryText(*report) : report::reportText(*report));
    else if (targets.size() > 1)
      all["targets"].push_back(report::reportJson(*report));
    else
      text = dump(report::reportJson(*report));
  }
  if (json)
    printResult("{}", targets.size() > 1 ? dump(all) : text);
  else
    printText(text);
  return Status::success();
}

} // namespace

int reportCommand(int argc, char **argv) {
  CLI::App app("Reports a plan's decisions and their reasons: memory, buffers, parameters, kernels.", "tcc report");
  std::string path, other, html, code, target;
  bool json = false, summary = false;
  uint32_t variant = 0;
  app.add_option("PLAN", path, "the plan that tcc wrote")->required();
  app.add_option("--diff", other, "compare with a second plan: list the changes from PLAN to it");
  auto *asJson = app.add_flag("--json", json, "print JSON for programs; docs/guide/report.md lists the keys");
  app.add_flag("--summary", summary,
               "print what the plan is for and its memory, without buffers, kernels and parameters")
      ->excludes(asJson);
  app.add_option("--html", html, "write one self-contained page for a browser")->excludes(asJson);
  app.add_option("--code", code, "write the generated code to this file: an ELF shared object, or PTX");
  app.add_option("--variant", variant, "variant to report, counted from 0 (most memory)")->type_name("N");
  app.add_option("--target", target,
                 "report this target of a plan for several, as cpu:v3 (default: each; --html, --code and --diff "
                 "need one)");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  if (Status status = checkOutputs(app, {{"--html", OwnFile::Page}, {"--code", OwnFile::Code}}); !status.ok())
    return printError(status);
  if (!html.empty() && !other.empty())
    return printError(Status("--html shows one plan: compare two with the text, or --json", StatusCode::Usage));

  if (summary && !(html.empty() && other.empty() && code.empty()))
    return printError(
        Status("--summary shortens the text of one plan: leave out --html, --diff and --code", StatusCode::Usage));

  if (html.empty() && other.empty() && code.empty()) {
    Expected<plan::PlanReader> whole = plan::PlanReader::open(path);
    if (!whole)
      return printError(whole.status());
    Status status = printReports(
        path, target.empty() ? plan::targetNames(whole->plan()) : std::vector{target}, variant, json,
        summary);
    return status.ok() ? kExitDone : printError(status);
  }
  const char *option = !code.empty() ? "--code" : !html.empty() ? "--html" : "--diff";
  Expected<plan::PlanReader> reader = openTarget(path, target, option);
  if (!reader)
    return printError(reader.status());
  Expected<report::Report> report = analyzed(*reader, path, variant);
  if (!report)
    return printError(report.status());
  if (!code.empty()) {
    if (reader->plan().code_objects().empty())
      return printError(error("--code {}: {} has no generated code", code, path));
    std::span<const std::byte> bytes = reader->payload(reader->plan().code_objects(0).payload());
    // Loaders ignore bytes after an object's sections; in PTX the mark is a comment.
    std::string text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    Status status = tcc::writeFileAtomically(code, text.append(kCodeMark), OwnFile::Code);
    return status.ok() ? kExitDone : printError(status);
  }
  if (!html.empty()) {
    Status status = tcc::writeFileAtomically(html, report::reportHtml(*report), OwnFile::Page);
    return status.ok() ? kExitDone : printError(status);
  }
  // A plan for one target is compared whatever its target: one may compare two levels of one model.
  Expected<plan::PlanReader> second = plan::PlanReader::open(other);
  if (second && !second->plan().targets().empty())
    second = openTarget(other, target, "--diff");
  if (!second)
    return printError(second.status());
  // A file with one plan is compared with any variant: this shows the effect of a budget.
  Expected<report::Report> after = analyzed(*second, other, second->plan().variants_size() ? variant : 0);
  if (!after)
    return printError(after.status());
  nlohmann::ordered_json difference = report::diffJson(*report, *after);
  if (json)
    printResult("{}", dump(difference));
  else
    printText(report::diffText(difference));
  return kExitDone;
}

} // namespace tcc::tools

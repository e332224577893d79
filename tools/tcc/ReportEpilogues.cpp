//===- ReportEpilogues.cpp - the report's section on epilogues of calls ---===//
#include "runtime/plan/CallKernels.h"
#include "tools/tcc/ReportSections.h"

#include <fmt/format.h>

namespace tcc::report {

using Json = nlohmann::ordered_json;

bool isEpilogueNote(const plan::Decisions::Note &note) { return note.kind() == "epilogue"; }

Json epiloguesJson(const plan::Plan &plan) {
  Json result = Json::array();
  for (bool convolves : {false, true}) {
    int64_t count = 0, without = 0;
    for (const plan::Entry &entry : plan.entries())
      for (const plan::Instruction &instruction : entry.instructions())
        if (plan::mayHaveKernels(instruction) && !instruction.has_attention() &&
            instruction.has_convolution() == convolves) {
          ++count;
          without += plan::kernelsOf(instruction).empty();
        }
    if (count == 0)
      continue;
    const char *what = convolves ? "convolutions" : "products";
    Json reasons = Json::array();
    for (const plan::Decisions::Note &note : plan.decisions().notes())
      if (isEpilogueNote(note) && note.subject() == what)
        reasons.push_back(note.text());
    result.push_back({{"what", what}, {"calls", count}, {"without_kernels", without}, {"reasons", std::move(reasons)}});
  }
  return result;
}

std::string epiloguesText(const plan::Plan &plan) {
  const Json rows = epiloguesJson(plan);
  if (rows.empty())
    return "";
  std::string text = "\nepilogues in calls of libraries\n";
  Table table("<><", {"  of", "calls", "reason"});
  int64_t without = 0;
  for (const Json &row : rows) {
    std::string reasons;
    for (const Json &reason : row["reasons"])
      reasons += (reasons.empty() ? "" : "; ") + reason.get<std::string>();
    table.add({"  " + row["what"].get<std::string>(), std::to_string(row["calls"].get<int64_t>()), reasons});
    without += row["without_kernels"].get<int64_t>();
  }
  return text + table.text() +
         (without ? fmt::format("  {} call{} no kernels in the plan: a library without an algorithm for them does not "
                                "run it\n",
                                without, without == 1 ? " has" : "s have")
                  : "  where a library has no algorithm for one, the plan's kernels finish plain calls\n");
}

} // namespace tcc::report

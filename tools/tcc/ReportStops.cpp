//===- ReportStops.cpp - the report's section on stopped gradients --------===//
#include "tools/tcc/ReportStops.h"

#include <fmt/format.h>

namespace tcc::report {

using Json = nlohmann::ordered_json;

bool isStopNote(const plan::Decisions::Note &note) { return note.kind() == "stop_gradient"; }

Json stopsJson(const plan::Plan &plan) {
  Json rows = Json::array();
  for (const plan::Decisions::Note &note : plan.decisions().notes())
    if (isStopNote(note))
      rows.push_back({{"node", note.subject()}, {"source", note.text()}});
  return rows;
}

std::string stopsText(const plan::Plan &plan) {
  constexpr size_t kShown = 12;
  const Json rows = stopsJson(plan);
  if (rows.empty())
    return "";
  std::string text = fmt::format("\nstopped gradients: {}\n", counted(rows.size(), "node"));
  Table table("<<", {"  node", "marked by"});
  const size_t shown = rows.size() > kShown + 1 ? kShown : rows.size();
  for (size_t i = 0; i < shown; ++i)
    table.add({"  " + rows[i]["node"].get<std::string>(), rows[i]["source"].get<std::string>()});
  text += table.text();
  if (shown < rows.size())
    text += fmt::format("  and {} more\n", rows.size() - shown);
  return text;
}

} // namespace tcc::report

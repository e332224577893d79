//===- ReportAttention.cpp - the report's section on attention ------------===//
#include "tools/tcc/ReportSections.h"

#include <fmt/format.h>
#include <map>

namespace tcc::report {

using Json = nlohmann::ordered_json;

bool isAttentionNote(const plan::Decisions::Note &note) { return note.kind().starts_with("attention "); }

Json attentionJson(const plan::Plan &plan) {
  Json result = {{"fused", Json::array()}, {"near_misses", Json::array()}, {"weights_elided", Json::array()}};
  for (const plan::Decisions::Note &note : plan.decisions().notes()) {
    if (!isAttentionNote(note))
      continue;
    Json text = Json::parse(note.text(), nullptr, /*allow_exceptions=*/false);
    if (!text.is_object())
      continue;
    const bool fused = note.kind() == "attention fused";
    if (note.kind() == "attention kept" || note.kind() == "attention called") {
      Json row = {{"node", note.subject()}};
      row.update(text);
      result[note.kind() == "attention kept" ? "kept_from_library" : "by_library"].push_back(std::move(row));
      continue;
    }
    Json row = fused ? Json{{"nodes", Json::array()}, {"softmax", note.subject()}} : Json{{"node", note.subject()}};
    row.update(text);
    result[fused                               ? "fused"
           : note.kind() == "attention missed" ? "near_misses"
                                               : "weights_elided"]
        .push_back(std::move(row));
  }
  if (result.contains("by_library")) {
    int64_t without = 0;
    for (const plan::Entry &entry : plan.entries())
      for (const plan::Instruction &instruction : entry.instructions())
        without += instruction.has_attention() && instruction.attention().kernels_size() == 0;
    result["calls_without_kernels"] = without;
  }
  return result;
}

std::string attentionText(const plan::Plan &plan) {
  const Json attention = attentionJson(plan);
  const Json &fused = attention["fused"], &missed = attention["near_misses"];
  if (fused.empty() && missed.empty())
    return "";
  auto number = [](const Json &row, const char *key) { return row.value(key, int64_t(0)); };
  auto in = [](const Json &row) {
    std::string text;
    for (const Json &graph : row.value("in", Json::array()))
      text += (text.empty() ? "" : ", ") + graph.get<std::string>();
    return text;
  };
  uint64_t bytes = 0;
  for (const Json &row : attention["weights_elided"])
    bytes += row.value("bytes", uint64_t(0));
  std::string text =
      fmt::format("\nattention\n  fused: {}; weights that are never formed: {}\n", fused.size(), formatBytes(bytes));
  if (!fused.empty()) {
    Table table("<<<<<", {"  softmax", "shape", "scores", "masks", "in"});
    for (const Json &row : fused) {
      const int64_t heads = number(row, "heads"), keyHeads = number(row, "key_heads");
      std::string scores = fmt::format("× {:.6g}", row.value("scale", 1.0)), masks;
      if (row.contains("softcap"))
        scores += fmt::format(", capped at {:g}", row.value("softcap", 0.0));
      if (row.contains("dropout"))
        scores += fmt::format(", dropout {:g}", row.value("dropout", 0.0));
      if (row.value("causal", false))
        masks = number(row, "causal_offset") ? fmt::format("causal + {}", number(row, "causal_offset")) : "causal";
      for (const char *key : {"mask", "bias"})
        if (std::string shape = row.value(key, std::string()); !shape.empty())
          masks += fmt::format("{}{} {}", masks.empty() ? "" : ", ", key, shape);
      table.add({"  " + row.value("softmax", std::string()),
                 fmt::format("{} × {} heads{}, {} × {}, {} wide", number(row, "samples"), heads,
                             keyHeads == heads ? "" : fmt::format(" on {}", keyHeads), number(row, "queries"),
                             number(row, "keys"), number(row, "size")),
                 scores, masks, in(row)});
    }
    text += table.text();
  }
  if (!missed.empty()) {
    text += "  not fused, but for one node:\n";
    Table table("<<<", {"  node", "reason", "in"});
    for (const Json &row : missed)
      table.add({"  " + row.value("node", std::string()), row.value("reason", std::string()), in(row)});
    text += table.text();
  }
  if (attention.contains("by_library")) {
    std::map<std::pair<std::string, std::string>, int64_t> counts; // by reason and part
    for (const Json &row : attention["by_library"])
      counts[{row.value("reason", std::string()), row.value("what", std::string())}] +=
          static_cast<int64_t>(row.value("in", Json::array()).size());
    text += "  by cuDNN:\n";
    Table table("<><", {"  what", "calls", "reason"});
    for (const auto &[key, count] : counts)
      table.add({"  " + key.second, std::to_string(count), key.first});
    text += table.text();
    const int64_t without = number(attention, "calls_without_kernels");
    text += without ? fmt::format("  {} call{} no kernels in the plan: a machine without cuDNN does not run it\n",
                                  without, without == 1 ? " has" : "s have")
                    : "  a machine without cuDNN runs the plan's kernels in their place\n";
  }
  if (attention.contains("kept_from_library")) {
    text += "  left to kernels by compiler.attention_calls:\n";
    Table table("<<<<", {"  node", "what", "reason", "in"});
    for (const Json &row : attention["kept_from_library"])
      table.add({"  " + row.value("node", std::string()), row.value("what", std::string()),
                 row.value("reason", std::string()), in(row)});
    text += table.text();
  }
  return text;
}

} // namespace tcc::report

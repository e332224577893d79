//===- ReportOffload.cpp - what a card keeps on the host -------------------===//
#include "runtime/plan/Spaces.h"
#include "tools/tcc/Report.h"

#include <algorithm>
#include <map>

namespace tcc::report {

Offload analyzeOffload(const plan::Plan &plan, const plan::Entry &program) {
  Offload result;
  std::map<std::string, size_t> index;
  uint64_t work = 0;
  for (const plan::Instruction &instruction : program.instructions()) {
    if (!instruction.has_transfer()) {
      work += instruction.cost();
      continue;
    }
    const plan::Buffer &from = program.buffers(int(instruction.operands(0).buffer()));
    const plan::Buffer &to = program.buffers(int(instruction.operands(1).buffer()));
    const bool store = plan::isOnHost(to.arena());
    const plan::Buffer &host = store ? to : from;
    const bool isState = host.variable() >= 0;
    const std::string name = isState ? plan.variables(host.variable()).name() : host.node();
    auto [found, fresh] = index.try_emplace((isState ? "s" : "v") + name + host.name(), result.values.size());
    if (fresh)
      result.values.push_back({name, program.name(), isState, host.bytes()});
    MovedValue &value = result.values[found->second];
    (store ? value.stores : value.fetches) += 1;
    (store ? result.storedBytes : result.fetchedBytes) += host.bytes();
    result.transferNs += instruction.cost();
  }
  if (!result.values.empty() && program.cost() > work)
    result.waitedNs = program.cost() - work;
  return result;
}

void addOffload(Offload &sum, const Offload &program, uint64_t calls) {
  sum.storedBytes += program.storedBytes * calls;
  sum.fetchedBytes += program.fetchedBytes * calls;
  sum.transferNs += program.transferNs * calls;
  sum.waitedNs += program.waitedNs * calls;
  sum.values.insert(sum.values.end(), program.values.begin(), program.values.end());
  std::stable_sort(sum.values.begin(), sum.values.end(), [](auto &a, auto &b) { return a.bytes > b.bytes; });
}

nlohmann::ordered_json offloadJson(const Report &report) {
  const Offload &all = report.offload;
  nlohmann::ordered_json values = nlohmann::ordered_json::array();
  for (const MovedValue &value : all.values)
    values.push_back({{"name", value.name},
                      {"program", value.program},
                      {"kind", value.isState ? "state" : "value"},
                      {"bytes", value.bytes},
                      {"stores", value.stores},
                      {"fetches", value.fetches}});
  return {{"state_bytes", plan::spaceBytes(*report.plan, plan::HOST_RESIDENT)},
          {"value_bytes", plan::spaceBytes(*report.plan, plan::HOST_TRANSIENT)},
          {"stored_bytes", all.storedBytes},
          {"fetched_bytes", all.fetchedBytes},
          {"transfer_ns", all.transferNs},
          {"waited_ns", all.waitedNs},
          {"values", std::move(values)}};
}

std::string offloadText(const Report &report) {
  constexpr size_t kShown = 10;
  const Offload &all = report.offload;
  if (all.values.empty())
    return "";
  std::string text = fmt::format("\non the host: {} of state, {} of values; {} stores {} and fetches {}\n  transfers "
                                 "take {} by the plan's rate, of "
                                 "which something waits for {}\n",
                                 formatBytes(plan::spaceBytes(*report.plan, plan::HOST_RESIDENT)),
                                 formatBytes(plan::spaceBytes(*report.plan, plan::HOST_TRANSIENT)), report.counted,
                                 formatBytes(all.storedBytes), formatBytes(all.fetchedBytes), timeText(all.transferNs),
                                 timeText(all.waitedNs));
  Table table("<<>>>", {"node or variable", "", "bytes", "stores", "fetches"});
  for (size_t i = 0; i < std::min(all.values.size(), kShown); ++i) {
    const MovedValue &value = all.values[i];
    table.add({value.name, value.isState ? "state" : value.program, formatBytes(value.bytes),
               std::to_string(value.stores), std::to_string(value.fetches)});
  }
  text += table.text();
  if (all.values.size() > kShown)
    text += fmt::format("  and {} more\n", all.values.size() - kShown);
  return text;
}

} // namespace tcc::report

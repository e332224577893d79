//===- Verifier.cpp - the plan as a whole: payloads, code, variables -----===//
#include "runtime/plan/Verifier.h"
#include "runtime/plan/VerifierImpl.h"

#include <algorithm>
#include <set>

namespace tcc::plan {

namespace verifier {

std::string describe(const Entry &entry, uint32_t buffer) {
  if (buffer >= static_cast<uint32_t>(entry.buffers_size()))
    return fmt::format("buffer {}", buffer);
  const Buffer &b = entry.buffers(static_cast<int>(buffer));
  std::string text = fmt::format("buffer {} '{}'", buffer, b.name());
  return b.node().empty() ? text : text + fmt::format(" (node '{}')", b.node());
}

std::string describeInstruction(const Entry &entry, int index) {
  std::string text = fmt::format("entry '{}', instruction {}", entry.name(), index);
  const std::string &node = entry.instructions(index).node();
  return node.empty() ? text : text + fmt::format(" (node '{}')", node);
}

namespace {
void verifyVariableSource(const Plan &plan, const Variable &variable, uint64_t bytes, Reporter &report) {
  switch (variable.init_case()) {
  case Variable::kPayload:
    if (variable.payload() >= static_cast<uint32_t>(plan.payloads_size()))
      report("variable '{}': payload {} does not exist, the plan has {}", variable.name(), variable.payload(),
             plan.payloads_size());
    else if (plan.payloads(static_cast<int>(variable.payload())).bytes() != bytes)
      report("variable '{}': payload {} has {} bytes, {} needs {}", variable.name(), variable.payload(),
             plan.payloads(static_cast<int>(variable.payload())).bytes(), typeName(variable.type()), bytes);
    break;
  case Variable::kExternal:
    if (variable.external().path().empty())
      report("variable '{}': its external file has no name", variable.name());
    if (variable.external().bytes() != bytes)
      report("variable '{}': {} bytes of '{}' are named, {} needs {}", variable.name(), variable.external().bytes(),
             variable.external().path(), typeName(variable.type()), bytes);
    break;
  case Variable::kFill:
    break;
  case Variable::INIT_NOT_SET:
    report("variable '{}': it has no initial value", variable.name());
  }
}

void verifyVariables(const Plan &plan, Reporter &report) {
  struct Range {
    uint64_t offset, bytes;
    const Variable *variable;
  };
  std::vector<Range> ranges;
  std::set<std::string> names;
  for (const Variable &variable : plan.variables()) {
    if (!names.insert(variable.name()).second)
      report("variable '{}': the name is used twice", variable.name());
    std::optional<uint64_t> bytes = tensorBytes(variable.type());
    if (!bytes || dtypeBytes(variable.type().dtype()) == 0) {
      report("variable '{}': {} is no valid type", variable.name(), typeName(variable.type()));
      continue;
    }
    verifyVariableSource(plan, variable, *bytes, report);
    if (variable.offset() % kAlignmentBytes != 0)
      report("variable '{}': offset {} is not a multiple of {}", variable.name(), variable.offset(), kAlignmentBytes);
    if (Wide(variable.offset()) + *bytes > plan.resident_bytes())
      report("variable '{}': {} bytes at offset {} do not lie inside the resident arena of {} bytes", variable.name(),
             *bytes, variable.offset(), plan.resident_bytes());
    else if (*bytes > 0)
      ranges.push_back({variable.offset(), *bytes, &variable});
  }
  std::stable_sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return a.offset < b.offset; });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i - 1].offset + ranges[i - 1].bytes > ranges[i].offset)
      report("variables '{}' and '{}' overlap in the resident arena: [{}, {}) and [{}, {})",
             ranges[i - 1].variable->name(), ranges[i].variable->name(), ranges[i - 1].offset,
             ranges[i - 1].offset + ranges[i - 1].bytes, ranges[i].offset, ranges[i].offset + ranges[i].bytes);
}
} // namespace
} // namespace verifier

std::vector<std::string> verifyPlan(const Plan &plan, size_t limit) {
  verifier::Reporter report(limit);
  for (int i = 0; i < plan.code_objects_size(); ++i) {
    const CodeObject &code = plan.code_objects(i);
    if (code.payload() >= static_cast<uint32_t>(plan.payloads_size()))
      report("code object {}: payload {} does not exist, the plan has {}", i, code.payload(), plan.payloads_size());
    if (code.abi() != kKernelAbiVersion)
      report("code object {}: it was made for kernel ABI version {}, this program has version {}; recompile the model "
             "with tcc",
             i, code.abi(), kKernelAbiVersion);
  }
  if (plan.model_payload() < -1 || plan.model_payload() >= plan.payloads_size())
    if (plan.model_payload() != 0)
      report("the model's payload {} does not exist, the plan has {}", plan.model_payload(), plan.payloads_size());
  if (plan.max_workers() < 1)
    report("max_workers is 0: nobody could run the plan");

  constexpr uint64_t limitBytes = uint64_t(1) << 46;
  if (plan.resident_bytes() > limitBytes || plan.transient_bytes() > limitBytes)
    report("an arena of {} resident and {} transient bytes is beyond any machine", plan.resident_bytes(),
           plan.transient_bytes());

  verifier::verifyVariables(plan, report);

  std::set<std::pair<uint32_t, std::string>> names;
  std::vector<uint64_t> needed(size_t(std::max(plan.variants_size(), 1)), 0);
  uint64_t largest = 0;
  for (const Entry &entry : plan.entries()) {
    if (!names.insert({entry.variant(), entry.name()}).second)
      report("entry '{}': the name is used twice", entry.name());
    if (entry.variant() >= needed.size()) {
      report("entry '{}': it belongs to variant {}, the plan has {}", entry.name(), entry.variant(),
             plan.variants_size());
      continue;
    }
    needed[entry.variant()] = std::max(needed[entry.variant()], entry.transient_bytes());
    largest = std::max(largest, entry.transient_bytes());
    verifier::verifyEntry(plan, entry, report);
  }
  for (int i = 0; i < plan.variants_size(); ++i)
    if (plan.variants(i).transient_bytes() != needed[size_t(i)])
      report("variant {} states a transient arena of {} bytes, its entries need {}", i,
             plan.variants(i).transient_bytes(), needed[size_t(i)]);
  if (plan.transient_bytes() != largest)
    report("the transient arena has {} bytes, the largest entry needs {}", plan.transient_bytes(), largest);
  return report.take();
}

} // namespace tcc::plan

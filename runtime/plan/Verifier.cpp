//===- Verifier.cpp - the plan as a whole ---------------------------------===//
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

} // namespace verifier

std::vector<std::string> verifyPlan(const Plan &plan, size_t limit) {
  verifier::Reporter report(limit);
  verifier::SignatureIndex signatures = verifier::verifyCode(plan, report);
  if (plan.model_payload() < -1 || plan.model_payload() >= plan.payloads_size())
    if (plan.model_payload() != 0)
      report("the model's payload {} does not exist, the plan has {}", plan.model_payload(), plan.payloads_size());
  if (plan.max_workers() < 1)
    report("max_workers is 0: nobody could run the plan");

  constexpr uint64_t limitBytes = uint64_t(1) << 46;
  if (plan.resident_bytes() > limitBytes || plan.transient_bytes() > limitBytes)
    report("an arena of {} resident and {} transient bytes is beyond any machine", plan.resident_bytes(),
           plan.transient_bytes());

  verifier::Context context{plan, signatures, report};
  verifier::verifyVariables(context);

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
    verifier::verifyEntry(context, entry);
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

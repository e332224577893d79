//===- Targets.cpp - join plans for several targets, and take one of them -===//
//
// A field of the message Plan is stored once if all targets agree on it, else as a whole with each target. The rule
// names no field, so a field that is added to the format needs no change here.
//
//===----------------------------------------------------------------------===//
#include "runtime/plan/Targets.h"
#include "support/Advice.h"

#include <algorithm>
#include <fmt/ranges.h>

using google::protobuf::FieldDescriptor;

namespace tcc::plan {

namespace {
/// Renumbers the plan's payloads to their indices in the common file.
void renumberPayloads(Plan &plan, const std::vector<uint32_t> &numbers) {
  auto renumbered = [&](uint32_t old) { return old < numbers.size() ? numbers[old] : old; };
  for (Variable &variable : *plan.mutable_variables())
    if (variable.init_case() == Variable::kPayload)
      variable.set_payload(renumbered(variable.payload()));
  for (CodeObject &code : *plan.mutable_code_objects()) {
    code.set_payload(renumbered(code.payload()));
    for (CodeObject::Assembled &one : *code.mutable_assembled())
      one.set_payload(renumbered(one.payload()));
  }
  if (plan.model_payload() >= 0)
    plan.set_model_payload(static_cast<int32_t>(renumbered(static_cast<uint32_t>(plan.model_payload()))));
  plan.clear_payloads();
}

/// One field as a file would hold it, map fields in key order.
std::string bytesOf(Plan &plan, const FieldDescriptor *field) {
  Plan one;
  plan.GetReflection()->SwapFields(&plan, &one, {field});
  std::string bytes = serialize(one);
  plan.GetReflection()->SwapFields(&plan, &one, {field});
  return bytes;
}

bool agree(std::vector<Plan> &plans, const FieldDescriptor *field) {
  const std::string first = bytesOf(plans.front(), field);
  return std::all_of(plans.begin() + 1, plans.end(), [&](Plan &plan) { return bytesOf(plan, field) == first; });
}

std::vector<const FieldDescriptor *> fieldsOf(const google::protobuf::Descriptor *type) {
  std::vector<const FieldDescriptor *> fields;
  for (int i = 0; i < type->field_count(); ++i)
    fields.push_back(type->field(i));
  return fields;
}
} // namespace

std::vector<std::string> targetNames(const Plan &plan) {
  if (plan.targets().empty())
    return {plan.target()};
  std::vector<std::string> names;
  for (const Plan &part : plan.targets())
    names.push_back(part.target());
  return names;
}

Expected<uint32_t> findTarget(const PlanReader &reader, const std::string &name) {
  const std::vector<std::string> names = targetNames(reader.plan());
  auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    return Status(fmt::format("{}: {} is for {}; name one of those, or compile with {}", advice::option("target", name),
                              reader.path(), fmt::join(names, ", "), advice::compile("target", name)),
                  StatusCode::Usage);
  return static_cast<uint32_t>(found - names.begin());
}

Plan targetOf(const Plan &plan, uint32_t target) {
  if (static_cast<int>(target) >= plan.targets_size())
    return plan;
  Plan common = plan;
  const Plan part = std::move(*common.mutable_targets(static_cast<int>(target)));
  common.clear_targets();
  common.MergeFrom(part);
  return common;
}

Expected<std::string> combineTargets(const std::vector<PlanReader> &plans) {
  std::vector<const PlanReader *> sorted;
  for (const PlanReader &plan : plans)
    sorted.push_back(&plan);
  std::sort(sorted.begin(), sorted.end(),
            [](const PlanReader *a, const PlanReader *b) { return a->plan().target() < b->plan().target(); });
  PlanWriter writer;
  std::vector<Plan> parts;
  for (const PlanReader *reader : sorted) {
    if (!parts.empty() && parts.back().target() == reader->plan().target())
      return error("two plans are for {}", reader->plan().target());
    Plan &part = parts.emplace_back(reader->plan());
    std::vector<uint32_t> numbers;
    for (int i = 0; i < part.payloads_size(); ++i) {
      std::span<const std::byte> bytes = reader->payload(static_cast<uint32_t>(i));
      numbers.push_back(writer.addPayloadView(bytes.data(), bytes.size()));
    }
    renumberPayloads(part, numbers);
  }
  Plan common = parts.front();
  std::vector<const FieldDescriptor *> shared;
  const std::vector<const FieldDescriptor *> all = fieldsOf(common.GetDescriptor());
  for (const FieldDescriptor *field : all) {
    if (field->number() != Plan::kTargetFieldNumber && agree(parts, field))
      shared.push_back(field);
    else
      common.GetReflection()->ClearField(&common, field);
  }
  for (Plan &part : parts) {
    for (const FieldDescriptor *field : shared)
      part.GetReflection()->ClearField(&part, field);
    *common.add_targets() = std::move(part);
  }
  return writer.toBuffer(common);
}

} // namespace tcc::plan

//===- Verifier.cpp - the plan as a whole ---------------------------------===//
#include "runtime/plan/Verifier.h"
#include "runtime/plan/VerifierImpl.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/Targets.h"
#include "runtime/plan/VirtualRanks.h"

#include <algorithm>
#include <bit>
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

namespace {
/// Checks the arenas that a device allocates. False: one that every plan must have is missing.
bool verifySpaces(const Plan &plan, verifier::Reporter &report) {
  constexpr uint64_t limitBytes = uint64_t(1) << 46;
  std::set<std::string> names;
  for (int i = 0; i <= TRANSIENT; ++i)
    if (i >= plan.spaces_size() || plan.spaces(i).name() != kSpaceNames[static_cast<size_t>(i)]) {
      report("memory space {} is not '{}', as in every plan", i, kSpaceNames[static_cast<size_t>(i)]);
      return false;
    }
  if (plan.spaces_size() > TRANSIENT + 1)
    for (int i = HOST_RESIDENT; i < std::max(plan.spaces_size(), HOST_TRANSIENT + 1); ++i)
      if (i >= plan.spaces_size() || i > HOST_TRANSIENT ||
          plan.spaces(i).name() != kSpaceNames[static_cast<size_t>(i)]) {
        report("memory space {} is none that a plan may have: after the first two come '{}' and '{}'", i,
               kSpaceNames[HOST_RESIDENT], kSpaceNames[HOST_TRANSIENT]);
        return false;
      }
  for (const MemorySpace &space : plan.spaces()) {
    if (space.name().empty() || !names.insert(space.name()).second)
      report("memory space '{}': the name is empty or used twice", space.name());
    if (!std::has_single_bit(space.alignment()) || space.alignment() < kAlignmentBytes ||
        space.alignment() > kMostSpaceAlignmentBytes)
      report("memory space '{}': its alignment is {}; it must be a power of two from {} to {}", space.name(),
             space.alignment(), kAlignmentBytes, kMostSpaceAlignmentBytes);
    if (space.bytes() > limitBytes)
      report("memory space '{}': an arena of {} bytes is beyond any machine", space.name(), space.bytes());
  }
  return true;
}

/// Virtual ranks are the leaves of a binary tree, and each rank sums a whole subtree.
void verifyVirtualRanks(const Plan &plan, verifier::Reporter &report) {
  const Parallel &parallel = plan.training().parallel();
  const uint64_t all = parallel.virtual_ranks(), least = parallel.least_ranks();
  if (all == 0 && least == 0)
    return;
  if (!std::has_single_bit(all) || !std::has_single_bit(least) || least > all || all > kMostVirtualRanks)
    report("{} virtual ranks on {} ranks or more make no tree: both are powers of two up to {}", all, least,
           kMostVirtualRanks);
}

/// A plan for one target.
std::vector<std::string> verifyTarget(const Plan &plan, size_t limit) {
  verifier::Reporter report(limit);
  if (!verifySpaces(plan, report))
    return report.take();
  verifier::SignatureIndex signatures = verifier::verifyCode(plan, report);
  if (plan.model_payload() < -1 || plan.model_payload() >= plan.payloads_size())
    if (plan.model_payload() != 0)
      report("the model's payload {} does not exist, the plan has {}", plan.model_payload(), plan.payloads_size());
  if (plan.max_workers() < 1)
    report("max_workers is 0, but a plan needs at least one worker");
  verifyVirtualRanks(plan, report);

  verifier::Context context{plan, signatures, report};
  verifier::verifyVariables(context);

  std::set<std::pair<uint32_t, std::string>> names;
  std::vector<uint64_t> needed(size_t(std::max(plan.variants_size(), 1)), 0), neededOfHost = needed;
  uint64_t largest = 0, largestOfHost = 0;
  for (const Entry &entry : plan.entries()) {
    if (!names.insert({entry.variant(), entry.name()}).second)
      report("entry '{}': the name is used twice", entry.name());
    if (entry.variant() >= needed.size()) {
      report("entry '{}': it belongs to variant {}, the plan has {}", entry.name(), entry.variant(),
             plan.variants_size());
      continue;
    }
    needed[entry.variant()] = std::max(needed[entry.variant()], entry.transient_bytes());
    neededOfHost[entry.variant()] = std::max(neededOfHost[entry.variant()], entry.host_transient_bytes());
    largest = std::max(largest, entry.transient_bytes());
    largestOfHost = std::max(largestOfHost, entry.host_transient_bytes());
    verifier::verifyEntry(context, entry);
  }
  for (int i = 0; i < plan.variants_size(); ++i)
    if (plan.variants(i).transient_bytes() != needed[size_t(i)])
      report("variant {} states a transient arena of {} bytes, its entries need {}", i,
             plan.variants(i).transient_bytes(), needed[size_t(i)]);
  for (int i = 0; i < plan.variants_size(); ++i)
    if (plan.variants(i).host_transient_bytes() != neededOfHost[size_t(i)])
      report("variant {} states {} transient bytes on the host, its entries need {}", i,
             plan.variants(i).host_transient_bytes(), neededOfHost[size_t(i)]);
  if (spaceBytes(plan, TRANSIENT) != largest)
    report("the transient arena has {} bytes, the largest entry needs {}", spaceBytes(plan, TRANSIENT), largest);
  if (spaceBytes(plan, HOST_TRANSIENT) != largestOfHost)
    report("the host's transient arena has {} bytes, the largest entry needs {}", spaceBytes(plan, HOST_TRANSIENT),
           largestOfHost);
  return report.take();
}
} // namespace

std::vector<std::string> verifyPlan(const Plan &plan, size_t limit) {
  if (plan.targets().empty())
    return verifyTarget(plan, limit);
  verifier::Reporter report(limit);
  std::set<std::string> names;
  if (!plan.target().empty())
    report("the plan is for {} targets, and for '{}' beside them", plan.targets_size(), plan.target());
  for (int i = 0; i < plan.targets_size() && !report.full(); ++i) {
    const Plan &part = plan.targets(i);
    if (part.target().empty() || !names.insert(part.target()).second)
      report("target {}: the name '{}' is empty or used twice", i, part.target());
    // Payloads and the version belong to the file.
    if (part.targets_size() || part.payloads_size() || part.format_version())
      report("target '{}': it has targets, payloads or a format version of its own", part.target());
    else
      for (const std::string &problem : verifyTarget(targetOf(plan, static_cast<uint32_t>(i)), limit))
        report("{}: {}", part.target(), problem);
  }
  return report.take();
}

} // namespace tcc::plan

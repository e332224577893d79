//===- ChangedPlan.cpp ---------------------------------------------------===//
#include "test/mutations/ChangedPlan.h"

#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"
#include "test/support/mutate/MutateMessage.h"

#include <filesystem>
#include <fmt/format.h>
#include <map>

using namespace tcc;

std::optional<test::PlanSource> test::PlanSource::read(const std::string &path) {
  auto reader = plan::PlanReader::open(path);
  if (!reader) {
    fmt::print(stderr, "{}\n", reader.message());
    return std::nullopt;
  }
  return of(*reader, std::filesystem::path(path).stem().string());
}

test::PlanSource test::PlanSource::of(const plan::PlanReader &reader, std::string name) {
  PlanSource source{std::move(name), reader.plan(), {}};
  for (int i = 0; i < source.plan.payloads_size(); ++i) {
    auto bytes = reader.payload(static_cast<uint32_t>(i));
    source.payloads.emplace_back(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  }
  return source;
}

std::string test::PlanSource::file() const {
  plan::PlanWriter writer;
  for (const std::string &payload : payloads)
    writer.addPayloadView(payload.data(), payload.size());
  auto bytes = writer.toBuffer(plan);
  return bytes ? bytes.take() : std::string();
}

namespace {
/// Renumbers versions in the order of the instructions; with `lives`, also sets each buffer's live range from its first
/// use to its last, and makes the arenas large enough. This repairs the book-keeping that other changes broke, so that
/// the verifier must find the changes themselves.
void keepBooks(plan::Plan &plan, bool lives) {
  uint64_t largest = 0;
  for (plan::Entry &entry : *plan.mutable_entries()) {
    auto exists = [&](uint32_t buffer) { return buffer < static_cast<uint32_t>(entry.buffers_size()); };
    std::vector<uint32_t> version(static_cast<size_t>(entry.buffers_size()), 0);
    std::map<uint32_t, std::pair<int, int>> uses;
    for (int at = 0; at < entry.instructions_size(); ++at) {
      plan::Instruction &instruction = *entry.mutable_instructions(at);
      auto use = [&](uint32_t buffer) { uses.try_emplace(buffer, at, at).first->second.second = at; };
      for (plan::Operand &operand : *instruction.mutable_operands())
        if (exists(operand.buffer())) {
          operand.set_version(operand.read() ? version[operand.buffer()] : 0);
          operand.set_version_written(operand.write() ? version[operand.buffer()] + 1 : 0);
          use(operand.buffer());
        }
      for (const plan::Operand &operand : instruction.operands())
        if (exists(operand.buffer()) && operand.write())
          version[operand.buffer()] = operand.version_written();
    }
    if (!lives)
      continue;
    uint64_t bytes = 0;
    for (int i = 0; i < entry.buffers_size(); ++i) {
      plan::Buffer &buffer = *entry.mutable_buffers(i);
      if (auto used = uses.find(static_cast<uint32_t>(i)); used != uses.end() && buffer.variable() < 0) {
        if (buffer.first() >= 0)
          buffer.set_first(used->second.first);
        if (buffer.last() < entry.instructions_size())
          buffer.set_last(used->second.second);
      }
      if (buffer.arena() != plan::RESIDENT && buffer.offset() < 1 << 26 && buffer.bytes() < 1 << 26)
        bytes = std::max(bytes, (buffer.offset() + buffer.bytes() + 63) / 64 * 64);
    }
    for (const plan::Instruction &instruction : entry.instructions())
      if (uint64_t scratch = plan::scratchBytes(entry, instruction, plan.max_workers());
          scratch > 0 && scratch < 1 << 26 && instruction.scratch_offset() < 1 << 26)
        bytes = std::max(bytes, instruction.scratch_offset() + scratch);
    entry.set_transient_bytes(bytes);
    largest = std::max(largest, bytes);
  }
  if (lives && plan.variants().empty())
    plan::setSpaceBytes(plan, plan::TRANSIENT, largest);
}

struct Changed {
  std::string bytes;
  std::vector<std::string> changes;
};

} // namespace

test::ChangedPlan test::changePlan(const PlanSource &source, std::mt19937_64 &random) {
  ChangedPlan result;
  plan::Plan plan = source.plan;
  std::vector<std::string> payloads = source.payloads;
  uint64_t count = random() % 4 ? 1 : 1 + random() % 4;
  bool inEntry = random() % 2 && plan.entries_size() > 0; // otherwise anywhere: names, settings, payloads, …
  for (uint64_t i = 0; i < count; ++i) {
    if (!inEntry || plan.entries().empty()) {
      result.changes.push_back(mutateMessage(plan, random));
      continue;
    }
    auto entry = static_cast<int>(random() % static_cast<uint64_t>(plan.entries_size()));
    result.changes.push_back("entries[" + std::to_string(entry) + "]." +
                             mutateMessage(*plan.mutable_entries(entry), random));
  }
  if (uint64_t books = random() % 3)
    keepBooks(plan, books == 2);
  if (random() % 16 == 0 && !payloads.empty())
    if (std::string &payload = payloads[random() % payloads.size()]; !payload.empty()) {
      payload[random() % payload.size()] ^= static_cast<char>(1 << random() % 8);
      result.changes.push_back("payload content: one bit");
    }
  result.bytes = PlanSource{source.name, plan, payloads}.file();
  return result;
}

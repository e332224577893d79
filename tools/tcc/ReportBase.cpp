//===- ReportBase.cpp - frozen weights that are kept in 8 bits ------------===//
//
// Kernels read such a weight in place. A library call reads a widened copy, which a kernel right before it makes in the
// transient arena: the copy lives from that kernel to the call.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/ReportSections.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/Int8.h"
#include "tools/common/TextTable.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace tcc::report {

namespace {

struct WidenedCopy {
  std::string of;
  const plan::Buffer *buffer;
};

/// Transient buffers with a weight's element count, written by an instruction that reads the weight's integers.
std::vector<WidenedCopy> widenedCopies(const plan::Plan &plan, const plan::Entry &program) {
  std::vector<WidenedCopy> copies;
  for (const plan::Instruction &instruction : program.instructions()) {
    std::map<uint64_t, std::string> read; // weights by their count
    for (const plan::Operand &operand : instruction.operands()) {
      const int variable = program.buffers(int(operand.buffer())).variable();
      if (variable >= 0 && operand.read() && !plan.variables(variable).scale().empty())
        read[plan::elementCount(plan.variables(variable).type()).value_or(0)] = plan.variables(variable).name();
    }
    for (const plan::Operand &operand : instruction.operands()) {
      const plan::Buffer &buffer = program.buffers(int(operand.buffer()));
      if (!operand.write() || buffer.arena() != plan::TRANSIENT || !plan::isFloatingPoint(buffer.type().dtype()))
        continue;
      if (auto found = read.find(plan::elementCount(buffer.type()).value_or(0)); found != read.end())
        copies.push_back({found->second, &buffer});
    }
  }
  return copies;
}

uint64_t mostBytes(const std::vector<WidenedCopy> &copies) {
  uint64_t most = 0;
  for (const WidenedCopy &one : copies) {
    uint64_t live = 0;
    for (const WidenedCopy &other : copies)
      if (other.buffer->first() <= one.buffer->first() && one.buffer->first() <= other.buffer->last())
        live += other.buffer->bytes();
    most = std::max(most, live);
  }
  return most;
}

} // namespace

nlohmann::ordered_json integerBaseJson(const Report &report) {
  const plan::Plan &plan = *report.plan;
  uint64_t tensors = 0, bytes = 0, scaleBytes = 0, modelBytes = 0;
  for (const plan::Variable &variable : plan.variables())
    if (const plan::Variable *scale = plan::scaleOf(plan, variable)) {
      const uint64_t count = plan::elementCount(variable.type()).value_or(0);
      ++tensors;
      bytes += count;
      scaleBytes += plan::tensorBytes(scale->type()).value_or(0);
      modelBytes += count * plan::dtypeBytes(variable.model_dtype());
    }
  if (!tensors)
    return nullptr;
  nlohmann::ordered_json programs = nlohmann::ordered_json::array();
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs) {
      const std::vector<WidenedCopy> copies = widenedCopies(plan, *program.program);
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const WidenedCopy &copy : copies)
        list.push_back({{"name", copy.of},
                        {"bytes", copy.buffer->bytes()},
                        {"first", copy.buffer->first()},
                        {"last", copy.buffer->last()}});
      if (!copies.empty())
        programs.push_back({{"name", program.name}, {"most_bytes", mostBytes(copies)}, {"copies", std::move(list)}});
    }
  return {{"tensors", tensors},
          {"bytes", bytes},
          {"scale_bytes", scaleBytes},
          {"model_bytes", modelBytes},
          {"widened", std::move(programs)}};
}

std::string integerBaseText(const Report &report) {
  const nlohmann::ordered_json base = integerBaseJson(report);
  if (base.is_null())
    return "";
  std::string text =
      fmt::format("  base in 8 bits: {}, {} and {} of scales in place of {}\n",
                  counted(base["tensors"].get<uint64_t>(), "tensor"), formatBytes(base["bytes"].get<uint64_t>()),
                  formatBytes(base["scale_bytes"].get<uint64_t>()), formatBytes(base["model_bytes"].get<uint64_t>()));
  for (const auto &program : base["widened"])
    text += fmt::format("    {}: {} for calls of the library, at most {} at once\n", program["name"].get<std::string>(),
                        counted(program["copies"].size(), "widened weight"),
                        formatBytes(program["most_bytes"].get<uint64_t>()));
  return text;
}

} // namespace tcc::report

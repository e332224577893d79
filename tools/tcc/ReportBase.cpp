//===- ReportBase.cpp - frozen weights that are kept in 8 or 4 bits -------===//
//
// Kernels read such a weight in place, and so do products that unpack. Another call of the library reads a widened
// copy, which a kernel right before it makes in the transient arena: the copy lives from that kernel to the call.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/ReportSections.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/FourBits.h"
#include "runtime/plan/Int8.h"
#include "runtime/plan/JoinedKernels.h"
#include "tools/common/TextTable.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <span>

namespace tcc::report {

namespace {

struct WidenedCopy {
  std::string of;
  const plan::Buffer *buffer;
};

/// Transient buffers with a weight's element count, written by a kernel that reads integers and scales alone: a lookup
/// also reads indices, and a product that unpacks integers is no kernel. The kernel may share its launch with others.
std::vector<WidenedCopy> widenedCopies(const plan::Plan &plan, const plan::Entry &program) {
  std::vector<WidenedCopy> copies;
  auto addCopies = [&](std::span<const plan::Operand *const> operands) {
    std::map<uint64_t, std::string> read; // weights by their count
    for (const plan::Operand *operand : operands) {
      const int variable = program.buffers(int(operand->buffer())).variable();
      if (operand->read() && variable < 0)
        return;
      if (operand->read() && !plan.variables(variable).scale().empty())
        read[plan::elementCount(plan::valueType(plan.variables(variable))).value_or(0)] =
            plan.variables(variable).name();
    }
    for (const plan::Operand *operand : operands) {
      const plan::Buffer &buffer = program.buffers(int(operand->buffer()));
      if (!operand->write() || buffer.arena() != plan::TRANSIENT || !plan::isFloatingPoint(buffer.type().dtype()))
        continue;
      if (auto found = read.find(plan::elementCount(buffer.type()).value_or(0)); found != read.end())
        copies.push_back({found->second, &buffer});
    }
  };
  for (const plan::Instruction &instruction : program.instructions())
    for (int first = 0; instruction.has_kernel() && first < instruction.operands_size();) {
      const plan::OperandRange member = plan::operandsOfMember(instruction, first);
      addCopies(std::span(instruction.operands().data() + member.first, size_t(member.count)));
      first = member.first + member.count;
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
  const plan::FourBits *four = nullptr;
  nlohmann::ordered_json kept = nlohmann::ordered_json::array();
  for (const plan::Variable &variable : plan.variables())
    if (const plan::Variable *scale = plan::scaleOf(plan, variable)) {
      ++tensors;
      bytes += plan::tensorBytes(variable.type()).value_or(0);
      scaleBytes += plan::tensorBytes(scale->type()).value_or(0);
      if (const plan::Variable *nested = plan::nestedScaleOf(plan, variable))
        scaleBytes += plan::tensorBytes(nested->type()).value_or(0);
      modelBytes += plan::tensorBytes(plan::valueType(variable)).value_or(0);
      if (variable.has_four_bits())
        four = &variable.four_bits();
    } else if (variable.role() == plan::FROZEN && !variable.computed() && variable.type().dims_size() >= 2 &&
               plan::isFloatingPoint(variable.type().dtype())) {
      kept.push_back({{"name", variable.name()}, {"bytes", plan::tensorBytes(variable.type()).value_or(0)}});
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
  return {{"kind", !four                                 ? "int8"
                   : four->code() == plan::FourBits::NF4 ? "nf4"
                                                         : "int4"},
          {"block", four ? nlohmann::ordered_json(four->block()) : nullptr},
          {"nested", four && four->nested()},
          {"tensors", tensors},
          {"bytes", bytes},
          {"scale_bytes", scaleBytes},
          {"model_bytes", modelBytes},
          {"widened", std::move(programs)},
          {"kept", std::move(kept)}};
}

std::string integerBaseText(const Report &report) {
  const nlohmann::ordered_json base = integerBaseJson(report);
  if (base.is_null())
    return "";
  const std::string bits =
      base["block"].is_null()
          ? "8 bits"
          : fmt::format("4 bits ({}, blocks of {}{})", base["kind"].get<std::string>(), base["block"].get<int64_t>(),
                        base["nested"].get<bool>() ? ", nested scales" : "");
  std::string text =
      fmt::format("  base in {}: {}, {} and {} of scales in place of {}\n", bits,
                  counted(base["tensors"].get<uint64_t>(), "tensor"), formatBytes(base["bytes"].get<uint64_t>()),
                  formatBytes(base["scale_bytes"].get<uint64_t>()), formatBytes(base["model_bytes"].get<uint64_t>()));
  if (!base["kept"].empty()) {
    uint64_t bytes = 0;
    for (const auto &one : base["kept"])
      bytes += one["bytes"].get<uint64_t>();
    text +=
        fmt::format("    {} of {} in the model's type: rounding would not make them smaller, or only elementwise ops "
                    "read them\n",
                    counted(base["kept"].size(), "frozen tensor"), formatBytes(bytes));
  }
  for (const auto &program : base["widened"])
    text += fmt::format("    {}: {} for calls of the library, at most {} at once\n", program["name"].get<std::string>(),
                        counted(program["copies"].size(), "widened weight"),
                        formatBytes(program["most_bytes"].get<uint64_t>()));
  return text;
}

} // namespace tcc::report

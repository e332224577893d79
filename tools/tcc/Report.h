//===- Report.h - what was decided, and why ---------------------*- C++ -*-===//
//
// Everything here follows from the plan: a report needs neither model nor compiler. `analyzePlan` works the numbers
// out, `reportJson` and `reportText` say them to programs and to people (docs/report.md).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORT_H
#define TCC_TOOLS_TCC_REPORT_H

#include "runtime/plan/PlanFile.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace tcc::report {

/// What is live while one instruction runs.
struct TimelineRow {
  int32_t step = 0;       ///< index of the instruction
  uint64_t liveBytes = 0; ///< resident arena included
  std::string instruction, node;
};

/// The memory of one program of the plan: a static shape and an order of instructions.
struct ProgramMemory {
  std::string name; ///< as in the plan: step, accumulate_first, …
  const plan::Entry *program = nullptr;
  uint64_t arenaBytes = 0;      ///< what packing takes of the transient arena
  uint64_t peakBytes = 0;       ///< most that is live at once, resident arena included
  uint64_t lowerBoundBytes = 0; ///< no placement of this order takes less, resident arena included
  std::vector<TimelineRow> timeline;
};

/// An entry as `--entry` names it, and its programs.
struct EntryMemory {
  std::string name; ///< train, evaluate, predict, gradients
  std::vector<ProgramMemory> programs;
  uint64_t peakBytes() const;
  uint64_t arenaBytes() const;
  uint64_t lowerBoundBytes() const;
};

/// Instructions that run the same code.
struct KernelUse {
  std::string name; ///< symbol of a generated kernel, or kind and implementation of a library call
  std::vector<std::string> nodes;
  double flops = 0;   ///< of all calls
  uint64_t bytes = 0; ///< read and written by all calls
  uint64_t count = 0; ///< calls
  bool generated = false;
};

struct Report {
  const plan::Plan *plan = nullptr;
  std::vector<EntryMemory> entries;
  std::map<plan::VariableRole, uint64_t> residentBytes; ///< by role, padding left out
  uint64_t hostBytes = 0;                               ///< the plan file, mapped, and the loaded code
  std::string counted;            ///< what `kernels` and `flopsPerStep` count: "one update", "one call of predict", …
  std::vector<KernelUse> kernels; ///< most operations first
  double flopsPerStep = 0;        ///< of one update; 0 where the plan does not train

  /// The program with the largest peak (the first of equals); null for a plan without entries.
  const ProgramMemory *largest() const;
  uint64_t peakBytes() const;
  uint64_t lowerBoundBytes() const;
};

/// `plan` outlives the report. `planFileBytes`: size of its file.
Report analyzePlan(const plan::Plan &plan, uint64_t planFileBytes);

/// "matmul brg:avx512_core", "k1234…", "fill": what an instruction runs.
std::string instructionName(const plan::Instruction &instruction);

nlohmann::ordered_json reportJson(const Report &report);
std::string reportText(const Report &report);

/// "512 B", "1.5 KiB", "2.0 MiB", "3.00 GiB".
std::string formatBytes(uint64_t bytes);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORT_H

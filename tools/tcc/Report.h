//===- Report.h - the figures of a report -----------------------*- C++ -*-===//
//
// Everything here follows from the plan: a report needs neither model nor compiler. `analyzePlan` computes the
// numbers; `reportJson`, `reportText` and `reportHtml` print them for programs and people (docs/guide/report.md).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORT_H
#define TCC_TOOLS_TCC_REPORT_H

#include "compiler/emit/Lives.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/state/HostMemory.h"
#include "tools/common/KernelWork.h"
#include "tools/common/TextTable.h"

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tcc::report {

/// Resident bytes of a `trun` with the plan loaded and its arenas untouched.
struct ProcessMemory {
  uint64_t processBytes = 0; ///< before the plan is opened: the program and its shared libraries
  uint64_t hostBytes = 0;    ///< the plan as objects, code of kernels, threads
  uint64_t libraryBytes = 0; ///< the library's primitives, their code, its pages in use
};

/// Runs `trun memory` of the trun beside this program. Nothing without it, or if this machine cannot load the plan.
std::optional<ProcessMemory> measureProcess(const std::string &planPath, const std::string &target, uint32_t variant);

/// The live bytes while one instruction runs.
struct TimelineRow {
  int32_t step = 0;       ///< index of the instruction
  uint64_t liveBytes = 0; ///< resident arena included
  std::string instruction, node;
};

/// A value that is dropped and recomputed.
struct RecomputedTensor {
  std::string name, node, program;
  uint64_t bytes = 0;
  double flops = 0;     ///< of the instruction that makes it again; the first of several results has them
  uint64_t cost = 0;    ///< likewise, in nanoseconds on the nominal machine
  int32_t step = 0;     ///< instruction that makes it again
  int32_t givenUp = -1; ///< last instruction that read the value before; -1 if the plan does not tell
};

/// The savings and the cost of recomputation, in one program or in one update.
struct Recomputation {
  uint64_t bytes = 0;          ///< bytes of the arena that recomputation saves
  double flops = 0;            ///< executed again
  double flopsOnce = 0;        ///< with every instruction executed once
  uint64_t cost = 0;           ///< nanoseconds on the nominal machine, everything
  uint64_t waited = 0;         ///< of it, waiting for transfers
  uint64_t extraCost = 0;      ///< of the rest, beyond every instruction executed once
  uint64_t lowerBoundCost = 0; ///< no order and recomputation within the budget costs less; 0: not known
  std::vector<RecomputedTensor> tensors;

  uint64_t baseCost() const { return cost > waited + extraCost ? cost - waited - extraCost : 0; }
  double extraFlopsFraction() const;
  double extraCostFraction() const;
  double boundFraction() const; ///< the cost that the least possible recomputation adds
  double gap() const;           ///< how far the cost is above its bound
};

/// A value, or state, that is kept on the host.
struct MovedValue {
  std::string name; ///< of the node that makes a value, or of a variable
  std::string program;
  bool isState = false;
  uint64_t bytes = 0;
  uint64_t stores = 0, fetches = 0; ///< in one call of the program
};

/// What a card keeps on the host, in one program or in one update.
struct Offload {
  uint64_t storedBytes = 0, fetchedBytes = 0;
  uint64_t transferNs = 0;        ///< of all transfers, by the plan's rate
  uint64_t waitedNs = 0;          ///< of it, what is not beside other work
  std::vector<MovedValue> values; ///< most bytes first
};

/// The memory of one program of the plan: a static shape and an order of instructions.
struct ProgramMemory {
  std::string name; ///< as in the plan: step, accumulate_first, …
  std::shared_ptr<const plan::Entry> program; ///< with the scratch of max_workers as further buffers, after the others
  const plan::Entry *planned = nullptr;       ///< as in the plan
  emit::EntryLives lives;
  Recomputation recomputation;
  Offload offload;
  uint64_t arenaBytes = 0;            ///< bytes that packing takes of the transient arena
  uint64_t peakBytes = 0;             ///< most that is live at once, resident arena included
  uint64_t lowerBoundBytes = 0;       ///< no placement of this order takes less, resident arena included
  uint64_t withoutRecomputeBytes = 0; ///< the arena with every instruction executed once, likewise
  std::vector<TimelineRow> timeline;

  /// The first instruction where the peak is; -1 without instructions.
  int32_t peakStep() const;
};

/// An entry as `--entry` names it, and its programs.
struct EntryMemory {
  std::string name; ///< train, evaluate, predict, gradients
  std::vector<ProgramMemory> programs;
  uint64_t peakBytes() const;
  uint64_t arenaBytes() const;
  uint64_t lowerBoundBytes() const;
  uint64_t withoutRecomputeBytes() const;
};

/// An instruction that may still run while later ones do.
struct BesideOthers {
  std::string program;
  int32_t step = 0;  ///< index of the instruction
  int32_t until = 0; ///< of the last one that it may run beside; the first is the next
  std::string node;     ///< of it
  std::string variable; ///< the first state that it writes, as an update does; else empty
  std::string firstNode, lastNode;
};

/// Instructions that run the same code.
struct KernelUse {
  std::string name; ///< symbol of a generated kernel, or kind and implementation of a library call
  std::vector<std::string> nodes;
  double flops = 0;   ///< of all calls
  uint64_t bytes = 0; ///< read and written by all calls
  uint64_t count = 0; ///< calls
  bool generated = false;
  std::vector<BesideOthers> beside = {}; ///< the instructions that may, in order
};

struct Report {
  const plan::Plan *plan = nullptr;
  uint32_t variant = 0;    ///< the variant that is reported, of a plan with several (docs/guide/report.md)
  uint64_t arenaBytes = 0; ///< transient bytes that trun allocates
  std::vector<EntryMemory> entries;
  std::map<plan::VariableRole, uint64_t> residentBytes; ///< by role, padding and the host's state left out
  runtime::HostMemory hostMemory;                       ///< part of hostBytes: what a run of the plan allocates there
  uint64_t hostBytes = 0;                               ///< that of `process`, else header and code of the plan
  std::optional<ProcessMemory> process;                 ///< measured on this machine; none: only the plan is known
  std::string counted;            ///< what `kernels` and `flopsPerStep` count: "one update", "one call of predict", …
  std::vector<KernelUse> kernels; ///< most operations first
  double flopsPerStep = 0;        ///< of one update; 0 where the plan does not train
  std::map<std::string, uint64_t> calls; ///< how often each program of `counted` runs
  Recomputation recomputation;    ///< in the programs of `counted`
  Offload offload;                ///< likewise
  KernelWorks kernelWorks;        ///< of kernels for a card; empty where only the plan is known, without its file

  /// The program with the largest peak (the first of equals); null for a plan without entries.
  const ProgramMemory *largest() const;
  uint64_t peakBytes() const;
  uint64_t lowerBoundBytes() const;
  uint64_t withoutRecomputeBytes() const;
};

/// `plan` must outlive the report. `planFileBytes`: size of its file. A program that `variant` lacks is taken from the
/// first variant that has it.
Report analyzePlan(const plan::Plan &plan, uint64_t planFileBytes, uint32_t variant = 0);

/// The transfers of a program whose buffers are valid; their sum over programs.
Offload analyzeOffload(const plan::Plan &plan, const plan::Entry &program);
void addOffload(Offload &sum, const Offload &program, uint64_t calls);
nlohmann::ordered_json offloadJson(const Report &report);
/// Empty if nothing is kept on the host.
std::string offloadText(const Report &report);

/// "matmul panels", "k1234…", "fill": the code that an instruction runs.
std::string instructionName(const plan::Instruction &instruction);

/// True for a note that has no section of its own (parameters, stops and attention have one).
bool isGeneralNote(const plan::Decisions::Note &note);

/// "saved", "gradient", …: the purpose of a buffer.
const char *purposeName(emit::Purpose purpose);

/// `details`: with the timelines and buffers of all programs.
nlohmann::ordered_json reportJson(const Report &report, bool details = true);
std::string reportText(const Report &report);
/// Its beginning: what the plan is for, and its memory by entry.
std::string summaryText(const Report &report);

/// One page that needs nothing else: no network, no other file. The same plan gives the same bytes.
std::string reportHtml(const Report &report);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORT_H

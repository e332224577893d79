//===- ReportSections.h - the sections of a report --------------*- C++ -*-===//
//
// Each section has functions that compute it from a report or plan as JSON and as text; the text is empty if the plan
// has nothing to show.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTSECTIONS_H
#define TCC_TOOLS_TCC_REPORTSECTIONS_H

#include "runtime/plan/plan.pb.h"
#include "tools/tcc/Report.h"

#include <string>
#include <vector>

namespace tcc::report {

/// True for a note of fuse-attention or call-attention, whose text is a JSON object. These have a section of their own.
bool isAttentionNote(const plan::Decisions::Note &note);

/// `fused`, `near_misses`, `weights_elided`; `kept_from_library` if the recipe asks for calls that are not made.
nlohmann::ordered_json attentionJson(const plan::Plan &plan);
/// The same as text; empty if the plan has no attention.
std::string attentionText(const plan::Plan &plan);

/// True for a note of fuse-epilogues on the reason for a level. These have a section of their own.
bool isEpilogueNote(const plan::Decisions::Note &note);

/// `what` (products, convolutions), `calls` with an epilogue, those `without_kernels` in their place, `reasons`.
nlohmann::ordered_json epiloguesJson(const plan::Plan &plan);
/// The same as text; empty without epilogues.
std::string epiloguesText(const plan::Plan &plan);

/// Of adapter.base = "int8", "nf4" or "int4" (`kind`, with the `block` of 4 bits, and whether scales are `nested`):
/// `tensors`, their `bytes` and `scale_bytes`, `model_bytes` in the model's type; for each program with copies that are
/// widened in memory, `copies` (`name`, `bytes`, `first`, `last`: instructions) and `most_bytes`, live at once; and the
/// frozen tensors that are `kept` in the model's type (`name`, `bytes`). Null for other plans.
nlohmann::ordered_json integerBaseJson(const Report &report);
/// The same in words, a line each; empty for other plans.
std::string integerBaseText(const Report &report);

/// For a plan of a cuda target: the card (the named one, or the architecture's usual one), the launches in the programs
/// of `Report::counted`, the least seconds by the roofline, and its slow kernels (`floor`). Null for others.
nlohmann::ordered_json cardJson(const Report &report);

/// The same as text; empty for others.
std::string cardText(const Report &report);

/// For each program with collectives: the bytes of each, the instructions that may run concurrently with it, and its
/// exposed time on a nominal link. Null for a plan without collectives.
nlohmann::ordered_json communicationJson(const Report &report);

/// The same as text; empty without collectives.
std::string communicationText(const Report &report);

/// A floating-point initializer of the model, or a variable of an older plan, which has one list for all of them.
struct Decision {
  std::string name, list, reason; ///< list: as of runtime/plan/InitializerLists.h
  const plan::Variable *variable = nullptr;
};
/// In the plan's order.
std::vector<Decision> decisionsOf(const plan::Plan &plan);

/// True for a note on one initializer, which decisionsOf reads.
bool isDecisionNote(const plan::Decisions::Note &note);

/// The recomputation in one program. An instruction marked as recomputation executes a call that the program has
/// executed before. If the earlier call for the same nodes is found, its results were dropped after their last reader
/// before the recomputation.
Recomputation analyzeRecomputation(const plan::Entry &program, const emit::EntryLives &lives);

/// Adds a program that an update calls `calls` times. The saved bytes are those of the program that saves most, since
/// all programs share one arena.
void addRecomputation(Recomputation &sum, const Recomputation &program, uint64_t calls);

/// True for a note of prune-stops on a stop behind a trainable parameter. These have a section of their own.
bool isStopNote(const plan::Decisions::Note &note);

/// `stop_gradient` of the report: `node`, `source`.
nlohmann::ordered_json stopsJson(const plan::Plan &plan);
std::string stopsText(const plan::Plan &plan);

/// For each program the arena and the parallel efficiency with 1, 2, 4, … 128 workers, and the instructions that leave
/// most of 128 workers idle.
nlohmann::ordered_json workersJson(const Report &report);

/// The same as text, for the program with the largest peak and, where that is another one, training.
std::string workersText(const Report &report);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTSECTIONS_H

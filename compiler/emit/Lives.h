//===- Lives.h - who makes and who reads each value of an entry -*- C++ -*-===//
//
// The facts about a buffer that follow from the plan alone: its writers, its readers, their phase, and hence the reason
// why it is live. The compiler writes that reason into `why_alive`; reports colour buffers by it.
//
// An instruction belongs to the forward pass if the loss depends on it, or if no gradient, accumulator or parameter
// depends on it; to the backward pass otherwise. So the order of instructions decides nothing here: a scheduler may
// place the loss's own sum after half of the gradients.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_EMIT_LIVES_H
#define TCC_COMPILER_EMIT_LIVES_H

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tcc::emit {

enum class Phase {
  Forward,
  Backward,
  Update,    ///< writes a parameter or the optimizer's state
  Recompute, ///< a forward instruction that runs again
};

/// The purpose of a buffer.
enum class Purpose {
  Activation, ///< of the forward pass, read by the forward pass alone
  Saved,      ///< of the forward pass, read again by the backward pass
  Recomputed, ///< made again, by an instruction that ran before
  Gradient,   ///< of the backward pass or of an update
  Input,      ///< of the entry: data, scalars, counters
  Output,     ///< of the entry
  Scratch,    ///< of one instruction
  State,      ///< resident
};
inline constexpr size_t kPurposes = 8;

struct BufferLife {
  Purpose purpose = Purpose::Activation;
  std::vector<int32_t> writers, readers; ///< instructions, ascending
};

struct EntryLives {
  std::vector<Phase> phases;       ///< of each instruction
  std::vector<BufferLife> buffers; ///< as in the entry
};

/// Skips operands that name no buffer, since a report may be asked for an invalid file.
EntryLives analyzeLives(const plan::Plan &plan, const plan::Entry &entry);

/// "saved for the gradient at NODE, which reads it 834 instructions later"
std::string whyAlive(const plan::Plan &plan, const plan::Entry &entry, const EntryLives &lives, int buffer);

} // namespace tcc::emit

#endif // TCC_COMPILER_EMIT_LIVES_H

//===- Needs.h - memory of a call in addition to its operands ---*- C++ -*-===//
//
// A call's descriptor is complete: it determines the number of tiles, and their scratch and partial sums. The compiler
// plans that memory, the verifier checks it, and the device lays it out, all with these functions.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CALLS_NEEDS_H
#define TCC_RUNTIME_CPU_CALLS_NEEDS_H

#include "runtime/cpu/calls/CpuLevel.h"
#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace tcc::runtime {

struct CallNeeds {
  uint64_t scratchSlotBytes = 0;   ///< for each slot: Instruction.scratch_slot_bytes; a multiple of 64
  uint64_t scratchSharedBytes = 0; ///< before the slots, for all tiles; a multiple of 64
  uint64_t scratchSlots = 1;       ///< the most slots that workers can use: the number of tiles
  uint64_t partialBytes = 0;       ///< size of the last operand, the partial sums; 0: no such operand

  /// Bytes of scratch with `workers` workers.
  uint64_t scratchBytes(uint64_t workers) const {
    return scratchSharedBytes + scratchSlotBytes * std::min(scratchSlots, workers);
  }
};

/// Error: a descriptor that fits no kernel.
Expected<CallNeeds> needsOf(const plan::MatmulCall &call);
Expected<CallNeeds> needsOf(const plan::ConvolutionCall &call);

/// Checks the shape of a convolution, before tiles are chosen. The error names the dimension that does not fit.
Status checkShape(const plan::ConvolutionCall &call);

/// "panels", "few rows", "rows to kernel", "oneDNN".
std::string implementationName(const plan::MatmulCall &call);

/// The numerics versions of this program: raised when an implementation's results change in any bit, so that a plan
/// never gets other results than it was made with. A test on frozen inputs fails if results changed but the version did
/// not.
uint32_t numericsOf(plan::MatmulCall::Implementation implementation);
/// The version of convolutions, by form; programs before version 3 had only the form CHANNELS.
uint32_t numericsOf(plan::ConvolutionCall::Form form);

/// Error: a call may not run at a machine level, because its kernels use instructions that the level lacks. Only a
/// plan's target is checked against the machine, so such a call would crash the process.
Status checkLevel(const plan::MatmulCall &call, CpuLevel level);
Status checkLevel(const plan::ConvolutionCall &call, CpuLevel level);

/// Error: a call's numerics differ from this program's.
Status checkNumerics(const plan::MatmulCall &call);
Status checkNumerics(const plan::ConvolutionCall &call);

inline uint64_t alignScratch(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLS_NEEDS_H

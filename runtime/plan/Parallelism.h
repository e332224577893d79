//===- Parallelism.h - memory and time by the number of workers -*- C++ -*-===//
//
// A plan has one packing for any number of workers: the scratch of an instruction is above every buffer that is live
// during it, so more slots only move the end of the arena. All code takes the resulting sizes from these functions.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_PARALLELISM_H
#define TCC_RUNTIME_PLAN_PARALLELISM_H

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <vector>

namespace tcc::plan {

/// Copies and fills are cut into tiles of this many bytes, a multiple of every element size.
inline constexpr uint64_t kPieceBytes = uint64_t(1) << 20;

/// True if kernels are launched on grids: scratch has max_workers slots, independent of the host's processors.
inline bool runsOnGrids(const Plan &plan) { return plan.execution() == Plan::GRIDS; }

/// Bytes that a copy, transfer or fill writes. Like all functions here, it accepts unverified plans.
uint64_t movedBytes(const Entry &entry, const Instruction &instruction);

/// Tiles that workers share, in the longest stage of a library call.
int64_t tilesOf(const Entry &entry, const Instruction &instruction);

/// True for an instruction with scratch.
bool hasScratch(const Instruction &instruction);

/// Bytes of an instruction's scratch with this number of workers. Saturates at 2^64 - 1, as all functions here do.
uint64_t scratchBytes(const Entry &entry, const Instruction &instruction, uint64_t workers);

/// Bytes of transient arena that an entry needs with this number of workers: the end of its highest buffer or scratch.
uint64_t transientBytes(const Entry &entry, uint64_t workers);

/// Bytes of the host's transient arena that an entry needs.
uint64_t hostTransientBytes(const Entry &entry);

/// Bytes of the plan's transient arena: those of its largest entry.
uint64_t transientBytes(const Plan &plan, uint64_t workers);

/// The most workers, up to `most`, with which both arenas of a plan without variants fit into `bytes`; 0 if not even
/// one fits.
uint32_t workersWithin(const Plan &plan, uint64_t bytes, uint32_t most);

/// The busy share of all workers' time if an entry takes its planned cost: the sum of the instructions' costs over
/// `workers` times the sum of their makespans, with tiles split evenly. 1 for an entry without cost.
double parallelEfficiency(const Entry &entry, uint64_t workers);

/// An instruction that leaves workers idle, and the idle time summed over the workers.
struct IdleTime {
  int instruction;
  double nanoseconds;
};

/// Instructions during which workers wait, the longest wait first.
std::vector<IdleTime> idleTimes(const Entry &entry, uint64_t workers);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_PARALLELISM_H

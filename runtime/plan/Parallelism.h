//===- Parallelism.h - memory and time by the number of workers -*- C++ -*-===//
//
// A plan has one packing for any number of workers: scratch of an instruction lies above every buffer that lives with
// it, so more slots only move the end of the arena. These functions are the one account of that.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_PARALLELISM_H
#define TCC_RUNTIME_PLAN_PARALLELISM_H

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <vector>

namespace tcc::plan {

/// Copies and fills are cut into tiles of so many bytes: a multiple of every element.
inline constexpr uint64_t kPieceBytes = uint64_t(1) << 20;

/// Is the plan for a card? Its scratch has max_workers slots, whatever the host has.
bool hasFixedSlots(const Plan &plan);

/// Bytes that a copy or fill writes. Like all functions here it takes plans that nobody has verified.
uint64_t movedBytes(const Entry &entry, const Instruction &instruction);

/// Tiles that workers share, in the longest stage of a library call.
int64_t tilesOf(const Entry &entry, const Instruction &instruction);

/// True for an instruction with scratch.
bool hasScratch(const Instruction &instruction);

/// Scratch of an instruction with so many workers. Saturates at 2^64 - 1, as all functions here do.
uint64_t scratchBytes(const Entry &entry, const Instruction &instruction, uint64_t workers);

/// The transient arena that an entry needs with so many workers: the end of its highest buffer or scratch.
uint64_t transientBytes(const Entry &entry, uint64_t workers);

/// The transient arena of the plan: that of its largest entry.
uint64_t transientBytes(const Plan &plan, uint64_t workers);

/// The most workers, up to `most`, with which both arenas of a plan without variants fit into `bytes`; 0 if not even one
/// fits.
uint32_t workersWithin(const Plan &plan, uint64_t bytes, uint32_t most);

/// The share of `workers` that has work if an entry takes its planned costs: cost of all instructions over workers times
/// the sum of their makespans, the tiles of each split evenly. 1 for an entry without cost.
double parallelEfficiency(const Entry &entry, uint64_t workers);

/// An instruction that leaves workers without work: nanoseconds of one worker's time, summed over those that wait.
struct IdleTime {
  int instruction;
  double nanoseconds;
};

/// Instructions during which workers wait, the longest wait first.
std::vector<IdleTime> idleTimes(const Entry &entry, uint64_t workers);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_PARALLELISM_H

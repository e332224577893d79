//===- ReportRecomputation.h - the report's section on recomputation --*- C++ -*-===//
//
// An instruction marked as recomputation executes a call that the program has executed before. If the earlier call for
// the same nodes is found, its results were dropped after their last reader before the recomputation.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTRECOMPUTATION_H
#define TCC_TOOLS_TCC_REPORTRECOMPUTATION_H

#include "tools/tcc/Report.h"

namespace tcc::report {

Recomputation analyzeRecomputation(const plan::Entry &program, const emit::EntryLives &lives);

/// Adds a program that an update calls `calls` times. The saved bytes are those of the program that saves most, since
/// all programs share one arena.
void addRecomputation(Recomputation &sum, const Recomputation &program, uint64_t calls);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTRECOMPUTATION_H

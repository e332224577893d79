//===- ReportRecomputation.h - the report's section on recomputation --*- C++ -*-===//
//
// An instruction marked as recomputation executes a call that the program has executed before. Where the same call on
// behalf of the same nodes stands earlier, its results were given up after their last reader before the second.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_REPORTRECOMPUTATION_H
#define TCC_TOOLS_TCC_REPORTRECOMPUTATION_H

#include "tools/tcc/Report.h"

namespace tcc::report {

Recomputation analyzeRecomputation(const plan::Entry &program, const emit::EntryLives &lives);

/// Adds what a program does in an update, where it is called `calls` times. Bytes are those of the program that saves
/// most: one arena serves all.
void addRecomputation(Recomputation &sum, const Recomputation &program, uint64_t calls);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_REPORTRECOMPUTATION_H

//===- MakeLoop.h - a loop of steps that are written out --------*- C++ -*-===//
#ifndef TCC_PASSES_LOOPS_MAKELOOP_H
#define TCC_PASSES_LOOPS_MAKELOOP_H

#include "passes/loops/Repetition.h"

namespace tcc::train {

/// Could the op stand in the body of a loop, which becomes one kernel, perhaps once composites are decomposed?
bool mayRepeat(mlir::Operation *op);

/// Makes the repetition a loop, whose results all readers read then. False: its operands are no families, or the loop
/// or its gradient could not be one kernel; then nothing has changed. The ops of the repetition stay, and are dead.
bool makeLoop(Repetition &repetition);

} // namespace tcc::train

#endif // TCC_PASSES_LOOPS_MAKELOOP_H

//===- MakeLoop.h - turn unrolled steps into a loop -------------*- C++ -*-===//
#ifndef TCC_PASSES_LOOPS_MAKELOOP_H
#define TCC_PASSES_LOOPS_MAKELOOP_H

#include "passes/loops/Repetition.h"

namespace tcc::train {

/// True if the op can be in the body of a loop, which becomes one kernel, possibly after composites are decomposed.
bool mayRepeat(mlir::Operation *op);

/// Replaces the results of the repetition by those of a loop; its ops stay, dead. False, and nothing is changed, if its
/// operands are no families, or if the loop or its gradient cannot be one kernel.
bool makeLoop(Repetition &repetition);

} // namespace tcc::train

#endif // TCC_PASSES_LOOPS_MAKELOOP_H

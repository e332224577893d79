//===- Passes.h - the passes of the compiler --------------------*- C++ -*-===//
//
// One pass, one file; Passes.td says what each does, with IR before and after. A pass reads the module and its textual
// options, and nothing else, so that tcc-opt can run it on a dump.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_PASSES_H
#define TCC_PASSES_PASSES_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace tcc::train {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

} // namespace tcc::train

#endif // TCC_PASSES_PASSES_H

//===- CpuPasses.h - passes of the CPU target -------------------*- C++ -*-===//
//
// Alternative ways to compute an op that are faster on this target. CpuPasses.td shows IR before and after each.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_CPU_PASSES_CPUPASSES_H
#define TCC_COMPILER_TARGET_CPU_PASSES_CPUPASSES_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace tcc::train {

#define GEN_PASS_DECL
#include "compiler/target/cpu/passes/CpuPasses.h.inc"

#define GEN_PASS_REGISTRATION
#include "compiler/target/cpu/passes/CpuPasses.h.inc"

} // namespace tcc::train

#endif // TCC_COMPILER_TARGET_CPU_PASSES_CPUPASSES_H

//===- RunCompiled.h - functions through generated kernels ------*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_RUNCOMPILED_H
#define TCC_TEST_SUPPORT_RUNCOMPILED_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/IR/BuiltinOps.h"

#include <vector>

namespace tcc::test {

/// What @f of `module` returns for `arguments` when its ops become generated kernels for the machine at hand. Composites
/// are decomposed first. The module is changed.
std::vector<train::HostTensor> runCompiled(mlir::ModuleOp module, llvm::ArrayRef<train::HostTensor> arguments);

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_RUNCOMPILED_H

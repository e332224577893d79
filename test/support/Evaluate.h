//===- Evaluate.h - functions through the naive evaluators ------*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_EVALUATE_H
#define TCC_TEST_SUPPORT_EVALUATE_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <vector>

namespace tcc::test {

/// The results of `function` for `arguments`. Runs its ops in order, each by its Reference, which every op must have.
std::vector<train::HostTensor> evaluate(mlir::func::FuncOp function, llvm::ArrayRef<train::HostTensor> arguments);

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_EVALUATE_H

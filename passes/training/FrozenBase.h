//===- FrozenBase.h - the frozen weights beside adapters --------*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_FROZENBASE_H
#define TCC_PASSES_TRAINING_FROZENBASE_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace tcc::train {

/// Keeps a frozen weight in bf16, if it is an f32 tensor of two dimensions or more; `reads` are all of @forward.
/// Kernels widen it where they read it.
void keepInBf16(VariableOp variable, llvm::ArrayRef<ReadOp> reads);

/// Keeps a frozen weight as integers of 8 bits and an f32 for each output channel (runtime/plan/Int8.h), in a variable
/// of the name that is returned; kernels multiply both where they read. Empty, and nothing is changed, where that is no
/// smaller, or where no product, convolution, lookup or recurrent layer reads the weight.
std::string keepInInt8(mlir::ModuleOp module, VariableOp variable, llvm::ArrayRef<ReadOp> reads);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_FROZENBASE_H

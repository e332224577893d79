//===- FrozenBase.h - the frozen weights beside adapters --------*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_FROZENBASE_H
#define TCC_PASSES_TRAINING_FROZENBASE_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace tcc::train {

/// Keeps a frozen weight in bf16, if it is an f32 tensor of two dimensions or more; `reads` are all its reads in
/// @forward. Kernels widen it while reading.
void keepInBf16(VariableOp variable, llvm::ArrayRef<ReadOp> reads);

/// Keeps a frozen weight as i8 with an f32 scale for each output channel (runtime/plan/Int8.h), and returns the name of
/// the scales' variable; kernels multiply by the scales while reading. Returns an empty name, and changes nothing, if
/// that is no smaller, or if no product, convolution, lookup or recurrent layer reads the weight.
std::string keepInInt8(mlir::ModuleOp module, VariableOp variable, llvm::ArrayRef<ReadOp> reads);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_FROZENBASE_H

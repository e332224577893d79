//===- FitBatch.h - the largest batch within a budget -----------*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_FITBATCH_H
#define TCC_TOOLS_TCC_FITBATCH_H

#include "compiler/driver/CompileModel.h"

namespace tcc::tools {

/// Sets the batch of `options` (its dims or shapes) to the largest with which a plan fits into options.budgetBytes,
/// with recomputation where that helps. Returns it. Errors: the model has no axis of samples, not even one sample fits
/// (exit status 3), and those of compileModel.
Expected<int64_t> fitBatch(CompileOptions &options);

/// --batch: sets the batch of `options` likewise. Errors: the model cannot be read, or has no axis of samples.
Status setBatch(CompileOptions &options, int64_t batch);

} // namespace tcc::tools

#endif // TCC_TOOLS_TCC_FITBATCH_H

//===- SampleAxes.h - the sample axes of a static export's outputs -*- C++ -*-===//
#ifndef TCC_FRONTEND_SAMPLEAXES_H
#define TCC_FRONTEND_SAMPLEAXES_H

#include "frontend/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tcc::frontend {

/// Finds the sample axes of a static export's outputs that the ONNX library cannot infer: a second import, with one
/// more sample, shows which axis grows.
void findGrownAxes(mlir::MLIRContext &context, const std::string &path, const ImportOptions &options,
                   mlir::func::FuncOp forward);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_SAMPLEAXES_H

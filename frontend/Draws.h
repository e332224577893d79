//===- Draws.h - random draws that no mode turns off ------------*- C++ -*-===//
#ifndef TCC_FRONTEND_DRAWS_H
#define TCC_FRONTEND_DRAWS_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace tcc::frontend {

/// Nodes of an imported module that draw 0 or 1 and are not recognised as dropout, so they draw in every mode.
std::vector<std::string> openDraws(mlir::ModuleOp module);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_DRAWS_H

//===- EmitVariables.h - state and its first values -------------*- C++ -*-===//
#ifndef TCC_EMIT_EMITVARIABLES_H
#define TCC_EMIT_EMITVARIABLES_H

#include "compiler/emit/Emit.h"

#include <map>

namespace tcc::emit {

/// Places every train.variable of the module in the resident arena and says where its first value comes from. Returns
/// the index of each by name. Errors: weights that cannot be read.
Expected<std::map<std::string, uint32_t>> emitVariables(mlir::ModuleOp module, plan::PlanWriter &writer,
                                                              const EmitOptions &options, plan::Plan &plan);

} // namespace tcc::emit

#endif // TCC_EMIT_EMITVARIABLES_H

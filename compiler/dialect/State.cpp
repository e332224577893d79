//===- State.cpp - reads and writes of variables ----------------*- C++ -*-===//
#include "compiler/dialect/TrainDialect.h"

using namespace mlir;

namespace tcc::train {

/// Checks that the variable is declared with the type of the value that is read or written.
static LogicalResult verifyAccess(Operation *op, SymbolTableCollection &symbols, FlatSymbolRefAttr name, Type type) {
  auto variable = symbols.lookupNearestSymbolFrom<VariableOp>(op, name);
  if (!variable)
    return op->emitOpError("names ") << name << ", and no variable has this name";
  if (variable.getType() == type)
    return success();
  InFlightDiagnostic error = op->emitOpError("is of type ");
  error << type << ", and " << name << " of type " << variable.getType();
  error.attachNote(variable.getLoc()) << "the variable is declared here";
  return error;
}

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, symbols, getVariableAttr(), getType());
}

LogicalResult WriteOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, symbols, getVariableAttr(), getValue().getType());
}

} // namespace tcc::train

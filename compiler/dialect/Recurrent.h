//===- Recurrent.h - shared parts of the two recurrent ops ------*- C++ -*-===//
//
// A cell's settings and its activations. Slopes are functions of the activations' values, so that the values that a
// step stores suffice for its gradient. Formulas are templates over a number type, shared by evaluators and kernels.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_RECURRENT_H
#define TCC_DIALECT_RECURRENT_H

#include "compiler/dialect/Builders.h"

namespace tcc::train {

/// Number of gates of a cell, and of values that it keeps for each element of a state.
inline int64_t gateCount(RecurrentCell cell) {
  return cell == RecurrentCell::rnn ? 1 : cell == RecurrentCell::lstm ? 4 : 3;
}
inline int64_t keptCount(RecurrentCell cell) {
  return cell == RecurrentCell::rnn ? 0 : cell == RecurrentCell::gru ? 3 : 4;
}

/// The attributes of both ops, and sizes.
struct CellSettings {
  RecurrentCell cell;
  llvm::SmallVector<CellActivation> activations;
  llvm::SmallVector<double> alphas, betas;
  double clip;
  bool coupled, reverse;
  int64_t steps, batch, hidden;
  int64_t gates() const { return gateCount(cell); }
};

template <typename OpTy> CellSettings settingsOf(OpTy op, mlir::Value projected, mlir::Value initial) {
  CellSettings settings{op.getCell(),
                        {},
                        llvm::SmallVector<double>(op.getAlphas()),
                        llvm::SmallVector<double>(op.getBetas()),
                        op.getClip().convertToDouble(),
                        op.getCoupled(),
                        op.getReverse(),
                        shapeOf(projected)[0],
                        shapeOf(projected)[1],
                        shapeOf(initial)[1]};
  for (int32_t activation : op.getActivations())
    settings.activations.push_back(CellActivation(activation));
  return settings;
}
inline CellSettings settingsOf(RecurrentOp op) { return settingsOf(op, op.getProjected(), op.getInitial()); }
inline CellSettings settingsOf(RecurrentGradOp op) {
  return settingsOf(op, op.getProjectedGrad(), op.getInitialGrad());
}

/// Numbers of the ops' operands and results; -1: absent.
struct RecurrentOperands {
  int initialCell = -1, extra = -1, lengths = -1;
  explicit RecurrentOperands(RecurrentOp op);
};
struct RecurrentGradOperands {
  int kept = 1, extra = -1, lengths = -1, statesGrad = -1, lastGrad = -1, lastCellGrad = -1;
  explicit RecurrentGradOperands(RecurrentGradOp op);
};

} // namespace tcc::train

#endif // TCC_DIALECT_RECURRENT_H

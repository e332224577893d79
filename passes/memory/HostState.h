//===- HostState.h - state in the memory of the host ------------*- C++ -*-===//
#ifndef TCC_PASSES_MEMORY_HOSTSTATE_H
#define TCC_PASSES_MEMORY_HOSTSTATE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"

#include <string>
#include <vector>

namespace tcc::train {

/// The variables that may be kept on the host, the ones first whose transfers have the most time: state that only
/// updates access (the optimizer's, averages), in the order in which an update begins them; then weights, which every
/// pass reads. Small variables stay on the device. `weights`: the number of the first weight.
struct MovableState {
  std::vector<std::string> names;
  size_t weights = 0;
};
MovableState movableState(mlir::ModuleOp module);

/// Makes an entry, whose instructions have their order, fetch these variables before each instruction that reads them,
/// and store what it makes of them right after it is made.
void keepOnHost(mlir::func::FuncOp function, const llvm::StringSet<> &variables);

} // namespace tcc::train

#endif // TCC_PASSES_MEMORY_HOSTSTATE_H

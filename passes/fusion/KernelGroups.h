//===- KernelGroups.h - groups of ops that may become one kernel --*- C++ -*-===//
//
// fuse-kernels merges two groups of ops if one loop nest can compute both: their iteration spaces are equal, row values
// of a reduction are read at their own row, and every other value is read at the element where it is computed. Paths
// between groups through other kernels are checked by KernelOrder.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_FUSION_KERNELGROUPS_H
#define TCC_PASSES_FUSION_KERNELGROUPS_H

#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVector.h"

namespace tcc::train {

/// Ops that will become one kernel.
struct KernelGroup {
  using Shape = llvm::SmallVector<int64_t>;

  llvm::SetVector<mlir::Operation *> ops;
  Shape space;       // full shape
  Shape reducedDims; // empty: elementwise
  bool hasReduction = false;
  bool forward = false, backward = false; // passes that its ops belong to
  unsigned levels = 0;
};

/// True if the op becomes a kernel of its own.
bool isSoleKernel(mlir::Operation *op);

/// Can `value`, a result of `from`, be computed inside `to` next to its uses there?
bool compatible(const KernelGroup &from, const KernelGroup &to, mlir::Value value);

/// Groups without a value between them that read the same tensor: can one kernel compute both, and is it worth it?
bool areSiblings(const KernelGroup &a, const KernelGroup &b);

/// True if all readers of a value are in the group.
bool isInner(mlir::Value value, const KernelGroup &group);

} // namespace tcc::train

#endif // TCC_PASSES_FUSION_KERNELGROUPS_H

//===- KernelGroups.h - groups of ops that may become one kernel --*- C++ -*-===//
//
// fuse-kernels merges two groups of ops if one loop nest can compute both: their iteration spaces are equal, row values
// of a reduction are read at their own row, and every other value is read at the element where it is computed. Paths
// between groups through other kernels are checked by KernelOrder.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_FUSION_KERNELGROUPS_H
#define TCC_PASSES_FUSION_KERNELGROUPS_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVector.h"

#include <vector>

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

// Two kernels can become one if no path leads from one to the other through a third. fuse-kernels asks this for every
// edge, so a query must not visit the whole program: the groups, and the ops outside them, are kept in a topological
// order, and a search visits only the nodes between the two. A merge moves the nodes that the first reaches behind the
// second, which keeps the order topological (after Pearce and Kelly, "A dynamic topological sort algorithm for directed
// acyclic graphs", 2006).

class KernelOrder {
public:
  /// `groupOf`: the group of each op that has one. Groups must be convex: no path may leave one and come back.
  KernelOrder(mlir::Block &block, const llvm::DenseMap<mlir::Operation *, KernelGroup *> &groupOf);

  /// True if a path leads from one group to the other through an op outside both, in either direction, or if the search
  /// would visit too many edges.
  bool pathBetween(const KernelGroup &a, const KernelGroup &b);

  /// Merges `from` into `to`. The last call of pathBetween() must have been for these two groups, and must have
  /// returned false.
  void merge(const KernelGroup &from, const KernelGroup &to);

private:
  /// A kernel, or an op outside all kernels.
  struct Node {
    const KernelGroup *group = nullptr;
    mlir::Operation *op = nullptr;
    uint64_t label = 0; ///< rises along the order
    unsigned before = 0, after = 0;
    unsigned seen = 0; ///< the last search that visited it
  };

  unsigned nodeOf(mlir::Operation *op) const;
  bool isBefore(unsigned a, unsigned b) const { return nodes[a].label < nodes[b].label; }
  void unlink(unsigned node);
  void insertAfter(unsigned place, llvm::ArrayRef<unsigned> moved);
  void relabel();

  const llvm::DenseMap<mlir::Operation *, KernelGroup *> &groupOf;
  llvm::DenseMap<const KernelGroup *, unsigned> nodeOfGroup;
  llvm::DenseMap<mlir::Operation *, unsigned> nodeOfOp;
  std::vector<Node> nodes;        ///< the first precedes all others
  std::vector<unsigned> reached;  ///< nodes that the last search visited; they must follow a merged pair
  unsigned searches = 0;
};

} // namespace tcc::train

#endif // TCC_PASSES_FUSION_KERNELGROUPS_H

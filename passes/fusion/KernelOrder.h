//===- KernelOrder.h - a topological order that merges update ---*- C++ -*-===//
//
// Two kernels can become one if no path leads from one to the other through a third. fuse-kernels asks that for every
// edge, so the answer must not take a walk through the whole program: the groups, and the ops outside them, are kept in
// a topological order, and a search visits only the nodes between the two. A merge moves the nodes that the first reaches
// behind the second, which keeps the order topological (after Pearce and Kelly, "A dynamic topological sort algorithm
// for directed acyclic graphs", 2006).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_FUSION_KERNELORDER_H
#define TCC_PASSES_FUSION_KERNELORDER_H

#include "passes/fusion/KernelGroups.h"

#include "mlir/IR/Block.h"
#include "llvm/ADT/DenseMap.h"

#include <vector>

namespace tcc::train {

class KernelOrder {
public:
  /// `groupOf`: the group of each op that has one. Groups must be convex: no path may leave one and come back.
  KernelOrder(mlir::Block &block, const llvm::DenseMap<mlir::Operation *, KernelGroup *> &groupOf);

  /// True if a path leads from one group to the other through an op outside both, in whichever direction edges go, or
  /// if the search for one would look at too many edges.
  bool pathBetween(const KernelGroup &a, const KernelGroup &b);

  /// `from` becomes part of `to`. The last question asked must have been about these two, and its answer false.
  void merge(const KernelGroup &from, const KernelGroup &to);

private:
  /// A kernel, or an op outside all kernels.
  struct Node {
    const KernelGroup *group = nullptr;
    mlir::Operation *op = nullptr;
    uint64_t label = 0; ///< rises along the order
    unsigned before = 0, after = 0;
    unsigned seen = 0; ///< the last search that came here
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

#endif // TCC_PASSES_FUSION_KERNELORDER_H

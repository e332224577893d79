//===- OpOrder.h - order of a block's ops under insertion -------*- C++ -*-===//
//
// `Operation::isBeforeInBlock` renumbers the whole block after an insertion: a pass that alternates insertions and
// queries would take quadratic time. Here an inserted op gets a number between those of its neighbours.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_OPORDER_H
#define TCC_PASSES_OPORDER_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace tcc::train {

/// The order of a block's ops. Ops must not be moved, and each inserted op must be added.
class OpOrder {
public:
  explicit OpOrder(mlir::Block &block) : block(block) { renumber(); }

  bool isBefore(mlir::Operation *a, mlir::Operation *b) const { return numbers.lookup(a) < numbers.lookup(b); }

  /// Adds `op`, which has just been inserted.
  void add(mlir::Operation *op) {
    mlir::Operation *before = op->getPrevNode(), *behind = op->getNextNode();
    const uint64_t low = before ? numbers.lookup(before) : 0, high = behind ? numbers.lookup(behind) : low + 2 * kGap;
    if (high - low < 2)
      return renumber();
    numbers[op] = low + (high - low) / 2;
  }

private:
  static constexpr uint64_t kGap = uint64_t(1) << 32;

  void renumber() {
    numbers.clear();
    uint64_t number = 0;
    for (mlir::Operation &op : block)
      numbers[&op] = number += kGap;
  }

  mlir::Block &block;
  llvm::DenseMap<mlir::Operation *, uint64_t> numbers;
};

} // namespace tcc::train

#endif // TCC_PASSES_OPORDER_H

//===- Fusion.h - helpers of fusion and of repeated ops ---------*- C++ -*-===//
//
// Queries of minimize-saved and fuse-kernels on ops, and the copies of cheap ops: each copy has one reader, whose
// kernel it joins, and an original that gives the same bits.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_FUSION_FUSION_H
#define TCC_PASSES_FUSION_FUSION_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <unordered_map>

namespace tcc::target {
struct CodeModel;
}

namespace tcc::train {

namespace names {
/// unit: a copy of an earlier op that its reader's kernel recomputes
inline constexpr llvm::StringLiteral kRepeated = "train.repeated";
/// i64: parts that split-reductions cuts the rows of a kernel with sums of columns into
inline constexpr llvm::StringLiteral kParts = "train.parts";
} // namespace names

/// Ops that can share a kernel with others.
bool isFusable(mlir::Operation *op);
/// Fusable, and no reduction: one element of the result takes a few elements of the operands.
bool isCheapElement(mlir::Operation *op);
/// True if each element of the result is one element of the single operand (transpose, slice, broadcast).
bool isMovement(mlir::Operation *op);
/// True for a large operand of which a lookup, a kernel of its own, reads a few elements: one for each element of its
/// result, selected by data. It is cheaper to compute these from the operand's own operands than to store all.
bool looksUpFew(mlir::OpOperand &use);
int64_t elementsOf(mlir::Value value);
using Extents = llvm::SmallVector<int64_t>;
Extents extentsOf(mlir::Value value);

/// A kernel reads and writes at most this many tensors, so that their pointers fit into registers.
inline constexpr unsigned kMostOperands = 24;

/// The least steps of a part of a reduction; a step is a vector, or one element of each of its lanes.
inline constexpr int64_t kLeastSteps = 32;

/// How the dimensions of a shape are cut, each into equal parts.
struct Cut {
  Extents parts; ///< of each dimension; 1: it stays whole

  /// Parts of all dimensions together.
  int64_t count() const;
};
/// The cut of one of `dims` into the most parts, but at most `most`.
Cut cutOf(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> dims, int64_t most);
/// The same for adjacent `dims`, which may be cut together: 32 × 512 rows have 1024 parts of 1 × 16 rows. One dimension
/// is cut alone if it has as many parts.
Cut jointCutOf(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> dims, int64_t most);
/// The cut of a reduction of `dims` by split-reductions: into enough parts for a machine that runs `units` at a time,
/// but none shorter than `length` steps. `code`: the model of the code that kernels become; null: that of lane groups.
Cut cutForUnits(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> dims, int64_t units,
                const target::CodeModel *code, int64_t length = kLeastSteps);

/// The ops that the loss depends on. Empty if the entry has no gradients.
llvm::DenseSet<mlir::Operation *> lossOps(mlir::func::FuncOp function);
/// The forward pass: the ops that the loss depends on, and elementwise ops on their values, such as masks.
llvm::DenseSet<mlir::Operation *> forwardOps(mlir::func::FuncOp function);

/// Finds ops with equal kind, attributes and operands, one after another (value numbering).
class ValueNumbers {
public:
  /// An op seen before with the same kind, attributes and operands; else null, and `op` is known from now on.
  mlir::Operation *findOrAdd(mlir::Operation *op);

private:
  mlir::Value numberOf(mlir::Value value) const;

  std::unordered_multimap<size_t, mlir::Operation *> known;
  llvm::DenseMap<mlir::Value, mlir::Value> numbers;
};

/// The copies of cheap ops in a block.
class RepeatedChains {
public:
  /// Finds the copies that minimize-saved marked.
  explicit RepeatedChains(mlir::func::FuncOp function);

  /// Repeats chains with one full-size operand for each of their readers: reading their operand costs as much as
  /// reading their result would. A widening cast is repeated even for its first reader. A lookup of few elements gets a
  /// copy unless the chain's result is stored in any case. Forward values that the backward pass reads stay as
  /// minimize-saved decided. The backward pass repeats no chain that starts at a gathered parameter, which would stay
  /// in memory until then; a parameter that is not sharded is in memory in any case.
  void repeat();
  /// True if every reader of `value` in another kernel recomputes it, so that it is never stored.
  static bool isChain(mlir::Value value);
  /// The op that `op` is a copy of, or null if it is none.
  mlir::Operation *originalOf(mlir::Operation *op) const { return originals.lookup(op); }
  bool isForward(mlir::Operation *op) const { return forward.contains(op); }
  /// Makes the readers of a copy read the original, and erases the copy.
  void giveUp(mlir::Operation *copy);
  void giveUpAll();

private:
  static std::optional<mlir::Value> singleLeaf(mlir::Operation *op);
  static unsigned chainLength(mlir::Value value);
  bool isTreeWithin(mlir::Operation *op, unsigned &most);
  bool isTrivial(mlir::Operation *op);
  bool startsAtCollective(mlir::Value value);
  bool widens(mlir::Operation *op);

  mlir::Block &block;
  llvm::DenseSet<mlir::Operation *> forward, loss;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> originals;
};

} // namespace tcc::train

#endif // TCC_PASSES_FUSION_FUSION_H

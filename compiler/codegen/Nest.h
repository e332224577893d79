//===- Nest.h - one kernel's loop nest, inside this folder ------*- C++ -*-===//
//
// The class behind LoopNest.h. Its parts:
//
//   LoopNest.cpp     units and levels, loops over lanes and reduced dimensions, rows, the end of a reduction
//   NestThreads.cpp  the elements that a thread of a warp takes, and how many are in flight
//   NestColumns.cpp  sums of parallel lanes in registers: a vector of columns, or a thread's
//   NestSums.cpp     sums of parallel lanes in memory
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_NEST_H
#define TCC_CODEGEN_NEST_H

#include "compiler/codegen/ElementEmitter.h"
#include "compiler/codegen/IterationSpace.h"

namespace tcc::codegen {

/// Emits the loops of one kernel. A warp's nest is that of vectors, with code for one thread: positions of the lanes
/// are the thread's own, a masked tail is a branch, and the end of a reduction goes through shuffles; in a block of
/// several warps, then through shared memory.
class Nest {
public:
  Nest(train::FusedOp fused, const IterationSpace &space, ElementEmitter &emitter, llvm::ArrayRef<Memory> outputs,
       mlir::Value thread);

  void emitTile(mlir::Value tile);

private:
  using Values = llvm::SmallVector<mlir::Value>;
  using Elements = llvm::SmallVector<std::pair<unsigned, mlir::Value>>;
  using Add = llvm::function_ref<Values(mlir::ValueRange carried, mlir::Value mask)>;
  using Wanted = llvm::function_ref<bool(unsigned output)>;
  using Range = llvm::function_ref<Values(mlir::Value first, mlir::Value last, Values carried)>;

  /// Vectors that a reduction adds up one after another before it starts anew: a few in a hundred more work, and the
  /// sum of ten million elements is 300 additions deep instead of 300,000.
  static constexpr int64_t kLongestRun = 128;
  /// Of the largest scalar: a value's place in shared memory.
  static constexpr int64_t kScalarBytes = 8;

  void emitUnit(mlir::Value unit);
  /// Rows of a tile that a warp takes together, so that their loads are in flight and their shuffles under way at the
  /// same time: a short row by itself would be a chain of one load and five shuffles.
  int64_t rowsTogether();
  void emitUnits(mlir::Value first, int64_t count);
  /// Sets the coordinates of a unit; where its lanes begin.
  mlir::Value placeUnit(mlir::Value unit);
  void emitLevels(mlir::Value start);
  void emitElementwise(mlir::Value start);
  void emitElementwiseLoop(mlir::Value start);
  void emitRows(llvm::ArrayRef<llvm::SmallVector<train::Coord>> places);
  void emitLaneParallel(mlir::Value start);
  void emitLaneBlock(mlir::Value start);

  /// Lanes of the values that this code computes with.
  int64_t valueLanes() const { return thread ? 1 : space.lanes; }
  /// The coordinate of the lanes from `position` on.
  train::Coord lanesAt(mlir::Value position);
  /// Runs `body` where `condition` holds, of a warp's threads; carries `values` through it.
  Values when(mlir::Value condition, mlir::ValueRange values, llvm::function_ref<Values()> body);
  void ifOnFirstThread(llvm::function_ref<void()> body);
  /// i1: is this thread's lane among the first `count`?
  mlir::Value isBelow(mlir::Value count);
  mlir::Value times(mlir::Value x, int64_t y);

  Elements computeOutputs(llvm::function_ref<bool(unsigned)> wanted);
  /// All are computed before the first is stored: one may overwrite another's operand.
  void storeOutputs(llvm::function_ref<bool(unsigned)> wanted);
  llvm::SmallVector<train::Coord> coordsFor(mlir::Value value);
  mlir::OperandRange yielded();
  bool isRow(unsigned output);
  bool isFull(unsigned output);
  bool outputInLevel(unsigned output, unsigned level);
  bool storesInLevel(unsigned level);

  /// Calls `body` for the lanes from `start` on; a block ends at min(start + laneBlock, extent).
  void overLanes(mlir::Value start, Values &carried, Add body);
  /// Rounds [0, count) of a reduction's loop. `range` adds some of them to what it is given. More than `run` are cut
  /// into runs that start from nothing, whose results are combined, themselves in runs: cascade summation, whose error
  /// grows with the depth of this tree (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), not the count.
  Values inRuns(int64_t count, int64_t run, Values carried, Range range);
  /// Loops over the reduced dimensions other than the lanes, from `dim` on.
  Values overReduced(unsigned dim, Values carried, llvm::function_ref<Values(Values)> body);

  /// The staged reductions of one level: identities to start from, for each column.
  Values identities(llvm::ArrayRef<mlir::Operation *> reductions);
  Values accumulate(llvm::ArrayRef<mlir::Operation *> reductions, mlir::ValueRange carried, mlir::Value mask);
  Values combined(mlir::ValueRange sums, llvm::ArrayRef<mlir::Value> more);
  /// Halves a vector until one element is left.
  mlir::Value combineLanes(mlir::Operation *op, mlir::Value vector);
  /// The same tree in a warp: the upper half's threads hand their values down, and the first thread's result to all. A
  /// thread has values of several rows, which go through each step together.
  void combineThreads(mlir::Operation *op, llvm::MutableArrayRef<mlir::Value> values);
  /// One walk over the row at `coords`: this code's part of the level's reductions, and the level's results are stored.
  Values walkRow(unsigned level, llvm::ArrayRef<mlir::Operation *> reductions);
  /// Combines the values of the first threads of a block's warps, in their order; every thread gets the result.
  mlir::Value combineWarps(mlir::Operation *op, mlir::Value value);
  /// Combines the values of that many warps, in their order, which the block's threads have just put into shared
  /// memory: `at` gives the address of a warp's. The memory may be written again afterwards.
  mlir::Value combineShared(mlir::Operation *op, mlir::Type type, int64_t warps,
                            llvm::function_ref<mlir::Value(mlir::Value warp)> at);
  void setRow(mlir::Operation *op, mlir::Value value);

  // A thread's elements (NestThreads.cpp).
  /// Does a thread's part of a row, over which nothing else is looped, fit into registers?
  bool isStraight();
  /// Operands of which an element is read for each element of the space.
  int64_t fullOperands() const;
  /// A whole block of a warp.
  void emitStraight(mlir::Value start);
  /// Where this thread's elements are, of so many rounds of all lanes from `start` on.
  Values positionsOf(mlir::Value start, int64_t rounds);
  /// Adds a thread's elements at some places up, then stores what is wanted of each: everything is loaded before the
  /// first element is stored, so that loads are in flight together even where a result may overwrite an operand.
  void visitEach(size_t count, llvm::function_ref<void(size_t)> place, Values &carried, Add add, Wanted stored);
  void visit(llvm::ArrayRef<mlir::Value> positions, Values &carried, Add add, Wanted stored);
  /// This thread's part of a row that all lanes reduce.
  void overThreadRow(Values &carried, Add add, Wanted stored);

  // Columns (NestColumns.cpp).
  /// A vector of columns, or this thread's neighbours among those of the warp.
  void emitLaneColumns(mlir::Value start);
  void enterColumn(size_t number);
  /// The sums of all rows, where each of the block's warps has added its own, in their order.
  Values combineRowWarps(llvm::ArrayRef<mlir::Operation *> reductions, mlir::ValueRange sums);
  /// Rows [first, last) of this thread's column, several in flight.
  Values overRows(unsigned dim, mlir::Value first, mlir::Value last, Values carried,
                  llvm::function_ref<Values(Values)> body);
  Values visitRows(Values carried, Add add, Wanted stored);

  // Sums in memory (NestSums.cpp).
  class BlockSums;
  /// Runs `body` for each vector of the block, with the sums of the levels that are done.
  void eachVector(mlir::Value start, llvm::function_ref<void()> body);

  mutable train::FusedOp fused; ///< a handle
  const IterationSpace &space;
  ElementEmitter &emitter;
  llvm::ArrayRef<Memory> outputs;
  mlir::Value thread;  ///< this thread's number among the lanes (i64); null where lanes are those of vectors
  mlir::Value rowWarp; ///< the number of its warp, where several sum up the same columns
  llvm::SmallVector<train::Coord> coords;
  llvm::ArrayRef<mlir::Operation *> current; ///< the reductions whose level is walked
  BlockSums *blockSums = nullptr;            ///< where they are, if not in registers
  unsigned levelsDone = 0;                   ///< with sums in memory
  struct Column {
    train::Coord at;
    llvm::DenseMap<mlir::Operation *, mlir::Value> rows{}; ///< results of the levels that are done
  };
  llvm::SmallVector<Column> columns; ///< that this code sums up, lanes of vectors or a thread's
  size_t column = 0;                 ///< the one that is computed
  int64_t rowsOfLoop = 1;            ///< that a round of the innermost loop over rows takes
  Values rowsAt;                     ///< those of this round, along rowsDim
  unsigned rowsDim = 0;
};

/// The sums of a block of lanes, one vector after another, on the worker's stack. Runs of a reduction that are to be
/// combined have sums of their own, one level deeper.
class Nest::BlockSums {
public:
  BlockSums(Nest &nest, mlir::Value start) : nest(nest), start(start) {}

  /// The sums of `nest.current` start from nothing, a level deeper than they were.
  void begin();
  /// The deepest sums are combined with those before them.
  void end();
  void finish() { --depth; }
  Values loadAll();
  void saveAll(llvm::ArrayRef<mlir::Value> values);
  /// The result of a level that is done.
  mlir::Value result(mlir::Operation *op) { return load({op, 0}); }

private:
  using Key = std::pair<mlir::Operation *, int>;
  static constexpr unsigned kAlignment = 64;

  void save(mlir::Operation *op, mlir::Value sum);
  mlir::Value load(Key key);
  mlir::Value allocate(mlir::Type vector);
  mlir::Value address(Key key);

  Nest &nest;
  mlir::Value start;
  int depth = -1;
  llvm::DenseMap<Key, mlir::Value> memories;
  llvm::DenseMap<mlir::Operation *, mlir::Type> types;
};

} // namespace tcc::codegen

#endif // TCC_CODEGEN_NEST_H

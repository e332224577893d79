//===- Nest.h - one kernel's loop nest, inside this folder ------*- C++ -*-===//
//
// The class behind emitTile. Its parts:
//
//   LoopNest.cpp     units and levels, loops over lanes and reduced dimensions, rows, the end of a reduction
//   NestThreads.cpp  the elements of a warp's thread, and how many are in flight
//   NestColumns.cpp  sums of parallel lanes in registers: a vector of columns, or a thread's
//   NestWalk.cpp     sums of columns in registers, beside reductions of rows
//   NestSums.cpp     sums of parallel lanes in memory
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_NEST_H
#define TCC_CODEGEN_NEST_H

#include "compiler/codegen/ElementEmitter.h"
#include "compiler/codegen/IterationSpace.h"

namespace tcc::codegen {

/// Emits the loops of one kernel. A warp's nest is the nest for vectors, with code for one thread: the position of the
/// lanes is the thread's own, a masked tail is a branch, and a reduction ends with shuffles; in a block of several
/// warps, then with shared memory.
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

  /// Vectors that a reduction adds serially before it starts a new run: costs a few percent, and makes the sum of ten
  /// million elements 300 additions deep instead of 300,000.
  static constexpr int64_t kLongestRun = 128;
  /// Size of a value's slot in shared memory: that of the largest scalar.
  static constexpr int64_t kScalarBytes = 8;

  void emitUnit(mlir::Value unit);
  /// Rows of a tile that a warp processes together, so that their loads and shuffles overlap: a short row by itself
  /// would be a dependent chain of one load and five shuffles.
  int64_t rowsTogether();
  void emitUnits(mlir::Value first, int64_t count);
  /// Sets the coordinates of a unit. Returns the position of its first lane.
  mlir::Value placeUnit(mlir::Value unit);
  void emitLevels(mlir::Value start);
  void emitElementwise(mlir::Value start);
  void emitElementwiseLoop(mlir::Value start);
  /// Emits rows together, level by level. A walk's last level adds the rows to the sums of columns, in their order;
  /// returns these.
  Values emitRows(llvm::ArrayRef<llvm::SmallVector<train::Coord>> places, Values columnSums = {});
  /// Emits the row at `coords`, but only zeros if its guard does not hold (RowGuard.h).
  void emitGuardedRow();
  /// Runs `body`, which stores outputs that have one element for each row, on the thread that stores them.
  void onRowThread(llvm::function_ref<void()> body);
  void emitLaneParallel(mlir::Value start);
  void emitLaneBlock(mlir::Value start);

  /// Lanes of the emitted values.
  int64_t valueLanes() const { return thread ? 1 : space.lanes; }
  /// The coordinate of the lanes from `position` on.
  train::Coord lanesAt(mlir::Value position);
  /// Runs `body` on the threads of a warp for which `condition` holds; carries `values` through it.
  Values when(mlir::Value condition, mlir::ValueRange values, llvm::function_ref<Values()> body);
  void ifOnFirstThread(llvm::function_ref<void()> body);
  /// i1: is this thread's lane among the first `count`?
  mlir::Value isBelow(mlir::Value count);
  mlir::Value times(mlir::Value x, int64_t y);

  Elements computeOutputs(llvm::function_ref<bool(unsigned)> wanted);
  /// Computes all outputs before storing the first: one may overwrite another's operand.
  void storeOutputs(llvm::function_ref<bool(unsigned)> wanted);
  llvm::SmallVector<train::Coord> coordsFor(mlir::Value value);
  mlir::OperandRange yielded();
  bool isRow(unsigned output);
  bool isFull(unsigned output);
  bool isColumn(unsigned output);
  bool outputInLevel(unsigned output, unsigned level);
  bool storesInLevel(unsigned level);

  /// Calls `body` for the lanes from `start` on; a block ends at min(start + laneBlock, extent).
  void overLanes(mlir::Value start, Values &carried, Add body);
  /// Iterations [0, count) of a reduction's loop. `range` adds a range of them to given sums. More than `run`
  /// iterations are cut into runs that start from identities and are then combined, in runs again: cascade summation,
  /// whose error grows with the depth of this tree (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), not
  /// the count.
  Values inRuns(int64_t count, int64_t run, Values carried, Range range);
  /// Loops over the dimensions that are `looped`, other than the lanes, from `dim` on.
  Values overDims(unsigned dim, llvm::ArrayRef<bool> looped, Values carried, llvm::function_ref<Values(Values)> body);
  Values overReduced(Values carried, llvm::function_ref<Values(Values)> body) {
    return overDims(0, space.reduced, std::move(carried), body);
  }

  /// The staged reductions of one level: identities to start from, for each of `count` columns.
  Values identities(llvm::ArrayRef<mlir::Operation *> reductions, size_t count = 1);
  Values accumulate(llvm::ArrayRef<mlir::Operation *> reductions, mlir::ValueRange carried, mlir::Value mask);
  Values combined(mlir::ValueRange sums, llvm::ArrayRef<mlir::Value> more);
  /// Reduces a vector to one element by halving.
  mlir::Value combineLanes(mlir::Operation *op, mlir::Value vector);
  /// The same tree in a warp, by shuffles from the upper to the lower half; all threads get the result. The values of
  /// several rows go through each step together.
  void combineThreads(mlir::Operation *op, llvm::MutableArrayRef<mlir::Value> values);
  /// One pass over the row at `coords`: returns this thread's part of the level's reductions, and stores the outputs of
  /// the level.
  Values walkRow(unsigned level, llvm::ArrayRef<mlir::Operation *> reductions);
  /// Combines the values of the first threads of a block's warps, in their order; every thread gets the result.
  mlir::Value combineWarps(mlir::Operation *op, mlir::Value value);
  /// Combines the values that `warps` warps have just stored in shared memory, in their order; `at` gives the address
  /// of a warp's value. The memory may be overwritten afterwards.
  mlir::Value combineShared(mlir::Operation *op, mlir::Type type, int64_t warps,
                            llvm::function_ref<mlir::Value(mlir::Value warp)> at);
  void setRow(mlir::Operation *op, mlir::Value value);

  // A thread's elements (NestThreads.cpp).
  /// Does a thread's part of a row fit into registers, without a loop over other reduced dimensions?
  bool isStraight();
  /// Number of operands that are read at every element of the space.
  int64_t fullOperands() const;
  /// Emits a whole block of a warp without loops.
  void emitStraight(mlir::Value start);
  /// Positions of this thread's elements in `rounds` rounds of all lanes from `start` on.
  Values positionsOf(mlir::Value start, int64_t rounds);
  /// Adds up a thread's elements at `count` places, then stores their `stored` outputs: all loads precede the first
  /// store, so that they are in flight together even if a result may overwrite an operand.
  void visitEach(size_t count, llvm::function_ref<void(size_t)> place, Values &carried, Add add, Wanted stored);
  void visit(llvm::ArrayRef<mlir::Value> positions, Values &carried, Add add, Wanted stored);
  /// Adds this thread's part of a row that all lanes reduce.
  void overThreadRow(Values &carried, Add add, Wanted stored);

  // Columns (NestColumns.cpp).
  /// Emits the sums of a vector of columns, or of this thread's neighbouring columns.
  void emitLaneColumns(mlir::Value start);
  void enterColumn(size_t number);
  /// Combines the sums that each of the block's warps has made of its own rows, in the order of warps.
  Values combineRowWarps(llvm::ArrayRef<mlir::Operation *> reductions, mlir::ValueRange sums);
  /// Loops over rows [first, last) of this thread's column, with several in flight.
  Values overRows(unsigned dim, mlir::Value first, mlir::Value last, Values carried,
                  llvm::function_ref<Values(Values)> body);
  Values visitRows(Values carried, Add add, Wanted stored);

  // Walks (NestWalk.cpp).
  /// Emits the rows of a part in order, with the sums of their columns.
  void emitWalk();
  /// Rows that an iteration of the loop over rows reduces together.
  int64_t rowsOfWalk();
  /// The last pass over the row at `coords`: adds its elements to the sums, and stores the outputs of the level.
  Values sumColumns(unsigned level, Values sums);
  void storeColumns(mlir::ValueRange sums);

  // Sums in memory (NestSums.cpp).
  class BlockSums;
  /// Runs `body` for each vector of the block, with the sums of the levels that are done.
  void eachVector(mlir::Value start, llvm::function_ref<void()> body);

  mutable train::FusedOp fused; ///< a handle
  const IterationSpace &space;
  ElementEmitter &emitter;
  llvm::ArrayRef<Memory> outputs;
  mlir::Value thread;  ///< this thread's number among the lanes (i64); null for vectors
  mlir::Value rowWarp; ///< the number of its warp, if several sum up the same columns
  mlir::Value guard;   ///< of rows, a value of the region; or null
  bool isEmptyRow = false; ///< the row's outputs are 0
  llvm::SmallVector<train::Coord> coords;
  llvm::ArrayRef<mlir::Operation *> current; ///< the reductions of the current level
  BlockSums *blockSums = nullptr;            ///< their sums, if in memory
  unsigned levelsDone = 0;                   ///< completed levels with sums in memory
  struct Column {
    train::Coord at;
    llvm::DenseMap<mlir::Operation *, mlir::Value> rows{}; ///< results of completed levels
  };
  llvm::SmallVector<Column> columns; ///< columns that this code sums up: lanes of vectors, or a thread's
  size_t column = 0;                 ///< the current one
  int64_t rowsOfLoop = 1;            ///< rows that an iteration of the innermost loop over rows visits
  Values rowsAt;                     ///< positions of these rows along rowsDim
  unsigned rowsDim = 0;
};

/// The sums of a block of lanes, as consecutive vectors on the worker's stack. Runs of a reduction that will be
/// combined have sums of their own, one level deeper.
class Nest::BlockSums {
public:
  BlockSums(Nest &nest, mlir::Value start) : nest(nest), start(start) {}

  /// Starts new sums of `nest.current` from identities, one level deeper.
  void begin();
  /// Combines the deepest sums with those one level above.
  void end();
  void finish() { --depth; }
  Values loadAll();
  void saveAll(llvm::ArrayRef<mlir::Value> values);
  /// The result of a reduction of a completed level.
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

/// Emits the loops that compute tile `tile` (i64) of a region: for vectors, or if `thread` (i64, its number in the
/// warp) is given, for one of the threads that share the tile. All threads of a warp must run it together. The emitter
/// has the memory of the region's arguments; `outputs` is that of its results.
void emitTile(train::FusedOp fused, const IterationSpace &space, ElementEmitter &emitter,
              llvm::ArrayRef<Memory> outputs, mlir::Value tile, mlir::Value thread = nullptr);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_NEST_H

//===- IterationSpace.cpp - the dimensions that a region loops over -------===//
#include "compiler/codegen/IterationSpace.h"

#include "compiler/dialect/ColumnSums.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <numeric>

using namespace mlir;

namespace tcc::codegen {

namespace {

/// Target size of a tile in elements: small enough to balance a hundred workers. A worker takes several tiles at a
/// time, so small tiles cost nothing with few workers. A kernel of at most kElementsOfOneTile is one tile: waking a
/// second worker would take longer.
constexpr int64_t kElementsPerTile = 4096, kElementsOfOneTile = 32768;
constexpr int64_t kMostTiles = 1024;
/// Rows of a pure elementwise kernel longer than this are cut into blocks of it.
constexpr int64_t kLongestLaneBlock = 4096;
/// A reduction with parallel lanes and few rows is cut into this many units; most sums of a unit.
constexpr int64_t kReductionUnits = 16, kMostSums = 2048;
/// The same for warps: eight elements per thread, once all warps are busy.
constexpr int64_t kElementsPerWarpTile = 256, kLongestWarpBlock = 256, kMostWarpTiles = 1 << 20;
/// Most columns that a thread sums up at a time, as long as this many warps are busy.
constexpr int64_t kMostColumns = 4, kFewestWarps = 1024;
/// Operations per element from which a reduction is compute-bound: its sums then stay in registers.
constexpr double kLongBody = 24;

ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

/// Most neighbouring elements that a thread processes at a time.
constexpr int64_t kMostNeighbours = 8;

/// Extent of a tensor along the lanes, which groups of neighbours have to divide; 1 if lanes are not contiguous in it.
int64_t rowOf(ArrayRef<int64_t> shape, const IterationSpace &space) {
  if (shape.size() != space.dims.size()) { // broadcast, right-aligned
    while (!shape.empty() && shape.back() == 1)
      shape = shape.drop_back();
    return shape.empty() ? kMostNeighbours : shape.back();
  }
  ArrayRef<int64_t> behind = shape.drop_front(space.laneDim + 1);
  if (llvm::any_of(behind, [](int64_t extent) { return extent != 1; }))
    return 1;
  return shape[space.laneDim] == 1 ? kMostNeighbours : shape[space.laneDim];
}

/// The lanes' dimension of a value that is right-aligned with the space; none if it has too few dimensions.
std::optional<unsigned> laneDimOf(Value value, const IterationSpace &space) {
  const size_t rank = shapeOf(value).size(), fromEnd = space.dims.size() - space.laneDim;
  return rank >= fromEnd ? std::optional(unsigned(rank - fromEnd)) : std::nullopt;
}

/// Does the op read one element of this operand for all of its lanes, such as the row number of a lookup?
bool readsOne(OpOperand &use, const IterationSpace &space) {
  auto fusible = dyn_cast<train::Fusible>(use.getOwner());
  const AffineMap map = fusible ? fusible.getOperandMap(use.getOperandNumber()) : AffineMap();
  const std::optional<unsigned> dim = map ? laneDimOf(use.getOwner()->getResult(0), space) : std::nullopt;
  return dim && !map.isFunctionOfDim(*dim) && !fusible.readsNeighbours(use.getOperandNumber(), *dim, 1);
}

/// Do `count` neighbours along the lanes of the op's results read as many neighbours of each operand?
bool keepsNeighbours(Operation &op, const IterationSpace &space, int64_t count) {
  if (op.hasTrait<train::Pointwise>() || op.getNumOperands() == 0 || isa<train::Reducible>(op))
    return true;
  auto fusible = dyn_cast<train::Fusible>(op);
  const std::optional<unsigned> dim = laneDimOf(op.getResult(0), space);
  return fusible && dim && llvm::all_of(op.getOpOperands(), [&](OpOperand &use) {
           return fusible.readsNeighbours(use.getOperandNumber(), *dim, count) || readsOne(use, space);
         });
}

/// Number of neighbouring elements that a thread processes at a time: 16 bytes of the narrowest tensor, or less so that
/// it divides all rows. 1 if some op reads its operand in another order.
int64_t neighboursOf(Block &body, const IterationSpace &space) {
  int64_t count = kMostNeighbours, narrowest = 8;
  auto suits = [&](Value value) {
    if (!value.use_empty() && llvm::all_of(value.getUses(), [&](OpOperand &use) { return readsOne(use, space); }))
      return;
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getNumElements() > 1)
      narrowest = std::min<int64_t>(narrowest, train::elementBytes(type.getElementType()));
    for (int64_t extent = rowOf(type.getShape(), space); count > 1 && extent % count;)
      count /= 2;
  };
  for (BlockArgument operand : body.getArguments())
    suits(operand);
  for (Operation &op : body.without_terminator()) {
    for (Value result : op.getResults())
      suits(result);
    if (!keepsNeighbours(op, space, count))
      return 1;
  }
  return std::max<int64_t>(1, std::min(count, target::kAccessBytes / narrowest));
}

/// Chooses the threads that walk over the rows of a part, and how many neighbouring columns each has at a time.
void setWalk(IterationSpace &space, const target::CodeModel &model) {
  constexpr int64_t kWideAccess = 4; // neighbours; rather fewer at a time than single ones at the end
  const int64_t columns = space.dims[space.laneDim], threads = model.threadsOfWalk(columns);
  space.lanes = threads ? threads : model.grid.walkThreads;
  while (space.neighbours > kWideAccess && columns / space.lanes % space.neighbours)
    space.neighbours /= 2;
}

/// Is exactly one dimension with more than one element reduced?
bool oneLoop(const IterationSpace &space) {
  int64_t loops = 0;
  for (auto [extent, reduced] : llvm::zip_equal(space.dims, space.reduced))
    loops += reduced && extent > 1;
  return loops == 1;
}

struct ReductionKey {
  SmallVector<int64_t> shape, dims;
  bool operator==(const ReductionKey &) const = default;
};

/// Operations of the region for each element of its largest tensor.
double operationsPerElement(Block &body) {
  double operations = 0;
  int64_t elements = 1;
  for (Operation &op : body.without_terminator()) {
    if (auto cost = dyn_cast<train::Cost>(&op))
      operations += cost.getFlops();
    for (Value operand : op.getOperands())
      elements = std::max(elements, cast<RankedTensorType>(operand.getType()).getNumElements());
  }
  return operations / double(elements);
}

} // namespace

unsigned IterationSpace::levelOf(Value value) const {
  Operation *op = value.getDefiningOp();
  if (!op)
    return 0;
  for (unsigned level = 0; level < levels.size(); ++level)
    if (llvm::is_contained(levels[level], op))
      return level + 1;
  unsigned most = 0;
  for (Value operand : op->getOperands())
    most = std::max(most, levelOf(operand));
  return most;
}

bool IterationSpace::isRowShape(ArrayRef<int64_t> shape) const {
  if (levels.empty() || shape.size() != dims.size())
    return false;
  for (auto [extent, full, isReduced] : llvm::zip(shape, dims, reduced))
    if (extent != (isReduced ? 1 : full))
      return false;
  return true;
}

IterationSpace analyzeIterationSpace(train::FusedOp fused, const target::CodeModel &model) {
  IterationSpace space;
  Block &body = fused.getBody().front();
  // The reductions over the largest tensor are staged; any other one is computed per element.
  std::optional<ReductionKey> key;
  int64_t largest = -1;
  if (model.threaded())
    for (train::ReduceOp column : train::columnSumsOf(fused))
      space.columnSums.push_back(column);
  space.ofColumns.insert(space.columnSums.begin(), space.columnSums.end());
  for (Operation &op : body)
    if (llvm::any_of(op.getOperands(), [&](Value operand) { return space.isOfColumns(operand); }))
      space.ofColumns.insert(&op);
  for (Operation &op : body)
    if (auto reducible = dyn_cast<train::Reducible>(&op); reducible && !llvm::is_contained(space.columnSums, &op)) {
      int64_t size = cast<RankedTensorType>(op.getOperand(0).getType()).getNumElements();
      if (size > largest) {
        largest = size;
        key = ReductionKey{SmallVector<int64_t>(shapeOf(op.getOperand(0))), reducible.getReducedDims()};
      }
    }
  if (key) {
    space.dims = key->shape;
    space.reduced.assign(space.dims.size(), false);
    space.walked = space.reduced;
    for (int64_t dim : key->dims)
      space.reduced[dim] = true;
    if (space.walks())
      for (int64_t dim : cast<train::Reducible>(space.columnSums.front()).getReducedDims())
        space.walked[dim] = true;
    llvm::DenseMap<Value, unsigned> level;
    for (Operation &op : body) {
      unsigned needed = 0;
      for (Value operand : op.getOperands())
        needed = std::max(needed, level.lookup(operand));
      auto reducible = dyn_cast<train::Reducible>(&op);
      bool staged = reducible &&
                    ReductionKey{SmallVector<int64_t>(shapeOf(op.getOperand(0))), reducible.getReducedDims()} == *key;
      if (staged) {
        space.levels.resize(std::max<size_t>(space.levels.size(), needed + 1));
        space.levels[needed].push_back(&op);
      }
      for (Value result : op.getResults())
        level[result] = needed + staged;
    }
  } else {
    Value root;
    for (Value value : body.getTerminator()->getOperands())
      if (!root || cast<RankedTensorType>(value.getType()).getNumElements() >
                       cast<RankedTensorType>(root.getType()).getNumElements())
        root = value;
    space.dims.assign(shapeOf(root).begin(), shapeOf(root).end());
    space.reduced.assign(space.dims.size(), false);
  }
  if (space.dims.empty()) {
    space.dims.push_back(1);
    space.reduced.push_back(false);
  }

  space.laneDim = space.dims.size() - 1;
  while (space.laneDim > 0 && space.dims[space.laneDim] == 1)
    --space.laneDim;
  int64_t laneExtent = space.dims[space.laneDim];
  space.groupLanes = model.vectorLanes;
  space.lanes = laneExtent == 1 ? 1 : model.vectorLanes;
  bool laneParallel = !space.reduced[space.laneDim];
  int64_t rows = 1, elements = 1;
  for (auto [dim, extent] : llvm::enumerate(space.dims)) {
    elements *= extent;
    if (space.isParallel(unsigned(dim)))
      rows *= extent;
  }
  if (model.threaded())
    space.neighbours = neighboursOf(body, space);
  if (!laneParallel) {
    space.laneBlock = laneExtent;
    if (space.walks())
      setWalk(space, model);
    else if (model.threaded() && space.lanes > 1)
      space.lanes = model.threadsOfRow(rows, laneExtent);
  } else if (!space.levels.empty()) {
    int64_t blocks = llvm::divideCeil(kReductionUnits, std::max<int64_t>(rows, 1));
    int64_t vectors = llvm::divideCeil(llvm::divideCeil(laneExtent, blocks), space.lanes);
    bool isLong = operationsPerElement(body) >= kLongBody;
    const bool oneVector = isLong || model.threaded();
    space.laneBlock = std::min((oneVector ? 1 : std::max<int64_t>(vectors, 1)) * space.lanes, kMostSums);
    if (model.threaded() && space.lanes > 1)
      for (int64_t count = std::min(space.neighbours, kMostColumns); count > 1 && space.columns == 1; count /= 2)
        if (laneExtent % (space.lanes * count) == 0 && rows * (laneExtent / (space.lanes * count)) >= kFewestWarps)
          space.columns = count;
    space.laneBlock *= space.columns;
    // Only with one dimension of rows, equal parts, and a column for every lane: all threads must reach the barriers.
    if (model.threaded() && space.lanes > 1 && laneExtent % space.laneBlock == 0 && oneLoop(space))
      space.rowWarps = model.warpsOfColumns(rows * laneExtent / space.lanes, elements / rows / laneExtent);
  } else {
    space.laneBlock = std::min(laneExtent, model.threaded() ? kLongestWarpBlock : kLongestLaneBlock);
  }
  space.laneBlock = std::max<int64_t>(space.laneBlock, 1);

  space.units = rows * (laneParallel ? (laneExtent + space.laneBlock - 1) / space.laneBlock : 1);
  int64_t perUnit = std::max<int64_t>(1, space.units ? elements / space.units : 1);
  if (space.walks())
    return space;
  const std::optional<int64_t> tile = fused.getTileElements();
  if (tile && !model.threaded()) {
    space.laneBlock = laneExtent; // a tile is some whole rows
    space.units = rows;
    space.rowWarps = 1;
    space.unitsPerTile = *tile / (elements / rows);
    return space;
  }
  int64_t perTile = model.threaded()                 ? kElementsPerWarpTile
                    : elements <= kElementsOfOneTile ? kElementsOfOneTile
                                                     : kElementsPerTile;
  int64_t most = model.threaded() ? kMostWarpTiles : kMostTiles;
  // A warp's units run one after another, each bound by the latency of memory and shuffles. So a warp gets several only
  // if the card has no idle warps.
  int64_t together = perTile / perUnit;
  if (model.threaded())
    together = std::min(together, space.units / model.residentWarps());
  space.unitsPerTile = std::max<int64_t>({1, together, (space.units + most - 1) / most});
  if (tile) { // a slice's rows are whole tiles
    const int64_t blocks = space.laneBlocks(), rowElements = elements / rows, sliceRows = *tile / rowElements;
    if (blocks > 1)
      space.unitsPerTile = 1;
    while (sliceRows % space.unitsPerTile)
      --space.unitsPerTile;
    space.sliceTiles = sliceRows * blocks / space.unitsPerTile;
    space.groupElements = rowElements * space.unitsPerTile;
  }
  return space;
}

} // namespace tcc::codegen

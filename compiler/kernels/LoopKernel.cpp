//===- LoopKernel.cpp - a loop's steps around its body's regions ----------===//
//
// In each step, the regions of the body run one after another over all elements of a tile. State is double-buffered in
// scratch: a step reads one copy and writes the other. Parts of the results are stored in the results, other values in
// scratch.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Loop.h"
#include "compiler/dialect/Views.h"
#include "compiler/kernels/Kernels.h"

using namespace mlir;

namespace tcc::train {

namespace {

// Most recurrences are independent for each sample, head or channel. Their loop is cut along these dimensions into
// tiles, which run in parallel, each with its state in the first-level cache.
//
// Each dimension is a product of atoms. An op says which dimensions of its operands and results have the same index:
// their atoms are unified. Reshapes split atoms. Atoms that an op reduces, shifts or reads in another way, and atoms
// that occur twice in a value, mix elements: a loop is not cut along them.

/// A loop that is cut into tiles along the leading dimensions of all its operands and results.
class LoopRows {
public:
  explicit LoopRows(LoopOp loop);
  ~LoopRows();
  LoopRows(const LoopRows &) = delete;
  LoopRows &operator=(const LoopRows &) = delete;

  int64_t tiles() const;
  /// The loop whose body computes one tile: the body's values have a tile's extents; operands and results are whole.
  LoopOp body() const { return tile; }
  /// Offset, in elements of the whole tensor, of a tile's part of `value`: an argument of the body or an operand of its
  /// train.next. `number` (i64): number of the tile.
  mlir::Value offsetOf(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, mlir::Value number) const;

private:
  struct Cut {
    int64_t extent, tile;
  };
  llvm::SmallVector<Cut> cuts;
  LoopOp tile;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<int64_t>> strides; ///< of each cut dimension; 0 if absent
};

/// Least elements of the largest state in a tile: with fewer, the loop overhead would dominate single vectors.
constexpr int64_t kLeastTileElements = 256;

class Atoms {
public:
  using List = llvm::SmallVector<unsigned, 4>;

  unsigned make(int64_t extent) {
    nodes.push_back({extent, unsigned(nodes.size()), {}, false});
    return unsigned(nodes.size() - 1);
  }
  int64_t extentOf(unsigned atom) const { return nodes[atom].extent; }
  bool isMixed(unsigned atom) const { return nodes[atom].mixed; }

  /// The list with each atom replaced by its representative or its parts.
  List flat(const List &list) const {
    List result;
    for (unsigned atom : list)
      append(atom, result);
    return result;
  }

  void mix(const List &list) {
    for (unsigned atom : flat(list))
      nodes[atom].mixed = true;
  }

  /// Unifies two products with the same index. If their factors cannot be matched, both mix.
  void join(const List &left, const List &right) {
    List a = flat(left), b = flat(right);
    std::reverse(a.begin(), a.end());
    std::reverse(b.begin(), b.end());
    while (!a.empty() && !b.empty()) {
      unsigned x = a.pop_back_val(), y = b.pop_back_val();
      if (x == y)
        continue;
      if (extentOf(x) == extentOf(y)) {
        nodes[y].parent = x;
        nodes[x].mixed |= nodes[y].mixed;
        a = flatBackwards(a), b = flatBackwards(b);
        continue;
      }
      const bool xIsLarger = extentOf(x) > extentOf(y);
      unsigned larger = xIsLarger ? x : y, smaller = xIsLarger ? y : x;
      if (extentOf(larger) % extentOf(smaller) != 0) {
        mix(left);
        mix(right);
        return;
      }
      split(larger, extentOf(smaller));
      a.push_back(x), b.push_back(y);
      a = flatBackwards(a), b = flatBackwards(b);
    }
  }

  std::pair<unsigned, unsigned> split(unsigned atom, int64_t outerExtent) {
    const unsigned outer = make(outerExtent), inner = make(nodes[atom].extent / outerExtent);
    nodes[outer].mixed = nodes[inner].mixed = nodes[atom].mixed;
    nodes[atom].parts = {outer, inner};
    return {outer, inner};
  }

private:
  struct Node {
    int64_t extent;
    unsigned parent; ///< the atom that it was unified with; itself if none
    List parts;      ///< of an atom that was split
    bool mixed;
  };

  void append(unsigned atom, List &result) const {
    while (nodes[atom].parent != atom)
      atom = nodes[atom].parent;
    if (nodes[atom].parts.empty())
      return result.push_back(atom);
    for (unsigned part : nodes[atom].parts)
      append(part, result);
  }
  List flatBackwards(List list) const {
    std::reverse(list.begin(), list.end());
    list = flat(list);
    std::reverse(list.begin(), list.end());
    return list;
  }

  std::vector<Node> nodes;
};

using Dims = llvm::SmallVector<Atoms::List>; ///< of a value: the atoms of each dimension

/// Finds the dimensions of a body's values that have the same index.
class Analysis {
public:
  explicit Analysis(LoopOp loop) {
    for (BlockArgument argument : loop.getBlock().getArguments())
      dims[argument] = fresh(argument);
    visit(loop.getBlock());
    for (auto [state, next] : llvm::zip_equal(loop.getStateArguments(), loop.getNext().getStates()))
      joinAll(dims[state], dims[next]);
    for (auto &[value, list] : dims) {
      llvm::DenseSet<unsigned> seen;
      for (unsigned atom : atomsOf(value))
        if (!seen.insert(atom).second)
          atoms.mix({atom});
    }
  }

  Atoms::List atomsOf(Value value) const {
    Atoms::List all;
    for (const Atoms::List &list : dims.lookup(value))
      all.append(list);
    return atoms.flat(all);
  }
  Atoms::List atomsOf(Value value, size_t dim) const { return atoms.flat(dims.lookup(value)[dim]); }

  Atoms atoms;
  llvm::MapVector<Value, Dims> dims;

private:
  Dims fresh(Value value) {
    Dims result;
    for (int64_t extent : shapeOf(value))
      result.push_back(extent == 1 ? Atoms::List() : Atoms::List{atoms.make(extent)});
    return result;
  }
  void joinAll(const Dims &left, const Dims &right) {
    for (auto [a, b] : llvm::zip_equal(left, right))
      atoms.join(a, b);
  }
  void mixAll(const Dims &list) {
    for (const Atoms::List &dim : list)
      atoms.mix(dim);
  }

  void visit(Block &block) {
    for (Operation &op : block.without_terminator())
      visit(&op);
  }

  void visit(Operation *op) {
    if (auto region = dyn_cast<FusedOp>(op)) {
      Block &body = region.getBody().front();
      for (auto [argument, operand] : llvm::zip_equal(body.getArguments(), region.getInputs()))
        dims[argument] = Dims(dims[operand]);
      visit(body);
      for (auto [result, value] : llvm::zip_equal(region.getResults(), body.getTerminator()->getOperands()))
        dims[result] = Dims(dims[value]);
      return;
    }
    if (op->hasTrait<View>() && op->getNumOperands() == 1)
      return reshape(op);
    for (Value result : op->getResults())
      dims[result] = fresh(result);
    if (auto constant = dyn_cast<ConstantOp>(op)) {
      if (!constant.getValue().isSplat())
        mixAll(dims[constant.getResult()]);
      return;
    }
    if (auto product = dyn_cast<MatMulOp>(op))
      return multiply(product);
    if (auto reduction = dyn_cast<Reducible>(op); reduction && op->getNumOperands() == 1)
      return reduce(reduction);
    if (!op->getNumOperands() || !move(op)) {
      for (Value operand : op->getOperands())
        mixAll(dims[operand]);
      for (Value result : op->getResults())
        mixAll(dims[result]);
    }
  }

  void reshape(Operation *op) {
    Value from = op->getOperand(0), to = op->getResult(0);
    Atoms::List rest = atomsOf(from);
    std::reverse(rest.begin(), rest.end());
    Dims result;
    for (int64_t extent : shapeOf(to)) {
      Atoms::List list;
      while (extent > 1) {
        unsigned atom = rest.pop_back_val();
        if (extent % atoms.extentOf(atom) != 0) {
          if (atoms.extentOf(atom) % extent != 0) {
            mixAll(Dims(dims[from]));
            dims[to] = fresh(to);
            mixAll(dims[to]);
            return;
          }
          auto [outer, inner] = atoms.split(atom, extent);
          rest.push_back(inner);
          atom = outer;
        }
        list.push_back(atom);
        extent /= atoms.extentOf(atom);
      }
      result.push_back(list);
    }
    dims[to] = std::move(result);
  }

  void multiply(MatMulOp product) {
    const Dims left = dims[product.getLhs()], right = dims[product.getRhs()], result = dims[product.getResult()];
    const size_t row = product.getTransA() ? 2 : 1, column = product.getTransB() ? 1 : 2;
    atoms.join(result[0], left[0]);
    atoms.join(result[0], right[0]);
    atoms.join(result[1], left[row]);
    atoms.join(result[2], right[column]);
    atoms.mix(left[3 - row]);
    atoms.mix(right[3 - column]);
    if (product.getAddend())
      joinAll(result, Dims(dims[product.getAddend()]));
  }

  void reduce(Reducible reduction) {
    const Dims from = dims[reduction->getOperand(0)];
    for (Value result : reduction->getResults())
      for (size_t dim = 0; dim < from.size(); ++dim)
        if (!llvm::is_contained(reduction.getReducedDims(), int64_t(dim)))
          atoms.join(dims[result][dim], from[dim]);
    for (int64_t dim : reduction.getReducedDims())
      atoms.mix(from[size_t(dim)]);
  }

  /// Handles an op whose result elements read one element of each operand. False: not such an op.
  bool move(Operation *op) {
    auto fusible = dyn_cast<Fusible>(op);
    if (!fusible)
      return false;
    const Dims result = dims[op->getResult(0)];
    for (Value other : llvm::drop_begin(op->getResults())) {
      if (shapeOf(other) != shapeOf(op->getResult(0)))
        return false;
      joinAll(result, Dims(dims[other]));
    }
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      AffineMap map = fusible.getOperandMap(i);
      const Dims operand = dims[op->getOperand(i)];
      if (!map || map.getNumResults() != operand.size())
        return false;
      for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
        if (operand[dim].empty())
          continue;
        auto at = dyn_cast<AffineDimExpr>(expr);
        if (at && shapeOf(op->getResult(0))[at.getPosition()] == shapeOf(op->getOperand(i))[dim]) {
          atoms.join(result[at.getPosition()], operand[dim]);
          continue;
        }
        atoms.mix(operand[dim]);
        for (unsigned position = 0; position < result.size(); ++position)
          if (expr.isFunctionOfDim(position))
            atoms.mix(result[position]);
      }
    }
    return true;
  }
};

/// True if the atoms of `rows` that occur in the value are its leading ones, in the order of `rows`. With `all`, every
/// atom of `rows` has to occur.
bool leads(const Atoms::List &value, llvm::ArrayRef<unsigned> rows, bool all) {
  size_t next = 0, found = 0;
  while (next < value.size() && llvm::is_contained(rows, value[next]))
    ++next;
  for (size_t i = 0, row = 0; i < next; ++i, ++found)
    while (rows[row] != value[i])
      if (++row == rows.size())
        return false; // in another order
  for (unsigned atom : llvm::ArrayRef(value).drop_front(next))
    if (llvm::is_contained(rows, atom))
      return false;
  return !all || found == rows.size();
}

LoopRows::LoopRows(LoopOp loop) : tile(cast<LoopOp>(loop->clone())) {
  Analysis analysis(tile);
  NextOp next = tile.getNext();
  Value largest;
  for (Value state : tile.getStateArguments())
    if (!largest || tensorTypeOf(state).getNumElements() > tensorTypeOf(largest).getNumElements())
      largest = state;
  Atoms::List rows;
  if (largest)
    for (unsigned atom : analysis.atomsOf(largest)) {
      if (analysis.atoms.isMixed(atom))
        break;
      rows.push_back(atom);
    }
  auto fits = [&] {
    auto all = [&](ValueRange values, bool whole) {
      return llvm::all_of(values, [&](Value value) { return leads(analysis.atomsOf(value), rows, whole); });
    };
    return all(next->getOperands(), true) &&
           all(tile.getBlock().getArguments().take_front(tile.getStateCount()), true) &&
           all(tile.getBlock().getArguments().drop_front(tile.getStateCount()), false);
  };
  while (!rows.empty() && !fits())
    rows.pop_back();
  int64_t elements = largest ? tensorTypeOf(largest).getNumElements() : 1;
  for (unsigned atom : rows) {
    cuts.push_back({analysis.atoms.extentOf(atom), 1});
    elements /= cuts.back().extent;
  }
  for (Cut &cut : llvm::reverse(cuts)) {
    while (cut.tile < cut.extent && (elements * cut.tile < kLeastTileElements || cut.extent % cut.tile != 0))
      ++cut.tile;
    elements *= cut.tile;
  }
  auto tileExtent = [&](unsigned atom) {
    auto row = llvm::find(rows, atom);
    return row == rows.end() ? analysis.atoms.extentOf(atom) : cuts[size_t(row - rows.begin())].tile;
  };
  auto addStrides = [&](Value value) {
    llvm::SmallVector<int64_t> &list = strides[value];
    list.assign(cuts.size(), 0);
    int64_t stride = 1;
    for (unsigned atom : llvm::reverse(analysis.atomsOf(value))) {
      if (auto row = llvm::find(rows, atom); row != rows.end())
        list[size_t(row - rows.begin())] = stride;
      stride *= analysis.atoms.extentOf(atom);
    }
  };
  for (Value argument : tile.getBlock().getArguments())
    addStrides(argument);
  for (Value value : next->getOperands())
    addStrides(value);
  for (auto &[value, dims] : analysis.dims) {
    llvm::SmallVector<int64_t> shape;
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      int64_t extent = 1;
      for (unsigned atom : analysis.atomsOf(value, dim))
        extent *= tileExtent(atom);
      shape.push_back(extent);
    }
    auto type = RankedTensorType::get(shape, elementTypeOf(value));
    if (type == value.getType())
      continue;
    value.setType(type);
    if (auto constant = value.getDefiningOp<ConstantOp>())
      constant.setValueAttr(cast<DenseElementsAttr>(constant.getValue()).resizeSplat(type));
  }
}

LoopRows::~LoopRows() { tile->destroy(); }

int64_t LoopRows::tiles() const {
  int64_t tiles = 1;
  for (const Cut &cut : cuts)
    tiles *= cut.extent / cut.tile;
  return tiles;
}

Value LoopRows::offsetOf(OpBuilder &builder, Location loc, Value value, Value number) const {
  auto constant = [&](int64_t n) -> Value {
    return arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(n));
  };
  Value offset = constant(0), rest = number;
  llvm::ArrayRef<int64_t> own = strides.find(value)->second;
  for (size_t i = cuts.size(); i-- > 0;) {
    const int64_t count = cuts[i].extent / cuts[i].tile;
    if (count == 1)
      continue;
    Value digit = arith::RemUIOp::create(builder, loc, rest, constant(count));
    rest = arith::DivUIOp::create(builder, loc, rest, constant(count));
    if (own[i])
      offset = arith::AddIOp::create(builder, loc, offset,
                                     arith::MulIOp::create(builder, loc, digit, constant(cuts[i].tile * own[i])));
  }
  return offset;
}

constexpr int64_t kSlotAlignmentBytes = 64;

int64_t alignedBytes(Value value) { return int64_t(llvm::alignTo(tensorBytes(value.getType()), kSlotAlignmentBytes)); }

/// Offsets of the values of a loop's body in scratch.
class LoopScratch {
public:
  explicit LoopScratch(LoopOp loop) {
    for (BlockArgument state : loop.getStateArguments()) {
      offsets[state] = bytes;
      bytes += 2 * alignedBytes(state);
    }
    NextOp next = loop.getNext();
    llvm::SmallPtrSet<Value, 8> placed;
    for (Value value : next.getStates())
      placed.insert(value);
    for (Value value : next.getParts())
      placed.insert(value);
    for (auto region : loop.getBlock().getOps<FusedOp>())
      for (Value result : region.getResults())
        if (!placed.contains(result)) {
          offsets[result] = bytes;
          bytes += alignedBytes(result);
        }
  }

  int64_t offsetOf(Value value) const { return offsets.lookup(value); }
  int64_t bytes = 0;

private:
  llvm::DenseMap<Value, int64_t> offsets;
};

/// Emits one tile of a loop.
class LoopBody {
public:
  LoopBody(LoopOp loop, LoopBuilder &loops, Value tile)
      : loop(loop), loops(loops), b(loops.builder), loc(loops.loc), tile(tile), rows(loop), body(rows.body()),
        scratch(body) {}

  void emit() {
    const unsigned states = body.getStateCount();
    const auto steps = int64_t(body.getSteps());
    for (unsigned k = 0; k < states; ++k) {
      Value state = body.getStateArguments()[k];
      copy(whole(BodyPlace::Operand, k, state), stateSlot(k, index(0)), state);
    }
    loops.loop(index(0), index(steps), 1, {}, [&](Value i, ValueRange) {
      Value step = body.getReverse() ? arith::SubIOp::create(b, loc, index(steps - 1), i).getResult() : i;
      Value odd = arith::AndIOp::create(b, loc, i, index(1)), even = arith::XOrIOp::create(b, loc, odd, index(1));
      emitStep(step, odd, even);
      return llvm::SmallVector<Value>();
    });
    for (unsigned k = 0; k < states; ++k) {
      Value state = body.getStateArguments()[k];
      copy(stateSlot(k, index(steps % 2)), whole(BodyPlace::Result, k, state), state);
    }
  }

private:
  Value index(int64_t value) { return loops.index(value); }
  /// The tile's part of an operand or result without a dimension of steps; `value` is its value in the body.
  BodyPlace whole(BodyPlace::Kind kind, unsigned number, Value value) {
    return {kind, number, rows.offsetOf(b, loc, value, tile)};
  }
  /// The same for one step of an operand or result with all steps; `like` has the extents of a step.
  BodyPlace part(BodyPlace::Kind kind, unsigned number, Value step, Value value, Value like) {
    BodyPlace place = whole(kind, number, value);
    Value before = arith::MulIOp::create(b, loc, step, index(tensorTypeOf(like).getNumElements()));
    place.offset = arith::AddIOp::create(b, loc, before, place.offset);
    return place;
  }
  BodyPlace stateSlot(unsigned k, Value half) {
    BlockArgument state = body.getStateArguments()[k];
    Value offset = arith::MulIOp::create(b, loc, half, index(alignedBytes(state)));
    return {BodyPlace::Scratch, 0, arith::AddIOp::create(b, loc, offset, index(scratch.offsetOf(state)))};
  }

  void emitStep(Value step, Value now, Value then) {
    NextOp next = body.getNext();
    const unsigned states = body.getStateCount(), sliced = unsigned(body.getSliced().size());
    places.clear();
    for (unsigned k = 0; k < states; ++k)
      places[body.getStateArguments()[k]] = stateSlot(k, now);
    for (auto [number, argument] : llvm::enumerate(body.getSlicedArguments()))
      places[argument] = part(BodyPlace::Operand, states + unsigned(number), step, argument,
                              loop.getSlicedArguments()[unsigned(number)]);
    for (auto [number, argument] : llvm::enumerate(body.getFixedArguments()))
      places[argument] = whole(BodyPlace::Operand, states + sliced + unsigned(number), argument);
    // If a value is stored in several places, its region writes the first one, and the others are copied from it.
    llvm::SmallVector<std::pair<Value, BodyPlace>> copies;
    auto leaves = [&](Value value, const BodyPlace &place) {
      auto region = dyn_cast_or_null<FusedOp>(value.getDefiningOp());
      if (!region || !places.try_emplace(value, place).second)
        copies.push_back({value, place});
    };
    for (unsigned k = 0; k < states; ++k)
      leaves(next.getStates()[k], stateSlot(k, then));
    for (auto [number, value] : llvm::enumerate(next.getParts()))
      leaves(value, part(BodyPlace::Result, states + unsigned(number), step, value,
                         loop.getNext().getParts()[unsigned(number)]));
    for (Operation &op : body.getBlock().without_terminator()) {
      auto region = dyn_cast<FusedOp>(&op);
      if (!region)
        continue; // a view
      llvm::SmallVector<BodyPlace> inputs, results;
      for (Value input : region.getInputs())
        inputs.push_back(placeOf(input));
      for (Value value : region.getResults())
        results.push_back(placeOf(value));
      loops.runRegion(region, inputs, results);
    }
    for (auto &[value, place] : copies)
      copy(placeOf(value), place, value);
  }

  BodyPlace placeOf(Value value) {
    Value root = rootOf(value);
    auto [found, isNew] = places.try_emplace(root, BodyPlace{BodyPlace::Scratch, 0, Value()});
    if (isNew)
      found->second.offset = index(scratch.offsetOf(root));
    return found->second;
  }

  void copy(const BodyPlace &from, const BodyPlace &to, Value value) {
    auto type = tensorTypeOf(value);
    // A region that yields its operand.
    OpBuilder detached(b.getContext());
    OperationState state(loc, FusedOp::getOperationName());
    state.addTypes(type);
    state.addRegion();
    OwningOpRef<FusedOp> region(cast<FusedOp>(Operation::create(state)));
    auto *block = new Block;
    region->getBody().push_back(block);
    block->addArgument(type, loc);
    detached.setInsertionPointToEnd(block);
    YieldOp::create(detached, loc, block->getArguments());
    loops.runRegion(*region, {from}, {to});
  }

  LoopOp loop;
  LoopBuilder &loops;
  OpBuilder &b;
  Location loc;
  Value tile;
  LoopRows rows;
  LoopOp body; ///< the loop of one tile
  LoopScratch scratch;
  llvm::DenseMap<Value, BodyPlace> places; ///< of the step's values
};

struct LoopLoops : LoopKernel::ExternalModel<LoopLoops, LoopOp> {
  int64_t getTileCount(Operation *op) const { return LoopRows(cast<LoopOp>(op)).tiles(); }
  int64_t getScratchBytes(Operation *op) const {
    LoopRows rows(cast<LoopOp>(op));
    return LoopScratch(rows.body()).bytes;
  }
  void emitTile(Operation *op, LoopBuilder &loops, Value tile) const { LoopBody(cast<LoopOp>(op), loops, tile).emit(); }
};

} // namespace

void attachLoop(MLIRContext &context) { LoopOp::attachInterface<LoopLoops>(context); }

} // namespace tcc::train

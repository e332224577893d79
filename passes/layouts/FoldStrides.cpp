//===- FoldStrides.cpp - absorb movements into loops as strides ------------===//
//
// Heads are columns of a product's result or operand: an exporter slices and transposes queries, keys and values out of
// one tensor and transposes the output back; their gradients take the reverse way and are concatenated. Loops that
// address elements by strides need none of these copies. So the op and the movements around it become a region, from
// whose ops codegen derives the strides (StridedLayout.h).
//
// Operands are followed up to the first value from which all movements can be expressed as strides; results down to the
// last such value. A value that other ops read, too, stays in memory as it is. A cast commutes with movements, so a
// cast between them moves before them all (after them, for results), where it meets the cast of the product.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/StridedLayout.h"
#include "passes/Common.h"
#include "passes/fusion/Fusion.h"
#include "passes/Lowering.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_FOLDSTRIDESPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// True if each element of the result is an element of the op's one operand.
bool movesOne(Operation *op) { return op->getNumOperands() == 1 && (op->hasTrait<View>() || isMovement(op)); }

/// True if each element of the operand has exactly one place in the result.
bool placesOnce(OpOperand &use) {
  Operation *op = use.getOwner();
  if (op->hasTrait<View>())
    return true;
  auto fusible = dyn_cast<Fusible>(op);
  return fusible && !op->hasTrait<Pointwise>() && fusible.getResultMap(use.getOperandNumber());
}

bool readsByStrides(OpOperand &use) {
  auto kernel = dyn_cast<LoopKernel>(use.getOwner());
  return kernel && kernel.acceptsLayout(false, use.getOperandNumber(), denseLayout(shapeOf(use.get())));
}

/// True if the value is only read by strides, directly or through movements and casts.
bool onlyReadByStrides(Value value) {
  return llvm::all_of(value.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    return readsByStrides(use) || ((movesOne(user) || isa<CastOp>(user)) && onlyReadByStrides(user->getResult(0)));
  });
}

/// Erases the op and the ops that only it read. Kernels stay: their results are replaced one after another.
void eraseWithUnread(Operation *op) {
  SmallVector<Operation *> work{op};
  while (!work.empty()) {
    Operation *unread = work.pop_back_val();
    llvm::SetVector<Operation *> producers;
    for (Value operand : unread->getOperands())
      producers.insert(operand.getDefiningOp());
    unread->erase();
    for (Operation *producer : producers)
      if (producer && producer->use_empty() && !isa<LoopKernel>(producer))
        work.push_back(producer);
  }
}

void eraseUnread(Operation *op) {
  if (op && op->use_empty() && !isa<LoopKernel>(op))
    eraseWithUnread(op);
}

llvm::SetVector<Location> namesIn(Location location) {
  llvm::SetVector<Location> names;
  if (auto fused = dyn_cast<FusedLoc>(location)) {
    for (Location part : fused.getLocations())
      names.insert_range(namesIn(part));
  } else {
    names.insert(location);
  }
  return names;
}

Value withElementsOf(OpBuilder &builder, Operation *movement, ValueRange operands) {
  Operation *copy = builder.clone(*movement);
  copy->setOperands(operands);
  copy->getResult(0).setType(RankedTensorType::get(shapeOf(movement->getResult(0)), elementTypeOf(operands.front())));
  return copy->getResult(0);
}

/// An operand that is read by strides from the operand of chain[start].
struct StridedReading {
  SmallVector<Operation *> chain; ///< movements and casts, the last one makes the operand
  size_t start = 0;
  SmallVector<Type> casts; ///< result types of the casts from chain[start] on
  StridedLayout layout;
  int64_t elements = 1; ///< distinct elements read

  Value source() const { return chain[start]->getOperand(0); }
};

/// Where results are written: the movements up to `end`, and the casts between them, which move behind them.
struct StridedDestination {
  SmallVector<unsigned> results;
  SmallVector<Operation *> movements; ///< in order
  SmallVector<Type> casts;
  Value end;
  SmallVector<std::pair<OpOperand *, size_t>> readers; ///< a use by strides; the number of movements before it
};

class StrideFolder {
public:
  explicit StrideFolder(Block &block) : block(block) {}

  void run() {
    SmallVector<LoopKernel> kernels;
    for (Operation &op : block)
      if (auto kernel = dyn_cast<LoopKernel>(&op))
        kernels.push_back(kernel);
    for (LoopKernel kernel : kernels)
      fold(kernel);
  }

private:
  //===-- Operands ----------------------------------------------------------===//

  static void addReadings(LoopKernel kernel, unsigned operand, std::vector<StridedReading> &readings) {
    SmallVector<Operation *> chain;
    for (Operation *op = kernel->getOperand(operand).getDefiningOp(); op && (movesOne(op) || isa<CastOp>(op));
         op = op->getOperand(0).getDefiningOp())
      chain.insert(chain.begin(), op);
    for (size_t start = 0; start < chain.size(); ++start) {
      if (isa<CastOp>(chain[start]) || chain[start]->hasTrait<View>())
        continue;
      StridedReading reading{chain, start, {}, {}};
      std::optional<StridedLayout> layout = denseLayout(shapeOf(reading.source()));
      bool sole = true;
      for (Operation *op : ArrayRef(chain).drop_front(start)) {
        if (isa<CastOp>(op))
          reading.casts.push_back(elementTypeOf(op->getResult(0)));
        else if (layout = layoutOfResult(op, *layout); !layout)
          break;
        sole &= onlyReadByStrides(op->getResult(0));
      }
      if (!layout || !sole || !kernel.acceptsLayout(false, operand, *layout))
        continue;
      for (auto [stride, extent] : llvm::zip_equal(layout->strides, shapeOf(kernel->getOperand(operand))))
        reading.elements *= stride ? extent : 1;
      reading.layout = std::move(*layout);
      readings.push_back(std::move(reading));
    }
  }

  /// For each operand, the reading farthest up that keeps no unread elements alive: together, all readings of its
  /// source read the whole source.
  static std::vector<std::optional<StridedReading>> chooseReadings(LoopKernel kernel) {
    std::vector<std::vector<StridedReading>> all(kernel->getNumOperands());
    for (unsigned i = 0; i < all.size(); ++i)
      if (readsByStrides(kernel->getOpOperand(i)))
        addReadings(kernel, i, all[i]);
    auto readsAll = [&](const StridedReading &wanted) {
      SmallVector<const StridedReading *> distinct;
      int64_t elements = 0;
      for (const auto &readings : all)
        for (const StridedReading &other : readings) {
          if (other.source() != wanted.source() || other.casts != wanted.casts ||
              llvm::any_of(distinct, [&](const StridedReading *known) {
                return known->layout.offset == other.layout.offset && known->layout.strides == other.layout.strides;
              }))
            continue;
          distinct.push_back(&other);
          elements += other.elements;
        }
      return elements >= elementsOf(wanted.source());
    };
    std::vector<std::optional<StridedReading>> chosen(all.size());
    for (auto [readings, choice] : llvm::zip_equal(all, chosen))
      if (auto found = llvm::find_if(readings, readsAll); found != readings.end())
        choice = *found;
    return chosen;
  }

  /// The value that a reading starts from, with the operand's casts. A widening and a narrowing cast that cancel are
  /// left out.
  Value sourceOf(OpBuilder &builder, const StridedReading &reading) {
    if (reading.casts.empty())
      return reading.source();
    size_t first = reading.start;
    SmallVector<Type> casts = reading.casts;
    for (; first > 0 && (isa<CastOp>(reading.chain[first - 1]) || reading.chain[first - 1]->hasTrait<View>()); --first)
      if (Operation *before = reading.chain[first - 1]; isa<CastOp>(before))
        casts.insert(casts.begin(), elementTypeOf(before->getResult(0)));
    Value value = reading.chain[first]->getOperand(0);
    SmallVector<Type> types{elementTypeOf(value)};
    for (Type type : casts) {
      if (types.size() > 1 && types[types.size() - 2] == type && types.back().isF32() &&
          type.getIntOrFloatBitWidth() == 16 && isa<FloatType>(type))
        types.pop_back();
      else
        types.push_back(type);
    }
    auto as = [&](Value from, ArrayRef<int64_t> shape, Type element) {
      Value &known = made[{from, RankedTensorType::get(shape, element)}];
      if (!known)
        known = element == elementTypeOf(from) ? reshape(builder, from.getLoc(), from, shape)
                                               : train::cast(builder, from.getLoc(), from, element);
      return known;
    };
    for (Type type : ArrayRef(types).drop_front())
      value = as(value, shapeOf(value), type);
    for (Operation *op : ArrayRef(reading.chain).slice(first, reading.start - first))
      if (op->hasTrait<View>())
        value = as(value, shapeOf(op->getResult(0)), types.back());
    return value;
  }

  //===-- Results -----------------------------------------------------------===//

  static std::optional<StridedDestination> destinationOf(LoopKernel kernel, unsigned result) {
    StridedDestination sofar, best;
    sofar.results.push_back(result);
    for (Value value = kernel->getResult(result);;) {
      OpOperand *way = nullptr;
      bool one = true;
      SmallVector<OpOperand *> readers;
      for (OpOperand &use : value.getUses())
        if (readsByStrides(use))
          readers.push_back(&use);
        else
          one &= !std::exchange(way, &use);
      if (!way || !one || (!readers.empty() && (!sofar.casts.empty() || sofar.results.size() > 1)))
        break;
      for (OpOperand *reader : readers)
        sofar.readers.push_back({reader, sofar.movements.size()});
      Operation *next = way->getOwner();
      if (isa<CastOp>(next)) {
        sofar.casts.push_back(elementTypeOf(next->getResult(0)));
      } else if (!placesOnce(*way) || (!sofar.readers.empty() && !isInvertible(next)) ||
                 (!movesOne(next) && !join(kernel, next, sofar))) {
        break;
      } else {
        sofar.movements.push_back(next);
      }
      value = sofar.end = next->getResult(0);
      if (!isa<CastOp>(next) && !next->hasTrait<View>())
        best = sofar;
    }
    bool accepted = !best.results.empty() && llvm::all_of(best.results, [&](unsigned number) {
      std::optional<StridedLayout> layout = layoutIn(best, kernel->getResult(number));
      return layout && kernel.acceptsLayout(true, number, *layout);
    });
    return accepted ? std::optional(best) : std::nullopt;
  }

  static bool isInvertible(Operation *movement) {
    return movesOne(movement) &&
           (movement->hasTrait<View>() || cast<Fusible>(movement).getResultMap(0).isPermutation());
  }

  /// Joins the destinations of a movement with several operands, if all of them are results of the kernel moved in the
  /// same way.
  static bool join(LoopKernel kernel, Operation *movement, StridedDestination &sofar) {
    StridedDestination joined{{}, {}, sofar.casts, {}, {}};
    for (Value operand : movement->getOperands()) {
      SmallVector<Operation *> movements;
      SmallVector<Type> casts;
      Value value = operand;
      for (; value.hasOneUse() && value.getDefiningOp() && value.getDefiningOp() != kernel.getOperation();
           value = value.getDefiningOp()->getOperand(0)) {
        Operation *op = value.getDefiningOp();
        if (isa<CastOp>(op))
          casts.insert(casts.begin(), elementTypeOf(value));
        else if (movesOne(op) && placesOnce(op->getOpOperand(0)))
          movements.insert(movements.begin(), op);
        else
          return false;
      }
      auto result = dyn_cast<OpResult>(value);
      if (!result || result.getOwner() != kernel.getOperation() || !value.hasOneUse() || casts != sofar.casts ||
          llvm::is_contained(joined.results, result.getResultNumber()))
        return false;
      joined.results.push_back(result.getResultNumber());
      joined.movements.append(movements);
    }
    sofar = std::move(joined);
    return true;
  }

  static std::optional<StridedLayout> layoutIn(const StridedDestination &destination, Value result) {
    SmallVector<OpOperand *> way;
    for (Value value = result; value != destination.end;) {
      OpOperand *next = nullptr;
      for (OpOperand &use : value.getUses())
        if (isa<CastOp>(use.getOwner()) || llvm::is_contained(destination.movements, use.getOwner()))
          next = &use;
      way.push_back(next);
      value = next->getOwner()->getResult(0);
    }
    std::optional<StridedLayout> layout = denseLayout(shapeOf(destination.end));
    for (OpOperand *use : llvm::reverse(way))
      if (layout && !isa<CastOp>(use->getOwner()))
        layout = layoutOfOperand(use->getOwner(), use->getOperandNumber(), *layout);
    return layout;
  }

  /// Replaces a sum of zero-padded values that are adjacent along one dimension by a concatenation, if all of them are
  /// results of the kernel.
  static void concatenatePads(LoopKernel kernel, Value result) {
    Operation *top = nullptr;
    for (Value value = result; value.hasOneUse();) {
      Operation *user = *value.getUsers().begin();
      if (isa<PadOp>(user) || (top && isa<AddOp>(user)))
        top = user;
      else if (top || !(movesOne(user) || isa<CastOp>(user)))
        break;
      value = user->getResult(0);
    }
    if (!isa_and_present<AddOp>(top))
      return;
    SmallVector<PadOp> parts;
    SmallVector<Value> work{top->getResult(0)};
    while (!work.empty()) {
      Value value = work.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (!op || (op != top && !value.hasOneUse()))
        return;
      if (auto add = dyn_cast<AddOp>(op))
        work.append({add.getLhs(), add.getRhs()});
      else if (auto pad = dyn_cast<PadOp>(op); pad && isMadeBy(kernel, pad.getInput()))
        parts.push_back(pad);
      else
        return;
    }
    ArrayRef<int64_t> whole = shapeOf(top->getResult(0));
    std::optional<size_t> along;
    for (PadOp pad : parts)
      for (size_t d = 0; d < whole.size(); ++d) {
        if (pad.getSteps()[d] != 1 || !pad.getValue().isZero())
          return;
        if (shapeOf(pad.getInput())[d] == whole[d])
          continue;
        if (along.value_or(d) != d)
          return;
        along = d;
      }
    if (!along)
      return;
    llvm::sort(parts, [&](PadOp a, PadOp b) { return a.getLow()[*along] < b.getLow()[*along]; });
    int64_t end = 0;
    SmallVector<Value> inputs;
    for (PadOp pad : parts) {
      if (pad.getLow()[*along] != end)
        return;
      end += shapeOf(pad.getInput())[*along];
      inputs.push_back(pad.getInput());
    }
    if (end != whole[*along])
      return;
    OpBuilder builder(top);
    Value concat = ConcatOp::create(builder, top->getLoc(), top->getResult(0).getType(), inputs, int64_t(*along));
    top->getResult(0).replaceAllUsesWith(concat);
    eraseUnread(top);
  }

  static bool isMadeBy(LoopKernel kernel, Value value) {
    while (value.getDefiningOp() && value.getDefiningOp() != kernel.getOperation() &&
           (movesOne(value.getDefiningOp()) || isa<CastOp>(value.getDefiningOp())))
      value = value.getDefiningOp()->getOperand(0);
    return value.getDefiningOp() == kernel.getOperation();
  }

  //===-- The region --------------------------------------------------------===//

  void fold(LoopKernel kernel) {
    Operation *op = kernel.getOperation();
    SmallVector<bool> places;
    for (Value result : op->getResults()) {
      places.push_back(kernel.acceptsLayout(true, unsigned(places.size()), denseLayout(shapeOf(result))));
      if (places.back())
        concatenatePads(kernel, result);
    }
    std::vector<std::optional<StridedReading>> readings = chooseReadings(kernel);
    std::vector<StridedDestination> destinations;
    SmallVector<int> destinationOfResult(op->getNumResults(), -1);
    for (unsigned i = 0; i < op->getNumResults(); ++i) {
      if (!places[i] || destinationOfResult[i] >= 0)
        continue;
      if (std::optional<StridedDestination> destination = destinationOf(kernel, i)) {
        for (unsigned result : destination->results)
          destinationOfResult[result] = int(destinations.size());
        destinations.push_back(std::move(*destination));
      }
    }
    if (destinations.empty() && llvm::none_of(readings, [](const auto &reading) { return reading.has_value(); }))
      return;

    OpBuilder builder(op);
    // The op's own location comes last, and only there: reports name the kernel by it.
    llvm::SetVector<Location> own = namesIn(op->getLoc()), locations;
    auto addLocation = [&](Operation *movement) {
      for (Location name : namesIn(movement->getLoc()))
        if (!own.contains(name))
          locations.insert(name);
    };
    llvm::SetVector<Value> inputs;
    SmallVector<Value> sources;
    for (auto [operand, reading] : llvm::zip_equal(op->getOperands(), readings)) {
      sources.push_back(reading ? sourceOf(builder, *reading) : operand);
      inputs.insert(sources.back());
      if (reading)
        for (Operation *movement : ArrayRef(reading->chain).drop_front(reading->start))
          addLocation(movement);
    }
    auto *body = new Block;
    OpBuilder inside(builder.getContext()); // the block has no parent yet
    inside.setInsertionPointToEnd(body);
    llvm::DenseMap<Value, Value> arguments;
    for (Value input : inputs)
      arguments[input] = body->addArgument(input.getType(), op->getLoc());
    SmallVector<Value> operands;
    llvm::DenseMap<std::pair<Operation *, Value>, Value> moved;
    for (auto [source, reading] : llvm::zip_equal(sources, readings)) {
      Value value = arguments[source];
      if (reading)
        for (Operation *movement : ArrayRef(reading->chain).drop_front(reading->start))
          if (!isa<CastOp>(movement)) {
            Value &known = moved[{movement, value}];
            value = known = known ? known : withElementsOf(inside, movement, value);
          }
      operands.push_back(value);
    }
    Operation *copy = inside.clone(*op);
    copy->setOperands(operands);
    llvm::DenseMap<Value, Value> inner;
    for (auto [outer, value] : llvm::zip_equal(op->getResults(), copy->getResults()))
      inner[outer] = value;
    auto innerOf = [&](Value outer) {
      while (!inner.contains(outer)) // a cast, which comes later
        outer = outer.getDefiningOp()->getOperand(0);
      return inner[outer];
    };
    for (StridedDestination &destination : destinations)
      for (Operation *movement : destination.movements) {
        SmallVector<Value> parts;
        for (Value operand : movement->getOperands())
          parts.push_back(innerOf(operand));
        inner[movement->getResult(0)] = withElementsOf(inside, movement, parts);
        addLocation(movement);
      }
    SmallVector<Value> yielded;
    SmallVector<Value> replaced; // values that the yielded ones replace, casts left out
    SmallVector<int> destinationOfYield;
    for (auto [result, destination] : llvm::zip_equal(op->getResults(), destinationOfResult)) {
      if (destination >= 0 && llvm::is_contained(destinationOfYield, destination))
        continue;
      replaced.push_back(destination < 0 ? Value(result) : destinations[size_t(destination)].end);
      yielded.push_back(innerOf(replaced.back()));
      destinationOfYield.push_back(destination);
    }
    YieldOp::create(inside, op->getLoc(), yielded);
    locations.insert(op->getLoc());
    auto fused = FusedOp::create(builder, FusedLoc::get(builder.getContext(), locations.getArrayRef()),
                                 TypeRange(ValueRange(yielded)), inputs.getArrayRef());
    fused.getBody().push_back(body);
    describeScratch(fused);
    for (auto [number, old] : llvm::enumerate(replaced))
      if (int destination = destinationOfYield[number]; destination < 0)
        old.replaceAllUsesWith(fused.getResult(unsigned(number)));
      else
        deliver(builder, fused.getResult(unsigned(number)), destinations[size_t(destination)]);
    eraseWithUnread(op);
  }

  /// Replaces the result of the movements by the yielded value; readers by strides get it moved back, and fold these
  /// movements in turn.
  static void deliver(OpBuilder &builder, Value value, StridedDestination &destination) {
    for (auto [reader, position] : destination.readers) {
      Value back = value;
      for (Operation *movement : llvm::reverse(ArrayRef(destination.movements).drop_front(position))) {
        if (movement->hasTrait<View>()) {
          back = reshape(builder, reader->getOwner()->getLoc(), back, shapeOf(movement->getOperand(0)));
          continue;
        }
        AffineMap map = cast<Fusible>(movement).getOperandMap(0);
        SmallVector<int64_t> permutation;
        for (AffineExpr expr : map.getResults())
          permutation.push_back(cast<AffineDimExpr>(expr).getPosition());
        back = transpose(builder, reader->getOwner()->getLoc(), back, permutation);
      }
      reader->set(back);
    }
    Value result = value;
    for (Type type : destination.casts)
      result = train::cast(builder, destination.end.getLoc(), result, type);
    Operation *last = destination.end.getDefiningOp();
    destination.end.replaceAllUsesWith(result);
    eraseUnread(last);
    if (destination.casts.size() == 1 && elementTypeOf(value).getIntOrFloatBitWidth() == 16 &&
        elementTypeOf(result).isF32())
      narrowAgain(result, value);
  }

  /// Makes casts that narrow `wide`, or views of it, read `narrow`.
  static void narrowAgain(Value wide, Value narrow) {
    SmallVector<Operation *> users(wide.getUsers());
    for (Operation *user : users) {
      if (isa<CastOp>(user) && elementTypeOf(user->getResult(0)) == elementTypeOf(narrow)) {
        user->getResult(0).replaceAllUsesWith(narrow);
        user->erase();
      } else if (user->hasTrait<View>()) {
        OpBuilder builder(user);
        Value view = reshape(builder, user->getLoc(), narrow, shapeOf(user->getResult(0)));
        narrowAgain(user->getResult(0), view);
        if (view != narrow)
          eraseUnread(view.getDefiningOp());
      }
    }
    if (wide.use_empty())
      wide.getDefiningOp()->erase();
  }

  Block &block;
  llvm::DenseMap<std::pair<Value, Type>, Value> made; ///< casts and views of sources
};

struct FoldStrides : impl::FoldStridesPassBase<FoldStrides> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function->hasAttr(names::kEntry))
      StrideFolder(function.getBody().front()).run();
  }
};

} // namespace

} // namespace tcc::train

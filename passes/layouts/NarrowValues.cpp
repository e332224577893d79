//===- NarrowValues.cpp - move casts so that stored tensors are narrow -----===//
//
// A cast costs nothing in the kernel that makes its operand or reads its result. But a view (the same bytes under
// another shape) between the cast and that kernel prevents their fusion: the cast becomes a kernel of its own, with the
// wide value in memory beside the narrow one. A view commutes with elementwise ops. So a narrowing cast moves before
// the views of its operand, into the kernel that makes the operand, and a widening cast behind the views of its result,
// into the kernels that read them: views are of the narrower type, and only the narrow value is stored.
//
// A widening also commutes with ops that select elements unchanged. `pick` (the target's element of each row) is a
// kernel of its own, and then reads the narrow tensor. A select between widened elements and a number that the narrow
// type represents exactly, such as a masked gradient, is computed in the narrow type if several ops read it, since its
// result may be stored. A widening and a narrowing cast that meet cancel.
//
// State that is kept in a narrow type (the frozen base of adapters) is widened once for each reader: one wide copy for
// all of them would stay live from the forward pass to its gradient. The same holds for 8-bit integers, including the
// multiplication by their scales, and for codes of 4 bits.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Views.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/fusion/Fusion.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_NARROWVALUESPASS
#include "passes/LoweringPasses.h.inc"

namespace {

bool narrows(CastOp cast) { return tensorBytes(cast.getType()) < tensorBytes(cast.getInput().getType()); }
bool widens(CastOp cast) { return tensorBytes(cast.getType()) > tensorBytes(cast.getInput().getType()); }

/// The same view of another operand.
Value viewOf(OpBuilder &builder, Operation *view, Value operand) {
  Operation *copy = builder.clone(*view);
  copy->setOperands(operand);
  copy->getResult(0).setType(RankedTensorType::get(shapeOf(view->getResult(0)), elementTypeOf(operand)));
  return copy->getResult(0);
}

/// The cast of `value` to `type` before `place`; created if there is none.
Value castBefore(Operation *place, Location loc, Value value, Type type) {
  for (Operation *user : value.getUsers())
    if (auto cast = dyn_cast<CastOp>(user);
        cast && elementTypeOf(cast.getResult()) == type && cast->isBeforeInBlock(place))
      return cast.getResult();
  OpBuilder builder(place);
  return train::cast(builder, loc, value, type);
}

/// Moves a narrowing cast before the views of its operand, if a generated kernel computes that operand.
void raise(CastOp narrowing) {
  SmallVector<Operation *> views;
  Value source = rootOf(narrowing.getInput(), &views);
  Operation *maker = source.getDefiningOp();
  if (!maker || !isFusable(maker))
    return;
  Value value = source;
  if (auto widening = dyn_cast<CastOp>(maker);
      widening && widening.getInput().getType() == RankedTensorType::get(shapeOf(source), elementTypeOf(narrowing)) &&
      isa<FloatType>(elementTypeOf(narrowing)) && isFloatTensor(source))
    value = widening.getInput();
  else if (views.empty())
    return;
  else
    value = castBefore(views.back(), narrowing.getLoc(), source, elementTypeOf(narrowing));
  OpBuilder builder(narrowing);
  for (Operation *view : llvm::reverse(views))
    value = viewOf(builder, view, value);
  narrowing.getResult().replaceAllUsesWith(value);
  narrowing.erase();
}

/// Replaces `op` on widened operands by the widening of `op` on the narrow ones.
void replaceByWidening(Operation *op, Location loc, ValueRange narrowOperands, Type narrow) {
  OpBuilder builder(op);
  Operation *copy = builder.clone(*op);
  copy->setOperands(narrowOperands);
  Value result = op->getResult(0);
  copy->getResult(0).setType(RankedTensorType::get(shapeOf(result), narrow));
  result.replaceAllUsesWith(train::cast(builder, loc, copy->getResult(0), elementTypeOf(result)));
  op->erase();
}

/// Moves a widening cast behind `op`, whose result consists of elements of its first operand.
void sink(Operation *op) {
  auto widening = op->getOperand(0).getDefiningOp<CastOp>();
  if (!widening || !widens(widening))
    return;
  SmallVector<Value> operands(op->getOperands());
  operands[0] = widening.getInput();
  replaceByWidening(op, widening.getLoc(), operands, elementTypeOf(widening.getInput()));
}

/// The number that all elements of a constant equal, if `type` represents it exactly.
std::optional<double> numberIn(Value value, FloatType type) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto elements = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
  if (!elements || !isa<FloatType>(elements.getElementType()))
    return std::nullopt;
  APFloat number = elements.getSplatValue<APFloat>();
  bool loses = false;
  number.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
  return loses || number.isNaN() ? std::nullopt : std::optional(number.convertToDouble());
}

void sinkChoice(SelectOp choice) {
  if (choice->hasOneUse() || !isFloatTensor(choice.getResult()))
    return;
  FloatType narrow;
  CastOp widening;
  for (Value from : {choice.getOnTrue(), choice.getOnFalse()})
    if (auto cast = from.getDefiningOp<CastOp>(); cast && widens(cast) && isFloatTensor(cast.getInput())) {
      auto type = mlir::cast<FloatType>(elementTypeOf(cast.getInput()));
      if (narrow && type != narrow)
        return;
      narrow = type;
      widening = cast;
    }
  if (!narrow)
    return;
  OpBuilder builder(choice);
  SmallVector<Value> operands{choice.getCondition()};
  for (Value from : {choice.getOnTrue(), choice.getOnFalse()}) {
    if (auto cast = from.getDefiningOp<CastOp>(); cast && elementTypeOf(cast.getInput()) == narrow)
      operands.push_back(cast.getInput());
    else if (std::optional<double> number = numberIn(from, narrow))
      operands.push_back(splat(builder, from.getLoc(), RankedTensorType::get(shapeOf(from), narrow), *number));
    else
      return;
  }
  replaceByWidening(choice, widening.getLoc(), operands, narrow);
}

/// Gives each reader of widened state a cast of its own.
void widenForEachReader(CastOp widening) {
  auto state = dyn_cast<BlockArgument>(rootOf(widening.getInput()));
  auto function = cast<func::FuncOp>(widening->getParentOp());
  if (!state || !widens(widening) || !function.getArgAttr(state.getArgNumber(), names::kVariable))
    return;
  for (OpOperand &use : llvm::make_early_inc_range(llvm::drop_begin(widening.getResult().getUses()))) {
    OpBuilder builder(use.getOwner());
    use.set(builder.clone(*widening)->getResult(0));
  }
}

/// Gives each reader its own copy of values that are computed elementwise from state alone, integers of 8 and 4 bits
/// included.
class WidenedIntegers {
public:
  explicit WidenedIntegers(func::FuncOp function) : function(function) {}

  void run() {
    llvm::SmallVector<Operation *> readers;
    for (Operation &op : function.getBody().front().without_terminator())
      if (!note(&op) && llvm::any_of(op.getOperands(), [&](Value operand) { return wide.contains(operand); }))
        readers.push_back(&op);
    for (Operation *reader : readers) {
      llvm::DenseMap<Value, Value> copies;
      for (OpOperand &use : reader->getOpOperands())
        if (wide.contains(use.get()))
          use.set(copyFor(reader, use.get(), copies));
    }
    eraseDeadOps(function);
  }

private:
  bool isState(Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument ? function.getArgAttr(argument.getArgNumber(), names::kVariable) != nullptr : made.contains(value);
  }

  /// True for an op on the way from the integers to a reader.
  bool note(Operation *op) {
    const bool moves = op->hasTrait<View>() || op->hasTrait<Pointwise>() || isa<BroadcastOp, UnpackOp>(op);
    if (isa<ConstantOp>(op))
      made.insert(op->getResult(0));
    if (!moves || op->getNumResults() != 1 ||
        !llvm::all_of(op->getOperands(), [&](Value operand) { return isState(operand); }))
      return false;
    made.insert(op->getResult(0));
    auto cast = dyn_cast<CastOp>(op);
    if (isa<UnpackOp>(op) || (cast && elementTypeOf(cast.getInput()).isInteger(8) && isFloatTensor(cast.getResult())))
      wide.insert(op->getResult(0));
    else if (llvm::any_of(op->getOperands(), [&](Value operand) { return wide.contains(operand); }))
      wide.insert(op->getResult(0));
    return wide.contains(op->getResult(0));
  }

  Value copyFor(Operation *reader, Value value, llvm::DenseMap<Value, Value> &copies) {
    Operation *op = value.getDefiningOp();
    if (!op || !made.contains(value) || isa<ConstantOp>(op))
      return value;
    if (Value known = copies.lookup(value))
      return known;
    llvm::SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(copyFor(reader, operand, copies));
    OpBuilder builder(reader);
    Operation *copy = builder.clone(*op);
    copy->setOperands(operands);
    return copies[value] = copy->getResult(0);
  }

  func::FuncOp function;
  llvm::DenseSet<Value> made, wide; // only looked up, never iterated
};

struct NarrowValues : impl::NarrowValuesPassBase<NarrowValues> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    Block &block = function.getBody().front();
    for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
      if (op.hasTrait<View>() || op.hasTrait<HandsOutElements>())
        sink(&op);
      else if (auto choice = dyn_cast<SelectOp>(op))
        sinkChoice(choice);
      else if (auto cast = dyn_cast<CastOp>(op); cast && narrows(cast))
        raise(cast);
    }
    eraseDeadOps(function);
    for (CastOp widening : llvm::make_early_inc_range(block.getOps<CastOp>()))
      widenForEachReader(widening);
    WidenedIntegers(function).run();
  }
};

} // namespace

} // namespace tcc::train

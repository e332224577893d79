//===- UpdateRows.cpp - update the rows of a table that have a gradient ---===//
//
// An embedding's gradient is zero except in the rows that a batch looks up, whose sums elide-zero-fill has put into a
// compact table. If a variable keeps its value wherever the gradient is zero, only these rows are updated: they are
// gathered, updated by the same ops, and written back. An index that occurs twice writes the same values twice, since
// both read the row's whole sum. Factors of a gradient count as finite, so that 0 stays 0: an update whose loss or norm
// is not finite is skipped.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_UPDATEROWSPASS
#include "passes/Passes.h.inc"

namespace {

/// A gradient as elide-zero-fill leaves it.
struct SummedRows {
  Value whole;    ///< of the table's shape
  Value sums;     ///< [count + 1, ...]; the last row is zero
  Value indices;  ///< [count]: rows of the table
  Value named;    ///< [count]: the row of `sums` for each index

  int64_t count() const { return shapeOf(indices)[0]; }
};

bool isSplatOf(Value value, int64_t number) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto dense = constant ? dyn_cast<DenseIntElementsAttr>(constant.getValue()) : DenseIntElementsAttr();
  return dense && dense.isSplat() && dense.getSplatValue<APInt>().getSExtValue() == number;
}

std::optional<SummedRows> summedRows(GatherOp whole) {
  auto rows = whole.getIndices().getDefiningOp<ScatterOp>();
  auto sums = whole.getInput().getDefiningOp<ScatterAddOp>();
  if (!rows || !sums || whole.getAxis() != 0 || rows.getAxis() != 0 || sums.getAxis() != 0 ||
      rows.getKind() != ScatterKind::set || shapeOf(rows.getIndices()).size() != 1)
    return std::nullopt;
  const int64_t count = shapeOf(rows.getIndices())[0];
  auto numbers = rows.getUpdates().getDefiningOp<IotaOp>();
  auto named = sums.getIndices().getDefiningOp<GatherOp>();
  if (!numbers || numbers.getDim() != 0 || !isSplatOf(rows.getInit(), count) || !named || named.getAxis() != 0 ||
      named.getInput() != rows.getResult() || named.getIndices() != rows.getIndices() || !isZeroFill(sums.getInit()) ||
      shapeOf(sums.getResult())[0] != count + 1)
    return std::nullopt;
  return SummedRows{whole.getResult(), sums.getResult(), rows.getIndices(), named.getResult()};
}

/// Uses of the gradient, and of values computed from it element by element.
SmallVector<OpOperand *> readersOf(const SummedRows &rows) {
  constexpr size_t kMostValues = 256;
  llvm::SetVector<Value> reached;
  reached.insert(rows.whole);
  SmallVector<OpOperand *> readers;
  for (size_t i = 0; i < reached.size() && i < kMostValues; ++i)
    for (OpOperand &use : reached[i].getUses()) {
      readers.push_back(&use);
      if (use.getOwner()->hasTrait<Pointwise>())
        for (Value result : use.getOwner()->getResults())
          reached.insert(result);
    }
  return readers;
}

/// The value, in rows without a gradient, of a tensor of the table's shape.
struct RowForm {
  enum Kind { zero, state, other } kind;
  Value of; ///< for `state`: the state that it equals
  bool operator==(const RowForm &) const = default;
};

/// Values that are computed row by row from the gradient, from states of its shape, and from values equal in all rows.
class RowValues {
public:
  RowValues(func::FuncOp function, const SummedRows &rows) : function(function), rows(rows) {}

  /// Nullopt if the value is not computed row by row.
  std::optional<RowForm> formOf(Value value) {
    auto [known, isNew] = forms.insert({value, std::nullopt});
    if (!isNew)
      return known->second;
    std::optional<RowForm> form = newFormOf(value);
    return forms[value] = form;
  }

  /// Rebuilds `value` for `count` rows. `built` maps the gradient to its rows; `rowsOf` gives the rows of a state.
  Value build(OpBuilder &builder, Value value, int64_t count, IRMapping &built,
              llvm::function_ref<Value(Value)> rowsOf) {
    if (Value known = built.lookupOrNull(value))
      return known;
    SmallVector<int64_t> shape(shapeOf(value));
    shape[0] = count;
    auto type = RankedTensorType::get(shape, elementTypeOf(value));
    Operation *op = value.getDefiningOp();
    Value result;
    if (!op) {
      result = rowsOf(value);
    } else if (auto constant = dyn_cast<ConstantOp>(op)) {
      result =
          ConstantOp::create(builder, op->getLoc(), cast<DenseElementsAttr>(constant.getValue()).resizeSplat(type));
    } else {
      if (!isa<BroadcastOp>(op))
        for (Value operand : op->getOperands())
          build(builder, operand, count, built, rowsOf);
      result = builder.clone(*op, built)->getResult(0);
      result.setType(type);
    }
    built.map(value, result);
    return result;
  }

private:
  std::optional<RowForm> newFormOf(Value value) {
    const RowForm other{RowForm::other, {}}, zero{RowForm::zero, {}};
    if (value == rows.whole)
      return zero;
    if (shapeOf(value) != shapeOf(rows.whole) || forms.size() > kMostForms)
      return std::nullopt;
    Operation *op = value.getDefiningOp();
    if (!op)
      return variableOf(value) ? std::optional(RowForm{RowForm::state, value}) : std::nullopt;
    if (auto constant = dyn_cast<ConstantOp>(op)) {
      auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
      return dense && dense.isSplat() ? std::optional(isZeroFill(value) ? zero : other) : std::nullopt;
    }
    if (auto broadcast = dyn_cast<BroadcastOp>(op))
      return tensorTypeOf(broadcast.getInput()).getNumElements() == 1 ? std::optional(other) : std::nullopt;
    if (!op->hasTrait<Pointwise>() || op->getNumResults() != 1)
      return std::nullopt;
    SmallVector<RowForm> of;
    for (Value operand : op->getOperands()) {
      std::optional<RowForm> form = formOf(operand);
      if (!form)
        return std::nullopt;
      of.push_back(*form);
    }
    auto isZero = [&](size_t i) { return of[i].kind == RowForm::zero; };
    if (isa<MulOp>(op))
      return isZero(0) || isZero(1) ? zero : other;
    if (isa<NegOp, CastOp>(op))
      return isZero(0) ? zero : other;
    if (isa<AddOp>(op))
      return isZero(1) ? of[0] : isZero(0) ? of[1] : other;
    if (isa<SubOp>(op))
      return isZero(1) ? of[0] : other;
    if (isa<SelectOp>(op))
      return of[1] == of[2] ? of[1] : other;
    return other;
  }

  StringAttr variableOf(Value value) {
    return function.getArgAttrOfType<StringAttr>(cast<BlockArgument>(value).getArgNumber(), names::kVariable);
  }

  static constexpr size_t kMostForms = 1024; ///< of one gradient
  func::FuncOp function;
  const SummedRows &rows;
  llvm::DenseMap<Value, std::optional<RowForm>> forms;
};

/// Rewrites the next values of variables to write only the named rows into the old value. Rewrites all returned values
/// that depend on the gradient or none: one that updates or averages every row would compute the whole gradient anyway.
void updateNamedRows(func::FuncOp function, const SummedRows &rows) {
  RowValues values(function, rows);
  Operation *terminator = function.getBody().front().getTerminator();
  SmallVector<OpOperand *> returned = readersOf(rows);
  llvm::erase_if(returned, [&](OpOperand *use) { return use->getOwner() != terminator; });
  llvm::sort(returned, [](OpOperand *a, OpOperand *b) { return a->getOperandNumber() < b->getOperandNumber(); });
  /// The variable's old value, if the next one equals it in rows without a gradient; else null.
  auto oldOf = [&](OpOperand *use) -> Value {
    auto name = function.getResultAttrOfType<StringAttr>(use->getOperandNumber(), names::kVariable);
    std::optional<RowForm> form = values.formOf(use->get());
    if (!name || !form || form->kind != RowForm::state)
      return {};
    const unsigned number = cast<BlockArgument>(form->of).getArgNumber();
    return function.getArgAttrOfType<StringAttr>(number, names::kVariable) == name ? form->of : Value();
  };
  if (!llvm::all_of(returned, oldOf))
    return;
  IRMapping built;
  for (OpOperand *use : returned) {
    const Value next = use->get(), old = oldOf(use);
    OpBuilder builder(terminator);
    auto gathered = [&](Value table, Value indices) -> Value {
      SmallVector<int64_t> shape(shapeOf(table));
      shape[0] = rows.count();
      return GatherOp::create(builder, next.getLoc(), RankedTensorType::get(shape, elementTypeOf(table)), table,
                              indices, 0);
    };
    if (!built.contains(rows.whole))
      built.map(rows.whole, gathered(rows.sums, rows.named));
    const Value updated = values.build(builder, next, rows.count(), built,
                                       [&](Value state) { return gathered(state, rows.indices); });
    // `scatter` needs an index for each element.
    SmallVector<int64_t> column(shapeOf(updated).size(), 1);
    column[0] = rows.count();
    const Value indices =
        broadcastTo(builder, next.getLoc(), reshape(builder, next.getLoc(), rows.indices, column), shapeOf(updated));
    const Value whole =
        ScatterOp::create(builder, next.getLoc(), next.getType(), ScatterKind::set, old, indices, updated, 0);
    use->set(whole);
  }
}

/// Makes sums for the gradient's norm, and others whose terms are zero if the gradient is, run over the rows of `sums`.
void sumNamedRows(func::FuncOp function, const SummedRows &rows) {
  RowValues values(function, rows);
  SmallVector<ReduceOp> first;
  for (OpOperand *use : readersOf(rows))
    if (auto reduce = dyn_cast<ReduceOp>(use->getOwner()); reduce && reduce.getKind() == ReduceKind::sum)
      first.push_back(reduce);
  for (ReduceOp reduce : first) {
    std::optional<RowForm> form = values.formOf(reduce.getInput());
    SmallVector<ReduceOp> sums{reduce};
    while (!llvm::is_contained(sums.back().getDims(), 0) && sums.back().getResult().hasOneUse()) {
      auto next = dyn_cast<ReduceOp>(*sums.back()->getUsers().begin());
      if (!next || next.getKind() != ReduceKind::sum)
        break;
      sums.push_back(next);
    }
    if (!form || form->kind != RowForm::zero || !llvm::is_contained(sums.back().getDims(), 0))
      continue;
    const int64_t count = rows.count() + 1;
    OpBuilder builder(reduce);
    IRMapping built;
    built.map(rows.whole, rows.sums);
    bool readsState = false;
    Value sum = values.build(builder, reduce.getInput(), count, built, [&](Value state) {
      readsState = true; // its rows do not correspond to those of `sums`
      return state;
    });
    if (readsState)
      continue;
    for (ReduceOp one : sums) {
      SmallVector<int64_t> shape(shapeOf(one.getResult()));
      if (one != sums.back())
        shape[0] = count;
      sum = ReduceOp::create(builder, one.getLoc(), RankedTensorType::get(shape, elementTypeOf(sum)), ReduceKind::sum,
                             sum, one.getDims());
    }
    sums.back().getResult().replaceAllUsesWith(sum);
  }
}

struct UpdateRowsPass : impl::UpdateRowsPassBase<UpdateRowsPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    SmallVector<GatherOp> gathers(function.getBody().front().getOps<GatherOp>());
    for (GatherOp gather : gathers)
      if (std::optional<SummedRows> rows = summedRows(gather)) {
        updateNamedRows(function, *rows);
        sumNamedRows(function, *rows);
      }
    eraseDeadOps(function);
  }
};

} // namespace

} // namespace tcc::train

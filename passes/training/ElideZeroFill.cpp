//===- ElideZeroFill.cpp - start gradients by writing instead of zeroing --===//
//
// The gradient of a gather is a scatter into zeros. If another gradient of the same parameter is added to it anyway (an
// accumulator), the scatter adds to that one. If indices name few of a table's rows, their sums form a compact table:
// readers of the gradient read a row of it, or a row of zeros, and nothing of the parameter's size is zeroed or
// written. Gradients that no rewrite removes are listed, with their bytes and the reason.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"
#include "support/PlanNames.h"

#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_ELIDEZEROFILLPASS
#include "passes/Passes.h.inc"

namespace {

/// A scatter into zeros whose result only `user` reads.
ScatterAddOp scatterIntoZeros(Value value) {
  auto scatter = value.getDefiningOp<ScatterAddOp>();
  return scatter && scatter.getResult().hasOneUse() && isZeroFill(scatter.getInit()) ? scatter : ScatterAddOp();
}

// A table's gradient is summed into a compact table if the table has at least this many rows per index and bytes.
constexpr int64_t kLeastRowsPerIndex = 4, kLeastTableBytes = 128 << 10;

/// Sums the named rows in a compact table, and gathers the whole gradient from it. `compact` has a row for each index,
/// and one of zeros at the end; `rows` maps each row of the whole to its row of `compact`: that of the last index that
/// names it.
GatherOp gatherOfSums(OpBuilder &builder, ScatterAddOp scatter) {
  Location loc = scatter.getLoc();
  int64_t count = tensorTypeOf(scatter.getIndices()).getNumElements();
  Type number = builder.getI32Type();
  auto ofNumbers = [&](int64_t extent) { return RankedTensorType::get({extent}, number); };
  SmallVector<int64_t> shape(shapeOf(scatter.getResult())), updates(shape);
  Value indices = reshape(builder, loc, scatter.getIndices(), {count});
  Value none = splatInt(builder, loc, ofNumbers(shape[0]), count);
  Value numbers = IotaOp::create(builder, loc, ofNumbers(count), 0);
  Value rows = ScatterOp::create(builder, loc, none.getType(), ScatterKind::set, none, indices, numbers, 0);
  shape[0] = count + 1;
  updates[0] = count;
  auto type = RankedTensorType::get(shape, elementTypeOf(scatter.getResult()));
  Value named = GatherOp::create(builder, loc, ofNumbers(count), rows, indices, 0);
  Value sums = reshape(builder, loc, scatter.getUpdates(), updates), zeros = splat(builder, loc, type, 0);
  Value compact = ScatterAddOp::create(builder, loc, type, zeros, named, sums, 0);
  return GatherOp::create(builder, loc, scatter.getResult().getType(), compact, rows, 0);
}

/// The parameter whose gradient `value` contributes to: that of the first result that `value` reaches and that is a
/// parameter's gradient, accumulator or next value.
std::string parameterOf(Value value, func::FuncOp function) {
  llvm::SetVector<Value> reached;
  reached.insert(value);
  std::optional<unsigned> result;
  for (size_t i = 0; i < reached.size(); ++i)
    for (OpOperand &use : reached[i].getUses()) {
      if (isa<func::ReturnOp>(use.getOwner())) {
        unsigned number = use.getOperandNumber();
        if (!function.getResultAttr(number, names::kName) || function.getResultAttr(number, names::kGradientOf))
          result = std::min(result.value_or(number), number);
        else if (auto name = function.getResultAttrOfType<StringAttr>(number, names::kName))
          if (name.getValue().starts_with(outputs::kGradientPrefix))
            result = std::min(result.value_or(number), number);
        continue;
      }
      for (Value next : use.getOwner()->getResults())
        if (next.getType() == value.getType() || use.getOwner()->hasTrait<View>())
          reached.insert(next);
    }
  if (!result)
    return "";
  for (llvm::StringRef key : {names::kGradientOf, names::kVariable, names::kName})
    if (auto name = function.getResultAttrOfType<StringAttr>(*result, key)) {
      llvm::StringRef text = name.getValue();
      text.consume_front(outputs::kGradientPrefix);
      text.consume_back("/gradient");
      return text.str();
    }
  return "";
}

class ZeroFills {
public:
  explicit ZeroFills(ModuleOp module) : module(module) {}

  void rewrite(func::FuncOp function) {
    function.walk([&](AddOp add) {
      Value left = add.getLhs(), right = add.getRhs();
      if (isZeroFill(left) || isZeroFill(right)) {
        add.getResult().replaceAllUsesWith(isZeroFill(left) ? right : left);
        add.erase();
        return;
      }
      // The later contribution scatters into the earlier one.
      ScatterAddOp scatter = scatterIntoZeros(right);
      Value onto = left;
      if (!scatter) {
        scatter = scatterIntoZeros(left);
        onto = right;
      }
      if (!scatter)
        return;
      OpBuilder builder(add);
      Value sum = ScatterAddOp::create(builder, scatter.getLoc(), add.getType(), onto, scatter.getIndices(),
                                       scatter.getUpdates(), scatter.getAxis());
      add.getResult().replaceAllUsesWith(sum);
      add.erase();
      scatter.erase();
      note(elided, parameterOf(sum, function), tensorBytes(sum.getType()),
           "the scatter adds to the parameter's other gradient", function);
    });
    eraseDeadOps(function);
  }

  /// Sums sparse scatters into zeros, or into a product that has no other reader, in compact tables.
  void compact(func::FuncOp function) {
    function.walk([&](ScatterAddOp scatter) {
      Value init = scatter.getInit(), whole = scatter.getResult();
      int64_t count = tensorTypeOf(scatter.getIndices()).getNumElements();
      bool isSparse = scatter.getAxis() == 0 && isFloatTensor(whole) && count > 0 &&
                      shapeOf(whole)[0] >= kLeastRowsPerIndex * count &&
                      tensorBytes(whole.getType()) >= kLeastTableBytes;
      if (!isSparse || !(isZeroFill(init) || soleProduct(init)))
        return;
      OpBuilder builder(scatter);
      GatherOp rows = gatherOfSums(builder, scatter);
      smallTables.insert(rows.getInput().getDefiningOp());
      Value sum = rows.getResult();
      if (!isZeroFill(init))
        sum = add(builder, scatter.getLoc(), init, sum);
      whole.replaceAllUsesWith(sum);
      scatter.erase();
      std::string parameter = parameterOf(sum, function);
      if (parameter.empty())
        return; // the gathered table is no parameter
      elided.erase(parameter);
      note(elided, parameter, tensorBytes(sum.getType()),
           "at most " + std::to_string(count) + " of its " + std::to_string(shapeOf(sum)[0]) +
               " rows are summed, apart from it",
           function);
    });
    eraseDeadOps(function);
  }

  void record(func::FuncOp function) {
    SymbolTable symbols(module);
    function.walk([&](ScatterAddOp scatter) {
      if (!isZeroFill(scatter.getInit()) || smallTables.contains(scatter))
        return;
      std::string node = nodeName(scatter.getLoc()).str();
      note(kept, parameterOf(scatter.getResult(), function), tensorBytes(scatter.getResult().getType()),
           "its only gradient is scattered" + (node.empty() ? "" : " at `" + node + "`") +
               ": rows that no index names must be zero",
           function);
    });
    // The first contribution writes every other gradient.
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      std::string parameter;
      if (auto name = function.getResultAttrOfType<StringAttr>(i, names::kVariable))
        parameter = name.str();
      else if (auto name = function.getResultAttrOfType<StringAttr>(i, names::kGradientOf))
        parameter = name.str();
      auto symbol = symbols.lookup<VariableOp>(parameter);
      if (!symbol || symbol.getRole() != roles::kParameter || kept.contains(parameter) || elided.contains(parameter))
        continue;
      note(elided, parameter, tensorBytes(symbol.getType()), "its gradient is written, not added to zeros", function);
    }
  }

  void store() {
    elided.remove_if([&](auto &other) { return kept.contains(other.first); });
    module->setAttr(names::kZeroFillKept, list(kept));
    module->setAttr(names::kZeroFillElided, list(elided));
  }

private:
  struct Note {
    int64_t bytes;
    std::string reason;
  };
  using Notes = llvm::MapVector<std::string, Note, std::map<std::string, unsigned>>;

  /// The training entries count first: the same parameter is not listed again for another entry.
  void note(Notes &notes, const std::string &parameter, int64_t bytes, const std::string &reason, func::FuncOp) {
    notes.insert({parameter, {bytes, reason}});
  }

  ArrayAttr list(const Notes &notes) {
    Builder builder(module.getContext());
    llvm::SmallVector<Attribute> entries;
    for (const auto &[parameter, entry] : notes)
      entries.push_back(
          builder.getDictionaryAttr({builder.getNamedAttr("parameter", builder.getStringAttr(parameter)),
                                     builder.getNamedAttr("bytes", builder.getI64IntegerAttr(entry.bytes)),
                                     builder.getNamedAttr("reason", builder.getStringAttr(entry.reason))}));
    return builder.getArrayAttr(entries);
  }

  ModuleOp module;
  Notes kept, elided;
  llvm::DenseSet<Operation *> smallTables; ///< scatters into compact tables, whose zeros cost next to nothing
};

struct ElideZeroFillPass : impl::ElideZeroFillPassBase<ElideZeroFillPass> {
  void runOnOperation() override {
    ZeroFills fills(getOperation());
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      fills.rewrite(function);
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      fills.compact(function);
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      fills.record(function);
    fills.store();
  }
};

} // namespace
} // namespace tcc::train

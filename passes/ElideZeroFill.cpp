//===- ElideZeroFill.cpp - gradients start by being written ----------------===//
//
// The gradient of a gather is a scatter into zeros. Where another gradient of the same parameter is added to it anyway
// (a tied weight, an accumulator), the scatter goes into that one. What no rewrite removes is listed, with its bytes
// and why.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_ELIDEZEROFILLPASS
#include "passes/Passes.h.inc"

namespace {

bool isZeroFill(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!dense || !dense.isSplat())
    return false;
  if (isa<FloatType>(dense.getElementType()))
    return dense.getSplatValue<APFloat>().isZero();
  return dense.getSplatValue<APInt>().isZero();
}

/// A scatter into zeros whose result only `user` reads.
ScatterAddOp scatterIntoZeros(Value value) {
  auto scatter = value.getDefiningOp<ScatterAddOp>();
  return scatter && scatter.getResult().hasOneUse() && isZeroFill(scatter.getInit()) ? scatter : ScatterAddOp();
}

/// The parameter whose gradient `value` becomes part of: the first result it reaches that is one's gradient,
/// accumulator or next value.
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
          if (name.getValue().starts_with("gradient:"))
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
      text.consume_front("gradient:");
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

  void record(func::FuncOp function) {
    function.walk([&](ScatterAddOp scatter) {
      if (!isZeroFill(scatter.getInit()))
        return;
      std::string node = nodeName(scatter.getLoc()).str();
      note(kept, parameterOf(scatter.getResult(), function), tensorBytes(scatter.getResult().getType()),
           "its only gradient is scattered" + (node.empty() ? "" : " at `" + node + "`") +
               ": rows that no index names must be zero",
           function);
    });
    // Every other gradient is written by its first contribution.
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      std::string parameter;
      if (auto name = function.getResultAttrOfType<StringAttr>(i, names::kVariable))
        parameter = name.str();
      else if (auto name = function.getResultAttrOfType<StringAttr>(i, names::kGradientOf))
        parameter = name.str();
      auto symbol = module.lookupSymbol<VariableOp>(parameter);
      if (!symbol || symbol.getRole() != "parameter" || kept.contains(parameter) || elided.contains(parameter))
        continue;
      note(elided, parameter, tensorBytes(symbol.getType()), "its gradient is written, not added to zeros", function);
    }
  }

  void store() {
    for (const auto &[parameter, entry] : kept)
      elided.remove_if([&, name = parameter](auto &other) { return other.first == name; });
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
};

struct ElideZeroFillPass : impl::ElideZeroFillPassBase<ElideZeroFillPass> {
  void runOnOperation() override {
    ZeroFills fills(getOperation());
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      fills.rewrite(function);
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      fills.record(function);
    fills.store();
  }
};

} // namespace
} // namespace tcc::train

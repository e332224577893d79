//===- Differentiate.cpp - gradients by reverse mode -----------------------===//
//
// Activity analysis (Hascoët and Pascual, "The Tapenade automatic differentiation tool", TOMS 2013): a value varies if
// it depends on a trainable parameter, and is useful if the loss depends on it, both through ops with derivatives.
// Values that are both get a gradient, by one sweep over the ops from last to first. The pass knows no op by name:
// derivatives come from `Differentiable`. Contributions to one value are added in the order of the sweep, so that the
// sum is the same every time.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Gradients.h"
#include "passes/Common.h"
#include "passes/Passes.h"
#include "support/PlanNames.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "passes/Passes.h.inc"

namespace {

bool blocksGradient(Operation *op) { return op->hasTrait<NotDifferentiable>(); }

std::string describe(Operation *op) {
  llvm::StringRef node = nodeName(op->getLoc());
  return node.empty() ? op->getName().getStringRef().str() : node.str();
}

/// Which values of a function gradients flow through.
class Activity {
public:
  Activity(func::FuncOp function, Value output, const llvm::StringSet<> &trainable) {
    Block &body = function.getBody().front();
    for (Operation &op : body) {
      if (auto read = dyn_cast<ReadOp>(op)) {
        if (trainable.contains(read.getVariable()) && isFloatTensor(read.getResult()))
          varied.insert(read.getResult());
        continue;
      }
      if (blocksGradient(&op) || llvm::none_of(op.getOperands(), [&](Value v) { return varied.contains(v); }))
        continue;
      for (Value result : op.getResults())
        if (isFloatTensor(result))
          varied.insert(result);
    }
    useful.insert(output);
    for (Operation &op : llvm::reverse(body)) {
      if (blocksGradient(&op) || llvm::none_of(op.getResults(), [&](Value v) { return useful.contains(v); }))
        continue;
      for (Value operand : op.getOperands())
        if (isFloatTensor(operand))
          useful.insert(operand);
    }
  }

  bool isActive(Value value) const { return varied.contains(value) && useful.contains(value); }
  bool isActive(Operation *op) const {
    return llvm::any_of(op->getResults(), [&](Value v) { return isActive(v); }) &&
           llvm::any_of(op->getOperands(), [&](Value v) { return isActive(v); });
  }

private:
  llvm::DenseSet<Value> varied, useful; // only looked up, never iterated
};

/// The op that blocks the gradient between `output` and `from`, although data flows between them; null if none flows.
/// Of several, a stop, since the user asked for it; else the first op from floats to floats, since most paths also
/// contain comparisons; else the first op.
Operation *findCut(Value from, Value output) {
  llvm::DenseSet<Operation *> reaching;
  llvm::SmallVector<Operation *> work;
  if (Operation *op = output.getDefiningOp())
    work.push_back(op);
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!reaching.insert(op).second)
      continue;
    for (Value operand : op->getOperands())
      if (Operation *definition = operand.getDefiningOp())
        work.push_back(definition);
  }
  auto isFloat = [](Value value) { return isFloatTensor(value); };
  // Visit, in program order from the read on, the ops on paths to the loss that block the gradient.
  llvm::DenseSet<Value> reached{from};
  Operation *first = nullptr, *rounding = nullptr;
  for (Operation *op = from.getDefiningOp()->getNextNode(); op; op = op->getNextNode()) {
    if (!reaching.contains(op) || llvm::none_of(op->getOperands(), [&](Value v) { return reached.contains(v); }))
      continue;
    if (isa<StopGradientOp>(op))
      return op;
    if (!blocksGradient(op) && llvm::any_of(op->getResults(), isFloat)) {
      reached.insert(op->result_begin(), op->result_end());
      continue;
    }
    first = first ? first : op;
    if (!rounding && llvm::all_of(op->getResults(), isFloat))
      rounding = op;
  }
  return rounding ? rounding : first;
}

/// Gives every op that a gradient rule builds the location of the op it is the gradient of.
struct LocationStamp : OpBuilder::Listener {
  std::optional<Location> loc;
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    if (loc)
      op->setLoc(*loc);
  }
};

class Differentiator {
public:
  Differentiator(ModuleOp module, func::FuncOp loss, bool scaled) : module(module), loss(loss), scaled(scaled) {}

  LogicalResult run() {
    OpBuilder top(loss);
    top.setInsertionPointAfter(loss);
    backward = cast<func::FuncOp>(top.clone(*loss));
    backward.setName("backward");
    auto terminator = cast<func::ReturnOp>(backward.getBody().front().getTerminator());
    Value lossSum = terminator.getOperand(0), lossWeight = terminator.getOperand(1);
    for (unsigned i = 2; i < loss.getNumResults(); ++i)
      if (auto name = loss.getResultAttrOfType<StringAttr>(i, names::kName);
          name && (outputs::isTerm(name.getValue()) || name.getValue().starts_with(outputs::kTrainingPrefix)))
        kept.emplace_back(loss.getResultAttrDict(i), terminator.getOperand(i));
    if (scaled)
      backward->setAttr(names::kGradientScale, top.getF64FloatAttr(1 / nextPowerOfTwo(elementsOf(lossWeight))));
    if (failed(sweep(lossSum, terminator)))
      return backward.erase(), failure();
    finish(lossSum, lossWeight, terminator);
    return success();
  }

private:
  LogicalResult sweep(Value lossSum, func::ReturnOp terminator) {
    llvm::StringSet<> trainable;
    for (VariableOp parameter : trainableParameters(module))
      if (!isUnusedParameter(module, parameter.getSymName()))
        trainable.insert(parameter.getSymName());
    Activity activity(backward, lossSum, trainable);

    llvm::SmallVector<Operation *> forwardOps;
    for (Operation &op : backward.getBody().front().without_terminator())
      forwardOps.push_back(&op);
    LocationStamp stamp;
    OpBuilder builder(terminator, &stamp), sums(terminator);
    Gradients gradients(sums);
    gradients.contribute(lossSum, seed(builder, lossSum));
    for (Operation *op : llvm::reverse(forwardOps)) {
      if (auto read = dyn_cast<ReadOp>(op)) {
        if (Value gradient = gradients.get(read.getResult()))
          addParameterGradient(builder, read, gradient);
        continue;
      }
      if (!activity.isActive(op))
        continue;
      if (!isa<Differentiable>(op) && llvm::any_of(op->getResults(), [&](Value v) { return bool(gradients.get(v)); }))
        return op->emitError("the loss depends on trainable parameters through `")
               << describe(op) << "` (" << op->getName()
               << "), which has no derivative; freeze the parameters before it "
               << "(model.frozen) or take the node out of the graph";
      stamp.loc = op->getLoc();
      if (failed(gradients.sweep(builder, op, [&](Value value) { return activity.isActive(value); })))
        return failure();
      stamp.loc.reset();
    }
    return success();
  }

  /// The gradient of the loss with respect to `lossSum`.
  Value seed(OpBuilder &builder, Value lossSum) {
    if (!scaled)
      return splat(builder, lossSum.getLoc(), lossSum.getType(), 1);
    auto type = RankedTensorType::get({}, builder.getF32Type());
    Expr scale(builder, lossSum.getLoc(), RunScalarOp::create(builder, lossSum.getLoc(), type, scalars::kLossScale));
    double constant = backward->getAttrOfType<FloatAttr>(names::kGradientScale).getValueAsDouble();
    return (scale * constant).cast(elementTypeOf(lossSum)).reshape(shapeOf(lossSum));
  }

  /// Upper bound on a loss's weight: its value if that is constant, else the number of elements that it sums.
  static double elementsOf(Value weight) {
    double factor = 1; // elements per sample, if the weight is a sum of sample weights
    while (Operation *op = weight.getDefiningOp()) {
      if (auto value = splatOf(weight))
        return factor * *value;
      auto product = dyn_cast<MulOp>(op);
      auto by = product ? splatOf(product->getOperand(1)) : std::nullopt;
      if (!by && !isa<ReduceOp, ReshapeOp, CastOp>(op))
        break;
      factor *= by.value_or(1);
      weight = op->getOperand(0);
    }
    return factor * double(tensorTypeOf(weight).getNumElements());
  }

  static double nextPowerOfTwo(double value) { return std::exp2(std::ceil(std::log2(std::max(value, 1.0)))); }

  void addParameterGradient(OpBuilder &builder, ReadOp read, Value gradient) {
    Value &sum = parameterGradients[read.getVariable()];
    sum = sum ? AddOp::create(builder, read.getLoc(), sum, gradient).getResult() : gradient;
  }

  void finish(Value lossSum, Value lossWeight, func::ReturnOp terminator) {
    llvm::SmallVector<Value> results{lossSum, lossWeight};
    llvm::SmallVector<Attribute> attributes;
    Builder builder(module.getContext());
    auto named = [&](llvm::StringRef key, llvm::StringRef value) {
      return builder.getDictionaryAttr(builder.getNamedAttr(key, builder.getStringAttr(value)));
    };
    attributes.push_back(named(names::kName, outputs::kLossSum));
    attributes.push_back(named(names::kName, outputs::kLossWeight));
    for (VariableOp parameter : trainableParameters(module)) {
      llvm::StringRef name = parameter.getSymName();
      if (Value gradient = parameterGradients.lookup(name)) {
        results.push_back(gradient);
        attributes.push_back(named(names::kGradientOf, name));
      } else {
        explain(name, lossSum);
      }
    }
    for (auto &[attribute, value] : kept) {
      results.push_back(value);
      attributes.push_back(attribute);
    }
    terminator->setOperands(results);
    backward.setType(
        FunctionType::get(module.getContext(), backward.getArgumentTypes(), ValueRange(results).getTypes()));
    backward.setResAttrsAttr(builder.getArrayAttr(attributes));
    eraseDeadOps(backward);
  }

  /// Says why a parameter has no gradient.
  void explain(llvm::StringRef name, Value lossSum) {
    ReadOp read;
    backward.walk([&](ReadOp op) {
      if (op.getVariable() == name && !read)
        read = op;
    });
    if (!read)
      return addUnusedParameter(module, name, "no path to the loss", "");
    if (Operation *cut = findCut(read.getResult(), lossSum)) {
      std::string reason = "detached: no gradient passes through " + cut->getName().stripDialect().str();
      return addUnusedParameter(module, name, reason, describe(cut), cut->getName().getStringRef());
    }
    auto users = read.getResult().getUsers();
    addUnusedParameter(module, name, "no path to the loss", users.empty() ? "" : describe(*users.begin()));
  }

  ModuleOp module;
  func::FuncOp loss, backward;
  bool scaled;
  /// Results of @loss that @backward has, too, with their attributes: numbers of several losses, train.outputs.
  llvm::SmallVector<std::pair<DictionaryAttr, Value>> kept;
  llvm::StringMap<Value> parameterGradients; // looked up by name
};

struct DifferentiatePass : impl::DifferentiatePassBase<DifferentiatePass> {
  using DifferentiatePassBase::DifferentiatePassBase;

  void runOnOperation() override {
    if (!builds(getOperation(), entries::kTrain) && !builds(getOperation(), entries::kGradients))
      return;
    func::FuncOp loss = lookupFunction(getOperation(), "loss");
    if (!loss || loss.isDeclaration() || loss.getNumResults() < 2) {
      getOperation().emitError("differentiate: there is no @loss with a sum and a weight; attach-loss makes it");
      return signalPassFailure();
    }
    if (failed(Differentiator(getOperation(), loss, lossScale).run()))
      signalPassFailure();
  }
};

} // namespace
} // namespace tcc::train

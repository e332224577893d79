//===- RowGuard.cpp - rows whose results are 0 without a look -------------===//
//
// Each condition by which a region selects values of rows is assumed to be false, and what follows is folded: values
// that are then known, and the sign of zeros.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/RowGuard.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

#include <cmath>

using namespace mlir;

namespace tcc::codegen {

namespace {

/// A value whose elements are all the same known number, or all zeros of any signs.
struct Known {
  double value = 0;
  bool anySign = false; ///< of 0

  bool isZero() const { return value == 0; }
  bool isPlusZero() const { return isZero() && !anySign && !std::signbit(value); }
};

using Facts = llvm::DenseMap<Value, Known>;

std::optional<Known> known(const Facts &facts, Value value) {
  auto found = facts.find(value);
  return found == facts.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Known> ofConstant(train::ConstantOp constant) {
  auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
  if (!elements || !elements.isSplat())
    return std::nullopt;
  if (isa<FloatType>(elements.getElementType()))
    return Known{elements.getSplatValue<APFloat>().convertToDouble()};
  const APInt value = elements.getSplatValue<APInt>();
  return value.isZero() ? std::optional(Known{}) : std::nullopt;
}

Known sumOf(const Known &x, const Known &y) {
  if (x.isPlusZero() || y.isPlusZero())
    return {};
  return {-0.0, x.anySign || y.anySign};
}

Known negated(const Known &x) { return {-x.value, x.anySign}; }

/// The op's result, if it follows from what is known of its operands.
std::optional<Known> resultOf(Operation &op, const Facts &facts) {
  auto operand = [&](unsigned number) { return known(facts, op.getOperand(number)); };
  if (auto constant = dyn_cast<train::ConstantOp>(op))
    return ofConstant(constant);
  if (isa<train::BroadcastOp>(op))
    return operand(0);
  if (isa<train::CastOp>(op))
    return operand(0) && operand(0)->isZero() ? operand(0) : std::nullopt;
  const bool isFloat = isa<FloatType>(cast<RankedTensorType>(op.getResultTypes().front()).getElementType());
  if (auto select = dyn_cast<train::SelectOp>(op)) {
    const std::optional<Known> x = operand(1), y = operand(2);
    if (auto condition = operand(0))
      return condition->isZero() ? y : x;
    if (!x || !y || !x->isZero() || !y->isZero())
      return std::nullopt;
    return Known{x->value, x->anySign || y->anySign || std::signbit(x->value) != std::signbit(y->value)};
  }
  if (auto compare = dyn_cast<train::CompareOp>(op)) {
    const std::optional<Known> x = operand(0), y = operand(1);
    if (!x || !y || !x->isZero() || !y->isZero())
      return std::nullopt;
    const train::CompareKind kind = compare.getKind();
    const bool holds =
        kind == train::CompareKind::eq || kind == train::CompareKind::le || kind == train::CompareKind::ge;
    return Known{double(holds)};
  }
  if (!isFloat)
    return std::nullopt;
  if (isa<train::NegOp>(op))
    return operand(0) ? std::optional(negated(*operand(0))) : std::nullopt;
  if (!isa<train::AddOp, train::SubOp, train::MulOp>(op))
    return std::nullopt;
  const std::optional<Known> x = operand(0), y = operand(1);
  if (!x || !y)
    return std::nullopt;
  if (isa<train::MulOp>(op)) { // 0 by an unknown number may be NaN
    if ((!x->isZero() && !y->isZero()) || !std::isfinite(x->value) || !std::isfinite(y->value))
      return std::nullopt;
    return Known{x->value * y->value, x->anySign || y->anySign};
  }
  if (!x->isZero() || !y->isZero())
    return std::nullopt;
  return sumOf(*x, isa<train::SubOp>(op) ? negated(*y) : *y);
}

} // namespace

Value rowGuardOf(train::FusedOp fused, const IterationSpace &space) {
  Block &body = fused.getBody().front();
  auto yielded = cast<train::YieldOp>(body.getTerminator()).getValues();
  auto shapeOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape(); };
  if (!space.lanesReduced() || llvm::any_of(yielded, [&](Value value) {
        return shapeOf(value) != ArrayRef<int64_t>(space.dims) && !space.isRowShape(shapeOf(value));
      }))
    return Value();
  llvm::SmallSetVector<Value, 4> conditions;
  for (auto select : body.getOps<train::SelectOp>())
    if (Value condition = select.getCondition(); space.isRowShape(shapeOf(condition)) && space.levelOf(condition) == 0)
      conditions.insert(condition);
  for (Value condition : conditions) {
    Facts facts{{condition, Known{}}};
    for (Operation &op : body.without_terminator())
      if (op.getNumResults() == 1 && op.getResult(0) != condition)
        if (std::optional<Known> result = resultOf(op, facts))
          facts[op.getResult(0)] = *result;
    if (llvm::all_of(yielded, [&](Value value) {
          const std::optional<Known> result = known(facts, value);
          return result && result->isPlusZero();
        }))
      return condition;
  }
  return Value();
}

} // namespace tcc::codegen

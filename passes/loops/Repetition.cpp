//===- Repetition.cpp - one sequence of ops, again and again --------------===//
#include "passes/loops/Repetition.h"

#include "compiler/dialect/Builders.h"

using namespace mlir;

namespace tcc::train {

bool isQuiet(Operation *op) { return op->hasTrait<View>() || isa<ConstantOp, SliceOp, TransposeOp, BroadcastOp>(op); }

bool isSameMovement(Operation *a, Operation *b) {
  return a == b || OperationEquivalence::isEquivalentTo(a, b, OperationEquivalence::ignoreValueEquivalence, nullptr,
                                                        OperationEquivalence::IgnoreLocations);
}

bool Family::operator==(const Family &other) const {
  if (kind != other.kind || value != other.value || op != other.op || result != other.result || dim != other.dim ||
      start != other.start || stride != other.stride || bool(like) != bool(other.like))
    return false;
  return (!like || isSameMovement(like, other.like)) && operands == other.operands;
}

std::optional<std::pair<unsigned, unsigned>> Repetition::placeOf(Operation *op) const {
  auto found = op ? numbers.find(op) : numbers.end();
  if (found == numbers.end() || found->second < first || found->second >= first + period * steps)
    return std::nullopt;
  const unsigned number = found->second - first;
  return std::pair(number / period, number % period);
}

/// True if the value is known before the first step: computed before it, or moved from such values.
bool Repetition::isOutside(Value value, unsigned moves) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return true;
  auto [found, isNew] = outside.try_emplace(op, false);
  if (!isNew)
    return found->second;
  auto number = numbers.find(op);
  bool known = number != numbers.end()
                   ? number->second < first
                   : (moves < kMostMoves && isQuiet(op) &&
                      llvm::all_of(op->getOperands(), [&](Value v) { return isOutside(v, moves + 1); })) ||
                         op->isBeforeInBlock(at(0, 0));
  return outside[op] = known;
}

/// The family of values that are the same result of each step, taken from `shift` steps earlier.
std::optional<Family> Repetition::made(ArrayRef<Value> values, unsigned step, unsigned shift) const {
  std::optional<Family> family;
  for (Value value : values) {
    auto place = placeOf(value.getDefiningOp());
    if (!place || place->first + shift != step++)
      return std::nullopt;
    const unsigned result = cast<OpResult>(value).getResultNumber();
    if (!family)
      family = Family{Family::Inner, nullptr, place->second, result};
    else if (family->op != place->second || family->result != result)
      return std::nullopt;
  }
  return family;
}

/// The family of values that are slices of one tensor at evenly spaced, non-overlapping positions.
std::optional<Family> Repetition::sliced(ArrayRef<Value> values) {
  auto one = values[0].getDefiningOp<SliceOp>(), two = values[1].getDefiningOp<SliceOp>();
  if (!one || !two || !isOutside(one.getInput()))
    return std::nullopt;
  Family family{Family::Sliced, one.getInput()};
  family.like = one;
  int64_t differing = 0;
  for (auto [dim, from, to] : llvm::enumerate(one.getStarts(), two.getStarts()))
    if (from != to) {
      ++differing;
      family.dim = int64_t(dim);
      family.start = from;
      family.stride = to - from;
    }
  const int64_t extent = shapeOf(one.getResult())[size_t(family.dim)];
  if (differing != 1 || (extent != 1 && (one.getSteps()[size_t(family.dim)] != 1 || std::abs(family.stride) != extent)))
    return std::nullopt;
  llvm::SmallVector<int64_t> starts(one.getStarts());
  for (Value value : values) {
    auto slice = value.getDefiningOp<SliceOp>();
    if (!slice || slice.getInput() != one.getInput() || slice.getType() != one.getType() ||
        slice.getSteps() != one.getSteps() || slice.getStarts() != ArrayRef<int64_t>(starts))
      return std::nullopt;
    starts[size_t(family.dim)] += family.stride;
  }
  return family;
}

std::optional<Family> Repetition::moved(ArrayRef<Value> values,
                                        llvm::function_ref<std::optional<Family>(ArrayRef<Value>)> operandOf) {
  Operation *like = values[0].getDefiningOp();
  if (!like || !isQuiet(like))
    return std::nullopt;
  for (Value value : values) {
    Operation *op = value.getDefiningOp();
    if (!op || !isSameMovement(op, like) || op->getNumOperands() != like->getNumOperands())
      return std::nullopt;
  }
  Family family{Family::Moved};
  family.like = like;
  for (unsigned i = 0; i < like->getNumOperands(); ++i) {
    std::vector<Value> operand;
    for (Value value : values)
      operand.push_back(value.getDefiningOp()->getOperand(i));
    std::optional<Family> found = operandOf(operand);
    if (!found)
      return std::nullopt;
    family.operands.push_back(std::move(*found));
  }
  return family;
}

/// The family of values that steps 1, 2, … read from the step before.
std::optional<Family> Repetition::left(ArrayRef<Value> values, unsigned moves) {
  if (moves > kMostMoves)
    return std::nullopt;
  if (auto family = made(values, 1, 1))
    return family;
  return moved(values, [&](ArrayRef<Value> operand) { return left(operand, moves + 1); });
}

std::optional<Family> Repetition::classify(ArrayRef<Value> values, unsigned moves) {
  if (moves > kMostMoves)
    return std::nullopt;
  if (llvm::all_equal(values))
    return isOutside(values[0]) ? std::optional(Family{Family::Fixed, values[0]}) : std::nullopt;
  if (auto family = made(values, 0, 0))
    return family;
  if (auto family = sliced(values))
    return family;
  if (auto family = moved(values, [&](ArrayRef<Value> operand) { return classify(operand, moves + 1); }))
    return family;
  if (!isOutside(values[0]))
    return std::nullopt;
  std::optional<Family> next = left(values.drop_front());
  if (!next)
    return std::nullopt;
  Family family{Family::Carried, values[0]};
  family.operands.push_back(std::move(*next));
  return family;
}

} // namespace tcc::train

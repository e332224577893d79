//===- Loop.cpp - loops: checks, gradient, evaluator, unread values ------===//
#include "compiler/dialect/Loop.h"

#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Gradients.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"

#include <cstring>

using namespace mlir;

namespace tcc::train {

NextOp LoopOp::getNext() { return cast<NextOp>(getBlock().getTerminator()); }

RankedTensorType stackedType(int64_t steps, Type part) {
  auto tensor = cast<RankedTensorType>(part);
  llvm::SmallVector<int64_t> shape{steps};
  llvm::append_range(shape, tensor.getShape());
  return RankedTensorType::get(shape, tensor.getElementType());
}

namespace {

/// A loop whose body is still empty.
LoopOp createLoop(OpBuilder &builder, Location loc, ValueRange initial, ValueRange sliced, ValueRange fixed,
                  TypeRange parts, int64_t steps, bool reverse) {
  llvm::SmallVector<Type> results(initial.getTypes());
  for (Type part : parts)
    results.push_back(stackedType(steps, part));
  auto loop = LoopOp::create(builder, loc, results, initial, sliced, fixed, uint64_t(steps), reverse);
  auto *block = new Block;
  loop.getBody().push_back(block);
  auto add = [&](Type type) { block->addArgument(type, loc); };
  for (Value value : initial)
    add(value.getType());
  for (Value value : sliced)
    add(RankedTensorType::get(shapeOf(value).drop_front(), elementTypeOf(value)));
  for (Value value : fixed)
    add(value.getType());
  return loop;
}

bool isSplatConstant(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  return constant && constant.getValue().isSplat();
}

} // namespace

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

LogicalResult LoopOp::verify() {
  Block &block = getBlock();
  const auto steps = int64_t(getSteps());
  if (steps < 1)
    return emitOpError("needs a step");
  if (block.getNumArguments() != getNumOperands())
    return emitOpError("has ") << getNumOperands() << " operands, but its body takes " << block.getNumArguments();
  auto isPart = [&](Type stacked, Type part) { return stacked == stackedType(steps, part); };
  for (auto [number, operand] : llvm::enumerate(getOperands())) {
    Type argument = block.getArgument(unsigned(number)).getType();
    const bool isSliced = number >= getStateCount() && number < getStateCount() + getSliced().size();
    if (isSliced ? !isPart(operand.getType(), argument) : operand.getType() != argument)
      return emitOpError("operand ") << number << " does not have the type of the body's argument";
  }
  auto next = dyn_cast<NextOp>(block.getTerminator());
  if (!next)
    return emitOpError("does not end with the next state");
  if (!llvm::equal(next.getStates().getTypes(), getInitial().getTypes()))
    return emitOpError("the next state does not have the types of the first one");
  if (getNumResults() != getStateCount() + next.getParts().size() ||
      !llvm::equal(getLast().getTypes(), getInitial().getTypes()))
    return emitOpError("results are not the last state and the steps' parts");
  for (auto [result, part] : llvm::zip_equal(getParts(), next.getParts()))
    if (!isPart(result.getType(), part.getType()))
      return emitOpError("a result does not have the type of all steps' parts");
  return success();
}

double LoopOp::getFlops() {
  double flops = 0;
  getBody().walk([&](Cost op) { flops += op.getFlops(); });
  return flops * double(getSteps());
}

//===----------------------------------------------------------------------===//
// The gradient
//===----------------------------------------------------------------------===//

namespace {

/// Replaces the loop by one that also returns the states before each step as parts; returns the loop itself if it
/// already does. `before` gets these parts.
LoopOp withStates(LoopOp loop, llvm::SmallVectorImpl<Value> &before) {
  llvm::SmallVector<unsigned> places;
  llvm::SmallVector<Type> types(loop.getResultTypes());
  llvm::SmallVector<unsigned> missing;
  unsigned parts = unsigned(loop.getParts().size());
  for (auto [k, state] : llvm::enumerate(loop.getStateArguments())) {
    auto found = llvm::find(loop.getNext().getParts(), state);
    if (found != loop.getNext().getParts().end()) {
      places.push_back(unsigned(found - loop.getNext().getParts().begin()));
      continue;
    }
    missing.push_back(unsigned(k));
    types.push_back(stackedType(int64_t(loop.getSteps()), state.getType()));
    places.push_back(parts++);
  }
  if (!missing.empty()) {
    OpBuilder builder(loop);
    auto kept = LoopOp::create(builder, loop.getLoc(), types, loop.getInitial(), loop.getSliced(), loop.getFixed(),
                               loop.getSteps(), loop.getReverse());
    IRMapping mapping;
    loop.getBody().cloneInto(&kept.getBody(), mapping);
    for (unsigned k : missing)
      kept.getNext().getPartsMutable().append(Value(kept.getStateArguments()[k]));
    loop->replaceAllUsesWith(kept.getResults().take_front(loop.getNumResults()));
    loop = kept;
  }
  for (unsigned place : places)
    before.push_back(loop.getParts()[place]);
  return loop;
}

} // namespace

/// A loop in the other direction. Its state is the gradient of the state, then the sums of the gradients of fixed
/// operands; it recomputes each step's values from the state before it. Operands that no gradient reaches get none.
void LoopOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                           llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(getNumOperands());
  const Location loc = getLoc();
  NextOp next = getNext();
  const unsigned states = getStateCount();
  auto zeros = [&](Type type) { return splat(builder, loc, type, 0); };

  llvm::SmallVector<Value> initial, sliced, before;
  llvm::SmallVector<unsigned> floatStates, floatFixed, floatSliced, partsRead;
  withStates(*this, before);
  for (unsigned k = 0; k < states; ++k)
    if (isFloatTensor(getInitial()[k])) {
      floatStates.push_back(k);
      Value gradient = resultGradients[k];
      initial.push_back(gradient ? gradient : zeros(getInitial()[k].getType()));
    }
  for (auto [number, value] : llvm::enumerate(getFixed()))
    if (isFloatTensor(value)) {
      floatFixed.push_back(unsigned(number));
      initial.push_back(zeros(value.getType()));
    }
  llvm::append_range(sliced, before);
  llvm::append_range(sliced, getSliced());
  for (unsigned number = 0; number < getParts().size(); ++number)
    if (Value gradient = resultGradients[states + number]) {
      partsRead.push_back(number);
      sliced.push_back(gradient);
    }
  llvm::SmallVector<Type> parts;
  for (auto [number, argument] : llvm::enumerate(getSlicedArguments()))
    if (isFloatTensor(argument)) {
      floatSliced.push_back(unsigned(number));
      parts.push_back(argument.getType());
    }

  LoopOp loop = createLoop(builder, loc, initial, sliced, getFixed(), parts, int64_t(getSteps()), !getReverse());
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&loop.getBlock());
    IRMapping mapping;
    for (unsigned k = 0; k < states; ++k)
      mapping.map(getStateArguments()[k], loop.getSlicedArguments()[k]);
    for (auto [number, argument] : llvm::enumerate(getSlicedArguments()))
      mapping.map(argument, loop.getSlicedArguments()[states + number]);
    for (auto [argument, mapped] : llvm::zip_equal(getFixedArguments(), loop.getFixedArguments()))
      mapping.map(argument, mapped);
    llvm::SmallVector<Operation *> ops;
    for (Operation &op : getBlock().without_terminator())
      ops.push_back(builder.clone(op, mapping));

    Gradients gradients(builder);
    for (auto [number, k] : llvm::enumerate(floatStates))
      gradients.contribute(mapping.lookup(next.getStates()[k]), loop.getStateArguments()[number]);
    for (auto [number, part] : llvm::enumerate(partsRead))
      gradients.contribute(mapping.lookup(next.getParts()[part]),
                           loop.getSlicedArguments()[states + getSliced().size() + number]);
    auto isActive = [](Value value) { return isFloatTensor(value) && !value.getDefiningOp<ConstantOp>(); };
    for (Operation *op : llvm::reverse(ops))
      if (!op->hasTrait<NotDifferentiable>() && failed(gradients.sweep(builder, op, isActive)))
        op->emitOpError("internal error: a loop's body has an op without derivative");
    auto flowsTo = [&](Value argument) { return gradients.get(mapping.lookup(argument)); };
    auto gradientOf = [&](Value argument) {
      Value gradient = flowsTo(argument);
      return gradient ? gradient : zeros(argument.getType());
    };
    llvm::SmallVector<Value> nextStates, nextParts;
    for (auto [number, k] : llvm::enumerate(floatStates)) {
      nextStates.push_back(gradientOf(getStateArguments()[k]));
      if (flowsTo(getStateArguments()[k]))
        operandGradients[k] = loop.getLast()[unsigned(number)];
    }
    for (auto [number, fixed] : llvm::enumerate(floatFixed)) {
      const auto place = unsigned(floatStates.size() + number);
      Value sum = loop.getStateArguments()[place], gradient = flowsTo(getFixedArguments()[fixed]);
      nextStates.push_back(gradient ? add(builder, loc, sum, gradient) : sum);
      if (gradient)
        operandGradients[states + getSliced().size() + fixed] = loop.getLast()[place];
    }
    for (auto [number, index] : llvm::enumerate(floatSliced)) {
      nextParts.push_back(gradientOf(getSlicedArguments()[index]));
      if (flowsTo(getSlicedArguments()[index]))
        operandGradients[states + index] = loop.getParts()[unsigned(number)];
    }
    NextOp::create(builder, loc, nextStates, nextParts);
  }
}

//===----------------------------------------------------------------------===//
// Unread values, and state that does not change
//===----------------------------------------------------------------------===//

namespace {

/// The states that some result depends on.
llvm::BitVector neededStates(LoopOp loop) {
  NextOp next = loop.getNext();
  llvm::BitVector needed(loop.getStateCount());
  llvm::DenseSet<Value> seen;
  llvm::SmallVector<Value> work;
  for (auto [part, result] : llvm::zip_equal(next.getParts(), loop.getParts()))
    if (!result.use_empty())
      work.push_back(part);
  auto need = [&](unsigned k) {
    if (needed.test(k))
      return;
    needed.set(k);
    work.push_back(next.getStates()[k]);
  };
  for (unsigned k = 0; k < loop.getStateCount(); ++k)
    if (!loop.getLast()[k].use_empty())
      need(k);
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (argument.getArgNumber() < loop.getStateCount())
        need(argument.getArgNumber());
    } else {
      llvm::append_range(work, value.getDefiningOp()->getOperands());
    }
  }
  return needed;
}

} // namespace

/// Removes unread parts and states, and operands that the body does not read. States that never change become fixed
/// operands, and splat constants move into the body.
LogicalResult LoopOp::canonicalize(LoopOp loop, PatternRewriter &rewriter) {
  NextOp next = loop.getNext();
  Block &block = loop.getBlock();
  const llvm::BitVector needed = neededStates(loop);
  auto isFixedState = [&](unsigned k) { return next.getStates()[k] == loop.getStateArguments()[k]; };
  llvm::SmallVector<Value> initial, sliced, fixed, constants;
  llvm::SmallVector<std::pair<BlockArgument, unsigned>> states, slices,
      kept;                                                   // the old argument, and its number in its list
  llvm::SmallVector<std::pair<BlockArgument, Value>> outside; // the old argument, its operand
  llvm::SmallVector<unsigned> keptStates, keptParts;
  bool changes = false;
  for (unsigned k = 0; k < loop.getStateCount(); ++k) {
    if (needed.test(k) && !isFixedState(k)) {
      keptStates.push_back(k);
      initial.push_back(loop.getInitial()[k]);
    } else {
      changes = true;
    }
  }
  for (auto [number, result] : llvm::enumerate(loop.getParts())) {
    if (!result.use_empty())
      keptParts.push_back(unsigned(number));
    else
      changes = true;
  }
  // Operands that only unread parts read are removed by the next application of this pattern.
  auto isRead = [](BlockArgument argument) { return !argument.use_empty(); };
  for (auto [argument, value] : llvm::zip_equal(loop.getSlicedArguments(), loop.getSliced()))
    changes |= !isRead(argument) || isSplatConstant(value);
  for (auto [argument, value] : llvm::zip_equal(loop.getFixedArguments(), loop.getFixed()))
    changes |= !isRead(argument) || isSplatConstant(value);
  if (!changes)
    return failure();

  for (auto [argument, value] : llvm::zip_equal(loop.getSlicedArguments(), loop.getSliced()))
    if (isRead(argument) && !isSplatConstant(value))
      sliced.push_back(value);
  for (unsigned k = 0; k < loop.getStateCount(); ++k)
    if (isFixedState(k) && isRead(loop.getStateArguments()[k]) && !isSplatConstant(loop.getInitial()[k]))
      fixed.push_back(loop.getInitial()[k]);
  for (auto [argument, value] : llvm::zip_equal(loop.getFixedArguments(), loop.getFixed()))
    if (isRead(argument) && !isSplatConstant(value))
      fixed.push_back(value);
  llvm::SmallVector<Type> parts;
  for (unsigned part : keptParts)
    parts.push_back(next.getParts()[part].getType());
  LoopOp smaller =
      createLoop(rewriter, loop.getLoc(), initial, sliced, fixed, parts, int64_t(loop.getSteps()), loop.getReverse());
  {
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPointToEnd(&smaller.getBlock());
    IRMapping mapping;
    auto constantFor = [&](BlockArgument argument, Value value) {
      auto splat = cast<DenseElementsAttr>(cast<ConstantOp>(value.getDefiningOp()).getValue());
      mapping.map(argument,
                  ConstantOp::create(rewriter, loop.getLoc(), splat.resizeSplat(cast<ShapedType>(argument.getType())))
                      .getResult());
    };
    for (auto [number, k] : llvm::enumerate(keptStates))
      mapping.map(loop.getStateArguments()[k], smaller.getStateArguments()[number]);
    unsigned slicedNumber = 0, fixedNumber = 0;
    for (auto [argument, value] : llvm::zip_equal(loop.getSlicedArguments(), loop.getSliced())) {
      if (!isRead(argument))
        continue;
      if (isSplatConstant(value))
        constantFor(argument, value);
      else
        mapping.map(argument, smaller.getSlicedArguments()[slicedNumber++]);
    }
    auto mapFixed = [&](BlockArgument argument, Value value) {
      if (!isRead(argument))
        return;
      if (isSplatConstant(value))
        constantFor(argument, value);
      else
        mapping.map(argument, smaller.getFixedArguments()[fixedNumber++]);
    };
    for (unsigned k = 0; k < loop.getStateCount(); ++k)
      if (isFixedState(k))
        mapFixed(loop.getStateArguments()[k], loop.getInitial()[k]);
    for (auto [argument, value] : llvm::zip_equal(loop.getFixedArguments(), loop.getFixed()))
      mapFixed(argument, value);
    // Unneeded values may still read removed states: clone only the needed ones.
    llvm::DenseSet<Operation *> wanted;
    llvm::SmallVector<Value> work;
    for (unsigned k : keptStates)
      work.push_back(next.getStates()[k]);
    for (unsigned part : keptParts)
      work.push_back(next.getParts()[part]);
    while (!work.empty())
      if (Operation *op = work.pop_back_val().getDefiningOp(); op && wanted.insert(op).second)
        llvm::append_range(work, op->getOperands());
    for (Operation &op : block.without_terminator())
      if (wanted.contains(&op))
        rewriter.clone(op, mapping);
    llvm::SmallVector<Value> nextStates, nextParts;
    for (unsigned k : keptStates)
      nextStates.push_back(mapping.lookup(next.getStates()[k]));
    for (unsigned part : keptParts)
      nextParts.push_back(mapping.lookup(next.getParts()[part]));
    NextOp::create(rewriter, loop.getLoc(), nextStates, nextParts);
  }
  for (unsigned k = 0; k < loop.getStateCount(); ++k)
    if (isFixedState(k))
      rewriter.replaceAllUsesWith(loop.getLast()[k], loop.getInitial()[k]);
  for (auto [number, k] : llvm::enumerate(keptStates))
    rewriter.replaceAllUsesWith(loop.getLast()[k], smaller.getLast()[unsigned(number)]);
  for (auto [number, part] : llvm::enumerate(keptParts))
    rewriter.replaceAllUsesWith(loop.getParts()[part], smaller.getParts()[unsigned(number)]);
  rewriter.eraseOp(loop);
  return success();
}

//===----------------------------------------------------------------------===//
// The naive evaluator
//===----------------------------------------------------------------------===//

namespace {

using HostTensors = llvm::DenseMap<Value, HostTensor>;

void evaluateBlock(Block &block, HostTensors &values) {
  for (Operation &op : block.without_terminator()) {
    llvm::SmallVector<HostTensor> operands, results;
    for (Value operand : op.getOperands())
      operands.push_back(values.lookup(operand));
    if (auto fused = dyn_cast<FusedOp>(&op)) {
      Block &body = fused.getBody().front();
      for (auto [argument, operand] : llvm::zip_equal(body.getArguments(), operands))
        values[argument] = operand;
      evaluateBlock(body, values);
      for (Value yielded : body.getTerminator()->getOperands())
        results.push_back(values.lookup(yielded));
    } else {
      for (Value result : op.getResults())
        results.emplace_back(tensorTypeOf(result));
      cast<Reference>(&op).evaluate(operands, results);
    }
    for (auto [value, result] : llvm::zip_equal(op.getResults(), results))
      values[value] = std::move(result);
  }
}

} // namespace

void LoopOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  NextOp next = getNext();
  const unsigned states = getStateCount();
  HostTensors values;
  for (auto [argument, operand] : llvm::zip_equal(getStateArguments(), operands.take_front(states)))
    values[argument] = operand;
  for (auto [argument, operand] : llvm::zip_equal(getFixedArguments(), operands.take_back(getFixed().size())))
    values[argument] = operand;
  for (int64_t i = 0; i < int64_t(getSteps()); ++i) {
    const int64_t step = getReverse() ? int64_t(getSteps()) - 1 - i : i;
    for (auto [argument, operand] : llvm::zip_equal(getSlicedArguments(), operands.slice(states, getSliced().size()))) {
      HostTensor part(tensorTypeOf(argument));
      std::memcpy(part.data(), operand.data() + size_t(step) * part.sizeBytes(), part.sizeBytes());
      values[argument] = std::move(part);
    }
    evaluateBlock(getBlock(), values);
    for (auto [part, result] : llvm::zip_equal(next.getParts(), results.drop_front(states))) {
      const HostTensor value = values.lookup(part);
      std::memcpy(result.data() + size_t(step) * value.sizeBytes(), value.data(), value.sizeBytes());
    }
    llvm::SmallVector<HostTensor> state;
    for (Value value : next.getStates())
      state.push_back(values.lookup(value));
    for (auto [argument, value] : llvm::zip_equal(getStateArguments(), state))
      values[argument] = std::move(value);
  }
  for (auto [argument, result] : llvm::zip_equal(getStateArguments(), results.take_front(states)))
    result = values.lookup(argument);
}

} // namespace tcc::train

//===- AttentionMatch.cpp - match attention in a graph of core ops --------===//
//
// The canonical form is a chain, not a pattern: from the softmax's operand upwards, each op either moves elements
// (followed by layouts, see AxisLayout.h), scales, adds, masks or caps, until a batched product ends the chain;
// downwards likewise until a product contracts the keys. Which dimension is a head and which a query follows from the
// two products alone, so one walk serves all layouts that exporters choose.
//
//===----------------------------------------------------------------------===//
#include "passes/attention/AttentionMatch.h"

#include "passes/Common.h"

#include <fmt/format.h>

using namespace mlir;

namespace tcc::train {

namespace {
constexpr unsigned kChainLength = 64;

bool isRearrangement(Operation *op) { return isa_and_nonnull<ReshapeOp, TransposeOp>(op); }

/// Is `value`, element by element, computed from a product's result?
bool leadsToProduct(Value value, unsigned budget = kChainLength) {
  Operation *op = value.getDefiningOp();
  if (!op || !budget)
    return false;
  if (isa<MatMulOp>(op))
    return true;
  if (isRearrangement(op) || isa<CastOp, TanhOp, NegOp>(op))
    return leadsToProduct(op->getOperand(0), budget - 1);
  if (isa<AddOp, SubOp, MulOp, DivOp, MaxOp, MinOp>(op))
    return leadsToProduct(op->getOperand(0), budget / 2) || leadsToProduct(op->getOperand(1), budget / 2);
  if (auto chosen = dyn_cast<SelectOp>(op))
    return leadsToProduct(chosen.getOnTrue(), budget / 2) || leadsToProduct(chosen.getOnFalse(), budget / 2);
  return false;
}

/// The value behind views and broadcasts.
Value behindViews(Value value) {
  while (isRearrangement(value.getDefiningOp()) || value.getDefiningOp<BroadcastOp>())
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

/// Is it a weight or a constant, of any shape?
bool isWeight(Value value) {
  for (Operation *op = value.getDefiningOp(); op; op = op->getOperand(0).getDefiningOp()) {
    if (isa<ReadOp, ConstantOp>(op))
      return true;
    if (!isRearrangement(op) && !isa<BroadcastOp, CastOp, SliceOp>(op))
      return false;
  }
  return false;
}

/// A product of two activations.
bool isActivationProduct(Operation *op) {
  auto product = dyn_cast<MatMulOp>(op);
  return product && !isWeight(product.getLhs()) && !isWeight(product.getRhs());
}

/// Ops at which a search for a product stops.
bool isBarrier(Operation *op) {
  return isa<ConvOp, SoftmaxOp, LogSoftmaxOp, LayerNormOp, BatchNormOp, func::ReturnOp, ReadOp, ConstantOp>(op);
}
} // namespace

std::string readerText(Operation *reader, Value value) {
  if (auto returned = dyn_cast<func::ReturnOp>(reader)) {
    auto function = returned->getParentOfType<func::FuncOp>();
    for (auto [i, operand] : llvm::enumerate(returned->getOperands()))
      if (operand == value)
        if (auto name = function.getResultAttrOfType<StringAttr>(unsigned(i), names::kName))
          return "the output `" + name.str() + "`";
    return "an output";
  }
  llvm::StringRef name = nodeName(reader->getLoc());
  return "node " + (name.empty() ? reader->getName().stripDialect().str() : name.str());
}

bool looksLikeAttention(SoftmaxOp softmax) {
  constexpr unsigned kOps = 64;
  auto search = [&](Operation *start, bool up) {
    llvm::SmallVector<Operation *> queue{start};
    llvm::SmallPtrSet<Operation *, 16> seen{start};
    for (size_t i = 0; i < queue.size() && i < kOps; ++i) {
      llvm::SmallVector<Operation *> next;
      if (up) {
        for (Value operand : queue[i]->getOperands())
          if (Operation *op = operand.getDefiningOp())
            next.push_back(op);
      } else {
        for (Operation *user : queue[i]->getUsers())
          next.push_back(user);
      }
      for (Operation *op : next) {
        if (isActivationProduct(op))
          return true;
        if (!isBarrier(op) && !isa<MatMulOp>(op) && seen.insert(op).second)
          queue.push_back(op);
      }
    }
    return false;
  };
  return search(softmax, true) && search(softmax, false);
}

bool AttentionMatcher::fail(Operation *op, std::string reason, bool read) {
  *failure = {isa_and_nonnull<func::ReturnOp>(op) ? found.softmax.getOperation() : op, std::move(reason), read};
  return false;
}

void AttentionMatcher::consume(Value value) {
  chain.push_back(value);
  if (Operation *op = value.getDefiningOp())
    consumed.insert(op);
}

std::optional<AttentionMatch> AttentionMatcher::match(SoftmaxOp softmax, AttentionFailure &why) {
  failure = &why;
  found.softmax = softmax;
  AxisLayout layout = axes.layoutOf(shapeOf(softmax.getResult()));
  if (llvm::is_contained(shapeOf(softmax.getResult()), 0))
    return fail(softmax, "it has no elements"), std::nullopt;
  consumed.insert(softmax);
  softmaxAxes = layout[size_t(softmax.getDim())];
  if (!walkUp(layout) || !walkDown(layout) || !takeRoles(layout) || !takeFactors() || !onlyMatchedReads())
    return std::nullopt;
  found.ops.assign(consumed.begin(), consumed.end());
  llvm::sort(found.ops, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  return found;
}

//===----------------------------------------------------------------------===//
// Up to the product of queries and keys
//===----------------------------------------------------------------------===//

/// True if `condition` tests whether every key of a row is excluded. The fused op gives zeros for such rows, as the
/// select on this condition does.
bool AttentionMatcher::isEmptyRow(Value condition) {
  Value inner = behindViews(condition);
  auto compared = inner.getDefiningOp<CompareOp>();
  if (!compared || compared.getKind() != CompareKind::eq)
    return false;
  for (bool swapped : {false, true}) {
    std::optional<double> number = splatNumber(swapped ? compared.getLhs() : compared.getRhs());
    Value largest = behindViews(swapped ? compared.getRhs() : compared.getLhs());
    auto reduced = largest.getDefiningOp<ReduceOp>();
    if (!number || *number != -std::numeric_limits<double>::infinity() || !reduced ||
        reduced.getKind() != ReduceKind::max || !llvm::is_contained(chain, reduced.getInput()))
      continue;
    for (Value value = condition; value != inner; value = value.getDefiningOp()->getOperand(0))
      consume(value);
    consume(inner);
    for (Value value = swapped ? compared.getRhs() : compared.getLhs(); value != largest;
         value = value.getDefiningOp()->getOperand(0))
      consume(value);
    consume(largest);
    return true;
  }
  return false;
}

bool AttentionMatcher::walkUp(AxisLayout layout) {
  Value current = found.softmax.getInput();
  for (unsigned step = 0;; ++step) {
    consume(current);
    Operation *op = current.getDefiningOp();
    if (!op || step == kChainLength)
      return fail(found.softmax, "its input does not come from a product of queries and keys");
    if (auto product = dyn_cast<MatMulOp>(op)) {
      if (product.getAddend())
        return fail(op, "the product of queries and keys has an addend");
      found.scores = product;
      scoresLayout = layout;
      return true;
    }
    if (isRearrangement(op)) {
      Access access{current, layout};
      if (!axes.stepUp(access))
        return fail(op,
                    "it cuts the scores' dimensions in a way that does not follow samples, heads, queries and keys");
      current = access.value, layout = access.layout;
      continue;
    }
    if (auto converted = dyn_cast<CastOp>(op)) {
      if (!isFloatTensor(converted.getInput()))
        return fail(op, "scores are converted from numbers that are not floating point");
      current = converted.getInput();
      continue;
    }
    if (isa<TanhOp>(op)) {
      if (found.softcap || !tensors.empty() || factor <= 0)
        return fail(op, "scores go through tanh in a way that is no soft cap c·tanh(x/c)");
      found.softcap = factor;
      factor = 1;
      current = op->getOperand(0);
      continue;
    }
    if (isa<NegOp>(op)) {
      factor = -factor;
      current = op->getOperand(0);
      continue;
    }
    if (isa<AddOp, SubOp, MulOp, DivOp, MaxOp>(op)) {
      if (!binaryStep(op, current, layout))
        return false;
      continue;
    }
    if (auto chosen = dyn_cast<SelectOp>(op)) {
      if (!selectStep(chosen, current, layout))
        return false;
      continue;
    }
    return fail(
        op,
        fmt::format(
            "{} of the scores is no op that attention applies before its softmax (scaling, a bias, a mask, a soft cap)",
            op->getName().stripDialect().str()));
  }
}

bool AttentionMatcher::binaryStep(Operation *op, Value &current, const AxisLayout &layout) {
  unsigned side = leadsToProduct(op->getOperand(0)) ? 0 : 1;
  if (side == 1 && !leadsToProduct(op->getOperand(1)))
    return fail(op,
                "neither operand is made from a product of queries and keys by what attention does before its softmax");
  Value other = op->getOperand(1 - side);
  std::optional<double> number = splatNumber(other);
  if (isa<MaxOp>(op)) { // a lower bound that keeps sums of masks finite
    if (!number || *number > -1e30)
      return fail(op, "scores are cut off below by something else than the least number of their type");
    current = op->getOperand(side);
    return true;
  }
  if (isa<AddOp, SubOp>(op)) {
    if (found.softcap)
      return fail(op, "a bias is added inside the soft cap");
    double sign = isa<SubOp>(op) && side == 0 ? -1 : 1;
    // A term that is constant along the keys of a row changes nothing; of the terms derived from the scores, the row
    // maximum is the only one that we recognise.
    auto reduced = behindViews(other).getDefiningOp<ReduceOp>();
    if (reduced && reduced.getInput() == op->getOperand(side) && reduced.getKind() == ReduceKind::max &&
        isa<SubOp>(op) && reduced.getDims().size() == 1 &&
        axes.expand(layout[size_t(reduced.getDims()[0])]) == axes.expand(softmaxAxes)) {
      for (Value value = other; value != reduced.getResult(); value = value.getDefiningOp()->getOperand(0))
        consume(value);
      consume(reduced.getResult());
    } else if (!number) {
      found.terms.push_back({ScoreTerm::Add, {other, layout}, factor * sign, tensors, true, 0, op});
    }
    if (isa<SubOp>(op) && side == 1)
      factor = -factor;
  } else if (number) {
    if (isa<DivOp>(op) && side == 1)
      return fail(op, "scores are a divisor");
    factor = isa<MulOp>(op) ? factor * *number : factor / *number;
  } else {
    if (isa<DivOp>(op) && side == 1)
      return fail(op, "scores are a divisor");
    if (leadsToProduct(other) && llvm::is_contained(chain, other))
      return fail(op, "scores are multiplied by themselves");
    tensors.push_back({{other, layout}, isa<DivOp>(op), op});
  }
  current = op->getOperand(side);
  return true;
}

bool AttentionMatcher::selectStep(SelectOp op, Value &current, const AxisLayout &layout) {
  bool scoresOnTrue = leadsToProduct(op.getOnTrue());
  if (!scoresOnTrue && !leadsToProduct(op.getOnFalse()))
    return fail(op,
                "neither side is made from a product of queries and keys by what attention does before its softmax");
  Value scores = scoresOnTrue ? op.getOnTrue() : op.getOnFalse();
  std::optional<double> fill = splatNumber(scoresOnTrue ? op.getOnFalse() : op.getOnTrue());
  if (!fill)
    return fail(op, "excluded scores become something that is not one number");
  if (*fill == 0 && !scoresOnTrue) {
    consume(scores); // isEmptyRow looks for a maximum of the guarded scores
    if (isEmptyRow(op.getCondition())) {
      current = scores;
      return true;
    }
    chain.pop_back();
  }
  if (found.softcap)
    return fail(op, "a mask is applied inside the soft cap");
  if (factor <= 0 || *fill * factor > kMaskFill || !tensors.empty())
    return fail(op, fmt::format("excluded scores become {}, which still counts in the softmax", *fill * factor));
  found.terms.push_back({ScoreTerm::Mask, {op.getCondition(), layout}, factor, {}, scoresOnTrue, *fill * factor, op});
  current = scores;
  return true;
}

//===----------------------------------------------------------------------===//
// Down to the product with the values
//===----------------------------------------------------------------------===//

bool AttentionMatcher::walkDown(AxisLayout layout) {
  Value current = found.softmax.getResult();
  for (unsigned step = 0; step < kChainLength; ++step) {
    consume(current);
    llvm::SmallVector<Operation *> users;
    for (Operation *user : current.getUsers())
      if (!consumed.contains(user) && !llvm::is_contained(users, user))
        users.push_back(user);
    // A row without any key gives NaN, which the graph replaces by 0.
    if (users.size() == 2) {
      auto isNan = llvm::find_if(users, [](Operation *user) { return isa<IsNanOp>(user); });
      auto chosen = llvm::find_if(users, [](Operation *user) { return isa<SelectOp>(user); });
      if (isNan != users.end() && chosen != users.end()) {
        auto select = cast<SelectOp>(*chosen);
        if (select.getCondition() == (*isNan)->getResult(0) && select.getOnFalse() == current &&
            splatNumber(select.getOnTrue()) == 0.0) {
          consume((*isNan)->getResult(0));
          users = {select};
          consumed.insert(select);
          current = select.getResult();
          continue;
        }
      }
    }
    if (users.empty())
      return fail(found.softmax, "nothing reads the weights");
    Operation *user = users.front();
    if (users.size() > 1) {
      // A reader that leads to no product with values keeps the weights alive.
      for (Operation *candidate : users)
        if (!isa<MatMulOp, DropoutOp, CastOp>(candidate) && !isRearrangement(candidate))
          user = candidate;
      if (llvm::all_of(users, [](Operation *candidate) { return isa<MatMulOp>(candidate); }))
        return fail(users.back(), "several products read the weights", true);
      return fail(user, "attention weights kept: read by " + readerText(user, current), true);
    }
    if (isa<func::ReturnOp>(user))
      return fail(user, "attention weights kept: read by " + readerText(user, current), true);
    if (auto product = dyn_cast<MatMulOp>(user)) {
      if (product.getLhs() == product.getRhs())
        return fail(user, "the weights are multiplied by themselves");
      if (product.getAddend())
        return fail(user, "the product of weights and values has an addend");
      found.product = product;
      weightsOperand = product.getLhs() == current ? 0 : 1;
      weightsLayout = layout;
      return true;
    }
    consumed.insert(user);
    if (auto view = dyn_cast<ReshapeOp>(user)) {
      std::optional<AxisLayout> next = axes.reshape(layout, shapeOf(view.getResult()));
      if (!next)
        return fail(user,
                    "it cuts the weights' dimensions in a way that does not follow samples, heads, queries and keys");
      layout = *next;
    } else if (auto moved = dyn_cast<TransposeOp>(user)) {
      AxisLayout next;
      for (int64_t dim : moved.getPermutation())
        next.push_back(layout[size_t(dim)]);
      layout = next;
    } else if (isa<CastOp>(user)) {
      if (!isFloatTensor(user->getResult(0)))
        return fail(user, "the weights are converted to numbers that are not floating point");
    } else if (auto dropout = dyn_cast<DropoutOp>(user)) {
      if (found.dropout)
        return fail(user, "two dropouts follow one another");
      if (!dropout.getMask().use_empty())
        return fail(*dropout.getMask().getUsers().begin(), "it reads the mask of the weights' dropout", true);
      found.dropout = dropout;
      dropoutLayout = layout;
    } else if (isa<MulOp, DivOp>(user)) {
      unsigned side = user->getOperand(0) == current ? 0 : 1;
      Value other = user->getOperand(1 - side);
      if (other == current || (isa<DivOp>(user) && side == 1))
        return fail(user, "the weights are changed after the softmax");
      if (std::optional<double> number = splatNumber(other))
        found.resultFactor = isa<MulOp>(user) ? found.resultFactor * *number : found.resultFactor / *number;
      else
        found.resultFactors.push_back({{other, layout}, isa<DivOp>(user), user});
    } else if (auto chosen = dyn_cast<SelectOp>(user)) {
      if (chosen.getOnFalse() != current || splatNumber(chosen.getOnTrue()) != 0.0 ||
          !isEmptyRow(chosen.getCondition()))
        return fail(user, "the weights are changed after the softmax, by a select that is not about rows without keys");
    } else {
      return fail(user, fmt::format("{} stands between the softmax and the product with the values",
                                    user->getName().stripDialect().str()));
    }
    current = user->getResult(0);
  }
  return fail(found.softmax, "the product with the values is too far away");
}

//===----------------------------------------------------------------------===//
// Roles of operands and axes
//===----------------------------------------------------------------------===//

/// The operand of the scores' product behind views, scaling by numbers (collected in `scale`) and widening casts.
Access AttentionMatcher::operandOf(Value value, AxisLayout layout, double &scale) {
  Access access{value, std::move(layout)};
  while (true) {
    Operation *op = access.value.getDefiningOp();
    if (isa_and_nonnull<MulOp, DivOp>(op)) {
      std::optional<double> right = splatNumber(op->getOperand(1)), left = splatNumber(op->getOperand(0));
      if (right) {
        scale = isa<MulOp>(op) ? scale * *right : scale / *right;
        access.value = op->getOperand(0);
        continue;
      }
      if (left && isa<MulOp>(op)) {
        scale *= *left;
        access.value = op->getOperand(1);
        continue;
      }
    }
    if (auto converted = dyn_cast_or_null<CastOp>(op); converted && isFloatTensor(converted.getInput()) &&
                                                       cast<FloatType>(elementTypeOf(converted.getInput())).getWidth() <
                                                           cast<FloatType>(elementTypeOf(access.value)).getWidth()) {
      access.value = converted.getInput();
      continue;
    }
    if (!axes.stepUp(access))
      return access;
  }
}

bool AttentionMatcher::takeRoles(const AxisLayout &softmaxLayout) {
  SoftmaxOp softmax = found.softmax;
  MatMulOp scores = found.scores, product = found.product;
  AxisList along = axes.expand(softmaxLayout[size_t(softmax.getDim())]);
  const bool keysAreColumns = axes.expand(scoresLayout[2]) == along;
  if (!keysAreColumns && axes.expand(scoresLayout[1]) != along)
    return fail(softmax, "it does not run along the keys of the product of queries and keys");
  if (along.empty())
    return fail(softmax, "there is one key");
  const unsigned queryDim = keysAreColumns ? 1 : 2;
  // If the softmax's shape splits the product's rows, the axes other than the queries are heads that share keys.
  AxisList rows = axes.expand(scoresLayout[queryDim]);
  AxisList order = axes.expand(scoresLayout[0]), queries;
  if (!rows.empty())
    for (const AxisList &dim : softmaxLayout) {
      AxisList list = axes.expand(dim);
      if (!llvm::is_contained(list, rows.back()))
        continue;
      for (Axis axis : rows)
        if (llvm::is_contained(list, axis))
          queries.push_back(axis);
    }
  for (Axis axis : rows)
    if (!llvm::is_contained(queries, axis))
      order.push_back(axis);
  found.batchAxes = order, found.queryAxes = queries, found.keyAxes = along;
  if (softmaxLayout.size() >= 4)
    found.sampleAxes = softmaxLayout[0];

  const int64_t depth = shapeOf(scores.getLhs())[scores.getTransA() ? 1 : 2];
  if (depth != 1)
    found.featureAxes = {axes.create(depth)};
  auto operand = [&](bool left) {
    const AxisList &side = scoresLayout[left ? 1 : 2];
    bool depthFirst = left ? scores.getTransA() : !scores.getTransB();
    AxisLayout layout{scoresLayout[0], depthFirst ? found.featureAxes : side, depthFirst ? side : found.featureAxes};
    return operandOf(left ? scores.getLhs() : scores.getRhs(), layout, factor);
  };
  found.query = operand(keysAreColumns);
  found.key = operand(!keysAreColumns);
  found.scale = found.softcap ? found.softcap * factor : factor;

  const bool weightsLeft = weightsOperand == 0;
  const bool contractedFirst = weightsLeft ? product.getTransA() : !product.getTransB();
  const AxisList &contracted = weightsLayout[contractedFirst ? 1 : 2],
                 &freeDim = weightsLayout[contractedFirst ? 2 : 1];
  if (axes.expand(contracted) != along)
    return fail(product, "the product with the values does not contract the dimension that the softmax runs along");
  AxisList freeAxes = axes.expand(freeDim);
  if (llvm::any_of(axes.expand(found.queryAxes), [&](Axis axis) { return !llvm::is_contained(freeAxes, axis); }))
    return fail(product, "each query has values of its own");
  Value values = weightsLeft ? product.getRhs() : product.getLhs();
  const bool valuesKeysFirst = weightsLeft ? !product.getTransB() : product.getTransA();
  const int64_t width = shapeOf(values)[valuesKeysFirst ? 2 : 1];
  if (width != 1)
    found.valueAxes = {axes.create(width)};
  found.value = axes.root({values, {weightsLayout[0], valuesKeysFirst ? along : found.valueAxes,
                                    valuesKeysFirst ? found.valueAxes : along}});
  found.resultLayout = {weightsLayout[0], weightsLeft ? freeDim : found.valueAxes,
                        weightsLeft ? found.valueAxes : freeDim};

  // Types: operands narrower than the values can be widened, not the other way round.
  auto bitsOf = [](Value x) { return cast<FloatType>(elementTypeOf(x)).getWidth(); };
  for (Value x : {found.query.value, found.key.value}) {
    if (!isFloatTensor(x))
      return fail(scores, "queries and keys are not floating point");
    if (bitsOf(x) > bitsOf(found.value.value) ||
        (bitsOf(x) == bitsOf(found.value.value) && elementTypeOf(x) != elementTypeOf(found.value.value)))
      return fail(scores, "queries or keys have more bits than the values");
  }
  for (Value x : chain)
    if (isFloatTensor(x) && bitsOf(x) < bitsOf(found.query.value))
      return fail(x.getDefiningOp(), "scores or weights are rounded to fewer bits than queries and keys have");
  if (found.dropout) {
    AxisList drawn = axes.flatten(dropoutLayout), natural = axes.expand(order);
    llvm::append_range(natural, axes.expand(found.queryAxes));
    llvm::append_range(natural, along);
    if (drawn != natural)
      return fail(found.dropout, "dropout draws its numbers in another order than samples, heads, queries, keys");
  }
  return true;
}

/// Moves a tensor that multiplies scores to the queries if it is the same for all keys, or to the keys if it is the
/// same for all queries; a tensor that multiplies weights moves to the result.
bool AttentionMatcher::takeFactors() {
  OpBuilder builder(found.product);
  MaskReader reader(axes, builder, found.queryAxes, found.keyAxes);
  auto variesAlong = [&](const Access &access, llvm::ArrayRef<Axis> list) {
    AxisList present = axes.flatten(access.layout);
    return llvm::any_of(axes.expand(list), [&](Axis axis) { return llvm::is_contained(present, axis); });
  };
  for (AttentionFactor &given : tensors) {
    AttentionFactor shrunk{reader.shrink(given.access), given.divides, given.op};
    if (!variesAlong(shrunk.access, found.keyAxes))
      found.queryFactors.push_back(shrunk);
    else if (!variesAlong(shrunk.access, found.queryAxes))
      found.keyFactors.push_back(shrunk);
    else
      return fail(given.op, "scores are multiplied by a tensor that varies along queries and keys");
  }
  for (AttentionFactor &given : found.resultFactors) {
    given.access = reader.shrink(given.access);
    if (variesAlong(given.access, found.keyAxes))
      return fail(given.op, "the weights are multiplied by a tensor that varies along the keys after the softmax");
  }
  return true;
}

bool AttentionMatcher::onlyMatchedReads() {
  consumed.insert(found.product);
  for (Value value : chain)
    for (Operation *user : value.getUsers())
      if (!consumed.contains(user))
        return fail(user, "attention weights kept: read by " + readerText(user, value), true);
  return true;
}

} // namespace tcc::train

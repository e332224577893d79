//===- Recurrent.cpp - recurrent layers: checks, gradient, evaluator ------===//
#include "compiler/dialect/Recurrent.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {

RecurrentOperands::RecurrentOperands(RecurrentOp op) {
  int next = 3;
  initialCell = op.getInitialCell() ? next++ : -1;
  extra = op.getExtra() ? next++ : -1;
  lengths = op.getLengths() ? next++ : -1;
}
RecurrentGradOperands::RecurrentGradOperands(RecurrentGradOp op) {
  int next = 1 + int(op.getKept().size());
  extra = op.getExtra() ? next++ : -1;
  lengths = op.getLengths() ? next++ : -1;
  statesGrad = op.getStatesGrad() ? next++ : -1;
  lastGrad = op.getLastGrad() ? next++ : -1;
  lastCellGrad = op.getLastCellGrad() ? next++ : -1;
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

static LogicalResult verifyShape(Operation *op, Value value, llvm::ArrayRef<int64_t> shape, Type element,
                                 const char *what) {
  if (!value || (shapeOf(value) == shape && elementTypeOf(value) == element))
    return success();
  return op->emitOpError(what) << " has the type " << value.getType() << ", which does not fit";
}

static LogicalResult verifySettings(Operation *op, RecurrentCell cell, llvm::ArrayRef<int32_t> activations,
                                    llvm::ArrayRef<double> alphas, llvm::ArrayRef<double> betas, Value extra) {
  size_t wanted = cell == RecurrentCell::rnn ? 1 : cell == RecurrentCell::lstm ? 3 : 2;
  if (activations.size() != wanted || alphas.size() != wanted || betas.size() != wanted)
    return op->emitOpError("needs ") << wanted << " activations, each with an alpha and a beta";
  for (auto [activation, alpha] : llvm::zip_equal(activations, alphas)) {
    if (!symbolizeCellActivation(uint32_t(activation)))
      return op->emitOpError("has an unknown activation, ") << activation;
    auto kind = CellActivation(activation);
    if (alpha < 0 && (kind == CellActivation::leaky_relu || kind == CellActivation::elu))
      return op->emitOpError("has an activation whose alpha is negative: its slope is not told by its value");
  }
  if (extra && (cell == RecurrentCell::rnn || cell == RecurrentCell::gru))
    return op->emitOpError("has an operand that its cell does not use");
  return success();
}

LogicalResult RecurrentOp::verify() {
  if (shapeOf(getProjected()).size() != 3 || shapeOf(getInitial()).size() != 2)
    return emitOpError("needs the input as [steps, samples, gates] and the state as [samples, hidden]");
  Type element = elementTypeOf(getProjected());
  if (failed(verifySettings(*this, getCell(), getActivations(), getAlphas(), getBetas(), getExtra())))
    return failure();
  CellSettings s = settingsOf(*this);
  const int64_t t = s.steps, n = s.batch, h = s.hidden, g = s.gates();
  bool lstm = s.cell == RecurrentCell::lstm;
  if (bool(getInitialCell()) != lstm)
    return emitOpError("needs an initial cell exactly if it is an lstm");
  llvm::SmallVector<llvm::SmallVector<int64_t>> kept;
  if (lstm)
    kept = {{n, h}, {t, n, 4 * h}, {t, n, h}};
  else if (int64_t count = keptCount(s.cell))
    kept = {{t, n, count * h}};
  if (getKept().size() != kept.size())
    return emitOpError("needs ") << kept.size() + 2 << " results";
  for (auto [value, shape] : llvm::zip_equal(getKept(), kept))
    if (failed(verifyShape(*this, value, shape, element, "a result")))
      return failure();
  if (getLengths() && shapeOf(getLengths()) != llvm::ArrayRef<int64_t>{n})
    return emitOpError("needs one length for each sample");
  return failure(failed(verifyShape(*this, getProjected(), {t, n, g * h}, element, "the input")) ||
                 failed(verifyShape(*this, getWeight(), {h, g * h}, element, "the weight")) ||
                 failed(verifyShape(*this, getInitial(), {n, h}, element, "the initial state")) ||
                 failed(verifyShape(*this, getInitialCell(), {n, h}, element, "the initial cell")) ||
                 failed(verifyShape(*this, getExtra(), {lstm ? 3 * h : h}, element, "extra")) ||
                 failed(verifyShape(*this, getStates(), {t, n, h}, element, "the result")) ||
                 failed(verifyShape(*this, getLast(), {n, h}, element, "the last state")));
}

LogicalResult RecurrentGradOp::verify() {
  if (shapeOf(getProjectedGrad()).size() != 3 || shapeOf(getInitialGrad()).size() != 2)
    return emitOpError("needs results [steps, samples, gates] and [samples, hidden]");
  Type element = elementTypeOf(getWeight());
  if (failed(verifySettings(*this, getCell(), getActivations(), getAlphas(), getBetas(), getExtra())))
    return failure();
  CellSettings s = settingsOf(*this);
  const int64_t t = s.steps, n = s.batch, h = s.hidden, g = s.gates();
  bool lstm = s.cell == RecurrentCell::lstm;
  llvm::SmallVector<llvm::SmallVector<int64_t>> kept, more;
  if (s.cell == RecurrentCell::rnn)
    kept = {{t, n, h}};
  else
    kept = {{t, n, keptCount(s.cell) * h}, {t, n, h}};
  if (lstm) {
    kept.push_back({t, n, h});
    more = {{n, h}};
  } else if (s.cell == RecurrentCell::gru_reset_after) {
    more = {{t, n, h}};
  }
  if (getKept().size() != kept.size() || getMore().size() != more.size() || (getLastCellGrad() && !lstm))
    return emitOpError("has not the operands and results of its cell");
  for (auto [value, shape] : llvm::zip_equal(getKept(), kept))
    if (failed(verifyShape(*this, value, shape, element, "a kept value")))
      return failure();
  for (auto [value, shape] : llvm::zip_equal(getMore(), more))
    if (failed(verifyShape(*this, value, shape, element, "a result")))
      return failure();
  if (getLengths() && shapeOf(getLengths()) != llvm::ArrayRef<int64_t>{n})
    return emitOpError("needs one length for each sample");
  return failure(failed(verifyShape(*this, getWeight(), {g * h, h}, element, "the weight")) ||
                 failed(verifyShape(*this, getExtra(), {lstm ? 3 * h : h}, element, "extra")) ||
                 failed(verifyShape(*this, getStatesGrad(), {t, n, h}, element, "the states' gradient")) ||
                 failed(verifyShape(*this, getLastGrad(), {n, h}, element, "the last state's gradient")) ||
                 failed(verifyShape(*this, getLastCellGrad(), {n, h}, element, "the last cell's gradient")) ||
                 failed(verifyShape(*this, getProjectedGrad(), {t, n, g * h}, element, "the input's gradient")) ||
                 failed(verifyShape(*this, getInitialGrad(), {n, h}, element, "the initial state's gradient")));
}

static double flopsOf(const CellSettings &s) {
  return double(s.steps) * double(s.batch) * double(s.hidden) * double(s.gates()) * (2.0 * double(s.hidden) + 25);
}
double RecurrentOp::getFlops() { return flopsOf(settingsOf(*this)); }
double RecurrentGradOp::getFlops() { return flopsOf(settingsOf(*this)); }

//===----------------------------------------------------------------------===//
// Gradient
//===----------------------------------------------------------------------===//

/// x[.., begin : begin + size, ..] along `dim`.
static Value part(OpBuilder &builder, Location loc, Value x, int64_t dim, int64_t begin, int64_t size) {
  llvm::SmallVector<int64_t> shape(shapeOf(x)), starts(shape.size(), 0), steps(shape.size(), 1);
  starts[dim] = begin;
  shape[dim] = size;
  return SliceOp::create(builder, loc, RankedTensorType::get(shape, elementTypeOf(x)), x, starts, steps);
}
static Value joined(OpBuilder &builder, Location loc, llvm::ArrayRef<Value> parts, int64_t dim) {
  llvm::SmallVector<int64_t> shape(shapeOf(parts[0]));
  for (Value next : parts.drop_front())
    shape[dim] += shapeOf(next)[dim];
  return ConcatOp::create(builder, loc, RankedTensorType::get(shape, elementTypeOf(parts[0])), parts, dim);
}

/// The backward kernel computes the gates' gradients of all steps; the weight gradients are products over all steps and
/// samples at once.
void RecurrentOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                llvm::SmallVectorImpl<Value> &operandGradients) {
  CellSettings s = settingsOf(*this);
  const int64_t t = s.steps, n = s.batch, h = s.hidden, g = s.gates();
  Location loc = getLoc();
  Type element = elementTypeOf(getProjected());
  auto type = [&](llvm::ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, element); };
  RecurrentOperands operand(*this);
  operandGradients.resize(getNumOperands());

  // The state before each step.
  auto previous = [&](Value all, Value initial) -> Value {
    Value first = reshape(builder, loc, initial, {1, n, h});
    if (t == 1)
      return first;
    Value others = part(builder, loc, all, 0, s.reverse ? 1 : 0, t - 1);
    return s.reverse ? joined(builder, loc, {others, first}, 0) : joined(builder, loc, {first, others}, 0);
  };
  Value before = previous(getStates(), getInitial()), cellBefore;
  llvm::SmallVector<Value> kept;
  llvm::SmallVector<Type> types = {type({t, n, g * h}), type({n, h})};
  Value lastCellGrad;
  switch (s.cell) {
  case RecurrentCell::rnn:
    kept = {getStates()};
    break;
  case RecurrentCell::gru:
    kept = {getKept()[0], before};
    break;
  case RecurrentCell::gru_reset_after:
    kept = {getKept()[0], before};
    types.push_back(type({t, n, h}));
    break;
  case RecurrentCell::lstm:
    cellBefore = previous(getKept()[2], getInitialCell());
    kept = {getKept()[1], getKept()[2], cellBefore};
    types.push_back(type({n, h}));
    lastCellGrad = resultGradients[2];
    break;
  }
  Value weight = transpose(builder, loc, getWeight(), {1, 0});
  auto sweep = RecurrentGradOp::create(builder, loc, types, weight, kept, getExtra(), getLengths(), resultGradients[0],
                                       resultGradients[1], lastCellGrad, getCell(), getActivations(), getAlphas(),
                                       getBetas(), getClip(), getCoupled(), getReverse());
  Value gates = sweep.getProjectedGrad();
  operandGradients[0] = gates;
  operandGradients[2] = sweep.getInitialGrad();
  if (s.cell == RecurrentCell::lstm)
    operandGradients[size_t(operand.initialCell)] = sweep.getMore()[0];

  // [steps·samples, h]ᵀ·[steps·samples, width]
  auto product = [&](Value left, Value right) -> Value {
    int64_t width = shapeOf(right).back();
    return MatMulOp::create(builder, loc, type({1, h, width}), reshape(builder, loc, left, {1, t * n, h}),
                            reshape(builder, loc, right, {1, t * n, width}), true, false);
  };
  Value weightGrad;
  if (s.cell == RecurrentCell::gru) {
    Value reset = part(builder, loc, getKept()[0], 2, h, h);
    Value first = product(before, part(builder, loc, gates, 2, 0, 2 * h));
    Value second = product(mul(builder, loc, reset, before), part(builder, loc, gates, 2, 2 * h, h));
    weightGrad = joined(builder, loc, {first, second}, 2);
  } else if (s.cell == RecurrentCell::gru_reset_after) {
    weightGrad = product(before, joined(builder, loc, {part(builder, loc, gates, 2, 0, 2 * h), sweep.getMore()[0]}, 2));
  } else {
    weightGrad = product(before, gates);
  }
  operandGradients[1] = reshape(builder, loc, weightGrad, {h, g * h});

  if (!getExtra())
    return;
  auto total = [&](Value x) { return reshape(builder, loc, reduceSum(builder, loc, x, {0, 1}), {h}); };
  if (s.cell == RecurrentCell::gru_reset_after) {
    operandGradients[size_t(operand.extra)] = total(sweep.getMore()[0]);
    return;
  }
  auto peephole = [&](int64_t gate, Value cells) {
    return total(mul(builder, loc, part(builder, loc, gates, 2, gate * h, h), cells));
  };
  operandGradients[size_t(operand.extra)] =
      joined(builder, loc, {peephole(0, cellBefore), peephole(1, getKept()[2]), peephole(2, cellBefore)}, 0);
}

//===----------------------------------------------------------------------===//
// The naive evaluator
//===----------------------------------------------------------------------===//
namespace {

double activated(const CellSettings &s, unsigned which, double x) {
  if (s.clip > 0)
    x = std::min(std::max(x, -s.clip), s.clip);
  double a = s.alphas[which], b = s.betas[which];
  switch (s.activations[which]) {
  case CellActivation::tanh:
    return std::tanh(x);
  case CellActivation::sigmoid:
    return 1 / (1 + std::exp(-x));
  case CellActivation::relu:
    return std::max(x, 0.0);
  case CellActivation::affine:
    return a * x + b;
  case CellActivation::leaky_relu:
    return x < 0 ? a * x : x;
  case CellActivation::thresholded_relu:
    return x <= a ? 0 : x;
  case CellActivation::scaled_tanh:
    return a * std::tanh(b * x);
  case CellActivation::hard_sigmoid:
    return std::min(std::max(a * x + b, 0.0), 1.0);
  case CellActivation::elu:
    return x < 0 ? a * std::expm1(x) : x;
  case CellActivation::softsign:
    return x / (1 + std::fabs(x));
  case CellActivation::softplus:
    return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
  }
  return 0;
}

/// f′ in terms of y = f(x).
double slopeAt(const CellSettings &s, unsigned which, double y) {
  double a = s.alphas[which], b = s.betas[which];
  if (s.clip > 0 && (y == activated(s, which, -s.clip) || y == activated(s, which, s.clip)))
    return 0;
  switch (s.activations[which]) {
  case CellActivation::tanh:
    return 1 - y * y;
  case CellActivation::sigmoid:
    return y * (1 - y);
  case CellActivation::relu:
    return y > 0;
  case CellActivation::affine:
    return a;
  case CellActivation::leaky_relu:
    return y < 0 ? a : 1;
  case CellActivation::thresholded_relu:
    return y != 0;
  case CellActivation::scaled_tanh:
    return a == 0 ? 0 : b * (a - y * y / a);
  case CellActivation::hard_sigmoid:
    return y > 0 && y < 1 ? a : 0;
  case CellActivation::elu:
    return y < 0 ? y + a : 1;
  case CellActivation::softsign:
    return (1 - std::fabs(y)) * (1 - std::fabs(y));
  case CellActivation::softplus:
    return 1 - std::exp(-y);
  }
  return 0;
}

/// A tensor's elements as numbers, or zeros.
std::vector<double> numbers(const HostTensor *tensor, int64_t size) {
  std::vector<double> values(size_t(size), 0.0);
  for (int64_t i = 0; tensor && i < size; ++i)
    values[size_t(i)] = tensor->getDouble(i);
  return values;
}

/// Peepholes or the inner bias; empty if the cell has none, since zeros would give 0·∞ = NaN.
std::vector<double> extraNumbers(llvm::ArrayRef<HostTensor> operands, int at) {
  return at < 0 ? std::vector<double>() : numbers(&operands[size_t(at)], operands[size_t(at)].size());
}

bool isAlive(const HostTensor *lengths, int64_t row, int64_t step) { return !lengths || step < lengths->getInt(row); }

} // namespace

void RecurrentOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  CellSettings s = settingsOf(*this);
  RecurrentOperands at(*this);
  const int64_t n = s.batch, h = s.hidden, g = s.gates(), count = keptCount(s.cell);
  auto optional = [&](int i) { return i < 0 ? nullptr : &operands[size_t(i)]; };
  const HostTensor &x = operands[0], &weight = operands[1], *lengths = optional(at.lengths);
  std::vector<double> state = numbers(&operands[2], n * h), cell = numbers(optional(at.initialCell), n * h);
  std::vector<double> extra = extraNumbers(operands, at.extra);
  for (int64_t i = 0; i < s.steps; ++i) {
    int64_t t = s.reverse ? s.steps - 1 - i : i;
    for (int64_t row = 0; row < n; ++row) {
      // Σ state·weight for column c, each element of the state times `factor`.
      auto product = [&](int64_t c, llvm::function_ref<double(int64_t k)> factor) {
        double sum = 0;
        for (int64_t k = 0; k < h; ++k)
          sum += state[size_t(row * h + k)] * factor(k) * weight.getDouble(k * g * h + c);
        return sum;
      };
      auto one = [](int64_t) { return 1.0; };
      auto input = [&](int64_t gate, int64_t j) { return x.getDouble((t * n + row) * g * h + gate * h + j); };
      std::vector<double> next(size_t(h), 0.0), nextCell(size_t(h), 0.0), gates(size_t(count * h), 0.0),
          reset(size_t(h), 0.0);
      auto gate = [&](int64_t which, int64_t j) -> double & { return gates[size_t(which * h + j)]; };
      auto peephole = [&](int64_t which, int64_t j, double c) {
        return extra.empty() ? 0 : extra[size_t(which * h + j)] * c;
      };
      for (int64_t j = 0; j < h && s.cell == RecurrentCell::gru; ++j)
        reset[size_t(j)] = activated(s, 0, input(1, j) + product(h + j, one));
      for (int64_t j = 0; j < h; ++j) {
        double before = state[size_t(row * h + j)], c = cell[size_t(row * h + j)];
        switch (s.cell) {
        case RecurrentCell::rnn:
          next[size_t(j)] = activated(s, 0, input(0, j) + product(j, one));
          break;
        case RecurrentCell::gru:
          gate(0, j) = activated(s, 0, input(0, j) + product(j, one));
          gate(1, j) = reset[size_t(j)];
          gate(2, j) = activated(s, 1, input(2, j) + product(2 * h + j, [&](int64_t k) { return reset[size_t(k)]; }));
          next[size_t(j)] = (1 - gate(0, j)) * gate(2, j) + gate(0, j) * before;
          break;
        case RecurrentCell::gru_reset_after:
          gate(0, j) = activated(s, 0, input(0, j) + product(j, one));
          gate(1, j) = activated(s, 0, input(1, j) + product(h + j, one));
          gate(2, j) = peephole(0, j, 1) + product(2 * h + j, one);
          gate(3, j) = activated(s, 1, input(2, j) + gate(1, j) * gate(2, j));
          next[size_t(j)] = (1 - gate(0, j)) * gate(3, j) + gate(0, j) * before;
          break;
        case RecurrentCell::lstm:
          gate(0, j) = activated(s, 0, input(0, j) + product(j, one) + peephole(0, j, c));
          gate(2, j) = s.coupled
                           ? 1 - gate(0, j)
                           : activated(s, 0, input(2, j) + product(2 * h + j, one) + peephole(2, j, c));
          gate(3, j) = activated(s, 1, input(3, j) + product(3 * h + j, one));
          nextCell[size_t(j)] = gate(2, j) * c + gate(0, j) * gate(3, j);
          gate(1, j) = activated(s, 0, input(1, j) + product(h + j, one) + peephole(1, j, nextCell[size_t(j)]));
          next[size_t(j)] = gate(1, j) * activated(s, 2, nextCell[size_t(j)]);
          break;
        }
      }
      for (int64_t j = 0; j < h; ++j) {
        if (isAlive(lengths, row, t)) {
          state[size_t(row * h + j)] = next[size_t(j)];
          cell[size_t(row * h + j)] = nextCell[size_t(j)];
        }
        int64_t index = (t * n + row) * h + j;
        results[0].setDouble(index, state[size_t(row * h + j)]);
        if (s.cell == RecurrentCell::lstm)
          results[4].setDouble(index, cell[size_t(row * h + j)]);
      }
      for (int64_t j = 0; j < count * h; ++j)
        results[s.cell == RecurrentCell::lstm ? 3 : 2].setDouble((t * n + row) * count * h + j, gates[size_t(j)]);
    }
  }
  for (int64_t i = 0; i < n * h; ++i) {
    results[1].setDouble(i, state[size_t(i)]);
    if (s.cell == RecurrentCell::lstm)
      results[2].setDouble(i, cell[size_t(i)]);
  }
}

void RecurrentGradOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  CellSettings s = settingsOf(*this);
  RecurrentGradOperands at(*this);
  const int64_t n = s.batch, h = s.hidden, g = s.gates(), count = keptCount(s.cell);
  auto optional = [&](int i) { return i < 0 ? nullptr : &operands[size_t(i)]; };
  const HostTensor &weight = operands[0], *lengths = optional(at.lengths), *given = optional(at.statesGrad);
  std::vector<double> state = numbers(optional(at.lastGrad), n * h), cell = numbers(optional(at.lastCellGrad), n * h);
  std::vector<double> extra = extraNumbers(operands, at.extra);
  for (int64_t i = s.steps - 1; i >= 0; --i) {
    int64_t t = s.reverse ? s.steps - 1 - i : i;
    for (int64_t row = 0; row < n; ++row) {
      auto line = [&](int64_t width, int64_t j) { return (t * n + row) * width + j; };
      bool alive = isAlive(lengths, row, t);
      std::vector<double> d(size_t(g * h), 0.0), inner(size_t(h), 0.0), next(size_t(h), 0.0);
      // Σ over the gates' columns from `first` on of gradient·weight, for element j of the state.
      auto product = [&](llvm::ArrayRef<double> gradient, int64_t first, int64_t j) {
        double sum = 0;
        for (size_t k = 0; k < gradient.size(); ++k)
          sum += gradient[k] * weight.getDouble((first + int64_t(k)) * h + j);
        return sum;
      };
      auto peephole = [&](int64_t which, int64_t j, double gradient) {
        return extra.empty() ? 0 : extra[size_t(which * h + j)] * gradient;
      };
      for (int64_t j = 0; j < h; ++j) {
        double &dState = state[size_t(row * h + j)], &dCell = cell[size_t(row * h + j)];
        if (given)
          dState += given->getDouble(line(h, j));
        if (!alive) {
          next[size_t(j)] = dState;
          continue;
        }
        auto kept = [&](int64_t gate) { return operands[1].getDouble(line(count * h, gate * h + j)); };
        auto out = [&](int64_t gate) -> double & { return d[size_t(gate * h + j)]; };
        switch (s.cell) {
        case RecurrentCell::rnn:
          out(0) = dState * slopeAt(s, 0, operands[1].getDouble(line(h, j)));
          break;
        case RecurrentCell::gru: {
          double before = operands[2].getDouble(line(h, j)), z = kept(0), candidate = kept(2);
          out(0) = dState * (before - candidate) * slopeAt(s, 0, z);
          out(2) = dState * (1 - z) * slopeAt(s, 1, candidate);
          next[size_t(j)] = dState * z;
          break;
        }
        case RecurrentCell::gru_reset_after: {
          double before = operands[2].getDouble(line(h, j)), z = kept(0), candidate = kept(3);
          out(0) = dState * (before - candidate) * slopeAt(s, 0, z);
          out(2) = dState * (1 - z) * slopeAt(s, 1, candidate);
          out(1) = out(2) * kept(2) * slopeAt(s, 0, kept(1));
          inner[size_t(j)] = out(2) * kept(1);
          next[size_t(j)] = dState * z;
          break;
        }
        case RecurrentCell::lstm: {
          double now = operands[2].getDouble(line(h, j)), before = operands[3].getDouble(line(h, j));
          double in = kept(0), o = kept(1), f = kept(2), c = kept(3), shown = activated(s, 2, now);
          out(1) = dState * shown * slopeAt(s, 0, o);
          double total = dCell + dState * o * slopeAt(s, 2, shown) + peephole(1, j, out(1));
          out(0) = total * (s.coupled ? c - before : c) * slopeAt(s, 0, in);
          out(2) = s.coupled ? 0 : total * before * slopeAt(s, 0, f);
          out(3) = total * in * slopeAt(s, 1, c);
          dCell = total * f + peephole(0, j, out(0)) + (s.coupled ? 0 : peephole(2, j, out(2)));
          break;
        }
        }
      }
      for (int64_t j = 0; j < h && alive; ++j) {
        llvm::ArrayRef<double> all(d);
        if (s.cell == RecurrentCell::gru) {
          double reset = operands[1].getDouble(line(3 * h, h + j)), before = operands[2].getDouble(line(h, j));
          double through = product(all.drop_front(size_t(2 * h)), 2 * h, j);
          d[size_t(h + j)] = through * before * slopeAt(s, 0, reset);
          next[size_t(j)] += through * reset;
        }
      }
      for (int64_t j = 0; j < h && alive; ++j) {
        llvm::ArrayRef<double> all(d);
        if (s.cell == RecurrentCell::gru)
          next[size_t(j)] += product(all.take_front(size_t(2 * h)), 0, j);
        else if (s.cell == RecurrentCell::gru_reset_after)
          next[size_t(j)] += product(all.take_front(size_t(2 * h)), 0, j) + product(inner, 2 * h, j);
        else
          next[size_t(j)] += product(all, 0, j);
      }
      for (int64_t j = 0; j < h; ++j) {
        state[size_t(row * h + j)] = next[size_t(j)];
        if (s.cell == RecurrentCell::gru_reset_after)
          results[2].setDouble(line(h, j), inner[size_t(j)]);
      }
      for (int64_t j = 0; j < g * h; ++j)
        results[0].setDouble(line(g * h, j), d[size_t(j)]);
    }
  }
  for (int64_t i = 0; i < n * h; ++i) {
    results[1].setDouble(i, state[size_t(i)]);
    if (s.cell == RecurrentCell::lstm)
      results[2].setDouble(i, cell[size_t(i)]);
  }
}

} // namespace tcc::train

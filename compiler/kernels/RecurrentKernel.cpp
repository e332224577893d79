//===- RecurrentKernel.cpp - the loops of recurrent layers ------*- C++ -*-===//
//
// A tile is a few samples and runs through all steps, since samples are independent. In each step
// the state is multiplied by the recurrent weights, four samples by one vector of columns at a time, so that each
// loaded weight is used four times; then the cell's arithmetic runs over the products, which are in the first-level
// cache.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/Recurrent.h"
#include "compiler/dialect/ScalarFunctions.h"
#include "compiler/kernels/Kernels.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <array>

using namespace mlir;

namespace tcc::train {
namespace {

/// Samples in a tile and in one product. The same on all machines.
constexpr int64_t kTileRows = 8, kBlockRows = 4;

/// Arithmetic on lanes inside a kernel whose loops are its own.
class CellArithmetic : public ElementBuilder {
public:
  CellArithmetic(LoopBuilder &loops, int64_t lanes) : ElementBuilder(loops.builder, loops.loc), count(lanes) {}
  int64_t lanes() const override { return count; }
  Value operand(unsigned, llvm::ArrayRef<Coord>) override { return {}; }
  Value operandIf(unsigned, llvm::ArrayRef<Coord>, Value, Value otherwise) override { return otherwise; }
  llvm::SmallVector<Value> loop(int64_t, int64_t, ValueRange inits,
                                llvm::function_ref<llvm::SmallVector<Value>(Value, ValueRange)>) override {
    return llvm::SmallVector<Value>(inits);
  }

private:
  int64_t count;
};

Lane bounded(Lane x, double low, double high) {
  x = less(x, low).select(x.like(low), x);
  return greater(x, high).select(x.like(high), x);
}

/// f(x) of activation number `which`, with its argument clipped.
Lane activate(const CellSettings &s, unsigned which, Lane x) {
  if (s.clip > 0)
    x = bounded(x, -s.clip, s.clip);
  double a = s.alphas[which], b = s.betas[which];
  switch (s.activations[which]) {
  case CellActivation::tanh:
    return scalar::tanh(x);
  case CellActivation::sigmoid:
    return scalar::sigmoid(x);
  case CellActivation::relu:
    return less(x, 0).select(x.like(0), x);
  case CellActivation::affine:
    return a * x + b;
  case CellActivation::leaky_relu:
    return less(x, 0).select(a * x, x);
  case CellActivation::thresholded_relu:
    return greater(x, a).select(x, isNan(x).select(x, x.like(0)));
  case CellActivation::scaled_tanh:
    return a * scalar::tanh(b * x);
  case CellActivation::hard_sigmoid:
    return bounded(a * x + b, 0, 1);
  case CellActivation::elu:
    return less(x, 0).select(a * (scalar::exp(x) - 1.0), x);
  case CellActivation::softsign:
    return x / (1.0 + x.abs());
  case CellActivation::softplus:
    return greater(x, 0).select(x, x.like(0)) + scalar::log1p(scalar::exp(-x.abs()));
  }
  llvm_unreachable("all activations");
}

/// f′ in terms of y = f(x); 0 where the argument was clipped.
Lane slope(const CellSettings &s, unsigned which, Lane y) {
  double a = s.alphas[which], b = s.betas[which];
  auto inner = [&]() -> Lane {
    switch (s.activations[which]) {
    case CellActivation::tanh:
      return 1.0 - y * y;
    case CellActivation::sigmoid:
      return y * (1.0 - y);
    case CellActivation::relu:
      return greater(y, 0).select(y.like(1), y.like(0));
    case CellActivation::affine:
      return y.like(a);
    case CellActivation::leaky_relu:
      return less(y, 0).select(y.like(a), y.like(1));
    case CellActivation::thresholded_relu:
      return equal(y, 0).select(y.like(0), y.like(1));
    case CellActivation::scaled_tanh:
      return a == 0 ? y.like(0) : b * (a - y * y / a);
    case CellActivation::hard_sigmoid:
      return (greater(y, 0) & less(y, 1)).select(y.like(a), y.like(0));
    case CellActivation::elu:
      return less(y, 0).select(y + a, y.like(1));
    case CellActivation::softsign:
      return (1.0 - y.abs()) * (1.0 - y.abs());
    case CellActivation::softplus:
      return 1.0 - scalar::exp(-y);
    }
    llvm_unreachable("all activations");
  };
  Lane result = inner();
  if (s.clip > 0) {
    Lane low = activate(s, which, y.like(-s.clip)), high = activate(s, which, y.like(s.clip));
    result = (equal(y, low) | equal(y, high)).select(y.like(0), result);
  }
  return result;
}

/// The loops that forward and backward share.
class Steps {
public:
  Steps(LoopBuilder &loops, const CellSettings &settings, Type element, Value tile)
      : s(settings), loops(loops), b(loops.builder), loc(loops.loc), lanes(loops.lanes(element)), math(loops, lanes) {
    begin = times(tile, kTileRows);
    end = arith::MinSIOp::create(b, loc, plus(begin, loops.index(kTileRows)), loops.index(s.batch));
  }

protected:
  Value plus(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value times(Value x, int64_t y) { return arith::MulIOp::create(b, loc, x, loops.index(y)); }
  /// Linear index of [row, column] in rows of `width`; of [step, row, column].
  Value at(Value row, int64_t width, Value column, int64_t offset = 0) {
    Value index = plus(times(row, width), column);
    return offset ? plus(index, loops.index(offset)) : index;
  }
  Value at(Value step, Value row, int64_t width, Value column, int64_t offset = 0) {
    return at(plus(times(step, s.batch), row), width, column, offset);
  }

  void each(Value lower, Value upper, int64_t step, llvm::function_ref<void(Value)> body) {
    loops.loop(lower, upper, step, {}, [&](Value i, ValueRange) -> llvm::SmallVector<Value> {
      body(i);
      return {};
    });
  }
  /// Vectors of `count` columns: full ones, and a masked rest.
  void columns(int64_t count, llvm::function_ref<void(Value column, Value active)> body) {
    int64_t full = count - count % lanes;
    if (full)
      each(loops.index(0), loops.index(full), lanes, [&](Value column) { body(column, nullptr); });
    if (full < count)
      body(loops.index(full), loops.index(count - full));
  }
  void elements(llvm::function_ref<void(Value row, Value column, Value active)> body) {
    each(begin, end, 1,
         [&](Value row) { columns(s.hidden, [&](Value column, Value active) { body(row, column, active); }); });
  }

  Lane load(unsigned operand, Value index, Value active) {
    return Lane(math, loops.load(operand, index, lanes, active));
  }
  Lane kept(unsigned result, Value index, Value active) {
    return Lane(math, loops.loadResult(result, index, lanes, active));
  }
  Lane zero(Type element) { return Lane(math, math.constant(element, 0)); }

  /// start + Σ left·right over `depth`, in order, for all rows of the tile and `width` columns.
  struct Product {
    int64_t width, depth;
    llvm::function_ref<Value(Value row, Value k)> left;
    unsigned right;
    int64_t rightStride, rightOffset;
    llvm::function_ref<Value(Value row, Value column, Value active)> start;
    llvm::function_ref<void(Value row, Value column, Value value, Value active)> finish;
  };
  void multiply(const Product &p) {
    int64_t rest = s.batch % kBlockRows;
    Value rows = arith::SubIOp::create(b, loc, end, begin);
    Value odd = arith::RemUIOp::create(b, loc, rows, loops.index(kBlockRows));
    Value mainEnd = arith::SubIOp::create(b, loc, end, odd);
    columns(p.width, [&](Value column, Value active) {
      auto block = [&](Value row, int64_t count) {
        llvm::SmallVector<Value> sums, at;
        for (int64_t r = 0; r < count; ++r) {
          at.push_back(r ? plus(row, loops.index(r)) : row);
          sums.push_back(p.start(at.back(), column, active));
        }
        sums = loops.loop(loops.index(0), loops.index(p.depth), 1, sums,
                          [&](Value k, ValueRange carried) -> llvm::SmallVector<Value> {
                            Value index = plus(times(k, p.rightStride), column);
                            Value right = loops.load(p.right, plus(index, loops.index(p.rightOffset)), lanes, active);
                            llvm::SmallVector<Value> next;
                            for (auto [row, sum] : llvm::zip_equal(at, carried))
                              next.push_back(math::FmaOp::create(b, loc, math.splat(p.left(row, k)), right, sum));
                            return next;
                          });
        for (auto [row, sum] : llvm::zip_equal(at, sums))
          p.finish(row, column, sum, active);
      };
      if (s.batch >= kBlockRows)
        each(begin, mainEnd, kBlockRows, [&](Value row) { block(row, kBlockRows); });
      if (rest) // only in the last tile: runs at most once
        each(mainEnd, end, rest, [&](Value row) { block(row, rest); });
    });
  }

  /// True in every lane if the sample has this step; null if all samples have all steps.
  Value isAlive(int lengths, Value row, Value step) {
    if (lengths < 0)
      return {};
    Value length = loops.load(unsigned(lengths), row);
    if (!length.getType().isInteger(64))
      length = arith::ExtSIOp::create(b, loc, b.getI64Type(), length);
    return math.splat(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, step, length));
  }
  Lane choose(Value alive, Lane x, Lane y) { return alive ? Lane(math, alive).select(x, y) : x; }

  const CellSettings &s;
  LoopBuilder &loops;
  OpBuilder &b;
  Location loc;
  int64_t lanes;
  CellArithmetic math;
  Value begin, end;
};

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

class Forward : Steps {
public:
  Forward(LoopBuilder &loops, const CellSettings &settings, RecurrentOp op, Value tile)
      : Steps(loops, settings, elementTypeOf(op.getProjected()), tile), element(elementTypeOf(op.getProjected())),
        operand(op) {}

  void emit() {
    elements([&](Value row, Value column, Value active) {
      Value index = at(row, s.hidden, column);
      loops.store(kLast, index, load(2, index, active), active);
      if (s.cell == RecurrentCell::lstm)
        loops.store(kLastCell, index, load(unsigned(operand.initialCell), index, active), active);
    });
    each(loops.index(0), loops.index(s.steps), 1, [&](Value i) {
      step = s.reverse ? arith::SubIOp::create(b, loc, loops.index(s.steps - 1), i).getResult() : i;
      switch (s.cell) {
      case RecurrentCell::rnn:
        return rnn();
      case RecurrentCell::gru:
        return gru();
      case RecurrentCell::gru_reset_after:
        return gruResetAfter();
      case RecurrentCell::lstm:
        return lstm();
      }
    });
  }

private:
  static constexpr unsigned kStates = 0, kLast = 1, kGruGates = 2, kLastCell = 2, kLstmGates = 3, kCells = 4;

  Value lastState(Value row, Value k) { return loops.loadResult(kLast, at(row, s.hidden, k)); }
  Value projected(Value row, Value column, Value active, int64_t offset = 0) {
    return loops.load(0, at(step, row, s.gates() * s.hidden, column, offset), lanes, active);
  }
  /// state·weight, columns [first, first + width), plus the projected input, to `result` in rows of `stride`.
  void project(int64_t first, int64_t width, unsigned result, int64_t stride) {
    multiply({width, s.hidden, [&](Value row, Value k) { return lastState(row, k); }, 1, s.gates() * s.hidden, first,
              [&](Value row, Value column, Value active) { return projected(row, column, active, first); },
              [&](Value row, Value column, Value value, Value active) {
                loops.store(result, at(step, row, stride, column, first), value, active);
              }});
  }
  void setState(Value row, Value column, Value active, Lane next, Lane before) {
    next = choose(isAlive(operand.lengths, row, step), next, before);
    loops.store(kStates, at(step, row, s.hidden, column), next, active);
    loops.store(kLast, at(row, s.hidden, column), next, active);
  }

  void rnn() {
    project(0, s.hidden, kStates, s.hidden);
    elements([&](Value row, Value column, Value active) {
      Lane next = activate(s, 0, kept(kStates, at(step, row, s.hidden, column), active));
      setState(row, column, active, next, kept(kLast, at(row, s.hidden, column), active));
    });
  }

  void lstm() {
    const int64_t h = s.hidden;
    project(0, 4 * h, kLstmGates, 4 * h);
    elements([&](Value row, Value column, Value active) {
      auto gate = [&](int64_t i) { return at(step, row, 4 * h, column, i * h); };
      auto peephole = [&](int64_t i) {
        return load(unsigned(operand.extra), plus(column, loops.index(i * h)), active);
      };
      Value here = at(row, h, column);
      Lane cell = kept(kLastCell, here, active), before = kept(kLast, here, active);
      Lane i = kept(kLstmGates, gate(0), active), o = kept(kLstmGates, gate(1), active);
      Lane f = kept(kLstmGates, gate(2), active), c = kept(kLstmGates, gate(3), active);
      if (operand.extra >= 0)
        i = i + peephole(0) * cell;
      i = activate(s, 0, i);
      if (s.coupled) {
        f = 1.0 - i;
      } else {
        if (operand.extra >= 0)
          f = f + peephole(2) * cell;
        f = activate(s, 0, f);
      }
      c = activate(s, 1, c);
      Lane next = f * cell + i * c;
      if (operand.extra >= 0)
        o = o + peephole(1) * next;
      o = activate(s, 0, o);
      Lane state = o * activate(s, 2, next);
      next = choose(isAlive(operand.lengths, row, step), next, cell);
      for (auto [index, value] : llvm::enumerate(std::array{i, o, f, c}))
        loops.store(kLstmGates, gate(int64_t(index)), value, active);
      loops.store(kCells, at(step, row, h, column), next, active);
      loops.store(kLastCell, here, next, active);
      setState(row, column, active, state, before);
    });
  }

  void gru() {
    const int64_t h = s.hidden;
    project(0, 2 * h, kGruGates, 3 * h);
    elements([&](Value row, Value column, Value active) {
      for (int64_t i : {0, 1}) {
        Value index = at(step, row, 3 * h, column, i * h);
        loops.store(kGruGates, index, activate(s, 0, kept(kGruGates, index, active)), active);
      }
    });
    auto resetState = [&](Value row, Value k) -> Value {
      Value reset = loops.loadResult(kGruGates, at(step, row, 3 * h, k, h));
      return arith::MulFOp::create(b, loc, reset, lastState(row, k));
    };
    multiply({h, h, resetState, 1, 3 * h, 2 * h,
              [&](Value row, Value column, Value active) { return projected(row, column, active, 2 * h); },
              [&](Value row, Value column, Value value, Value active) {
                loops.store(kGruGates, at(step, row, 3 * h, column, 2 * h), value, active);
              }});
    elements([&](Value row, Value column, Value active) {
      Value index = at(step, row, 3 * h, column, 2 * h);
      Lane z = kept(kGruGates, at(step, row, 3 * h, column), active), before = kept(kLast, at(row, h, column), active);
      Lane candidate = activate(s, 1, kept(kGruGates, index, active));
      loops.store(kGruGates, index, candidate, active);
      setState(row, column, active, (1.0 - z) * candidate + z * before, before);
    });
  }

  void gruResetAfter() {
    const int64_t h = s.hidden;
    project(0, 2 * h, kGruGates, 4 * h);
    multiply({h, h, [&](Value row, Value k) { return lastState(row, k); }, 1, 3 * h, 2 * h,
              [&](Value, Value column, Value active) -> Value {
                return operand.extra >= 0 ? load(unsigned(operand.extra), column, active) : zero(element);
              },
              [&](Value row, Value column, Value value, Value active) {
                loops.store(kGruGates, at(step, row, 4 * h, column, 2 * h), value, active);
              }});
    elements([&](Value row, Value column, Value active) {
      auto gate = [&](int64_t i) { return at(step, row, 4 * h, column, i * h); };
      Lane before = kept(kLast, at(row, h, column), active);
      Lane z = activate(s, 0, kept(kGruGates, gate(0), active)), r = activate(s, 0, kept(kGruGates, gate(1), active));
      Lane x(math, projected(row, column, active, 2 * h));
      Lane candidate = activate(s, 1, x + r * kept(kGruGates, gate(2), active));
      loops.store(kGruGates, gate(0), z, active);
      loops.store(kGruGates, gate(1), r, active);
      loops.store(kGruGates, gate(3), candidate, active);
      setState(row, column, active, (1.0 - z) * candidate + z * before, before);
    });
  }

  Type element;
  RecurrentOperands operand;
  Value step;
};

//===----------------------------------------------------------------------===//
// Backward
//===----------------------------------------------------------------------===//

class Backward : Steps {
public:
  Backward(LoopBuilder &loops, const CellSettings &settings, RecurrentGradOp op, Value tile)
      : Steps(loops, settings, elementTypeOf(op.getWeight()), tile), element(elementTypeOf(op.getWeight())),
        operand(op) {}

  void emit() {
    auto start = [&](int given, Value index, Value active) {
      return given >= 0 ? load(unsigned(given), index, active) : zero(element);
    };
    elements([&](Value row, Value column, Value active) {
      Value index = at(row, s.hidden, column);
      loops.store(kState, index, start(operand.lastGrad, index, active), active);
      if (s.cell == RecurrentCell::lstm)
        loops.store(kMore, index, start(operand.lastCellGrad, index, active), active);
    });
    each(loops.index(0), loops.index(s.steps), 1, [&](Value i) {
      step = s.reverse ? i : arith::SubIOp::create(b, loc, loops.index(s.steps - 1), i).getResult();
      switch (s.cell) {
      case RecurrentCell::rnn:
        return rnn();
      case RecurrentCell::gru:
        return gru();
      case RecurrentCell::gru_reset_after:
        return gruResetAfter();
      case RecurrentCell::lstm:
        return lstm();
      }
    });
  }

private:
  static constexpr unsigned kGates = 0, kState = 1, kMore = 2;

  /// The gradient of this step's state, from its reader and from later steps.
  Lane stateGrad(Value row, Value column, Value active) {
    Lane sum = kept(kState, at(row, s.hidden, column), active);
    if (operand.statesGrad >= 0)
      sum = sum + load(unsigned(operand.statesGrad), at(step, row, s.hidden, column), active);
    return sum;
  }
  Lane keptOperand(unsigned i, Value index, Value active) { return load(unsigned(operand.kept) + i, index, active); }
  void setGate(Value row, Value column, Value active, int64_t gate, Value alive, Lane grad) {
    loops.store(kGates, at(step, row, s.gates() * s.hidden, column, gate * s.hidden), choose(alive, grad, grad.like(0)),
                active);
  }
  /// The state's gradient += gates [first, first + depth)·weight.
  void addProduct(int64_t first, int64_t depth, unsigned gates, int64_t width, int64_t offset) {
    multiply({s.hidden, depth,
              [&](Value row, Value k) { return loops.loadResult(gates, at(step, row, width, k, offset)); }, 0, s.hidden,
              first * s.hidden,
              [&](Value row, Value column, Value active) { return kept(kState, at(row, s.hidden, column), active); },
              [&](Value row, Value column, Value value, Value active) {
                loops.store(kState, at(row, s.hidden, column), value, active);
              }});
  }

  void rnn() {
    elements([&](Value row, Value column, Value active) {
      Value alive = isAlive(operand.lengths, row, step);
      Lane g = stateGrad(row, column, active);
      Lane y = keptOperand(0, at(step, row, s.hidden, column), active);
      setGate(row, column, active, 0, alive, g * slope(s, 0, y));
      loops.store(kState, at(row, s.hidden, column), choose(alive, g.like(0), g), active);
    });
    addProduct(0, s.hidden, kGates, s.hidden, 0);
  }

  void lstm() {
    const int64_t h = s.hidden;
    elements([&](Value row, Value column, Value active) {
      Value alive = isAlive(operand.lengths, row, step), here = at(row, h, column), now = at(step, row, h, column);
      auto gate = [&](int64_t i) { return keptOperand(0, at(step, row, 4 * h, column, i * h), active); };
      auto peephole = [&](int64_t i) {
        return load(unsigned(operand.extra), plus(column, loops.index(i * h)), active);
      };
      Lane g = stateGrad(row, column, active), carried = kept(kMore, here, active);
      Lane i = gate(0), o = gate(1), f = gate(2), c = gate(3);
      Lane cell = keptOperand(1, now, active), before = keptOperand(2, now, active);
      Lane shown = activate(s, 2, cell);
      Lane outGate = g * shown * slope(s, 0, o);
      Lane cellGrad = carried + g * o * slope(s, 2, shown);
      if (operand.extra >= 0)
        cellGrad = cellGrad + outGate * peephole(1);
      Lane inGate = cellGrad * (s.coupled ? c - before : c) * slope(s, 0, i);
      Lane forgetGate = s.coupled ? g.like(0) : cellGrad * before * slope(s, 0, f);
      Lane candidate = cellGrad * i * slope(s, 1, c);
      Lane next = cellGrad * f;
      if (operand.extra >= 0) {
        next = next + inGate * peephole(0);
        if (!s.coupled)
          next = next + forgetGate * peephole(2);
      }
      for (auto [index, value] : llvm::enumerate(std::array{inGate, outGate, forgetGate, candidate}))
        setGate(row, column, active, int64_t(index), alive, value);
      loops.store(kMore, here, choose(alive, next, carried), active);
      loops.store(kState, here, choose(alive, g.like(0), g), active);
    });
    addProduct(0, 4 * h, kGates, 4 * h, 0);
  }

  void gru() {
    const int64_t h = s.hidden;
    auto gate = [&](Value row, Value column, Value active, int64_t i) {
      return keptOperand(0, at(step, row, 3 * h, column, i * h), active);
    };
    elements([&](Value row, Value column, Value active) {
      Value alive = isAlive(operand.lengths, row, step);
      Lane g = stateGrad(row, column, active), before = keptOperand(1, at(step, row, h, column), active);
      Lane z = gate(row, column, active, 0), candidate = gate(row, column, active, 2);
      setGate(row, column, active, 0, alive, g * (before - candidate) * slope(s, 0, z));
      setGate(row, column, active, 2, alive, g * (1.0 - z) * slope(s, 1, candidate));
      loops.store(kState, at(row, h, column), choose(alive, g * z, g), active);
    });
    // The gradient of reset·state is kept where the reset gate's gradient will be stored.
    multiply({h, h, [&](Value row, Value k) { return loops.loadResult(kGates, at(step, row, 3 * h, k, 2 * h)); }, 0, h,
              2 * h * h, [&](Value, Value, Value) -> Value { return zero(element); },
              [&](Value row, Value column, Value value, Value active) {
                loops.store(kGates, at(step, row, 3 * h, column, h), value, active);
              }});
    elements([&](Value row, Value column, Value active) {
      Value here = at(row, h, column), index = at(step, row, 3 * h, column, h);
      Lane product = kept(kGates, index, active), before = keptOperand(1, at(step, row, h, column), active);
      Lane r = gate(row, column, active, 1);
      loops.store(kState, here, kept(kState, here, active) + product * r, active);
      loops.store(kGates, index, product * before * slope(s, 0, r), active);
    });
    addProduct(0, 2 * h, kGates, 3 * h, 0);
  }

  void gruResetAfter() {
    const int64_t h = s.hidden;
    elements([&](Value row, Value column, Value active) {
      Value alive = isAlive(operand.lengths, row, step);
      auto gate = [&](int64_t i) { return keptOperand(0, at(step, row, 4 * h, column, i * h), active); };
      Lane g = stateGrad(row, column, active), before = keptOperand(1, at(step, row, h, column), active);
      Lane z = gate(0), r = gate(1), q = gate(2), candidate = gate(3);
      Lane hidden = g * (1.0 - z) * slope(s, 1, candidate), inner = hidden * r;
      setGate(row, column, active, 0, alive, g * (before - candidate) * slope(s, 0, z));
      setGate(row, column, active, 1, alive, hidden * q * slope(s, 0, r));
      setGate(row, column, active, 2, alive, hidden);
      loops.store(kMore, at(step, row, h, column), choose(alive, inner, inner.like(0)), active);
      loops.store(kState, at(row, h, column), choose(alive, g * z, g), active);
    });
    addProduct(0, 2 * h, kGates, 3 * h, 0);
    addProduct(2 * h, h, kMore, h, 0);
  }

  Type element;
  RecurrentGradOperands operand;
  Value step;
};

template <typename OpTy, typename Emitter>
struct RecurrentLoops : LoopKernel::ExternalModel<RecurrentLoops<OpTy, Emitter>, OpTy> {
  int64_t getTileCount(Operation *op) const { return llvm::divideCeil(settingsOf(cast<OpTy>(op)).batch, kTileRows); }
  void emitTile(Operation *op, LoopBuilder &loops, Value tile) const {
    CellSettings settings = settingsOf(cast<OpTy>(op));
    Emitter(loops, settings, cast<OpTy>(op), tile).emit();
  }
};

} // namespace

void attachRecurrent(MLIRContext &context) {
  RecurrentOp::attachInterface<RecurrentLoops<RecurrentOp, Forward>>(context);
  RecurrentGradOp::attachInterface<RecurrentLoops<RecurrentGradOp, Backward>>(context);
}

} // namespace tcc::train

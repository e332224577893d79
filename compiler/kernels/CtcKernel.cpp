//===- CtcKernel.cpp - the loops of CTC -------------------------*- C++ -*-===//
//
// A tile is one sample. Each step first gathers the probabilities of the states' classes, one by one, into a row of
// scratch. Vectors of states then update a row in place: the forward recursion in descending order, since a state reads
// the two before it, the backward one in ascending order. Two elements of padding hold −∞, so that no state is special.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Ctc.h"
#include "compiler/dialect/Indexing.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/ScalarFunctions.h"
#include "compiler/kernels/BlockProduct.h"
#include "compiler/kernels/Kernels.h"

using namespace mlir;

namespace tcc::train {
namespace {

using scalar::kInfinity;

/// Elements of one row of scratch: the states and two elements of padding.
int64_t ctcRowElements(const CtcShape &s) { return llvm::alignTo(s.states() + 2, 16); }

int64_t ctcScratchBytes(const CtcShape &s, Type element, int64_t rows) {
  return llvm::alignTo(rows * ctcRowElements(s) * elementBytes(element), 64);
}

/// The part that both recursions share. Operands are numbered from the log-probabilities on.
class CtcSweep {
public:
  CtcSweep(LoopBuilder &loops, const CtcShape &s, Type element, unsigned logProbs, Value sample)
      : loops(loops), s(s), element(element), logProbs(logProbs), width(loops.lanes(element)), scalars(loops, 1),
        vectors(loops, width), sample(loops, sample), steps(bounded(logProbs + 2, s.steps)),
        labels(bounded(logProbs + 3, s.labels)), states(labels * 2 + 1) {}

protected:
  enum Row : int64_t { kState, kSkip, kLogProb, kPosterior };

  void each(Value lower, Value upper, int64_t step, llvm::function_ref<void(Index)> body) {
    loops.loop(lower, upper, step, {}, [&](Value i, ValueRange) -> llvm::SmallVector<Value> {
      body(Index(loops, i));
      return {};
    });
  }
  Index index(int64_t value) { return Index(loops, value); }
  Lane one(Value value) { return Lane(scalars, value); }
  Lane constant(double value) { return one(scalars.constant(element, value)); }
  /// A length of this sample, kept within [0, most].
  Index bounded(unsigned operand, int64_t most) {
    Value length = loops.load(operand, sample);
    return Index(loops, length).make<arith::MaxSIOp>(loops.index(0)).atMost(most);
  }

  Index place(Row row, Value column) { return index(int64_t(row) * ctcRowElements(s)) + column; }
  Lane read(Row row, Value column, Value active) {
    return Lane(vectors, loops.loadScratch(element, place(row, column), width, active));
  }
  Lane readOne(Row row, Value column) { return one(loops.loadScratch(element, place(row, column))); }
  void write(Row row, Value column, Value value, Value active = nullptr) {
    loops.storeScratch(element, place(row, column), value, active);
  }

  /// Result `result` of this sample, all `count` elements.
  void fill(unsigned result, int64_t count, double value) {
    Value all = vectors.constant(element, value);
    each(index(0), index(count), width,
         [&](Index i) { loops.store(result, sample * count + i, all, index(count) - i); });
  }

  /// Class `label` as an index, and whether it is in range.
  std::pair<Index, Value> classOf(Value label) {
    Value isClass =
        arith::CmpIOp::create(loops.builder, loops.loc, arith::CmpIPredicate::ult, label, loops.index(s.classes));
    Value inside = arith::SelectOp::create(loops.builder, loops.loc, isClass, label, loops.index(0));
    return {Index(loops, inside), isClass};
  }
  Value labelAt(Index number) { return loops.load(logProbs + 1, sample * s.labels + number); }
  Index classAt(Index step, Value label) { return (sample * s.steps + step) * s.classes + label; }

  /// Sets the row of states and its padding to −∞, except for a 0 at `start`, and marks the states that an alignment
  /// may reach from the state two before: labels that differ from the previous label.
  void begin(Index start) {
    Index end = states + 2;
    Value none = vectors.constant(element, -kInfinity), zero = vectors.constant(element, 0);
    each(index(0), end, width, [&](Index i) {
      write(kState, i, none, end - i);
      write(kSkip, i, zero, end - i);
    });
    write(kState, start, constant(0));
    each(index(1), labels, 1, [&](Index i) {
      Lane differs =
          one(arith::CmpIOp::create(loops.builder, loops.loc, arith::CmpIPredicate::ne, labelAt(i), labelAt(i - 1)));
      write(kSkip, i * 2 + 1, differs.select(constant(1), constant(0)));
    });
  }

  /// Gathers the states' log-probabilities of `step`.
  void gather(Index step) {
    Value blank = loops.load(logProbs, classAt(step, loops.index(s.blank)));
    each(index(0), labels, 1, [&](Index i) {
      auto [label, isClass] = classOf(labelAt(i));
      Lane known = one(loops.load(logProbs, classAt(step, label)));
      write(kLogProb, i * 2, blank);
      write(kLogProb, i * 2 + 1, one(isClass).select(known, constant(scalar::kNaN)));
    });
    write(kLogProb, labels * 2, blank);
  }

  /// ln(e^a + e^b + e^c), computed relative to the largest.
  static Lane logSum(Lane a, Lane b, Lane c) {
    Lane most = less(a, b).select(b, a);
    most = less(most, c).select(c, most);
    most = equal(most, -kInfinity).select(most.like(0), most);
    return most + scalar::log(scalar::exp(a - most) + scalar::exp(b - most) + scalar::exp(c - most));
  }
  static Lane reached(Lane skip, Lane value) { return equal(skip, 1).select(value, value.like(-kInfinity)); }

  LoopBuilder &loops;
  const CtcShape &s;
  Type element;
  unsigned logProbs;
  int64_t width;
  LaneArithmetic scalars, vectors;
  Index sample, steps, labels, states;
};

/// State i is element i + 2 of its row, after the padding: a state reads the two before it.
class CtcForward : CtcSweep {
public:
  CtcForward(LoopBuilder &loops, const CtcShape &s, CtcOp op, Value tile)
      : CtcSweep(loops, s, elementTypeOf(op.getLogProbs()), 0, tile) {}

  void emit() {
    fill(kAlphas, s.steps * s.states(), -kInfinity);
    begin(index(2));
    Index blocks = (states + (width - 1)) / width;
    each(index(0), steps, 1, [&](Index step) {
      gather(step);
      each(index(0), blocks, 1, [&](Index block) {
        Index column = (blocks - 1 - block) * width;
        Value active = states - column;
        Lane skipped = reached(read(kSkip, column, active), read(kState, column, active));
        Lane sum = logSum(read(kState, column + 2, active), read(kState, column + 1, active), skipped);
        Lane alpha = read(kLogProb, column, active) + sum;
        write(kState, column + 2, alpha, active);
        loops.store(kAlphas, (sample * s.steps + step) * s.states() + column, alpha, active);
      });
    });
    Lane sum = logSum(readOne(kState, states + 1), readOne(kState, states), constant(-kInfinity));
    loops.store(kLoss, sample, constant(0) - sum);
  }

private:
  static constexpr unsigned kLoss = 0, kAlphas = 1;
};

/// State i is element i of its row, before the padding: a state reads the two after it.
class CtcBackward : CtcSweep {
public:
  CtcBackward(LoopBuilder &loops, const CtcShape &s, CtcGradOp op, Value tile)
      : CtcSweep(loops, s, elementTypeOf(op.getLogProbs()), 1, tile) {}

  void emit() {
    fill(0, s.steps * s.classes, 0);
    begin(states - 1);
    Lane lossGrad = one(loops.load(kLossGrad, sample)), loss = one(loops.load(kLoss, sample));
    Lane lossGrads(vectors, vectors.splat(lossGrad)), losses(vectors, vectors.splat(loss));
    each(index(0), steps, 1, [&](Index number) {
      Index step = steps - 1 - number;
      gather(step);
      each(index(0), states, width, [&](Index column) {
        Value active = states - column;
        Lane skipped = reached(read(kSkip, column + 2, active), read(kState, column + 2, active));
        Lane beta = logSum(read(kState, column, active), read(kState, column + 1, active), skipped);
        Lane alpha(vectors, loops.load(kAlphas, (sample * s.steps + step) * s.states() + column, width, active));
        Lane both = alpha + beta;
        Lane posterior = equal(both, -kInfinity).select(both.like(0), scalar::exp(both + losses));
        write(kPosterior, column, lossGrads * posterior, active);
        write(kState, column, beta + read(kLogProb, column, active), active);
      });
      scatter(step);
    });
  }

private:
  static constexpr unsigned kLossGrad = 0, kLoss = 5, kAlphas = 6;

  void subtract(Index place, Lane value) { loops.store(0, place, one(loops.loadResult(0, place)) - value); }

  /// Subtracts the posteriors from the gradients of the states' classes.
  void scatter(Index step) {
    each(index(0), labels, 1, [&](Index i) {
      Index label = classOf(labelAt(i)).first;
      subtract(classAt(step, label), readOne(kPosterior, i * 2 + 1));
    });
    Value blanks = loops.loop(index(0), labels + 1, 1, Value(constant(0)),
                              [&](Value i, ValueRange sum) -> llvm::SmallVector<Value> {
                                return {one(sum[0]) + readOne(kPosterior, Index(loops, i) * 2)};
                              })[0];
    subtract(classAt(step, loops.index(s.blank)), one(blanks));
  }
};

template <typename OpTy, typename Emitter, int64_t kRows>
struct CtcLoops : LoopKernel::ExternalModel<CtcLoops<OpTy, Emitter, kRows>, OpTy> {
  int64_t getTileCount(Operation *op) const { return ctcShapeOf(cast<OpTy>(op)).samples; }
  int64_t getScratchBytes(Operation *op) const {
    auto ctc = cast<OpTy>(op);
    return ctcScratchBytes(ctcShapeOf(ctc), elementTypeOf(ctc.getLogProbs()), kRows);
  }
  void emitTile(Operation *op, LoopBuilder &loops, Value tile) const {
    auto ctc = cast<OpTy>(op);
    CtcShape shape = ctcShapeOf(ctc);
    Emitter(loops, shape, ctc, tile).emit();
  }
};

} // namespace

void attachCtc(MLIRContext &context) {
  CtcOp::attachInterface<CtcLoops<CtcOp, CtcForward, 3>>(context);
  CtcGradOp::attachInterface<CtcLoops<CtcGradOp, CtcBackward, 4>>(context);
}

} // namespace tcc::train

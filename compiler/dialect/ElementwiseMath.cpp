#include "compiler/dialect/ElementwiseMath.h"
#include "compiler/dialect/Lane.h"
using namespace mlir;
namespace tcc::train {
#define U(N, O) Value emit##N(ElementBuilder &b, Value x) { return math::O::create(b.builder, b.loc, x); }
U(Exp, ExpOp) U(Log, LogOp) U(Log1p, Log1pOp) U(Tanh, TanhOp) U(Erf, ErfOp) U(Sin, SinOp) U(Cos, CosOp)
Value emitSigmoid(ElementBuilder &b, Value v) { Lane x(b, v); return 1.0 / (1.0 + x.with(emitExp(b, -x))); }
Value emitPow(ElementBuilder &b, Value x, Value y) { return math::PowFOp::create(b.builder, b.loc, x, y); }
Value emitFmod(ElementBuilder &b, Value x, Value y) { return arith::RemFOp::create(b.builder, b.loc, x, y); }
Value emitRoundToOdd(ElementBuilder &b, Value x) { Lane l(b, x); return l.isDouble() ? l.toSingle() : l; }
} // namespace tcc::train

//===- Recurrent.cpp - RNN, GRU and LSTM ----------------------------------===//
//
// The input's part of all steps is one matrix product; the recurrence of each direction is a train.recurrent. 16-bit
// types are computed in f32.
//
//===----------------------------------------------------------------------===//
#include "frontend/NodeImport.h"

#include <cctype>

using namespace mlir;

namespace tcc::frontend {
namespace recurrent { // named, since files share a translation unit
namespace {

using train::CellActivation;
using train::Expr;
using train::RecurrentCell;

struct ActivationName {
  std::string_view name;
  CellActivation kind;
  bool alpha = false, beta = false; ///< which parameters it has
  double alphaDefault = 0, betaDefault = 0;
};
constexpr ActivationName kActivations[] = {
    {"tanh", CellActivation::tanh},
    {"sigmoid", CellActivation::sigmoid},
    {"relu", CellActivation::relu},
    {"affine", CellActivation::affine, true, true, 1, 0},
    {"leakyrelu", CellActivation::leaky_relu, true, false, 0.01},
    {"thresholdedrelu", CellActivation::thresholded_relu, true, false, 1},
    {"scaledtanh", CellActivation::scaled_tanh, true, true, 1, 1},
    {"hardsigmoid", CellActivation::hard_sigmoid, true, true, 0.2, 0.5},
    {"elu", CellActivation::elu, true, false, 1},
    {"softsign", CellActivation::softsign},
    {"softplus", CellActivation::softplus},
};

struct Activations {
  llvm::SmallVector<int32_t> kinds;
  llvm::SmallVector<double> alphas, betas;
};

/// The activations of all directions, one after another. Alphas and betas go to those that take one, in order.
Expected<Activations> activationsOf(NodeImport &n, llvm::ArrayRef<std::string_view> defaults, int64_t directions) {
  std::vector<std::string> names;
  if (const onnx::AttributeProto *given = n.attribute("activations"))
    names.assign(given->strings().begin(), given->strings().end());
  if (names.empty())
    for (int64_t d = 0; d < directions; ++d)
      names.insert(names.end(), defaults.begin(), defaults.end());
  if (names.size() != size_t(directions) * defaults.size())
    return error("{} activations are given, {} are needed: {} for each direction", names.size(),
                       size_t(directions) * defaults.size(), defaults.size());
  auto list = [&](std::string_view attribute) {
    const onnx::AttributeProto *given = n.attribute(attribute);
    return given ? llvm::SmallVector<double>(given->floats().begin(), given->floats().end())
                 : llvm::SmallVector<double>();
  };
  llvm::SmallVector<double> alphas = list("activation_alpha"), betas = list("activation_beta");
  Activations result;
  size_t nextAlpha = 0, nextBeta = 0;
  for (const std::string &given : names) {
    std::string lower;
    for (char c : given)
      lower += char(std::tolower(static_cast<unsigned char>(c)));
    const ActivationName *found = llvm::find_if(kActivations, [&](const ActivationName &a) { return a.name == lower; });
    if (found == std::end(kActivations))
      return error(
          "the activation {} is unknown; ONNX has Relu, Tanh, Sigmoid, Affine, LeakyRelu, ThresholdedRelu, "
          "ScaledTanh, HardSigmoid, Elu, Softsign and Softplus",
          given);
    double alpha = found->alphaDefault, beta = found->betaDefault;
    if (found->alpha && nextAlpha < alphas.size())
      alpha = alphas[nextAlpha++];
    if (found->beta && nextBeta < betas.size())
      beta = betas[nextBeta++];
    if (alpha < 0 && (found->kind == CellActivation::leaky_relu || found->kind == CellActivation::elu))
      return error(
          "{} with the negative alpha {} is not supported: its value does not tell whether its argument is negative; "
          "write the cell with Scan",
          given, alpha);
    result.kinds.push_back(int32_t(found->kind));
    result.alphas.push_back(alpha);
    result.betas.push_back(beta);
  }
  return result;
}

struct Layer {
  RecurrentCell cell;
  int64_t gates;
  llvm::SmallVector<std::string_view> activations;
  bool cells = false; ///< has a cell state, too (LSTM)
};

/// Checks an input's shape.
Status checkShape(NodeImport &n, unsigned i, llvm::ArrayRef<int64_t> expected, const char *what) {
  if (n.has(i) && n.shape(i) != expected)
    return error("{} has the shape {}, not {}", what, shapeText(n.shape(i)), shapeText(expected));
  return Status::success();
}

Status import(NodeImport &n, const Layer &layer) {
  if (n.rank(0) != 3 || n.rank(1) != 3 || n.rank(2) != 3)
    return error("X, W and R must have three dimensions, not {}, {} and {}", typeText(n.in(0)), typeText(n.in(1)),
                       typeText(n.in(2)));
  std::string direction = n.stringAttr("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return error("the direction \"{}\" is unknown; it is forward, reverse or bidirectional", direction);
  const bool batchFirst = n.intAttr("layout", 0) != 0;
  const int64_t directions = direction == "bidirectional" ? 2 : 1, gates = layer.gates;
  const int64_t steps = n.shape(0)[batchFirst ? 1 : 0], batch = n.shape(0)[batchFirst ? 0 : 1],
                features = n.shape(0)[2];
  const int64_t hidden = n.shape(2)[2];
  if (int64_t given = n.intAttr("hidden_size", hidden); given != hidden)
    return error("hidden_size is {}, but R has {} columns", given, hidden);
  if (steps == 0 || batch == 0 || hidden == 0)
    return error("X ({}) and R ({}) must have elements", typeText(n.in(0)), typeText(n.in(2)));
  const Shape stateShape = batchFirst ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  for (Status status : {checkShape(n, 1, {directions, gates * hidden, features}, "W"),
                        checkShape(n, 2, {directions, gates * hidden, hidden}, "R"),
                        checkShape(n, 3, {directions, 2 * gates * hidden}, "B"),
                        checkShape(n, 4, {batch}, "sequence_lens"), checkShape(n, 5, stateShape, "initial_h")})
    if (!status.ok())
      return status;
  if (layer.cells) {
    for (Status status : {checkShape(n, 6, stateShape, "initial_c"), checkShape(n, 7, {directions, 3 * hidden}, "P")})
      if (!status.ok())
        return status;
  }
  TCC_TRY(activations, activationsOf(n, layer.activations, directions));

  const Type stored = train::elementTypeOf(n.in(0));
  if (!isa<FloatType>(stored))
    return error("X must be floating-point, not {}", typeText(n.in(0)));
  const Type element = stored.isF64() ? stored : Type(n.builder.getF32Type());
  auto wide = [&](unsigned i) { return n.expr(i).cast(element); };
  auto ofDirection = [&](unsigned i, int64_t d, Shape shape) -> Expr {
    return n.expr(n.reshape(n.slice(wide(i), 0, d, 1), shape));
  };
  Value x = wide(0);
  if (batchFirst)
    x = train::transpose(n.builder, n.loc, x, {1, 0, 2});
  x = n.reshape(x, {1, steps * batch, features});

  // Constant lengths that all cover every step are ignored.
  Value lengths = n.has(4) ? n.in(4) : Value();
  if (lengths && !isa<IntegerType>(train::elementTypeOf(lengths)))
    return error("sequence_lens must be integers, not {}", typeText(lengths));
  if (lengths && n.constantOf(lengths)) {
    TCC_TRY(given, n.ints(4));
    if (llvm::all_of(given, [&](int64_t length) { return length >= steps; }))
      lengths = nullptr;
  }
  auto initial = [&](unsigned i, int64_t d) -> Value {
    if (!n.has(i))
      return n.splat({batch, hidden}, element, 0);
    return n.reshape(n.slice(wide(i), batchFirst ? 1 : 0, d, 1), {batch, hidden});
  };

  llvm::SmallVector<Value> states, last, lastCells;
  const size_t perDirection = layer.activations.size();
  for (int64_t d = 0; d < directions; ++d) {
    Value weight = n.reshape(n.slice(wide(1), 0, d, 1), {1, gates * hidden, features});
    Type productType = n.type({1, steps * batch, gates * hidden}, element);
    Value product = train::MatMulOp::create(n.builder, n.loc, productType, x, weight, false, true);
    Expr projected = n.expr(n.reshape(product, {steps, batch, gates * hidden}));
    Value extra;
    if (n.has(3)) {
      Value both = ofDirection(3, d, {2 * gates * hidden});
      Expr input = n.expr(n.slice(both, 0, 0, gates * hidden));
      Value own = n.slice(both, 0, gates * hidden, gates * hidden);
      if (layer.cell == RecurrentCell::gru_reset_after) {
        extra = n.slice(own, 0, 2 * hidden, hidden);
        Value outside = n.slice(own, 0, 0, 2 * hidden), none = n.splat({hidden}, element, 0);
        own = train::ConcatOp::create(n.builder, n.loc, n.type({gates * hidden}, element),
                                      llvm::SmallVector<Value>{outside, none}, 0);
      }
      projected = projected + (input + n.expr(own)).broadcast({steps, batch, gates * hidden});
    }
    if (layer.cells && n.has(7))
      extra = ofDirection(7, d, {3 * hidden});
    Value recurrent = train::transpose(n.builder, n.loc, ofDirection(2, d, {gates * hidden, hidden}), {1, 0});
    llvm::SmallVector<Type> types = {n.type({steps, batch, hidden}, element), n.type({batch, hidden}, element)};
    if (layer.cells)
      types.append({n.type({batch, hidden}, element), n.type({steps, batch, 4 * hidden}, element),
                    n.type({steps, batch, hidden}, element)});
    else if (layer.cell != RecurrentCell::rnn)
      types.push_back(n.type({steps, batch, (layer.cell == RecurrentCell::gru ? 3 : 4) * hidden}, element));
    auto own = [&](auto &list) { return llvm::ArrayRef(list).slice(size_t(d) * perDirection, perDirection); };
    auto op = train::RecurrentOp::create(
        n.builder, n.loc, types, projected, recurrent, initial(5, d), layer.cells ? initial(6, d) : Value(), extra,
        lengths, layer.cell, own(activations.kinds), own(activations.alphas), own(activations.betas),
        llvm::APFloat(std::max(0.0, n.floatAttr("clip", 0))), layer.cells && n.intAttr("input_forget", 0) != 0,
        direction == "reverse" || d == 1);
    Expr y = n.expr(op.getStates());
    if (lengths) { // zeros from a sample's length on
      Value own = n.reshape(n.expr(lengths).cast(n.i64()), {1, batch, 1});
      Expr step = n.expr(n.iota({steps, batch, hidden}, 0));
      y = step.compare(train::CompareKind::lt, n.expr(own)).select(y, y.like(0));
    }
    states.push_back(y.reshape({steps, 1, batch, hidden}));
    last.push_back(n.reshape(op.getLast(), {1, batch, hidden}));
    if (layer.cells)
      lastCells.push_back(n.reshape(op.getKept()[0], {1, batch, hidden}));
  }
  // Concatenate the directions, and transpose to the requested layout.
  auto output = [&](unsigned i, llvm::ArrayRef<Value> parts, int64_t dim, llvm::ArrayRef<int64_t> order) -> Status {
    Value all = parts[0];
    if (parts.size() > 1) {
      Shape shape(train::shapeOf(all));
      shape[size_t(dim)] = int64_t(parts.size());
      all = train::ConcatOp::create(n.builder, n.loc, n.type(shape, element), parts, dim);
    }
    if (batchFirst)
      all = train::transpose(n.builder, n.loc, all, order);
    return n.set(i, train::cast(n.builder, n.loc, all, stored));
  };
  if (Status status = output(0, states, 1, {2, 0, 1, 3}); !status.ok())
    return status;
  if (Status status = output(1, last, 0, {1, 0, 2}); !status.ok())
    return status;
  return layer.cells ? output(2, lastCells, 0, {1, 0, 2}) : Status::success();
}

Status rnn(NodeImport &n) { return import(n, {RecurrentCell::rnn, 1, {"tanh"}}); }
Status gru(NodeImport &n) {
  bool after = n.intAttr("linear_before_reset", 0) != 0;
  return import(n, {after ? RecurrentCell::gru_reset_after : RecurrentCell::gru, 3, {"sigmoid", "tanh"}});
}
Status lstm(NodeImport &n) { return import(n, {RecurrentCell::lstm, 4, {"sigmoid", "tanh", "tanh"}, true}); }

constexpr OpEntry kTable[] = {{"RNN", 3, rnn}, {"GRU", 3, gru}, {"LSTM", 3, lstm}};

} // namespace
} // namespace recurrent

std::span<const OpEntry> recurrentOps() { return recurrent::kTable; }

} // namespace tcc::frontend

//===- Modes.cpp - Dropout and BatchNormalization -------------------------===//
//
// Whether a node is in training mode is decided by the export, or by the recipe (model.batch_norm, model.dropout). Such
// a node becomes one op with an inference form; each entry chooses one of the two. Running statistics are variables,
// whose next values are written beside the batch norm.
//
//===----------------------------------------------------------------------===//
#include "frontend/ops/Modes.h"
#include "compiler/recipe/Recipe.h"
#include "frontend/Draws.h"
#include "frontend/ModeNodes.h"
#include "frontend/TorchNotes.h"
#include "support/PlanNames.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>

using namespace mlir;

namespace tcc::frontend {
namespace modes { // named, since files share a translation unit
namespace {

using train::Expr;

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

/// The probability with which elements are dropped; 0 in inference mode. `ratio` and `mode` are numbers of inputs.
Expected<double> dropProbability(NodeImport &n, unsigned ratio, unsigned mode) {
  double p = n.floatAttr("ratio", 0.5);
  if (n.settings && n.settings->dropout)
    return *n.settings->dropout;
  // Before opset 12 the node has one mode, inference.
  if (!n.has(mode))
    return 0;
  TCC_TRY(training, n.number(mode));
  if (training == 0)
    return 0;
  if (n.has(ratio)) {
    TCC_TRY(given, n.number(ratio));
    p = given;
  }
  if (!(p >= 0 && p <= 1))
    return error("its ratio is {}, which is no probability", p);
  return p;
}

struct Dropped {
  Value result, mask;
};

Dropped drop(NodeImport &n, Value x, double p) {
  Type maskType = n.type(train::shapeOf(x), n.i1());
  if (p == 0)
    return {x, train::splatInt(n.builder, n.loc, maskType, 1)};
  auto op = train::DropoutOp::create(n.builder, n.loc, x.getType(), maskType, x, n.randomKey(), n.randomId(),
                                     llvm::APFloat(p));
  return {op.getResult(), op.getMask()};
}

/// The value behind casts, reshapes and broadcasts.
Value rootOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<train::CastOp, train::ReshapeOp, train::BroadcastOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// The number that all elements of a constant equal.
std::optional<double> numberIn(Value value) {
  auto constant = rootOf(value).getDefiningOp<train::ConstantOp>();
  auto elements = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!elements || !elements.isSplat() || !isa<FloatType>(elements.getElementType()))
    return std::nullopt;
  return elements.getSplatValue<llvm::APFloat>().convertToDouble();
}

/// The probability of 1 if `value` is a draw (uniform < probability).
std::optional<double> drawnProbability(Value value) {
  auto compare = rootOf(value).getDefiningOp<train::CompareOp>();
  if (!compare || compare.getKind() != train::CompareKind::lt)
    return std::nullopt;
  auto draw = rootOf(compare.getOperand(0)).getDefiningOp<train::RandomOp>();
  return draw && draw.getKind() == train::RandomKind::uniform ? numberIn(compare.getOperand(1)) : std::nullopt;
}

Status dropout(NodeImport &n) {
  TCC_TRY(p, dropProbability(n, 1, 2));
  Dropped dropped = drop(n, n.in(0), p);
  if (n.wants(1)) {
    Type maskType = n.opset < 10 ? train::elementTypeOf(n.in(0)) : n.i1();
    (void)n.set(1, n.expr(dropped.mask).cast(maskType));
  }
  return n.result(dropped.result);
}

/// com.microsoft: dropout(data + bias) + residual.
Status biasDropout(NodeImport &n) {
  TCC_TRY(p, dropProbability(n, 3, 4));
  Dropped dropped = drop(n, n.expr(0) + n.expr(1), p);
  if (n.wants(1))
    (void)n.set(1, dropped.mask);
  Expr result = n.expr(dropped.result);
  return n.result(n.has(2) ? result + n.expr(2) : result);
}

//===----------------------------------------------------------------------===//
// BatchNormalization
//===----------------------------------------------------------------------===//

/// The name of the initializer that an input reads, or empty.
std::string initializerOf(Value value) {
  auto read = value.getDefiningOp<train::ReadOp>();
  return read ? read.getVariable().str() : std::string();
}

/// A batch norm under construction: channels are dimension 1 of `x`; scale, bias and statistics have one element each.
class BatchNorm {
public:
  explicit BatchNorm(NodeImport &n) : n(n), x(n.expr(0)) {}

  Status run() {
    if (Status status = arrange(); !status.ok())
      return status;
    if (trains())
      return train();
    Shape spread(train::shapeOf(x).size(), 1);
    spread[1] = channels;
    auto over = [&](unsigned i) { return n.expr(i).cast(train::elementTypeOf(x)).reshape(spread); };
    Expr rstd = (over(4) + epsilon()).apply<train::RsqrtOp>();
    return n.result(((x - over(3)) * (rstd * over(1)) + over(2)).reshape(n.shape(0)));
  }

private:
  double epsilon() const { return n.floatAttr("epsilon", 1e-5); }

  bool trains() const {
    bool exported = n.opset < 14 ? n.wants(1) : n.intAttr("training_mode", 0) != 0;
    if (exported || !n.settings)
      return exported;
    return n.settings->batchNorm == "train" || (n.settings->batchNorm == "auto" && wasTracedInTraining(n.node));
  }

  /// Gives `x` a channel dimension: a vector has one channel. Before opset 9, spatial = 0 had statistics for every
  /// position; each position is a channel then.
  Status arrange() {
    llvm::ArrayRef<int64_t> shape = n.shape(0);
    if (shape.empty())
      return error("BatchNormalization needs at least 1 dimension, not {}", typeText(n.in(0)));
    if (shape.size() == 1)
      x = x.reshape({shape[0], 1});
    else if (n.opset < 9 && n.intAttr("spatial", 1) == 0)
      x = x.reshape({shape[0], countOf(shape.drop_front(1))});
    channels = train::shapeOf(x)[1];
    for (unsigned i = 1; i < 5; ++i)
      if (countOf(n.shape(i)) != channels)
        return error("{} should have {} elements, one for each channel", typeText(n.in(i)), channels);
    return Status::success();
  }

  Status train() {
    Type element = train::elementTypeOf(x), statistic = element.isF64() ? element : Type(n.builder.getF32Type());
    Type vector = n.type({channels}, statistic);
    auto each = [&](unsigned i) { return n.reshape(n.in(i), {channels}); };
    auto op =
        train::BatchNormOp::create(n.builder, n.loc, x.value.getType(), vector, vector, x, each(1), each(2), each(3),
                                   each(4), llvm::APFloat(epsilon()), n.settings && n.settings->syncBatchNorm);
    int64_t count = channels ? countOf(train::shapeOf(x)) / channels : 0;
    Expr mean = n.expr(op.getMean()), variance = n.expr(op.getVariance());
    // The node's outputs: running statistics with the biased variance, and before opset 14 the batch's own statistics.
    if (n.wants(1))
      (void)n.set(1, moved(3, n.in(3), mean));
    if (n.wants(2))
      (void)n.set(2, moved(4, n.in(4), variance));
    if (n.wants(3))
      (void)n.set(3, returned(3, mean));
    if (n.wants(4))
      (void)n.set(4, returned(4, variance));
    // The variables: running statistics with the unbiased variance, as in PyTorch.
    if (!initializerOf(n.in(3)).empty() || !initializerOf(n.in(4)).empty()) {
      if (count == 1)
        return error("BatchNormalization in training mode has 1 value per channel, which has no variance; "
                     "give a larger batch (--shape, --dim), or export in eval() mode and set model.batch_norm = "
                     "\"as-exported\"");
      if (Status status = checkStatistics(); !status.ok())
        return status;
      write(3, mean);
      write(4, op.getSync() ? unbiasedOverRanks(variance, count) : variance * (double(count) / double(count - 1)));
    }
    return n.result(n.expr(op.getResult()).reshape(n.shape(0)));
  }

  /// n/(n − 1) times the biased variance, n being the number of elements of all ranks.
  Expr unbiasedOverRanks(const Expr &variance, int64_t count) {
    Type scalar = RankedTensorType::get({}, train::elementTypeOf(variance));
    Value own = train::splat(n.builder, n.loc, scalar, double(count));
    Expr all = n.expr(
        train::AllReduceOp::create(n.builder, n.loc, TypeRange(scalar), ValueRange(own), uint64_t(0), uint64_t(0))
            ->getResult(0));
    return variance * (all / (all - 1.0));
  }

  Expr returned(unsigned i, const Expr &value) { return value.cast(train::elementTypeOf(n.in(i))).reshape(n.shape(i)); }

  /// running·momentum + batch·(1 − momentum), of input `i`'s type.
  Expr moved(unsigned i, Value running, const Expr &batch) {
    double momentum = n.floatAttr("momentum", 0.9);
    Expr old = n.expr(running).reshape({channels}).cast(train::elementTypeOf(batch));
    return returned(i, old * momentum + batch * (1 - momentum));
  }

  /// Writes the next value. Reads the variable again, since a module that runs twice has written it before.
  void write(unsigned i, const Expr &batch) {
    std::string variable = initializerOf(n.in(i));
    if (variable.empty())
      return;
    Value now = train::ReadOp::create(n.builder, n.loc, n.in(i).getType(), variable);
    train::WriteOp::create(n.builder, n.loc, variable, moved(i, now, batch));
  }

  /// Refuses statistics that an exporter merged with another tensor, which their update would overwrite.
  Status checkStatistics() {
    auto function = n.builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
    std::string scale = initializerOf(n.in(1));
    for (unsigned i : {3u, 4u}) {
      std::string variable = initializerOf(n.in(i));
      auto declared = variable.empty() ? train::VariableOp() : function.lookupSymbol<train::VariableOp>(variable);
      bool merged = declared && declared.getRole() == roles::kParameter;
      for (auto other : n.builder.getInsertionBlock()->getOps<train::BatchNormOp>())
        for (Value read : {other.getRunningMean(), other.getRunningVariance()})
          merged |= !variable.empty() && initializerOf(read) == variable && initializerOf(other.getScale()) != scale;
      if (merged)
        return error("its running statistic {} is used for something else as well: the exporter merged equal "
                           "weights of a fresh model; export after a training step, or without constant folding",
                           variable);
    }
    return Status::success();
  }

  NodeImport &n;
  Expr x;
  int64_t channels = 0;
};

Status batchNorm(NodeImport &n) { return BatchNorm(n).run(); }

//===----------------------------------------------------------------------===//
// Spectral norm
//===----------------------------------------------------------------------===//

constexpr const char *kIterate = "spectral_norm";

/// The variable that the power iteration of the node's module starts from: `_v` of the parametrization, `weight_u` of
/// the older hook. Empty if there is none.
std::string startOf(const NodeImport &n, bool parametrization) {
  const std::vector<std::string> scopes = scopesOf(n.node);
  if (scopes.size() < 2 || scopes[scopes.size() - 2].empty())
    return {};
  const std::string name = scopes[scopes.size() - 2] + (parametrization ? "._v" : ".weight_u");
  auto module = n.builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto variable = module.lookupSymbol<train::VariableOp>(name);
  return variable && variable.getRole() == roles::kFrozen ? name : std::string();
}

constexpr OpEntry kTable[] = {
    OpEntry{"Dropout", 1, dropout}.reading(1),
    {"BatchNormalization", 5, batchNorm},
    OpEntry{"BiasDropout", 2, biasDropout, 1, 1, "com.microsoft"}.reading(3),
};

} // namespace
} // namespace modes

Value droppedWeights(NodeImport &n, Value weights) {
  double p = attentionDropout(n.node);
  if (p > 0 && n.settings && n.settings->dropout)
    p = *n.settings->dropout;
  return modes::drop(n, weights, p).result;
}

Value drawnDropout(NodeImport &n) {
  const std::optional<double> kept = modes::drawnProbability(n.in(0)), divisor = modes::numberIn(n.in(1));
  // The file has both rounded to f32.
  if (!kept || !divisor || !(*kept > 0 && *kept < 1) || std::fabs(*kept - *divisor) > 1e-6)
    return {};
  const double p = n.settings && n.settings->dropout ? *n.settings->dropout : 1 - *kept;
  return modes::drop(n, n.splat(n.shape(0), train::elementTypeOf(n.in(0)), 1), p).result;
}

std::vector<std::string> openDraws(ModuleOp module) {
  std::vector<std::string> nodes;
  module.walk([&](train::CompareOp compare) {
    if (modes::drawnProbability(compare.getResult()))
      nodes.push_back(cast<NameLoc>(modes::rootOf(compare.getOperand(0)).getLoc()).getName().str());
  });
  return nodes;
}

Value stoppedIterate(NodeImport &n) {
  Value value = n.in(0);
  if (tracedTarget(n.node) != "aten.clone.default" || isa_and_nonnull<train::ReadOp>(value.getDefiningOp()) ||
      !train::isFloatTensor(value) || (modes::startOf(n, true).empty() && modes::startOf(n, false).empty()))
    return value;
  return train::StopGradientOp::create(n.builder, n.loc, value, modes::kIterate);
}

void keepIterate(NodeImport &n) {
  const std::string_view target = tracedTarget(n.node);
  if (target != "aten.mv.default" && target != "aten.dot.default")
    return;
  for (const bool parametrization : {true, false}) {
    const std::string start = modes::startOf(n, parametrization);
    if (start.empty())
      continue;
    // σ = u · (W v): the parametrization keeps v, the hook u.
    const unsigned kept = target == "aten.dot.default" ? 0 : 1;
    Value value = n.in(kept);
    if (modes::initializerOf(value) == start) {
      n.inputs[kept].tensor = train::ReadOp::create(n.builder, n.loc, value.getType(), start);
    } else if (auto stop = value.getDefiningOp<train::StopGradientOp>();
               stop && stop.getSource() == modes::kIterate && (kept == 1) == parametrization) {
      train::WriteOp::create(n.builder, n.loc, start, value);
      n.warn("spectral_norm trains as in PyTorch; evaluation, prediction and the exported model do one power iteration "
             "more than eval() does");
    }
  }
}

std::span<const OpEntry> modeOps() { return modes::kTable; }

} // namespace tcc::frontend

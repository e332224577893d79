//===- AttachLoss.cpp - the forward graph with its loss --------------------===//
//
// @loss is a copy of @forward that returns a numerator and a denominator instead of the graph's outputs. The pass also
// removes results from @forward that the frontend only added for loss.of.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/RecipeAttribute.h"
#include "passes/losses/Loss.h"
#include "passes/training/LossTargets.h"
#include "passes/training/RankSums.h"
#include "support/NearestName.h"
#include "support/PlanNames.h"

#include "mlir/IR/IRMapping.h"

#include <string>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_ATTACHLOSSPASS
#include "passes/Passes.h.inc"

namespace {

/// The kind of numbers that an op computes (`Any` if unknown), and the op.
struct Produced {
  LossInput numbers = LossInput::Any;
  Operation *op = nullptr;
};

/// The value before ops that only move or cast elements.
Value beforeViews(Value value) {
  while (Operation *op = value.getDefiningOp())
    if (isa<ReshapeOp, TransposeOp, CastOp>(op))
      value = op->getOperand(0);
    else
      break;
  return value;
}

bool isLinear(Operation *op) { return op && isa<MatMulOp, ConvOp>(op); }

Produced producerOf(Value value) {
  Operation *op = beforeViews(value).getDefiningOp();
  if (!op)
    return {};
  if (isa<SoftmaxOp, SigmoidOp>(op))
    return {LossInput::Probabilities, op};
  if (isa<LogSoftmaxOp>(op))
    return {LossInput::LogProbabilities, op};
  if (isa<LogOp>(op) && producerOf(op->getOperand(0)).numbers == LossInput::Probabilities)
    return {LossInput::LogProbabilities, op};
  if (isLinear(op))
    return {LossInput::Logits, op};
  if (isa<AddOp>(op)) // a bias
    for (Value operand : op->getOperands())
      if (Operation *product = beforeViews(operand).getDefiningOp(); isLinear(product))
        return {LossInput::Logits, op};
  return {};
}

/// The node that the op was imported from: its name, or that of its output if it has none; loss.of takes either.
std::string nodeOf(Operation *op) {
  if (!op)
    return "";
  auto name = dyn_cast<NameLoc>(op->getLoc());
  const std::string text = name ? name.getName().str() : "";
  const std::string arrow = " → ";
  const size_t at = text.find(arrow);
  return at == text.npos ? text : text.substr(at + arrow.size());
}

std::string textOf(LossInput numbers) {
  return numbers == LossInput::Probabilities      ? "probabilities"
         : numbers == LossInput::LogProbabilities ? "log-probabilities"
                                                  : "logits";
}

/// The numbers that the kind expects, or the recipe's loss.input if it is set.
LossInput takenBy(const Loss &kind, const LossSettings &settings) {
  return settings.input == "logits"      ? LossInput::Logits
         : settings.input == "log_probs" ? LossInput::LogProbabilities
         : settings.input == "probs"     ? LossInput::Probabilities
                                         : kind.input;
}

/// The loss kind that expects those numbers instead.
std::string otherKind(llvm::StringRef kind, LossInput numbers) {
  if (kind == "nll" && numbers == LossInput::Logits)
    return "cross_entropy";
  if (kind == "cross_entropy" && numbers == LossInput::LogProbabilities)
    return "nll";
  if (kind == "bce" && numbers == LossInput::Logits)
    return "bce_with_logits";
  if (kind == "bce_with_logits" && numbers == LossInput::Probabilities)
    return "bce";
  return "";
}

/// A warning if the op that computes the prediction gives other numbers than the kind expects, such as a softmax before
/// cross_entropy: training would run with a meaningless loss. Empty if there is no such op; predictions computed by
/// other ops are not recognised. `name`: of the prediction, for the message.
std::string doubtfulPrediction(const Loss &kind, const LossSettings &settings, Value prediction,
                               const std::string &name) {
  const LossInput taken = takenBy(kind, settings);
  const Produced produced = producerOf(prediction);
  if (taken == LossInput::Any || produced.numbers == LossInput::Any || produced.numbers == taken)
    return "";
  const std::string node = nodeOf(produced.op);
  std::string text = kind.name.str() + " takes " + textOf(taken) + ", but `" + name + "` holds " +
                     textOf(produced.numbers) + (node.empty() ? "" : " (node " + node + ")");
  std::string ways;
  auto add = [&](const std::string &way) { ways += (ways.empty() ? "" : ", or ") + way; };
  if (std::string other = otherKind(kind.name, produced.numbers); !other.empty())
    add("set loss.kind = \"" + other + "\"");
  if (!settings.input.empty() || kind.name == "ctc" || kind.name == "dice")
    if (produced.numbers == LossInput::Logits)
      add("set loss.input = \"logits\"");
  if (taken == LossInput::Logits)
    if (std::string logits = nodeOf(beforeViews(produced.op->getOperand(0)).getDefiningOp()); !logits.empty())
      add("set loss.of = \"" + logits + "\", its logits");
  if (kind.name == "nll" && produced.numbers == LossInput::Probabilities)
    add("give cross_entropy the logits before them");
  if (ways.empty())
    add("end the model in " + textOf(taken));
  return text + ": " + ways;
}


/// Builds @loss next to @forward. A method that fails has reported the problem.
class LossBuilder {
public:
  LossBuilder(ModuleOp module, func::FuncOp forward, const Recipe &recipe)
      : module(module), forward(forward), recipe(recipe) {
    if (recipe.losses.empty())
      terms.emplace_back(forward, recipe);
    for (const Recipe &one : recipe.losses)
      terms.emplace_back(forward, one);
  }

  LogicalResult run() {
    for (Term &term : terms)
      if (failed(findOutputs(term)))
        return failure();
    cloneForward();
    OpBuilder builder = OpBuilder::atBlockEnd(&loss.getBody().front());
    std::vector<LossResult> results;
    for (Term &term : terms) {
      std::optional<LossResult> result =
          term.kind ? buildLoss(builder, term) : std::optional(graphLoss(builder, returned[term.outputs.front()]));
      if (!result)
        return loss.erase(), failure();
      results.push_back(*result);
    }
    FailureOr<LossResult> sum = recipe.losses.empty() ? FailureOr<LossResult>(results.front()) : sumOfTerms(results);
    if (failed(sum) || failed(addAveragedOutputs(builder)) || failed(addTrainingOutputs()))
      return loss.erase(), failure();
    finish(builder, *sum,
           terms.size() > 1 || terms.front().kind ? "loss" : terms.front().graph.nameOf(terms.front().outputs.front()));
    dropInnerValues();
    return success();
  }

private:
  /// The loss, or one of several.
  struct Term {
    Term(func::FuncOp forward, const Recipe &recipe) : recipe(recipe), settings(recipe.loss), graph(forward, recipe) {}

    const Recipe &recipe;
    const LossSettings &settings;
    LossOutputs graph;
    const Loss *kind = nullptr; ///< null: a graph output
    LossOutputs::Numbers outputs = {};
  };

  static LogicalResult findOutputs(Term &term) {
    const LossSettings &settings = term.settings;
    if (!settings.kind.empty() && !settings.output.empty())
      return term.graph.fail("loss.output")
             << "loss.output names the graph's own loss and loss.kind asks for a built-in one: give one of "
                "the two";
    if (!settings.kind.empty() && !(term.kind = findLoss(settings.kind)))
      return term.graph.fail("loss.kind") << "unknown loss `" << settings.kind << "`; known: " << lossNames();
    FailureOr<LossOutputs::Numbers> outputs =
        term.kind ? term.graph.findPredictions(*term.kind) : term.graph.findGraphLoss();
    if (succeeded(outputs))
      term.outputs = *outputs;
    return outputs;
  }

  /// Σ scale · sum / weight as one numerator and one denominator. If all weights follow from shapes, numerators are
  /// scaled so that all have the first one's weight: this stays exact over any number of micro-batches and ranks. Else
  /// the gradient needs the weights at its start, so there may be only one micro-batch; ranks sum their weights first.
  FailureOr<LossResult> sumOfTerms(llvm::ArrayRef<LossResult> results) {
    const Type type = elementTypeOf(results.front().sum);
    llvm::SmallVector<double> weights;
    for (const LossResult &result : results)
      if (auto weight = splatOf(result.weight.value))
        weights.push_back(*weight);
    // A single loss keeps its own weight.
    const bool constant = weights.size() == results.size() || results.size() == 1;
    const ParallelSettings &parallel = recipe.parallel;
    const bool overRanks = parallel.distributed() && parallel.average == "exact";
    std::optional<Expr> sum;
    for (auto [i, result] : llvm::enumerate(results)) {
      const Term &term = terms[i];
      named.emplace_back(std::string(outputs::kTermSum) + term.recipe.lossName, result.sum);
      named.emplace_back(std::string(outputs::kTermWeight) + term.recipe.lossName, result.weight);
      Expr part = result.sum.cast(type);
      double factor = term.recipe.lossScale;
      if (constant && i > 0) {
        factor *= weights.front() / weights[i];
      } else if (!constant) {
        if (!splatOf(result.weight.value) && failed(checkOneMicroBatch(term)))
          return failure();
        Expr weight = result.weight.cast(type);
        if (overRanks)
          weight = sumOverRanks(weight);
        // A loss of weight 0 adds nothing.
        part = part / weight.compare(CompareKind::eq, 0).select(weight.like(1), weight);
      }
      part = factor == 1 ? part : part * factor;
      sum = sum ? *sum + part : part;
    }
    Expr one = sum->like(1);
    LossResult whole{*sum, constant ? results.front().weight : overRanks ? one / sumOverRanks(one) : one};
    whole.correct = results.front().correct;
    whole.counted = results.front().counted;
    return whole;
  }

  LogicalResult checkOneMicroBatch(const Term &term) {
    const bool virtualRanks = recipe.parallel.virtualRanks > 0;
    if (recipe.training.accumulate() == 1 && !virtualRanks)
      return success();
    return term.graph.fail("loss")
           << "loss `" << term.recipe.lossName << "` divides by a number that the data decides "
           << "(targets that may not count, sample weights, data.last = \"pad\"), and beside other losses each "
           << "micro-batch must know that of the whole update; set "
           << (virtualRanks ? "parallel.mode without train.virtual_ranks"
                            : "train.accumulate = 1, with a larger batch (--dim, --shape)")
           << ", or loss.reduction = \"sum\" with a loss.scale that makes up for it";
  }

  void cloneForward() {
    OpBuilder builder(module.getContext());
    builder.setInsertionPointAfter(forward);
    loss = cast<func::FuncOp>(builder.clone(*forward));
    loss.setName("loss");
    auto terminator = cast<func::ReturnOp>(loss.getBody().front().getTerminator());
    returned.assign(terminator.operand_begin(), terminator.operand_end());
    terminator.erase();
  }

  /// Statistics and sums are kept in f32, f64 for a model of f64.
  static Expr toLossType(const Expr &value) {
    return elementTypeOf(value).isF64() ? value : value.cast(value.builder->getF32Type());
  }

  Location lossLoc(llvm::StringRef name) { return NameLoc::get(StringAttr::get(module.getContext(), name)); }

  int64_t batchSize() { return samplesOfBatch(loss).value_or(1); }

  LossResult graphLoss(OpBuilder &builder, Value output) {
    Expr value = toLossType(Expr(builder, output.getLoc(), output)).reshape({});
    double samples = double(batchSize());
    return {value * samples, value.like(samples)};
  }

  std::optional<LossResult> buildLoss(OpBuilder &builder, const Term &term) {
    const Loss &kind = *term.kind;
    const LossSettings &settings = term.settings;
    const LossOutputs &graph = term.graph;
    const llvm::ArrayRef<unsigned> outputs = term.outputs;
    Value first = returned[outputs.front()];
    auto type = cast<RankedTensorType>(first.getType());
    Location loc = lossLoc("loss." + settings.kind);
    Type lossType = type.getElementType().isF64() ? Type(builder.getF64Type()) : Type(builder.getF32Type());
    LossInputs inputs{toLossType(Expr(builder, loc, first)), Expr(builder, loc, Value()), settings};
    for (unsigned output : outputs)
      inputs.predictions.push_back(Expr(builder, loc, returned[output]).cast(lossType));
    const bool alone = recipe.losses.empty() && (recipe.phase.empty() || recipe.stage);
    if (failed(LossTargets(loss, graph, settings, !recipe.losses.empty()).find(kind, outputs, inputs, alone)))
      return std::nullopt;
    if (std::optional<LossProblem> problem = kind.check ? kind.check(inputs) : std::nullopt) {
      graph.fail(problem->key) << problem->text << " (" << graph.describe(outputs) << ")";
      return std::nullopt;
    }
    if (failed(addPrediction(term, inputs)))
      return std::nullopt;
    if (std::string doubt = doubtfulPrediction(kind, settings, first, graph.nameOf(outputs.front())); !doubt.empty())
      mlir::emitWarning(forward.getLoc()) << recipe.at("loss.kind") << "loss.kind: " << doubt;
    return kind.build(inputs);
  }

  /// Returns the prediction, its classes last, and the target for metrics that the host computes. The target is that of
  /// the loss: shifted, with positions that do not count marked as ignored. Samples come first in both.
  LogicalResult addPrediction(const Term &term, const LossInputs &inputs) {
    const Loss &kind = *term.kind;
    const LossSettings &settings = term.settings;
    const LossOutputs &graph = term.graph;
    const llvm::ArrayRef<unsigned> outputs = term.outputs;
    for (const std::string &name : term.recipe.training.evaluation().metrics()) {
      const MetricKind *metric = findMetricKind(name);
      if (!metric || isGivenByLoss(*metric, settings.kind) || (!metric->fromPrediction && name != "accuracy"))
        continue;
      const bool classes = kind.hasClasses();
      if (classes && isFloatTensor(inputs.target))
        return graph.fail("evaluate.metrics")
               << "evaluate.metrics: " << name << " needs integer classes, but the target `" << settings.target
               << "` holds probabilities; leave it out";
      Expr prediction = inputs.prediction.cast(inputs.prediction.builder->getF32Type());
      llvm::SmallVector<int64_t> order;
      for (int64_t axis = 0, rank = int64_t(shapeOf(prediction).size()); axis < rank; ++axis)
        if (!classes || axis != inputs.classAxis)
          order.push_back(axis);
      if (classes)
        order.push_back(inputs.classAxis);
      if (order.empty() || shapeOf(prediction)[order.front()] % batchSize() != 0)
        return graph.fail("evaluate.metrics")
               << "evaluate.metrics: " << name << " needs a prediction whose first axis holds "
               << "the samples: " << graph.describe(outputs) << "; leave it out";
      Type target = classes ? Type(prediction.builder->getI64Type()) : Type(prediction.builder->getF32Type());
      extra.push_back(
          {outputs::kPrediction, transpose(*prediction.builder, prediction.loc, prediction, order), nullptr});
      extra.push_back({outputs::kPredictionTarget, inputs.target.cast(target), nullptr});
      return success();
    }
    return success();
  }

  /// Metrics that are graph outputs.
  LogicalResult addAveragedOutputs(OpBuilder &builder) {
    const LossOutputs &graph = terms.front().graph;
    for (const std::string &name : recipe.training.evaluation().metrics()) {
      if (findMetricKind(name))
        continue;
      std::vector<std::string> known = metricKindNames();
      std::optional<unsigned> output;
      for (unsigned i = 0; i < graph.count(); ++i)
        if (!graph.isInner(i)) {
          known.push_back(graph.nameOf(i));
          if (graph.nameOf(i) == name)
            output = i;
        }
      if (!output) {
        std::string nearest = nearestName(name, known);
        return graph.fail("evaluate.metrics")
               << "evaluate.metrics: `" << name << "` is neither a metric (" << metricList() << ") nor a graph output"
               << (nearest.empty() ? "" : "; the nearest is `" + nearest + "`") << "; " << graph.list();
      }
      auto axis = graph.sampleAxisOf(*output);
      if (!graph.isFloat(*output))
        return graph.fail("evaluate.metrics")
               << "evaluate.metrics: `" << name << "` is " << typeText(graph.typeOf(*output))
               << "; an average needs floating point; leave it out";
      if (axis && axis.getInt() > 0) // samples not first: padding is handled as if the graph averaged over the batch
        axis = nullptr;
      Expr value(builder, lossLoc(name), returned[*output]);
      extra.push_back({std::string(outputs::kAveragedPrefix) + name, value.cast(builder.getF32Type()), axis});
    }
    return success();
  }

  /// Graph outputs that an update returns: train.outputs.
  LogicalResult addTrainingOutputs() {
    const LossOutputs &graph = terms.front().graph;
    llvm::SmallDenseSet<unsigned> added;
    for (const std::string &name : recipe.train.outputs) {
      FailureOr<unsigned> output = graph.find("train.outputs", name);
      if (failed(output))
        return failure();
      IntegerAttr axis = graph.sampleAxisOf(*output);
      if (!axis && (recipe.training.accumulate() > 1 || recipe.parallel.virtualRanks > 0))
        return graph.fail("train.outputs")
               << "train.outputs: `" << name << "` has no axis of samples, and an update has several micro-batches "
               << "(train.accumulate, train.virtual_ranks), each with its own; leave it out";
      if (added.insert(*output).second)
        extra.push_back({std::string(outputs::kTrainingPrefix) + name, returned[*output], axis});
    }
    return success();
  }

  static std::string metricList() {
    std::string text;
    for (const std::string &name : metricKindNames())
      text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  /// Removes results of @forward that are not outputs of the graph.
  void dropInnerValues() {
    const LossOutputs &graph = terms.front().graph;
    llvm::BitVector inner(graph.count());
    for (unsigned i = 0; i < graph.count(); ++i)
      inner[i] = graph.isInner(i);
    if (inner.none())
      return;
    forward.getBody().front().getTerminator()->eraseOperands(inner);
    if (failed(forward.eraseResults(inner)))
      llvm_unreachable("results can be erased");
  }

  void finish(OpBuilder &builder, const LossResult &result, llvm::StringRef lossName) {
    llvm::SmallVector<Value> values{result.sum, result.weight};
    llvm::SmallVector<llvm::StringRef> resultNames{outputs::kLossSum, outputs::kLossWeight};
    if (result.correct && result.counted) {
      values.append({result.correct->value, result.counted->value});
      resultNames.append({outputs::kCorrect, outputs::kCounted});
    }
    for (const auto &[name, value] : named) {
      values.push_back(value);
      resultNames.push_back(name);
    }
    llvm::SmallVector<IntegerAttr> axes(values.size());
    for (const Extra &one : extra) {
      values.push_back(one.value);
      resultNames.push_back(one.name);
      axes.push_back(one.sampleAxis);
    }
    func::ReturnOp::create(builder, forward.getLoc(), values);
    llvm::SmallVector<Attribute> resultAttributes;
    for (auto [name, axis] : llvm::zip_equal(resultNames, axes)) {
      NamedAttrList attributes(
          builder.getDictionaryAttr(builder.getNamedAttr(names::kName, builder.getStringAttr(name))));
      if (axis)
        attributes.set(names::kSampleAxis, axis);
      resultAttributes.push_back(attributes.getDictionary(module.getContext()));
    }
    loss.setType(FunctionType::get(module.getContext(), loss.getArgumentTypes(), ValueRange(values).getTypes()));
    loss.setResAttrsAttr(builder.getArrayAttr(resultAttributes));
    loss->setAttr(names::kLossName, builder.getStringAttr(lossName));
  }

  ModuleOp module;
  func::FuncOp forward, loss;
  const Recipe &recipe;
  std::vector<Term> terms;
  std::vector<std::pair<std::string, Value>> named; ///< numerators and denominators of several losses
  llvm::SmallVector<Value> returned;
  /// Results of @loss that metrics are computed from, or that updates return; its gradient needs none of them.
  struct Extra {
    std::string name;
    Value value;
    IntegerAttr sampleAxis;
  };
  std::vector<Extra> extra;
};

struct AttachLossPass : impl::AttachLossPassBase<AttachLossPass> {
  void runOnOperation() override {
    if (llvm::none_of(std::initializer_list<llvm::StringRef>{entries::kTrain, entries::kEvaluate, entries::kGradients},
                      [&](llvm::StringRef entry) { return builds(getOperation(), entry); }))
      return;
    func::FuncOp forward = lookupFunction(getOperation(), "forward");
    if (!forward || forward.isDeclaration()) {
      getOperation().emitError("attach-loss: there is no @forward to attach a loss to");
      return signalPassFailure();
    }
    if (lookupFunction(getOperation(), "loss")) {
      getOperation().emitError("attach-loss: there is an @loss already");
      return signalPassFailure();
    }
    FailureOr<Recipe> recipe = recipeOf(getOperation());
    if (failed(recipe) || failed(LossBuilder(getOperation(), forward, *recipe).run()))
      signalPassFailure();
  }

};

} // namespace

} // namespace tcc::train

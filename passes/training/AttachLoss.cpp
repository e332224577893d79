//===- AttachLoss.cpp - the forward graph with its loss --------------------===//
//
// @loss is a copy of @forward that returns a numerator and a denominator instead of the graph's outputs. Values inside
// the graph that the frontend returned for loss.of alone leave @forward here.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/losses/Loss.h"
#include "support/NearestName.h"
#include "support/PlanNames.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_ATTACHLOSSPASS
#include "passes/Passes.h.inc"

namespace {

std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

/// Builds @loss next to @forward. A method that fails has reported the problem.
class LossBuilder {
public:
  LossBuilder(ModuleOp module, func::FuncOp forward, const Recipe &recipe)
      : module(module), forward(forward), recipe(recipe), settings(recipe.loss) {}

  LogicalResult run() {
    if (!settings.kind.empty() && !settings.output.empty())
      return fail("loss.output")
             << "loss.output names the graph's own loss and loss.kind asks for a built-in one: give one of "
                "the two";
    const LossKind *kind = nullptr;
    if (!settings.kind.empty() && !(kind = findLoss(settings.kind)))
      return fail("loss.kind") << "unknown loss `" << settings.kind << "`; known: " << lossNames();
    FailureOr<llvm::SmallVector<unsigned>> outputs = kind ? findPredictions(*kind) : findGraphLoss();
    if (failed(outputs))
      return failure();
    cloneForward();
    OpBuilder builder = OpBuilder::atBlockEnd(&loss.getBody().front());
    std::optional<LossResult> result =
        kind ? buildLoss(builder, *kind, *outputs) : std::optional(graphLoss(builder, returned[outputs->front()]));
    if (!result) {
      loss.erase();
      return failure();
    }
    if (failed(addAveragedOutputs(builder))) {
      loss.erase();
      return failure();
    }
    finish(builder, *result, kind ? "loss" : outputName(outputs->front()));
    dropInnerValues();
    return success();
  }

private:
  InFlightDiagnostic fail(const std::string &key) { return mlir::emitError(forward.getLoc()) << recipe.at(key); }

  std::string outputName(unsigned i) {
    auto name = forward.getResultAttrOfType<StringAttr>(i, names::kName);
    return name ? name.str() : "output " + std::to_string(i);
  }
  /// True for a value inside the graph that is returned for loss.of.
  bool isInner(unsigned i) { return bool(forward.getResultAttr(i, names::kInner)); }
  bool isFloatOutput(unsigned i) {
    auto type = dyn_cast<RankedTensorType>(forward.getResultTypes()[i]);
    return type && isa<FloatType>(type.getElementType());
  }
  bool isScalarLoss(unsigned i) {
    return isFloatOutput(i) && cast<RankedTensorType>(forward.getResultTypes()[i]).getNumElements() == 1;
  }
  std::string describe(llvm::ArrayRef<unsigned> outputs) {
    std::string text;
    for (unsigned i : outputs)
      text += (text.empty() ? "`" : ", `") + outputName(i) + "` is " + typeText(forward.getResultTypes()[i]);
    return text;
  }
  std::string listOutputs() {
    std::string text = "outputs:";
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      if (!isInner(i))
        text += (i ? ", `" : " `") + outputName(i) + "` (" + typeText(forward.getResultTypes()[i]) + ")";
    return text;
  }

  /// The output of this name; reports `key` where there is none.
  FailureOr<unsigned> findOutput(const std::string &key, const std::string &name) {
    std::vector<std::string> known;
    for (unsigned i = 0; i < forward.getNumResults(); ++i) {
      if (outputName(i) == name)
        return i;
      known.push_back(outputName(i));
    }
    std::string nearest = nearestName(name, known);
    fail(key) << key << ": the graph has no output `" << name << "`; "
              << (nearest.empty() ? "" : "the nearest is `" + nearest + "`; ") << listOutputs();
    return failure();
  }

  using Outputs = llvm::SmallVector<unsigned>;

  FailureOr<Outputs> findGraphLoss() {
    if (!settings.output.empty()) {
      FailureOr<unsigned> output = findOutput("loss.output", settings.output);
      if (failed(output))
        return failure();
      if (!isScalarLoss(*output)) {
        fail("loss.output") << "loss.output: `" << settings.output << "` is "
                            << typeText(forward.getResultTypes()[*output])
                            << ", not a scalar of floating point; name a scalar output, or give loss.kind and loss.of; "
                            << listOutputs();
        return failure();
      }
      return Outputs{*output};
    }
    Outputs candidates;
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      if (isScalarLoss(i))
        candidates.push_back(i);
    if (candidates.size() == 1)
      return candidates;
    fail("loss") << (candidates.empty() ? "the graph has no scalar floating-point output that could be the loss"
                                        : "several outputs of the graph could be the loss")
                 << ": set loss.output to one, or loss.kind, loss.of and loss.target for a built-in loss; "
                 << listOutputs();
    return failure();
  }

  FailureOr<Outputs> findPredictions(const LossKind &kind) {
    if (kind.predictions > 1 && settings.of.size() != kind.predictions) {
      fail(settings.of.empty() ? "loss.kind" : "loss.of")
          << "loss.of: " << kind.name << " compares " << kind.predictions << " values, and "
          << (settings.of.empty() ? std::string("none is named") : std::to_string(settings.of.size()) + " are named")
          << ": set loss.of = " << kind.roles << "; " << listOutputs();
      return failure();
    }
    if (settings.of.size() > kind.predictions) {
      fail("loss.of") << "loss.of: " << kind.name << " is of one value, and " << settings.of.size()
                      << " are named: name one; " << listOutputs();
      return failure();
    }
    Outputs outputs;
    for (const std::string &name : settings.of) {
      FailureOr<unsigned> output = findOutput("loss.of", name);
      if (failed(output))
        return failure();
      if (!isFloatOutput(*output)) {
        fail("loss.of") << "loss.of: `" << name << "` is " << typeText(forward.getResultTypes()[*output])
                        << ", and a loss needs floating point; " << listOutputs();
        return failure();
      }
      outputs.push_back(*output);
    }
    if (!outputs.empty())
      return outputs;
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      if (isFloatOutput(i))
        outputs.push_back(i);
    if (outputs.size() == 1)
      return outputs;
    fail("loss.kind") << "the graph has " << outputs.size()
                      << " floating-point outputs: set loss.of to the one that the loss is of; " << listOutputs();
    return failure();
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

  /// Samples of a batch: the extent of the first sampled input.
  int64_t batchSize() {
    for (unsigned i = 0; i < loss.getNumArguments(); ++i) {
      auto axis = loss.getArgAttrOfType<IntegerAttr>(i, names::kSampleAxis);
      auto type = cast<RankedTensorType>(loss.getArgument(i).getType());
      if (axis && axis.getInt() >= 0 && axis.getInt() < type.getRank())
        return type.getDimSize(axis.getInt());
    }
    return 1;
  }

  LossResult graphLoss(OpBuilder &builder, Value output) {
    Expr value = toLossType(Expr(builder, output.getLoc(), output)).reshape({});
    double samples = double(batchSize());
    return {value * samples, value.like(samples)};
  }

  /// The target of a position is the next one's; that of the last does not count. The logits stay as they are: a row
  /// that is ignored costs less than a copy of all others.
  static Expr nextTargets(const Expr &target, int64_t axis, int64_t ignoreIndex) {
    Expr next = target.cast(target.builder->getI64Type());
    llvm::SmallVector<int64_t> whole(shapeOf(next)), shape = whole, starts(shape.size(), 0), steps(shape.size(), 1);
    auto typeOf = [&](llvm::ArrayRef<int64_t> extents) { return RankedTensorType::get(extents, elementTypeOf(next)); };
    shape[axis] -= 1;
    starts[axis] = 1;
    Value later = SliceOp::create(*next.builder, next.loc, typeOf(shape), next, starts, steps);
    shape[axis] = 1;
    Value none = splatInt(*next.builder, next.loc, typeOf(shape), ignoreIndex);
    return next.with(ConcatOp::create(*next.builder, next.loc, typeOf(whole), ValueRange{later, none}, axis));
  }

  std::optional<unsigned> findArgument(llvm::StringRef name) {
    for (unsigned i = 0; i < loss.getNumArguments(); ++i)
      if (auto argument = loss.getArgAttrOfType<StringAttr>(i, names::kName); argument && argument.getValue() == name)
        return i;
    return std::nullopt;
  }
  unsigned addArgument(llvm::StringRef name, RankedTensorType type) {
    OpBuilder builder(module.getContext());
    auto attributes =
        builder.getDictionaryAttr({builder.getNamedAttr(names::kName, builder.getStringAttr(name)),
                                   builder.getNamedAttr(names::kSampleAxis, builder.getI64IntegerAttr(0))});
    unsigned position = loss.getNumArguments();
    [[maybe_unused]] LogicalResult inserted = loss.insertArgument(position, type, attributes, lossLoc(name));
    assert(succeeded(inserted) && "the argument comes last");
    return position;
  }
  /// Tells the loader which values of an integer input are legal: [low, high] and the recipe's padding.
  void limit(unsigned argument, int64_t high, bool orIgnored, const std::string &meaning) {
    Builder builder(module.getContext());
    NamedAttrList range;
    range.set("low", builder.getI64IntegerAttr(0));
    range.set("high", builder.getI64IntegerAttr(high));
    range.set("extent", builder.getI64IntegerAttr(high + 1));
    range.set("axis", builder.getI64IntegerAttr(0));
    range.set("node", builder.getStringAttr(""));
    range.set("table", builder.getStringAttr(""));
    range.set("meaning", builder.getStringAttr(meaning));
    if (orIgnored)
      range.set("exceptions", builder.getDenseI64ArrayAttr(settings.ignoreIndex));
    llvm::SmallVector<Attribute> ranges;
    if (auto given = loss.getArgAttrOfType<ArrayAttr>(argument, names::kIndexRanges))
      ranges.append(given.begin(), given.end());
    ranges.push_back(range.getDictionary(module.getContext()));
    loss.setArgAttr(argument, names::kIndexRanges, builder.getArrayAttr(ranges));
  }

  /// The graph input of this name, or a new one of type `type`.
  FailureOr<Value> findTarget(const LossKind &kind, const std::string &name, RankedTensorType type,
                              RankedTensorType predictionType) {
    std::optional<unsigned> argument = findArgument(name);
    if (!argument)
      return Value(loss.getArgument(addArgument(name, type)));
    auto found = cast<RankedTensorType>(loss.getArgument(*argument).getType());
    bool floating = isa<FloatType>(found.getElementType());
    bool asProbabilities =
        kind.probabilities && floating && !settings.shift && found.getShape() == predictionType.getShape();
    if (found.getShape() != type.getShape() && !asProbabilities) {
      fail("loss.target") << "loss.target: the graph input `" << name << "` is " << typeText(found) << ", but "
                          << kind.name << " of " << typeText(predictionType) << " needs the shape of " << typeText(type)
                          << (kind.hasClasses() ? "; is loss.class_axis right?" : "");
      return failure();
    }
    if (kind.hasClasses() && !asProbabilities && (floating || found.getElementType().isInteger(1))) {
      fail("loss.target") << "loss.target: the graph input `" << name << "` is " << typeText(found) << ", but "
                          << kind.name << " needs integer classes, such as " << typeText(type);
      return failure();
    }
    return Value(loss.getArgument(*argument));
  }

  /// The graph input of integers that `key` names, or a new one of i64 [samples, extent], or [samples] where extent is
  /// 0.
  FailureOr<unsigned> findIntegers(const std::string &key, const std::string &name, int64_t samples, int64_t extent) {
    llvm::SmallVector<int64_t> shape = {samples};
    if (extent)
      shape.push_back(extent);
    std::optional<unsigned> argument = findArgument(name);
    if (!argument)
      return addArgument(name, RankedTensorType::get(shape, IntegerType::get(module.getContext(), 64)));
    auto found = cast<RankedTensorType>(loss.getArgument(*argument).getType());
    bool fits = extent ? found.getRank() == 2 && found.getDimSize(0) == samples && found.getDimSize(1) > 0
                       : found.getShape() == llvm::ArrayRef(shape);
    if (fits && isa<IntegerType>(found.getElementType()) && !found.getElementType().isInteger(1))
      return *argument;
    fail(key) << key << ": the graph input `" << name << "` is " << typeText(found)
              << ", but ctc needs integers of the shape [" << samples
              << (extent ? ", labels]: a row of labels for each sample" : "]: a length for each sample");
    return failure();
  }

  /// An axis of the recipe from 0 on; reports `key` where it is none.
  FailureOr<int64_t> axisOf(const std::string &key, int64_t given, llvm::ArrayRef<unsigned> outputs, int64_t rank) {
    int64_t axis = given < 0 ? given + rank : given;
    if (axis >= 0 && axis < rank)
      return axis;
    fail(key) << key << ": " << given << " is no axis of the prediction: " << describe(outputs) << "; use one from "
              << -rank << " to " << rank - 1;
    return failure();
  }

  /// Finds the axes of a prediction of sequences, and adds its target and lengths.
  LogicalResult findSequences(OpBuilder &builder, llvm::ArrayRef<unsigned> outputs, LossInputs &inputs) {
    auto type = cast<RankedTensorType>(forward.getResultTypes()[outputs.front()]);
    if (type.getRank() != 3)
      return fail("loss.of") << "loss.of: " << settings.kind << " needs a prediction with the axes time, samples and "
                             << "classes: " << describe(outputs);
    FailureOr<int64_t> time = axisOf("loss.time_axis", settings.timeAxis, outputs, 3);
    if (failed(time))
      return failure();
    FailureOr<int64_t> classes = axisOf("loss.class_axis", settings.classAxis.value_or(-1), outputs, 3);
    if (failed(classes))
      return failure();
    if (*time == *classes)
      return fail("loss.time_axis") << "loss.time_axis and loss.class_axis are both axis " << *time << " of "
                                    << describe(outputs) << ": name two of its three axes";
    inputs.axes = {3 - *time - *classes, *time, *classes};
    auto sampled = forward.getResultAttrOfType<IntegerAttr>(outputs.front(), names::kSampleAxis);
    if (sampled && sampled.getInt() >= 0 && sampled.getInt() != inputs.axes.samples)
      return fail("loss.time_axis") << "loss.time_axis " << settings.timeAxis << " and loss.class_axis "
                                    << settings.classAxis.value_or(-1) << " leave axis " << inputs.axes.samples
                                    << " for the samples, but the graph has them on axis " << sampled.getInt() << ": "
                                    << describe(outputs) << "; set loss.time_axis and loss.class_axis to the other two";
    int64_t samples = type.getDimSize(inputs.axes.samples), steps = type.getDimSize(*time),
            labels = type.getDimSize(*classes);
    if (!findArgument(settings.target) && !settings.maxTargetLength)
      return fail("loss.target")
             << "loss.target: the graph has no input `" << settings.target
             << "`, so the recipe must say how long its rows are: set loss.max_target_length to the "
                "columns of the data, to which shorter targets are padded";
    FailureOr<unsigned> target =
        findIntegers("loss.target", settings.target, samples, settings.maxTargetLength.value_or(1));
    if (failed(target))
      return failure();
    auto targetType = cast<RankedTensorType>(loss.getArgument(*target).getType());
    if (settings.maxTargetLength && targetType.getDimSize(1) != *settings.maxTargetLength)
      return fail("loss.max_target_length")
             << "loss.max_target_length is " << *settings.maxTargetLength << ", but the graph input `"
             << settings.target << "` is " << typeText(targetType) << ": leave the key out";
    limit(*target, labels - 1, true, "class of ctc");
    inputs.target = inputs.target.with(loss.getArgument(*target));
    auto lengths = [&](const std::string &key, const std::string &name, int64_t most, const std::string &meaning,
                       std::optional<Expr> &into) -> LogicalResult {
      if (name.empty())
        return success();
      FailureOr<unsigned> argument = findIntegers(key, name, samples, 0);
      if (failed(argument))
        return failure();
      limit(*argument, most, false, meaning);
      into = inputs.target.with(loss.getArgument(*argument)).cast(builder.getI64Type());
      return success();
    };
    if (failed(
            lengths("loss.input_lengths", settings.inputLengths, steps, "number of time steps", inputs.inputLengths)))
      return failure();
    return lengths("loss.target_lengths", settings.targetLengths, targetType.getDimSize(1), "length of a target",
                   inputs.targetLengths);
  }

  std::optional<LossResult> buildLoss(OpBuilder &builder, const LossKind &kind, llvm::ArrayRef<unsigned> outputs) {
    Value first = returned[outputs.front()];
    auto type = cast<RankedTensorType>(first.getType());
    Location loc = lossLoc("loss." + settings.kind);
    Type lossType = type.getElementType().isF64() ? Type(builder.getF64Type()) : Type(builder.getF32Type());
    LossInputs inputs{toLossType(Expr(builder, loc, first)), Expr(builder, loc, Value()), settings};
    for (unsigned output : outputs)
      inputs.predictions.push_back(Expr(builder, loc, returned[output]).cast(lossType));
    if (kind.target == LossTarget::Sequences) {
      if (failed(findSequences(builder, outputs, inputs)))
        return std::nullopt;
    } else if (failed(findInputs(kind, outputs, type, lossType, inputs))) {
      return std::nullopt;
    }
    if (std::optional<LossProblem> problem = kind.check ? kind.check(inputs) : std::nullopt) {
      fail(problem->key) << problem->text << " (" << describe(outputs) << ")";
      return std::nullopt;
    }
    if (failed(addPrediction(kind, outputs, inputs)))
      return std::nullopt;
    return kind.build(inputs);
  }

  /// For metrics that the host computes: the prediction, its classes last, and the target as the loss sees it (shifted,
  /// what does not count ignored). Samples come first in both.
  LogicalResult addPrediction(const LossKind &kind, llvm::ArrayRef<unsigned> outputs, const LossInputs &inputs) {
    for (const std::string &name : recipe.evaluate.metrics) {
      const MetricKind *metric = findMetricKind(name);
      if (!metric || isGivenByLoss(*metric, settings.kind) || (!metric->fromPrediction && name != "accuracy"))
        continue;
      const bool classes = kind.hasClasses();
      if (classes && isFloatTensor(inputs.target))
        return fail("evaluate.metrics") << "evaluate.metrics: " << name << " needs integer classes, but the target `"
                                        << settings.target << "` holds probabilities; leave it out";
      Expr prediction = inputs.prediction.cast(inputs.prediction.builder->getF32Type());
      llvm::SmallVector<int64_t> order;
      for (int64_t axis = 0, rank = int64_t(shapeOf(prediction).size()); axis < rank; ++axis)
        if (!classes || axis != inputs.classAxis)
          order.push_back(axis);
      if (classes)
        order.push_back(inputs.classAxis);
      if (order.empty() || shapeOf(prediction)[order.front()] % batchSize() != 0)
        return fail("evaluate.metrics") << "evaluate.metrics: " << name << " needs a prediction whose first axis holds "
                                        << "the samples: " << describe(outputs) << "; leave it out";
      Type target = classes ? Type(prediction.builder->getI64Type()) : Type(prediction.builder->getF32Type());
      extra.push_back({outputs::kPrediction,
                       transpose(*prediction.builder, prediction.loc, prediction, order), nullptr});
      extra.push_back({outputs::kPredictionTarget, inputs.target.cast(target), nullptr});
      return success();
    }
    return success();
  }

  /// Metrics that are graph outputs.
  LogicalResult addAveragedOutputs(OpBuilder &builder) {
    for (const std::string &name : recipe.evaluate.metrics) {
      if (findMetricKind(name))
        continue;
      std::vector<std::string> known = metricKindNames();
      std::optional<unsigned> output;
      for (unsigned i = 0; i < forward.getNumResults(); ++i)
        if (!isInner(i)) {
          known.push_back(outputName(i));
          if (outputName(i) == name)
            output = i;
        }
      if (!output) {
        std::string nearest = nearestName(name, known);
        return fail("evaluate.metrics") << "evaluate.metrics: `" << name << "` is neither a metric (" << metricList()
                                        << ") nor a graph output"
                                        << (nearest.empty() ? "" : "; the nearest is `" + nearest + "`") << "; "
                                        << listOutputs();
      }
      auto axis = forward.getResultAttrOfType<IntegerAttr>(*output, names::kSampleAxis);
      if (!isFloatOutput(*output) || (axis && axis.getInt() > 0))
        return fail("evaluate.metrics") << "evaluate.metrics: `" << name << "` is "
                                        << typeText(forward.getResultTypes()[*output])
                                        << "; an average needs floating point and samples on the first axis; leave it "
                                           "out";
      Expr value(builder, lossLoc(name), returned[*output]);
      extra.push_back({std::string(outputs::kAveragedPrefix) + name, value.cast(builder.getF32Type()), axis});
    }
    return success();
  }
  static std::string metricList() {
    std::string text;
    for (const std::string &name : metricKindNames())
      text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  /// Finds the class axis, and adds the target of kinds whose target's shape follows from the prediction's.
  LogicalResult findInputs(const LossKind &kind, llvm::ArrayRef<unsigned> outputs, RankedTensorType type, Type lossType,
                           LossInputs &inputs) {
    int64_t rank = type.getRank();
    if (kind.hasClasses() || settings.classAxis) {
      FailureOr<int64_t> axis = axisOf("loss.class_axis", settings.classAxis.value_or(1), outputs, rank);
      if (failed(axis))
        return failure();
      inputs.classAxis = *axis;
    }
    int64_t axis = inputs.classAxis;
    if (settings.shift && (!kind.hasClasses() || rank < 2 || axis == 1 || type.getDimSize(1) < 2))
      return fail("loss.shift")
             << "loss.shift drops a position of axis 1, which needs a loss over classes on another axis and at "
                "least two positions: "
             << describe(outputs) << ", class_axis is " << settings.classAxis.value_or(1)
             << "; for [batch, sequence, vocabulary] set loss.class_axis = -1";
    if (kind.target == LossTarget::None)
      return success();
    llvm::SmallVector<int64_t> shape(type.getShape());
    if (kind.hasClasses())
      shape.erase(shape.begin() + axis);
    else if (kind.target == LossTarget::Rows && !shape.empty())
      shape.pop_back();
    auto targetType =
        RankedTensorType::get(shape, kind.hasClasses() ? Type(IntegerType::get(module.getContext(), 64)) : lossType);
    FailureOr<Value> argument =
        findTarget(kind, settings.target.empty() ? "target" : settings.target, targetType, type);
    if (failed(argument))
      return failure();
    inputs.target = inputs.target.with(*argument);
    if (!kind.hasClasses())
      inputs.target = inputs.target.cast(lossType);
    else if (isInner(outputs.front()) && !isFloatTensor(*argument)) // of an output, the loader sees the classes
      limit(cast<BlockArgument>(*argument).getArgNumber(), type.getDimSize(axis) - 1, true, "class");
    if (settings.shift)
      inputs.target = nextTargets(inputs.target, axis > 1 ? 1 : 0, settings.ignoreIndex);
    return success();
  }

  /// @forward computes the graph's outputs alone.
  void dropInnerValues() {
    llvm::BitVector inner(forward.getNumResults());
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      inner[i] = isInner(i);
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
    llvm::SmallVector<IntegerAttr> axes(values.size());
    for (const Extra &one : extra) {
      values.push_back(one.value);
      resultNames.push_back(one.name);
      axes.push_back(one.sampleAxis);
    }
    func::ReturnOp::create(builder, forward.getLoc(), values);
    llvm::SmallVector<Attribute> resultAttributes;
    for (auto [name, axis] : llvm::zip_equal(resultNames, axes)) {
      NamedAttrList attributes(builder.getDictionaryAttr(builder.getNamedAttr(names::kName, builder.getStringAttr(name))));
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
  const LossSettings &settings;
  llvm::SmallVector<Value> returned;
  /// Results of @loss that metrics are computed from; its gradient needs none of them.
  struct Extra {
    std::string name;
    Value value;
    IntegerAttr sampleAxis;
  };
  std::vector<Extra> extra;
};

struct AttachLossPass : impl::AttachLossPassBase<AttachLossPass> {
  using AttachLossPassBase::AttachLossPassBase;
  explicit AttachLossPass(const Recipe &recipe) : given(recipe) {}

  void runOnOperation() override {
    func::FuncOp forward = lookupFunction(getOperation(), "forward");
    if (!forward || forward.isDeclaration()) {
      getOperation().emitError("attach-loss: there is no @forward to attach a loss to");
      return signalPassFailure();
    }
    if (lookupFunction(getOperation(), "loss")) {
      getOperation().emitError("attach-loss: there is an @loss already");
      return signalPassFailure();
    }
    Recipe recipe;
    if (given)
      recipe = *given;
    else if (failed(readOptions(recipe)))
      return signalPassFailure();
    if (failed(LossBuilder(getOperation(), forward, recipe).run()))
      signalPassFailure();
  }

private:
  LogicalResult readOptions(Recipe &recipe) {
    LossSettings &loss = recipe.loss;
    loss.output = output;
    loss.kind = kind;
    loss.of.assign(of.begin(), of.end());
    loss.target = target;
    if (classAxis.hasValue())
      loss.classAxis = classAxis;
    loss.shift = shift;
    loss.ignoreIndex = ignoreIndex;
    loss.labelSmoothing = labelSmoothing;
    loss.weight.assign(weight.begin(), weight.end());
    loss.posWeight.assign(posWeight.begin(), posWeight.end());
    loss.reduction = reduction;
    loss.delta = delta;
    loss.beta = beta;
    loss.logTarget = logTarget;
    std::vector<std::string> others;
    for (const std::string &setting : set)
      others.push_back("loss." + setting);
    if (Status status = applySettings(recipe, others); !status.ok())
      return getOperation().emitError("attach-loss: ") << status.message();
    return success();
  }

  std::optional<Recipe> given;
};

} // namespace

std::unique_ptr<Pass> createAttachLossPass(const Recipe &recipe) { return std::make_unique<AttachLossPass>(recipe); }

} // namespace tcc::train

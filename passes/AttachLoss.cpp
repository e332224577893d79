//===- AttachLoss.cpp - the forward graph with its loss --------------------===//
//
// @loss is a copy of @forward that returns a numerator and a denominator instead of the graph's outputs.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/losses/Loss.h"
#include "runtime/plan/NearestName.h"

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

/// Builds @loss next to @forward. Every method that can fail has reported what is wrong.
class LossBuilder {
public:
  LossBuilder(ModuleOp module, func::FuncOp forward, const Recipe &recipe)
      : module(module), forward(forward), recipe(recipe), settings(recipe.loss) {}

  LogicalResult run() {
    if (!settings.kind.empty() && !settings.output.empty())
      return fail("loss.output")
             << "loss.output names the graph's own loss and loss.kind asks for a built-in one: give one of "
                "the two";
    FailureOr<unsigned> output = settings.kind.empty() ? findGraphLoss() : findPrediction();
    if (failed(output))
      return failure();
    const LossKind *kind = nullptr;
    if (!settings.kind.empty() && !(kind = findLoss(settings.kind)))
      return fail("loss.kind") << "unknown loss `" << settings.kind << "`; known: " << lossNames();
    cloneForward();
    Value prediction = returned[*output];
    OpBuilder builder = OpBuilder::atBlockEnd(&loss.getBody().front());
    std::optional<LossResult> result =
        kind ? buildLoss(builder, *kind, *output, prediction) : std::optional(graphLoss(builder, prediction));
    if (!result) {
      loss.erase();
      return failure();
    }
    finish(builder, *result, kind ? "loss" : outputName(*output));
    return success();
  }

private:
  InFlightDiagnostic fail(const std::string &key) { return mlir::emitError(forward.getLoc()) << recipe.at(key); }

  std::string outputName(unsigned i) {
    auto name = forward.getResultAttrOfType<StringAttr>(i, names::kName);
    return name ? name.str() : "output " + std::to_string(i);
  }
  bool isFloatOutput(unsigned i) {
    auto type = dyn_cast<RankedTensorType>(forward.getResultTypes()[i]);
    return type && isa<FloatType>(type.getElementType());
  }
  bool isScalarLoss(unsigned i) {
    return isFloatOutput(i) && cast<RankedTensorType>(forward.getResultTypes()[i]).getNumElements() == 1;
  }
  std::string listOutputs() {
    std::string text = "outputs:";
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
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
    std::string nearest = plan::nearestName(name, known);
    fail(key) << key << ": the graph has no output `" << name << "`; "
              << (nearest.empty() ? "" : "the nearest is `" + nearest + "`; ") << listOutputs();
    return failure();
  }

  FailureOr<unsigned> findGraphLoss() {
    if (!settings.output.empty()) {
      FailureOr<unsigned> output = findOutput("loss.output", settings.output);
      if (succeeded(output) && !isScalarLoss(*output)) {
        fail("loss.output") << "loss.output: `" << settings.output << "` is "
                            << typeText(forward.getResultTypes()[*output])
                            << ", not a scalar of floating point; name a scalar output, or give loss.kind and loss.of; "
                            << listOutputs();
        return failure();
      }
      return output;
    }
    llvm::SmallVector<unsigned> candidates;
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      if (isScalarLoss(i))
        candidates.push_back(i);
    if (candidates.size() == 1)
      return candidates.front();
    fail("loss") << (candidates.empty() ? "the graph has no scalar floating-point output that could be the loss"
                                        : "several outputs of the graph could be the loss")
                 << ": set loss.output to one, or loss.kind, loss.of and loss.target for a built-in loss; "
                 << listOutputs();
    return failure();
  }

  FailureOr<unsigned> findPrediction() {
    if (!settings.of.empty()) {
      FailureOr<unsigned> output = findOutput("loss.of", settings.of);
      if (succeeded(output) && !isFloatOutput(*output)) {
        fail("loss.of") << "loss.of: `" << settings.of << "` is " << typeText(forward.getResultTypes()[*output])
                        << ", and a loss needs floating point; " << listOutputs();
        return failure();
      }
      return output;
    }
    llvm::SmallVector<unsigned> candidates;
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      if (isFloatOutput(i))
        candidates.push_back(i);
    if (candidates.size() == 1)
      return candidates.front();
    fail("loss.kind") << "the graph has " << candidates.size()
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

  /// The graph input of this name, or a new one of type `type`.
  FailureOr<Value> findTarget(const LossKind &kind, const std::string &name, RankedTensorType type,
                              RankedTensorType predictionType) {
    OpBuilder builder(module.getContext());
    for (unsigned i = 0; i < loss.getNumArguments(); ++i) {
      auto argument = loss.getArgAttrOfType<StringAttr>(i, names::kName);
      if (!argument || argument.getValue() != name)
        continue;
      auto found = cast<RankedTensorType>(loss.getArgument(i).getType());
      bool floating = isa<FloatType>(found.getElementType());
      bool asProbabilities =
          kind.probabilities && floating && !settings.shift && found.getShape() == predictionType.getShape();
      if (found.getShape() != type.getShape() && !asProbabilities) {
        fail("loss.target") << "loss.target: the graph input `" << name << "` is " << typeText(found) << ", but "
                            << kind.name << " of " << typeText(predictionType) << " needs the shape of "
                            << typeText(type) << (kind.hasClasses ? "; is loss.class_axis right?" : "");
        return failure();
      }
      if (kind.hasClasses && !asProbabilities && (floating || found.getElementType().isInteger(1))) {
        fail("loss.target") << "loss.target: the graph input `" << name << "` is " << typeText(found) << ", but "
                            << kind.name << " needs integer classes, such as " << typeText(type);
        return failure();
      }
      return Value(loss.getArgument(i));
    }
    auto attributes =
        builder.getDictionaryAttr({builder.getNamedAttr(names::kName, builder.getStringAttr(name)),
                                   builder.getNamedAttr(names::kSampleAxis, builder.getI64IntegerAttr(0))});
    unsigned position = loss.getNumArguments();
    if (failed(loss.insertArgument(position, type, attributes, lossLoc(name))))
      return failure();
    return Value(loss.getArgument(position));
  }

  std::optional<LossResult> buildLoss(OpBuilder &builder, const LossKind &kind, unsigned output, Value returnedValue) {
    auto type = cast<RankedTensorType>(returnedValue.getType());
    int64_t rank = type.getRank(), axis = settings.classAxis < 0 ? settings.classAxis + rank : settings.classAxis;
    auto describe = [&] { return "`" + outputName(output) + "` is " + typeText(type); };
    if (kind.hasClasses && (axis < 0 || axis >= rank)) {
      fail("loss.class_axis") << "loss.class_axis: " << settings.classAxis
                              << " is no axis of the prediction: " << describe() << "; use one from " << -rank << " to "
                              << rank - 1;
      return std::nullopt;
    }
    if (settings.shift && (!kind.hasClasses || rank < 2 || axis == 1 || type.getDimSize(1) < 2)) {
      fail("loss.shift")
          << "loss.shift drops a position of axis 1, which needs a loss over classes on another axis and at "
             "least two positions: "
          << describe() << ", class_axis is " << settings.classAxis
          << "; for [batch, sequence, vocabulary] set loss.class_axis = -1";
      return std::nullopt;
    }
    llvm::SmallVector<int64_t> shape(type.getShape());
    if (kind.hasClasses)
      shape.erase(shape.begin() + axis);
    Type lossType = type.getElementType().isF64() ? Type(builder.getF64Type()) : Type(builder.getF32Type());
    auto targetType = RankedTensorType::get(shape, kind.hasClasses ? Type(builder.getI64Type()) : lossType);
    FailureOr<Value> argument =
        findTarget(kind, settings.target.empty() ? "target" : settings.target, targetType, type);
    if (failed(argument))
      return std::nullopt;

    Location loc = lossLoc("loss." + settings.kind);
    Expr prediction = toLossType(Expr(builder, loc, returnedValue)), target(builder, loc, *argument);
    if (!kind.hasClasses)
      target = target.cast(lossType);
    if (settings.shift)
      target = nextTargets(target, axis > 1 ? 1 : 0, settings.ignoreIndex);
    LossInputs inputs{prediction, target, settings, axis};
    if (std::string problem = kind.check(inputs); !problem.empty()) {
      bool about = problem.find("pos_weight") != std::string::npos;
      fail(about ? "loss.pos_weight" : "loss.weight") << problem << " (" << describe() << ")";
      return std::nullopt;
    }
    return kind.build(inputs);
  }

  void finish(OpBuilder &builder, const LossResult &result, llvm::StringRef lossName) {
    llvm::SmallVector<Value> values{result.sum, result.weight};
    llvm::SmallVector<llvm::StringRef> resultNames{"loss_sum", "loss_weight"};
    if (result.correct && result.counted) {
      values.append({result.correct->value, result.counted->value});
      resultNames.append({"correct", "counted"});
    }
    func::ReturnOp::create(builder, forward.getLoc(), values);
    llvm::SmallVector<Attribute> resultAttributes;
    for (llvm::StringRef name : resultNames)
      resultAttributes.push_back(
          builder.getDictionaryAttr(builder.getNamedAttr(names::kName, builder.getStringAttr(name))));
    loss.setType(FunctionType::get(module.getContext(), loss.getArgumentTypes(), ValueRange(values).getTypes()));
    loss.setResAttrsAttr(builder.getArrayAttr(resultAttributes));
    loss->setAttr(names::kLossName, builder.getStringAttr(lossName));
  }

  ModuleOp module;
  func::FuncOp forward, loss;
  const Recipe &recipe;
  const LossSettings &settings;
  llvm::SmallVector<Value> returned;
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
    const Recipe recipe = given ? *given : fromOptions();
    if (failed(LossBuilder(getOperation(), forward, recipe).run()))
      signalPassFailure();
  }

private:
  Recipe fromOptions() const {
    Recipe recipe;
    LossSettings &loss = recipe.loss;
    loss.output = output;
    loss.kind = kind;
    loss.of = of;
    loss.target = target;
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
    return recipe;
  }

  std::optional<Recipe> given;
};

} // namespace

std::unique_ptr<Pass> createAttachLossPass(const Recipe &recipe) { return std::make_unique<AttachLossPass>(recipe); }

} // namespace tcc::train

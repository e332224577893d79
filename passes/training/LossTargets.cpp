//===- LossTargets.cpp - targets and other inputs of a loss ----------------===//
#include "passes/training/LossTargets.h"

#include "passes/Common.h"
#include "support/NearestName.h"

using namespace mlir;

namespace tcc::train {

std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

std::optional<int64_t> samplesOfBatch(func::FuncOp loss) {
  for (unsigned i = 0; i < loss.getNumArguments(); ++i) {
    auto axis = loss.getArgAttrOfType<IntegerAttr>(i, names::kSampleAxis);
    auto type = cast<RankedTensorType>(loss.getArgument(i).getType());
    if (axis && axis.getInt() >= 0 && axis.getInt() < type.getRank())
      return type.getDimSize(axis.getInt());
  }
  return std::nullopt;
}

InFlightDiagnostic LossOutputs::fail(const std::string &key) const {
  return mlir::emitError(forward.getLoc()) << recipe.at(key);
}

std::string LossOutputs::nameOf(unsigned i) const {
  auto name = forward.getResultAttrOfType<StringAttr>(i, names::kName);
  return name ? name.str() : "output " + std::to_string(i);
}
IntegerAttr LossOutputs::sampleAxisOf(unsigned i) const {
  return forward.getResultAttrOfType<IntegerAttr>(i, names::kSampleAxis);
}
bool LossOutputs::isInner(unsigned i) const { return bool(forward.getResultAttr(i, names::kInner)); }
bool LossOutputs::isFloat(unsigned i) const {
  auto type = dyn_cast<RankedTensorType>(typeOf(i));
  return type && isa<FloatType>(type.getElementType());
}
bool LossOutputs::isScalarLoss(unsigned i) const {
  return isFloat(i) && cast<RankedTensorType>(typeOf(i)).getNumElements() == 1;
}
std::string LossOutputs::describe(llvm::ArrayRef<unsigned> outputs) const {
  std::string text;
  for (unsigned i : outputs)
    text += (text.empty() ? "`" : ", `") + nameOf(i) + "` is " + typeText(typeOf(i));
  return text;
}
std::string LossOutputs::list() const {
  std::string text = "outputs:";
  for (unsigned i = 0; i < count(); ++i)
    if (!isInner(i))
      text += (i ? ", `" : " `") + nameOf(i) + "` (" + typeText(typeOf(i)) + ")";
  return text;
}

FailureOr<unsigned> LossOutputs::find(const std::string &key, const std::string &name) const {
  std::vector<std::string> known;
  for (unsigned i = 0; i < count(); ++i) {
    if (nameOf(i) == name)
      return i;
    known.push_back(nameOf(i));
  }
  std::string nearest = nearestName(name, known);
  fail(key) << key << ": the graph has no output `" << name << "`; "
            << (nearest.empty() ? "" : "the nearest is `" + nearest + "`; ") << list();
  return failure();
}

FailureOr<LossOutputs::Numbers> LossOutputs::findGraphLoss() const {
  if (!recipe.loss.output.empty()) {
    FailureOr<unsigned> output = find("loss.output", recipe.loss.output);
    if (failed(output))
      return failure();
    if (!isScalarLoss(*output)) {
      fail("loss.output") << "loss.output: `" << recipe.loss.output << "` is " << typeText(typeOf(*output))
                          << ", not a scalar of floating point; name a scalar output, or give loss.kind and loss.of; "
                          << list();
      return failure();
    }
    return Numbers{*output};
  }
  Numbers candidates;
  for (unsigned i = 0; i < count(); ++i)
    if (isScalarLoss(i))
      candidates.push_back(i);
  if (candidates.size() == 1)
    return candidates;
  fail("loss") << (candidates.empty() ? "the graph has no scalar floating-point output that could be the loss"
                                      : "several outputs of the graph could be the loss")
               << ": set loss.output to one, or loss.kind, loss.of and loss.target for a built-in loss; " << list();
  return failure();
}

FailureOr<LossOutputs::Numbers> LossOutputs::findPredictions(const Loss &kind) const {
  if (kind.predictions > 1 && recipe.loss.of.size() != kind.predictions) {
    fail(recipe.loss.of.empty() ? "loss.kind" : "loss.of")
        << "loss.of: " << kind.name << " compares " << kind.predictions << " values, and "
        << (recipe.loss.of.empty() ? std::string("none is named")
                                   : std::to_string(recipe.loss.of.size()) + " are named")
        << ": set loss.of = " << kind.roles << "; " << list();
    return failure();
  }
  if (recipe.loss.of.size() > kind.predictions) {
    fail("loss.of") << "loss.of: " << kind.name << " is of one value, and " << recipe.loss.of.size()
                    << " are named: name one; " << list();
    return failure();
  }
  Numbers outputs;
  for (const std::string &name : recipe.loss.of) {
    FailureOr<unsigned> output = find("loss.of", name);
    if (failed(output))
      return failure();
    if (!isFloat(*output)) {
      fail("loss.of") << "loss.of: `" << name << "` is " << typeText(typeOf(*output))
                      << ", and a loss needs floating point; " << list();
      return failure();
    }
    outputs.push_back(*output);
  }
  if (!outputs.empty())
    return outputs;
  for (unsigned i = 0; i < count(); ++i)
    if (isFloat(i))
      outputs.push_back(i);
  if (outputs.size() == 1)
    return outputs;
  fail("loss.kind") << "the graph has " << outputs.size()
                    << " floating-point outputs: set loss.of to the one that the loss is of; " << list();
  return failure();
}

/// Shifts the targets: each position gets that of the next one, and the last one is ignored. The logits keep all rows:
/// an ignored row costs less than a copy of all others.
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

/// The shape without extents of 1.
static llvm::SmallVector<int64_t> withoutOnes(RankedTensorType type) {
  llvm::SmallVector<int64_t> shape(type.getShape());
  llvm::erase(shape, 1);
  return shape;
}

/// True if axis 1 and the last axis leave the same shape for the target: of [batch, sequence, vocabulary] with as many
/// classes as positions.
static bool isAmbiguous(RankedTensorType type) {
  if (type.getRank() < 3)
    return false;
  llvm::SmallVector<int64_t> first(type.getShape()), last(type.getShape().drop_back());
  first.erase(first.begin() + 1);
  return first == last;
}

LogicalResult LossTargets::find(const Loss &kind, llvm::ArrayRef<unsigned> outputs, LossInputs &inputs, bool alone) {
  LogicalResult found =
      kind.target == LossTarget::Sequences ? findSequences(outputs, inputs) : findTargetOf(kind, outputs, inputs);
  if (succeeded(found) && !settings.sampleWeight.empty())
    found = weigh(kind, outputs, inputs, "loss.sample_weight", settings.sampleWeight);
  if (failed(found) || !settings.padsBatches)
    return found;
  // A single loss can leave a sample out by its target or its weight (BatchReader::maskable).
  const bool leavesOut = alone && (inputs.sampleWeight || (kind.hasClasses() && !isFloatTensor(inputs.target)));
  return leavesOut ? success() : weigh(kind, outputs, inputs, "data.last", presenceInput());
}

std::string LossTargets::presenceInput() {
  std::string name = "sample_present";
  for (;; name += "_") {
    const std::optional<unsigned> argument = findArgument(name);
    if (argument && loss.getArgAttr(*argument, names::kPresence))
      return name;
    if (!argument)
      break;
  }
  auto samples = RankedTensorType::get({samplesOfBatch(loss).value_or(1)}, Float32Type::get(loss.getContext()));
  loss.setArgAttr(addArgument(name, samples), names::kPresence, UnitAttr::get(loss.getContext()));
  return name;
}

LogicalResult LossTargets::weigh(const Loss &kind, llvm::ArrayRef<unsigned> outputs, LossInputs &inputs,
                                 const std::string &key, const std::string &name) {
  auto fail = [&] { return graph.fail(key) << key << ": "; };
  const llvm::ArrayRef<int64_t> shape = shapeOf(inputs.prediction);
  // For sequences there is one numerator per sample.
  const bool sequences = kind.target == LossTarget::Sequences;
  auto sampled = graph.sampleAxisOf(outputs.front());
  int64_t axis = sequences ? inputs.axes.samples : sampled && sampled.getInt() >= 0 ? sampled.getInt() : 0;
  if (axis >= int64_t(shape.size()) || axis == inputs.classAxis)
    return fail() << "the prediction has no axis of samples that each could have a weight: " << graph.describe(outputs)
                  << "; leave the key out";
  inputs.sampleAxis = sequences ? 0 : axis;
  const int64_t samples = samplesOfBatch(loss).value_or(shape[axis]);
  if (samples == 0 || shape[axis] % samples != 0)
    return fail() << "a batch has " << samples << " samples, but axis " << axis << " of the prediction has "
                  << shape[axis] << " rows, which they do not divide: " << graph.describe(outputs)
                  << "; leave the key out, or move the samples to the first axis";
  std::optional<unsigned> argument = findArgument(name);
  if (!argument)
    argument = addArgument(name, RankedTensorType::get({samples}, Float32Type::get(loss.getContext())));
  Value weights = loss.getArgument(*argument);
  auto type = cast<RankedTensorType>(weights.getType());
  if (!isFloatTensor(weights) || type.getNumElements() != samples || type.getRank() == 0 ||
      type.getDimSize(0) != samples)
    return fail() << "the graph input `" << name << "` is " << typeText(type) << ", but the samples' weights are "
                  << typeText(RankedTensorType::get({samples}, Float32Type::get(loss.getContext())))
                  << "; name another column";
  Expr own = inputs.prediction.with(weights).cast(elementTypeOf(inputs.prediction)).reshape({samples});
  inputs.sampleWeight = inputs.sampleWeight ? *inputs.sampleWeight * own : own;
  return success();
}

std::optional<unsigned> LossTargets::findArgument(llvm::StringRef name) {
  for (unsigned i = 0; i < loss.getNumArguments(); ++i)
    if (auto argument = loss.getArgAttrOfType<StringAttr>(i, names::kName); argument && argument.getValue() == name)
      return i;
  return std::nullopt;
}
unsigned LossTargets::addArgument(llvm::StringRef name, RankedTensorType type) {
  OpBuilder builder(loss.getContext());
  auto attributes = builder.getDictionaryAttr({builder.getNamedAttr(names::kName, builder.getStringAttr(name)),
                                               builder.getNamedAttr(names::kSampleAxis, builder.getI64IntegerAttr(0))});
  unsigned position = loss.getNumArguments();
  [[maybe_unused]] LogicalResult inserted =
      loss.insertArgument(position, type, attributes, NameLoc::get(StringAttr::get(loss.getContext(), name)));
  assert(succeeded(inserted) && "the argument comes last");
  return position;
}
void LossTargets::limit(unsigned argument, int64_t high, bool orIgnored, const std::string &meaning) {
  Builder builder(loss.getContext());
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
  ranges.push_back(range.getDictionary(loss.getContext()));
  loss.setArgAttr(argument, names::kIndexRanges, builder.getArrayAttr(ranges));
}

FailureOr<Value> LossTargets::findTarget(const Loss &kind, const std::string &name, RankedTensorType type,
                                         RankedTensorType predictionType) {
  std::optional<unsigned> argument = findArgument(name);
  if (!argument)
    return Value(loss.getArgument(addArgument(name, type)));
  auto found = cast<RankedTensorType>(loss.getArgument(*argument).getType());
  bool floating = isa<FloatType>(found.getElementType());
  bool asProbabilities =
      kind.probabilities && floating && !settings.shift && found.getShape() == predictionType.getShape();
  // Shapes may differ in extents of 1, but the target is never broadcast.
  const bool columns = !kind.hasClasses() && withoutOnes(found) == withoutOnes(type);
  if (found.getShape() != type.getShape() && !asProbabilities && !columns) {
    const bool last = kind.hasClasses() && found.getShape() == predictionType.getShape().drop_back();
    graph.fail("loss.target") << "loss.target: the graph input `" << name << "` is " << typeText(found) << ", but "
                              << kind.name << " of " << typeText(predictionType) << " needs the shape of "
                              << typeText(type)
                              << (last                ? "; set loss.class_axis = -1 if the classes are the last axis"
                                  : kind.hasClasses() ? "; is loss.class_axis right?"
                                                      : "");
    return failure();
  }
  if (kind.hasClasses() && !asProbabilities && (floating || found.getElementType().isInteger(1))) {
    graph.fail("loss.target") << "loss.target: the graph input `" << name << "` is " << typeText(found) << ", but "
                              << kind.name << " needs integer classes, such as " << typeText(type);
    return failure();
  }
  return Value(loss.getArgument(*argument));
}

FailureOr<unsigned> LossTargets::findIntegers(const std::string &key, const std::string &name, int64_t samples,
                                              int64_t extent) {
  llvm::SmallVector<int64_t> shape = {samples};
  if (extent)
    shape.push_back(extent);
  std::optional<unsigned> argument = findArgument(name);
  if (!argument)
    return addArgument(name, RankedTensorType::get(shape, IntegerType::get(loss.getContext(), 64)));
  auto found = cast<RankedTensorType>(loss.getArgument(*argument).getType());
  bool fits = extent ? found.getRank() == 2 && found.getDimSize(0) == samples && found.getDimSize(1) > 0
                     : found.getShape() == llvm::ArrayRef(shape);
  if (fits && isa<IntegerType>(found.getElementType()) && !found.getElementType().isInteger(1))
    return *argument;
  graph.fail(key) << key << ": the graph input `" << name << "` is " << typeText(found)
                  << ", but ctc needs integers of the shape [" << samples
                  << (extent ? ", labels]: a row of labels for each sample" : "]: a length for each sample");
  return failure();
}

FailureOr<int64_t> LossTargets::axisOf(const std::string &key, int64_t given, llvm::ArrayRef<unsigned> outputs,
                                       int64_t rank) {
  int64_t axis = given < 0 ? given + rank : given;
  if (axis >= 0 && axis < rank)
    return axis;
  graph.fail(key) << key << ": " << given << " is no axis of the prediction: " << graph.describe(outputs)
                  << "; use one from " << -rank << " to " << rank - 1;
  return failure();
}

LogicalResult LossTargets::findSequences(llvm::ArrayRef<unsigned> outputs, LossInputs &inputs) {
  auto type = cast<RankedTensorType>(graph.typeOf(outputs.front()));
  if (type.getRank() != 3)
    return graph.fail("loss.of") << "loss.of: " << settings.kind
                                 << " needs a prediction with the axes time, samples and "
                                 << "classes: " << graph.describe(outputs);
  FailureOr<int64_t> time = axisOf("loss.time_axis", settings.timeAxis, outputs, 3);
  if (failed(time))
    return failure();
  FailureOr<int64_t> classes = axisOf("loss.class_axis", settings.classAxis.value_or(-1), outputs, 3);
  if (failed(classes))
    return failure();
  if (*time == *classes)
    return graph.fail("loss.time_axis") << "loss.time_axis and loss.class_axis are both axis " << *time << " of "
                                        << graph.describe(outputs) << ": name two of its three axes";
  inputs.axes = {3 - *time - *classes, *time, *classes};
  auto sampled = graph.sampleAxisOf(outputs.front());
  if (sampled && sampled.getInt() >= 0 && sampled.getInt() != inputs.axes.samples)
    return graph.fail("loss.time_axis") << "loss.time_axis " << settings.timeAxis << " and loss.class_axis "
                                        << settings.classAxis.value_or(-1) << " leave axis " << inputs.axes.samples
                                        << " for the samples, but the graph has them on axis " << sampled.getInt()
                                        << ": " << graph.describe(outputs)
                                        << "; set loss.time_axis and loss.class_axis to the other two";
  int64_t samples = type.getDimSize(inputs.axes.samples), steps = type.getDimSize(*time),
          labels = type.getDimSize(*classes);
  if (!findArgument(settings.target) && !settings.maxTargetLength)
    return graph.fail("loss.target")
           << "loss.target: the graph has no input `" << settings.target
           << "`, so the recipe must say how long its rows are: set loss.max_target_length to the "
              "columns of the data, to which shorter targets are padded";
  FailureOr<unsigned> target =
      findIntegers("loss.target", settings.target, samples, settings.maxTargetLength.value_or(1));
  if (failed(target))
    return failure();
  auto targetType = cast<RankedTensorType>(loss.getArgument(*target).getType());
  if (settings.maxTargetLength && targetType.getDimSize(1) != *settings.maxTargetLength)
    return graph.fail("loss.max_target_length")
           << "loss.max_target_length is " << *settings.maxTargetLength << ", but the graph input `" << settings.target
           << "` is " << typeText(targetType) << ": leave the key out";
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
    into = inputs.target.with(loss.getArgument(*argument)).cast(inputs.target.builder->getI64Type());
    return success();
  };
  if (failed(lengths("loss.input_lengths", settings.inputLengths, steps, "number of time steps", inputs.inputLengths)))
    return failure();
  return lengths("loss.target_lengths", settings.targetLengths, targetType.getDimSize(1), "length of a target",
                 inputs.targetLengths);
}

LogicalResult LossTargets::findTargetOf(const Loss &kind, llvm::ArrayRef<unsigned> outputs, LossInputs &inputs) {
  const auto type = cast<RankedTensorType>(graph.typeOf(outputs.front()));
  const Type lossType = elementTypeOf(inputs.prediction);
  int64_t rank = type.getRank();
  if (kind.hasClasses() && !settings.classAxis && isAmbiguous(type))
    return graph.fail("loss.class_axis")
           << "loss.class_axis: the classes could be axis 1 or the last one of " << graph.describe(outputs)
           << ", and the target's shape is the same for both: set it to 1, or to -1 for [batch, sequence, vocabulary]";
  if (kind.hasClasses() || settings.classAxis) {
    FailureOr<int64_t> axis = axisOf("loss.class_axis", settings.classAxis.value_or(1), outputs, rank);
    if (failed(axis))
      return failure();
    inputs.classAxis = *axis;
  }
  int64_t axis = inputs.classAxis;
  if (settings.shift && (!kind.hasClasses() || rank < 2 || axis == 1 || type.getDimSize(1) < 2))
    return graph.fail("loss.shift")
           << "loss.shift drops a position of axis 1, which needs a loss over classes on another axis and at "
              "least two positions: "
           << graph.describe(outputs) << ", class_axis is " << settings.classAxis.value_or(1)
           << "; for [batch, sequence, vocabulary] set loss.class_axis = -1";
  if (kind.target == LossTarget::None)
    return success();
  llvm::SmallVector<int64_t> shape(type.getShape());
  if (kind.hasClasses())
    shape.erase(shape.begin() + axis);
  else if (kind.target == LossTarget::Rows && !shape.empty())
    shape.pop_back();
  auto targetType =
      RankedTensorType::get(shape, kind.hasClasses() ? Type(IntegerType::get(loss.getContext(), 64)) : lossType);
  FailureOr<Value> argument = findTarget(kind, settings.target.empty() ? "target" : settings.target, targetType, type);
  if (failed(argument))
    return failure();
  inputs.target = inputs.target.with(*argument);
  if (!kind.hasClasses())
    inputs.target = inputs.target.cast(lossType).reshape(shape);
  else if ((oneOfSeveral || graph.isInner(outputs.front())) && !isFloatTensor(*argument)) // else the loader sees them
    limit(cast<BlockArgument>(*argument).getArgNumber(), type.getDimSize(axis) - 1, true, "class");
  if (settings.shift)
    inputs.target = nextTargets(inputs.target, axis > 1 ? 1 : 0, settings.ignoreIndex);
  return success();
}

} // namespace tcc::train

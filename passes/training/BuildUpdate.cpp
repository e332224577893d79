//===- BuildUpdate.cpp - the entry functions --------------------------------===//
//
// @backward yields gradients of a sum. This pass averages them (one division by the weight of the whole window),
// computes their norm, clips them and gives them to the optimizer; with accumulation, state variables hold the sums
// between micro-batches.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Philox.h"
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/RecipeAttribute.h"
#include "passes/optimizers/BlockMoments.h"
#include "passes/optimizers/Optimizer.h"
#include "passes/training/EntryBuilder.h"
#include "passes/training/RankSums.h"
#include "passes/training/TrainingState.h"
#include "support/BytesText.h"
#include "support/PlanNames.h"

#include <limits>

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_BUILDUPDATEPASS
#include "passes/Passes.h.inc"

namespace {

using outputs::kGradNorm, outputs::kLossSum, outputs::kLossWeight;

/// The operands of one update, as values of its entry.
struct UpdateInputs {
  Value lossSum, lossWeight;
  llvm::SmallVector<Value> gradients; ///< sums, one per trained parameter; scaled if @backward scales
  llvm::SmallVector<Value> terms;     ///< numbers of several losses, in the order of termNames()
  bool gradientsAreState = false;     ///< accumulated: in memory until the last update in any case
};

class EntryMaker {
public:
  EntryMaker(ModuleOp module, const Recipe &recipe, bool predictAsExported)
      : module(module), recipe(recipe), predictAsExported(predictAsExported), builder(module.getContext()) {
    forward = lookupFunction(module, "forward");
    loss = lookupFunction(module, "loss");
    backward = lookupFunction(module, "backward");
    if (backward)
      gradientScale = backward->getAttrOfType<FloatAttr>(names::kGradientScale);
  }

  LogicalResult run() {
    if (failed(checkNames()))
      return failure();
    if (wants(entries::kTrain) && backward) {
      FailureOr<TrainingState> declared = declareTrainingState(module, backward, recipe);
      if (failed(declared))
        return failure();
      state = std::move(*declared);
      if (!accumulatesInState(recipe))
        makeStep();
      else
        makeAccumulation();
    }
    if (wants(entries::kEvaluate) && loss)
      makeEvaluate();
    if (wants(entries::kPredict) && forward)
      makePredictions();
    if (wants(entries::kGradients) && backward)
      makeGradients();
    for (func::FuncOp function : {forward, loss, backward})
      if (function)
        function.erase();
    return success();
  }

private:
  bool wants(llvm::StringRef entry) const { return builds(module, entry); }

  static bool isScalar(Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.getRank() == 0;
  }

  /// Checks the attributes by which later code finds results.
  LogicalResult checkNames() {
    for (unsigned i = 0; loss && i < loss.getNumResults(); ++i)
      if (!loss.getResultAttrOfType<StringAttr>(i, names::kName))
        return loss.emitOpError() << "result " << i << " has no " << names::kName;
    if (backward && backward.getNumResults() < 2)
      return backward.emitOpError() << "has " << backward.getNumResults()
                                    << " results, no numerator and denominator of the loss";
    for (unsigned i = 0; backward && i < 2; ++i)
      if (!isScalar(backward.getResultTypes()[i]))
        return backward.emitOpError() << "result " << i << " is of type " << backward.getResultTypes()[i]
                                      << ", and no scalar";
    const SymbolTable symbols(module);
    bool others = false; // numbers of several losses and train.outputs are behind the gradients
    for (unsigned i = 2; backward && i < backward.getNumResults(); ++i) {
      auto result = backward.getResultAttrOfType<StringAttr>(i, names::kName);
      const bool isOther = result && (outputs::isTerm(result.getValue()) || isTrainingOutput(result.getValue()));
      others |= isOther;
      if (isOther)
        continue;
      auto name = backward.getResultAttrOfType<StringAttr>(i, names::kGradientOf);
      auto variable = name ? symbols.lookup<VariableOp>(name) : VariableOp();
      if (others || !variable)
        return backward.emitOpError() << "result " << i << " has no " << names::kGradientOf << " that names a variable";
      auto gradient = dyn_cast<RankedTensorType>(backward.getResultTypes()[i]);
      auto declared = dyn_cast<RankedTensorType>(variable.getType());
      if (!gradient || !declared || gradient.getShape() != declared.getShape())
        return backward.emitOpError() << "result " << i << " is of type " << backward.getResultTypes()[i] << ", and @"
                                      << name.getValue() << " of type " << variable.getType();
    }
    return success();
  }

  Expr place(EntryBuilder &entry, Value value, llvm::StringRef name) {
    return Expr(entry.builder, NameLoc::get(builder.getStringAttr(name)), value);
  }

  static bool isTrainingOutput(llvm::StringRef name) { return name.starts_with(outputs::kTrainingPrefix); }

  /// True for the sums of a loss; metrics are computed from the other results of @loss.
  static bool isNumber(llvm::StringRef name) {
    return name == kLossSum || name == kLossWeight || name == outputs::kCorrect || name == outputs::kCounted ||
           outputs::isTerm(name);
  }

  /// Adds a scalar output for the runtime: f32, whatever the model's type.
  void scalarOutput(EntryBuilder &entry, llvm::StringRef name, Value value) {
    entry.output(name, place(entry, value, name).cast(builder.getF32Type()));
  }

  /// Names of the numbers of several losses, behind the gradients.
  llvm::SmallVector<llvm::StringRef> termNames() {
    llvm::SmallVector<llvm::StringRef> names;
    for (unsigned i = endOfGradients(backward), end = endOfTerms(backward); i < end; ++i)
      names.push_back(backward.getResultAttrOfType<StringAttr>(i, names::kName).getValue());
    return names;
  }
  /// The gradients among the results of @backward.
  llvm::ArrayRef<Value> gradientsOf(llvm::ArrayRef<Value> values) {
    return values.slice(2, endOfGradients(backward) - 2);
  }
  llvm::ArrayRef<Value> termsOf(llvm::ArrayRef<Value> values) {
    return values.take_front(endOfTerms(backward)).drop_front(endOfGradients(backward));
  }
  /// Returns train.outputs, the last results of @backward, from a micro-batch.
  void returnTrainingOutputs(EntryBuilder &entry, llvm::ArrayRef<Value> values) {
    for (unsigned i = endOfTerms(backward); i < backward.getNumResults(); ++i)
      entry.output(backward.getResultAttrOfType<StringAttr>(i, names::kName).getValue(), values[i],
                   backward.getResultAttrOfType<IntegerAttr>(i, names::kSampleAxis));
  }

  void makeStep() {
    EntryBuilder entry(module, entries::kStep);
    llvm::SmallVector<Value> values = entry.inlineBody(backward, /*keepInputs=*/false);
    UpdateInputs inputs{values[0], values[1], llvm::SmallVector<Value>(gradientsOf(values)),
                        llvm::SmallVector<Value>(termsOf(values))};
    noteWaiting();
    for (auto [parameter, gradient] : llvm::zip_equal(state.parameters, inputs.gradients))
      gradient = place(entry, gradient, parameter.name).cast(updateType(parameter.type.getElementType()));
    if (recipe.parallel.distributed())
      sumOverRanks(entry, recipe.parallel, inputs.lossSum, inputs.lossWeight, inputs.gradients, inputs.terms,
                   /*areShards=*/false);
    returnTrainingOutputs(entry, values);
    buildUpdate(entry, inputs);
  }

  void makeAccumulation() {
    func::FuncOp update = makeUpdate();
    for (bool first : {true, false}) {
      if (!first && recipe.training.accumulate() == 1)
        break; // virtual ranks with one micro-batch each
      EntryBuilder entry(module, first ? entries::kAccumulateFirst : entries::kAccumulateNext);
      entry.setScalarNames(scalarNames);
      llvm::SmallVector<Value> values = entry.inlineBody(backward, /*keepInputs=*/false);
      scalarOutput(entry, kLossSum, values[0]);
      scalarOutput(entry, kLossWeight, values[1]);
      auto accumulate = [&](llvm::StringRef variable, Expr value) {
        entry.update(variable, first ? value : value.with(entry.state(variable)) + value);
      };
      accumulate(kSumState, place(entry, values[0], kSumState));
      accumulate(kWeightState, place(entry, values[1], kWeightState));
      for (auto [name, value] : llvm::zip_equal(termNames(), termsOf(values))) {
        scalarOutput(entry, name, value);
        if (recipe.parallel.distributed())
          accumulate(termState(name), place(entry, value, name));
      }
      llvm::SmallVector<Value> gradients(gradientsOf(values));
      for (auto [parameter, gradient] : llvm::zip_equal(state.parameters, gradients))
        gradient = place(entry, gradient, parameter.name).cast(updateType(parameter.type.getElementType()));
      if (recipe.parallel.shardsAccumulators())
        scatterGradients(entry, recipe.parallel, gradients);
      for (auto [parameter, gradient] : llvm::zip_equal(state.parameters, gradients))
        accumulate(gradientState(parameter.name), place(entry, gradient, parameter.name));
      returnTrainingOutputs(entry, values);
      writeState(entry, isFinite(place(entry, values[0], kLossSum)));
      entry.finish();
    }
    if (recipe.parallel.virtualRanks)
      sumVirtualRanks(module, recipe.parallel, state.sums);
    update->moveAfter(&module.getBody()->back());
  }

  func::FuncOp makeUpdate() {
    EntryBuilder entry(module, entries::kUpdate);
    UpdateInputs inputs{entry.state(kSumState), entry.state(kWeightState), {}, {}, true};
    if (recipe.parallel.distributed())
      for (llvm::StringRef name : termNames())
        inputs.terms.push_back(entry.state(termState(name)));
    for (const TrainedParameter &parameter : state.parameters)
      inputs.gradients.push_back(entry.state(gradientState(parameter.name)));
    if (recipe.parallel.distributed())
      sumWindow(entry, inputs);
    return buildUpdate(entry, inputs);
  }

  /// Sums the window's accumulators over all ranks in place: the next window overwrites them. Running statistics
  /// changed with each micro-batch; from here on they are those of rank 0.
  void sumWindow(EntryBuilder &entry, UpdateInputs &inputs) {
    const ParallelSettings &parallel = recipe.parallel;
    sumOverRanks(entry, parallel, inputs.lossSum, inputs.lossWeight, inputs.gradients, inputs.terms,
                 parallel.shardsAccumulators());
    // Otherwise there was no sum, or one of shards, which are smaller than the accumulators.
    if (parallel.shardsAccumulators() ? parallel.replicates() : !parallel.sharded())
      for (auto [parameter, gradient] : llvm::zip_equal(state.parameters, inputs.gradients))
        entry.update(gradientState(parameter.name), gradient);
    std::vector<std::string> statistics;
    backward.walk([&](WriteOp write) {
      if (!llvm::is_contained(statistics, write.getVariable()))
        statistics.push_back(write.getVariable().str());
    });
    llvm::SmallVector<Value> values;
    for (const std::string &variable : statistics)
      values.push_back(entry.state(variable));
    for (auto [variable, value] : llvm::zip_equal(statistics, ofFirstRank(entry, values)))
      entry.update(variable, value);
  }

  /// Notes the memory that an update needs because it waits for the norm of all gradients.
  void noteWaiting() {
    const bool clips = recipe.training.has_clip_norm();
    uint64_t bytes = 0;
    for (const TrainedParameter &parameter : state.parameters)
      bytes += uint64_t(parameter.held.getNumElements()) * (parameter.type.getElementType().isF64() ? 8 : 4);
    llvm::StringRef who = !gradientScale ? "clipping waits"
                          : clips        ? "loss scaling and clipping wait"
                                         : "loss scaling waits";
    if (clips || gradientScale)
      addNote(module, "gradients", "",
              who.str() + " for the norm of all gradients, which are in memory together, " + bytesText(bytes) +
                  ", before the first parameter is updated");
  }

  /// The factor that undoes @backward's scaling of the gradients. Scaling by powers of two is exact.
  Expr unscaling(EntryBuilder &entry, const Expr &like) {
    Expr scale = like.with(entry.scalar(scalars::kLossScale)).cast(elementTypeOf(like));
    return 1.0 / (scale * gradientScale.getValueAsDouble());
  }

  /// Averages the gradients, computes their norm, clips and updates; state only changes if the step is sound.
  func::FuncOp buildUpdate(EntryBuilder &entry, const UpdateInputs &inputs) {
    Expr sum = place(entry, inputs.lossSum, kLossSum), weight = place(entry, inputs.lossWeight, kLossWeight);
    std::optional<Expr> squares;
    for (auto [parameter, gradient] : llvm::zip_equal(state.parameters, inputs.gradients)) {
      // In the form of the update, whose kernel then sums the squares, too.
      Expr value = updated(parameter, place(entry, gradient, parameter.name));
      Expr square = sumAll(value * value).cast(elementTypeOf(sum));
      squares = squares ? *squares + square : square;
    }
    squares->loc = NameLoc::get(builder.getStringAttr(kGradNorm));
    if (recipe.parallel.sharded())
      squares = sumOfShards(*squares, recipe.parallel);
    Expr norm = squares->apply<SqrtOp>() / weight;
    Expr scale = norm.like(1) / weight;
    if (gradientScale) {
      Expr factor = unscaling(entry, norm);
      norm = norm * factor;
      scale = scale * factor;
    }
    if (recipe.training.has_clip_norm()) {
      Expr factor = norm.with(entry.scalar(scalars::kClipNorm)).cast(elementTypeOf(norm)) / (norm + 1e-6);
      scale = scale * norm.with(MinOp::create(entry.builder, norm.loc, factor, factor.like(1)));
    }
    Expr finite = isFinite(sum);
    // Waiting for the norm keeps every gradient alive until the last is known, so the update only waits if clipping
    // needs the norm, if scaled gradients may overflow, or if the gradients are state anyway. Otherwise a gradient dies
    // as soon as its update has run, and a norm that is not finite ends the run without a checkpoint.
    Expr sound = finite;
    if (recipe.training.has_clip_norm() || gradientScale || inputs.gradientsAreState)
      sound = finite.with(AndOp::create(entry.builder, finite.loc, finite, isFinite(norm)));
    scalarOutput(entry, kLossSum, sum);
    scalarOutput(entry, kLossWeight, weight);
    scalarOutput(entry, kGradNorm, norm);
    for (auto [name, value] : llvm::zip(termNames(), inputs.terms)) // empty: each micro-batch returns its own
      scalarOutput(entry, name, value);
    for (auto [parameter, gradient] : llvm::zip_equal(state.parameters, inputs.gradients))
      updateParameter(entry, parameter, gradient, scale, sound);
    // If scaled gradients overflow, the update is skipped but running statistics still change, as in PyTorch.
    writeState(entry, gradientScale ? finite : sound, recipe.parallel.distributed());
    scalarNames = entry.scalarNames();
    llvm::SmallVector<llvm::StringRef> list(scalarNames.begin(), scalarNames.end());
    module->setAttr(names::kScalars, builder.getStrArrayAttr(list));
    return entry.finish();
  }

  /// Makes a write of the forward pass (running statistics) the next value of its variable, if the step is sound; with
  /// `ofRankZero` every rank takes rank 0's value.
  void writeState(EntryBuilder &entry, const Expr &sound, bool ofRankZero = false) {
    llvm::SmallVector<Value> values;
    for (const auto &[variable, value] : entry.written()) {
      Expr next = place(entry, value, variable);
      values.push_back(next.with(sound).select(next, next.with(entry.state(variable))));
    }
    if (ofRankZero)
      values = ofFirstRank(entry, values);
    for (auto [written, value] : llvm::zip_equal(entry.written(), values))
      entry.update(written.first, value);
  }

  static Expr isFinite(const Expr &value) {
    auto type = RankedTensorType::get(shapeOf(value), value.builder->getI1Type());
    return value.with(IsFiniteOp::create(*value.builder, value.loc, type, value));
  }

  /// Flushes subnormal moments to zero. A moment whose gradients stay zero decays to the smallest subnormal numbers
  /// and, rounded to nearest, stays there; some processors take a hundred cycles more for each of them at each step.
  static Expr withoutSubnormals(const Expr &moment) {
    bool wide = elementTypeOf(moment).isF64();
    double least = wide ? std::numeric_limits<double>::min() : double(std::numeric_limits<float>::min());
    return moment.apply<AbsOp>().compare(CompareKind::lt, least).select(moment.like(0), moment);
  }

  void updateParameter(EntryBuilder &entry, const TrainedParameter &parameter, Value gradientSum, const Expr &scale,
                       const Expr &sound) {
    Type element = parameter.type.getElementType(), compute = updateType(element);
    const bool sharded = recipe.parallel.sharded(), replicated = sharded && !recipe.parallel.shardsParameters();
    Expr stored = place(entry, entry.state(parameter.name), parameter.name);
    if (replicated)
      stored = ownShard(stored, recipe.parallel);
    stored = updated(parameter, stored);
    auto scalar = [&](llvm::StringRef name) {
      const bool own = !parameter.skipped.empty() && scalars::dependsOnUpdates(name);
      return stored.with(entry.scalar(own ? (name + parameter.skipped).str() : name.str())).cast(compute);
    };
    std::string prefix = "g" + std::to_string(parameter.group) + ".";
    Expr gradient = updated(parameter, stored.with(gradientSum)) * stored.with(scale).cast(compute);
    if (recipe.train.clipValue) {
      double most = *recipe.train.clipValue;
      gradient = stored.with(MaxOp::create(entry.builder, stored.loc, gradient, gradient.like(-most)));
      gradient = stored.with(MinOp::create(entry.builder, stored.loc, gradient, gradient.like(most)));
    }
    if (state.settings.flags.count("maximize"))
      gradient = -gradient;
    UpdateStep step{
        stored.cast(compute),
        gradient,
        {},
        parameter.type.getShape(),
        parameter.torch,
        state.settings,
        state.groups[parameter.group].weightDecay,
        scalar,
        [&](llvm::StringRef name) { return scalar(prefix + name.str()); },
        [&](const Expr &value) {
          const Expr own = held(parameter, value);
          return sharded ? gatherShards(own, parameter.type, recipe.parallel) : own;
        },
        [&](const Expr &value) { return updated(parameter, sharded ? ownShard(value, recipe.parallel) : value); },
        [&](const Expr &number) { return sharded ? sumOfShards(number, recipe.parallel) : number; }};
    for (const MomentState &moment : parameter.states)
      step.states.push_back(readMoment(entry, stored, moment).cast(compute));
    Expr next = state.optimizer->update(step).cast(element);
    Expr keep = stored.with(sound);
    Expr changed = held(parameter, keep.select(next, stored));
    if (replicated)
      changed = gatherShards(changed, parameter.type, recipe.parallel);
    entry.update(parameter.name, changed);
    if (!parameter.average.empty()) {
      // If the step is sound, the updated value is `next`.
      const Expr moves = (replicated ? changed : next).cast(compute);
      Expr average = stored.with(entry.state(parameter.average));
      if (!replicated)
        average = updated(parameter, average);
      Expr moved = keep.select(scalar("ema_decay") * average + scalar("ema_rest") * moves, average);
      entry.update(parameter.average, replicated ? moved : held(parameter, moved));
    }
    for (size_t i = 0; i < step.states.size(); ++i)
      writeMoment(entry, parameter, i, withoutSubnormals(step.states[i]), keep);
  }

  /// A value of the parameter's held shape in the form in which its update is computed.
  static Expr updated(const TrainedParameter &parameter, const Expr &value) {
    return parameter.blocked ? inBlocks(value) : value;
  }
  /// The reverse.
  static Expr held(const TrainedParameter &parameter, const Expr &value) {
    return parameter.blocked ? outOfBlocks(value, parameter.held.getShape()) : value;
  }

  Expr readMoment(EntryBuilder &entry, const Expr &like, const MomentState &moment) {
    Expr stored = like.with(entry.state(moment.variable));
    if (moment.magnitudes.empty())
      return stored;
    return decodeMoment({stored, like.with(entry.state(moment.magnitudes))}, moment.range);
  }

  /// Stores moment `index` of a parameter, if the step is sound.
  void writeMoment(EntryBuilder &entry, const TrainedParameter &parameter, size_t index, const Expr &value,
                   const Expr &keep) {
    const MomentState &moment = parameter.states[index];
    auto store = [&](const std::string &variable, const Expr &next) {
      Expr old = value.with(entry.state(variable)), now = old.reshape(shapeOf(next));
      entry.update(variable, keep.select(next, now).reshape(shapeOf(old)));
    };
    if (!moment.magnitudes.empty()) {
      BlockedMoment blocked = encodeMoment(value, moment.range);
      store(moment.variable, blocked.codes);
      store(moment.magnitudes, blocked.magnitudes);
    } else if (elementTypeOf(entry.state(moment.variable)).isBF16()) {
      store(moment.variable, roundAtRandom(value, randomBits(entry, value, parameter.name, index)));
    } else {
      store(moment.variable, value);
    }
  }

  /// 16 random bits for each element of a parameter's state `index`, as ui32. Two states share a draw.
  Expr randomBits(EntryBuilder &entry, const Expr &like, const std::string &parameter, size_t index) {
    Type word = builder.getIntegerType(32, /*isSigned=*/false);
    auto type = RankedTensorType::get(shapeOf(like), word);
    auto constant = [&](int64_t value) { return like.with(splatInt(*like.builder, like.loc, type, value)); };
    // Ranks with copies of the same state must round it alike. A shard belongs to one rank, or to one rank of each
    // node.
    const bool alike = recipe.parallel.distributed() && (!recipe.parallel.sharded() || recipe.parallel.replicates());
    Value key = alike ? sharedRandomKey(entry, like.loc) : entry.randomKey();
    Value drawn = RandomOp::create(entry.builder, like.loc, type, RandomKind::bits, key,
                                   randomId(parameter + "/moments", index / 2));
    Value bits = index % 2 ? ShiftRightOp::create(entry.builder, like.loc, drawn, constant(16)).getResult()
                           : AndOp::create(entry.builder, like.loc, drawn, constant(0xffff)).getResult();
    return like.with(bits);
  }

  /// Rounds an f32 stochastically to one of its two bf16 neighbours, so that its mean is the f32 (Forsythe, "Reprint of
  /// a note on rounding-off errors", SIAM Review 1959). Rounded to nearest, a second moment with β2 = 0.999 would never
  /// decay: it loses a thousandth, less than half a unit in the last place.
  Expr roundAtRandom(const Expr &value, const Expr &bits) {
    auto type = tensorTypeOf(bits);
    Value word = BitCastOp::create(*value.builder, value.loc, type, value);
    Value sum = add(*value.builder, value.loc, word, bits);
    Value upper = splatInt(*value.builder, value.loc, type, 0xffff0000);
    Value kept = AndOp::create(*value.builder, value.loc, sum, upper);
    Expr rounded = value.with(BitCastOp::create(*value.builder, value.loc, value.value.getType(), kept));
    // NaN is not rounded: the carry would turn a NaN whose bits are all ones, as a GPU's are, into a number.
    return value.compare(CompareKind::eq, value).select(rounded, value).cast(builder.getBF16Type());
  }

  void makeEvaluate() {
    EntryBuilder entry(module, entries::kEvaluate);
    llvm::SmallVector<Value> values = entry.inlineBody(loss, /*keepInputs=*/false, EntryBuilder::Mode::Inference);
    dropRankSums(*entry.builder.getInsertionBlock(), values); // each rank evaluates batches of its own
    for (auto [i, value] : llvm::enumerate(values)) {
      llvm::StringRef name = loss.getResultAttrOfType<StringAttr>(i, names::kName).getValue();
      if (isNumber(name))
        scalarOutput(entry, name, value);
      else if (!isTrainingOutput(name))
        entry.output(name, value, loss.getResultAttrOfType<IntegerAttr>(i, names::kSampleAxis));
    }
    entry.finish();
  }

  /// Builds `predict`. A graph that predicts as exported also gets its inference form, for weights trained elsewhere.
  void makePredictions() {
    using Mode = EntryBuilder::Mode;
    bool dependent = false;
    forward.walk([&](ModeDependent) { dependent = true; });
    makePredict(entries::kPredict, predictAsExported ? Mode::Training : Mode::Inference);
    if (predictAsExported && dependent)
      makePredict(entries::kPredictInference, Mode::Inference);
  }

  void makePredict(llvm::StringRef entryName, EntryBuilder::Mode mode) {
    EntryBuilder entry(module, entryName);
    llvm::SmallVector<Value> values = entry.inlineBody(forward, /*keepInputs=*/true, mode);
    for (auto [i, value] : llvm::enumerate(values)) {
      auto name = forward.getResultAttrOfType<StringAttr>(i, names::kName);
      entry.output(name ? name.str() : "output" + std::to_string(i), value,
                   forward.getResultAttrOfType<IntegerAttr>(i, names::kSampleAxis));
    }
    entry.finish();
  }

  void makeGradients() {
    EntryBuilder entry(module, entries::kGradients);
    entry.fixScalar(scalars::kLossScale, recipe.training.loss_scale().init_scale());
    llvm::SmallVector<Value> values = entry.inlineBody(backward, /*keepInputs=*/false);
    dropRankSums(*entry.builder.getInsertionBlock(), values);
    auto lossName = backward->getAttrOfType<StringAttr>(names::kLossName);
    llvm::StringRef name = lossName ? lossName.getValue() : "loss";
    Expr weight = place(entry, values[1], kLossWeight);
    entry.output(name, place(entry, values[0], name) / weight);
    Expr scale = weight.like(1) / weight;
    if (gradientScale)
      scale = scale * unscaling(entry, weight);
    for (unsigned i = 2, end = endOfGradients(backward); i < end; ++i) {
      Expr gradient = place(entry, values[i], gradientName(backward, i));
      entry.output((llvm::Twine(outputs::kGradientPrefix) + gradientName(backward, i)).str(),
                   gradient * gradient.with(scale).cast(elementTypeOf(gradient)));
    }
    // Values that the gradient check holds fixed (hold-stops); writes of running statistics are dropped.
    const SymbolTable symbols(module);
    for (const auto &[variable, value] : entry.written())
      if (symbols.lookup<VariableOp>(variable).getRole() == "held")
        entry.update(variable, value);
    entry.finish();
  }

  ModuleOp module;
  const Recipe &recipe;
  bool predictAsExported;
  OpBuilder builder;
  func::FuncOp forward, loss, backward;
  FloatAttr gradientScale; ///< of @backward; null: it does not scale
  TrainingState state;
  std::vector<std::string> scalarNames; ///< of the update
};

struct BuildUpdatePass : impl::BuildUpdatePassBase<BuildUpdatePass> {
  using BuildUpdatePassBase::BuildUpdatePassBase;

  void runOnOperation() override {
    FailureOr<Recipe> recipe = recipeOf(getOperation());
    if (failed(recipe) || failed(EntryMaker(getOperation(), *recipe, predictAsExported).run()))
      signalPassFailure();
  }
};

} // namespace

} // namespace tcc::train

//===- AddAdapters.cpp - low-rank adapters beside frozen matrices ---------===//
//
// Hu et al., "LoRA: low-rank adaptation of large language models", arXiv:2106.09685; initial values and scales are
// those of peft. The addend of a product is computed from its input, x·Aᵀ and then ·Bᵀ: W + B·A is never formed, so
// that memory and arithmetic are those of two small products. Every reader of an adapted matrix is a product, so that
// an export may add B·A to the matrix. Likewise the adapter of a convolution is a convolution to `rank` channels and a
// 1x1 convolution, and that of a lookup is a lookup in a table of `rank` columns and a product.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/FourBits.h"
#include "compiler/dialect/Philox.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/dialect/WeightFacts.h"
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/RecipeAttribute.h"
#include "passes/training/ParameterGroups.h"
#include "passes/training/WeightReads.h"
#include "support/NearestName.h"
#include "support/PlanNames.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

#include <cmath>
#include <numbers>
#include <string>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_ADDADAPTERSPASS
#include "passes/Passes.h.inc"

namespace {

// A read of narrow state is widened at once: its readers compute as before, on rounded values. narrow-values gives each
// reader a copy of the widening, so that no wide copy of a weight outlives its reader. A lookup in an i8 table gathers
// integers and scales instead: it needs its table in memory, and a wide table would be larger than the gathered rows.

/// Keeps a frozen weight in bf16, if it is an f32 tensor of two dimensions or more; `reads` are all its reads in
/// @forward. Kernels widen it while reading.
void keepInBf16(VariableOp variable, llvm::ArrayRef<ReadOp> reads) {
  auto type = cast<RankedTensorType>(variable.getType());
  if (type.getRank() < 2 || !type.getElementType().isF32())
    return;
  OpBuilder builder(variable);
  auto narrow = RankedTensorType::get(type.getShape(), builder.getBF16Type());
  variable.setType(narrow);
  for (ReadOp read : reads) {
    read.getResult().setType(narrow);
    builder.setInsertionPointAfter(read);
    Value wide = train::cast(builder, read.getLoc(), read.getResult(), type.getElementType());
    read.getResult().replaceAllUsesExcept(wide, wide.getDefiningOp());
  }
}

/// The rows that a lookup gathers, widened from integers `steps` [.., rows, ..] and scales `factor`.
static Value widenedRows(OpBuilder &builder, GatherOp lookup, Value steps, Value factor, Type element) {
  Location loc = lookup.getLoc();
  const auto axis = size_t(lookup.getAxis());
  auto take = [&](Value table) -> Value {
    llvm::SmallVector<int64_t> shape(shapeOf(table).take_front(axis));
    shape.append(shapeOf(lookup.getIndices()).begin(), shapeOf(lookup.getIndices()).end());
    shape.append(shapeOf(table).begin() + axis + 1, shapeOf(table).end());
    if (shapeOf(table)[axis] == 1 && table == factor) { // one for all rows
      std::fill_n(shape.begin() + axis, shapeOf(lookup.getIndices()).size(), 1);
      return reshape(builder, loc, table, shape);
    }
    return GatherOp::create(builder, loc, RankedTensorType::get(shape, elementTypeOf(table)), table,
                            lookup.getIndices(), lookup.getAxis())
        .getResult();
  };
  Expr rows = Expr(builder, loc, take(steps)).cast(builder.getF32Type());
  return (rows * rows.with(take(factor))).cast(element).value;
}

/// Adds a variable with numbers of a frozen weight, such as its scales, behind it, and names it in an attribute.
static std::string addNumbers(ModuleOp module, VariableOp variable, llvm::StringRef suffix, RankedTensorType type,
                              llvm::StringRef attribute) {
  OpBuilder builder(variable);
  std::string name = (variable.getSymName() + suffix).str();
  while (module.lookupSymbol(name))
    name += "_";
  builder.setInsertionPointAfter(variable);
  VariableOp::create(builder, variable.getLoc(), name, type, roles::kConstant, FloatAttr(), ElementsAttr(), -1);
  variable->setAttr(attribute, builder.getStringAttr(name));
  return name;
}

/// The shape of the scales of a weight that 8 or 4 bits may hold: a 16- or 32-bit floating-point tensor of two
/// dimensions or more that a product, convolution, lookup or recurrent layer reads.
static std::optional<llvm::SmallVector<int64_t>> roundableAlong(VariableOp variable, llvm::ArrayRef<ReadOp> reads) {
  auto type = cast<RankedTensorType>(variable.getType());
  const Type element = type.getElementType();
  if (type.getRank() < 2 || !(element.isF32() || element.isBF16() || element.isF16()))
    return std::nullopt;
  return scaleShapeOf(reads);
}

/// Keeps a frozen weight as i8 with an f32 scale for each output channel (runtime/plan/Int8.h); kernels multiply by the
/// scales while reading. Changes nothing if that is no smaller.
void keepInInt8(ModuleOp module, VariableOp variable, llvm::ArrayRef<ReadOp> reads) {
  std::optional<llvm::SmallVector<int64_t>> shape = roundableAlong(variable, reads);
  if (!shape)
    return;
  auto type = cast<RankedTensorType>(variable.getType());
  const Type element = type.getElementType();
  OpBuilder builder(variable);
  auto narrow = RankedTensorType::get(type.getShape(), builder.getIntegerType(8)),
       scales = RankedTensorType::get(*shape, builder.getF32Type());
  if (tensorBytes(narrow) + tensorBytes(scales) >= tensorBytes(type))
    return;
  const std::string name = addNumbers(module, variable, "/scale", scales, names::kScale);
  variable.setType(narrow);
  for (ReadOp read : reads) {
    read.getResult().setType(narrow);
    Location loc = read.getLoc();
    for (Operation *user : llvm::make_early_inc_range(read.getResult().getUsers()))
      if (auto lookup = dyn_cast<GatherOp>(user)) {
        builder.setInsertionPoint(lookup);
        Value scale = ReadOp::create(builder, loc, scales, name);
        lookup.getResult().replaceAllUsesWith(widenedRows(builder, lookup, read.getResult(), scale, element));
        lookup.erase();
      }
    builder.setInsertionPointAfter(read);
    Expr factor(builder, loc, ReadOp::create(builder, loc, scales, name));
    Expr steps(builder, loc, train::cast(builder, loc, read.getResult(), builder.getF32Type()));
    Value wide = (steps * factor).cast(element);
    read.getResult().replaceUsesWithIf(wide, [&](OpOperand &use) {
      return use.getOwner() != steps.value.getDefiningOp() && !isa<GatherOp>(use.getOwner());
    });
  }
}

/// Keeps a frozen weight in 4 bits with a scale for each block, in f32 or nested (runtime/plan/FourBits.h). A block
/// runs along the elements of one output channel: along the features of the input, whichever way round the graph has
/// the matrix. Changes nothing if that is no smaller.
void keepInFourBits(ModuleOp module, VariableOp variable, llvm::ArrayRef<ReadOp> reads,
                    const AdapterSettings &settings) {
  std::optional<llvm::SmallVector<int64_t>> shape = roundableAlong(variable, reads);
  if (!shape)
    return;
  auto type = cast<RankedTensorType>(variable.getType());
  const Type element = type.getElementType();
  llvm::SmallVector<bool> inRow;
  for (int64_t extent : *shape)
    inRow.push_back(extent == 1);
  const FourBitCode code = *symbolizeFourBitCode(settings.base);
  plan::FourBits layout =
      plan::fourBitsOf(planCode(code), settings.block, type.getShape(), {inRow.data(), inRow.size()});
  layout.set_nested(settings.nested);
  OpBuilder builder(variable);
  auto typed = [&](const plan::TensorType &flat) {
    Type of = flat.dtype() == plan::F32 ? Type(builder.getF32Type()) : builder.getIntegerType(8, /*isSigned=*/false);
    return RankedTensorType::get({flat.dims(0)}, of);
  };
  auto narrow = typed(plan::bytesType(layout)), scales = typed(plan::scalesType(layout)),
       nested = typed(plan::nestedType(layout));
  if (tensorBytes(narrow) + tensorBytes(scales) + (settings.nested ? tensorBytes(nested) : 0) >= tensorBytes(type))
    return;
  // Codes of NF4 are no INT4: the names differ, so that no checkpoint of one is read as the other.
  std::string numbers;
  if (settings.nested)
    numbers = addNumbers(module, variable, "/nested_absmax", nested, names::kNestedScale);
  const std::string name =
      addNumbers(module, variable, code == FourBitCode::nf4 ? "/absmax" : "/scale", scales, names::kScale);
  variable.setType(narrow);
  const llvm::SmallVector<int64_t> strides(layout.strides().begin(), layout.strides().end());
  variable->setAttr(names::kFourBits, builder.getDictionaryAttr(
                                          {builder.getNamedAttr("code", builder.getStringAttr(settings.base)),
                                           builder.getNamedAttr("block", builder.getI64IntegerAttr(settings.block)),
                                           builder.getNamedAttr("dims", builder.getDenseI64ArrayAttr(type.getShape())),
                                           builder.getNamedAttr("strides", builder.getDenseI64ArrayAttr(strides))}));
  for (ReadOp read : reads) {
    read.getResult().setType(narrow);
    Location loc = read.getLoc();
    auto unpack = [&](llvm::ArrayRef<int64_t> as, Value indices, int64_t axis) {
      Value factors = ReadOp::create(builder, loc, scales, name), parts, map;
      if (settings.nested) {
        parts = ReadOp::create(builder, loc, nested, numbers);
        const std::array<float, 256> &all = plan::dynamicNumbers(plan::DynamicKind::Signed);
        auto mapType = RankedTensorType::get({int64_t(all.size())}, builder.getF32Type());
        map = ConstantOp::create(builder, loc, DenseElementsAttr::get(mapType, llvm::ArrayRef(all)));
      }
      Value wide = UnpackOp::create(builder, loc, RankedTensorType::get(as, builder.getF32Type()), read.getResult(),
                                    factors, /*zeros=*/Value(), parts, map, indices, code, uint64_t(settings.block),
                                    type.getShape(), strides, uint64_t(axis));
      return train::cast(builder, loc, wide, element);
    };
    for (Operation *user : llvm::make_early_inc_range(read.getResult().getUsers()))
      if (auto lookup = dyn_cast<GatherOp>(user)) {
        builder.setInsertionPoint(lookup);
        lookup.getResult().replaceAllUsesWith(
            unpack(shapeOf(lookup.getResult()), lookup.getIndices(), int64_t(lookup.getAxis())));
        lookup.erase();
      }
    llvm::SmallVector<OpOperand *> readers;
    for (OpOperand &use : read.getResult().getUses())
      if (!isa<UnpackOp>(use.getOwner()))
        readers.push_back(&use);
    builder.setInsertionPointAfter(read);
    Value wide = readers.empty() ? Value() : unpack(type.getShape(), Value(), 0);
    for (OpOperand *use : readers)
      use->set(wide);
  }
}

class AdapterBuilder {
public:
  AdapterBuilder(ModuleOp module, func::FuncOp forward, const Recipe &recipe)
      : module(module), forward(forward), recipe(recipe), settings(recipe.adapter), builder(module.getContext()) {}

  LogicalResult run() {
    // Constants that the exporter wrote are not weights.
    for (VariableOp variable : module.getOps<VariableOp>())
      if (const std::optional<WeightFacts> known = weightFacts(variable);
          variable.getRole() == roles::kParameter ||
          (variable.getRole() == roles::kFrozen && !(known && known->constant)))
        variables.push_back(variable);
    forward.walk([&](ReadOp read) { reads[read.getVariable()].push_back(read); });
    FailureOr<std::vector<VariableOp>> targets = choose();
    if (failed(targets) || failed(freeze(*targets)))
      return failure();
    for (VariableOp target : *targets)
      if (failed(adapt(target)))
        return failure();
    module->setAttr(names::kAdapters, builder.getArrayAttr(list));
    for (VariableOp variable : frozen)
      if (settings.base == "bf16")
        keepInBf16(variable, reads[variable.getSymName()]);
      else if (settings.base == "int8")
        keepInInt8(module, variable, reads[variable.getSymName()]);
      else if (settings.inFourBits())
        keepInFourBits(module, variable, reads[variable.getSymName()], settings);
    return success();
  }

private:
  InFlightDiagnostic fail(const std::string &key) {
    return mlir::emitError(forward.getLoc()) << recipe.at(key) << key << ": ";
  }
  std::string targetsKey() const { return recipe.where.count("adapter.match") ? "adapter.match" : "adapter.targets"; }

  /// The matrix's names and those of its module, for people and patterns: "a.b.weight", "a.b".
  std::vector<std::string> pathsOf(VariableOp variable) const {
    std::vector<std::string> names = namesOf(variable);
    for (const std::string &name : std::vector<std::string>(names))
      if (std::string module = moduleOf(name); module != name)
        names.push_back(module);
    return names;
  }
  static std::string moduleOf(llvm::StringRef name) {
    name.consume_back(".weight");
    return name.str();
  }
  /// As it is called in torch, if known.
  std::string bestName(VariableOp variable) const {
    const std::optional<WeightFacts> known = weightFacts(variable);
    return known && !known->torchName.empty() ? known->torchName : variable.getSymName().str();
  }

  /// A pattern names a path or, as in peft, its end: "q_proj" is any "….q_proj".
  bool matches(const std::string &pattern, VariableOp variable) const {
    const std::vector<std::string> names = pathsOf(variable);
    return llvm::any_of(names, [&](const std::string &name) {
      return matchesGlob(pattern, name) || matchesGlob("*." + pattern, name);
    });
  }

  WeightReads readsOf(VariableOp variable) { return readsOfWeight(reads[variable.getSymName()]); }

  FailureOr<std::vector<VariableOp>> choose() {
    std::vector<VariableOp> chosen;
    std::vector<std::string> adaptable;
    llvm::StringMap<std::string> obstacles;
    for (VariableOp variable : variables) {
      WeightReads found = readsOf(variable);
      obstacles[variable.getSymName()] = found.obstacle;
      if (found.obstacle.empty())
        adaptable.push_back(moduleOf(bestName(variable)));
    }
    for (const std::string &pattern : settings.targets) {
      VariableOp obstructed;
      bool any = false;
      for (VariableOp variable : variables) {
        if (!matches(pattern, variable))
          continue;
        if (obstacles[variable.getSymName()].empty()) {
          any = true;
          if (!llvm::is_contained(chosen, variable))
            chosen.push_back(variable);
        } else if (!obstructed) {
          obstructed = variable;
        }
      }
      if (any)
        continue;
      InFlightDiagnostic message = fail(targetsKey()) << "\"" << pattern << "\" matches ";
      if (obstructed)
        message << "`" << bestName(obstructed) << "`, which " << obstacles[obstructed.getSymName()]
                << ": only a matrix that products alone read, a filter that convolutions alone read, or a table that "
                   "lookups alone read can be adapted";
      else
        message << "no matrix, filter or table that can be adapted";
      message << "; " << nearestOrSome(pattern, adaptable);
      return failure();
    }
    return chosen;
  }

  /// Freezes every parameter that adapter.train does not match.
  LogicalResult freeze(llvm::ArrayRef<VariableOp> targets) {
    if (Status status = checkPatterns(settings.train, recipe.at("adapter.train"), "adapter.train", variables);
        !status.ok())
      return mlir::emitError(forward.getLoc()) << status.message();
    for (VariableOp variable : variables) {
      if (variable.getRole() != roles::kParameter)
        continue;
      const bool trained = matchesAnyPattern(settings.train, variable);
      if (trained && llvm::is_contained(targets, variable))
        return fail("adapter.train") << "`" << bestName(variable)
                                     << "` is adapted, so that it is frozen itself; take it out "
                                     << "of " << targetsKey() << " or of adapter.train";
      if (!trained) {
        variable.setRole(roles::kFrozen);
        frozen.push_back(variable);
      }
    }
    return success();
  }

  /// Fills a tensor by make(u, v, first): uniform numbers in [0, 1) come in pairs, of which u is the element's own and
  /// v the other; `first` tells whether u is the pair's first. Depends on the seed, the name and the position alone.
  template <typename Make> DenseElementsAttr initialValues(llvm::StringRef name, RankedTensorType type, Make make) {
    const auto id = uint64_t(randomId(name, 0)), key = recipe.training.seed() ^ id;
    HostTensor values(type);
    for (int64_t i = 0; i < values.size(); i += 4) {
      const auto block = uint64_t(i / 4);
      std::array<uint32_t, 4> bits =
          philox({uint32_t(block), uint32_t(block >> 32), 0, 0}, {uint32_t(key), uint32_t(key >> 32)});
      auto unit = [&](size_t k) { return std::ldexp(double(bits[k] >> 8), -24); };
      for (int64_t k = i; k < std::min(i + 4, values.size()); ++k)
        values.setDouble(k, make(unit(size_t(k - i)), unit(size_t(k - i) ^ 1), (k - i) % 2 == 0));
    }
    return values.toAttribute();
  }
  /// Uniform in ±1/√inputs: Kaiming's bound with a = √5.
  DenseElementsAttr uniformValues(llvm::StringRef name, RankedTensorType type) {
    const double bound = 1 / std::sqrt(double(type.getNumElements() / type.getShape()[0]));
    return initialValues(name, type, [&](double unit, double, bool) { return (2 * unit - 1) * bound; });
  }
  /// Standard normal numbers by the Box–Muller transform, which makes two from two uniform ones.
  DenseElementsAttr normalValues(llvm::StringRef name, RankedTensorType type) {
    return initialValues(name, type, [](double own, double other, bool first) {
      const double u = first ? own : other, v = first ? other : own;
      const double radius = std::sqrt(-2 * std::log(u + std::ldexp(1.0, -25))), angle = 2 * std::numbers::pi * v;
      return radius * (first ? std::cos(angle) : std::sin(angle));
    });
  }

  LogicalResult adapt(VariableOp target) {
    WeightReads found = readsOf(target);
    RankedTensorType weight = found.type;
    llvm::ArrayRef<int64_t> shape = weight.getShape();
    const int64_t outputs = shape[found.inputFirst ? 1 : 0], inputs = weight.getNumElements() / outputs;
    if (settings.rank > std::min(inputs, outputs))
      return fail("adapter.rank") << settings.rank << " is more than `" << bestName(target) << "`, a "
                                  << (found.convolutions.empty() ? "matrix" : "filter") << " of " << inputs
                                  << " inputs and " << outputs << " results, has; give a smaller rank";
    // Adapters are trained in f32 even if the base has 16 bits.
    Type element = weight.getElementType().isF64() ? weight.getElementType() : Type(builder.getF32Type());
    const bool table = !found.lookups.empty();
    const std::string path = moduleOf(bestName(target)),
                      first = path + (table ? ".lora_embedding_A" : ".lora_A.weight"),
                      second = path + (table ? ".lora_embedding_B" : ".lora_B.weight");
    llvm::SmallVector<int64_t> firstShape{settings.rank, inputs}, secondShape(shape.size(), 1);
    if (!found.convolutions.empty())
      firstShape.assign(shape.begin(), shape.end());
    firstShape[0] = settings.rank;
    secondShape[0] = outputs;
    secondShape[1] = settings.rank;
    auto firstType = RankedTensorType::get(firstShape, element),
         secondType = RankedTensorType::get(secondShape, element);
    for (const std::string &name : {first, second})
      if (module.lookupSymbol(name))
        return fail(targetsKey()) << "the model has an initializer `" << name << "` already; rename it";
    builder.setInsertionPoint(forward);
    auto declare = [&](const std::string &name, Type type, ElementsAttr value) {
      VariableOp::create(builder, NameLoc::get(builder.getStringAttr(name)), name, type, roles::kParameter,
                         value ? FloatAttr() : builder.getF64FloatAttr(0), value, -1);
    };
    // As in peft, an embedding's A starts with zeros, not its B.
    declare(first, firstType, table ? ElementsAttr() : uniformValues(first, firstType));
    declare(second, secondType, table ? normalValues(second, secondType) : ElementsAttr());
    builder.setInsertionPoint(found.read);
    Value a = ReadOp::create(builder, found.read.getLoc(), firstType, first);
    Value b = ReadOp::create(builder, found.read.getLoc(), secondType, second);
    llvm::SmallVector<Operation *> readers;
    for (const AdaptedProduct &product : found.products)
      readers.push_back(product.op);
    readers.append(found.convolutions.begin(), found.convolutions.end());
    for (const AdaptedLookup &lookup : found.lookups)
      readers.push_back(lookup.op);
    // The first read of the weight may come after readers of its other reads.
    for (Operation *op : readers) {
      if (!op->isBeforeInBlock(a.getDefiningOp()))
        continue;
      a.getDefiningOp()->moveBefore(op);
      b.getDefiningOp()->moveBefore(op);
    }
    uint64_t ordinal = 0;
    for (const AdaptedProduct &product : found.products)
      add(product, a, b, first, ordinal++);
    for (ConvOp convolution : found.convolutions)
      add(convolution, a, b, first, ordinal++);
    for (const AdaptedLookup &lookup : found.lookups)
      add(lookup, a, b);
    NamedAttrList facts;
    facts.append("of", target.getSymNameAttr());
    facts.append("a", builder.getStringAttr(first));
    facts.append("b", builder.getStringAttr(second));
    facts.append("input_first", builder.getBoolAttr(found.inputFirst));
    facts.append("not_peft", builder.getStringAttr(found.notPeft));
    if (found.fourBits)
      facts.append("dims", builder.getDenseI64ArrayAttr(shape));
    list.push_back(facts.getDictionary(builder.getContext()));
    return success();
  }

  /// Adds scale · B·(A·x) to one product.
  void add(AdaptedProduct product, Value a, Value b, llvm::StringRef name, uint64_t ordinal) {
    MatMulOp op = product.op;
    builder.setInsertionPointAfter(op);
    Location loc = op.getLoc();
    Type element = elementTypeOf(a);
    const int64_t rank = shapeOf(a)[0], inputs = shapeOf(a)[1], outputs = shapeOf(b)[0];
    auto typeOf = [&](int64_t rows, int64_t columns) { return RankedTensorType::get({1, rows, columns}, element); };
    Value x = dropped(cast(builder, loc, product.onRight ? op.getLhs() : op.getRhs(), element), name, ordinal);
    Value down = reshape(builder, loc, a, {1, rank, inputs}), up = reshape(builder, loc, b, {1, outputs, rank});
    Value added;
    if (product.onRight) {
      const int64_t rows = shapeOf(op.getResult())[1];
      Value inner = MatMulOp::create(builder, loc, typeOf(rows, rank), x, down, op.getTransA(), true);
      added = MatMulOp::create(builder, loc, typeOf(rows, outputs), inner, up, false, true);
    } else {
      const int64_t columns = shapeOf(op.getResult())[2];
      Value inner = MatMulOp::create(builder, loc, typeOf(rank, columns), down, x, false, op.getTransB());
      added = MatMulOp::create(builder, loc, typeOf(outputs, columns), up, inner, false, false);
    }
    addTo(op.getResult(), added);
  }

  /// Adds to a convolution: A is the filter of a convolution like the adapted one, B that of a 1x1 convolution.
  void add(ConvOp op, Value a, Value b, llvm::StringRef name, uint64_t ordinal) {
    builder.setInsertionPointAfter(op);
    Location loc = op.getLoc();
    Type element = elementTypeOf(a);
    llvm::SmallVector<int64_t> shape(shapeOf(op.getResult()));
    Value x = dropped(cast(builder, loc, op.getInput(), element), name, ordinal);
    shape[1] = shapeOf(a)[0];
    Value inner = ConvOp::create(builder, loc, RankedTensorType::get(shape, element), x, a, op.getStrides(),
                                 op.getDilations(), op.getPadsBegin(), op.getPadsEnd(), uint64_t(1));
    const llvm::SmallVector<int64_t> ones(shape.size() - 2, 1), zeros(shape.size() - 2, 0);
    shape[1] = shapeOf(b)[0];
    Value added = ConvOp::create(builder, loc, RankedTensorType::get(shape, element), inner, b, ones, ones, zeros,
                                 zeros, uint64_t(1));
    addTo(op.getResult(), added);
  }

  /// Adds to a lookup, which then also reads columns of A by the same indices.
  void add(AdaptedLookup lookup, Value a, Value b) {
    builder.setInsertionPointAfter(lookup.op);
    Location loc = lookup.op->getLoc();
    Value rows = lookup.op->getResult(0);
    Type element = elementTypeOf(a);
    const int64_t rank = shapeOf(a)[0], outputs = shapeOf(b)[0];
    const int64_t count = tensorTypeOf(rows).getNumElements() / outputs;
    llvm::SmallVector<int64_t> shape(shapeOf(rows));
    shape.back() = rank;
    Value columns = transpose(builder, loc, a, {1, 0});
    Value inner = GatherOp::create(builder, loc, RankedTensorType::get(shape, element), columns, lookup.indices, 0);
    Value added = MatMulOp::create(builder, loc, RankedTensorType::get({1, count, outputs}, element),
                                   reshape(builder, loc, inner, {1, count, rank}),
                                   reshape(builder, loc, b, {1, outputs, rank}), false, true);
    addTo(rows, reshape(builder, loc, added, shapeOf(rows)));
  }

  /// Readers of `result` read result + scale · added.
  void addTo(Value result, Value added) {
    Expr base(builder, result.getLoc(), result);
    Value first = base.cast(elementTypeOf(added)).value;
    Expr sum = base.with(first) + base.with(added) * settings.scale();
    Value next = sum.cast(elementTypeOf(result)).value;
    Operation *reader = first == result ? sum.value.getDefiningOp() : first.getDefiningOp();
    result.replaceUsesWithIf(next, [&](OpOperand &use) { return use.getOwner() != reader; });
  }

  Value dropped(Value x, llvm::StringRef name, uint64_t ordinal) {
    if (settings.dropout == 0)
      return x;
    auto key = RankedTensorType::get({4}, builder.getIntegerType(32, /*isSigned=*/false));
    auto mask = RankedTensorType::get(shapeOf(x), builder.getI1Type());
    Value counters = RandomKeyOp::create(builder, x.getLoc(), key);
    return DropoutOp::create(builder, x.getLoc(), x.getType(), mask, x, counters, randomId(name, ordinal + 1),
                             llvm::APFloat(settings.dropout))
        .getResult();
  }

  ModuleOp module;
  func::FuncOp forward;
  const Recipe &recipe;
  const AdapterSettings &settings;
  OpBuilder builder;
  std::vector<VariableOp> variables, frozen;           ///< of the model; those frozen here
  llvm::StringMap<llvm::SmallVector<ReadOp, 1>> reads; // looked up by name
  llvm::SmallVector<Attribute> list;
};

struct AddAdaptersPass : impl::AddAdaptersPassBase<AddAdaptersPass> {
  void runOnOperation() override {
    FailureOr<Recipe> recipe = recipeOf(getOperation());
    if (failed(recipe))
      return signalPassFailure();
    func::FuncOp forward = lookupFunction(getOperation(), "forward");
    if (!forward || forward.isDeclaration())
      return;
    if (failed(AdapterBuilder(getOperation(), forward, *recipe).run()))
      signalPassFailure();
  }
};

} // namespace

} // namespace tcc::train

//===- AddAdapters.cpp - low-rank adapters beside frozen matrices ---------===//
//
// Hu et al., "LoRA: low-rank adaptation of large language models", arXiv:2106.09685; initial values and scales as peft
// has them. What is added to a product is computed from its input, x·Aᵀ and then ·Bᵀ: W + B·A is never made, so that
// memory and arithmetic are those of two small products. Every reader of an adapted matrix is a product, so that an
// export may add B·A to it.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Philox.h"
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/training/ParameterGroups.h"
#include "support/NearestName.h"
#include "support/PlanNames.h"

#include "llvm/ADT/StringMap.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_ADDADAPTERSPASS
#include "passes/Passes.h.inc"

namespace {

/// A product with the matrix.
struct AdaptedProduct {
  MatMulOp op;
  bool onRight; ///< the matrix is the right operand
};

/// How @forward reads a variable.
struct MatrixReads {
  ReadOp read;
  llvm::SmallVector<AdaptedProduct> products;
  bool inputFirst = false; ///< the matrix is [features of the input, features of the result]
  std::string obstacle;    ///< why it cannot be adapted; empty: it can
};

/// Follows a matrix through ops that move no element, or exchange its two axes, to the products.
class MatrixTrace {
public:
  explicit MatrixTrace(ReadOp read) {
    found.read = read;
    if (shapeOf(read.getResult()).size() != 2 || !isFloatTensor(read.getResult()))
      found.obstacle = "is no matrix";
    else
      follow(read.getResult(), false);
    if (found.obstacle.empty() && found.products.empty())
      found.obstacle = "is read by no product";
  }

  MatrixReads take() { return std::move(found); }

private:
  void follow(Value value, bool swapped) {
    for (OpOperand &use : value.getUses())
      follow(use, swapped);
  }

  void follow(OpOperand &use, bool swapped) {
    Operation *op = use.getOwner();
    if (auto product = dyn_cast<MatMulOp>(op); product && use.getOperandNumber() < 2 && !product.getAddend())
      return note(product, use.getOperandNumber() == 1, swapped);
    if (isa<CastOp>(op) && isFloatTensor(op->getResult(0)))
      return follow(op->getResult(0), swapped);
    llvm::ArrayRef<int64_t> from = shapeOf(use.get());
    if (auto reshape = dyn_cast<ReshapeOp>(op)) {
      llvm::ArrayRef<int64_t> to = shapeOf(reshape.getResult());
      if (to.size() >= 2 && to.take_back(2) == from.take_back(2))
        return follow(reshape.getResult(), swapped);
    }
    if (auto transpose = dyn_cast<TransposeOp>(op)) {
      auto permutation = transpose.getPermutation();
      const int64_t rank = int64_t(permutation.size());
      bool leading = true;
      for (int64_t i = 0; i + 2 < rank; ++i)
        leading &= permutation[size_t(i)] == i;
      if (leading)
        return follow(transpose.getResult(), swapped != (permutation[size_t(rank - 1)] == rank - 2));
    }
    refuse(op);
  }

  void note(MatMulOp product, bool onRight, bool swapped) {
    if (product.getLhs() == product.getRhs() || shapeOf(product.getResult())[0] != 1)
      return refuse(product);
    const bool inputFirst = (onRight ? !product.getTransB() : product.getTransA()) != swapped;
    if (!found.products.empty() && found.inputFirst != inputFirst) {
      found.obstacle = "is multiplied by both as it is and transposed";
      return;
    }
    found.inputFirst = inputFirst;
    found.products.push_back({product, onRight});
  }

  void refuse(Operation *op) {
    if (!found.obstacle.empty())
      return;
    llvm::StringRef node = nodeName(op->getLoc());
    found.obstacle =
        "is read by " + op->getName().stripDialect().str() + (node.empty() ? "" : " of node " + node.str());
  }

  MatrixReads found;
};

class AdapterBuilder {
public:
  AdapterBuilder(ModuleOp module, func::FuncOp forward, const Recipe &recipe,
                 const std::map<std::string, frontend::Initializer> *initializers)
      : module(module), forward(forward), recipe(recipe), settings(recipe.adapter), matcher(initializers),
        builder(module.getContext()) {}

  LogicalResult run() {
    // A constant of the exporter's is no weight.
    for (VariableOp variable : module.getOps<VariableOp>())
      if (const frontend::Initializer *known = matcher.find(variable);
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
    if (settings.base == "bf16")
      narrow();
    return success();
  }

private:
  InFlightDiagnostic fail(const std::string &key) {
    return mlir::emitError(forward.getLoc()) << recipe.at(key) << key << ": ";
  }
  std::string targetsKey() const { return recipe.where.count("adapter.match") ? "adapter.match" : "adapter.targets"; }

  /// The matrix's names and those of its module, for people and patterns: "a.b.weight", "a.b".
  std::vector<std::string> namesOf(VariableOp variable) const {
    std::vector<std::string> names = matcher.namesOf(variable);
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
    const frontend::Initializer *known = matcher.find(variable);
    return known && !known->torchName.empty() ? known->torchName : variable.getSymName().str();
  }

  /// A pattern names a path or, as in peft, its end: "q_proj" is any "….q_proj".
  bool matches(const std::string &pattern, VariableOp variable) const {
    const std::vector<std::string> names = namesOf(variable);
    return llvm::any_of(names, [&](const std::string &name) {
      return matchesGlob(pattern, name) || matchesGlob("*." + pattern, name);
    });
  }

  MatrixReads readsOf(VariableOp variable) {
    llvm::ArrayRef<ReadOp> all = reads[variable.getSymName()];
    MatrixReads joined;
    if (all.empty())
      joined.obstacle = "is not read";
    for (ReadOp read : all) {
      MatrixReads one = MatrixTrace(read).take();
      if (joined.obstacle.empty() && !joined.products.empty() && one.inputFirst != joined.inputFirst)
        one.obstacle = "is multiplied by both as it is and transposed";
      if (!one.obstacle.empty())
        joined.obstacle = one.obstacle;
      joined.read = joined.read ? joined.read : one.read;
      joined.inputFirst = one.inputFirst;
      joined.products.append(one.products);
    }
    return joined;
  }

  FailureOr<std::vector<VariableOp>> choose() {
    std::vector<VariableOp> chosen;
    std::vector<std::string> adaptable;
    llvm::StringMap<std::string> obstacles;
    for (VariableOp variable : variables) {
      MatrixReads found = readsOf(variable);
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
                << ": only a matrix that products alone read can be adapted";
      else
        message << "no matrix that products read";
      message << "; " << nearestOrSome(pattern, adaptable);
      return failure();
    }
    return chosen;
  }

  /// Everything but adapters and adapter.train keeps its value.
  LogicalResult freeze(llvm::ArrayRef<VariableOp> targets) {
    if (Status status = checkPatterns(settings.train, recipe.at("adapter.train"), "adapter.train", variables, matcher);
        !status.ok())
      return mlir::emitError(forward.getLoc()) << status.message();
    for (VariableOp variable : variables) {
      if (variable.getRole() != roles::kParameter)
        continue;
      const bool trained = matcher.matchesAny(settings.train, variable);
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

  /// Uniform in ±1/√inputs: Kaiming's bound with a = √5. Depends on the seed, the name and the position alone.
  DenseElementsAttr initialValues(llvm::StringRef name, RankedTensorType type) {
    const auto id = uint64_t(randomId(name, 0)), key = recipe.train.seed ^ id;
    const double bound = 1 / std::sqrt(double(type.getShape()[1]));
    HostTensor values(type);
    for (int64_t i = 0; i < values.size(); i += 4) {
      const auto block = uint64_t(i / 4);
      std::array<uint32_t, 4> bits =
          philox({uint32_t(block), uint32_t(block >> 32), 0, 0}, {uint32_t(key), uint32_t(key >> 32)});
      for (int64_t k = i; k < std::min(i + 4, values.size()); ++k)
        values.setDouble(k, (2 * std::ldexp(double(bits[size_t(k - i)] >> 8), -24) - 1) * bound);
    }
    return values.toAttribute();
  }

  LogicalResult adapt(VariableOp target) {
    MatrixReads found = readsOf(target);
    auto matrix = cast<RankedTensorType>(target.getType());
    const int64_t inputs = matrix.getShape()[found.inputFirst ? 0 : 1],
                  outputs = matrix.getShape()[found.inputFirst ? 1 : 0];
    if (settings.rank > std::min(inputs, outputs))
      return fail("adapter.rank") << settings.rank << " is more than `" << bestName(target) << "`, a matrix of "
                                  << inputs << " inputs and " << outputs << " results, has; give a smaller rank";
    // Adapters are trained in f32 beside a base of 16 bits.
    Type element = matrix.getElementType().isF64() ? matrix.getElementType() : Type(builder.getF32Type());
    const std::string path = moduleOf(bestName(target)), first = path + ".lora_A.weight",
                      second = path + ".lora_B.weight";
    auto firstType = RankedTensorType::get({settings.rank, inputs}, element),
         secondType = RankedTensorType::get({outputs, settings.rank}, element);
    for (const std::string &name : {first, second})
      if (module.lookupSymbol(name))
        return fail(targetsKey()) << "the model has an initializer `" << name << "` already; rename it";
    builder.setInsertionPoint(forward);
    auto declare = [&](const std::string &name, Type type, FloatAttr fill, ElementsAttr value) {
      VariableOp::create(builder, NameLoc::get(builder.getStringAttr(name)), name, type, roles::kParameter, fill, value,
                         -1);
    };
    declare(first, firstType, nullptr, initialValues(first, firstType));
    declare(second, secondType, builder.getF64FloatAttr(0), nullptr);
    builder.setInsertionPoint(found.read);
    Value a = ReadOp::create(builder, found.read.getLoc(), firstType, first);
    Value b = ReadOp::create(builder, found.read.getLoc(), secondType, second);
    // The first read need not come before all products of the others.
    for (const AdaptedProduct &product : found.products) {
      MatMulOp op = product.op;
      if (!op->isBeforeInBlock(a.getDefiningOp()))
        continue;
      a.getDefiningOp()->moveBefore(op);
      b.getDefiningOp()->moveBefore(op);
    }
    for (auto [ordinal, product] : llvm::enumerate(found.products))
      add(product, a, b, first, ordinal);
    list.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("of", target.getSymNameAttr()), builder.getNamedAttr("a", builder.getStringAttr(first)),
         builder.getNamedAttr("b", builder.getStringAttr(second)),
         builder.getNamedAttr("input_first", builder.getBoolAttr(found.inputFirst))}));
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
    Expr base(builder, loc, op.getResult());
    Value first = base.cast(element).value;
    Expr sum = base.with(first) + base.with(added) * settings.scale();
    Value result = sum.cast(elementTypeOf(op.getResult())).value;
    Operation *reader = first == op.getResult() ? sum.value.getDefiningOp() : first.getDefiningOp();
    op.getResult().replaceUsesWithIf(result, [&](OpOperand &use) { return use.getOwner() != reader; });
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

  /// Frozen matrices, and filters of convolutions, are kept in bf16 and widened where they are read.
  void narrow() {
    for (VariableOp variable : frozen) {
      auto type = cast<RankedTensorType>(variable.getType());
      if (type.getRank() < 2 || !type.getElementType().isF32())
        continue;
      auto narrow = RankedTensorType::get(type.getShape(), builder.getBF16Type());
      variable.setType(narrow);
      for (ReadOp read : reads[variable.getSymName()]) {
        read.getResult().setType(narrow);
        builder.setInsertionPointAfter(read);
        Value wide = cast(builder, read.getLoc(), read.getResult(), type.getElementType());
        read.getResult().replaceAllUsesExcept(wide, wide.getDefiningOp());
      }
    }
  }

  ModuleOp module;
  func::FuncOp forward;
  const Recipe &recipe;
  const AdapterSettings &settings;
  ParameterMatcher matcher;
  OpBuilder builder;
  std::vector<VariableOp> variables, frozen;           ///< of the model; those frozen here
  llvm::StringMap<llvm::SmallVector<ReadOp, 1>> reads; // asked by name
  llvm::SmallVector<Attribute> list;
};

struct AddAdaptersPass : impl::AddAdaptersPassBase<AddAdaptersPass> {
  using AddAdaptersPassBase::AddAdaptersPassBase;
  AddAdaptersPass(const Recipe &recipe, const std::map<std::string, frontend::Initializer> *initializers)
      : given(&recipe), initializers(initializers) {}

  void runOnOperation() override {
    Recipe own;
    own.adapter.targets.assign(targets.begin(), targets.end());
    own.adapter.rank = rank;
    own.adapter.alpha = alpha;
    own.adapter.dropout = dropout;
    own.adapter.train.assign(train.begin(), train.end());
    own.adapter.base = base;
    func::FuncOp forward = lookupFunction(getOperation(), "forward");
    if (!forward || forward.isDeclaration())
      return;
    if (failed(AdapterBuilder(getOperation(), forward, given ? *given : own, initializers).run()))
      signalPassFailure();
  }

private:
  const Recipe *given = nullptr;
  const std::map<std::string, frontend::Initializer> *initializers = nullptr;
};

} // namespace

std::unique_ptr<Pass> createAddAdaptersPass(const Recipe &recipe,
                                            const std::map<std::string, frontend::Initializer> *initializers) {
  return std::make_unique<AddAdaptersPass>(recipe, initializers);
}

} // namespace tcc::train

//===- FuseAttention.cpp - replace softmax(query·keyᵀ)·value by one op ----===//
//
// Matches every softmax between a product of queries with keys and one of weights with values (AttentionMatch.h) and
// rewrites the match as train.attention: axes are sorted into samples, heads, queries and keys; constant factors become
// one scale, masks a diagonal and one boolean tensor, all other addends one bias. A near miss is reported with the node
// that broke it.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Attention.h"
#include "compiler/dialect/Builders.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/attention/AttentionMask.h"
#include "passes/attention/AttentionMatch.h"

#include "mlir/IR/Value.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_FUSEATTENTIONPASS
#include "passes/Passes.h.inc"

namespace {

// A term that is added to scores may act as a mask: a large negative number excludes a key. If the data decide which
// keys are excluded, a query may see no key, and the softmax of its row then depends on these numbers. Terms computed
// from trained parameters and activations are no masks, nor are constants of ordinary size.

constexpr size_t kMostOps = 1000;

/// Whether a value depends on function arguments and on variables; the search visits at most kMostOps values.
struct Sources {
  bool data = false, variables = false;
};
Sources sourcesOf(Value root) {
  llvm::SetVector<Value> seen;
  seen.insert(root);
  Sources found;
  for (size_t i = 0; i < seen.size() && i < kMostOps; ++i) {
    Operation *op = seen[i].getDefiningOp();
    found.variables |= isa_and_nonnull<ReadOp>(op);
    found.data |= !op;
    if (op)
      seen.insert(op->operand_begin(), op->operand_end());
  }
  return found;
}

bool isTrained(ReadOp op) {
  auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(op, op.getVariableAttr());
  return variable && variable.getRole() == "parameter";
}

bool isOrdinary(ConstantOp constant, double factor) {
  const HostTensor tensor = HostTensor::fromAttribute(constant.getValue());
  if (!tensor.isFloat())
    return false;
  for (int64_t i = 0; i < tensor.size(); ++i)
    if (!(std::abs(tensor.getDouble(i) * factor) < -kMaskFill)) // NaN, too
      return false;
  return true;
}

/// True if the value is computed from the function's arguments without any variable. Masks are; activations are not,
/// since they depend on weights.
bool isFromDataAlone(Value root) {
  const Sources sources = sourcesOf(root);
  return sources.data && !sources.variables;
}

/// True if no addend of `bias`, times `factor`, can exclude a key: each is a constant whose elements are nearer to 0
/// than kMaskFill, or is computed from trained parameters or activations.
bool excludesNoKey(Value bias, double factor = 1) {
  llvm::SetVector<Value> addends;
  addends.insert(bias);
  auto add = [&](Value value) { addends.insert(value); };
  for (size_t i = 0; i < addends.size(); ++i) {
    if (i == kMostOps)
      return false;
    Operation *op = addends[i].getDefiningOp();
    if (!op)
      return false;
    if (auto constant = dyn_cast<ConstantOp>(op)) {
      if (!isOrdinary(constant, factor))
        return false;
    } else if (auto read = dyn_cast<ReadOp>(op)) {
      if (!isTrained(read))
        return false;
    } else if (isa<AddOp, SubOp, MulOp, DivOp, NegOp, ReshapeOp, TransposeOp, BroadcastOp, SliceOp, ConcatOp>(op) ||
               (isa<CastOp>(op) && isFloatTensor(op->getOperand(0)))) {
      llvm::for_each(op->getOperands(), add);
    } else if (auto chosen = dyn_cast<SelectOp>(op)) {
      add(chosen.getOnTrue());
      add(chosen.getOnFalse());
    } else if (auto padded = dyn_cast<PadOp>(op)) {
      if (!(std::abs(padded.getValue().convertToDouble() * factor) < -kMaskFill))
        return false;
      add(padded.getInput());
    } else if (auto gather = dyn_cast<GatherOp>(op)) {
      add(gather.getInput());
    } else if (!sourcesOf(addends[i]).variables) { // a mask, or a computed constant
      return false;
    }
  }
  return true;
}


/// Builds the op that a match describes, before its product with the values.
class AttentionWriter {
public:
  /// `calls`: the only heads besides tiles that are fused; null: all.
  AttentionWriter(AxisSpace &axes, AttentionMatch &match, TileNumbers tiles, bool tilesOnly,
                  const AttentionCalls *calls)
      : axes(axes), match(match), tiles(tiles), tilesOnly(tilesOnly), calls(calls), builder(match.product),
        loc(fusedLocation(match)), reader(axes, builder, match.queryAxes, match.keyAxes) {}

  /// Null, with `failure` filled, if the op cannot express the masks.
  AttentionOp write(AttentionFailure &failure) {
    if (!readTerms(failure))
      return nullptr;
    arrangeAxes();
    const int64_t depth = axes.extent(match.featureAxes), width = axes.extent(match.valueAxes);
    // For wider heads the fused gradient needs about twice the products, which costs more time than storing scores.
    constexpr int64_t kMostFeatures = 128;
    const bool isDouble = elementTypeOf(match.value.value).isF64();
    const bool byTiles =
        tilesOnly && !isDouble && suitsTiles(tiles, depth, width) && std::max(depth, width) <= kMostFeatures;
    if (tilesOnly && !byTiles && !(calls && calls->suits(depth, width))) {
      const bool even = tiles == TileNumbers::BF16 || tiles == TileNumbers::F16;
      failure = {match.softmax,
                 isDouble ? "the target has no kernels for attention in f64"
                          : llvm::formatv(
                                "its heads have {0} and {1} features; the target's kernels take {2}numbers up to {3}",
                                depth, width, even ? "even " : "", kMostFeatures)
                                .str()};
      return nullptr;
    }
    Value query = writeQuery(), key = writeKey();
    Value value = axes.build(builder, loc, match.value, {samples, keyHeads, match.keyAxes, match.valueAxes}, none());
    query = cast(builder, loc, query, elementTypeOf(value));
    key = cast(builder, loc, key, elementTypeOf(value));
    Value keeps; // whether each row keeps a key; computed only for masks with finite fills
    Value mask = writeMask(keeps), bias = writeBias(keeps, elementTypeOf(value));
    if (keeps) {
      Expr q(builder, loc, query);
      query = q.with(keeps).select(q, q.like(0));
    }
    llvm::ArrayRef<int64_t> q = shapeOf(query), v = shapeOf(value);
    Type element = elementTypeOf(value), sums = element.isF64() ? element : Type(builder.getF32Type());
    const bool causal = useBand && kept.upper < v[2] - 1;
    DropoutOp dropout = match.dropout;
    auto number = [](double x) { return llvm::APFloat(x); };
    auto rowType = RankedTensorType::get({q[0], q[1], q[2], 1}, sums);
    auto op = AttentionOp::create(builder, loc, RankedTensorType::get({q[0], q[1], q[2], v[3]}, element), rowType,
                                  rowType, query, key, value, bias, mask,
                                  dropout ? dropout.getKey() : Value(), number(match.scale), causal,
                                  uint64_t(causal ? kept.upper : 0), number(match.softcap),
                                  dropout ? dropout.getP() : number(0), dropout ? dropout.getId() : 0,
                                  maskFill ? builder.getF64FloatAttr(*maskFill) : FloatAttr());
    if (tiles == TileNumbers::TF32)
      op->setAttr(names::kTf32Products, builder.getUnitAttr());
    if ((tiles == TileNumbers::BF16 || tiles == TileNumbers::F16) && suitsTiles(tiles, depth, width))
      op->setAttr(names::kWordRows, builder.getUnitAttr());
    if ((bias || mask || attentionShapeOf(op).isShifted()) && keepKeys)
      op->setAttr(names::kRowsKeepKeys, builder.getUnitAttr());
    if (std::string objection = calls && !byTiles ? callObjection(op, *calls) : ""; !objection.empty()) {
      op.erase();
      failure = {match.softmax, calls->library + " takes no attention of this form: " + objection};
      return nullptr;
    }
    match.product.getResult().replaceAllUsesWith(writeResult(op));
    match.product.erase();
    return op;
  }

private:
  static Location fusedLocation(AttentionMatch &match) {
    llvm::SmallVector<Location> parts{match.scores.getLoc(), match.softmax.getLoc(), match.product.getLoc()};
    return FusedLoc::get(match.softmax.getContext(), parts);
  }
  static llvm::ArrayRef<bool> none() {
    static const bool flags[] = {false, false, false, false};
    return flags;
  }
  static llvm::ArrayRef<bool> all() {
    static const bool flags[] = {true, true, true, true};
    return flags;
  }
  /// [samples, heads, queries, keys], each full or 1.
  Value spread(const Access &access) {
    return axes.build(builder, loc, access, {samples, heads, match.queryAxes, match.keyAxes}, all());
  }

  /// Sorts addends and masks into `kept` and `biases`.
  bool readTerms(AttentionFailure &failure) {
    const double infinity = std::numeric_limits<double>::infinity();
    struct Additive {
      MaskTerms mask;
      ScoreTerm *term;
    };
    llvm::SmallVector<Additive, 0> finite;
    double selectFill = -infinity;
    MaskTerms selected, exact;
    for (ScoreTerm &term : match.terms) {
      if (term.kind == ScoreTerm::Mask) {
        MaskTerms terms;
        reader.read(term.access, term.keepWhen, terms);
        if (term.fill == -infinity) {
          exact.append(terms);
          continue;
        }
        if (selectFill != -infinity && selectFill != term.fill)
          mixedFills = term.op;
        selectFill = term.fill;
        selected.append(terms);
        innermostSelect = &term;
        if (!outermostSelect)
          outermostSelect = &term;
        continue;
      }
      double fill = -infinity;
      std::optional<MaskTerms> mask =
          term.tensors.empty() ? reader.readAdditive(term.access, term.factor, fill) : std::nullopt;
      if (!mask)
        biases.push_back(&term);
      else if (fill == -infinity)
        exact.append(*mask);
      else
        finite.push_back({*mask, &term});
    }
    // An added mask equals exclusion only if each row keeps a key; else it stays a bias.
    kept = exact;
    kept.append(selected);
    MaskTerms everything = kept;
    for (Additive &additive : finite)
      everything.append(additive.mask);
    const bool provable = reader.keepsEveryRow(everything);
    // It stays a bias, too, if another tensor of data is added, which may exclude the remaining keys.
    const bool padded = llvm::any_of(biases, [](ScoreTerm *term) { return isFromDataAlone(term->access.value); });
    for (Additive &additive : finite) {
      if (!padded && (provable ||
                      (selected.empty() && exact.empty() && finite.size() == 1 && reader.keepsEveryRow(additive.mask))))
        kept.append(additive.mask);
      else
        biases.push_back(additive.term);
    }
    // If a select excludes all keys of a row, its weights are uniform: its query becomes 0 and it keeps every key.
    guarded = selectFill != -infinity && !reader.keepsEveryRow(kept);
    if (guarded && (mixedFills || !exact.empty())) {
      failure = {mixedFills ? mixedFills : innermostSelect->op,
                 "a query may see no key, and masks put different numbers in the place of its scores"};
      return false;
    }
    useBand = !guarded;
    if (selectFill != -infinity && !countBeside(exact.empty(), selectFill, failure))
      return false;
    for (ScoreTerm *term : biases)
      term->access = reader.shrink(term->access);
    keepKeys = !guarded && !maskFill && reader.keepsEveryRow(kept) && llvm::all_of(biases, [](ScoreTerm *term) {
      return excludesNoKey(term->access.value, term->factor) &&
             llvm::all_of(term->tensors, [](AttentionFactor &factor) { return excludesNoKey(factor.access.value); });
    });
    llvm::sort(biases); // in the order of the terms: one array
    return true;
  }

  /// An added padding mask may exclude all keys that a select keeps: under a causal mask, those of the first rows of a
  /// sample that is padded on the left. Then the select's fill affects the row's result, and the op must know it.
  bool countBeside(bool alone, double fill, AttentionFailure &failure) {
    ScoreTerm *padding = nullptr;
    for (ScoreTerm *term : biases)
      if (isFromDataAlone(term->access.value))
        padding = term;
    if (!padding)
      return true;
    // The op selects before it adds.
    const bool inOrder = llvm::all_of(biases, [&](ScoreTerm *term) { return term < outermostSelect; });
    if (!alone || mixedFills || !inOrder) {
      failure = {padding->op,
                 "all keys of a query may be excluded by padding and a mask together, whose numbers then decide"};
      return false;
    }
    maskFill = fill;
    guarded = useBand = false;
    return true;
  }

  /// Divides the batch axes into samples and heads. Axes that neither keys nor values have come last: heads that share
  /// them. Any cut is correct; the one that repeats the fewest elements of masks and biases is taken.
  void arrangeAxes() {
    match.featureAxes = axes.expand(match.featureAxes), match.valueAxes = axes.expand(match.valueAxes);
    match.queryAxes = axes.expand(match.queryAxes), match.keyAxes = axes.expand(match.keyAxes);
    AxisList order = axes.expand(match.batchAxes), present = axes.flatten(match.key.layout), own, shared;
    llvm::append_range(present, axes.flatten(match.value.layout));
    for (AttentionFactor &factor : match.keyFactors)
      llvm::append_range(present, axes.flatten(factor.access.layout));
    for (Axis axis : order)
      (llvm::is_contained(present, axis) ? own : shared).push_back(axis);
    if (match.dropout) { // random numbers depend on positions: only axes that are last already
      while (!order.empty() && !llvm::is_contained(present, order.back()))
        order.pop_back();
      own = order, order = axes.expand(match.batchAxes);
      shared.assign(order.begin() + own.size(), order.end());
    }
    order = own;
    llvm::append_range(order, shared);
    AxisList operands[2]; // axes that the combined bias and the combined mask vary along
    for (ScoreTerm *term : biases)
      llvm::append_range(operands[0], axes.flatten(term->access.layout));
    for (MaskTerms::Term &term : kept.terms)
      llvm::append_range(operands[1], axes.flatten(term.condition.layout));
    auto repeated = [&](size_t cut) {
      double elements = 0;
      for (const AxisList &operand : operands) {
        auto side = [&](size_t begin, size_t end) {
          bool any = false, every = true;
          double extent = 1;
          for (size_t i = begin; i < end; ++i) {
            bool has = llvm::is_contained(operand, order[i]);
            any |= has, every &= has;
            extent *= double(axes.extent(order[i]));
          }
          return any ? extent : 1.0;
        };
        double inner = 1;
        for (llvm::ArrayRef<Axis> list : {llvm::ArrayRef(match.queryAxes), llvm::ArrayRef(match.keyAxes)})
          if (llvm::any_of(list, [&](Axis axis) { return llvm::is_contained(operand, axis); }))
            inner *= double(axes.extent(list));
        elements += side(0, cut) * side(cut, order.size()) * inner;
      }
      return elements;
    };
    // By default the softmax's shape decides; if it does not, heads are the last axis of keys and the axes that share
    // it.
    AxisList first = axes.expand(match.sampleAxes);
    size_t cut = 0;
    while (cut < own.size() && llvm::is_contained(first, own[cut]))
      ++cut;
    if (match.sampleAxes.empty() && !own.empty())
      cut = own.size() - 1;
    for (size_t other = own.size() + 1; other-- > 0;)
      if (repeated(other) < repeated(cut))
        cut = other;
    samples.assign(order.begin(), order.begin() + cut);
    heads.assign(order.begin() + cut, order.end());
    keyHeads.assign(order.begin() + cut, order.begin() + own.size());
  }

  Value scaled(Value x, llvm::ArrayRef<AttentionFactor> factors, llvm::ArrayRef<AxisList> target) {
    Expr result(builder, loc, x);
    for (const AttentionFactor &factor : factors) {
      Value other = axes.build(builder, loc, factor.access, target, all());
      Expr y = result.with(other).cast(elementTypeOf(x));
      result = factor.divides ? result / y : result * y;
    }
    return result;
  }
  Value writeQuery() {
    Value query = axes.build(builder, loc, match.query, {samples, heads, match.queryAxes, match.featureAxes}, none());
    return scaled(query, match.queryFactors, {samples, heads, match.queryAxes, match.featureAxes});
  }
  Value writeKey() {
    Value key = axes.build(builder, loc, match.key, {samples, keyHeads, match.keyAxes, match.featureAxes}, none());
    return scaled(key, match.keyFactors, {samples, keyHeads, match.keyAxes, match.featureAxes});
  }

  /// key − query ≤ `bound` (`upper`) or ≥ `bound`.
  Value band(int64_t bound, bool upper) {
    const int64_t queries = axes.extent(match.queryAxes), keys = axes.extent(match.keyAxes);
    auto range = [&](llvm::ArrayRef<int64_t> shape, int64_t dim) {
      return Expr(builder, loc, IotaOp::create(builder, loc, RankedTensorType::get(shape, builder.getI64Type()), dim));
    };
    Expr distance = range({1, 1, 1, keys}, 3) - range({1, 1, queries, 1}, 2);
    return distance.compare(upper ? CompareKind::le : CompareKind::ge, double(bound));
  }
  /// x and y, or x or y, broadcast to their common shape.
  template <typename OpTy> Value combine(Value x, Value y) {
    if (!x)
      return y;
    llvm::SmallVector<int64_t> shape = *broadcastShapes(shapeOf(x), shapeOf(y));
    return OpTy::create(builder, loc, RankedTensorType::get(shape, builder.getI1Type()),
                        broadcastTo(builder, loc, x, shape), broadcastTo(builder, loc, y, shape));
  }

  Value writeMask(Value &keeps) {
    Value mask;
    for (const MaskTerms::Term &term : kept.terms) {
      Value condition = spread(term.condition);
      if (!term.keepWhen)
        condition = NotOp::create(builder, loc, condition);
      mask = combine<AndOp>(mask, condition);
    }
    if (kept.lower > 1 - axes.extent(match.queryAxes))
      mask = combine<AndOp>(mask, band(kept.lower, false));
    if (!useBand && kept.upper < axes.extent(match.keyAxes) - 1)
      mask = combine<AndOp>(mask, band(kept.upper, true));
    if (!guarded || !mask)
      return mask;
    keeps = reduce(builder, loc, ReduceKind::max, mask, {3});
    return combine<OrOp>(mask, NotOp::create(builder, loc, keeps));
  }

  /// The sum of all biases, in the queries' type if all of them have it, else in the type of sums.
  Value writeBias(Value keeps, Type element) {
    const Type sums = element.isF64() ? element : Type(builder.getF32Type());
    bool narrow = llvm::all_of(biases, [&](ScoreTerm *term) { return elementTypeOf(term->access.value) == element; });
    std::optional<Expr> sum;
    for (ScoreTerm *term : biases) {
      Expr bias = biasOf(*term, narrow ? element : sums);
      // In a row that keeps no key, a select nearer to the softmax replaces this bias.
      if (keeps && term > innermostSelect)
        bias = bias.with(keeps).select(bias, bias.like(0));
      sum = sum ? *sum + bias : bias;
    }
    return sum ? sum->value : Value();
  }

  Expr biasOf(const ScoreTerm &term, Type type) {
    Expr bias = Expr(builder, loc, spread(term.access)).cast(type);
    for (const AttentionFactor &factor : term.tensors) {
      Expr y = bias.with(spread(reader.shrink(factor.access))).cast(type);
      bias = factor.divides ? bias / y : bias * y;
    }
    return term.factor != 1 ? bias * term.factor : bias;
  }

  Value writeResult(AttentionOp op) {
    Expr result(builder, loc, op.getOutput());
    if (match.resultFactor != 1)
      result = result * match.resultFactor;
    result = result.with(scaled(result, match.resultFactors, {samples, heads, match.queryAxes, match.keyAxes}));
    Value value = axes.build(builder, loc, {result, {samples, heads, match.queryAxes, match.valueAxes}},
                             match.resultLayout, none());
    return cast(builder, loc, value, elementTypeOf(match.product.getResult()));
  }

  AxisSpace &axes;
  AttentionMatch &match;
  const TileNumbers tiles; ///< what the target's lane groups multiply in this precision
  const bool tilesOnly;
  const AttentionCalls *calls;
  OpBuilder builder;
  Location loc;
  MaskReader reader;
  MaskTerms kept;
  llvm::SmallVector<ScoreTerm *> biases;
  AxisList samples, heads, keyHeads;
  ScoreTerm *innermostSelect = nullptr, *outermostSelect = nullptr; ///< the latter is nearest to the softmax
  Operation *mixedFills = nullptr;
  std::optional<double> maskFill;
  bool guarded = false, useBand = true;
  bool keepKeys = false; ///< kRowsKeepKeys
};

/// Notes for the report: their text is a JSON object that lists the functions concerned. Equal notes of training and
/// prediction become one.
class AttentionReport {
public:
  void add(llvm::StringRef kind, llvm::StringRef subject, llvm::StringRef graph, llvm::json::Object entry) {
    auto found = llvm::find_if(notes, [&](Note &note) {
      return note.kind == kind && note.subject == subject && note.entry == entry;
    });
    if (found == notes.end())
      found = notes.insert(notes.end(), {kind.str(), subject.str(), std::move(entry), {}});
    found->graphs.push_back(graph);
  }
  void write(ModuleOp module) {
    for (Note &note : notes) {
      note.entry["in"] = std::move(note.graphs);
      addNote(module, note.kind, note.subject, llvm::formatv("{0}", llvm::json::Value(std::move(note.entry))).str());
    }
  }

private:
  struct Note {
    std::string kind, subject;
    llvm::json::Object entry;
    llvm::json::Array graphs;
  };
  std::vector<Note> notes;
};

std::string attentionNode(Operation *op) {
  llvm::StringRef name = nodeName(op->getLoc());
  return name.empty() ? op->getName().stripDialect().str() : name.str();
}

struct FuseAttentionPass : impl::FuseAttentionPassBase<FuseAttentionPass> {
  using FuseAttentionPassBase::FuseAttentionPassBase;

  void runOnOperation() override {
    AttentionReport report;
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      if (function.isDeclaration())
        continue;
      const bool loss = function.getName() == "loss";
      llvm::SmallVector<SoftmaxOp> softmaxes;
      function.walk([&](SoftmaxOp op) { softmaxes.push_back(op); });
      for (SoftmaxOp softmax : softmaxes)
        fuse(softmax, loss ? "training" : "prediction", report);
      eraseDeadOps(function);
    }
    report.write(getOperation());
  }

private:
  TileNumbers tileNumbers() const {
    return llvm::StringSwitch<TileNumbers>(tiles)
        .Case("bf16", TileNumbers::BF16)
        .Case("f16", TileNumbers::F16)
        .Case("tf32", TileNumbers::TF32)
        .Case("f32", TileNumbers::F32)
        .Default(TileNumbers::None);
  }
  /// The only heads besides tiles that are fused; null: all.
  const AttentionCalls *calls() {
    const target::Target *target = callsOnly ? target::targetOf(getOperation()) : nullptr;
    return target ? &target->capabilities().attentionCalls : nullptr;
  }

  void fuse(SoftmaxOp softmax, llvm::StringRef graph, AttentionReport &report) {
    AxisSpace axes;
    AttentionFailure failure;
    AttentionMatcher matcher(axes);
    std::optional<AttentionMatch> match = matcher.match(softmax, failure);
    AttentionOp op;
    llvm::json::Array nodes;
    const int64_t bytes = tensorBytes(softmax.getType());
    const std::string node = attentionNode(softmax);
    if (match) {
      llvm::SmallVector<std::string> names;
      for (Operation *part : match->ops)
        if (std::string name = attentionNode(part); !llvm::is_contained(names, name))
          names.push_back(name);
      for (std::string &name : names)
        nodes.push_back(name);
      op = AttentionWriter(axes, *match, tileNumbers(), tilesOnly, calls()).write(failure);
    }
    if (!op) {
      if (!match && !looksLikeAttention(softmax))
        return;
      if (required && !failure.read)
        return failed(softmax, failure);
      report.add("attention missed", attentionNode(failure.op), graph,
                 llvm::json::Object{{"reason", failure.reason}, {"softmax", node}});
      return;
    }
    auto shapeText = [](Value value) {
      std::string text;
      if (value)
        for (int64_t extent : shapeOf(value))
          text += (text.empty() ? "" : "x") + std::to_string(extent);
      return text;
    };
    llvm::ArrayRef<int64_t> query = shapeOf(op.getQuery());
    llvm::json::Object entry{{"nodes", std::move(nodes)},
                             {"samples", query[0]},
                             {"heads", query[1]},
                             {"key_heads", shapeOf(op.getKey())[1]},
                             {"queries", query[2]},
                             {"keys", shapeOf(op.getKey())[2]},
                             {"size", query[3]},
                             {"value_size", shapeOf(op.getValue())[3]},
                             {"causal", op.getCausal()},
                             {"scale", op.getScale().convertToDouble()},
                             {"bias", shapeText(op.getBias())},
                             {"mask", shapeText(op.getMask())}};
    if (op.getCausal())
      entry["causal_offset"] = int64_t(op.getCausalOffset());
    if (double cap = op.getSoftcap().convertToDouble())
      entry["softcap"] = cap;
    if (op.getMaskFill())
      entry["mask_fill"] = op.getMaskFill()->convertToDouble();
    if (double p = op.getDropout().convertToDouble())
      entry["dropout"] = p;
    report.add("attention fused", node, graph, std::move(entry));
    report.add("attention elided", node, graph, llvm::json::Object{{"bytes", bytes}});
  }

  void failed(SoftmaxOp softmax, const AttentionFailure &failure) {
    failure.op->emitError("compiler.attention = \"fused\": the attention of softmax ")
        << attentionNode(softmax) << " is not fused: " << failure.reason
        << "; set it to \"auto\" to compute it as the graph says";
    signalPassFailure();
  }
};

} // namespace

} // namespace tcc::train

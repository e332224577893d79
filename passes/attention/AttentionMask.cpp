//===- AttentionMask.cpp - the meaning of an attention mask ---------------===//
#include "passes/attention/AttentionMask.h"

#include "compiler/dialect/Fold.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {

namespace {
/// Limits of the work: the pass does not analyse larger constants and trees.
constexpr int64_t kMaskElements = int64_t(1) << 26;
constexpr unsigned kMaskDepth = 32;
constexpr int64_t kStoredBytes = int64_t(1) << 26;

Access sibling(const Access &access, Value value) { return {value, access.layout}; }

std::optional<bool> compareNumbers(CompareKind kind, double x, double y) {
  switch (kind) {
  case CompareKind::eq: return x == y;
  case CompareKind::ne: return x != y;
  case CompareKind::lt: return x < y;
  case CompareKind::le: return x <= y;
  case CompareKind::gt: return x > y;
  case CompareKind::ge: return x >= y;
  }
  return std::nullopt;
}

/// Elements of a constant, addressed by axes.
struct ConstantElements {
  HostTensor tensor;
  llvm::SmallVector<std::pair<Axis, int64_t>> strides; // in elements
  ConstantElements(const AxisSpace &axes, const Access &access) {
    tensor = HostTensor::fromAttribute(access.value.getDefiningOp<ConstantOp>().getValue());
    AxisList list = axes.flatten(access.layout);
    int64_t stride = 1;
    for (Axis axis : llvm::reverse(list)) {
      strides.emplace_back(axis, stride);
      stride *= axes.extent(axis);
    }
  }
  /// Offsets of all indices of `list` in row-major order; 0 along axes that the constant lacks.
  llvm::SmallVector<int64_t> offsets(const AxisSpace &axes, llvm::ArrayRef<Axis> list) const {
    llvm::SmallVector<int64_t> result{0};
    for (Axis axis : list) {
      auto found = llvm::find_if(strides, [&](auto &entry) { return entry.first == axis; });
      int64_t stride = found == strides.end() ? 0 : found->second;
      llvm::SmallVector<int64_t> next;
      next.reserve(result.size() * size_t(axes.extent(axis)));
      for (int64_t base : result)
        for (int64_t i = 0; i < axes.extent(axis); ++i)
          next.push_back(base + i * stride);
      result = std::move(next);
    }
    return result;
  }
};
} // namespace

void MaskTerms::append(const MaskTerms &other) {
  upper = std::min(upper, other.upper);
  lower = std::max(lower, other.lower);
  llvm::append_range(terms, other.terms);
}

std::optional<double> splatNumber(Value value) {
  for (unsigned depth = 0; depth < kMaskDepth; ++depth) {
    Operation *op = value.getDefiningOp();
    if (auto constant = dyn_cast_or_null<ConstantOp>(op)) {
      auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
      if (!dense || !dense.isSplat())
        return std::nullopt;
      HostTensor one = HostTensor::fromAttribute(dense.resizeSplat(RankedTensorType::get({}, dense.getElementType())));
      return one.isFloat() ? one.getDouble(0) : double(one.getInt(0));
    }
    if (!isa_and_nonnull<ReshapeOp, TransposeOp, BroadcastOp>(op) &&
        !(isa_and_nonnull<CastOp>(op) && isFloatTensor(value) && isFloatTensor(op->getOperand(0))))
      return std::nullopt;
    value = op->getOperand(0);
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Ranges and two-valued numbers
//===----------------------------------------------------------------------===//

std::optional<MaskReader::Affine> MaskReader::affine(Access access, unsigned depth) {
  if (depth > kMaskDepth)
    return std::nullopt;
  if (std::optional<double> number = splatNumber(access.value))
    return Affine{0, 0, *number};
  Operation *op = access.value.getDefiningOp();
  if (!op)
    return std::nullopt;
  auto along = [&](AxisList list, double first, double step) -> std::optional<Affine> {
    list = axes.expand(list);
    if (list.empty())
      return Affine{0, 0, first};
    if (list == axes.expand(query))
      return Affine{step, 0, first};
    if (list == axes.expand(key))
      return Affine{0, step, first};
    return std::nullopt;
  };
  if (auto iota = dyn_cast<IotaOp>(op))
    return along(access.layout[size_t(iota.getDim())], 0, 1);
  if (isa<ConstantOp>(op)) {
    AxisList list = axes.flatten(access.layout);
    auto type = tensorTypeOf(access.value);
    if (type.getNumElements() < 2 || type.getNumElements() > 65536)
      return std::nullopt;
    HostTensor tensor = HostTensor::fromAttribute(cast<ConstantOp>(op).getValue());
    auto at = [&](int64_t i) { return tensor.isFloat() ? tensor.getDouble(i) : double(tensor.getInt(i)); };
    double first = at(0), step = at(1) - first;
    for (int64_t i = 0; i < tensor.size(); ++i)
      if (at(i) != first + step * double(i))
        return std::nullopt;
    return along(list, first, step);
  }
  if (auto converted = dyn_cast<CastOp>(op))
    return elementTypeOf(access.value).isInteger(1) || elementTypeOf(converted.getInput()).isInteger(1)
               ? std::nullopt
               : affine(sibling(access, converted.getInput()), depth + 1);
  if (isa<AddOp, SubOp, MulOp>(op)) {
    std::optional<Affine> x = affine(sibling(access, op->getOperand(0)), depth + 1);
    std::optional<Affine> y = x ? affine(sibling(access, op->getOperand(1)), depth + 1) : std::nullopt;
    if (!x || !y)
      return std::nullopt;
    if (isa<MulOp>(op)) {
      if (x->query || x->key)
        std::swap(x, y);
      if (x->query || x->key)
        return std::nullopt;
      return Affine{y->query * x->constant, y->key * x->constant, y->constant * x->constant};
    }
    double sign = isa<AddOp>(op) ? 1 : -1;
    return Affine{x->query + sign * y->query, x->key + sign * y->key, x->constant + sign * y->constant};
  }
  if (isa<NegOp>(op)) {
    std::optional<Affine> x = affine(sibling(access, op->getOperand(0)), depth + 1);
    return x ? std::optional(Affine{-x->query, -x->key, -x->constant}) : std::nullopt;
  }
  return axes.stepUp(access) ? affine(access, depth + 1) : std::nullopt;
}

std::optional<TwoValued> MaskReader::twoValued(Access access, unsigned depth) {
  Operation *op = access.value.getDefiningOp();
  if (!op || depth > kMaskDepth)
    return std::nullopt;
  if (auto converted = dyn_cast<CastOp>(op)) {
    if (elementTypeOf(converted.getInput()).isInteger(1))
      return TwoValued{sibling(access, converted.getInput()), 1, 0};
    if (elementTypeOf(access.value).isInteger(1))
      return std::nullopt;
    std::optional<TwoValued> inner = twoValued(sibling(access, converted.getInput()), depth + 1);
    // A cast to an integer or a narrower float keeps 0 and ±1 exactly; a number that means "excluded" may be rounded.
    auto safe = [](double x) { return x == 0 || std::abs(x) == 1 || x <= kMaskFill; };
    bool toFloat = isa<FloatType>(elementTypeOf(access.value));
    return inner && (toFloat ? safe(inner->onTrue) && safe(inner->onFalse)
                             : std::abs(inner->onTrue) <= 1 && std::abs(inner->onFalse) <= 1)
               ? inner
               : std::nullopt;
  }
  if (auto chosen = dyn_cast<SelectOp>(op)) {
    std::optional<double> x = splatNumber(chosen.getOnTrue()), y = splatNumber(chosen.getOnFalse());
    if (x && y)
      return TwoValued{sibling(access, chosen.getCondition()), *x, *y};
    return std::nullopt;
  }
  if (isa<AddOp, SubOp, MulOp, DivOp>(op)) {
    const bool isInteger = !isFloatTensor(access.value);
    if (isInteger && isa<DivOp>(op))
      return std::nullopt;
    for (unsigned side : {0u, 1u}) {
      std::optional<double> number = splatNumber(op->getOperand(1 - side));
      std::optional<TwoValued> two =
          number ? twoValued(sibling(access, op->getOperand(side)), depth + 1) : std::nullopt;
      if (!two)
        continue;
      auto apply = [&](double x) {
        double first = side == 0 ? x : *number, second = side == 0 ? *number : x;
        return isa<AddOp>(op)   ? first + second
               : isa<SubOp>(op) ? first - second
               : isa<MulOp>(op) ? first * second
                                : first / second;
      };
      return TwoValued{two->condition, apply(two->onTrue), apply(two->onFalse)};
    }
    return std::nullopt;
  }
  if (isa<NegOp>(op)) {
    std::optional<TwoValued> two = twoValued(sibling(access, op->getOperand(0)), depth + 1);
    return two ? std::optional(TwoValued{two->condition, -two->onTrue, -two->onFalse}) : std::nullopt;
  }
  return axes.stepUp(access) ? twoValued(access, depth + 1) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

void MaskReader::readConstant(const Access &constant, bool keepWhen, MaskTerms &terms) {
  MaskTerms::Term term{shrink(constant), keepWhen, true};
  AxisList list = axes.flatten(term.condition.layout), rows = axes.expand(query), columns = axes.expand(key);
  int64_t queries = axes.extent(rows), keys = axes.extent(columns);
  if (!term.condition.value.getDefiningOp<ConstantOp>() || axes.extent(list) * 2 > kMaskElements) {
    term.constant = false;
    terms.terms.push_back(term);
    return;
  }
  // The lowest diagonal above which nothing is kept: the mask is causal if it excludes exactly the elements above it.
  ConstantElements elements(axes, term.condition);
  AxisList outside;
  for (Axis axis : list)
    if (!llvm::is_contained(rows, axis) && !llvm::is_contained(columns, axis))
      outside.push_back(axis);
  llvm::SmallVector<int64_t> base = elements.offsets(axes, outside), row = elements.offsets(axes, rows),
                             column = elements.offsets(axes, columns);
  auto visit = [&](auto each) {
    for (int64_t b : base)
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < keys; ++j)
          each(j - i, (elements.tensor.getInt(b + row[size_t(i)] + column[size_t(j)]) != 0) == keepWhen);
  };
  int64_t upper = -kUnbounded;
  visit([&](int64_t distance, bool kept) { upper = kept ? std::max(upper, distance) : upper; });
  bool exact = true;
  visit([&](int64_t distance, bool kept) { exact &= kept || distance > upper; });
  if (upper < keys - 1 && upper != -kUnbounded)
    terms.upper = std::min(terms.upper, upper);
  if (!exact || upper == -kUnbounded)
    terms.terms.push_back(term);
}

void MaskReader::read(const Access &condition, bool keepWhen, MaskTerms &terms) {
  Operation *op = condition.value.getDefiningOp();
  if (std::optional<double> number = op ? splatNumber(condition.value) : std::nullopt;
      number && (*number != 0) == keepWhen)
    return;
  if (isa_and_nonnull<NotOp>(op))
    return read(sibling(condition, op->getOperand(0)), !keepWhen, terms);
  if (isa_and_nonnull<AndOp>(op) == keepWhen && isa_and_nonnull<AndOp, OrOp>(op)) {
    read(sibling(condition, op->getOperand(0)), keepWhen, terms);
    return read(sibling(condition, op->getOperand(1)), keepWhen, terms);
  }
  if (auto chosen = dyn_cast_or_null<SelectOp>(op)) {
    // A conjunction: `c and x` is select(c, x, false); its negation `not c and x` is select(c, false, x), and so on.
    std::optional<double> x = splatNumber(chosen.getOnTrue()), y = splatNumber(chosen.getOnFalse());
    if (y && (*y != 0) != keepWhen) {
      read(sibling(condition, chosen.getCondition()), true, terms);
      return read(sibling(condition, chosen.getOnTrue()), keepWhen, terms);
    }
    if (x && (*x != 0) != keepWhen) {
      read(sibling(condition, chosen.getCondition()), false, terms);
      return read(sibling(condition, chosen.getOnFalse()), keepWhen, terms);
    }
  }
  if (auto converted = dyn_cast_or_null<CastOp>(op)) {
    if (elementTypeOf(converted.getInput()).isInteger(1))
      return read(sibling(condition, converted.getInput()), keepWhen, terms);
    if (std::optional<TwoValued> two = twoValued(sibling(condition, converted.getInput()));
        two && (two->onTrue != 0) != (two->onFalse != 0))
      return read(two->condition, (two->onTrue != 0) == keepWhen, terms);
  }
  if (auto compared = dyn_cast_or_null<CompareOp>(op)) {
    Access left = sibling(condition, compared.getLhs()), right = sibling(condition, compared.getRhs());
    for (bool swapped : {false, true}) {
      std::optional<double> number = splatNumber(swapped ? left.value : right.value);
      std::optional<TwoValued> two = number ? twoValued(swapped ? right : left) : std::nullopt;
      if (!two)
        continue;
      auto holds = [&](double x) {
        return *compareNumbers(compared.getKind(), swapped ? *number : x, swapped ? x : *number);
      };
      if (holds(two->onTrue) != holds(two->onFalse))
        return read(two->condition, holds(two->onTrue) == keepWhen, terms);
    }
    std::optional<Affine> x = affine(left), y = x ? affine(right) : std::nullopt;
    CompareKind kind = compared.getKind();
    if (x && y && kind != CompareKind::eq && kind != CompareKind::ne) {
      // slope·(key − query) + constant, compared with 0
      Affine d{x->query - y->query, x->key - y->key, x->constant - y->constant};
      if (d.key != 0 && d.key == -d.query && std::abs(d.constant) < 1e15) {
        bool below = kind == CompareKind::lt || kind == CompareKind::le,
             strict = kind == CompareKind::lt || kind == CompareKind::gt;
        if (!keepWhen)
          below = !below, strict = !strict;
        double bound = -d.constant / d.key;
        if (d.key < 0)
          below = !below;
        if (below)
          terms.upper = std::min(terms.upper, int64_t(strict ? std::ceil(bound) - 1 : std::floor(bound)));
        else
          terms.lower = std::max(terms.lower, int64_t(strict ? std::floor(bound) + 1 : std::ceil(bound)));
        return;
      }
    }
  }
  if (isa_and_nonnull<ConstantOp>(op))
    return readConstant(condition, keepWhen, terms);
  Access up = condition;
  if (axes.stepUp(up))
    return read(up, keepWhen, terms);
  terms.terms.push_back({shrink(condition), keepWhen, false});
}

std::optional<MaskTerms> MaskReader::readAdditive(const Access &value, double factor, double &fill) {
  auto isFill = [&](double x) { return factor > 0 && x * factor <= kMaskFill; };
  auto note = [&](double x) { fill = std::max(fill, x * factor); };
  if (std::optional<double> number = splatNumber(value.value))
    return *number == 0 ? std::optional(MaskTerms()) : std::nullopt;
  if (std::optional<TwoValued> two = twoValued(value)) {
    bool keepWhen = two->onTrue == 0;
    double other = keepWhen ? two->onFalse : two->onTrue;
    // 0 · −∞ is NaN, so a product with an infinite fill is no mask.
    if ((keepWhen ? two->onTrue : two->onFalse) != 0 || !isFill(other))
      return std::nullopt;
    MaskTerms terms;
    note(other);
    read(two->condition, keepWhen, terms);
    return terms;
  }
  Operation *op = value.value.getDefiningOp();
  if (auto constant = dyn_cast_or_null<ConstantOp>(op)) {
    auto type = tensorTypeOf(value.value);
    if (type.getNumElements() > kMaskElements)
      return std::nullopt;
    HostTensor numbers = HostTensor::fromAttribute(constant.getValue());
    HostTensor kept(RankedTensorType::get(type.getShape(), builder.getI1Type()));
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < numbers.size(); ++i) {
      double x = numbers.getDouble(i);
      if (x != 0 && !isFill(x))
        return std::nullopt;
      if (x != 0)
        largest = std::max(largest, x);
      kept.setInt(i, x == 0);
    }
    MaskTerms terms;
    note(largest);
    Value keep = ConstantOp::create(builder, constant.getLoc(), kept.toAttribute());
    readConstant(sibling(value, keep), true, terms);
    return terms;
  }
  if (auto chosen = dyn_cast_or_null<SelectOp>(op)) { // masked_fill of a mask
    for (bool side : {false, true}) {
      std::optional<double> number = splatNumber(side ? chosen.getOnTrue() : chosen.getOnFalse());
      if (!number || !isFill(*number))
        continue;
      std::optional<MaskTerms> terms =
          readAdditive(sibling(value, side ? chosen.getOnFalse() : chosen.getOnTrue()), factor, fill);
      if (!terms)
        return std::nullopt;
      note(*number);
      read(sibling(value, chosen.getCondition()), !side, *terms);
      return terms;
    }
    return std::nullopt;
  }
  if (isa_and_nonnull<AddOp>(op)) {
    std::optional<MaskTerms> terms = readAdditive(sibling(value, op->getOperand(0)), factor, fill);
    std::optional<MaskTerms> more =
        terms ? readAdditive(sibling(value, op->getOperand(1)), factor, fill) : std::nullopt;
    if (!more)
      return std::nullopt;
    terms->append(*more);
    return terms;
  }
  if (auto converted = dyn_cast_or_null<CastOp>(op); converted && isFloatTensor(converted.getInput()))
    return readAdditive(sibling(value, converted.getInput()), factor, fill);
  Access up = value;
  return axes.stepUp(up) ? readAdditive(up, factor, fill) : std::nullopt;
}

bool MaskReader::keepsEveryRow(const MaskTerms &terms) {
  AxisList rows = axes.expand(query), columns = axes.expand(key), outside;
  const int64_t queries = axes.extent(rows), keys = axes.extent(columns);
  std::vector<ConstantElements> constants;
  for (const MaskTerms::Term &term : terms.terms) {
    if (!term.constant)
      return false;
    constants.emplace_back(axes, term.condition);
    for (Axis axis : axes.flatten(term.condition.layout))
      if (!llvm::is_contained(rows, axis) && !llvm::is_contained(columns, axis) && !llvm::is_contained(outside, axis))
        outside.push_back(axis);
  }
  if (axes.extent(outside) > kMaskElements / std::max<int64_t>(1, queries * keys))
    return false;
  llvm::SmallVector<llvm::SmallVector<int64_t>> base, row, column;
  for (const ConstantElements &elements : constants) {
    base.push_back(elements.offsets(axes, outside));
    row.push_back(elements.offsets(axes, rows));
    column.push_back(elements.offsets(axes, columns));
  }
  for (int64_t b = 0, count = constants.empty() ? 1 : axes.extent(outside); b < count; ++b)
    for (int64_t i = 0; i < queries; ++i) {
      int64_t first = terms.lower == -kUnbounded ? 0 : std::max<int64_t>(0, i + terms.lower);
      int64_t last = terms.upper == kUnbounded ? keys - 1 : std::min<int64_t>(keys - 1, i + terms.upper);
      bool kept = false;
      for (int64_t j = first; j <= last && !kept; ++j) {
        kept = true;
        for (size_t c = 0; c < constants.size() && kept; ++c)
          kept = (constants[c].tensor.getInt(base[c][size_t(b)] + row[c][size_t(i)] + column[c][size_t(j)]) != 0) ==
                 terms.terms[c].keepWhen;
      }
      if (!kept)
        return false;
    }
  return true;
}

//===----------------------------------------------------------------------===//
// Axes that a tensor varies along
//===----------------------------------------------------------------------===//

/// Adds the axes that `access` may vary along; false if the tree is too large to decide.
bool MaskReader::dependsOn(const Access &access, AxisList &found, unsigned &budget) {
  if (!budget--)
    return budget = 0, false;
  Operation *op = access.value.getDefiningOp();
  auto add = [&](llvm::ArrayRef<Axis> list) {
    for (Axis axis : axes.expand(list))
      if (!llvm::is_contained(found, axis))
        found.push_back(axis);
    return true;
  };
  if (splatNumber(access.value))
    return true;
  if (op && op->hasTrait<Pointwise>())
    return llvm::all_of(op->getOperands(),
                        [&](Value operand) { return dependsOn(sibling(access, operand), found, budget); });
  if (auto iota = dyn_cast_or_null<IotaOp>(op))
    return add(access.layout[size_t(iota.getDim())]);
  if (isa_and_nonnull<ConstantOp>(op) && tensorTypeOf(access.value).getNumElements() <= kMaskElements) {
    ConstantElements elements(axes, access);
    auto at = [&](int64_t i) {
      return elements.tensor.isFloat() ? elements.tensor.getDouble(i) : double(elements.tensor.getInt(i));
    };
    for (auto [axis, stride] : elements.strides) {
      bool varies = false;
      int64_t extent = axes.extent(axis);
      for (int64_t i = 0; i < elements.tensor.size() && !varies; ++i)
        if (i / stride % extent)
          varies = !(at(i) == at(i - stride));
      if (varies)
        add(llvm::ArrayRef(axis));
    }
    return true;
  }
  Access up = access;
  if (axes.stepUp(up))
    return dependsOn(up, found, budget);
  return add(axes.flatten(access.layout));
}

Access MaskReader::shrink(Access access) {
  access = axes.root(access);
  AxisList varying;
  unsigned budget = 256;
  if (!dependsOn(access, varying, budget))
    return access;
  varying = axes.expand(varying);
  AxisList present = axes.flatten(access.layout), kept;
  llvm::SmallVector<int64_t> split, sliced, remaining;
  for (Axis axis : present) {
    bool varies = llvm::is_contained(varying, axis);
    split.push_back(axes.extent(axis));
    sliced.push_back(varies ? axes.extent(axis) : 1);
    if (varies) {
      kept.push_back(axis);
      remaining.push_back(axes.extent(axis));
    }
  }
  if (kept.size() == present.size())
    return access;
  Location loc = access.value.getLoc();
  Value value = foldOrSelf(builder, reshape(builder, loc, access.value, split), kStoredBytes);
  llvm::SmallVector<int64_t> starts(split.size(), 0), steps(split.size(), 1);
  value = SliceOp::create(builder, loc, RankedTensorType::get(sliced, elementTypeOf(value)), value, starts, steps);
  value = foldOrSelf(builder, value, kStoredBytes);
  value = foldOrSelf(builder, reshape(builder, loc, value, remaining), kStoredBytes);
  AxisLayout layout;
  for (Axis axis : kept)
    layout.push_back({axis});
  return {value, layout};
}

} // namespace tcc::train

//===- Contractions.cpp - MatMul, Gemm, Einsum ----------------------------===//
//
// train.matmul is [B, M, K] × [B, K, N] with a transposition flag for each operand. If the right operand is a single
// matrix, leading dimensions of the left one become rows: one large product instead of many small ones. A transposition
// of an operand's last two dimensions becomes its flag, also behind reshapes of leading dimensions and multiplications
// by a scalar constant, which commute with it.
//
//===----------------------------------------------------------------------===//
#include "frontend/ops/Contraction.h"
#include "frontend/ops/Modes.h"

#include <cmath>

using namespace mlir;

namespace tcc::frontend {
namespace contraction { // named, since files share a translation unit
namespace {

using train::Expr;

bool swapsLastTwo(llvm::ArrayRef<int64_t> order) {
  int64_t rank = int64_t(order.size());
  for (int64_t i = 0; i + 2 < rank; ++i)
    if (order[size_t(i)] != i)
      return false;
  return rank >= 2 && order[size_t(rank - 2)] == rank - 1 && order[size_t(rank - 1)] == rank - 2;
}

bool isSplatConstant(Value value) {
  auto constant = value.getDefiningOp<train::ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  return dense && dense.isSplat();
}

/// p such that x is p with its last two dimensions swapped, if that costs nothing; else null.
Value untransposed(NodeImport &n, Value x) {
  Operation *op = x.getDefiningOp();
  if (!op)
    return nullptr;
  if (auto transpose = dyn_cast<train::TransposeOp>(op))
    return swapsLastTwo(transpose.getPermutation()) ? transpose.getInput() : Value();
  if (auto reshape = dyn_cast<train::ReshapeOp>(op)) {
    llvm::ArrayRef<int64_t> from = train::shapeOf(reshape.getInput()), to = train::shapeOf(x);
    if (from.size() < 2 || to.size() < 2 || from.take_back(2) != to.take_back(2))
      return nullptr;
    Value inner = untransposed(n, reshape.getInput());
    if (!inner)
      return nullptr;
    Shape shape(to.drop_back(2));
    shape.append({to[to.size() - 1], to[to.size() - 2]});
    // Skip a reshape below: two reshapes become one, or none.
    if (auto before = inner.getDefiningOp<train::ReshapeOp>())
      inner = before.getInput();
    return n.reshape(inner, shape);
  }
  if (isa<train::MulOp, train::DivOp>(op)) {
    bool product = isa<train::MulOp>(op);
    for (unsigned side : {0u, 1u}) {
      if ((side == 1 && !product) || !isSplatConstant(op->getOperand(1 - side)))
        continue;
      Value inner = untransposed(n, op->getOperand(side));
      if (!inner)
        return nullptr;
      auto constant = op->getOperand(1 - side).getDefiningOp<train::ConstantOp>();
      auto value = cast<DenseElementsAttr>(constant.getValue()).resizeSplat(cast<RankedTensorType>(inner.getType()));
      Value factor = train::ConstantOp::create(n.builder, constant.getLoc(), value);
      if (product)
        return train::MulOp::create(n.builder, op->getLoc(), inner.getType(), inner, factor);
      return train::DivOp::create(n.builder, op->getLoc(), inner.getType(), inner, factor);
    }
  }
  return nullptr;
}

struct Operand {
  Value value;
  bool transposed = false;
  llvm::ArrayRef<int64_t> shape() const { return train::shapeOf(value); }
  llvm::ArrayRef<int64_t> batch() const { return shape().drop_back(2); }
  int64_t rows() const { return shape()[shape().size() - (transposed ? 1 : 2)]; }
  int64_t columns() const { return shape()[shape().size() - (transposed ? 2 : 1)]; }
};

Operand lookThrough(NodeImport &n, Value x) {
  if (Value inner = untransposed(n, x))
    return {inner, true};
  return {x, false};
}

Value asRank3(NodeImport &n, const Operand &operand, llvm::ArrayRef<int64_t> batch) {
  int64_t rows = operand.shape()[operand.shape().size() - 2], columns = operand.shape().back();
  Shape full(batch);
  full.append({rows, columns});
  // Without repetition this is a view.
  Value spread = countOf(operand.batch()) == countOf(batch) ? operand.value : n.broadcast(operand.value, full);
  return n.reshape(spread, {countOf(batch), rows, columns});
}

/// numpy's matmul of two operands with at least two dimensions.
Expected<Value> multiply(NodeImport &n, Value left, Value right) {
  Operand x = lookThrough(n, left), y = lookThrough(n, right);
  if (x.columns() != y.rows())
    return error("{} and {} do not multiply: inner extents {} and {}", typeText(left), typeText(right), x.columns(),
                       y.rows());
  std::optional<Shape> batch = train::broadcastShapes(x.batch(), y.batch());
  if (!batch)
    return error("the leading dimensions of {} and {} do not broadcast together", typeText(left), typeText(right));
  Shape result = *batch;
  result.append({x.rows(), y.columns()});
  if (countOf(y.batch()) == 1) {
    // One matrix on the right: all leading dimensions of the left are rows.
    if (x.transposed && countOf(x.batch()) != 1)
      x = {left, false};
    Value rows = n.reshape(x.value, x.transposed ? Shape{1, x.shape()[x.shape().size() - 2], x.rows()}
                                                 : Shape{1, countOf(x.batch()) * x.rows(), x.columns()});
    return n.reshape(batchProduct(n, rows, asRank3(n, y, {1}), x.transposed, y.transposed), result);
  }
  Value value = batchProduct(n, asRank3(n, x, *batch), asRank3(n, y, *batch), x.transposed, y.transposed);
  return n.reshape(value, result);
}

Status matmul(NodeImport &n) {
  keepIterate(n);
  TCC_TRY(value, matrixProduct(n, n.in(0), n.in(1)));
  return n.result(value);
}

Status gemm(NodeImport &n) {
  TCC_TRY(value, gemmValue(n));
  return n.result(value);
}

//===----------------------------------------------------------------------===//
// Einsum
//===----------------------------------------------------------------------===//

/// A tensor whose dimensions have labels: letters, or 256 + i for the i-th dimension from the right of an ellipsis.
struct Labelled {
  Value value;
  llvm::SmallVector<int> labels;
  bool has(int label) const { return llvm::is_contained(labels, label); }
};

Expected<llvm::SmallVector<int>> parseTerm(std::string_view term, int64_t rank) {
  llvm::SmallVector<int> labels;
  size_t dots = term.find("...");
  int64_t letters = int64_t(term.size()) - (dots == term.npos ? 0 : 3);
  if (letters > rank || (dots == term.npos && letters != rank))
    return error("term \"{}\" does not fit an operand of rank {}", term, rank);
  for (size_t i = 0; i < term.size(); ++i) {
    if (i == dots) {
      for (int64_t k = rank - letters; k-- > 0;)
        labels.push_back(256 + int(k));
      i += 2;
    } else if (!std::isalpha(static_cast<unsigned char>(term[i]))) {
      return error("\"{}\" is no label; labels are letters", term[i]);
    } else {
      labels.push_back(term[i]);
    }
  }
  return labels;
}

Labelled sumOut(NodeImport &n, const Labelled &x, llvm::function_ref<bool(int)> keep) {
  Shape dims;
  Labelled result;
  for (auto [i, label] : llvm::enumerate(x.labels)) {
    if (keep(label))
      result.labels.push_back(label);
    else
      dims.push_back(int64_t(i));
  }
  result.value = dims.empty() ? x.value : n.dropDims(train::reduceSum(n.builder, n.loc, x.value, dims), dims);
  return result;
}

Value arrange(NodeImport &n, const Labelled &x, llvm::ArrayRef<int> order) {
  Shape permutation;
  for (int label : order)
    permutation.push_back(llvm::find(x.labels, label) - x.labels.begin());
  return train::transpose(n.builder, n.loc, x.value, permutation);
}

/// The common extent of two, of which 1 broadcasts.
int64_t together(int64_t a, int64_t b) { return a == 1 ? b : a; }

/// Takes the diagonal for every label that a term repeats: two dimensions of d elements become one of d·d, of which
/// every (d + 1)-th element is taken.
Labelled diagonals(NodeImport &n, Labelled x) {
  for (size_t i = 0; i < x.labels.size(); ++i)
    while (llvm::count(x.labels, x.labels[i]) > 1) {
      size_t other = x.labels.size() - 1;
      while (x.labels[other] != x.labels[i])
        --other;
      int label = x.labels[i];
      Shape order, shape;
      llvm::SmallVector<int> labels;
      for (size_t d = 0; d < x.labels.size(); ++d)
        if (d != i && d != other) {
          order.push_back(int64_t(d));
          shape.push_back(train::shapeOf(x.value)[d]);
          labels.push_back(x.labels[d]);
        }
      order.append({int64_t(i), int64_t(other)});
      labels.push_back(label);
      int64_t extent = train::shapeOf(x.value)[i];
      shape.push_back(extent * extent);
      Value flat = n.reshape(train::transpose(n.builder, n.loc, x.value, order), shape);
      Shape starts(shape.size(), 0), steps(shape.size(), 1);
      steps.back() = extent + 1;
      shape.back() = extent;
      x = {train::SliceOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(flat)), flat, starts, steps),
           labels};
      i = 0;
    }
  return x;
}

/// The product of two labelled tensors, summed over common labels that are not kept.
Labelled contract(NodeImport &n, Labelled x, Labelled y, llvm::function_ref<bool(int)> keep) {
  x = sumOut(n, x, [&](int label) { return keep(label) || y.has(label); });
  y = sumOut(n, y, [&](int label) { return keep(label) || x.has(label); });
  // Extents of 1 broadcast.
  auto extent = [](const Labelled &t, int label) {
    return train::shapeOf(t.value)[size_t(llvm::find(t.labels, label) - t.labels.begin())];
  };
  auto stretch = [&](Labelled &t, const Labelled &other) {
    Shape shape(train::shapeOf(t.value));
    for (auto [i, label] : llvm::enumerate(t.labels))
      if (other.has(label))
        shape[i] = together(shape[i], extent(other, label));
    t.value = n.broadcast(t.value, shape);
  };
  stretch(x, y);
  stretch(y, x);
  llvm::SmallVector<int> batch, rows, columns, inner;
  for (int label : x.labels)
    (!y.has(label) ? rows : keep(label) ? batch : inner).push_back(label);
  for (int label : y.labels)
    if (!x.has(label))
      columns.push_back(label);
  auto joined = [](llvm::ArrayRef<int> a, llvm::ArrayRef<int> b, llvm::ArrayRef<int> c) {
    llvm::SmallVector<int> all(a);
    all.append(b.begin(), b.end());
    all.append(c.begin(), c.end());
    return all;
  };
  auto count = [&](const Labelled &t, llvm::ArrayRef<int> labels) {
    int64_t product = 1;
    for (int label : labels)
      product *= extent(t, label);
    return product;
  };
  int64_t b = count(x, batch), m = count(x, rows), k = count(x, inner), c = count(y, columns);
  if (inner.empty() || (rows.empty() && columns.empty())) {
    // An outer product, or sums of products element by element: no matrix product.
    Labelled result;
    result.labels = joined(batch, rows, columns);
    result.labels.append(inner.begin(), inner.end());
    auto spread = [&](const Labelled &t) {
      Shape shape;
      llvm::SmallVector<int> order;
      for (int label : result.labels) {
        shape.push_back(t.has(label) ? extent(t, label) : 1);
        if (t.has(label))
          order.push_back(label);
      }
      return n.expr(n.reshape(arrange(n, t, order), shape));
    };
    result.value = spread(x) * spread(y);
    return sumOut(n, result, [&](int label) { return !llvm::is_contained(inner, label); });
  }
  bool transX = x.labels == joined(batch, inner, rows), transY = y.labels == joined(batch, columns, inner);
  Value left = arrange(n, x, transX ? joined(batch, inner, rows) : joined(batch, rows, inner));
  Value right = arrange(n, y, transY ? joined(batch, columns, inner) : joined(batch, inner, columns));
  left = n.reshape(left, transX ? Shape{b, k, m} : Shape{b, m, k});
  right = n.reshape(right, transY ? Shape{b, c, k} : Shape{b, k, c});
  Labelled result;
  result.labels = joined(batch, rows, columns);
  Shape shape;
  for (int label : result.labels)
    shape.push_back(x.has(label) ? extent(x, label) : extent(y, label));
  result.value = n.reshape(batchProduct(n, left, right, transX, transY), shape);
  return result;
}

Status einsum(NodeImport &n) {
  std::string equation = n.stringAttr("equation", "");
  std::erase(equation, ' ');
  size_t arrow = equation.find("->");
  std::string left = equation.substr(0, arrow);
  llvm::SmallVector<Labelled> operands;
  llvm::SmallVector<llvm::StringRef> terms;
  llvm::StringRef(left).split(terms, ',');
  if (terms.size() != n.inputs.size())
    return error("equation \"{}\" has {} terms for {} inputs", equation, terms.size(), n.inputs.size());
  std::map<int, int64_t> extents;
  std::map<int, int> uses;
  for (auto [i, term] : llvm::enumerate(terms)) {
    TCC_TRY(labels, parseTerm(std::string_view(term.data(), term.size()), n.rank(unsigned(i))));
    for (auto [d, label] : llvm::enumerate(labels)) {
      int64_t size = n.shape(unsigned(i))[d];
      auto [entry, inserted] = extents.emplace(label, size);
      bool repeated = llvm::find(labels, label) - labels.begin() != ptrdiff_t(d);
      if (!inserted && entry->second != size && (repeated || (entry->second != 1 && size != 1)))
        return error("equation \"{}\": extents {} and {} of one label differ", equation, entry->second, size);
      entry->second = together(entry->second, size);
      ++uses[label];
    }
    operands.push_back(diagonals(n, {n.in(unsigned(i)), labels}));
  }
  llvm::SmallVector<int> output;
  int64_t ellipsis = llvm::count_if(extents, [](const auto &entry) { return entry.first >= 256; });
  if (arrow == equation.npos) {
    for (int64_t k = ellipsis; k-- > 0;)
      output.push_back(256 + int(k));
    for (auto [label, count] : uses)
      if (label < 256 && count == 1)
        output.push_back(label);
  } else {
    std::string right = equation.substr(arrow + 2);
    int64_t letters = int64_t(right.size()) - (right.find("...") == right.npos ? 0 : 3);
    bool dots = right.find("...") != right.npos;
    TCC_TRY(labels, parseTerm(right, letters + (dots ? ellipsis : 0)));
    output = labels;
    for (int label : output)
      if (!extents.count(label) || llvm::count(output, label) > 1)
        return error("equation \"{}\": its output names a label twice, or one that no input has", equation);
  }
  Labelled result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i)
    result = contract(n, result, operands[i], [&](int label) {
      return llvm::is_contained(output, label) || std::any_of(operands.begin() + ptrdiff_t(i) + 1, operands.end(),
                                                              [&](const Labelled &t) { return t.has(label); });
    });
  result = sumOut(n, result, [&](int label) { return llvm::is_contained(output, label); });
  return n.result(arrange(n, result, output));
}

constexpr OpEntry kTable[] = {
    {"MatMul", 2, matmul},
    {"Gemm", 2, gemm},
    {"Einsum", 1, einsum},
};

} // namespace
} // namespace contraction

Value batchProduct(NodeImport &n, Value x, Value y, bool transX, bool transY) {
  llvm::ArrayRef<int64_t> xs = train::shapeOf(x), ys = train::shapeOf(y);
  Type type = n.type({xs[0], transX ? xs[2] : xs[1], transY ? ys[1] : ys[2]}, train::elementTypeOf(x));
  return train::MatMulOp::create(n.builder, n.loc, type, x, y, transX, transY);
}

Expected<Value> matrixProduct(NodeImport &n, Value x, Value y) {
  llvm::ArrayRef<int64_t> xs = train::shapeOf(x), ys = train::shapeOf(y);
  if (xs.empty() || ys.empty())
    return error("a scalar does not multiply as a matrix: {} and {}", typeText(x), typeText(y));
  bool row = xs.size() == 1, column = ys.size() == 1;
  if (row)
    x = n.reshape(x, {1, xs[0]});
  if (column)
    y = n.reshape(y, {ys[0], 1});
  TCC_TRY(value, contraction::multiply(n, x, y));
  Shape shape(train::shapeOf(value));
  if (column)
    shape.pop_back();
  if (row)
    shape.erase(shape.end() - (column ? 1 : 2));
  return n.reshape(value, shape);
}

train::Expr scaled(const train::Expr &x, double factor) {
  if (factor == 1)
    return x;
  Type element = train::elementTypeOf(x);
  if (isa<FloatType>(element) || factor == std::floor(factor))
    return x * factor;
  return (x.cast(x.builder->getF64Type()) * factor).cast(element);
}

Expected<Value> gemmValue(NodeImport &n) {
  using contraction::Operand;
  if (n.rank(0) != 2 || n.rank(1) != 2)
    return error("Gemm needs matrices, not {} and {}", typeText(n.in(0)), typeText(n.in(1)));
  auto read = [&](unsigned i, const char *flag) {
    Operand operand = contraction::lookThrough(n, n.in(i));
    operand.transposed ^= n.intAttr(flag, 0) != 0;
    return operand;
  };
  Operand x = read(0, "transA"), y = read(1, "transB");
  if (x.columns() != y.rows())
    return error("{} and {} do not multiply: inner extents {} and {}", typeText(n.in(0)), typeText(n.in(1)),
                       x.columns(), y.rows());
  Shape shape = {x.rows(), y.columns()};
  Value product =
      batchProduct(n, contraction::asRank3(n, x, {1}), contraction::asRank3(n, y, {1}), x.transposed, y.transposed);
  train::Expr result = scaled(n.expr(n.reshape(product, shape)), n.floatAttr("alpha", 1));
  double beta = n.floatAttr("beta", 1);
  if (!n.has(2) || beta == 0)
    return result.value;
  if (train::broadcastShapes(n.shape(2), shape) != shape)
    return error("{} does not broadcast to {}", typeText(n.in(2)), shapeText(shape));
  return (result + scaled(n.expr(2), beta).broadcast(shape)).value;
}

std::span<const OpEntry> contractionOps() { return contraction::kTable; }

} // namespace tcc::frontend

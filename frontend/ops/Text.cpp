//===- Text.cpp - counts of n-grams in rows of tokens ---------------------===//
//
// Tokens are integers; strings are not read. All n-grams of one length are compared with all positions of a row at
// once, and their counts are added to the columns that the node assigns to them.
//
//===----------------------------------------------------------------------===//
#include "frontend/NodeImport.h"

#include <map>

using namespace mlir;

namespace tcc::frontend {
namespace text { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

/// The n-grams of one length.
struct Pool {
  int64_t length = 0;
  std::vector<Shape> tokens;          ///< [position within an n-gram][n-gram]
  llvm::SmallVector<int64_t> columns; ///< of each n-gram: its column of the result
  llvm::SmallVector<int64_t> numbers; ///< of each n-gram: its number in the whole pool
};

Value integers(NodeImport &n, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> values) {
  train::HostTensor tensor(n.type(shape, n.i64()));
  for (auto [i, value] : llvm::enumerate(values))
    tensor.setInt(int64_t(i), value);
  return train::ConstantOp::create(n.builder, n.loc, tensor.toAttribute());
}

/// Splits the pool by lengths; ngram_counts gives the start of each length. If an n-gram is given twice, the last one
/// counts, as in ONNX's reference.
Expected<std::vector<Pool>> poolsOf(NodeImport &n, llvm::ArrayRef<int64_t> columns) {
  Shape pool = n.intsAttr("pool_int64s").value_or(Shape()), begins = n.intsAttr("ngram_counts").value_or(Shape());
  int64_t shortest = n.intAttr("min_gram_length", 1), longest = n.intAttr("max_gram_length", 1);
  if (n.attribute("pool_strings") || pool.empty())
    return error("it has no pool_int64s; n-grams of strings are not supported: give tokens as integers");
  if (shortest < 1 || longest < shortest)
    return error("min_gram_length is {} and max_gram_length {}; they must be at least 1 and in this order", shortest,
                 longest);
  std::vector<Pool> pools;
  int64_t number = 0; // of an n-gram in the whole pool
  for (auto [i, begin] : llvm::enumerate(begins)) {
    int64_t length = int64_t(i) + 1, end = i + 1 < begins.size() ? begins[i + 1] : int64_t(pool.size());
    if (begin < 0 || end < begin || end > int64_t(pool.size()) || (end - begin) % length)
      return error("ngram_counts {} do not divide a pool of {} tokens into n-grams", shapeText(begins),
                         pool.size());
    int64_t count = (end - begin) / length, first = number;
    number += count;
    if (number > int64_t(columns.size()))
      return error("its pool has more n-grams than the {} ngram_indexes", columns.size());
    if (length < shortest || length > longest)
      continue;
    std::map<std::vector<int64_t>, int64_t> numberOf;
    for (int64_t g = 0; g < count; ++g) {
      auto at = pool.begin() + begin + g * length;
      numberOf[std::vector<int64_t>(at, at + length)] = first + g;
    }
    Pool made{length, std::vector<Shape>(size_t(length)), {}, {}};
    for (const auto &[gram, number] : numberOf) {
      for (auto [place, token] : llvm::enumerate(gram))
        made.tokens[place].push_back(token);
      made.columns.push_back(columns[size_t(number)]);
      made.numbers.push_back(number);
    }
    if (!made.columns.empty())
      pools.push_back(std::move(made));
  }
  return pools;
}

/// [rows, n-grams]: how often each n-gram of a pool occurs in a row of `x` ([rows, C]), with tokens 1 to `furthest`
/// apart.
Expr counted(NodeImport &n, const Expr &x, const Pool &pool, int64_t furthest, Type element) {
  int64_t rows = train::shapeOf(x)[0], width = train::shapeOf(x)[1], grams = int64_t(pool.columns.size());
  Expr total = n.expr(n.splat({rows, grams}, element, 0));
  // A single token has no distances.
  for (int64_t distance = 1; distance <= (pool.length == 1 ? 1 : furthest); ++distance) {
    int64_t places = width - distance * (pool.length - 1);
    if (places < 1)
      break;
    std::optional<Expr> found;
    for (int64_t k = 0; k < pool.length; ++k) {
      Expr token = n.expr(n.slice(x, 1, k * distance, places)).reshape({rows, places, 1});
      Expr same = token.compare(CompareKind::eq, n.expr(integers(n, {1, 1, grams}, pool.tokens[size_t(k)])));
      found = found ? found->with(train::AndOp::create(n.builder, n.loc, *found, same)) : same;
    }
    total = total + found->cast(element).sum({1}).reshape({rows, grams});
  }
  return total;
}

Status tfIdfVectorizer(NodeImport &n) {
  llvm::ArrayRef<int64_t> shape = n.shape(0);
  if (shape.empty() || shape.size() > 2)
    return error("{} must be a row of tokens or a batch of rows", typeText(n.in(0)));
  std::string mode = n.stringAttr("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    return error("mode \"{}\" is not one of TF, IDF and TFIDF", mode);
  Shape columns = n.intsAttr("ngram_indexes").value_or(Shape());
  int64_t skips = n.intAttr("max_skip_count", 0), width = 0;
  for (int64_t column : columns) {
    if (column < 0)
      return error("ngram_indexes has the negative column {}", column);
    width = std::max(width, column + 1);
  }
  if (columns.empty() || skips < 0 || skips > (int64_t(1) << 31) || width > (int64_t(1) << 31))
    return error("it has {} ngram_indexes up to {}, and max_skip_count {}; give at least one index, and numbers from 0 "
                 "to below 2^31",
                 columns.size(), width - 1, skips);
  TCC_TRY(pools, poolsOf(n, columns));
  for (const Pool &pool : pools)
    if (pool.length > 1 && countOf({pool.length, std::min(skips + 1, shape.back())}) > kMostUnrolled)
      return error(
          "n-grams of {} tokens with max_skip_count {} are unrolled to more than {} comparisons, the most that "
          "are supported",
          pool.length, skips, kMostUnrolled);
  int64_t rows = shape.size() == 2 ? shape[0] : 1, tokens = shape.back();
  Type element = n.elementType(onnx::TensorProto::FLOAT);
  Expr x = n.expr(0).cast(n.i64()).reshape({rows, tokens}), result = n.expr(n.splat({rows, width}, element, 0));
  const onnx::AttributeProto *weights = mode == "TF" ? nullptr : n.attribute("weights");
  if (weights && weights->floats_size() && weights->floats_size() < int(columns.size()))
    return error("it has {} weights for {} n-grams; give one for each", weights->floats_size(), columns.size());
  for (const Pool &pool : pools) {
    const int64_t grams = int64_t(pool.columns.size());
    Value indices = integers(n, {1, grams}, pool.columns);
    Expr counts = counted(n, x, pool, skips + 1, element);
    if (mode == "IDF")
      counts = counts.compare(CompareKind::gt, 0).cast(element);
    // A weight belongs to an n-gram, as in the standard and onnxruntime; in ONNX's reference it belongs to a column.
    if (weights && weights->floats_size()) {
      train::HostTensor each(n.type({1, grams}, element));
      for (auto [i, number] : llvm::enumerate(pool.numbers))
        each.setDouble(int64_t(i), double(weights->floats(int(number))));
      counts = counts * n.expr(train::ConstantOp::create(n.builder, n.loc, each.toAttribute()));
    }
    // Several n-grams may have the same column: their counts are added; for IDF one occurrence of any is enough.
    const auto kind = mode == "IDF" ? train::ScatterKind::max : train::ScatterKind::add;
    result = n.expr(train::ScatterOp::create(n.builder, n.loc, result.value.getType(), kind, result,
                                             n.broadcast(indices, train::shapeOf(counts)), counts, 1));
  }
  return n.result(shape.size() == 2 ? result : result.reshape({width}));
}

constexpr OpEntry kTable[] = {{"TfIdfVectorizer", 1, tfIdfVectorizer, 9}};

} // namespace
} // namespace text

std::span<const OpEntry> textOps() { return text::kTable; }

} // namespace tcc::frontend

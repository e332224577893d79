//===- ChunkRows.cpp - compute large products in chunks of rows -----------===//
//
// The logits of a language model are its largest tensor, and nothing reads them whole: a loss reduces each row to a
// number, and two products contract their gradient. Gradients are those of the loss's sum, so a row's gradient depends
// on that row alone. So the last product, the loss and both products of its gradient run on one chunk of rows after
// another; the weight gradient accumulates over the chunks. (Cut cross-entropy, Wijmans et al., arXiv:2411.09009, and
// Liger Kernel, Hsu et al., arXiv:2410.10989, do this in hand-written kernels.)
//
// The pass does not know losses: RowRegion finds the row-wise ops around any large product.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/fusion/RowRegion.h"

#include "llvm/Support/FormatVariadic.h"

#include <functional>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_CHUNKROWSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// Chunk sizes are multiples of this if there are enough rows, so that they hold whole tiles of products.
constexpr int64_t kRowUnit = 32;

/// Chunks that save less than this share of the product's bytes are not worth their traffic.
constexpr int64_t kLeastShare = 4;

/// Rows of every chunk but the last, which takes the rest. Depends on shapes alone.
int64_t rowsOfChunk(int64_t rows, int64_t bytes, int64_t maxBytes, int64_t minRows) {
  int64_t fitting = std::max<int64_t>({maxBytes / std::max<int64_t>(bytes / rows, 1), minRows, 1});
  int64_t chunks = llvm::divideCeil(rows, fitting), even = llvm::divideCeil(rows, chunks);
  int64_t rounded = int64_t(llvm::alignTo(uint64_t(even), uint64_t(kRowUnit)));
  return rounded <= fitting ? rounded : even;
}

/// True for a matrix that is unpacked from 4 bits, perhaps cast or viewed.
bool isUnpacked(Value matrix) {
  Operation *op = matrix.getDefiningOp();
  while (op && (isa<CastOp>(op) || op->hasTrait<View>()))
    op = op->getOperand(0).getDefiningOp();
  return isa_and_nonnull<UnpackOp>(op);
}

class ChunkWriter {
public:
  ChunkWriter(RowRegion &region, Operation *product, int64_t chunkRows)
      : region(region), builder(product), chunkRows(chunkRows) {}

  /// Returns the erased ops.
  SmallVector<Operation *> run() {
    for (int64_t begin = 0; begin < region.rows; begin += chunkRows)
      writeChunk(begin, std::min(chunkRows, region.rows - begin));
    for (Value exit : region.exits)
      exit.replaceUsesWithIf(whole(exit), [&](OpOperand &use) { return !region.ops.contains(use.getOwner()); });
    for (Operation *op : region.sums) {
      Value sum = cast(builder, op->getLoc(), totals[op], elementTypeOf(op->getResult(0)));
      op->getResult(0).replaceUsesWithIf(sum, [&](OpOperand &use) { return !region.ops.contains(use.getOwner()); });
    }
    SmallVector<Operation *> erased;
    for (Operation *op : llvm::reverse(region.ops))
      if (op->use_empty()) {
        erased.push_back(op);
        op->erase();
      }
    return erased;
  }

private:
  /// The shape that a value has in a chunk: the innermost dimension of its rows counts those of the chunk.
  SmallVector<int64_t> chunkShape(Value value, const RowDims &dims, int64_t rows) const {
    SmallVector<int64_t> shape(shapeOf(value));
    for (int64_t dim : dims)
      shape[size_t(dim)] = 1;
    shape[size_t(dims.back())] = rows;
    return shape;
  }

  void writeChunk(int64_t begin, int64_t rows) {
    llvm::DenseMap<Value, Value> made, cut;
    for (Operation *op : region.ops) {
      SmallVector<Value> operands(op->getOperands());
      for (auto [value, operand] : llvm::zip_equal(operands, op->getOpOperands()))
        if (RowAccess access = region.access(operand); access.kind == RowAccess::kSameRow) {
          Value own = made.lookup(value);
          value = own ? own : slice(value, access.dims, begin, rows, cut);
        }
      if (region.sums.contains(op)) {
        addToTotal(op, operands);
        continue;
      }
      Value result = op->getResult(0);
      Type type = RankedTensorType::get(chunkShape(result, region.rowsOf[result], rows), elementTypeOf(result));
      Value &clone = made[result];
      if (auto constant = dyn_cast<ConstantOp>(op)) {
        auto value = llvm::cast<DenseElementsAttr>(constant.getValue()).resizeSplat(llvm::cast<ShapedType>(type));
        clone = ConstantOp::create(builder, op->getLoc(), value);
      } else {
        clone = cloneWith(op, operands);
        clone.setType(type);
      }
      if (region.exits.contains(result))
        parts[result].push_back(clone);
    }
  }

  Value slice(Value value, const RowDims &dims, int64_t begin, int64_t rows, llvm::DenseMap<Value, Value> &cut) {
    Value &known = cut[value];
    if (known)
      return known;
    Location loc = value.getLoc();
    Value merged = reshape(builder, loc, value, chunkShape(value, dims, region.rows));
    SmallVector<int64_t> shape = chunkShape(value, dims, rows), starts(shape.size(), 0), steps(shape.size(), 1);
    starts[size_t(dims.back())] = begin;
    return known = SliceOp::create(builder, loc, RankedTensorType::get(shape, elementTypeOf(value)), merged, starts,
                                   steps);
  }

  /// Adds a chunk's rows to the sum over all chunks; a 16-bit sum is kept in f32 and rounded once, at the end.
  void addToTotal(Operation *op, ArrayRef<Value> operands) {
    Value &total = totals[op];
    Location loc = op->getLoc();
    Type element = elementTypeOf(op->getResult(0));
    bool narrow = element.isBF16() || element.isF16();
    Type sumType = tensorTypeOf(op->getResult(0)).clone(narrow ? builder.getF32Type() : element);
    if (auto product = dyn_cast<MatMulOp>(op)) {
      Value addend = total;
      if (!addend && product.getAddend())
        addend = cast(builder, loc, product.getAddend(), elementTypeOf(sumType));
      total = MatMulOp::create(builder, loc, sumType, operands[0], operands[1], addend, product.getTransA(),
                               product.getTransB());
      return;
    }
    Value part = cast(builder, loc, cloneWith(op, operands), elementTypeOf(sumType));
    total = total ? add(builder, loc, total, part) : part;
  }

  Value cloneWith(Operation *op, ArrayRef<Value> operands) {
    Operation *clone = builder.clone(*op);
    clone->setOperands(operands);
    return clone->getResult(0);
  }

  static Type elementTypeOf(Type type) { return llvm::cast<RankedTensorType>(type).getElementType(); }
  static Type elementTypeOf(Value value) { return elementTypeOf(value.getType()); }

  Value whole(Value exit) {
    const RowDims &dims = region.rowsOf[exit];
    Type type = RankedTensorType::get(chunkShape(exit, dims, region.rows), elementTypeOf(exit));
    Value joined = ConcatOp::create(builder, exit.getLoc(), type, parts[exit], dims.back());
    return reshape(builder, exit.getLoc(), joined, shapeOf(exit));
  }

  RowRegion &region;
  OpBuilder builder;
  int64_t chunkRows;
  llvm::DenseMap<Value, SmallVector<Value>> parts; ///< of each exit, one for each chunk
  llvm::DenseMap<Operation *, Value> totals;       ///< of each sum, over the chunks so far
};

/// Moves each op behind the producers of its operands, and otherwise keeps the order.
void restoreOrder(Block &block) {
  SmallVector<Operation *> pending(llvm::make_pointer_range(block.without_terminator())), order;
  llvm::DenseSet<Operation *> placed;
  std::function<void(Operation *)> place = [&](Operation *op) {
    if (!placed.insert(op).second)
      return;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        place(producer);
    order.push_back(op);
  };
  for (Operation *op : pending)
    place(op);
  for (Operation *op : order)
    op->moveBefore(block.getTerminator());
}

struct ChunkRows : impl::ChunkRowsPassBase<ChunkRows> {
  using ChunkRowsPassBase::ChunkRowsPassBase;

  void runOnOperation() override {
    if (maxBytes <= 0)
      return;
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      if (!function->hasAttr(names::kEntry))
        continue;
      SmallVector<MatMulOp> products;
      for (MatMulOp product : function.getBody().front().getOps<MatMulOp>())
        if (tensorBytes(product.getResult().getType()) > maxBytes && shapeOf(product.getResult())[0] == 1)
          products.push_back(product);
      // Chunking one product also chunks the products of its gradient.
      llvm::DenseSet<Operation *> erased;
      for (MatMulOp product : products)
        if (!erased.contains(product.getOperation()))
          chunk(product, erased);
      if (!erased.empty())
        restoreOrder(function.getBody().front());
    }
  }

private:
  void chunk(MatMulOp product, llvm::DenseSet<Operation *> &erased) {
    std::string node = nodeName(product.getLoc()).str(), why;
    int64_t bytes = tensorBytes(product.getResult().getType());
    std::string size = llvm::formatv("{0:F1} MiB", double(bytes) / 0x1p20).str();
    for (int64_t dim : {1, 2}) {
      int64_t rows = shapeOf(product.getResult())[size_t(dim)];
      // A chunk reads an eighth of the bytes of a matrix in f32, and adds no gradient of it.
      int64_t least = isUnpacked(dim == 1 ? product.getRhs() : product.getLhs()) ? minRows / 2 : minRows;
      int64_t each = rowsOfChunk(rows, bytes, maxBytes, least);
      if (each >= rows)
        continue;
      RowRegionOrWhy found = findRowRegion(product, dim);
      if (!found.region) {
        why = why.empty() ? found.why : why;
        continue;
      }
      int64_t saved = bytes - bytes / rows * each - found.region->waitingBytes;
      if (saved * kLeastShare < bytes) {
        why = "chunks would save little, since a gradient that is added up over them waits for another";
        continue;
      }
      erased.insert_range(ChunkWriter(*found.region, product, each).run());
      addNote(getOperation(), "chunked", node,
              llvm::formatv("computed with its row-wise users in {0} chunks of {1} rows: {2} never stored whole",
                            llvm::divideCeil(rows, each), each, size)
                  .str());
      return;
    }
    if (!why.empty())
      addNote(getOperation(), "stored", node, size + " stored whole: " + why);
  }
};

} // namespace

} // namespace tcc::train

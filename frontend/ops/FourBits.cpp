//===- FourBits.cpp - ops on tensors that the file stores in 4 bits -------===//
//
// Weights of 4 bits stay as they are: each op reads the file's bytes by train.unpack, whose elements are
// (code − zero point) · scale, and multiplies or looks up as its floating-point counterpart does. Nothing is widened as
// a whole, unless a reader needs it: products unpack as they copy, lookups unpack the rows that they take.
//
//===----------------------------------------------------------------------===//
#include "frontend/ops/FourBits.h"
#include "frontend/ops/Contraction.h"

#include <bit>

using namespace mlir;

namespace tcc::frontend {
namespace four_bits { // named, since files share a translation unit
namespace {

using train::FourBitCode;

constexpr std::string_view kDomain = "com.microsoft";

/// How a file stores a tensor: by dimension, as in train.unpack.
struct Stored {
  FourBitCode code = FourBitCode::uint4;
  Value bytes;
  Shape shape, strides;
  Shape blocks, scaleStrides, zeroStrides; ///< zeroStrides: empty without zero points
  Value scales, zeros;                     ///< any floating-point type; zeros: null, codes in bytes, or as the scales
};

Shape rowMajor(llvm::ArrayRef<int64_t> shape) {
  Shape strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * shape[d];
  return strides;
}

/// The elements, in f32 (f64 where everything is).
Value unpacked(NodeImport &n, const Stored &stored) {
  auto flat = [&](Value value) { return n.expr(n.reshape(value, {countOf(train::shapeOf(value))})); };
  Type f32 = n.builder.getF32Type();
  Value zeros = stored.zeros;
  if (zeros)
    zeros = train::isFloatTensor(zeros) ? flat(zeros).cast(f32).value : flat(zeros).value;
  Value bytes = flat(stored.bytes), scales = flat(stored.scales).cast(f32);
  return train::UnpackOp::create(n.builder, n.loc, n.type(stored.shape, f32), bytes, scales, zeros,
                                 /*nested=*/Value(), /*map=*/Value(), /*indices=*/Value(), stored.code, uint64_t(0),
                                 stored.shape, stored.strides, uint64_t(0), stored.blocks, stored.scaleStrides,
                                 stored.zeroStrides);
}

/// "its scales f32[4x64]: 8 rows need …".
Status misfit(const char *what, Value value, const std::string &needed) {
  return error("its {} {}: {}", what, typeText(value), needed);
}

/// A tensor of INT4 or UINT4, or null.
const FourBitTensor *fourBitsAt(NodeImport &n, unsigned i) {
  return i < n.inputs.size() && n.inputs[i].fourBits ? &*n.inputs[i].fourBits : nullptr;
}

Status checkBlock(int64_t block) {
  if (block < 16 || block > (int64_t(1) << 30) || !std::has_single_bit(uint64_t(block)))
    return error("its block_size is {}; blocks are a power of two, at least 16", block);
  return Status::success();
}

Status checkScales(NodeImport &n, unsigned i) {
  if (!train::isFloatTensor(n.in(i)))
    return misfit("scales", n.in(i), "they must be floating-point");
  return Status::success();
}

/// Sets blocks along one axis (perAxis: of one element; else of `block`), and where scales and zero points are, which
/// have the tensor's shape with the number of blocks along that axis. `zerosInput` may be absent.
Status setBlocks(NodeImport &n, Stored &stored, int64_t axis, int64_t block, unsigned scales, unsigned zeros) {
  Shape grid = stored.shape;
  grid[size_t(axis)] = (grid[size_t(axis)] - 1) / block + 1;
  if (n.shape(scales) != llvm::ArrayRef(grid))
    return misfit(
        "scales", n.in(scales),
        fmt::format("blocks of {} along axis {} of {} need {}", block, axis, shapeText(stored.shape), shapeText(grid)));
  stored.blocks.assign(stored.shape.size(), 1);
  stored.blocks[size_t(axis)] = block;
  stored.scaleStrides = rowMajor(grid);
  if (const FourBitTensor *points = fourBitsAt(n, zeros)) {
    if (points->shape != grid)
      return error("its zero points {} have another shape than its scales {}", shapeText(points->shape),
                   shapeText(grid));
    stored.zeros = points->bytes;
    stored.zeroStrides = stored.scaleStrides;
  }
  return Status::success();
}

/// The elements and their code, of an input in 4 bits. Error: it has no elements.
Expected<Stored> storedAt(NodeImport &n, const FourBitTensor &tensor) {
  Stored stored;
  stored.code = tensor.isSigned ? FourBitCode::sint4 : FourBitCode::uint4;
  stored.bytes = tensor.bytes;
  stored.shape = tensor.shape;
  stored.strides = rowMajor(stored.shape);
  if (countOf(stored.shape) == 0)
    return error("its tensor in 4 bits, {}, has no elements", shapeText(stored.shape));
  return stored;
}

Status checkZeroType(NodeImport &n, unsigned zeros, const FourBitTensor &of) {
  const FourBitTensor *points = fourBitsAt(n, zeros);
  if (n.has(zeros) || (points && points->isSigned != of.isSigned))
    return error("its zero point {} has another type than its tensor, {}",
                 n.has(zeros)       ? typeText(n.in(zeros))
                 : points->isSigned ? "of INT4"
                                    : "of UINT4",
                 of.isSigned ? "INT4" : "UINT4");
  return Status::success();
}

//===----------------------------------------------------------------------===//
// MatMulNBits
//===----------------------------------------------------------------------===//

/// g_idx may only say what the order of the elements says already.
Status checkGroups(NodeImport &n, unsigned i, int64_t block) {
  TCC_TRY(groups, n.ints(i));
  for (auto [k, group] : llvm::enumerate(groups))
    if (group != int64_t(k) / block)
      return error(
          "its g_idx puts element {} into block {}, and in their order it is in block {}: weights in the order "
          "of activations are not read; quantise again without it (GPTQ: actorder=False)",
          k, group, int64_t(k) / block);
  return Status::success();
}

/// (q − zero point)·scale as a matrix [N, K]: rows of K elements, padded to whole blocks.
Status matMulNBits(NodeImport &n) {
  const int64_t k = n.intAttr("K", 0), rows = n.intAttr("N", 0), bits = n.intAttr("bits", 4),
                block = n.intAttr("block_size", 0);
  if (bits != 4)
    return error("it has weights of {} bits; only those of 4 bits are read: quantise with bits=4, or export the "
                 "floating-point model, which adapter.base = \"int8\" rounds to 8 bits",
                 bits);
  if (int64_t packed = n.intAttr("weight_prepacked", 0))
    return error("weight_prepacked is {}: its weights have the layout of one kind of GPU; quantise without prepacking",
                 packed);
  if (Status status = checkBlock(block); !status.ok())
    return status;
  if (k < 1 || rows < 1)
    return error("it multiplies by a matrix of K = {} and N = {}", k, rows);
  const int64_t blocks = (k - 1) / block + 1, zeroBytes = (blocks + 1) / 2;
  if (n.rank(0) < 1 || n.shape(0).back() != k || !train::isFloatTensor(n.in(0)))
    return misfit("A", n.in(0), fmt::format("its last dimension must be K = {}", k));
  Value b = n.in(1);
  if (!train::elementTypeOf(b).isUnsignedInteger(8) || n.rank(1) < 2 || n.shape(1)[0] != rows ||
      countOf(n.shape(1)) != countOf({rows, blocks, block / 2}))
    return misfit("weights", b,
                  fmt::format("K = {}, N = {} and blocks of {} need UINT8 [{}, {}, {}]", k, rows, block, rows, blocks,
                              block / 2));
  if (Status status = checkScales(n, 2); !status.ok())
    return status;
  if (countOf(n.shape(2)) != countOf({rows, blocks}))
    return misfit("scales", n.in(2), fmt::format("{} rows of {} blocks need [{}, {}]", rows, blocks, rows, blocks));
  Stored stored;
  stored.bytes = b;
  stored.shape = {rows, k};
  stored.strides = {blocks * block, 1};
  stored.blocks = {1, block};
  stored.scales = n.in(2);
  stored.scaleStrides = {blocks, 1};
  stored.code = FourBitCode::int4; // without zero points they are 8
  if (n.has(3)) {
    const bool codes = train::elementTypeOf(n.in(3)).isUnsignedInteger(8);
    if (!codes && !train::isFloatTensor(n.in(3)))
      return misfit("zero points", n.in(3), "they must be UINT8, two in each byte, or floating-point");
    if (countOf(n.shape(3)) != countOf({rows, codes ? zeroBytes : blocks}))
      return misfit(
          "zero points", n.in(3),
          codes ? fmt::format("{} rows of {} blocks, two in each byte, need [{}, {}]", rows, blocks, rows, zeroBytes)
                : fmt::format("{} rows of {} blocks need [{}, {}]", rows, blocks, rows, blocks));
    stored.code = FourBitCode::uint4;
    stored.zeros = n.in(3);
    stored.zeroStrides = {codes ? 2 * zeroBytes : blocks, 1};
  }
  if (n.has(4))
    if (Status status = checkGroups(n, 4, block); !status.ok())
      return status;
  Type element = train::elementTypeOf(n.in(0));
  Value matrix = n.expr(unpacked(n, stored)).cast(element);
  TCC_TRY(product, matrixProduct(n, n.in(0), train::transpose(n.builder, n.loc, matrix, {1, 0})));
  if (!n.has(5))
    return n.result(product);
  if (n.shape(5) != llvm::ArrayRef<int64_t>({rows}))
    return misfit("bias", n.in(5), fmt::format("it must be [{}]", rows));
  TCC_TRY(sum, n.common(product, n.in(5)));
  return n.result(sum.first + sum.second.cast(element));
}

//===----------------------------------------------------------------------===//
// GatherBlockQuantized
//===----------------------------------------------------------------------===//

/// Rows of a table that is stored in UINT8, two elements in each byte; zero points are stored likewise, each row of
/// them from a byte of its own.
Status setPackedRows(NodeImport &n, Stored &stored, int64_t axis, int64_t block) {
  stored.bytes = n.in(0);
  stored.shape = Shape(n.shape(0));
  stored.shape.back() *= 2;
  if (countOf(stored.shape) == 0)
    return error("its table {} has no elements", typeText(n.in(0)));
  stored.strides = rowMajor(stored.shape);
  if (Status status = setBlocks(n, stored, axis, block, 2, 3); !status.ok())
    return status;
  stored.code = FourBitCode::int4; // without zero points they are 8
  if (!n.has(3))
    return Status::success();
  Shape grid(n.shape(2)), packed = grid;
  packed.back() = (grid.back() + 1) / 2;
  if (!train::elementTypeOf(n.in(3)).isUnsignedInteger(8) || n.shape(3) != llvm::ArrayRef(packed))
    return misfit("zero points", n.in(3),
                  fmt::format("scales {} need UINT8 {}, two in each byte", shapeText(grid), shapeText(packed)));
  stored.code = FourBitCode::uint4;
  stored.zeros = n.in(3);
  packed.back() *= 2;
  stored.zeroStrides = rowMajor(packed);
  return Status::success();
}

Status gatherBlockQuantized(NodeImport &n) {
  const FourBitTensor *table = fourBitsAt(n, 0);
  const int64_t bits = n.intAttr("bits", 4), block = n.intAttr("block_size", 128);
  if (!table && (!n.has(0) || !train::elementTypeOf(n.in(0)).isUnsignedInteger(8) || bits != 4))
    return error("its table {}has {} bits; only those of 4 bits are read, in INT4, UINT4 or two in each byte of UINT8: "
                 "quantise with bits=4",
                 n.has(0) ? typeText(n.in(0)) + " " : "", bits);
  if (Status status = checkBlock(block); !status.ok())
    return status;
  if (Status status = checkScales(n, 2); !status.ok())
    return status;
  const int64_t rank = table ? int64_t(table->shape.size()) : n.rank(0);
  if (rank < 1)
    return error("its table is a scalar");
  TCC_TRY(gathered, n.axis(n.intAttr("gather_axis", 0), rank));
  TCC_TRY(quantized, n.axis(n.intAttr("quantize_axis", 1), rank));
  Stored stored;
  if (table) {
    TCC_TRY(elements, storedAt(n, *table));
    stored = elements;
    if (Status status = checkZeroType(n, 3, *table); !status.ok())
      return status;
    if (Status status = setBlocks(n, stored, quantized, block, 2, 3); !status.ok())
      return status;
  } else {
    if (gathered != 0 || rank < 2)
      return error(
          "gather_axis is {} of a table of rank {} that is stored two elements in a byte: it must be 0, and the "
          "last axis another one",
          gathered, rank);
    if (Status status = setPackedRows(n, stored, quantized, block); !status.ok())
      return status;
  }
  stored.scales = n.in(2);
  if (!isa<IntegerType>(train::elementTypeOf(n.in(1))))
    return misfit("indices", n.in(1), "they must be integers");
  Value whole = unpacked(n, stored);
  Shape result(llvm::ArrayRef(stored.shape).take_front(size_t(gathered)));
  result.append(n.shape(1).begin(), n.shape(1).end());
  result.append(stored.shape.begin() + gathered + 1, stored.shape.end());
  Value rows = train::GatherOp::create(n.builder, n.loc, n.type(result, train::elementTypeOf(whole)), whole, n.in(1),
                                       uint64_t(gathered));
  return n.result(n.expr(rows).cast(train::elementTypeOf(n.in(2))));
}

constexpr OpEntry kTable[] = {
    OpEntry{"MatMulNBits", 3, matMulNBits, 1, 1, kDomain}.reading(2, 3).packed(1),
    OpEntry{"GatherBlockQuantized", 3, gatherBlockQuantized, 1, 1, kDomain}.reading(2).packed(0),
};

} // namespace
} // namespace four_bits

Status dequantizeFourBits(NodeImport &n) {
  using namespace four_bits;
  const FourBitTensor *tensor = fourBitsAt(n, 0);
  if (!tensor)
    return error("its zero point is in 4 bits, and its tensor {} is not", typeText(n.in(0)));
  TCC_TRY(stored, storedAt(n, *tensor));
  if (Status status = checkScales(n, 1); !status.ok())
    return status;
  if (Status status = checkZeroType(n, 2, *tensor); !status.ok())
    return status;
  const Shape shape = stored.shape;
  if (shape.empty()) {
    stored.shape = {1};
    stored.strides = {1};
  }
  const int64_t rank = int64_t(stored.shape.size()), block = n.intAttr("block_size", 0), count = countOf(n.shape(1));
  stored.scales = n.in(1);
  if (block != 0) {
    TCC_TRY(axis, n.axis(n.intAttr("axis", 1), rank));
    if (Status status = setBlocks(n, stored, axis, block, 1, 2); !status.ok())
      return status;
  } else {
    const bool single = n.rank(1) == 0 || (n.rank(1) == 1 && count == 1);
    // A block has all elements, or those of one index of the axis.
    stored.blocks = stored.shape;
    stored.scaleStrides.assign(size_t(rank), 0);
    if (!single) {
      TCC_TRY(axis, n.axis(n.intAttr("axis", 1), rank));
      if (n.rank(1) != 1 || count != stored.shape[size_t(axis)])
        return misfit("scales", n.in(1),
                      fmt::format("they are neither one, nor one for each of {} indices of axis {}; for blocks give "
                                  "block_size",
                                  stored.shape[size_t(axis)], axis));
      stored.blocks[size_t(axis)] = 1;
      stored.scaleStrides[size_t(axis)] = 1;
    }
    if (const FourBitTensor *points = fourBitsAt(n, 2)) {
      if (countOf(points->shape) != count)
        return error("its zero points {} have another shape than its scales {}", shapeText(points->shape),
                     shapeText(n.shape(1)));
      stored.zeros = points->bytes;
      stored.zeroStrides = stored.scaleStrides;
    }
  }
  Type result = train::elementTypeOf(n.in(1));
  if (int32_t type = int32_t(n.intAttr("output_dtype", 0))) {
    result = n.elementType(type);
    if (!result || !isa<FloatType>(result))
      return error("output_dtype {} is no floating-point type", onnxTypeName(type));
  }
  return n.result(n.reshape(n.expr(unpacked(n, stored)).cast(result), shape));
}

std::span<const OpEntry> fourBitOps() { return four_bits::kTable; }

} // namespace tcc::frontend

//===- AlignProducts.cpp - pad rows for tensor cores ----------------------===//
//
// Tensor cores load 16 bytes at a time, so a library takes a slow path if rows are no multiple of that: a language
// model with a vocabulary of 50,257 computes its logits at a sixth of the rate, and the product of their gradient with
// the weights at a hundredth (measured on an H200, docs/measurements/device-runs.md). Padding with zeros does not
// change a sum, and the extra rows or columns of a result are sliced off again. Elementwise ops on such rows compute on
// the padded rows (WidenRows): kernels that produce an operand write the zeros, and kernels that read a result skip the
// padding, so that nothing is copied.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/target/Target.h"
#include "compiler/target/cuda/passes/CudaPasses.h"
#include "passes/Common.h"

#include <array>

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_ALIGNPRODUCTSPASS
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

namespace {

enum Dim { kM, kN, kK, kDims };

/// A matrix of a product: which dimension of the product counts its rows, and which its columns.
struct Matrix {
  Value value;
  Dim rows, columns;
};

bool usesTensorCores(MatMulOp product) {
  Type element = elementTypeOf(product.getLhs());
  auto module = product->getParentOfType<ModuleOp>();
  return element.isBF16() || element.isF16() || (element.isF32() && module->hasAttr(target::kTf32Attribute));
}

class Aligner {
public:
  Aligner(MatMulOp product, int64_t rowBytes) : product(product) {
    const bool a = product.getTransA(), b = product.getTransB();
    matrices = {Matrix{product.getLhs(), a ? kK : kM, a ? kM : kK}, Matrix{product.getRhs(), b ? kN : kK, b ? kK : kN},
                Matrix{product.getResult(), kM, kN}};
    for (const Matrix &matrix : matrices) {
      sizes[matrix.rows] = shapeOf(matrix.value)[1];
      sizes[matrix.columns] = shapeOf(matrix.value)[2];
    }
    aligned = sizes;
    for (const Matrix &matrix : matrices) {
      int64_t unit = rowBytes * 8 / elementTypeOf(matrix.value).getIntOrFloatBitWidth();
      aligned[matrix.columns] =
          std::max(aligned[matrix.columns], int64_t(llvm::alignTo(uint64_t(sizes[matrix.columns]), uint64_t(unit))));
    }
  }

  /// True if the product takes longer than copying all padded matrices, in case no kernel absorbs these copies.
  bool isWorthIt(const target::CostModel &costs) const {
    double copied = 0, launches = 0;
    for (const Matrix &matrix : matrices)
      if (changes(matrix)) {
        double bytes = elementTypeOf(matrix.value).getIntOrFloatBitWidth() / 8.0;
        copied += 2 * bytes * double(shapeOf(matrix.value)[0]) * double(aligned[matrix.rows]) *
                  double(aligned[matrix.columns]);
        ++launches;
      }
    double flops =
        2.0 * double(shapeOf(product.getResult())[0]) * double(sizes[kM]) * double(sizes[kN]) * double(sizes[kK]);
    return launches > 0 && flops / costs.callFlopsPerNs > copied / costs.bytesPerNs + launches * costs.launchNs;
  }

  /// Returns the slice that removes the padding from the result's rows; null if they are not padded.
  SliceOp run() {
    OpBuilder builder(product);
    const Location loc = product.getLoc();
    const Matrix &result = matrices[2];
    Value addend = product.getAddend();
    if (addend && changes(result))
      addend = widened(builder, loc, {addend, kM, kN});
    auto wide = MatMulOp::create(builder, loc, typeOf(result), padded(matrices[0]), padded(matrices[1]), addend,
                                 product.getTransA(), product.getTransB());
    SliceOp cut;
    if (changes(result))
      cut = SliceOp::create(builder, loc, product.getType(), wide, zeros(), ones());
    product.getResult().replaceAllUsesWith(cut ? cut.getResult() : wide.getResult());
    product.erase();
    return aligned[kM] == sizes[kM] ? cut : SliceOp();
  }

private:
  bool changes(const Matrix &matrix) const {
    return aligned[matrix.rows] != sizes[matrix.rows] || aligned[matrix.columns] != sizes[matrix.columns];
  }
  RankedTensorType typeOf(const Matrix &matrix) const {
    return RankedTensorType::get({shapeOf(matrix.value)[0], aligned[matrix.rows], aligned[matrix.columns]},
                                 elementTypeOf(matrix.value));
  }
  static SmallVector<int64_t, 3> zeros() { return {0, 0, 0}; }
  static SmallVector<int64_t, 3> ones() { return {1, 1, 1}; }

  /// The operand padded with zeros, right behind its producer, so that all its products share it.
  Value padded(const Matrix &operand) const {
    if (!changes(operand))
      return operand.value;
    OpBuilder builder(product);
    // A cast of a weight is a kernel of its own, so the weight is padded before the cast: that kernel writes the zeros.
    Value source = operand.value;
    if (auto narrowed = source.getDefiningOp<CastOp>(); narrowed && isState(narrowed.getInput()))
      source = narrowed.getInput();
    builder.setInsertionPointAfterValue(operand.value);
    auto type = RankedTensorType::get(typeOf(operand).getShape(), elementTypeOf(source));
    Value wide = PadOp::create(builder, product.getLoc(), type, source, zeros(), ones(), APFloat(0.0));
    return cast(builder, product.getLoc(), wide, elementTypeOf(operand.value));
  }

  static bool isState(Value value) {
    while (auto view = value.getDefiningOp<ReshapeOp>())
      value = view.getInput();
    return isa<BlockArgument>(value);
  }

  /// Like `padded` for an addend, whose padding is sliced off again: if the addend is such a slice, its operand serves.
  Value widened(OpBuilder &builder, Location loc, const Matrix &addend) const {
    if (auto slice = addend.value.getDefiningOp<SliceOp>();
        slice && slice.getInput().getType() == typeOf(addend) &&
        llvm::all_of(slice.getStarts(), [](int64_t start) { return start == 0; }))
      return slice.getInput();
    return PadOp::create(builder, loc, typeOf(addend), addend.value, zeros(), ones(), APFloat(0.0));
  }

  mutable MatMulOp product; ///< a handle
  std::array<Matrix, 3> matrices;
  std::array<int64_t, kDims> sizes{}, aligned{};
};

struct AlignProducts : impl::AlignProductsPassBase<AlignProducts> {
  using AlignProductsPassBase::AlignProductsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    SmallVector<SliceOp> cuts;
    for (MatMulOp product : llvm::make_early_inc_range(function.getBody().front().getOps<MatMulOp>())) {
      if (!usesTensorCores(product))
        continue;
      Aligner aligner(product, rowBytes);
      if (aligner.isWorthIt(target::costsOf(function)))
        if (SliceOp cut = aligner.run())
          cuts.push_back(cut);
    }
    for (SliceOp cut : cuts)
      widenRows(cut);
  }
};

} // namespace

} // namespace tcc::train

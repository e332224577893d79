//===- UnpackInOrder.cpp - widen matrices in the order of their codes -----===//
//
// A kernel that widens a matrix for a product writes neighbouring elements from neighbouring threads. If their codes
// are a row apart, each thread of a warp reads another sector of 32 bytes for one code of 4 bits. A product takes its
// matrices either way round, so the kernel may write the transposed matrix, whose elements are as far apart as their
// codes.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/target/cuda/passes/CudaPasses.h"
#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_UNPACKINORDERPASS
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

namespace {

/// The shape with its last two extents swapped.
SmallVector<int64_t> turned(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> result(shape);
  if (result.size() > 1)
    std::swap(result[result.size() - 2], result.back());
  return result;
}

/// True if all readers of the matrix, behind casts and views as a batch of one, are factors of products.
bool isFactorAlone(Value matrix) {
  return llvm::all_of(matrix.getUses(), [](OpOperand &use) {
    Operation *reader = use.getOwner();
    if (auto product = dyn_cast<MatMulOp>(reader))
      return use.get() != product.getAddend();
    auto view = dyn_cast<ReshapeOp>(reader);
    const bool passes = view ? shapeOf(view.getResult()).drop_front() == shapeOf(view.getInput()) : isa<CastOp>(reader);
    return passes && isFactorAlone(reader->getResult(0));
  });
}

/// Makes the readers of `matrix` read `other`, its transpose.
void replaceByTranspose(Value matrix, Value other) {
  for (OpOperand &use : llvm::make_early_inc_range(matrix.getUses())) {
    Operation *reader = use.getOwner();
    if (auto product = dyn_cast<MatMulOp>(reader)) {
      if (use.getOperandNumber() == 0)
        product.setTransA(!product.getTransA());
      else
        product.setTransB(!product.getTransB());
      use.set(other);
      continue;
    }
    OpBuilder builder(reader);
    Operation *copy = builder.clone(*reader);
    copy->setOperand(0, other);
    copy->getResult(0).setType(
        RankedTensorType::get(turned(shapeOf(reader->getResult(0))), elementTypeOf(reader->getResult(0))));
    replaceByTranspose(reader->getResult(0), copy->getResult(0));
    reader->erase();
  }
}

struct UnpackInOrder : impl::UnpackInOrderPassBase<UnpackInOrder> {
  void runOnOperation() override {
    for (UnpackOp unpack : llvm::make_early_inc_range(getOperation().getBody().front().getOps<UnpackOp>())) {
      if (unpack.getIndices() || unpack.getShape().size() != 2 || unpack.getStrides()[0] >= unpack.getStrides()[1] ||
          !isFactorAlone(unpack.getResult()))
        continue;
      OpBuilder builder(unpack);
      auto type = RankedTensorType::get(turned(unpack.getShape()), elementTypeOf(unpack.getResult()));
      Value inOrder = UnpackOp::create(builder, unpack.getLoc(), type, unpack.getBytes(), unpack.getScales(),
                                       unpack.getZeros(), unpack.getNested(), unpack.getMap(), Value(),
                                       unpack.getCode(), unpack.getBlock(), turned(unpack.getShape()),
                                       turned(unpack.getStrides()), unpack.getAxis(), turned(unpack.getBlocks()),
                                       turned(unpack.getScaleStrides()), turned(unpack.getZeroStrides()));
      replaceByTranspose(unpack.getResult(), inOrder);
      unpack.erase();
    }
  }
};

} // namespace

} // namespace tcc::train

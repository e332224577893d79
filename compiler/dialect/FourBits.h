//===- FourBits.h - layouts of 4 bits, from attributes ----------*- C++ -*-===//
#ifndef TCC_DIALECT_FOURBITS_H
#define TCC_DIALECT_FOURBITS_H

#include "compiler/dialect/TrainDialect.h"
#include "runtime/plan/FourBits.h"

namespace tcc::train {

inline plan::FourBits::Code planCode(FourBitCode code) { return plan::FourBits::Code(code); }

inline plan::FourBits layoutOf(FourBitCode code, uint64_t block, llvm::ArrayRef<int64_t> shape,
                               llvm::ArrayRef<int64_t> strides) {
  plan::FourBits layout;
  layout.set_code(planCode(code));
  layout.set_block(int64_t(block));
  layout.mutable_dims()->Assign(shape.begin(), shape.end());
  layout.mutable_strides()->Assign(strides.begin(), strides.end());
  return layout;
}

/// The layout of an op with the attributes of Train_BlockGrid.
template <typename Op> plan::FourBits layoutOf(Op op, llvm::ArrayRef<int64_t> shape) {
  plan::FourBits layout = layoutOf(op.getCode(), op.getBlock(), shape, op.getStrides());
  if (op.getBlocks().empty() && op.getScaleStrides().empty() && op.getZeroStrides().empty() && !op.getZeros())
    return layout;
  auto assign = [](auto *field, llvm::ArrayRef<int64_t> values) { field->Assign(values.begin(), values.end()); };
  plan::BlockGrid &grid = *layout.mutable_grid();
  assign(grid.mutable_blocks(), op.getBlocks());
  assign(grid.mutable_scale_strides(), op.getScaleStrides());
  assign(grid.mutable_zero_strides(), op.getZeroStrides());
  if (mlir::Value zeros = op.getZeros())
    grid.set_zeros(elementTypeOf(zeros).isF32() ? plan::BlockGrid::NUMBERS : plan::BlockGrid::CODES);
  return layout;
}

/// True if tensors have as many bytes, scales and zero points as the layout; with a grid a file's may have more.
inline bool fits(const plan::FourBits &layout, mlir::Value bytes, mlir::Value scales, mlir::Value zeros) {
  auto holds = [&](mlir::Value value, const plan::TensorType &type) {
    auto tensor = mlir::cast<mlir::RankedTensorType>(value.getType());
    return tensor.getRank() == 1 &&
           (layout.has_grid() ? tensor.getDimSize(0) >= type.dims(0) : tensor.getDimSize(0) == type.dims(0));
  };
  return plan::isWellFormed(layout) && holds(bytes, plan::bytesType(layout)) &&
         holds(scales, plan::scalesType(layout)) && (!zeros || holds(zeros, plan::zerosType(layout)));
}

} // namespace tcc::train

#endif // TCC_DIALECT_FOURBITS_H

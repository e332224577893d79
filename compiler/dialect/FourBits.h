//===- FourBits.h - layouts of 4 bits, from attributes ----------*- C++ -*-===//
#ifndef TCC_DIALECT_FOURBITS_H
#define TCC_DIALECT_FOURBITS_H

#include "compiler/dialect/PlanTypes.h"
#include "compiler/dialect/TrainDialect.h"
#include "runtime/plan/DynamicMap.h"
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
  if (op.getNested())
    layout.set_nested(true);
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

/// True if the tensors of an op have as many bytes, scales and zero points as its layout; those of a file's grid may
/// have more.
template <typename Op> bool fits(const plan::FourBits &layout, Op op) {
  auto holds = [&](mlir::Value value, const plan::TensorType &type) {
    auto tensor = mlir::cast<mlir::RankedTensorType>(value.getType());
    const bool bytes = layout.code() == plan::FourBits::INT8;
    const int64_t count = tensor.getNumElements(), needed = type.dims(0);
    return toPlan(tensor.getElementType()) == type.dtype() && (bytes || tensor.getRank() == 1) &&
           (layout.has_grid() && !bytes ? count >= needed : count == needed);
  };
  return plan::isWellFormed(layout) && holds(op.getBytes(), plan::bytesType(layout)) &&
         holds(op.getScales(), plan::scalesType(layout)) &&
         (!op.getZeros() || holds(op.getZeros(), plan::zerosType(layout))) &&
         (!op.getNested() || holds(op.getNested(), plan::nestedType(layout)));
}

} // namespace tcc::train

#endif // TCC_DIALECT_FOURBITS_H

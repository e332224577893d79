//===- FourBits.h - layouts of 4 bits, from attributes ----------*- C++ -*-===//
#ifndef TCC_DIALECT_FOURBITS_H
#define TCC_DIALECT_FOURBITS_H

#include "compiler/dialect/TrainDialect.h"
#include "runtime/plan/FourBits.h"

namespace tcc::train {

inline plan::FourBits::Code planCode(FourBitCode code) {
  return code == FourBitCode::nf4 ? plan::FourBits::NF4 : plan::FourBits::INT4;
}

inline plan::FourBits layoutOf(FourBitCode code, uint64_t block, llvm::ArrayRef<int64_t> shape,
                               llvm::ArrayRef<int64_t> strides) {
  plan::FourBits layout;
  layout.set_code(planCode(code));
  layout.set_block(int64_t(block));
  layout.mutable_dims()->Assign(shape.begin(), shape.end());
  layout.mutable_strides()->Assign(strides.begin(), strides.end());
  return layout;
}

/// True if tensors have as many bytes and scales as the layout.
inline bool fits(const plan::FourBits &layout, mlir::Value bytes, mlir::Value scales) {
  auto holds = [](mlir::Value value, const plan::TensorType &type) {
    return llvm::equal(mlir::cast<mlir::RankedTensorType>(value.getType()).getShape(), type.dims());
  };
  return plan::isBlockOfFourBits(layout.block()) && plan::codeCount(layout) && holds(bytes, plan::bytesType(layout)) &&
         holds(scales, plan::scalesType(layout));
}

} // namespace tcc::train

#endif // TCC_DIALECT_FOURBITS_H

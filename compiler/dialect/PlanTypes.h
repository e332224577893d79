//===- PlanTypes.h - types as the plan names them ---------------*- C++ -*-===//
#ifndef TCC_DIALECT_PLANTYPES_H
#define TCC_DIALECT_PLANTYPES_H

#include "mlir/IR/BuiltinTypes.h"
#include "runtime/plan/plan.pb.h"

namespace tcc::train {

inline plan::DType toPlan(mlir::Type element) {
  if (element.isF64())
    return plan::F64;
  if (element.isF32())
    return plan::F32;
  if (element.isBF16())
    return plan::BF16;
  if (element.isF16())
    return plan::F16;
  auto integer = mlir::dyn_cast<mlir::IntegerType>(element);
  if (!integer)
    return plan::DTYPE_NONE;
  switch (integer.getWidth()) {
  case 1:
    return plan::I1;
  case 8:
    return integer.isUnsigned() ? plan::U8 : plan::I8;
  case 16:
    return integer.isUnsigned() ? plan::U16 : plan::I16;
  case 32:
    return integer.isUnsigned() ? plan::U32 : plan::I32;
  case 64:
    return integer.isUnsigned() ? plan::U64 : plan::I64;
  }
  return plan::DTYPE_NONE;
}

} // namespace tcc::train

#endif // TCC_DIALECT_PLANTYPES_H

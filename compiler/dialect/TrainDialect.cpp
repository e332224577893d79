//===- TrainDialect.cpp - the train dialect ---------------------*- C++ -*-===//
//
// Registration and generated definitions. The ops are implemented in the files of their families.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/TrainDialect.h"
#include "compiler/dialect/Joined.h"
#include "compiler/dialect/Loop.h"

#include "compiler/dialect/IndexRange.h"
#include "compiler/dialect/Layout.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "compiler/dialect/TrainDialect.cpp.inc"
#include "compiler/dialect/TrainEnums.cpp.inc"
#include "compiler/dialect/TrainInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "compiler/dialect/TrainAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "compiler/dialect/TrainOps.cpp.inc"

#define GET_OP_CLASSES
#include "compiler/dialect/JoinedOps.cpp.inc"

#define GET_OP_CLASSES
#include "compiler/dialect/LoopOps.cpp.inc"

namespace tcc::train {

void TrainDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "compiler/dialect/TrainOps.cpp.inc"
      ,
#define GET_OP_LIST
#include "compiler/dialect/JoinedOps.cpp.inc"
      ,
#define GET_OP_LIST
#include "compiler/dialect/LoopOps.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/dialect/TrainAttributes.cpp.inc"
      >();
  // Implemented in compiler/kernels.
  declarePromisedInterfaces<LoopKernel, AttentionOp, AttentionGradOp, CtcOp, CtcGradOp, LoopOp, RecurrentOp,
                            RecurrentGradOp, WinogradConvOp, WinogradWeightGradOp>();
  attachIndexRanges(*getContext());
  attachLayouts(*getContext());
}

Operation *TrainDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location loc) {
  auto elements = dyn_cast<ElementsAttr>(value);
  if (!elements || elements.getType() != type)
    return nullptr;
  return ConstantOp::create(builder, loc, elements);
}

} // namespace tcc::train

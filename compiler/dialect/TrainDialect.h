//===- TrainDialect.h - the train dialect -----------------------*- C++ -*-===//
#ifndef TCC_DIALECT_TRAINDIALECT_H
#define TCC_DIALECT_TRAINDIALECT_H

#include "compiler/dialect/Element.h"
#include "compiler/dialect/HostTensor.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace tcc::plan {
class Instruction;
}

namespace tcc::train {

template <typename ConcreteType>
class NotDifferentiable : public mlir::OpTrait::TraitBase<ConcreteType, NotDifferentiable> {};
template <typename ConcreteType> class Pointwise : public mlir::OpTrait::TraitBase<ConcreteType, Pointwise> {};
template <typename ConcreteType> class HasNearForm : public mlir::OpTrait::TraitBase<ConcreteType, HasNearForm> {};
template <typename ConcreteType>
class HandsOutElements : public mlir::OpTrait::TraitBase<ConcreteType, HandsOutElements> {};
template <typename ConcreteType> class View : public mlir::OpTrait::TraitBase<ConcreteType, View> {};

} // namespace tcc::train

#include "compiler/dialect/TrainDialect.h.inc"
#include "compiler/dialect/TrainEnums.h.inc"
#include "compiler/dialect/TrainInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "compiler/dialect/TrainAttributes.h.inc"

#define GET_OP_CLASSES
#include "compiler/dialect/TrainOps.h.inc"

#endif // TCC_DIALECT_TRAINDIALECT_H

//===- TrainDialect.td - the train dialect and its base classes -----------===//
#ifndef TCC_DIALECT_TRAINDIALECT_TD
#define TCC_DIALECT_TRAINDIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/CommonAttrConstraints.td"
include "mlir/IR/CommonTypeConstraints.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "compiler/dialect/TrainInterfaces.td"

def Train_Dialect : Dialect {
  let name = "train";
  let cppNamespace = "::tcc::train";
  let summary = "Tensor programs that are trained: static shapes, value semantics, explicit state";
  let description = [{
    Every value is a tensor of static shape. Parameters and other state are `train.variable` symbols, read and written
    explicitly until build-update turns them into arguments and results of the entry functions. Interfaces (TrainInterfaces.td)
    give the compiler's knowledge about an op: its derivative, its cost, its scalar body, the library
    call it becomes, a naive evaluator.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
}

def Train_Float : AnyTypeOf<[F64, F32, BF16, F16]>;
def Train_Element : AnyTypeOf<[F64, F32, BF16, F16, I64, I32, I16, I8, UI64, UI32, UI16, UI8, I1]>;
def Train_Tensor : StaticShapeTensorOf<[Train_Element]>;
def Train_FloatTensor : StaticShapeTensorOf<[Train_Float]>;
def Train_IntTensor : StaticShapeTensorOf<[I64, I32, I16, I8, UI64, UI32, UI16, UI8]>;
def Train_BoolTensor : StaticShapeTensorOf<[I1]>;

class Train_Op<string mnemonic, list<Trait> traits = []> : Op<Train_Dialect, mnemonic, traits>;

/// An op without side effects that every interface applies to: the usual case.
class Train_PureOp<string mnemonic, list<Trait> traits = []>
    : Train_Op<mnemonic, traits # [Pure, DeclareOpInterfaceMethods<Train_Reference>, DeclareOpInterfaceMethods<Train_Cost>]>;

#endif // TCC_DIALECT_TRAINDIALECT_TD

//===- IndexRange.td - interfaces of ops that use or forward indices ------===//
#ifndef TCC_DIALECT_INDEXRANGE_TD
#define TCC_DIALECT_INDEXRANGE_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/Interfaces.td"

def Train_IndexedAccess : OpInterface<"IndexedAccess"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    An op that reads or writes a table at indices. Kernels keep indices inside the table, so that no input makes them touch
    other memory; an index outside is an error of the data that only the loader can name. Attached in IndexRange.cpp.
  }];
  let methods = [
    InterfaceMethod<"The indices and the values that they may have; nullopt where every value is legal.",
      "::std::optional<::tcc::train::IndexUse>", "getIndexUse", (ins)>
  ];
}

def Train_IntegerFlow : OpInterface<"IntegerFlow"> {
  let cppNamespace = "::tcc::train";
  let description = "An op that computes each result element from one element of an operand and constants.";
  let methods = [
    InterfaceMethod<[{
        The demand on elements of operand `operand` so that elements of result 0 satisfy `demand`. nullopt if it is not
        known. A demand may be weaker than needed, never stronger: valid data must not be refused.
      }],
      "::std::optional<::tcc::train::IndexDemand>", "pullBack",
      (ins "unsigned":$operand, "const ::tcc::train::IndexDemand &":$demand)>
  ];
}

#endif // TCC_DIALECT_INDEXRANGE_TD

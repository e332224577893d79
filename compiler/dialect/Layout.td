//===- Layout.td - the interface of ops that support channels-last --------===//
#ifndef TCC_DIALECT_LAYOUT_TD
#define TCC_DIALECT_LAYOUT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/Interfaces.td"

def Train_LayoutAware : OpInterface<"LayoutAware"> {
  let cppNamespace = "::tcc::train";
  let description = [{
    An op that can compute the same on tensors N, spatial, C instead of N, C, spatial. Pointwise ops need not
    implement it. Attached in Layout.cpp.
  }];
  let methods = [
    InterfaceMethod<"Operands that become channels-last with the op; the others keep their layout.",
      "::llvm::SmallVector<unsigned>", "getLaidOutOperands", (ins)>,
    InterfaceMethod<"Results that become channels-last with the op.", "::llvm::SmallVector<unsigned>", "getLaidOutResults", (ins)>,
    InterfaceMethod<[{
        Builds the op from operands of which those of getLaidOutOperands are channels-last; one value per result, those of
        getLaidOutResults channels-last. `inBlocks`: a reduction whose elements are spread over the tensor becomes two,
        of which the first reads blocks that fit into a cache.
      }],
      "::llvm::SmallVector<::mlir::Value>", "buildChannelsLast",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$operands, "bool":$inBlocks)>,
    InterfaceMethod<[{
        Bytes that a generated kernel moves for the op beyond reading its operands and writing its results once: `walked`
        again in order, or `turned` into another order of dimensions.
      }],
      "::tcc::train::LayoutCost", "getLayoutCost", (ins "bool":$channelsLast), "", "return {};">
  ];
}

#endif // TCC_DIALECT_LAYOUT_TD

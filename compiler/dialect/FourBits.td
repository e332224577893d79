//===- FourBits.td - what codes of 4 bits stand for ------------------------===//
#ifndef TCC_DIALECT_FOURBITS_TD
#define TCC_DIALECT_FOURBITS_TD
include "mlir/IR/EnumAttr.td"

def Train_FourBitCode : I32EnumAttr<"FourBitCode", "what the codes of 4 bits stand for; or bytes that are numbers", [
    I32EnumAttrCase<"nf4", 1>, I32EnumAttrCase<"int4", 2>, I32EnumAttrCase<"uint4", 3>, I32EnumAttrCase<"sint4", 4>,
    I32EnumAttrCase<"int8", 5>]> { let cppNamespace = "::tcc::train"; }

// Blocks of a file's tensor: their extents along each dim, and the distances of the scales and of the zero points of adjacent blocks.
defvar Train_BlockGrid = (ins DefaultValuedOptionalAttr<DenseI64ArrayAttr, "{}">:$blocks,
                              DefaultValuedOptionalAttr<DenseI64ArrayAttr, "{}">:$scaleStrides,
                              DefaultValuedOptionalAttr<DenseI64ArrayAttr, "{}">:$zeroStrides);

#endif // TCC_DIALECT_FOURBITS_TD

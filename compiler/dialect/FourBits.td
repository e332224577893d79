//===- FourBits.td - what codes of 4 bits stand for ------------------------===//
#ifndef TCC_DIALECT_FOURBITS_TD
#define TCC_DIALECT_FOURBITS_TD
include "mlir/IR/EnumAttr.td"

def Train_FourBitCode : I32EnumAttr<"FourBitCode", "what the codes of 4 bits stand for", [
    I32EnumAttrCase<"nf4", 1>, I32EnumAttrCase<"int4", 2>]> { let cppNamespace = "::tcc::train"; }

#endif // TCC_DIALECT_FOURBITS_TD

//===- PackedMatmul.h - products on packed panels, without the library ---===//
#ifndef TCC_RUNTIME_CPU_PACKEDMATMUL_H
#define TCC_RUNTIME_CPU_PACKEDMATMUL_H

#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/cpu/PackedProduct.h"
#include "runtime/cpu/calls/MatmulDesigns.h"

namespace tcc::runtime {

std::unique_ptr<LibraryCall> makePackedMatmul(const PackedDesign &design);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_PACKEDMATMUL_H

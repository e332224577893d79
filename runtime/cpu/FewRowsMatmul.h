//===- FewRowsMatmul.h - products of few rows, without the library -------===//
#ifndef TCC_RUNTIME_CPU_FEWROWSMATMUL_H
#define TCC_RUNTIME_CPU_FEWROWSMATMUL_H

#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/cpu/PackedProduct.h"
#include "runtime/cpu/calls/MatmulDesigns.h"

namespace tcc::runtime {

std::unique_ptr<LibraryCall> makeFewRowsMatmul(const FewRowsDesign &design);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_FEWROWSMATMUL_H

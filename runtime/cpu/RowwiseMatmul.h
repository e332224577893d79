//===- RowwiseMatmul.h - a product whose rows go to a kernel -------------===//
#ifndef TCC_RUNTIME_CPU_ROWWISEMATMUL_H
#define TCC_RUNTIME_CPU_ROWWISEMATMUL_H

#include "runtime/cpu/PackedMatmul.h"

namespace tcc::runtime {

/// `kernel` has `operands` pointers after that of C.
std::unique_ptr<LibraryCall> makeRowwiseMatmul(const RowwiseDesign &design, plan::KernelFunction kernel, int operands);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_ROWWISEMATMUL_H

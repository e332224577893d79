//===- BlasLimits.h - what cuBLASLt asks of a plan's products ------------===//
#ifndef TCC_RUNTIME_PLAN_BLASLIMITS_H
#define TCC_RUNTIME_PLAN_BLASLIMITS_H

#include <cstdint>

namespace tcc::plan {

/// The row stride of gelu's input matrix must be a multiple of this many elements (cublasLtMatmulDescAttributes_t,
/// EPILOGUE_AUX_LD).
inline constexpr int64_t kBlasAuxiliaryElements = 8;

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_BLASLIMITS_H

//===- CpuCode.h - kernels' code by machine level ---------------*- C++ -*-===//
#ifndef TCC_COMPILER_TARGET_CPU_CPUCODE_H
#define TCC_COMPILER_TARGET_CPU_CPUCODE_H

#include "compiler/target/CodeModel.h"
#include "runtime/cpu/calls/CpuLevel.h"

namespace tcc::target::cpu {

/// Vectors are two registers of f32: 16 lanes with AVX2, 32 with AVX-512.
inline CodeModel codeOf(runtime::CpuLevel level) {
  if (level == runtime::CpuLevel::V3)
    return {"x86-64-v3", "", 16, false};
  bool pairs = runtime::multipliesBf16(level);
  return {"x86-64-v4", pairs ? "-prefer-256-bit,+avx512bf16" : "-prefer-256-bit", 32, pairs};
}

} // namespace tcc::target::cpu

#endif // TCC_COMPILER_TARGET_CPU_CPUCODE_H

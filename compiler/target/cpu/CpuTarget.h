//===- CpuTarget.h - x86-64 processors as a target --------------*- C++ -*-===//
#ifndef TCC_COMPILER_TARGET_CPU_CPUTARGET_H
#define TCC_COMPILER_TARGET_CPU_CPUTARGET_H

#include "compiler/target/CodeModel.h"
#include "compiler/target/Target.h"
#include "compiler/target/cpu/CpuModel.h"
#include "runtime/cpu/calls/CpuLevel.h"

namespace tcc::target::cpu {

/// Vectors are two registers of f32: 16 lanes with AVX2, 32 with AVX-512.
inline CodeModel codeOf(runtime::CpuLevel level) {
  if (level == runtime::CpuLevel::V3)
    return {"x86-64-v3", "", 16, false};
  bool pairs = runtime::multipliesBf16(level);
  return {"x86-64-v4", pairs ? "-prefer-256-bit,+avx512bf16" : "-prefer-256-bit", 32, pairs};
}

/// The kind "cpu" with its levels v3, v4, v4-bf16 and amx.
TargetKind cpuKind();

/// A target of one level with the constants of `model`, for tests that change them.
std::unique_ptr<const Target> createCpuTarget(const std::string &level, const CpuModel &model);

} // namespace tcc::target::cpu

#endif // TCC_COMPILER_TARGET_CPU_CPUTARGET_H

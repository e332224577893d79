//===- CpuTarget.h - x86-64 processors as a target --------------*- C++ -*-===//
#ifndef TCC_COMPILER_TARGET_CPU_CPUTARGET_H
#define TCC_COMPILER_TARGET_CPU_CPUTARGET_H

#include "compiler/target/Target.h"
#include "compiler/target/cpu/CpuModel.h"

namespace tcc::target::cpu {

/// The kind "cpu" with its levels v3, v4, v4-bf16 and amx.
TargetKind cpuKind();

/// A target of one level with the constants of `model`, for tests that change them.
std::unique_ptr<const Target> createCpuTarget(const std::string &level, const CpuModel &model);

} // namespace tcc::target::cpu

#endif // TCC_COMPILER_TARGET_CPU_CPUTARGET_H

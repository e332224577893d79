//===- CpuLevel.h - machine levels and the features behind them -*- C++ -*-===//
//
// A CPU program is made for one machine level: a set of instructions that its kernels and calls may use. Only this file
// queries the processor's features; tests may replace them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CALLS_CPULEVEL_H
#define TCC_RUNTIME_CPU_CALLS_CPULEVEL_H

#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include <string>
#include <string_view>

namespace tcc::runtime {

/// The features of a processor that determine which levels it runs.
struct CpuFeatures {
  bool avx2 = false;   ///< AVX2 and FMA
  bool avx512 = false; ///< AVX-512 F, BW, CD, DQ and VL
  bool bf16 = false;   ///< AVX-512 dot products of bf16
  bool amx = false;    ///< AMX tiles of bf16 and int8, granted by the system
  bool isAmd = false;  ///< its dot products of bf16 do twice the work of f32's instructions; Intel's half of it
};

/// The features of this machine, by CPUID.
CpuFeatures detectFeatures();

/// The features that are used everywhere: this machine's, unless a test has set others.
const CpuFeatures &cpuFeatures();

/// Sets the features for its lifetime. Not for several threads at once.
class ScopedFeatures {
public:
  explicit ScopedFeatures(const CpuFeatures &features);
  ~ScopedFeatures();
  ScopedFeatures(const ScopedFeatures &) = delete;
  ScopedFeatures &operator=(const ScopedFeatures &) = delete;

private:
  CpuFeatures saved;
};

enum class CpuLevel { V3, V4, V4Bf16, Amx };

/// "cpu:v3", "cpu:v4", "cpu:v4-bf16", "cpu:amx".
std::string levelName(CpuLevel level);

/// Error: a name of no level; the known ones are listed.
Expected<CpuLevel> levelFromName(std::string_view name);

/// True if a processor has the features that a level needs.
bool runsLevel(const CpuFeatures &features, CpuLevel level);

/// The default level to compile for. It depends on CPUID alone. A program in f32 gets at most cpu:v4, so that it runs
/// on every machine with AVX-512. Error: a machine below x86-64-v3.
Expected<CpuLevel> defaultLevel(const CpuFeatures &features, bool bf16Products);

/// True if a level has instructions for bf16 products; on others bf16 is widened to f32.
constexpr bool multipliesBf16(CpuLevel level) { return level == CpuLevel::V4Bf16 || level == CpuLevel::Amx; }

/// True if products use packed panels: with AMX, products of bf16 are left to the library.
constexpr bool hasPanels(CpuLevel level, plan::DType dtype) {
  return dtype == plan::F32 || (dtype == plan::BF16 && level != CpuLevel::Amx);
}

/// True if products of few rows read their second matrix in place: that kernel needs AVX-512.
constexpr bool hasFewRows(CpuLevel level, plan::DType dtype) {
  return level != CpuLevel::V3 && hasPanels(level, dtype);
}

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLS_CPULEVEL_H

//===- CpuLevel.h - machine levels and the features behind them -*- C++ -*-===//
//
// A CPU program is made for one machine level: a set of instructions that its kernels and calls may use. This is the one
// place that asks the processor what it has; tests put other features in its place.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CALLS_CPULEVEL_H
#define TCC_RUNTIME_CPU_CALLS_CPULEVEL_H

#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include <string>
#include <string_view>

namespace tcc::runtime {

/// What of a processor decides which levels it runs.
struct CpuFeatures {
  bool avx2 = false;   ///< AVX2 and FMA
  bool avx512 = false; ///< AVX-512 F, BW, CD, DQ and VL
  bool bf16 = false;   ///< AVX-512 dot products of bf16
  bool amx = false;    ///< AMX tiles of bf16 and int8, granted by the system
  bool isAmd = false;  ///< its dot products of bf16 do twice the work of f32's instructions; Intel's half of it
};

/// This machine's, by CPUID.
CpuFeatures detectFeatures();

/// The features that everything goes by: this machine's, unless a test has set others.
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

/// True where a processor has what a level needs.
bool runsLevel(const CpuFeatures &features, CpuLevel level);

/// The level that is compiled for where none is named. It follows from CPUID alone. A program in f32 gets no higher one
/// than cpu:v4, so that it runs on every machine with AVX-512. Error: a machine below x86-64-v3.
Expected<CpuLevel> defaultLevel(const CpuFeatures &features, bool bf16Products);

/// True where a level has instructions for bf16 products; on others they are widened to f32.
constexpr bool multipliesBf16(CpuLevel level) { return level == CpuLevel::V4Bf16 || level == CpuLevel::Amx; }

/// True where packed panels multiply: they leave AMX's tiles of bf16 to the library.
constexpr bool hasPanels(CpuLevel level, plan::DType dtype) {
  return dtype == plan::F32 || (dtype == plan::BF16 && level != CpuLevel::Amx);
}

/// True where few rows are multiplied with a matrix that is read in place: that kernel needs AVX-512.
constexpr bool hasFewRows(CpuLevel level, plan::DType dtype) {
  return level != CpuLevel::V3 && hasPanels(level, dtype);
}

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLS_CPULEVEL_H

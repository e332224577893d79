//===- CpuLevel.cpp - machine levels and the features behind them --------===//
#include "runtime/cpu/calls/CpuLevel.h"

#include <array>
#include <fmt/ranges.h>
#if defined(__x86_64__) && !defined(TCC_PORTABLE)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tcc::runtime {

namespace {
constexpr std::array<std::pair<CpuLevel, const char *>, 4> kLevels = {{{CpuLevel::V3, "cpu:v3"},
                                                                       {CpuLevel::V4, "cpu:v4"},
                                                                       {CpuLevel::V4Bf16, "cpu:v4-bf16"},
                                                                       {CpuLevel::Amx, "cpu:amx"}}};

#if defined(__x86_64__) && !defined(TCC_PORTABLE)
/// AMX tiles of bf16 and int8, which oneDNN asks for together, in the processor and granted by the system.
bool hasTiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
    return false;
  constexpr unsigned tiles = 1u << 22 | 1u << 24 | 1u << 25; // AMX-BF16, AMX-TILE, AMX-INT8
  if ((d & tiles) != tiles || !__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27))
    return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 3u << 17) != 3u << 17) // XTILECFG, XTILEDATA
    return false;
  // The kernel grants tile data to a process on request (Linux, Documentation/arch/x86/xstate.rst).
  constexpr long requestPermission = 0x1023, tileData = 18;
  return ::syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
}
#endif

CpuFeatures &current() {
  static CpuFeatures features = detectFeatures();
  return features;
}
} // namespace

CpuFeatures detectFeatures() {
  CpuFeatures features;
#if defined(__x86_64__)
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#if defined(__x86_64__) && !defined(TCC_PORTABLE) // a portable build has the calls of cpu:v3 alone
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  features.bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
  features.amx = features.bf16 && hasTiles();
  features.isAmd = __builtin_cpu_is("amd");
#endif
  return features;
}

const CpuFeatures &cpuFeatures() { return current(); }

ScopedFeatures::ScopedFeatures(const CpuFeatures &features) : saved(current()) { current() = features; }
ScopedFeatures::~ScopedFeatures() { current() = saved; }

std::string levelName(CpuLevel level) {
  for (auto [known, name] : kLevels)
    if (known == level)
      return name;
  return "";
}

Expected<CpuLevel> levelFromName(std::string_view name) {
  std::vector<std::string> names;
  for (auto [level, known] : kLevels) {
    if (name == known)
      return level;
    names.emplace_back(known);
  }
  return error("unknown target '{}'; known are {}", name, fmt::join(names, ", "));
}

bool runsLevel(const CpuFeatures &features, CpuLevel level) {
  switch (level) {
  case CpuLevel::V3:
    return features.avx2;
  case CpuLevel::V4:
    return features.avx512;
  case CpuLevel::V4Bf16:
    return features.bf16;
  case CpuLevel::Amx:
    return features.amx;
  }
  return false;
}

Expected<CpuLevel> defaultLevel(const CpuFeatures &features, bool bf16Products) {
  if (!features.avx2)
    return error("this machine is below x86-64-v3 (AVX2, FMA), the least that programs are compiled for");
  if (!features.avx512)
    return CpuLevel::V3;
  if (bf16Products && features.amx)
    return CpuLevel::Amx;
  return bf16Products && features.bf16 && features.isAmd ? CpuLevel::V4Bf16 : CpuLevel::V4;
}

} // namespace tcc::runtime

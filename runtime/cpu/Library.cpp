//===- Library.cpp - which oneDNN, on which machine level ----------------===//
#include "runtime/cpu/LibraryPrimitive.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cpuid.h>
#include <immintrin.h>
#include <mutex>

namespace tcc::runtime {

namespace {
struct Level {
  const char *name;
  dnnl_cpu_isa_t isa;
  bool bf16;
};
// Least first.
constexpr std::array<Level, 4> kLevels = {{{"cpu:v3", dnnl_cpu_isa_avx2, false},
                                           {"cpu:v4", dnnl_cpu_isa_avx512_core, false},
                                           {"cpu:v4-bf16", dnnl_cpu_isa_avx512_core_bf16, true},
                                           {"cpu:amx", dnnl_cpu_isa_avx512_core_amx, true}}};

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
  return (low & 3u << 17) == 3u << 17; // XTILECFG, XTILEDATA
}

bool machineHas(const Level &level) {
  switch (level.isa) {
  case dnnl_cpu_isa_avx2:
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  case dnnl_cpu_isa_avx512_core:
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  case dnnl_cpu_isa_avx512_core_bf16:
    return machineHas(kLevels[1]) && __builtin_cpu_supports("avx512bf16");
  case dnnl_cpu_isa_avx512_core_amx:
    return machineHas(kLevels[2]) && hasTiles();
  default:
    return false;
  }
}

/// Seconds of some thousand independent multiply-adds of 16 lanes, in pairs of bf16 or in f32: the least of a few
/// tries.
template <bool Dots> __attribute__((target("avx512f"))) double secondsOfProducts() {
  constexpr int kSums = 12, kSteps = 500, kTries = 7; // sums enough to hide an instruction's latency
  double least = 1;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    __m512 sums[kSums], one = _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80));
#pragma GCC unroll 12
    for (auto &sum : sums)
      sum = _mm512_setzero_ps();
    auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
      for (auto &sum : sums) {
        if constexpr (Dots)
          __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(sum) : "v"(one));
        else
          __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(sum) : "v"(one));
      }
    }
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

/// True where dot products of bf16 multiply more in a second than f32's instructions do. Zen 4 does twice as many;
/// Intel's processors, which have tiles for that, half as many, and where a virtual machine hides the tiles nothing
/// else is left.
bool areDotsFast() {
  static const bool fast = secondsOfProducts<true>() < 2 * secondsOfProducts<false>();
  return fast;
}

std::mutex levelMutex;
const Level *selected = nullptr;
} // namespace

std::string libraryName() {
  const dnnl_version_t *version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

std::string machineLevel(bool bf16Products) {
  if (bf16Products && machineHas(kLevels[2]) && areDotsFast())
    return kLevels[2].name;
  return machineHas(kLevels[1]) ? "cpu:v4" : "cpu:v3";
}

bool isLevel(const std::string &target) {
  return std::any_of(kLevels.begin(), kLevels.end(), [&](const Level &level) { return target == level.name; });
}

bool multipliesBf16(const std::string &target) {
  return std::any_of(kLevels.begin(), kLevels.end(),
                     [&](const Level &level) { return target == level.name && level.bf16; });
}

plan::Status selectLevel(const std::string &target) {
  std::lock_guard lock(levelMutex);
  if (selected && target == selected->name)
    return plan::Status::success();
  for (const Level &level : kLevels) {
    if (target != level.name)
      continue;
    if (!machineHas(level))
      return plan::error("this machine cannot run programs for {}; recompile with tcc --target {}", target,
                         machineLevel());
    if (selected)
      return plan::error("this process runs library kernels for {}, it cannot switch to {}", selected->name, target);
    // The caller's word outranks the environment's: the same plan gives the same kernels everywhere.
    if (dnnl_set_max_cpu_isa(level.isa) != dnnl_success ||
        dnnl_set_cpu_isa_hints(dnnl_cpu_isa_no_hints) != dnnl_success)
      return plan::error("oneDNN was used before its level could be set to {}", target);
    selected = &level;
    return plan::Status::success();
  }
  return plan::error("unknown target '{}'; known are cpu:v3, cpu:v4, cpu:v4-bf16, cpu:amx", target);
}

bool librarySupports(plan::DType dtype) {
  std::lock_guard lock(levelMutex);
  return dtype == plan::F32 || (dtype == plan::BF16 && selected && selected->bf16);
}

bool hasPanels(plan::DType dtype) {
  std::lock_guard lock(levelMutex);
  if (!selected || selected->isa == dnnl_cpu_isa_avx2)
    return false;
  return dtype == plan::F32 || selected->isa != dnnl_cpu_isa_avx512_core_amx; // bf16 tiles are the library's
}

} // namespace tcc::runtime

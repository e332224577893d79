//===- Library.cpp - which oneDNN, on which machine level ----------------===//
#include "runtime/cpu/LibraryPrimitive.h"

#include <array>
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

bool machineHas(const Level &level) {
  switch (level.isa) {
  case dnnl_cpu_isa_avx2:
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  case dnnl_cpu_isa_avx512_core:
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  case dnnl_cpu_isa_avx512_core_bf16:
    return machineHas(kLevels[1]) && __builtin_cpu_supports("avx512bf16");
  default:
    return false; // plans for AMX are not made yet
  }
}

std::mutex levelMutex;
const Level *selected = nullptr;
} // namespace

std::string libraryName() {
  const dnnl_version_t *version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

std::string machineLevel() { return machineHas(kLevels[1]) ? "cpu:v4" : "cpu:v3"; }

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
  return plan::error("unknown target '{}'; known are cpu:v3, cpu:v4, cpu:v4-bf16", target);
}

bool librarySupports(plan::DType dtype) {
  std::lock_guard lock(levelMutex);
  return dtype == plan::F32 || (dtype == plan::BF16 && selected && selected->bf16);
}

} // namespace tcc::runtime

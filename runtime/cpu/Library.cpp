//===- Library.cpp - version and machine level of oneDNN -----------------===//
#include "runtime/cpu/LibraryPrimitive.h"
#include "support/Advice.h"

#include <mutex>
#include <optional>

namespace tcc::runtime {

namespace {
dnnl_cpu_isa_t isaOf(CpuLevel level) {
  switch (level) {
  case CpuLevel::V3:
    return dnnl_cpu_isa_avx2;
  case CpuLevel::V4:
    return dnnl_cpu_isa_avx512_core;
  case CpuLevel::V4Bf16:
    return dnnl_cpu_isa_avx512_core_bf16;
  case CpuLevel::Amx:
    return dnnl_cpu_isa_avx512_core_amx;
  }
  return dnnl_cpu_isa_avx2;
}

std::mutex levelMutex;
std::optional<CpuLevel> selected;
} // namespace

std::string libraryName() {
  const dnnl_version_t *version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

Status checkLevel(const std::string &target) {
  auto level = levelFromName(target);
  if (!level)
    return level.status();
  if (runsLevel(cpuFeatures(), *level))
    return Status::success();
  auto best = defaultLevel(cpuFeatures(), false);
#ifdef TCC_PORTABLE
  constexpr const char *subject = "a portable build, or this machine,";
#else
  constexpr const char *subject = "this machine";
#endif
  return error("{} cannot run programs for {}; recompile with {}", subject, target,
               advice::compile("target", levelName(best ? *best : CpuLevel::V3)));
}

Status selectLevel(const std::string &target) {
  std::lock_guard lock(levelMutex);
  auto level = levelFromName(target);
  if (!level)
    return level.status();
  if (selected == *level)
    return Status::success();
  if (Status status = checkLevel(target); !status.ok())
    return status;
  if (selected)
    return error("this process runs library kernels for {}, it cannot switch to {}", levelName(*selected), target);
  // The caller's level overrides the environment's, so that the same plan gets the same kernels everywhere.
  if (dnnl_set_max_cpu_isa(isaOf(*level)) != dnnl_success ||
      dnnl_set_cpu_isa_hints(dnnl_cpu_isa_no_hints) != dnnl_success)
    return error("oneDNN was used before its level could be set to {}", target);
  selected = *level;
  return Status::success();
}

} // namespace tcc::runtime

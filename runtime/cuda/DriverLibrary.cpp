//===- DriverLibrary.cpp - CUDA's driver, opened at run time ------------===//
#include "runtime/cuda/DriverLibrary.h"
#include "support/Advice.h"

#include <chrono>
#include <dlfcn.h>

namespace tcc::cuda {

namespace {
constexpr const char *kDriverLibrary = "libcuda.so.1";

/// The first driver with every entry point and PTX 8.0, the version of our kernels.
constexpr int kLeastVersion = 12000;

/// How long a wait polls: to be woken takes about as long.
constexpr std::chrono::microseconds kPolls(50);
} // namespace

std::string versionText(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string DriverLibrary::textOf(api::CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (entryPoints.getErrorName(result, &name) != api::CUDA_SUCCESS || !name)
    return fmt::format("error {}", static_cast<int>(result));
  if (entryPoints.getErrorString(result, &text) != api::CUDA_SUCCESS || !text)
    return name;
  return fmt::format("{} ({})", name, text);
}

Status DriverLibrary::check(api::CUresult result, const char *what) const {
  return result == api::CUDA_SUCCESS ? Status() : error("{}: {}", what, textOf(result));
}

Status DriverLibrary::makeEvent(api::CUevent &event) const {
  return check(entryPoints.eventCreate(&event, api::CU_EVENT_DISABLE_TIMING | api::CU_EVENT_BLOCKING_SYNC),
               "making an event");
}

Status DriverLibrary::wait(api::CUevent event, const char *what) const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = Clock::now() + kPolls;
  do {
    if (const api::CUresult result = entryPoints.eventQuery(event); result != api::CUDA_ERROR_NOT_READY)
      return check(result, what);
  } while (Clock::now() < until);
  return check(entryPoints.eventSynchronize(event), what);
}

Expected<DriverLibrary> DriverLibrary::open() {
  void *handle = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return error("no CUDA driver on this machine: {}; install NVIDIA's driver (nvidia-smi shows what it finds), or "
                 "compile the model for this machine's processor ({})",
                 ::dlerror(), advice::compile("target", "cpu"));
  DriverLibrary library;
  const char *missing = nullptr;
#define TCC_CUDA_FIND(member, symbol, parameters)                                                                      \
  library.entryPoints.member = reinterpret_cast<decltype(library.entryPoints.member)>(::dlsym(handle, #symbol));       \
  if (!library.entryPoints.member && !missing)                                                                         \
    missing = #symbol;
  TCC_CUDA_ENTRY_POINTS(TCC_CUDA_FIND)
#undef TCC_CUDA_FIND
  if (library.entryPoints.driverGetVersion)
    (void)library.entryPoints.driverGetVersion(&library.driverVersion);
  if (missing || library.driverVersion < kLeastVersion)
    return error("the CUDA driver ({}, version {}){} is too old; install one of CUDA {} or later", kDriverLibrary,
                 versionText(library.driverVersion), missing ? fmt::format(" has no {}: it", missing) : "",
                 versionText(kLeastVersion));
  api::CUresult started = library.entryPoints.init(0);
  if (started == api::CUDA_ERROR_NO_DEVICE)
    return error("the CUDA driver sees no card: {}; check nvidia-smi, the container's devices and CUDA_VISIBLE_DEVICES",
                 library.textOf(started));
  if (started == api::CUDA_ERROR_STUB_LIBRARY)
    return error("{} is the toolkit's stub, not a driver; take its folder out of LD_LIBRARY_PATH", kDriverLibrary);
  if (started != api::CUDA_SUCCESS)
    return error("the CUDA driver does not start: {}; nvidia-smi says more", library.textOf(started));
  return library;
}

} // namespace tcc::cuda

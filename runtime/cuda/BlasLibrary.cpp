//===- BlasLibrary.cpp - cuBLASLt, opened at run time --------------------===//
#include "runtime/cuda/BlasLibrary.h"

#include <array>
#include <dlfcn.h>

namespace tcc::cuda {

namespace {
constexpr std::array<const char *, 2> kLibraries = {"libcublasLt.so.13", "libcublasLt.so.12"};
} // namespace

std::string BlasLibrary::version() const {
  size_t number = entryPoints.getVersion();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

Status BlasLibrary::check(api::cublasStatus_t status, const char *what) const {
  if (status == api::CUBLAS_STATUS_SUCCESS)
    return Status();
  const char *text = entryPoints.getStatusString(status);
  return error("{}: {} (cuBLASLt {})", what, text ? text : fmt::format("status {}", static_cast<int>(status)),
               version());
}

Expected<BlasLibrary> BlasLibrary::open() {
  void *handle = nullptr;
  std::string reasons;
  for (const char *name : kLibraries) {
    if ((handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)))
      break;
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", ::dlerror());
  }
  if (!handle)
    return error(
        "the plan's products run on cuBLASLt, which the loader does not open ({}); install libcublas of NVIDIA's "
        "CUDA packages, or pip install nvidia-cublas and put the folder of its libcublasLt.so.13 into "
        "LD_LIBRARY_PATH",
        reasons);
  BlasLibrary library;
  const char *missing = nullptr;
  auto find = [&](auto &member, const char *symbol) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(::dlsym(handle, symbol));
    if (!member && !missing)
      missing = symbol;
  };
#define TCC_BLASLT_FIND(member, symbol, parameters) find(library.entryPoints.member, #symbol);
  TCC_BLASLT_ENTRY_POINTS(TCC_BLASLT_FIND)
#undef TCC_BLASLT_FIND
  find(library.entryPoints.getVersion, "cublasLtGetVersion");
  find(library.entryPoints.getStatusString, "cublasLtGetStatusString");
  if (missing)
    return error("libcublasLt has no {}: it is too old; install cuBLAS of CUDA 12.0 or later", missing);
  return library;
}

} // namespace tcc::cuda

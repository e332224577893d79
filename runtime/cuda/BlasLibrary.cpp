//===- BlasLibrary.cpp - cuBLASLt, opened at run time --------------------===//
#include "runtime/cuda/BlasLibrary.h"

#include "runtime/cuda/LibraryFile.h"

#include <dlfcn.h>

namespace tcc::cuda {

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

Expected<BlasLibrary> BlasLibrary::open(int driverVersion) {
  // A library of a later CUDA opens, but does not start.
  std::vector<std::string> names = {"libcublasLt.so.12"};
  const bool later = driverVersion >= 13000;
  if (later)
    names.insert(names.begin(), "libcublasLt.so.13");
  std::string reasons;
  void *handle = openLibrary(names, reasons);
  if (!handle)
    return error(
        "the plan's products run on cuBLASLt, which the loader does not open ({}); install libcublas of NVIDIA's "
        "CUDA {} packages, or pip install {} into the active environment, or put the folder of its {} into "
        "LD_LIBRARY_PATH",
        reasons, later ? 13 : 12, later ? "nvidia-cublas" : "nvidia-cublas-cu12", names.front());
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

//===- NcclLibrary.cpp - NCCL, opened at run time ------------------------===//
#include "runtime/cuda/NcclLibrary.h"
#include "runtime/cuda/LibraryFile.h"

#include <dlfcn.h>

namespace tcc::cuda {

namespace {
const std::string kLibrary = "libnccl.so.2";

/// The first version that is made for CUDA 12.
constexpr int kLeastVersion = 21600;

std::string textOf(int number) { return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100); }
} // namespace

std::string NcclLibrary::version() const { return textOf(number); }

Status NcclLibrary::check(api::ncclResult_t result, const char *what) const {
  if (result == api::ncclSuccess)
    return Status();
  const char *text = entryPoints.getErrorString(result), *more = entryPoints.getLastError(nullptr);
  std::string told = more ? more : "";
  while (!told.empty() && (told.back() == '\n' || told.back() == ' '))
    told.pop_back();
  return error("{}: {}{}{} (NCCL {})", what, text ? text : fmt::format("result {}", static_cast<int>(result)),
               told.empty() ? "" : ": ", told, version());
}

Expected<NcclLibrary> NcclLibrary::open() {
  std::string reasons;
  void *handle = openLibrary({&kLibrary, 1}, reasons);
  if (!handle)
    return error("several ranks on CUDA cards communicate by NCCL, which the loader does not open ({}); install "
                 "NVIDIA's package libnccl2, or pip install nvidia-nccl-cu13 into the active environment, or put the "
                 "folder of its {} into LD_LIBRARY_PATH",
                 reasons, kLibrary);
  NcclLibrary library;
  const char *missing = nullptr;
  auto find = [&](auto &member, const char *symbol) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(::dlsym(handle, symbol));
    if (!member && !missing)
      missing = symbol;
  };
#define TCC_NCCL_FIND(member, symbol, parameters) find(library.entryPoints.member, #symbol);
  TCC_NCCL_ENTRY_POINTS(TCC_NCCL_FIND)
#undef TCC_NCCL_FIND
  find(library.entryPoints.getErrorString, "ncclGetErrorString");
  find(library.entryPoints.getLastError, "ncclGetLastError");
  if (library.entryPoints.getVersion)
    (void)library.entryPoints.getVersion(&library.number);
  if (missing || library.number < kLeastVersion)
    return error("{} {}{} is too old; install NCCL {} or later", kLibrary, textOf(library.number),
                 missing ? fmt::format(" has no {}: it", missing) : "", textOf(kLeastVersion));
  return library;
}

} // namespace tcc::cuda

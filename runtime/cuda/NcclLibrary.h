//===- NcclLibrary.h - NCCL, opened at run time --------------------------===//
#ifndef TCC_RUNTIME_CUDA_NCCLLIBRARY_H
#define TCC_RUNTIME_CUDA_NCCLLIBRARY_H

#include "runtime/cuda/api/Nccl.h"
#include "support/Status.h"

#include <string>

namespace tcc::cuda {

/// libnccl.so.2 with every entry point that we call. The program does not link it: one rank runs without it.
class NcclLibrary {
public:
  /// Error: no library (the message names its package), a missing entry point, or a version from before CUDA 12. It
  /// stays open until the process ends.
  static Expected<NcclLibrary> open();

  const api::Nccl *operator->() const { return &entryPoints; }

  /// "2.30.7".
  std::string version() const;

  /// An error that names the failed call, the library's text for the result and its message about the latest error;
  /// success for success.
  Status check(api::ncclResult_t result, const char *what) const;

private:
  api::Nccl entryPoints;
  int number = 0;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_NCCLLIBRARY_H

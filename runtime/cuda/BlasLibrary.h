//===- BlasLibrary.h - cuBLASLt, opened at run time ----------------------===//
#ifndef TCC_RUNTIME_CUDA_BLASLIBRARY_H
#define TCC_RUNTIME_CUDA_BLASLIBRARY_H

#include "runtime/cuda/api/BlasLt.h"
#include "support/Status.h"

#include <string>

namespace tcc::cuda {

/// libcublasLt.so.13 or .12 with every entry point that we call. The program does not link it: plans without products
/// also run on machines without it.
class BlasLibrary {
public:
  /// Error: no library (the message names its package), or a missing entry point. It stays open until the process ends.
  static Expected<BlasLibrary> open(int driverVersion);

  const api::BlasLt *operator->() const { return &entryPoints; }

  /// "13.1.0".
  std::string version() const;

  /// An error that names the failed call and the library's text of the status; success for success.
  Status check(api::cublasStatus_t status, const char *what) const;

private:
  api::BlasLt entryPoints;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_BLASLIBRARY_H

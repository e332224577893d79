//===- LibraryFile.h - opens the libraries of NVIDIA -----------*- C++ -*-===//
#ifndef TCC_RUNTIME_CUDA_LIBRARYFILE_H
#define TCC_RUNTIME_CUDA_LIBRARYFILE_H

#include <span>
#include <string>
#include <vector>

namespace tcc::cuda {

/// Opens the first of these shared libraries that the loader finds, or that pip has installed (nvidia-cublas and other
/// packages) beside this program's package or in the active virtual environment. Null: there is none; `reasons` says
/// what the loader said of each. It stays open until the process ends.
void *openLibrary(std::span<const std::string> names, std::string &reasons);

/// The folders `nvidia/*/lib` of a Python environment's packages: `own` is the path of this program or library,
/// `environment` the value of VIRTUAL_ENV.
std::vector<std::string> pipFolders(const std::string &own, const std::string &environment);

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_LIBRARYFILE_H

//===- LibraryVersion.h - the version of oneDNN at build time ---*- C++ -*-===//
#ifndef TCC_RUNTIME_CPU_CALLS_LIBRARYVERSION_H
#define TCC_RUNTIME_CPU_CALLS_LIBRARYVERSION_H

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl_version.h>
#include <string>

namespace tcc::runtime {

/// "oneDNN 2.6.3", for Plan.library: the version that this program was built against; does not call the library.
inline std::string builtLibrary() {
  return fmt::format("oneDNN {}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
}

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLS_LIBRARYVERSION_H

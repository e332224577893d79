//===- ProcessMemory.h - memory of trun beside the arenas -------*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_PROCESSMEMORY_H
#define TCC_TOOLS_TCC_PROCESSMEMORY_H

#include <cstdint>
#include <optional>
#include <string>

namespace tcc::report {

/// Resident bytes of a `trun` with the plan loaded and its arenas untouched.
struct ProcessMemory {
  uint64_t processBytes = 0; ///< before the plan is opened: the program and its shared libraries
  uint64_t hostBytes = 0;    ///< the plan as objects, code of kernels, threads
  uint64_t libraryBytes = 0; ///< the library's primitives, their code, its pages in use
};

/// Runs `trun memory` of the trun beside this program. Nothing without it, or if this machine cannot load the plan.
std::optional<ProcessMemory> measureProcess(const std::string &planPath, const std::string &target, uint32_t variant);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_PROCESSMEMORY_H

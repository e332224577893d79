//===- Library.h - version and machine level of oneDNN --------------------===//
//
// Each primitive is made and executed with one OpenMP thread; our pool distributes the tiles, so the library never sees
// the number of threads.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_LIBRARY_H
#define TCC_RUNTIME_CPU_LIBRARY_H

#include "runtime/cpu/calls/CpuLevel.h"
#include "support/Status.h"

#include <string>

namespace tcc::runtime {

/// "oneDNN 2.6.3", for Plan.library.
std::string libraryName();

/// Restricts the library to one machine level until the process ends, overriding the environment. Must precede the
/// first primitive; `prepare` calls it for calls that run on the library, so plans without any may be for other levels.
/// Error: a second call with another level, or a level that this machine lacks.
Status selectLevel(const std::string &target);

/// Error: this machine lacks the level, or there is no such level; the message says which to compile for.
Status checkLevel(const std::string &target);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_LIBRARY_H

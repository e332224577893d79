//===- Library.h - which oneDNN, on which machine level -------------------===//
//
// Each primitive is made and executed with one OpenMP thread; our pool hands out the tiles, so the number of threads
// never reaches the library.
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

/// Holds the library to one machine level for the life of the process, against what the environment says. Must come
/// before the first primitive; a second call with the same level is fine, with another one an error, as is a level that
/// this machine lacks.
Status selectLevel(const std::string &target);

/// Error: this machine lacks the level, or there is no such level; says which to compile for.
Status checkLevel(const std::string &target);

/// The level that selectLevel() chose; the lowest one before that.
CpuLevel selectedLevel();

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_LIBRARY_H

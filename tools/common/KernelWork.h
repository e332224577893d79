//===- KernelWork.h - instructions that kernels of a card execute -*- C++ -*-===//
//
// Counts the machine instructions that a kernel executes, by its PTX. A jump backwards closes a loop. Each instruction
// of PTX counts as what the assembler is expected to make of it: a 64-bit addition as two, a constant as none. Code for
// rare operands of a division counts as not executed.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_COMMON_KERNELWORK_H
#define TCC_TOOLS_COMMON_KERNELWORK_H

#include "runtime/plan/PlanFile.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::report {

/// What one thread executes in a piece of code.
struct ThreadWork {
  double instructions = 0;   ///< of the machine
  double approximations = 0; ///< of these, those of the unit for 2^x, 1/x and roots
  double bytes = 0;          ///< of global memory, read and written
};

struct KernelWork {
  ThreadWork tile;               ///< for each tile, without inner loops
  std::vector<ThreadWork> loops; ///< one iteration of each innermost loop
  bool shuffles = false;         ///< threads exchange values: the kernel reduces rows
};

/// By kernel's symbol.
using KernelWorks = std::map<std::string, KernelWork, std::less<>>;

/// Of all kernels in a PTX text.
KernelWorks countWork(std::string_view ptx);

/// Of all kernels of a plan that are PTX.
KernelWorks countWork(const plan::PlanReader &reader);

/// Of a launch: `tiles` tiles of `tileThreads` threads, in instructions of warps. The number of iterations of inner
/// loops follows from the bytes that the launch reads and writes, if each loop passes over equally many elements.
ThreadWork launchWork(const KernelWork &kernel, double tiles, double tileThreads, double bytes);

} // namespace tcc::report

#endif // TCC_TOOLS_COMMON_KERNELWORK_H

//===- MachineMemory.h - memory this process uses and may use ---*- C++ -*-===//
#ifndef TCC_RUNTIME_CPU_MACHINEMEMORY_H
#define TCC_RUNTIME_CPU_MACHINEMEMORY_H

#include <cstdint>

namespace tcc::runtime {

/// Bytes of the machine's memory, or of the control group's limit where that is lower; 0 where nothing is known.
uint64_t machineMemoryBytes();

/// Bytes that could be allocated now without swapping: what the kernel calls available, within the control group's
/// limit.
uint64_t freeMemoryBytes();

/// Bytes of this process that lie in memory now; 0 where the system does not tell.
uint64_t processMemoryBytes();

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_MACHINEMEMORY_H

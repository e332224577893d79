//===- Targets.cpp - the targets of this program --------------------------===//
#include "compiler/target/registry/Targets.h"

#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cuda/CudaTarget.h"

void tcc::target::registerTargets() {
  registerTarget(cpu::cpuKind());
  registerTarget(cuda::cudaKind());
}

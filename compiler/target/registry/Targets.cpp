//===- Targets.cpp - the targets of this program --------------------------===//
#include "compiler/target/registry/Targets.h"

#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cpu/passes/CpuPasses.h"
#include "compiler/target/cuda/CudaTarget.h"
#include "compiler/target/cuda/passes/CudaPasses.h"

void tcc::target::registerTargets() {
  registerTarget(cpu::cpuKind());
  registerTarget(cuda::cudaKind());
  train::registerTccCpuPasses();
  train::registerTccCudaPasses();
}

//===- CudaModel.cpp - architectures, grids and rates ---------------------===//
#include "compiler/target/cuda/CudaModel.h"

#include "runtime/plan/KernelAbi.h"

namespace tcc::target::cuda {

CodeModel codeOf(const Architecture &architecture, const CudaModel &model) {
  CodeModel code;
  code.processor = architecture.name;
  code.features = "+ptx" + std::to_string(architecture.ptx);
  code.vectorLanes = plan::kWarpThreads;
  code.lanes = Lanes::Warps;
  code.triple = "nvptx64-nvidia-cuda";
  code.grid = model.grid;
  return code;
}

} // namespace tcc::target::cuda

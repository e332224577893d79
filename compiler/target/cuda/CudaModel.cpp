//===- CudaModel.cpp - architectures, grids and rates ---------------------===//
#include "compiler/target/cuda/CudaModel.h"

#include "compiler/dialect/Element.h"
#include "runtime/plan/KernelAbi.h"

namespace tcc::target::cuda {

static_assert(plan::kWarpThreads == train::kGroupThreads, "a warp is a lane group");

CodeModel codeOf(const Architecture &architecture, const CudaModel &model) {
  CodeModel code;
  code.processor = architecture.name;
  code.features = "+ptx" + std::to_string(architecture.ptx);
  code.vectorLanes = plan::kWarpThreads;
  code.lanes = Lanes::Threads;
  code.triple = "nvptx64-nvidia-cuda";
  code.format = plan::CodeObject::PTX;
  code.grid = model.grid;
  return code;
}

} // namespace tcc::target::cuda

//===- Ptxas.h - NVIDIA's assembler, where it is installed ---------------===//
//
// A plan for a CUDA card holds PTX, which the card's driver compiles. Where NVIDIA's ptxas is present when the plan is
// made, the plan also holds the machine code, and its first load needs no compilation. ptxas comes with the CUDA
// toolkit, or alone from PyPI (nvidia-cuda-nvcc).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_PTXAS_H
#define TCC_SUPPORT_PTXAS_H

#include "support/Status.h"

#include <optional>
#include <string>

namespace tcc {

struct Ptxas {
  std::string path;
  std::string version; ///< "ptxas 13.0.88": the same version gives the same code

  /// The first that runs: on PATH, in $CUDA_HOME/bin (/usr/local/cuda/bin where that is not set), or PyPI's package in
  /// $VIRTUAL_ENV or beside the python3 on PATH.
  static std::optional<Ptxas> find();

  /// The machine code of a PTX text for one architecture, "sm_90". Error: what ptxas says.
  Expected<std::string> assemble(const std::string &ptx, const std::string &architecture) const;
};

} // namespace tcc

#endif // TCC_SUPPORT_PTXAS_H

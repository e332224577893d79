//===- PtxText.h - one PTX text of several ----------------------*- C++ -*-===//
#ifndef TCC_CODEGEN_PTXTEXT_H
#define TCC_CODEGEN_PTXTEXT_H

#include "support/Status.h"

#include <string>
#include <vector>

namespace tcc::codegen {

/// Texts of LLVM's NVPTX back end as one: one header, all their entries, no comments and no empty lines. Error: texts
/// with other headers than the first, a symbol that the text does not define (kernels call nothing).
Expected<std::string> joinPtx(const std::vector<std::string> &texts);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_PTXTEXT_H

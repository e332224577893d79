//===- PtxText.h - join several PTX texts -----------------------*- C++ -*-===//
#ifndef TCC_CODEGEN_PTXTEXT_H
#define TCC_CODEGEN_PTXTEXT_H

#include "support/Status.h"

#include <string>
#include <vector>

namespace tcc::codegen {

/// Joins texts of LLVM's NVPTX back end into one: one header, all entries, no comments and no empty lines. Error:
/// headers that differ from the first, an undefined symbol (kernels call nothing).
Expected<std::string> joinPtx(const std::vector<std::string> &texts);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_PTXTEXT_H

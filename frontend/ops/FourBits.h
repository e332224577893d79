//===- FourBits.h - tensors that the file stores in 4 bits ------*- C++ -*-===//
#ifndef TCC_FRONTEND_OPS_FOURBITS_H
#define TCC_FRONTEND_OPS_FOURBITS_H

#include "frontend/NodeImport.h"

namespace tcc::frontend {

/// DequantizeLinear of a tensor in INT4 or UINT4: per tensor, per axis, or in blocks along an axis.
Status dequantizeFourBits(NodeImport &n);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_OPS_FOURBITS_H

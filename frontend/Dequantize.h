//===- Dequantize.h - rewrite a quantised model in floats -------*- C++ -*-===//
//
// `tcc --dequantize`: 8-bit weights become floating-point parameters (q − zero point)·scale, and ops on quantised
// tensors become their floating-point counterparts. Activations are no longer rounded, but are clipped to the range of
// their 8-bit type, since quantisers fold Relu and Clip into it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_DEQUANTIZE_H
#define TCC_FRONTEND_DEQUANTIZE_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// True for ops that --dequantize rewrites.
bool isDequantized(const std::string &domain, const std::string &op);

/// Rewrites nodes and initializers of the file. Returns warnings. Error: lists all nodes without a floating-point
/// counterpart.
Expected<std::vector<std::string>> dequantize(OnnxFile &file);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_DEQUANTIZE_H

//===- Dequantize.h - a quantised model as a floating-point one -*- C++ -*-===//
//
// `tcc --dequantize`: 8-bit weights become floating-point parameters (q − zero point)·scale, and ops on quantised
// tensors the ops that they stand for. Activations are not rounded any more, but stay within the range that their 8
// bits had: a quantiser folds Relu and Clip into it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_DEQUANTIZE_H
#define TCC_FRONTEND_DEQUANTIZE_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// True for ops that --dequantize rewrites.
bool isDequantized(const std::string &domain, const std::string &op);

/// Rewrites nodes and initializers of the file. Returns warnings. Error: all nodes that have no floating-point meaning
/// here.
Expected<std::vector<std::string>> dequantize(OnnxFile &file);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_DEQUANTIZE_H

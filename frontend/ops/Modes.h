//===- Modes.h - dropout for other importers --------------------*- C++ -*-===//
#ifndef TCC_FRONTEND_OPS_MODES_H
#define TCC_FRONTEND_OPS_MODES_H

#include "frontend/NodeImport.h"

namespace tcc::frontend {

/// The weights of attention as torch's scaled_dot_product_attention drops them: the exporter leaves its `dropout_p` out
/// of the ops, and the note of the call still has it.
mlir::Value droppedWeights(NodeImport &n, mlir::Value weights);

/// Of a division: a dropout whose mask is drawn for itself, (uniform < q) ÷ q, as Dropout2d and stochastic depth are
/// exported. Its factor, which is 1 in inference; null where the division is none.
mlir::Value drawnDropout(NodeImport &n);

/// torch's spectral_norm in train() mode (Miyato et al., arXiv:1802.05957): one power iteration a forward pass, without
/// a gradient, from a vector that it then replaces. The exporter keeps the iteration and loses the rest.
/// Stops the gradient of a copy of an iterated vector.
mlir::Value stoppedIterate(NodeImport &n);
/// Of a product: reads the kept vector anew, and writes its next value where that is an operand.
void keepIterate(NodeImport &n);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_OPS_MODES_H

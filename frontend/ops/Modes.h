//===- Modes.h - dropout for other importers --------------------*- C++ -*-===//
#ifndef TCC_FRONTEND_OPS_MODES_H
#define TCC_FRONTEND_OPS_MODES_H

#include "frontend/NodeImport.h"

namespace tcc::frontend {

/// Attention weights with the dropout of torch's scaled_dot_product_attention: the exporter omits `dropout_p` from the
/// ops, but the note of the call has it.
mlir::Value droppedWeights(NodeImport &n, mlir::Value weights);

/// Recognises a division (uniform < q) ÷ q as the factor of a dropout with a separate mask, as Dropout2d and stochastic
/// depth are exported. Returns the factor, which is 1 in inference; null for other divisions.
mlir::Value drawnDropout(NodeImport &n);

/// torch's spectral_norm in train() mode (Miyato et al., arXiv:1802.05957) does one power iteration per forward pass,
/// without a gradient, from a vector that the result then replaces. The exporter keeps only the iteration.
/// stoppedIterate stops the gradient of a copy of the iterated vector.
mlir::Value stoppedIterate(NodeImport &n);
/// For a product: reads the kept vector again, and writes its next value if that is an operand.
void keepIterate(NodeImport &n);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_OPS_MODES_H

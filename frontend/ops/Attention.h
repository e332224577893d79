//===- Attention.h - scaled dot-product attention for importers -*- C++ -*-===//
//
// The common part of the standard's Attention and the contributed ops: split heads, multiply queries by keys, apply
// masks (which keys a query sees) and softmax, multiply by the values. Keys and values of fewer heads are shared by
// groups of query heads without being repeated: the queries of a group are rows of one product.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_OPS_ATTENTION_H
#define TCC_FRONTEND_OPS_ATTENTION_H

#include "frontend/NodeImport.h"

namespace tcc::frontend {

/// Queries [B, H, L, D] and keys [B, G, S, D], values [B, G, S, E]; H is a multiple of G.
struct AttentionInputs {
  mlir::Value query, key, value;
  double scale = 0;
  double softcap = 0;
  llvm::SmallVector<mlir::Value> bias;    ///< added to the scores [B, H, L, S]; each broadcasts to them
  llvm::SmallVector<mlir::Value> allowed; ///< i1, broadcast likewise: keys that a query sees
  bool rowsMayBeEmpty = false;            ///< a query may see no key; its result is then zeros
  mlir::Type softmaxType;                 ///< null: that of the scores
};
struct AttentionOutputs {
  mlir::Value result, raw, capped, biased, probabilities; ///< scores after each stage
};
Expected<AttentionOutputs> attend(NodeImport &n, const AttentionInputs &in);

/// [B, L, heads·D] → [B, heads, L, D], and back.
Expected<mlir::Value> splitHeads(NodeImport &n, mlir::Value x, int64_t heads);
mlir::Value joinHeads(NodeImport &n, mlir::Value x);
/// x and y one after the other along `dim`.
Expected<mlir::Value> concatenated(NodeImport &n, mlir::Value x, mlir::Value y, int64_t dim);
/// Rotates the first `dim` features of x [B, H, L, D] by angles whose cosines and sines are [B or 1, L, dim/2].
Expected<mlir::Value> rotated(NodeImport &n, mlir::Value x, mlir::Value cosine, mlir::Value sine, int64_t dim,
                                    bool interleaved);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_OPS_ATTENTION_H

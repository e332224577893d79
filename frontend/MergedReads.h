//===- MergedReads.h - which equal weight each node reads -------*- C++ -*-===//
//
// torch's newer exporter stores equal tensors once, even if they are unrelated: two scales that start as ones and a
// mask of ones, or a literal 0.5 of the model's code and a gate that starts at 0.5. A node keeps the note of the call
// that it was exported from, which names its arguments: "mul(%x, %p_block_gamma_2)". So the note of each reader names
// the tensor that it reads. Tied weights are not affected: torch.export has one value for a parameter that two modules
// share.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_MERGEDREADS_H
#define TCC_FRONTEND_MERGEDREADS_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// An input of a node whose note names another tensor than the initializer.
struct MergedRead {
  int node = 0, input = 0;
  std::string state;    ///< the part of the module's state that it is, or empty
  std::string computed; ///< a computed value of torch's graph, "exp"; if both are empty, it is a constant of the code
};

/// A parameter that a call names but none of its nodes reads.
struct DroppedParameter {
  enum Why {
    Zero,   ///< a bias of zeros, which changes nothing as long as it is not trained
    Folded, ///< part of a normalisation that was folded into the layer before it
    Merged, ///< two calls with equal weights became one
  };
  std::string name;
  std::string node;
  Why why = Zero;
};

struct MergedReads {
  std::vector<MergedRead> reads;
  std::vector<DroppedParameter> dropped;
  std::vector<std::string> lost; ///< parameters that the file does not mention: unused, or merged with others
};

/// Reads the notes of the main graph's nodes; empty if there are none. Errors: bytes that cannot be read.
Expected<MergedReads> mergedReads(const OnnxFile &file);

/// True if a note tells which tensors the node reads.
bool isNoted(const OnnxFile &file, const onnx::NodeProto &node);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_MERGEDREADS_H

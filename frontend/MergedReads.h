//===- MergedReads.h - which equal weight each node reads -------*- C++ -*-===//
//
// torch's newer exporter stores equal tensors once, whatever they mean: two scales that start as ones, a mask of ones, the
// 0.5 of the model's code and a gate that starts at 0.5. A node keeps the note of the call that it was made of, and that
// call names its arguments: "mul(%x, %p_block_gamma_2)". So each reader says which of them it reads. A tie is another
// thing: torch.export has one value for a parameter that two modules share, whichever of them reads it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_MERGEDREADS_H
#define TCC_FRONTEND_MERGEDREADS_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// An input of a node that is not what its initializer is called.
struct MergedRead {
  int node = 0, input = 0;
  std::string state;    ///< the part of the module's state that it is; else
  std::string computed; ///< the value of torch's graph, of which nothing else is known: "exp"; else a constant of the code
};

/// A parameter that a call names and none of its nodes reads.
struct DroppedParameter {
  enum Why {
    Zero,   ///< a bias of zeros, which changes nothing as long as it is not trained
    Folded, ///< part of a normalisation that became part of the layer before
    Merged, ///< two calls with equal weights became one
  };
  std::string name;
  std::string node;
  Why why = Zero;
};

struct MergedReads {
  std::vector<MergedRead> reads;
  std::vector<DroppedParameter> dropped;
  std::vector<std::string> lost; ///< parameters that nothing in the file mentions: unused, or merged with others
};

/// By the notes of the main graph's nodes; nothing where there are none. Errors: bytes that cannot be read.
Expected<MergedReads> mergedReads(const OnnxFile &file);

/// Do notes say what this node reads?
bool isNoted(const OnnxFile &file, const onnx::NodeProto &node);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_MERGEDREADS_H

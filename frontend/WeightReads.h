//===- WeightReads.h - the nodes that read each initializer -----*- C++ -*-===//
//
// A weight is recognised by its readers: a convolution, a product, a norm. Ops that only move elements (Identity,
// Reshape, Slice, a Concat of weights …) may be in between.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_WEIGHTREADS_H
#define TCC_FRONTEND_WEIGHTREADS_H

#include "frontend/OnnxFile.h"

#include <functional>

namespace tcc::frontend {

enum class InputUse {
  Value,
  WhenCompiling, ///< the importer reads it at compile time, so that it is no weight, whatever its type
  Steps,         ///< scales or zero points of quantised values: no weight either
  FourBits       ///< a weight whose bytes hold two elements each
};
/// What the importer of a node makes of one of its inputs.
using UseOfInput = std::function<InputUse(const onnx::NodeProto &node, int input)>;

/// The uses of one initializer by all of its readers.
struct WeightReads {
  std::string node;              ///< a reader
  std::vector<std::string> uses; ///< "bias", "norm", "embedding"
  bool weight = false;           ///< the weight of a product, convolution, norm, embedding or recurrent layer
  bool bias = false;             ///< a vector added to the result of a product or convolution, or to a scaled norm
  bool scale = false;            ///< multiplied, or divided by
  bool normScale = false;        ///< a vector that multiplies a value normalised by separate ops
  bool other = false;            ///< read by an op other than an elementwise product, quotient or power
  bool number = false;           ///< read at compile time, or as steps
  bool steps = false;            ///< scales or zero points of quantised values
  bool fourBits = false;         ///< a weight whose bytes hold two elements each
  bool recurrent = false, state = false; ///< a recurrent layer's weight; its initial state
  bool statistic = false;        ///< a BatchNormalization's mean or variance
  bool epsilon = false;          ///< added to the argument of a root or a logarithm
  std::string reader;            ///< the input that reads it at compile time or as steps, for messages
};

/// True for ops whose result consists of elements of their first input.
bool movesElements(const std::string &op);

/// The reads of all initializers of a prepared graph, by name.
std::map<std::string, WeightReads> weightReads(const OnnxFile &file, const onnx::GraphProto &graph,
                                               const UseOfInput &useOfInput);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_WEIGHTREADS_H

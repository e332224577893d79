//===- InnerWeights.h - weights in Constant nodes, branches and functions --*- C++ -*-===//
//
// Paddle's and spox's exporters write weights as Constant nodes, and graphs inside nodes have initializers of their own.
// Their tensors enter the table of initializers, under the name of the value that they make, so that one set of signs decides
// which of them are trained. A note at each tensor says which entry it is; the export writes trained values back there.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_INNERWEIGHTS_H
#define TCC_FRONTEND_INNERWEIGHTS_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// Moves the floating-point tensors of rank 1 and more that Constant nodes and inner graphs hold into
/// `file.initializers`, those of functions included, and notes their names at the remaining tensors: type, shape, and a
/// placeholder for the bytes. Two tensors of one name are told apart by the names of their nodes or functions. Errors: a tensor whose bytes do not
/// fit its shape.
Status takeInnerWeights(OnnxFile &file);

/// Makes scalars of the noted tensors, whose bytes then suffice for the ONNX checker.
void makeInnerWeightsScalars(onnx::ModelProto &model);

/// Turns the noted tensors of a prepared graph into Identity nodes that read the initializers.
void readInnerWeights(onnx::GraphProto &graph);
void readInnerWeights(onnx::FunctionProto &function);

/// Gives the noted tensors of a model their bytes again. Those of `variables` stay empty above `smallBytes`, and keep the
/// note alone. Errors: bytes that cannot be read.
Status restoreInnerWeights(const OnnxFile &file, const std::set<std::string> &variables, uint64_t smallBytes,
                                 onnx::ModelProto &model);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_INNERWEIGHTS_H

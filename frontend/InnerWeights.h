//===- InnerWeights.h - weights in Constant nodes, branches and functions --*- C++ -*-===//
//
// Paddle's and spox's exporters write weights as Constant nodes, and graphs inside nodes have initializers of their
// own. These tensors enter the table of initializers under the name of the value that they define, so that the same
// rules decide which of them are trained. A note at each tensor names its entry; the export writes trained values back
// there.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_INNERWEIGHTS_H
#define TCC_FRONTEND_INNERWEIGHTS_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// Moves the floating-point tensors of rank 1 and more in Constant nodes and inner graphs, those of functions included,
/// into `file.initializers`. In their places remain tensors with a type, a shape, a placeholder for the bytes, and a
/// note of the name. Tensors of equal names are told apart by the names of their nodes or functions. Errors: a tensor
/// whose bytes do not fit its shape.
Status takeInnerWeights(OnnxFile &file);

/// Makes the noted tensors scalars, so that their placeholder bytes satisfy the ONNX checker.
void makeInnerWeightsScalars(onnx::ModelProto &model);

/// Turns the noted tensors of a prepared graph into Identity nodes that read the initializers.
void readInnerWeights(onnx::GraphProto &graph);
void readInnerWeights(onnx::FunctionProto &function);

/// Gives the noted tensors of a model their bytes again. Those of `variables` above `smallBytes` stay empty and keep
/// only the note. Errors: bytes that cannot be read.
Status restoreInnerWeights(const OnnxFile &file, const std::set<std::string> &variables, uint64_t smallBytes,
                                 onnx::ModelProto &model);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_INNERWEIGHTS_H

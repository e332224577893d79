//===- FunctionExpansion.h - the size of a model after inlining --*- C++ -*-===//
//
// Functions that call functions twice each double the model with every level. The size after inlining is counted before
// anything is inlined, each function once.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_FUNCTIONEXPANSION_H
#define TCC_FRONTEND_FUNCTIONEXPANSION_H

#include "support/Status.h"

#include <onnx/onnx_pb.h>

namespace tcc::frontend {

/// Errors: functions that call themselves, are nested deeper than kDeepestNesting, or make more than kMostNodes nodes or
/// kMostInlinedBytes bytes of the model.
Status checkFunctionExpansion(const std::string &path, const onnx::ModelProto &model);

/// Adds the default attributes that calls of the model's functions omit, in the graph and in functions.
void addFunctionDefaults(onnx::ModelProto &model);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_FUNCTIONEXPANSION_H

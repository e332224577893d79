//===- WeightNames.h - classify an initializer by its name ------*- C++ -*-===//
#ifndef TCC_FRONTEND_WEIGHTNAMES_H
#define TCC_FRONTEND_WEIGHTNAMES_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// "val_12", "onnx::MatMul_7", "7": names that exporters invent for constants.
bool isInventedName(const std::string &name);

/// "stft.forward_basis_buffer", "bn.running_mean": the name says that it is no weight.
bool isBufferName(const std::string &name);

/// "blocks.0.gate": the path of a module's member.
bool hasModuleName(const std::string &name);

/// "conv2d_0.w_0", "fc/bias", "dense/BiasAdd/ReadVariableOp": the name says that it is a weight, of `count` elements.
bool isParameterName(const std::string &name, uint64_t count);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_WEIGHTNAMES_H

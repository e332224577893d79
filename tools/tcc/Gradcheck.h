//===- Gradcheck.h - a model's gradients against finite differences -*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_GRADCHECK_H
#define TCC_TOOLS_TCC_GRADCHECK_H

#include "compiler/driver/CompileModel.h"
#include "tools/tcc/GradientCheck.h"
#include "tools/tcc/InputRanges.h"

#include <map>

namespace tcc::gradcheck {

struct ModelSettings {
  Settings check;
  std::string data;                    ///< .safetensors with a tensor for each input; empty: random inputs
  std::vector<std::string> parameters; ///< globs; empty: all
};

struct ModelResults {
  double loss = 0;
  std::vector<ParameterResult> parameters;
  std::vector<std::string> notes;
  plan::Plan plan; ///< of the f64 program; decisions.unused_parameters lists parameters without a gradient, and why
};

/// Compiles the gradients of a model in f64, runs them on the CPU, and checks each of them. Errors: the model or
/// recipe is at fault, the data does not fit, the loss is not finite.
Expected<ModelResults> checkModel(mlir::MLIRContext &context, CompileOptions options,
                                        const ModelSettings &settings);

} // namespace tcc::gradcheck

#endif // TCC_TOOLS_TCC_GRADCHECK_H

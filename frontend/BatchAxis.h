//===- BatchAxis.h - the axis along which an input holds samples --*- C++ -*-===//
#ifndef TCC_FRONTEND_BATCHAXIS_H
#define TCC_FRONTEND_BATCHAXIS_H

#include "compiler/recipe/Recipe.h"
#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// The axis called batch in the model as it was exported, else 0; −1 for a scalar, which is a constant.
int64_t sampleAxis(const onnx::ValueInfoProto &input, size_t rank);

/// A graph input with an axis of samples.
struct SampledInput {
  std::string name;
  std::vector<int64_t> dims; ///< 0: symbolic
  int64_t axis = 0;          ///< of the samples
  std::string symbol;        ///< exported name of that axis; empty if its extent is a number
};

/// The inputs of a model that have an axis of samples; `batchAxis` is data.batch_axis. Errors: as readOnnxFile.
Expected<std::vector<SampledInput>> sampledInputs(const std::string &path,
                                                        const std::map<std::string, int64_t> &batchAxis,
                                                        const std::map<std::string, FixedValue> &fixed);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_BATCHAXIS_H

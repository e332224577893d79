//===- BatchConstants.h - constants that hold a batch -----------*- C++ -*-===//
//
// A static export has its batch in constants, too: in a Reshape's target, in a token that is concatenated. Such a graph
// cannot take another batch, whatever shapes its inputs get.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_BATCHCONSTANTS_H
#define TCC_FRONTEND_BATCHCONSTANTS_H

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <vector>

namespace tcc::frontend {

/// A tensor's declared dimensions; -1 where one is symbolic or missing.
std::vector<int64_t> dimsOf(const onnx::ValueInfoProto &value);

/// The constants that hold the batch of a static export whose inputs get other first dimensions, one line each with
/// their node. `model`: initializers shown, functions inlined, shapes as exported.
std::vector<std::string> bakedConstants(const onnx::ModelProto &model,
                                        const std::map<std::string, std::vector<int64_t>> &shapes);

/// Of a static export, the sample axis of each output: the one that grows with the batch, as far as the ONNX library
/// infers shapes. `axes`: those of the inputs that hold `batch` samples.
std::map<std::string, int64_t> sampledOutputs(const onnx::ModelProto &model, const std::map<std::string, int64_t> &axes,
                                              int64_t batch);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_BATCHCONSTANTS_H

//===- BatchConstants.h - constants that contain the batch size -*- C++ -*-===//
//
// A static export contains its batch size in constants, too: in a Reshape's target, or in a concatenated token that was
// repeated for each sample. Such a graph cannot take another batch size, even if its inputs get other shapes.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_BATCHCONSTANTS_H
#define TCC_FRONTEND_BATCHCONSTANTS_H

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <vector>

namespace tcc::frontend {

/// A tensor's declared dimensions; -1 for symbolic or missing ones.
std::vector<int64_t> dimsOf(const onnx::ValueInfoProto &value);

/// The constants that contain the batch size of a static export whose inputs get other first dimensions, one line each
/// with their node. `model`: initializers shown, functions inlined, shapes as exported.
std::vector<std::string> bakedConstants(const onnx::ModelProto &model,
                                        const std::map<std::string, std::vector<int64_t>> &shapes);

/// The sample axis of each output of a static export: the one that grows with the batch, as far as the ONNX library
/// infers shapes. `axes`: the sample axes of the inputs, which hold `batch` samples.
std::map<std::string, int64_t> sampledOutputs(const onnx::ModelProto &model, const std::map<std::string, int64_t> &axes,
                                              int64_t batch);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_BATCHCONSTANTS_H

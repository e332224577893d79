//===- BatchAxis.cpp - the axis along which inputs hold samples -----------===//
#include "frontend/BatchAxis.h"

#include "frontend/Dimensions.h"

#include <algorithm>

namespace tcc::frontend {

int64_t sampleAxis(const onnx::ValueInfoProto &input, size_t rank) {
  if (rank == 0)
    return -1;
  int64_t found = 0;
  bool exact = false, similar = false;
  int64_t axis = 0;
  for (const auto &dim : input.type().tensor_type().shape().dim()) {
    if (!exact && dim.dim_param() == "batch") {
      exact = true;
      found = axis;
    } else if (!exact && !similar && dim.dim_param().find("batch") != std::string::npos) {
      similar = true;
      found = axis;
    }
    ++axis;
  }
  return found;
}

Expected<std::vector<SampledInput>> sampledInputs(const std::string &path,
                                                        const std::map<std::string, int64_t> &batchAxis,
                                                        const std::map<std::string, FixedValue> &fixed) {
  Expected<OnnxFile> file = readOnnxFile(path);
  if (!file)
    return file.status();
  std::vector<SampledInput> inputs;
  for (const onnx::ValueInfoProto &input : file->model.graph().input()) {
    if (file->initializers.count(input.name()) || fixed.count(input.name()))
      continue;
    SampledInput sampled;
    sampled.name = input.name();
    const auto &shape = input.type().tensor_type().shape();
    for (const auto &dim : shape.dim())
      sampled.dims.push_back(std::max<int64_t>(0, dim.dim_value()));
    auto given = batchAxis.find(input.name());
    sampled.axis = given != batchAxis.end() ? given->second : sampleAxis(input, sampled.dims.size());
    if (sampled.axis < 0 || sampled.axis >= shape.dim_size())
      continue;
    sampled.symbol = shape.dim(int(sampled.axis)).dim_param();
    if (isPlaceholder(sampled.symbol))
      sampled.symbol.clear();
    inputs.push_back(std::move(sampled));
  }
  return inputs;
}

} // namespace tcc::frontend

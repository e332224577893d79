//===- Convolution.cpp - make a call from a convolution's descriptor ------===//
//
// A convolution is a product. The rows of its left operand are read from the source in place, or from a padded copy of
// the part that a tile reads; weights are packed into panels (calls/ConvolutionDesign.h). Depthwise convolutions have
// loops of their own.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/ConvolutionParts.h"

namespace tcc::runtime {

Expected<std::unique_ptr<LibraryCall>> prepare(const plan::ConvolutionCall &call, CpuLevel level,
                                               const Scratch &scratch, unsigned workers) {
  if (Status status = checkCall(call, level, scratch, workers); !status.ok())
    return status;
  auto design = ConvolutionDesign::create(call);
  if (!design)
    return design.status();
  if (design->depthwise)
    return convolution::makeDepthwise(design.take());
  if (design->byPlanes())
    return convolution::makeByPlanes(design.take());
  return call.kind() == plan::ConvolutionCall::WEIGHT_GRADIENT ? convolution::makeWeightGradient(design.take())
                                                               : convolution::makeCorrelation(design.take());
}

} // namespace tcc::runtime

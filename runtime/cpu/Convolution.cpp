//===- Convolution.cpp - where a convolution's descriptor becomes a call --===//
//
// A convolution is a product whose left rows lie in the source as they are, or in a padded copy of the part that a tile
// reads; weights lie in panels (calls/ConvolutionDesign.h). Channels that meet nobody else's, a depthwise convolution,
// have loops of their own.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/ConvolutionParts.h"

namespace tcc::runtime {

Expected<std::unique_ptr<LibraryCall>> prepare(const plan::ConvolutionCall &call, const Scratch &scratch,
                                               unsigned workers) {
  if (Status status = checkCall(call, scratch, workers); !status.ok())
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

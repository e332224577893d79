//===- Convolution.cpp - what a convolution's descriptor must satisfy ----===//
#include "runtime/cpu/calls/ConvolutionDesign.h"
#include "runtime/cpu/calls/Needs.h"

#include "runtime/plan/DType.h"

#include <fmt/ranges.h>

namespace tcc::runtime {

Status checkShape(const plan::ConvolutionCall &call) {
  plan::DType result = call.result_dtype() == plan::DTYPE_NONE ? call.dtype() : call.result_dtype();
  if ((call.dtype() != plan::F32 && call.dtype() != plan::BF16) ||
      (result != call.dtype() && (result != plan::F32 || call.kind() != plan::ConvolutionCall::WEIGHT_GRADIENT)))
    return error("no call convolves {} into {}: it must be compiled",
                 plan::dtypeName(call.dtype()), plan::dtypeName(result));
  int rank = call.x_dims_size(), spatial = rank - 2;
  if (rank < 3 || rank > 5 || call.w_dims_size() != rank || call.y_dims_size() != rank ||
      call.strides_size() != spatial || call.dilations_size() != spatial || call.pads_begin_size() != spatial ||
      call.pads_end_size() != spatial)
    return error("a convolution of 1 to 3 spatial dimensions needs operands of one rank; x has {}, w {}, y {}",
                       rank, call.w_dims_size(), call.y_dims_size());
  for (const auto *dims : {&call.x_dims(), &call.w_dims(), &call.y_dims()})
    for (int64_t dim : *dims)
      if (dim < 1 || dim >= (int64_t(1) << 31))
        return error("a convolution with a dimension of {} is not supported", dim);
  if (call.groups() < 1 || call.x_dims(1) != call.w_dims(1) * call.groups() || call.w_dims(0) % call.groups() != 0 ||
      call.y_dims(1) != call.w_dims(0) || call.y_dims(0) != call.x_dims(0))
    return error("batch or channels do not fit: x {}, w {}, y {}, groups {}", fmt::join(call.x_dims(), "x"),
                       fmt::join(call.w_dims(), "x"), fmt::join(call.y_dims(), "x"), call.groups());
  for (int i = 0; i < spatial; ++i)
    if (call.strides(i) < 1 || call.dilations(i) < 1 || call.pads_begin(i) < 0 || call.pads_end(i) < 0)
      return error("spatial axis {}: stride {}, dilation {}, pads {} and {} are not supported", i,
                         call.strides(i), call.dilations(i), call.pads_begin(i), call.pads_end(i));
  return Status::success();
}

Expected<CallNeeds> needsOf(const plan::ConvolutionCall &call) {
  auto design = ConvolutionDesign::create(call);
  if (!design)
    return design.status();
  if (call.partial_bytes() != design->partialBytes)
    return error("a convolution's partial sums of {} bytes: they take {}", call.partial_bytes(), design->partialBytes);
  CallNeeds needs;
  needs.scratchSlotBytes = design->slotBytes;
  needs.scratchSharedBytes = design->sharedBytes;
  needs.scratchSlots = static_cast<uint64_t>(design->tiles());
  needs.partialBytes = static_cast<uint64_t>(design->batchTiles()) * design->partialBytes;
  return needs;
}

} // namespace tcc::runtime

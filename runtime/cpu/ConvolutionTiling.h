//===- ConvolutionTiling.h - how a convolution is cut ----------*- C++ -*-===//
#ifndef TCC_RUNTIME_CPU_CONVOLUTIONTILING_H
#define TCC_RUNTIME_CPU_CONVOLUTIONTILING_H

#include "runtime/plan/plan.pb.h"

namespace tcc::runtime {

/// The product of the dimensions from `from` on.
int64_t product(const google::protobuf::RepeatedField<int64_t> &dims, int from);

/// Samples a tile, from the shape alone.
int64_t chooseTileBatch(const plan::ConvolutionCall &call);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CONVOLUTIONTILING_H

//===- LibraryOffer.h - what oneDNN takes for a call ------------*- C++ -*-===//
//
// The compiler's questions to the library, asked once a distinct call. The device asks nothing of the kind: it makes the
// primitives that a plan's descriptors describe.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_LIBRARYOFFER_H
#define TCC_RUNTIME_CPU_LIBRARYOFFER_H

#include "runtime/cpu/calls/CpuLevel.h"
#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include <cstdint>

namespace tcc::runtime {

/// Bytes that the primitives of a product whose tiles are decided take for themselves, at most, at one call.
Expected<uint64_t> libraryScratchBytes(const plan::MatmulCall &call, CpuLevel level);

/// Fills activations, layout, bounds of scratch and partial sums of a convolution whose tiles are decided. Returns the
/// bytes of activations that each call copies into the library's own layout, or back.
Expected<uint64_t> offerConvolution(plan::ConvolutionCall &call, CpuLevel level);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_LIBRARYOFFER_H

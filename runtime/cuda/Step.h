//===- Step.h - an instruction of a plan as work of a stream -------------===//
#ifndef TCC_RUNTIME_CUDA_STEP_H
#define TCC_RUNTIME_CUDA_STEP_H

#include "runtime/cuda/BlasProduct.h"
#include "runtime/cuda/Collective.h"
#include "runtime/cuda/DnnCall.h"
#include "runtime/cuda/DriverLibrary.h"
#include "runtime/cuda/SlicedProduct.h"

#include <array>
#include <optional>
#include <vector>

namespace tcc::cuda {

/// A kernel's launch, a product, convolution or attention by a library, a collective, or a copy or fill.
struct Step {
  const plan::Instruction *source = nullptr;
  bool takesTable = false; ///< kernels that share the launch take their pointers as one parameter
  std::optional<BlasProduct> product;
  std::optional<SlicedProduct> slices;
  std::optional<DnnCall> graph; ///< a convolution, or attention
  std::optional<Collective> collective;
  std::vector<api::CUdeviceptr> pointers;
  api::CUfunction kernel = nullptr;
  unsigned blocks = 0, threads = 0;
  int64_t tiles = 0;
  api::CUdeviceptr scratch = 0;
  uint64_t bytes = 0;             // of a copy, transfer or fill
  bool store = false;             // a transfer to the host
  std::array<std::byte, 8> value; // of a fill: an element's bytes
  size_t valueBytes = 0;
  std::vector<Step> kernels; ///< that compute a library's call, or finish the plain one, in the order of their launches
};

/// Adds the step's work to a stream, or to the graph that the stream captures. `ranks`: for collectives; null: a single
/// rank.
Status submit(const Step &step, const DriverLibrary &driver, api::CUstream stream, const CardRanks *ranks);

/// Sets the call of a step.
template <typename T> Status take(std::optional<T> &to, Expected<T> made) {
  if (made)
    to = made.take();
  return made.status();
}

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_STEP_H

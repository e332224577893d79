//===- SlicedProduct.h - a product whose slices go to a kernel --*- C++ -*-===//
//
// Computes a weight gradient in slices of rows: cuBLASLt writes a slice into scratch, and the kernel of the update
// reads it there. The stream orders the slices, which share the scratch.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_SLICEDPRODUCT_H
#define TCC_RUNTIME_CUDA_SLICEDPRODUCT_H

#include "runtime/cuda/BlasProduct.h"
#include "runtime/cuda/DriverLibrary.h"

#include <span>
#include <vector>

namespace tcc::cuda {

class Libraries;
class Modules;

class SlicedProduct {
public:
  /// `pointers`: A, B, then the kernel's operands after the rows. `scratch`: a slice, followed by the workspace.
  static Expected<SlicedProduct> make(const plan::Plan &plan, const plan::MatmulCall &call,
                                      std::span<const api::CUdeviceptr> pointers, api::CUdeviceptr scratch,
                                      const Modules &modules, Libraries &libraries);

  /// Adds all slices to a stream.
  Status submit(const DriverLibrary &driver, api::CUstream stream) const;

private:
  struct Slice {
    BlasProduct product;
    api::CUdeviceptr rows; ///< the address that row 0 of the whole product would have
    int64_t begin, end;    ///< tiles
  };
  api::CUfunction kernel = nullptr;
  unsigned blocks = 0, threads = 0;
  std::vector<api::CUdeviceptr> operands;
  std::vector<Slice> slices;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_SLICEDPRODUCT_H

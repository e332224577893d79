//===- SlicedProduct.cpp - a product whose slices go to a kernel ---------===//
#include "runtime/cuda/SlicedProduct.h"

#include "runtime/cuda/Libraries.h"
#include "runtime/cuda/Modules.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/ProductSlices.h"

#include <algorithm>

namespace tcc::cuda {

namespace {
/// The kernel's signature, which exists because the verifier has checked it.
const plan::KernelSignature &signatureOf(const plan::Plan &plan, const plan::KernelCall &call) {
  const auto &kernels = plan.code_objects(static_cast<int>(call.code())).kernels();
  return *std::find_if(kernels.begin(), kernels.end(),
                       [&](const plan::KernelSignature &one) { return one.symbol() == call.symbol(); });
}
} // namespace

Expected<SlicedProduct> SlicedProduct::make(const plan::Plan &plan, const plan::MatmulCall &call,
                                            std::span<const api::CUdeviceptr> pointers, api::CUdeviceptr scratch,
                                            const Modules &modules, Libraries &libraries) {
  Step launch;
  if (Status status = modules.find(call.row_kernel(), launch); !status.ok())
    return status;
  SlicedProduct made;
  made.kernel = launch.kernel;
  made.blocks = launch.blocks;
  made.threads = launch.threads;
  made.operands.assign(pointers.begin() + 2, pointers.end());
  const int64_t sliceTiles = plan::sliceTiles(call, signatureOf(plan, call.row_kernel()));
  const auto rowBytes = plan::sliceRowBytes(call), element = plan::dtypeBytes(call.dtype());
  for (int64_t row = 0, tile = 0; row < call.m(); row += call.tile_m(), tile += sliceTiles) {
    plan::MatmulCall rows = call;
    rows.clear_row_kernel();
    rows.clear_row_operands();
    rows.set_m(std::min(call.tile_m(), call.m() - row));
    rows.set_tile_m(rows.m());
    // Rows of the result correspond to rows of A, or to its columns if A is transposed.
    const auto begin = static_cast<uint64_t>(call.trans_a() ? row : row * call.k()) * element;
    BlasOperands where{pointers[0] + begin, pointers[1], scratch, scratch + plan::sliceBytes(call), 0, 0};
    where.rowOfA = call.trans_a() ? call.m() : 0;
    Expected<BlasProduct> product = libraries.product(rows, where);
    if (!product)
      return product.status();
    made.slices.push_back({product.take(), scratch - static_cast<uint64_t>(row) * rowBytes, tile,
                           std::min(tile + sliceTiles, launch.tiles)});
  }
  return made;
}

Status SlicedProduct::submit(const DriverLibrary &driver, api::CUstream stream) const {
  constexpr api::CUdeviceptr kNoScratch = 0;
  for (const Slice &slice : slices) {
    if (Status status = slice.product.submit(stream); !status.ok())
      return status;
    std::vector<void *> parameters{const_cast<api::CUdeviceptr *>(&slice.rows)};
    for (const api::CUdeviceptr &operand : operands)
      parameters.push_back(const_cast<api::CUdeviceptr *>(&operand));
    parameters.push_back(const_cast<int64_t *>(&slice.end));
    parameters.push_back(const_cast<api::CUdeviceptr *>(&kNoScratch));
    parameters.push_back(const_cast<int64_t *>(&slice.begin));
    if (Status status = driver.check(
            driver->launchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, parameters.data(), nullptr),
            "launching a kernel behind a product");
        !status.ok())
      return status;
  }
  return Status();
}

} // namespace tcc::cuda

//===- Libraries.cpp - the libraries that a plan's calls run on ----------===//
#include "runtime/cuda/Libraries.h"

#include <algorithm>

namespace tcc::cuda {

namespace {
bool calls(const plan::Plan &plan, plan::Instruction::CallCase kind) {
  return std::any_of(plan.entries().begin(), plan.entries().end(), [&](const plan::Entry &entry) {
    return std::any_of(entry.instructions().begin(), entry.instructions().end(),
                       [&](const plan::Instruction &instruction) { return instruction.call_case() == kind; });
  });
}
} // namespace

Libraries::~Libraries() {
  products.reset();
  convolutions.reset(); // its engines hang on the handle
  if (blasHandle)
    (void)(*blas)->destroy(blasHandle);
  if (dnnHandle)
    (void)(*dnn)->destroy(dnnHandle);
}

Status Libraries::openBlas() {
  if (blasHandle)
    return Status();
  Expected<BlasLibrary> opened = BlasLibrary::open();
  if (!opened)
    return opened.status();
  blas = std::make_shared<const BlasLibrary>(opened.take());
  if (Status status = blas->check((*blas)->create(&blasHandle), "starting cuBLASLt"); !status.ok())
    return status;
  products.emplace(blas->version(), driver, stream, machine, recorded, tune);
  return products->compareLibrary();
}

Status Libraries::openDnn() {
  if (dnnHandle)
    return Status();
  Expected<DnnLibrary> opened = DnnLibrary::open();
  if (!opened)
    return opened.status();
  dnn = std::make_shared<const DnnLibrary>(opened.take());
  if (Status status = dnn->check((*dnn)->create(&dnnHandle), "starting cuDNN"); !status.ok())
    return status;
  convolutions.emplace(dnn->version(), driver, stream, machine, recorded, tune);
  return convolutions->compareLibrary();
}

Status Libraries::compare(const plan::Plan &plan) {
  if (recorded.empty())
    return Status();
  Status status = calls(plan, plan::Instruction::kMatmul) ? openBlas() : Status();
  return status.ok() && calls(plan, plan::Instruction::kConvolution) ? openDnn() : status;
}

Expected<BlasProduct> Libraries::product(const plan::MatmulCall &call, const BlasOperands &operands) {
  if (Status status = openBlas(); !status.ok())
    return status;
  Expected<BlasProduct> product = BlasProduct::describe(blas, blasHandle, call, operands);
  if (product)
    if (Status status = products->choose(*product); !status.ok())
      return status;
  return product;
}

Expected<DnnConvolution> Libraries::convolution(const plan::ConvolutionCall &call, const DnnOperands &operands) {
  if (Status status = openDnn(); !status.ok())
    return status;
  Expected<DnnConvolution> convolution = DnnConvolution::describe(dnn, dnnHandle, call, operands);
  if (convolution)
    if (Status status = convolutions->choose(*convolution); !status.ok())
      return status;
  return convolution;
}

runtime::Algorithms Libraries::taken() const {
  runtime::Algorithms all;
  auto add = [&](const auto &choice) {
    if (!choice)
      return;
    all.library += (all.library.empty() ? "" : runtime::Algorithms::kSeparator) + choice->libraryName();
    all.calls.insert(choice->taken().begin(), choice->taken().end());
  };
  add(products);
  add(convolutions);
  if (!all.empty())
    all.machine = machine;
  return all;
}

} // namespace tcc::cuda

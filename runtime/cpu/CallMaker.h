//===- CallMaker.h - factory of executors for a plan's calls ----*- C++ -*-===//
//
// A device gets the executors of products and convolutions from one object: this program's kernels, unless a test made
// it with others (createCpuDeviceWith). So a test can run a plan for a level that the machine lacks, with plain loops
// for its calls.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CALLMAKER_H
#define TCC_RUNTIME_CPU_CALLMAKER_H

#include "runtime/cpu/LibraryPrimitive.h"

namespace tcc::runtime {

class CallMaker {
public:
  virtual ~CallMaker() = default;
  using Made = Expected<std::unique_ptr<LibraryCall>>;

  /// As the functions `prepare` (LibraryPrimitive.h).
  virtual Made make(const plan::MatmulCall &call, CpuLevel level, const Scratch &scratch, unsigned workers,
                    plan::KernelFunction rowKernel) const;
  virtual Made make(const plan::ConvolutionCall &call, CpuLevel level, const Scratch &scratch, unsigned workers) const;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLMAKER_H

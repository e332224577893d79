//===- CallMaker.h - factory of executors for a plan's calls ----*- C++ -*-===//
//
// The device gets the executors of products and convolutions from one object: this program's kernels, unless a test has
// set others. So a test can run a plan for a level that the machine lacks, with plain loops for its calls.
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
  virtual Made make(const plan::MatmulCall &call, const Scratch &scratch, unsigned workers,
                    plan::KernelFunction rowKernel) const;
  virtual Made make(const plan::ConvolutionCall &call, const Scratch &scratch, unsigned workers) const;
};

/// The object that devices use.
const CallMaker &callMaker();

/// Sets it for its lifetime. Not for several threads at once.
class ScopedCallMaker {
public:
  explicit ScopedCallMaker(const CallMaker &maker);
  ~ScopedCallMaker();
  ScopedCallMaker(const ScopedCallMaker &) = delete;
  ScopedCallMaker &operator=(const ScopedCallMaker &) = delete;

private:
  const CallMaker *saved;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLMAKER_H

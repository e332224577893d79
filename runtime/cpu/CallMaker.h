//===- CallMaker.h - who makes a plan's calls ready to run ------*- C++ -*-===//
//
// The device asks one object for the executors of products and convolutions: this program's kernels, unless a test has set
// others. So a plan for a level that a machine lacks can be run there, its calls by plain loops.
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

/// The one that devices ask.
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

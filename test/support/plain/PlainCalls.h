//===- PlainCalls.h - calls of a plan by plain loops ------------*- C++ -*-===//
//
// An executor for every call that a CPU plan's descriptor can name, at every machine level: loops that are obviously
// right, whose sums are made in f64 and rounded once. Nothing here depends on tiles, panels, an instruction set or a
// library, so that results of levels which this machine lacks can be checked as well.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_SUPPORT_PLAIN_PLAINCALLS_H
#define TCC_TEST_SUPPORT_PLAIN_PLAINCALLS_H

#include "runtime/cpu/CallMaker.h"

namespace tcc::test {

class PlainCalls final : public runtime::CallMaker {
public:
  Made make(const plan::MatmulCall &call, runtime::CpuLevel level, const runtime::Scratch &scratch, unsigned workers,
            plan::KernelFunction rowKernel) const override;
  Made make(const plan::ConvolutionCall &call, runtime::CpuLevel level, const runtime::Scratch &scratch,
            unsigned workers) const override;
};

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_PLAIN_PLAINCALLS_H

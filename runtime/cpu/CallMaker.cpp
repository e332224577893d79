//===- CallMaker.cpp - factory of executors for a plan's calls ------------===//
#include "runtime/cpu/CallMaker.h"

namespace tcc::runtime {

namespace {
const CallMaker *&current() {
  static const CallMaker kernels;
  static const CallMaker *maker = &kernels;
  return maker;
}
} // namespace

CallMaker::Made CallMaker::make(const plan::MatmulCall &call, const Scratch &scratch, unsigned workers,
                                plan::KernelFunction rowKernel) const {
  return prepare(call, scratch, workers, rowKernel);
}

CallMaker::Made CallMaker::make(const plan::ConvolutionCall &call, const Scratch &scratch, unsigned workers) const {
  return prepare(call, scratch, workers);
}

const CallMaker &callMaker() { return *current(); }

ScopedCallMaker::ScopedCallMaker(const CallMaker &maker) : saved(current()) { current() = &maker; }
ScopedCallMaker::~ScopedCallMaker() { current() = saved; }

} // namespace tcc::runtime

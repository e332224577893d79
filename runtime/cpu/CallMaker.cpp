//===- CallMaker.cpp - factory of executors for a plan's calls ------------===//
#include "runtime/cpu/CallMaker.h"

namespace tcc::runtime {

CallMaker::Made CallMaker::make(const plan::MatmulCall &call, CpuLevel level, const Scratch &scratch, unsigned workers,
                                plan::KernelFunction rowKernel) const {
  return prepare(call, level, scratch, workers, rowKernel);
}

CallMaker::Made CallMaker::make(const plan::ConvolutionCall &call, CpuLevel level, const Scratch &scratch,
                                unsigned workers) const {
  return prepare(call, level, scratch, workers);
}

} // namespace tcc::runtime

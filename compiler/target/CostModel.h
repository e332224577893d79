//===- CostModel.h - nominal rates for scheduling decisions -----*- C++ -*-===//
//
// Fixed rates by which recomputation, order and overlap are decided. They are not measured on the host, so that plans
// are the same on every host.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_COSTMODEL_H
#define TCC_COMPILER_TARGET_COSTMODEL_H

namespace tcc::target {

/// Rates of a nominal machine.
struct CostModel {
  double callFlopsPerNs = 150;  ///< of calls
  double kernelFlopsPerNs = 60; ///< of generated kernels
  double bytesPerNs = 32;       ///< read and written by kernels and calls; caches serve part of it
  double stateBytesPerNs = 16;  ///< read and written by updates; all of it comes from memory
  double launchNs = 2000;       ///< overhead of an instruction
  double hostBytesPerNs = 0;    ///< copied to the host, and as much from it at the same time; 0: the device has no link
  double recomputeTime = 0.015; ///< share of a step's time that a plan without a budget may spend on recomputation
};

} // namespace tcc::target

#endif // TCC_COMPILER_TARGET_COSTMODEL_H

//===- MachineLevel.h - the level that tests run at -------------*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_MACHINELEVEL_H
#define TCC_TEST_SUPPORT_MACHINELEVEL_H

#include "runtime/cpu/calls/CpuLevel.h"

namespace tcc::test {

/// "cpu:v4": this machine's default.
inline std::string machineLevel(bool bf16Products = false) {
  auto level = runtime::defaultLevel(runtime::cpuFeatures(), bf16Products);
  return level ? runtime::levelName(*level) : level.message();
}

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_MACHINELEVEL_H

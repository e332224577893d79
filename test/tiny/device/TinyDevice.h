//===- TinyDevice.h - a device that runs one instruction at a time --------===//
//
// Runs plans for the target "tiny": one worker, products by three loops, kernels from the plan's objects.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_TINY_DEVICE_TINYDEVICE_H
#define TCC_TEST_TINY_DEVICE_TINYDEVICE_H

#include "runtime/Device.h"

namespace tcc::test {

/// The device "tiny", for DeviceRegistry::add.
runtime::DeviceKind tinyDevice();

} // namespace tcc::test

#endif // TCC_TEST_TINY_DEVICE_TINYDEVICE_H

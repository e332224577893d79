//===- DeviceValues.h - tensors of a device, as vectors ------------------===//
#ifndef TCC_TEST_SUPPORT_DEVICE_DEVICEVALUES_H
#define TCC_TEST_SUPPORT_DEVICE_DEVICEVALUES_H

#include "runtime/Device.h"

#include <gtest/gtest.h>
#include <vector>

namespace tcc::test {

template <typename T> std::vector<T> valuesAt(runtime::Device &device, runtime::Place place) {
  Expected<uint64_t> bytes = device.bytesOf(place);
  EXPECT_TRUE(bytes.ok()) << bytes.message();
  std::vector<T> values(bytes ? *bytes / sizeof(T) : 0);
  Status status = device.read(place, 0, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

template <typename T> void setValues(runtime::Device &device, runtime::Place place, const std::vector<T> &values) {
  Status status = device.write(place, 0, std::as_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.message();
}

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_DEVICE_DEVICEVALUES_H

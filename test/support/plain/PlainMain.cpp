//===- PlainMain.cpp - trun, its calls by plain loops ---------------------===//
//
// trun with PlainCalls for products and convolutions, pretending that the processor has every machine level: plans for
// cpu:amx train on machines without AMX. Generated kernels run unchanged, and need their own level's instructions.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/CpuDevice.h"
#include "runtime/registry/DeviceRegistry.h"
#include "test/support/plain/PlainCalls.h"
#include "tools/common/ExitStatus.h"
#include "tools/trun/Commands.h"

#include <cstdio>

int main(int argc, char **argv) {
  tcc::runtime::CpuFeatures all = tcc::runtime::detectFeatures();
  all.avx2 = all.avx512 = all.bf16 = all.amx = true;
  tcc::runtime::ScopedFeatures features(all);
  const tcc::test::PlainCalls calls;
  tcc::runtime::DeviceKind cpu = tcc::runtime::cpuDevice();
  cpu.create = [&](const auto &reader, const auto &options) {
    return tcc::runtime::createCpuDeviceWith(calls, reader, options);
  };
  tcc::runtime::DeviceRegistry devices = tcc::runtime::standardDevices();
  devices.add(cpu);
  tcc::tools::Parsed parsed = tcc::tools::parseCommandLine(argc, argv);
  if (parsed.exitStatus)
    return *parsed.exitStatus;
  parsed.options.session.devices = &devices;
  tcc::Status status = tcc::tools::runCommand(parsed.options);
  if (!status.ok())
    std::fprintf(stderr, "trun: error: %s\n", status.message().c_str());
  return tcc::tools::exitStatusOf(status);
}

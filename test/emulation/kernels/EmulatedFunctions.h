//===- EmulatedFunctions.h - generated kernels on the machine --*- C++ -*-===//
#ifndef TCC_TEST_EMULATION_KERNELS_EMULATEDFUNCTIONS_H
#define TCC_TEST_EMULATION_KERNELS_EMULATEDFUNCTIONS_H

#include "test/emulation/ptx/Program.h"
#include "test/support/FunctionKernels.h"

namespace tcc::test {

/// Functions whose ops become PTX for one architecture, run by the emulation. Each operand is an allocation of its own,
/// of exactly its size.
class EmulatedFunctions final : public FunctionKernels {
public:
  explicit EmulatedFunctions(emulation::MachineOptions options, const std::string &architecture = "sm_90");

  emulation::MachineOptions &options() { return machine.options; }

  /// If set, changes the pointers of each kernel before it runs. A fault is then expected, and is stored in `found`.
  std::function<void(std::vector<uint64_t> &pointers)> tamper;
  std::optional<emulation::Fault> found;
  /// If set, changes the text of all kernels before it is loaded.
  std::function<void(std::string &text)> rewrite;
  /// Adds the following launches to the record under this name; empty: stops recording.
  void recordAs(std::string name) { recorded = std::move(name); }

private:
  bool load(std::string text) override;
  bool runKernel(Kernel &kernel, llvm::ArrayRef<const train::HostTensor *> inputs,
                 std::vector<train::HostTensor> &results, Placement placement) override;

  emulation::Machine machine;
  std::unique_ptr<emulation::Program> program;
  std::string code, recorded;
};

} // namespace tcc::test

#endif // TCC_TEST_EMULATION_KERNELS_EMULATEDFUNCTIONS_H

//===- RunCompiled.h - functions through generated kernels ------*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_RUNCOMPILED_H
#define TCC_TEST_SUPPORT_RUNCOMPILED_H

#include "test/support/FunctionKernels.h"

namespace tcc::test {

/// Machine levels whose kernels differ. Higher levels only have other library calls and, if machineMultipliesPairs(),
/// other attention in bf16.
std::vector<std::string> testedLevels();
/// True if this machine can run a level's kernels as tcc makes them.
bool hasInstructionsOf(const std::string &level);
/// True if this machine can run kernels for cpu:v4-bf16.
bool machineMultipliesPairs();

/// The instructions that a level's kernels are compiled to. On a machine without the level's own they are always
/// AVX2's.
enum class Instructions {
  OfLevel,
  Avx2, ///< the level's vectors over more registers, with the same bits; not for levels that multiply pairs of bf16
};

/// Functions whose ops become generated kernels, compiled together for one machine level, and run here.
class CompiledFunctions final : public FunctionKernels {
public:
  /// For `level` ("cpu:v3"); empty: the best one of this machine.
  explicit CompiledFunctions(const std::string &level = "", Instructions instructions = Instructions::OfLevel);

private:
  bool load(std::string code) override;
  bool runKernel(Kernel &kernel, llvm::ArrayRef<const train::HostTensor *> inputs,
                 std::vector<train::HostTensor> &results, Placement placement) override;

  void *library = nullptr;
};

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_RUNCOMPILED_H

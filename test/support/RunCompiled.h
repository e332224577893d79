//===- RunCompiled.h - functions through generated kernels ------*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_RUNCOMPILED_H
#define TCC_TEST_SUPPORT_RUNCOMPILED_H

#include "test/support/FunctionKernels.h"

namespace tcc::test {

/// Machine levels whose kernels differ. The higher ones differ in calls, and in attention on bf16 where
/// machineMultipliesPairs().
std::vector<std::string> testedLevels();
/// True where this machine runs a level's kernels as tcc makes them.
bool hasInstructionsOf(const std::string &level);
/// True where kernels for cpu:v4-bf16 run.
bool machineMultipliesPairs();

/// What kernels of a level are made of. A machine without a level's instructions gets AVX2's always.
enum class Instructions {
  OfLevel,
  Avx2, ///< a level's vectors in more registers, in the same bits: not for levels that multiply pairs of bf16
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
